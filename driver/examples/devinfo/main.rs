//! Prints what RDMA devices and their ports say of themselves, as `ibv_devinfo` does.

mod device;
mod port;

#[path = "../common/report.rs"]
mod report;

use std::error::Error;
use std::process::ExitCode;

use clap::Parser;
use oxverbs::{Context, Device, devices};

/// Print the attributes of RDMA devices.
#[derive(Parser, Debug)]
struct Arguments {
    /// Only this device.
    #[arg(short = 'd', long = "ib-dev", value_name = "DEV")]
    device: Option<String>,
    /// Only this port.
    #[arg(short = 'i', long = "ib-port", value_name = "PORT",
          value_parser = clap::value_parser!(u8).range(1..))]
    port: Option<u8>,
    /// Only the names of the devices.
    #[arg(short, long)]
    list: bool,
    /// All attributes.
    #[arg(short, long)]
    verbose: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    report::main(|| {
        if arguments.list {
            let devices = devices()?;
            let plural = if devices.len() == 1 { "" } else { "s" };
            println!("{} HCA{plural} found:", devices.len());
            for device in devices {
                println!("\t{}", device.name());
            }
            println!();
            return Ok(());
        }
        let devices = match &arguments.device {
            Some(name) => vec![Device::named(name)?],
            None => devices()?,
        };
        if devices.is_empty() {
            return Err("No IB devices found".into());
        }
        for device in devices {
            print(&Context::of_device(&device)?, &arguments)?;
        }
        Ok(())
    })
}

fn print(context: &Context, arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let attributes = context.query_device()?;
    let ports = attributes.phys_port_cnt;
    if arguments.port.is_some_and(|port| port > ports) {
        return Err("Invalid port requested for device".into());
    }
    device::print(context.device(), &attributes, arguments.verbose);
    for number in 1..=ports {
        if arguments.port.is_none_or(|port| port == number) {
            port::print(context, number, arguments.verbose)?;
        }
    }
    Ok(())
}
