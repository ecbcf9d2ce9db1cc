//! What a port counts.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use super::context::Context;
use crate::error::{Error, Result};
use crate::sys::sysfs;

/// Directories of a port's counters: those of InfiniBand, and the driver's own.
const KINDS: [&str; 2] = ["counters", "hw_counters"];
/// A setting among the latter: for how many ms the kernel remembers values (`struct rdma_hw_stats`).
const LIFESPAN: &str = "lifespan";

impl Context {
    /// What a port counts, by the names of the kernel's files of it: `counters/port_xmit_data` in words of four octets (IBTA
    /// 16.1.3.5), `hw_counters/out_of_buffer` and others in events. A device that this process drives is asked itself, and
    /// tells of the process' own queue pairs. What a device does not count is left out.
    ///
    /// # Errors
    ///
    /// There is no such port.
    pub fn port_counters(&self, port: u8) -> Result<BTreeMap<String, u64>> {
        let action = || format!("read the counters of port {port}");
        if let Some(objects) = self.inner.uctx().objects() {
            let told = objects.port_counters(port);
            let told = told.map_err(|errno| Error::kernel(action(), errno))?;
            return Ok(told
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect());
        }
        let ports = self.device().sysfs_path.join("ports");
        of_sysfs(&ports.join(port.to_string()))
            .map_err(|error| Error::kernel(action(), error.into()))
    }
}

/// The counters in a port's directory.
fn of_sysfs(port: &Path) -> io::Result<BTreeMap<String, u64>> {
    fs::metadata(port)?;
    let mut all = BTreeMap::new();
    for kind in KINDS {
        // a driver may have none of a kind
        let Ok(entries) = fs::read_dir(port.join(kind)) else {
            continue;
        };
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            // a device does not answer for all that the kernel has files for
            let value = sysfs::read(&entry.path()).map(|text| text.parse());
            if let (Ok(Ok(value)), true) = (value, name != LIFESPAN) {
                all.insert(format!("{kind}/{name}"), value);
            }
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_counters_but_for_settings_and_those_without_an_answer() {
        let root = tempfile::tempdir().unwrap();
        let port = root.path().join("1");
        for (name, text) in [
            ("counters/port_xmit_data", "18446744073709551615\n"),
            ("counters/VL15_dropped", "N/A (no PMA)\n"),
            ("hw_counters/out_of_buffer", "3\n"),
            ("hw_counters/lifespan", "10\n"),
            ("rate", "100 Gb/sec (4X EDR)\n"),
        ] {
            let path = port.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let expected = [
            ("counters/port_xmit_data".to_owned(), u64::MAX),
            ("hw_counters/out_of_buffer".to_owned(), 3),
        ];
        assert_eq!(of_sysfs(&port).unwrap(), expected.into());
        fs::remove_dir_all(port.join("hw_counters")).unwrap();
        assert_eq!(of_sysfs(&port).unwrap().len(), 1);
        let missing = of_sysfs(&root.path().join("2")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }
}
