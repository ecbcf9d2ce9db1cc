//! What the machine says of a function, and of what is left of who drove it.

use std::fs::{self, File, OpenOptions};
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use super::Result;

/// For what the kernel frees in the background.
const FREEING: Duration = Duration::from_secs(10);

/// Words of the kernel's log that tell of something wrong.
const COMPLAINTS: [&str; 6] = [
    "WARNING:",
    "BUG:",
    "Call Trace",
    "[Hardware Error]",
    "DMAR: [DMA",
    "hung_task",
];

/// A function of PCI that vfio-pci has.
#[derive(Debug)]
pub(crate) struct Function {
    address: String,
    group: String,
}

impl Function {
    pub(crate) fn new(device: &str) -> Result<Self> {
        let address = device
            .strip_prefix("vfio:")
            .ok_or("the device is no vfio:...")?;
        let link = fs::read_link(format!("/sys/bus/pci/devices/{address}/iommu_group"))?;
        let group = link.file_name().ok_or("no group")?;
        Ok(Self {
            address: address.to_owned(),
            group: group.to_string_lossy().into_owned(),
        })
    }

    /// A function level reset, by who has nothing to do with its driver.
    pub(crate) fn reset(&self) -> Result<()> {
        let file = format!("/sys/bus/pci/devices/{}/reset", self.address);
        Ok(fs::write(file, "1")?)
    }

    /// Interrupts that arrived since its vectors were made.
    pub(crate) fn interrupts(&self) -> Result<u64> {
        let text = fs::read_to_string("/proc/interrupts")?;
        Ok(count_interrupts(&text, &self.address))
    }

    /// Opens its group, which only one may have open.
    fn open_group(&self) -> std::io::Result<File> {
        let path = PathBuf::from("/dev/vfio").join(&self.group);
        OpenOptions::new().read(true).write(true).open(path)
    }
}

/// Interrupts of a function: the sums of the lines that name it, after the first column a number for each processor.
fn count_interrupts(text: &str, address: &str) -> u64 {
    let lines = text.lines().filter(|line| line.contains(address));
    let numbers = lines.flat_map(|line| {
        let words = line.split_whitespace().skip(1);
        words.map_while(|word| word.parse::<u64>().ok())
    });
    numbers.sum()
}

/// Pages that are pinned for devices. Both numbers only grow.
fn pinned() -> Result<i64> {
    // Processors keep a part of the numbers to themselves for a while; this has them told.
    fs::read("/proc/sys/vm/stat_refresh")?;
    let text = fs::read_to_string("/proc/vmstat")?;
    pinned_of(&text).ok_or_else(|| "the kernel does not count pinned pages".into())
}

fn pinned_of(vmstat: &str) -> Option<i64> {
    let number = |name: &str| {
        let mut lines = vmstat.lines();
        lines.find_map(|line| line.strip_prefix(name)?.trim().parse::<i64>().ok())
    };
    Some(number("nr_foll_pin_acquired ")? - number("nr_foll_pin_released ")?)
}

/// Lines of the kernel's log that tell of something wrong.
fn complaints() -> Result<Vec<String>> {
    let output = Command::new("dmesg").output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let bad = |line: &&str| COMPLAINTS.iter().any(|word| line.contains(word));
    Ok(text.lines().filter(bad).map(str::to_owned).collect())
}

/// How the machine was before.
#[derive(Debug)]
pub(crate) struct Trace {
    pinned: i64,
    complaints: usize,
}

impl Trace {
    pub(crate) fn begin(function: &Function) -> Result<Self> {
        function.open_group()?;
        Ok(Self {
            pinned: pinned()?,
            complaints: complaints()?.len(),
        })
    }

    /// What the traffic of this process holds now, in words: without it there would be nothing to be left.
    pub(crate) fn held(&self, function: &Function, process: u32) -> Result<String> {
        let pages = pinned()? - self.pinned;
        let status = fs::read_to_string(format!("/proc/{process}/status"))?;
        let mut lines = status.lines();
        let locked = lines.find_map(|line| line.strip_prefix("VmLck:"));
        let locked = locked.ok_or("no VmLck")?.trim();
        match function.open_group() {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
            other => return Err(format!("the group is not in use: {other:?}").into()),
        }
        if pages <= 0 || locked.starts_with("0 ") {
            return Err(format!("{pages} pages are pinned, {locked} locked").into());
        }
        Ok(format!(
            "the group, {pages} pinned pages and {locked} of locked memory"
        ))
    }

    /// Whether all is as it was before.
    pub(crate) fn nothing_left(&self, function: &Function) -> Result<()> {
        let deadline = Instant::now() + FREEING;
        let mut pages = pinned()? - self.pinned;
        while pages != 0 && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(200));
            pages = pinned()? - self.pinned;
        }
        if pages != 0 {
            return Err(format!("{pages} pages are left pinned").into());
        }
        function
            .open_group()
            .map_err(|error| format!("the group cannot be opened: {error}"))?;
        match complaints()?.get(self.complaints..) {
            Some([first, ..]) => Err(format!("the kernel complains: {first}").into()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_of_a_function_are_counted() {
        let text = "           CPU0       CPU1\n  24:          5          7  IR-PCI-MSIX-0000:00:04.0    0-edge      vfio-msix[0](0000:00:04.0)\n\
                    25:          1          0  IR-PCI-MSIX-0000:00:05.0    0-edge      mlx5_async0@pci:0000:00:05.0\n";
        assert_eq!(count_interrupts(text, "0000:00:04.0"), 12);
        assert_eq!(count_interrupts(text, "0000:00:06.0"), 0);
    }

    #[test]
    fn pinned_pages_are_those_not_released() {
        let text = "nr_foll_pin_acquired 120\nnr_foll_pin_released 20\n";
        assert_eq!(pinned_of(text), Some(100));
        assert_eq!(pinned_of("nr_free_pages 3\n"), None);
    }
}
