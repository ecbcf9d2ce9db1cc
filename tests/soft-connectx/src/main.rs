//! The program `soft-connectx`: the device for one QEMU.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
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
    /// Socket to make. It must not exist yet.
    #[arg(long)]
    socket: PathBuf,
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
    /// File to write every command and its answer into, in the format of mlx5_core's own dump.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
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
    let config = Config {
        link: match arguments.link {
            Link::Ib => LinkLayer::InfiniBand,
            Link::Roce => LinkLayer::Ethernet,
        },
        strict: arguments.strict,
        adversary: arguments.adversary,
        serial: arguments.serial,
    };
    match server::serve(config, &arguments.socket, arguments.trace.as_deref()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("soft-connectx: {error}");
            ExitCode::FAILURE
        }
    }
}
