//! A device that is up, as its objects want it.

use std::sync::{Arc, Mutex, Weak};

use wqe_format::mlx5::firmware::EventType;

use super::clock::Clock;
use super::eq::UAR_PAGE;
use super::events::EventSink;
use super::hca::{Hca, HcaError, Options};
use super::objects::{DriverUsage, Identity, Mapped, Objects, Platform};
use super::pci::{BarMapping, Pci};
use crate::sys::errno::Errno;

/// Places in the configuration space (PCI 3.0, 6.2.1).
const DEVICE_ID: u16 = 0x02;
const REVISION: u16 = 0x08;

/// Brings a device up, with objects that hear of its events.
pub fn open(pci: Arc<dyn Pci>, options: Options) -> Result<Arc<Objects>, HcaError> {
    let hca = Arc::new(Hca::open(pci, options)?);
    let objects = Objects::new(hca.clone())
        .map_err(|errno| HcaError::Process("ask the device what it can do", errno))?;
    let objects = Arc::new(objects);
    let sink = Arc::downgrade(&objects);
    hca.set_sink(sink as Weak<dyn EventSink>);
    Ok(objects)
}

impl EventSink for Objects {
    fn completion(&self, cqn: u32) {
        self.completion_event(cqn);
    }

    fn event(&self, kind: EventType, sub_type: u8, data: &[u8]) {
        self.async_event(kind, sub_type, data);
    }

    fn failed(&self) {
        self.device_fatal();
    }
}

impl Platform for Hca {
    fn map(&self, address: u64, bytes: u64) -> Result<Mapped, Errno> {
        // SAFETY: ranges come from the callers of `Uctx`, who vouch for them as long as the object lives (K3, K5).
        let map = |writable| unsafe { self.iommu().map(address, bytes, writable) };
        // Memory that the process may not write can be read by the device all the same.
        let mapping = match map(true) {
            Err(Errno(libc::EFAULT)) => map(false),
            mapped => mapped,
        }?;
        Ok(Mapped {
            iova: mapping.iova_of(address).ok_or(Errno(libc::EFAULT))?,
            keep: Box::new(mapping),
        })
    }

    fn event_queue(&self, vector: u32) -> Option<u32> {
        let queues = self.completion_event_queues();
        queues.get(vector as usize).map(|number| (*number).into())
    }

    fn completion_vectors(&self) -> u32 {
        self.completion_event_queues().len() as u32
    }

    fn write_combining(&self) -> bool {
        self.pci().write_combining()
    }

    fn timer(&self) -> Result<u64, Errno> {
        Hca::timer(self)
    }

    fn visits(&self) -> Arc<Mutex<()>> {
        Hca::visits(self).clone()
    }

    fn clock(&self) -> Option<Arc<Clock>> {
        Hca::clock(self).cloned()
    }

    fn doorbell_page(&self, number: u32) -> Result<BarMapping, Errno> {
        let at = u64::from(number) * UAR_PAGE;
        if at + UAR_PAGE > self.pci().bar_len() {
            return Err(Errno(libc::EPROTO));
        }
        Ok(self.pci().map_bar(at, UAR_PAGE as usize)?)
    }

    fn is_ours(&self) -> bool {
        Hca::is_ours(self)
    }

    fn usage(&self) -> DriverUsage {
        DriverUsage {
            mappings: self.iommu().mappings(),
            free_addresses: self.iommu().addresses_left(),
            firmware_pages: self.device_pages(),
        }
    }

    fn identity(&self) -> Identity {
        let [major, minor, sub] = self.firmware().map(u64::from);
        let (mut device, mut revision) = ([0; 2], [0; 1]);
        // A function that does not say is one without numbers.
        let known = self.pci().config_read(DEVICE_ID, &mut device).is_ok()
            && self.pci().config_read(REVISION, &mut revision).is_ok();
        Identity {
            firmware: major << 32 | minor << 16 | sub,
            device: if known { u16::from_le_bytes(device) } else { 0 },
            revision: if known { revision[0] } else { 0 },
        }
    }
}
