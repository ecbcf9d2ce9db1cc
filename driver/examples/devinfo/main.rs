//! Prints what RDMA devices and their ports say of themselves, as `ibv_devinfo` does.

mod device;
mod port;

#[path = "../common/report.rs"]
mod report;

use std::error::Error;
use std::process::ExitCode;

use clap::Parser;
use oxverbs::{Context, devices, vfio_devices};

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
        // A device that this process would drive itself needs no RDMA in the kernel.
        let own = vfio_devices();
        let kernels = match devices() {
            Err(_) if !own.is_empty() => Vec::new(),
            found => found?,
        };
        let names = kernels.iter().map(|device| device.name().to_owned());
        if arguments.list {
            let names: Vec<_> = names.chain(own).collect();
            let plural = if names.len() == 1 { "" } else { "s" };
            println!("{} HCA{plural} found:", names.len());
            for name in names {
                println!("\t{name}");
            }
            println!();
            return Ok(());
        }
        let names = match arguments.device {
            Some(ref name) => vec![name.clone()],
            // To open one of ours resets it, so that is asked for, or there is no other.
            None if kernels.is_empty() => own,
            None => names.collect(),
        };
        if names.is_empty() {
            return Err("No IB devices found".into());
        }
        for name in names {
            print(&Context::open(&name)?, &arguments)?;
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
