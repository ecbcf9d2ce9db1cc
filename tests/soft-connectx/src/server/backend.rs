//! What QEMU asks of the device.

use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_INFO_EVENTFD, VFIO_IRQ_INFO_NORESIZE, VFIO_IRQ_SET_ACTION_TRIGGER,
    VFIO_IRQ_SET_DATA_EVENTFD, VFIO_IRQ_SET_DATA_NONE, VFIO_PCI_BAR0_REGION_INDEX,
    VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_MSIX_IRQ_INDEX, VFIO_PCI_NUM_IRQS, VFIO_PCI_NUM_REGIONS,
    VFIO_REGION_INFO_FLAG_READ, VFIO_REGION_INFO_FLAG_WRITE, vfio_region_info,
};
use vfio_user::{DmaMapFlags, DmaUnmapFlags, IrqInfo, ServerBackend, ServerRegion};

use super::dma::Dma;
use super::interrupts::EventDescriptors;
use crate::device::{BAR0_SIZE, Device, MSIX_VECTORS};
use crate::pci::CONFIG_SIZE;

/// Bits of a region's file offset below its index, as the kernel's vfio-pci has them.
const REGION_SHIFT: u32 = 40;

/// The regions that the device has, by index.
pub(super) fn regions() -> Vec<ServerRegion> {
    let region = |index| {
        let size = match index {
            VFIO_PCI_BAR0_REGION_INDEX => BAR0_SIZE,
            VFIO_PCI_CONFIG_REGION_INDEX => CONFIG_SIZE as u64,
            _ => 0,
        };
        let flags = if size == 0 {
            0
        } else {
            VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE
        };
        let region_info = vfio_region_info {
            argsz: size_of::<vfio_region_info>() as u32,
            index,
            size,
            flags,
            offset: u64::from(index) << REGION_SHIFT,
            ..vfio_region_info::default()
        };
        ServerRegion {
            region_info,
            sparse_areas: Vec::new(),
            mmap_fd: None,
        }
    };
    (0..VFIO_PCI_NUM_REGIONS).map(region).collect()
}

/// The kinds of interrupts that the device has, by index.
pub(super) fn interrupts() -> Vec<IrqInfo> {
    let interrupt = |index| match index {
        VFIO_PCI_MSIX_IRQ_INDEX => IrqInfo {
            index,
            flags: VFIO_IRQ_INFO_EVENTFD | VFIO_IRQ_INFO_NORESIZE,
            count: u32::from(MSIX_VECTORS),
        },
        _ => IrqInfo {
            index,
            flags: 0,
            count: 0,
        },
    };
    (0..VFIO_PCI_NUM_IRQS).map(interrupt).collect()
}

/// The device behind the socket.
#[derive(Debug)]
pub(super) struct Backend {
    pub(super) device: Arc<Mutex<Device>>,
    /// From when on its time counts.
    pub(super) start: Instant,
    pub(super) dma: Arc<Dma>,
    pub(super) events: EventDescriptors,
}

/// The device. After a panic of the model it is in no known state, and the program ends: the guest sees the device gone.
fn lock(device: &Mutex<Device>) -> MutexGuard<'_, Device> {
    device.lock().unwrap_or_else(|_| {
        log::error!("the device model failed; see above");
        std::process::exit(super::MODEL_FAILED)
    })
}

/// Lets the device do something. A mistake that it found is fatal: the program ends before anybody sees what came of it.
pub(super) fn with<T>(device: &Mutex<Device>, act: impl FnOnce(&mut Device) -> T) -> T {
    let mut device = lock(device);
    let result = act(&mut device);
    if let Some(mistake) = device.mistake() {
        log::error!("strict: ended by the first mistake: {mistake}");
        std::process::exit(super::MISTAKE)
    }
    result
}

impl ServerBackend for Backend {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> io::Result<()> {
        match region {
            VFIO_PCI_BAR0_REGION_INDEX => {
                let mut device = lock(&self.device);
                // Its timer is a register, and on a busy machine its last tick is long ago.
                device.tell_time(self.start.elapsed());
                device.bar_read(offset, data);
            }
            VFIO_PCI_CONFIG_REGION_INDEX => lock(&self.device).config_read(offset, data),
            _ => data.fill(0),
        }
        Ok(())
    }

    fn region_write(&mut self, region: u32, offset: u64, data: &[u8]) -> io::Result<()> {
        match region {
            VFIO_PCI_BAR0_REGION_INDEX => {
                with(&self.device, |device| device.bar_write(offset, data))
            }
            VFIO_PCI_CONFIG_REGION_INDEX => {
                with(&self.device, |device| device.config_write(offset, data));
            }
            _ => {}
        }
        Ok(())
    }

    fn dma_map(
        &mut self,
        flags: DmaMapFlags,
        offset: u64,
        address: u64,
        size: u64,
        fd: Option<File>,
    ) -> io::Result<()> {
        // ROMs and the like come without a file: no device reads them.
        let Some(file) = fd else { return Ok(()) };
        log::trace!("map {address:#x}+{size:#x} {flags:?} to {offset:#x}");
        self.dma.map(
            address,
            size,
            file,
            offset,
            flags.contains(DmaMapFlags::WRITE),
        )
    }

    fn dma_unmap(&mut self, flags: DmaUnmapFlags, address: u64, size: u64) -> io::Result<()> {
        log::trace!("unmap {address:#x}+{size:#x} {flags:?}");
        if flags.contains(DmaUnmapFlags::UNMAP_ALL) {
            self.dma.unmap_all();
        } else {
            self.dma.unmap(address, size);
        }
        Ok(())
    }

    fn reset(&mut self) -> io::Result<()> {
        lock(&self.device).reset();
        Ok(())
    }

    fn set_irqs(
        &mut self,
        index: u32,
        flags: u32,
        start: u32,
        count: u32,
        fds: Vec<File>,
    ) -> io::Result<()> {
        if index != VFIO_PCI_MSIX_IRQ_INDEX || flags & VFIO_IRQ_SET_ACTION_TRIGGER == 0 {
            return Ok(());
        }
        if flags & VFIO_IRQ_SET_DATA_EVENTFD != 0 {
            self.events.set(start, count, fds);
        } else if flags & VFIO_IRQ_SET_DATA_NONE != 0 && count == 0 {
            self.events.clear();
        }
        Ok(())
    }
}
