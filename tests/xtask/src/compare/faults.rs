//! `cargo xtask compare --faults`: what a program sees of broken links, keys and devices, under either provider.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use anyhow::{Result, bail};
use comfy_table::{Table, presets};
use lab::{Config, ConnectX, Device, Guest, GuestDied, Provider, Step};
use serde::{Deserialize, Serialize};

use super::{Arguments, Of, name_of, suite};
use crate::lab::end_guests_on_ctrl_c;

/// Makes the faults and tells what comes of them, in the guest.
const SCRIPT: &str = include_str!("faults.py");
/// All faults under one provider.
const TIMEOUT: Duration = Duration::from_secs(400);

/// What a program must see of each fault, whatever its provider: that it was one.
const FAULTS: [(&str, &[&str]); 10] = [
    ("loss", &["SUCCESS", "data right"]),
    (
        "cut",
        &["RETRY_EXC_ERR", "WR_FLUSH_ERR", "PORT_ERR", "PORT_ACTIVE"],
    ),
    ("rkey", &["REM_ACCESS_ERR", "QP_ACCESS_ERR"]),
    ("bounds", &["REM_ACCESS_ERR", "QP_ACCESS_ERR"]),
    ("rnr", &["RNR_RETRY_EXC_ERR"]),
    ("short_receive", &["LOC_LEN_ERR", "REM_INV_REQ_ERR"]),
    // The model of a firmware that failed goes on to carry packets.
    ("fatal_receiver", &["DEVICE_FATAL"]),
    ("fatal_sender", &["DEVICE_FATAL"]),
    ("reset_receiver", &["DEVICE_FATAL", "RETRY_EXC_ERR"]),
    ("reset_sender", &["DEVICE_FATAL"]),
];

/// What one end of the connection saw.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Side {
    completions: Vec<String>,
    events: Vec<String>,
    state: String,
    closing: Vec<String>,
}

/// What a program saw of a fault.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Seen {
    #[serde(default)]
    sender: Side,
    #[serde(default)]
    receiver: Side,
    /// Whether the data was right, where it is looked at.
    #[serde(default)]
    data: Option<bool>,
    #[serde(default)]
    error: Option<String>,
}

/// A line of the script.
#[derive(Debug, Deserialize)]
struct Line {
    fault: String,
    provider: String,
    #[serde(flatten)]
    seen: Seen,
}

impl Side {
    fn told(&self, name: &str) -> String {
        let mut text = format!("{name}: ");
        let mut runs: Vec<(&str, usize)> = Vec::new();
        for status in &self.completions {
            match runs.last_mut() {
                Some((last, count)) if last == status => *count += 1,
                _ => runs.push((status, 1)),
            }
        }
        let runs: Vec<String> = runs
            .iter()
            .map(|(status, count)| match count {
                1 => (*status).to_owned(),
                _ => format!("{count} {status}"),
            })
            .collect();
        text += &runs.join(", ");
        if !self.events.is_empty() {
            text += &format!("; events {}", self.events.join(", "));
        }
        text += &format!("; {}", self.state);
        if !self.closing.is_empty() {
            text += &format!("; closing: {}", self.closing.join(", "));
        }
        text
    }
}

impl Seen {
    fn told(&self) -> String {
        if let Some(error) = &self.error {
            return format!("error: {error}");
        }
        let mut text = format!(
            "{}\n{}",
            self.sender.told("sender"),
            self.receiver.told("receiver")
        );
        if let Some(right) = self.data {
            text += &format!("\ndata {}", if right { "right" } else { "WRONG" });
        }
        text
    }

    /// The first thing that a program must see and did not.
    fn missing(&self, wanted: &[&'static str]) -> Option<&'static str> {
        let told = self.told();
        let words: Vec<&str> = told
            .split([' ', ',', ';', '\n'])
            .filter(|word| !word.is_empty())
            .collect();
        let is_there = |wanted: &str| match wanted.split_once(' ') {
            Some(_) => told.lines().any(|line| line == wanted),
            None => words.contains(&wanted),
        };
        wanted.iter().find(|wanted| !is_there(wanted)).copied()
    }
}

type Record = BTreeMap<String, Seen>;

/// Faults under a provider.
fn pass(guest: &mut Guest, provider: Provider, config: &Config, faults: &str) -> Result<Record> {
    let command = suite::under(
        provider,
        config,
        &format!(
            "exec python3 /share/work/faults.py {} {faults}",
            config.gid_index()
        ),
    );
    let step = Step::new("faults", command).timeout(TIMEOUT);
    let outcome = match guest.run(step) {
        Ok(outcome) => outcome,
        Err(error) => {
            let died = error.downcast::<GuestDied>()?;
            bail!("under {provider:?} {died}");
        }
    };
    let mut record = Record::new();
    for line in outcome.stdout.lines() {
        let Ok(line) = serde_json::from_str::<Line>(line) else {
            continue;
        };
        let expected = suite::provider_file(provider, config);
        if !line.provider.starts_with(expected) {
            bail!("{} was served by {:?}", line.fault, line.provider);
        }
        eprintln!(
            "{provider:?} {}: {}",
            line.fault,
            line.seen.told().replace('\n', " | ")
        );
        record.insert(line.fault, line.seen);
    }
    if !outcome.ok() {
        bail!(
            "under {provider:?} the program ended with {} after {} faults\n{}",
            outcome.ended,
            record.len(),
            outcome.stderr.trim_end()
        );
    }
    Ok(record)
}

/// A fault under both.
#[derive(Debug, Serialize)]
struct Row<'a> {
    fault: &'static str,
    same: bool,
    /// What should have been seen and was not, by official or by the candidate.
    missing: Option<&'static str>,
    official: &'a Seen,
    candidate: &'a Seen,
}

impl Row<'_> {
    fn verdict(&self) -> String {
        match (self.same, self.missing) {
            (true, None) => "same".to_owned(),
            (true, Some(missing)) => format!("NO {missing}"),
            (false, _) => "DIFFERENT".to_owned(),
        }
    }
}

