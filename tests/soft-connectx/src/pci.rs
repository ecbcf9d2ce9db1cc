//! The configuration space.

use crate::config::{Config, LinkLayer};

/// Bytes of the configuration space of a PCI Express function.
pub const CONFIG_SIZE: usize = 4096;

/// The PCI Express capability (PCIe 7.5.3), where ConnectX cards have it.
const EXPRESS: usize = 0x60;
/// The MSI-X capability (PCI 3.0 6.8.2), where ConnectX cards have it.
const MSIX: usize = 0x9c;
/// Device control (PCIe 7.5.3.4).
const DEVICE_CONTROL: usize = EXPRESS + 8;
/// Initiate function level reset.
const INITIATE_FLR: u16 = 1 << 15;

/// The bytes of the space, and which of their bits can be written.
#[derive(Debug)]
pub(crate) struct ConfigSpace {
    bytes: Vec<u8>,
    writable: Vec<u8>,
}

impl ConfigSpace {
    pub(crate) fn new(config: &Config) -> ConfigSpace {
        let mut space = ConfigSpace {
            bytes: vec![0; CONFIG_SIZE],
            writable: vec![0; CONFIG_SIZE],
        };
        space.identity(config);
        space.express();
        space.msix();
        space
    }

    fn set16(&mut self, at: usize, value: u16) {
        self.bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }

    fn set32(&mut self, at: usize, value: u32) {
        self.bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    fn allow(&mut self, at: usize, mask: &[u8]) {
        self.writable[at..at + mask.len()].copy_from_slice(mask);
    }

    fn identity(&mut self, config: &Config) {
        self.set16(0x00, 0x15b3);
        // ConnectX-6, or a virtual function of one (Linux `mlx5_core_pci_table`)
        self.set16(0x02, 0x101b + u16::from(config.virtual_function));
        self.allow(0x04, &[0x46, 0x05]); // memory, master, parity; SERR, INTx disable
        self.set16(0x06, 0x0010); // capabilities list
        let subclass = match config.link {
            LinkLayer::InfiniBand => 0x07,
            LinkLayer::Ethernet => 0x00,
        };
        self.bytes[0x0a] = subclass;
        self.bytes[0x0b] = 0x02; // network controller
        self.allow(0x0c, &[0xff]); // cache line size
        self.set32(0x10, 0xc); // BAR0: 64 bits, prefetchable
        let size = !(crate::BAR0_SIZE - 1);
        self.allow(0x10, &size.to_le_bytes());
        self.set16(0x2c, 0x15b3);
        self.set16(0x2e, 0x0006);
        self.bytes[0x34] = EXPRESS as u8;
        self.allow(0x3c, &[0xff]); // interrupt line
    }

    fn express(&mut self) {
        self.bytes[EXPRESS] = 0x10;
        self.bytes[EXPRESS + 1] = MSIX as u8;
        self.set16(EXPRESS + 2, 0x0002); // version 2, endpoint
        // Payloads of 512 bytes, extended tags, role based errors, function level reset.
        self.set32(EXPRESS + 4, 1 << 28 | 1 << 15 | 1 << 5 | 2);
        self.allow(DEVICE_CONTROL, &[0xff, 0x7f]);
        self.set32(EXPRESS + 0xc, 0x0000_0104); // 16 lanes of 16 GT/s
        self.allow(EXPRESS + 0x10, &[0xc3, 0x0f]);
        self.set16(EXPRESS + 0x12, 0x0104);
        self.set32(EXPRESS + 0x24, 0x0000_001f); // completion timeouts
        self.allow(EXPRESS + 0x28, &[0x1f, 0x00]);
        self.set32(EXPRESS + 0x2c, 0x0000_001e); // speeds up to 16 GT/s
        self.set16(EXPRESS + 0x30, 0x0004);
    }

    fn msix(&mut self) {
        self.bytes[MSIX] = 0x11;
        self.set16(MSIX + 2, crate::MSIX_VECTORS - 1);
        self.allow(MSIX + 2, &[0x00, 0xc0]); // enable, mask all
        self.set32(MSIX + 4, 0x2000); // table in BAR0
        self.set32(MSIX + 8, 0x3000); // pending bits in BAR0
    }

    /// Whether registers in memory are answered for (the command register's memory space enable, PCIe 7.5.1.1.3).
    pub(crate) fn has_memory(&self) -> bool {
        self.bytes[0x04] & 1 << 1 != 0
    }

    /// Reads; outside the space there are zeros.
    pub(crate) fn read(&self, offset: u64, to: &mut [u8]) {
        let start = usize::try_from(offset)
            .unwrap_or(CONFIG_SIZE)
            .min(CONFIG_SIZE);
        let inside = to.len().min(CONFIG_SIZE - start);
        to.fill(0);
        to[..inside].copy_from_slice(&self.bytes[start..start + inside]);
    }

    /// Writes what can be written; whether a function level reset was asked for.
    pub(crate) fn write(&mut self, offset: u64, from: &[u8]) -> bool {
        let start = usize::try_from(offset)
            .unwrap_or(CONFIG_SIZE)
            .min(CONFIG_SIZE);
        let mut reset = false;
        for (at, &byte) in (start..CONFIG_SIZE).zip(from) {
            let mask = self.writable[at];
            self.bytes[at] = self.bytes[at] & !mask | byte & mask;
            reset |= at == DEVICE_CONTROL + 1 && u16::from(byte) << 8 & INITIATE_FLR != 0;
        }
        reset
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_bar0_is_what_ones_read_back_as() {
        let mut space = ConfigSpace::new(&Config::default());
        space.write(0x10, &[0xff; 8]);
        let mut bar = [0; 8];
        space.read(0x10, &mut bar);
        assert_eq!(u64::from_le_bytes(bar), !(crate::BAR0_SIZE - 1) | 0xc);
    }

    #[test]
    fn only_the_flr_bit_resets() {
        let mut space = ConfigSpace::new(&Config::default());
        assert!(!space.write(DEVICE_CONTROL as u64, &[0xff, 0x7f]));
        assert!(space.write(DEVICE_CONTROL as u64, &[0x00, 0x80]));
    }

    #[test]
    fn accesses_at_the_end_do_not_panic() {
        let mut space = ConfigSpace::new(&Config::default());
        space.write(CONFIG_SIZE as u64 - 1, &[1; 8]);
        space.write(u64::MAX, &[1; 1]);
        space.read(u64::MAX - 3, &mut [0; 3]);
    }
}
