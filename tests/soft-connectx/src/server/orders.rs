//! Orders given while the program runs, through a file.
//!
//! Who has an order makes the file, under another name first so that it is whole when it appears; the program takes it
//! away, does what its lines say and makes `FILE.answer`, a line for each. A file can be made from everywhere, from
//! within the guest too, whose shared directory it lies in.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, thread};

use super::backend::with;
use super::cable::Cable;
use super::interrupts::EventDescriptors;
use crate::cable::{Chance, Faults};
use crate::device::Device;

/// How often the file is looked for.
const LOOK: Duration = Duration::from_millis(10);

/// What can be ordered; devices are counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Cut,
    Restore,
    Loss(Chance),
    Reorder(Chance),
    Delay(Duration),
    /// The firmware of a device fails for good.
    Fail(usize),
    /// A device is reset as by its configuration space.
    Reset(usize),
    /// The interrupts of a device are lost.
    Mute(usize),
    /// And arrive again.
    Unmute(usize),
    Status,
}

const KNOWN: &str = "cut, restore, loss P, reorder P, delay MS, fail DEVICE, reset DEVICE, mute DEVICE, unmute DEVICE, status";

impl FromStr for Order {
    type Err = String;

    fn from_str(line: &str) -> Result<Order, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let chance = |text: &str| text.parse().map_err(|error| format!("{line}: {error}"));
        let number = |text: &str| text.parse().map_err(|_| format!("{line}: no number"));
        Ok(match words[..] {
            ["cut"] => Order::Cut,
            ["restore"] => Order::Restore,
            ["loss", p] => Order::Loss(chance(p)?),
            ["reorder", p] => Order::Reorder(chance(p)?),
            ["delay", ms] => Order::Delay(Duration::from_millis(number(ms)?)),
            ["fail", device] => Order::Fail(number(device)? as usize),
            ["reset", device] => Order::Reset(number(device)? as usize),
            ["mute", device] => Order::Mute(number(device)? as usize),
            ["unmute", device] => Order::Unmute(number(device)? as usize),
            ["status"] => Order::Status,
            _ => return Err(format!("{line}: known are {KNOWN}")),
        })
    }
}

/// Does what a line says. The cable has the devices, whose interrupts are beside it.
fn obey(cable: &Cable, interrupts: &[EventDescriptors], line: &str) -> Result<String, String> {
    let order = line.parse()?;
    let change = |change: &dyn Fn(Faults) -> Faults| {
        let mut lanes = 0;
        for mut lane in cable.lanes() {
            let faults = change(lane.faults());
            lane.set_faults(faults);
            lanes += 1;
        }
        (lanes > 0)
            .then_some(())
            .ok_or("there is no cable".to_owned())
    };
    let missing = |number: usize| format!("there is no device {number}");
    let device = |number: usize| cable.devices().get(number).ok_or_else(|| missing(number));
    let lose = |number: usize, lost: bool| {
        let of = interrupts.get(number).ok_or_else(|| missing(number))?;
        of.lose(lost);
        Ok::<(), String>(())
    };
    match order {
        Order::Cut => cable.set_cut(true),
        Order::Restore => cable.set_cut(false),
        Order::Loss(loss) => change(&|faults| Faults { loss, ..faults })?,
        Order::Reorder(reorder) => change(&|faults| Faults { reorder, ..faults })?,
        Order::Delay(delay) => change(&|faults| Faults { delay, ..faults })?,
        // `MLX5_INITIAL_SEG_HEALTH_SYNDROME_FW_INTERNAL_ERR` of Linux' mlx5_ifc.h.
        Order::Fail(number) => with(device(number)?, |device| device.fail(1)),
        Order::Reset(number) => with(device(number)?, Device::reset_unasked),
        Order::Mute(number) => lose(number, true)?,
        Order::Unmute(number) => lose(number, false)?,
        Order::Status => {
            let mut said = String::new();
            for (number, lane) in cable.lanes().enumerate() {
                let _ = write!(said, "; way {number}: {}", lane.counts());
            }
            return Ok(said.trim_start_matches("; ").to_owned());
        }
    }
    Ok("done".to_owned())
}

/// What is to be answered to all lines.
fn answer(cable: &Cable, interrupts: &[EventDescriptors], orders: &str) -> String {
    let mut answers = String::new();
    for line in orders
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
    {
        log::info!("ordered: {line}");
        let _ = match obey(cable, interrupts, line) {
            Ok(said) => writeln!(answers, "ok {said}"),
            Err(why) => writeln!(answers, "error {why}"),
        };
    }
    answers
}

/// Looks for orders in a file, for as long as the process lives.
pub(super) fn watch(cable: Arc<Cable>, interrupts: Vec<EventDescriptors>, file: &Path) {
    let beside = |end: &str| {
        let mut name = file.as_os_str().to_owned();
        name.push(end);
        PathBuf::from(name)
    };
    let (file, taken, new, done) = (
        file.to_owned(),
        beside(".taken"),
        beside(".answer.new"),
        beside(".answer"),
    );
    thread::spawn(move || {
        loop {
            thread::sleep(LOOK);
            if fs::rename(&file, &taken).is_err() {
                continue;
            }
            let orders = fs::read(&taken).unwrap_or_default();
            let answers = answer(&cable, &interrupts, &String::from_utf8_lossy(&orders));
            let written = fs::write(&new, answers).and_then(|()| fs::rename(&new, &done));
            if let Err(error) = written.and_then(|()| fs::remove_file(&taken)) {
                log::warn!("answering orders: {error}");
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_read() {
        let order = |line: &str| line.parse::<Order>();
        assert_eq!(order(" cut "), Ok(Order::Cut));
        assert_eq!(order("loss 1%"), Ok(Order::Loss("0.01".parse().unwrap())));
        assert_eq!(order("delay 5"), Ok(Order::Delay(Duration::from_millis(5))));
        assert_eq!(order("reset 1"), Ok(Order::Reset(1)));
        assert_eq!(order("mute 1"), Ok(Order::Mute(1)));
        for line in [
            "", "cut now", "loss", "loss 2", "delay x", "fail", "fail -1",
        ] {
            assert!(order(line).is_err(), "{line}");
        }
    }

    #[test]
    fn what_is_not_there_is_an_error() {
        let cable = Cable::none(Vec::new());
        let answers = answer(&cable, &[], "loss 1%\nfail 0\nmute 0\n\nnonsense\nstatus\n");
        let words: Vec<&str> = answers.lines().map(|line| &line[..2]).collect();
        assert_eq!(words, ["er", "er", "er", "er", "ok"], "{answers}");
    }
}