fn rows<'a>(official: &'a Record, candidate: &'a Record, nothing: &'a Seen) -> Vec<Row<'a>> {
    FAULTS
        .iter()
        .map(|(fault, wanted)| {
            let official = official.get(*fault).unwrap_or(nothing);
            let candidate = candidate.get(*fault).unwrap_or(nothing);
            Row {
                fault,
                same: official == candidate,
                missing: (official.missing(wanted)).or_else(|| candidate.missing(wanted)),
                official,
                candidate,
            }
        })
        .collect()
}

#[derive(Debug, Serialize)]
struct Compared<'a> {
    candidate: Provider,
    faults: &'a [Row<'a>],
}

pub(super) fn run(arguments: &Arguments) -> Result<u8> {
    let config = arguments.suite.config(arguments.candidate);
    if config.device != Device::Mlx5 {
        bail!("faults are made by the software ConnectX: --device mlx5");
    }
    let config = Config {
        connectx: ConnectX {
            two: true,
            ..config.connectx
        },
        ..config
    };
    arguments.suite.build(&config)?;
    end_guests_on_ctrl_c()?;
    let boot = || -> Result<Guest> {
        let guest = Guest::boot(&config)?;
        fs::write(guest.work().join("faults.py"), SCRIPT)?;
        Ok(guest)
    };
    let mut guest = boot()?;
    let versions = guest.versions().clone();
    eprintln!("faults: {versions}, up in {:.1} s", guest.boot_seconds());
    let (deadly, harmless): (Vec<&str>, Vec<&str>) = (FAULTS.iter().map(|(fault, _)| *fault))
        .partition(|fault| fault.starts_with("fatal") || fault.starts_with("reset"));
    let harmless = harmless.join(" ");
    let mut official = pass(&mut guest, Provider::Official, &config, &harmless)?;
    let mut candidate = pass(&mut guest, arguments.candidate, &config, &harmless)?;
    let mut complaints = guest.complaints();
    // A device that died is none to go on with.
    for fault in deadly {
        for (provider, record) in [
            (Provider::Official, &mut official),
            (arguments.candidate, &mut candidate),
        ] {
            drop(guest);
            guest = boot()?;
            record.extend(pass(&mut guest, provider, &config, fault)?);
            complaints.extend(guest.complaints());
        }
    }

    let nothing = Seen::default();
    let rows = rows(&official, &candidate, &nothing);
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_header(["fault", "official", "candidate", ""]);
    for row in &rows {
        let told = [row.official.told(), row.candidate.told()];
        let [official, candidate] = told;
        let candidate = if row.same {
            "the same".to_owned()
        } else {
            candidate
        };
        table.add_row([row.fault.to_owned(), official, candidate, row.verdict()]);
    }
    println!("{table}");
    // The kernel complains of devices that fail, as it should.
    let of = Of::new(&config, &versions, &[], &complaints);
    let what = Compared {
        candidate: arguments.candidate,
        faults: &rows,
    };
    arguments.suite.write(&of, &what)?;
    let good = (rows.iter())
        .filter(|row| row.same && row.missing.is_none())
        .count();
    println!(
        "faults {} {}: {good} of {} the same",
        name_of(&config),
        versions.kernel,
        rows.len()
    );
    Ok(u8::from(good < rows.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(text: &str) -> Seen {
        serde_json::from_str::<Line>(text).unwrap().seen
    }

    const RNR: &str = r#"{"fault": "rnr", "provider": "libmlx5.so", "sender": {"completions":
        ["SUCCESS", "SUCCESS", "RNR_RETRY_EXC_ERR"], "events": [], "state": "ERR", "closing": []}, "receiver":
        {"completions": ["SUCCESS"], "events": ["COMM_EST"], "state": "RTS", "closing": []}}"#;

    #[test]
    fn what_was_seen_is_told_in_short() {
        assert_eq!(
            seen(RNR).told(),
            "sender: 2 SUCCESS, RNR_RETRY_EXC_ERR; ERR\nreceiver: SUCCESS; events COMM_EST; RTS"
        );
    }

    #[test]
    fn a_difference_and_a_fault_that_nobody_saw_are_found() {
        let nothing = Seen::default();
        let record = |seen: Seen| Record::from([("rnr".to_owned(), seen)]);
        let verdict = |official: &Record, candidate: &Record| {
            let rows = rows(official, candidate, &nothing);
            rows.iter()
                .find(|row| row.fault == "rnr")
                .unwrap()
                .verdict()
        };
        let good = record(seen(RNR));
        assert_eq!(verdict(&good, &good), "same");
        let other = record(seen(
            &RNR.replace("\"SUCCESS\", \"SUCCESS\"", "\"SUCCESS\""),
        ));
        assert_eq!(verdict(&good, &other), "DIFFERENT");
        let harmless = record(seen(&RNR.replace("RNR_RETRY_EXC_ERR", "SUCCESS")));
        assert_eq!(verdict(&harmless, &harmless), "NO RNR_RETRY_EXC_ERR");
        assert_eq!(verdict(&good, &Record::new()), "DIFFERENT");
        assert_eq!(
            verdict(&Record::new(), &Record::new()),
            "NO RNR_RETRY_EXC_ERR"
        );
    }
}
