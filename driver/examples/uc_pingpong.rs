//! Pingpong over an unreliable connection; its other end may be `ibv_uc_pingpong`.

mod common;

use std::process::ExitCode;

use clap::Parser;
use common::{ConnectedOptions, Options};
use oxverbs::{Mtu, Uc};

/// Send messages back and forth over an unreliable connection. The other end may be the C program ibv_uc_pingpong.
#[derive(Parser, Debug)]
struct Arguments {
    #[command(flatten)]
    common: Options,
    /// Bytes of a message.
    #[arg(short, long, default_value_t = 4096)]
    size: u32,
    /// Path MTU in bytes.
    #[arg(short, long, default_value = "1024", value_parser = common::mtu, value_name = "SIZE")]
    mtu: Mtu,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    common::main(|| {
        let more = ConnectedOptions {
            size: arguments.size,
            mtu: arguments.mtu,
            on_demand: false,
            prefetch: false,
            implicit: false,
            timestamps: false,
            device_memory: false,
        };
        common::run_connected::<Uc>(&arguments.common, more)
    })
}
