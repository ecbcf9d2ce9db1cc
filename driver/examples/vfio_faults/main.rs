//! What becomes of a program whose device fails under it, and of who opens the device next: in the lab, where
//! `cargo xtask apps --device vfio` runs it.
//!
//! A child of this program drives a function of vfio-pci, with traffic to another device at the other end of a cable; in
//! the midst of it something happens. Then nothing may be left: the child is gone, its group can be opened, no page is
//! pinned, the kernel has not complained; and the next child's traffic goes as if nothing had been.

mod machine;
mod traffic;

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use machine::{Function, Trace};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Break a device of vfio-pci's under a program's traffic, and see that nothing is left of it.
#[derive(Parser, Debug)]
struct Arguments {
    /// The device that the program drives, such as vfio:0000:00:04.0.
    #[arg(short, long)]
    device: String,
    /// The device at the other end of the cable, which the kernel drives.
    #[arg(short, long)]
    peer: String,
    /// Index of the GIDs of both.
    #[arg(short, long, default_value_t = 0)]
    gid_index: u8,
    /// What the software ConnectX calls the device in orders.
    #[arg(long, default_value_t = 0)]
    number: u32,
    /// Only be the traffic: until so many turns are done or, of 0, standard input ends.
    #[arg(long, hide = true)]
    turns: Option<u64>,
    /// What happens.
    #[arg(required_unless_present = "turns")]
    fault: Option<Fault>,
}

/// What happens to the device, or to who drives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Fault {
    /// The process is killed, without a chance to do anything.
    Kill,
    /// Somebody resets the function.
    Reset,
    /// The cable is cut, and mended later.
    Cut,
    /// The firmware fails.
    Fatal,
    /// Interrupts do not arrive any more.
    Interrupts,
}

/// For whatever should happen at once. Emulated machines on busy hosts are slow.
const PATIENCE: Duration = Duration::from_secs(60);
/// The longest that a program may be busy with closing a device that has failed.
const CLOSING: Duration = Duration::from_secs(15);
/// Reports of the traffic that are waited for before something happens, and after what it should survive.
const REPORTS: usize = 2;
/// Turns after everything.
const AFTER: u64 = 40;

/// A process with traffic, and what it says.
struct Traffic {
    child: Child,
    lines: Receiver<String>,
}

impl Traffic {
    fn start(arguments: &Arguments, turns: u64) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--device", &arguments.device, "--peer", &arguments.peer])
            .args(["--gid-index", &arguments.gid_index.to_string()])
            .args(["--turns", &turns.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = child.stdout.take().ok_or("no output")?;
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(output)
                .lines()
                .map_while(std::io::Result::ok)
            {
                println!("    {line}");
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, lines })
    }

    /// Waits until it says something.
    fn hear(&self, wanted: &str) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) if line == wanted => return Ok(()),
                Ok(_) => {}
                Err(_) => return Err(format!("the traffic did not say {wanted:?}").into()),
            }
        }
    }

    /// Waits until some turns were made.
    fn busy(&self) -> Result<()> {
        (0..REPORTS).try_for_each(|_| self.hear(traffic::BUSY))
    }

    /// Waits for its end.
    fn end(mut self, patience: Duration) -> Result<ExitStatus> {
        drop(self.child.stdin.take());
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            thread::sleep(Duration::from_millis(20));
        }
        self.child.kill()?;
        Err(format!("the traffic did not end in {} s", patience.as_secs()).into())
    }

    fn ends_well(self, patience: Duration) -> Result<()> {
        match self.end(patience)? {
            status if status.success() => Ok(()),
            status => Err(format!("the traffic ended with {status}").into()),
        }
    }
}

/// Gives the software ConnectX an order.
fn order(words: &[&str]) -> Result<()> {
    let status = Command::new("connectx")
        .args(words)
        .stdout(Stdio::null())
        .status()?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("connectx {}: {status}", words.join(" ")).into()),
    }
}

/// Has it happen, and the program notice what it should.
fn happen(fault: Fault, traffic: Traffic, function: &Function, number: u32) -> Result<()> {
    let number = number.to_string();
    match fault {
        Fault::Kill => {
            let mut traffic = traffic;
            traffic.child.kill()?;
            let status = traffic.end(PATIENCE)?;
            if status.signal() != Some(9) {
                return Err(format!("the traffic was to be killed and ended with {status}").into());
            }
        }
        Fault::Reset => {
            function.reset()?;
            traffic.hear("event DEVICE_FATAL")?;
            traffic.ends_well(CLOSING)?;
        }
        Fault::Fatal => {
            order(&["fail", &number])?;
            traffic.hear("event DEVICE_FATAL")?;
            traffic.ends_well(CLOSING)?;
        }
        Fault::Cut => {
            order(&["cut"])?;
            let told = traffic.hear(traffic::UNANSWERED);
            order(&["restore"])?;
            told?;
            traffic.hear("event PORT_ACTIVE")?;
            traffic.busy()?;
            traffic.ends_well(PATIENCE)?;
        }
        Fault::Interrupts => {
            if function.interrupts()? == 0 {
                return Err("the traffic had no interrupts before".into());
            }
            order(&["mute", &number])?;
            // those that were on their way
            thread::sleep(Duration::from_millis(500));
            let before = function.interrupts()?;
            let survived = traffic.busy();
            let after = function.interrupts()?;
            order(&["unmute", &number])?;
            survived?;
            if after != before {
                return Err(format!("{} interrupts were not lost", after - before).into());
            }
            traffic.ends_well(PATIENCE)?;
        }
    }
    Ok(())
}

fn run(arguments: &Arguments) -> Result<()> {
    let (device, peer) = (&arguments.device, &arguments.peer);
    let fault = match (arguments.turns, arguments.fault) {
        (Some(turns), _) => return traffic::run(device, peer, arguments.gid_index, turns),
        (None, Some(fault)) => fault,
        (None, None) => return Err("which fault?".into()),
    };
    let function = Function::new(device)?;
    let trace = Trace::begin(&function)?;
    println!("traffic");
    let traffic = Traffic::start(arguments, 0)?;
    traffic.busy()?;
    let held = trace.held(&function, traffic.child.id())?;
    println!("{fault:?}");
    happen(fault, traffic, &function, arguments.number)?;
    trace.nothing_left(&function)?;
    println!("traffic again");
    Traffic::start(arguments, AFTER)?.ends_well(PATIENCE * 2)?;
    trace.nothing_left(&function)?;
    println!("{fault:?}: {held} were held, nothing is left, and the next open works");
    Ok(())
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
