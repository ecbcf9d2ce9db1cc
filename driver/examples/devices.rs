//! Lists the RDMA devices of this machine with their node GUIDs, as `ibv_devices` does.

#[path = "common/report.rs"]
mod report;

use std::process::ExitCode;

fn main() -> ExitCode {
    report::main(|| {
        let devices = oxverbs::devices()?;
        println!("    {:<16}\t   node GUID", "device");
        println!("    {:<16}\t----------------", "------");
        for device in devices {
            println!("    {:<16}\t{:016x}", device.name(), device.guid().0);
        }
        Ok(())
    })
}
