//! The program `soft-connectx`: devices for QEMU.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use soft_connectx::cable::{Chance, Faults};
use soft_connectx::server::{Options, Served};
use soft_connectx::{Config, LinkLayer, server};

/// Serve a software ConnectX to a QEMU, as a vfio-user device on a Unix socket.
///
/// QEMU 10.1 or later connects to it with `-device {"driver":"vfio-user-pci","socket":{"type":"unix","path":SOCKET}}`; the
/// guest's memory must be shared (`-object memory-backend-memfd,share=on`). The program ends when QEMU does.
///
/// What it has to say, such as commands that it does not know, goes to standard error; RUST_LOG=debug says more.
///
/// Exit status: 0 after QEMU has gone; 1 if it could not serve; 2 for wrong arguments; 3 after a mistake that --strict
/// found; 70 if the model itself failed.
#[derive(Debug, Parser)]
#[command(name = "soft-connectx")]
struct Arguments {
    /// Socket to make. It must not exist yet. Given twice, there are two devices, joined by a cable.
    #[arg(long, required = true)]
    socket: Vec<PathBuf>,
    /// Link layer of the port.
    #[arg(long, value_enum, default_value_t)]
    link: Link,
    /// Take what no real device checks for fatal: reserved bits, changed work requests, overrun rings.
    #[arg(long)]
    strict: bool,
    /// Use the freedoms that a real device has, as this seed says.
    #[arg(long, value_name = "SEED")]
    adversary: Option<u64>,
    /// Number that tells devices of one fabric apart: GUIDs, LID and MAC address are made of it.
    #[arg(long, default_value_t = 1)]
    serial: u16,
    /// Be a virtual function of a card, which may not change what is its physical function's.
    #[arg(long)]
    virtual_function: bool,
    /// File to write every command and its answer into, in the format of mlx5_core's own dump; a second device has one of
    /// its own.
    #[arg(long, value_name = "FILE")]
    trace: Vec<PathBuf>,
    /// Socket at which the cable of the device meets that of another such program, which has the same path here and
    /// another serial number. The link is up while both are there.
    #[arg(long, value_name = "SOCKET")]
    cable: Option<PathBuf>,
    /// How likely the cable loses a frame: a number up to 1, or a percentage.
    #[arg(long, value_name = "P", default_value = "0%")]
    loss: Chance,
    /// How likely a frame on the cable is overtaken by the next one.
    #[arg(long, value_name = "P", default_value = "0%")]
    reorder: Chance,
    /// Milliseconds that a frame is on its way.
    #[arg(long, value_name = "MS", default_value_t = 0)]
    delay: u64,
    /// Chooses which frames are lost and overtaken.
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    cable_seed: u64,
    /// File to take orders from: whoever moves a file here has its lines done (cut, restore, loss P, reorder P, delay MS,
    /// fail DEVICE, reset DEVICE, mute DEVICE, unmute DEVICE, status; DEVICE is 0 or 1), and finds what came of each in
    /// FILE.answer.
    #[arg(long, value_name = "FILE")]
    control: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum Link {
    /// InfiniBand.
    #[default]
    Ib,
    /// Ethernet with RoCE.
    Roce,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("info")).init();
    match server::serve(&arguments.options()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("soft-connectx: {error}");
            ExitCode::FAILURE
        }
    }
}

impl Arguments {
    fn options(&self) -> Options {
        let served = |(number, socket): (u16, &PathBuf)| Served {
            config: Config {
                link: match self.link {
                    Link::Ib => LinkLayer::InfiniBand,
                    Link::Roce => LinkLayer::Ethernet,
                },
                strict: self.strict,
                adversary: self.adversary,
                serial: self.serial.wrapping_add(number),
                virtual_function: self.virtual_function,
            },
            socket: socket.clone(),
            trace: self.trace.get(usize::from(number)).cloned(),
        };
        Options {
            devices: (0..).zip(&self.socket).map(served).collect(),
            cable: self.cable.clone(),
            faults: Faults {
                loss: self.loss,
                reorder: self.reorder,
                delay: Duration::from_millis(self.delay),
                seed: self.cable_seed,
            },
            control: self.control.clone(),
        }
    }
}
