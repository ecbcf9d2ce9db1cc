//! Rings in guest memory.

use crate::host::{DmaFault, GuestMemory};

/// Memory given as a list of pages of one size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Buffer {
    /// Addresses of the pages.
    pub(crate) pages: Vec<u64>,
    /// Their size: `1 << log_page` bytes.
    pub(crate) log_page: u8,
    /// Where in the first page the buffer begins.
    pub(crate) start: u32,
}

impl Buffer {
    /// Bytes from the start to the end of the last page.
    pub(crate) fn len(&self) -> u64 {
        ((self.pages.len() as u64) << self.log_page).saturating_sub(u64::from(self.start))
    }

    /// The pieces of memory behind `len` bytes at `offset`.
    pub(crate) fn pieces(&self, offset: u64, len: usize) -> Result<Vec<(u64, usize)>, DmaFault> {
        let fault = DmaFault { iova: offset, len };
        let mut at = offset.checked_add(u64::from(self.start)).ok_or(fault)?;
        let size = 1u64 << self.log_page;
        let mut left = len;
        let mut pieces = Vec::new();
        while left > 0 {
            let page = usize::try_from(at >> self.log_page).ok();
            let page = page.and_then(|page| self.pages.get(page)).ok_or(fault)?;
            let inside = at & (size - 1);
            let piece = left.min(usize::try_from(size - inside).unwrap_or(usize::MAX));
            pieces.push((page.wrapping_add(inside), piece));
            at += piece as u64;
            left -= piece;
        }
        Ok(pieces)
    }

    pub(crate) fn read(
        &self,
        memory: &dyn GuestMemory,
        offset: u64,
        to: &mut [u8],
    ) -> Result<(), DmaFault> {
        let mut rest = to;
        for (iova, len) in self.pieces(offset, rest.len())? {
            let (part, after) = rest.split_at_mut(len);
            memory.read(iova, part)?;
            rest = after;
        }
        Ok(())
    }

    pub(crate) fn write(
        &self,
        memory: &dyn GuestMemory,
        offset: u64,
        from: &[u8],
    ) -> Result<(), DmaFault> {
        let mut rest = from;
        for (iova, len) in self.pieces(offset, rest.len())? {
            let (part, after) = rest.split_at(len);
            memory.write(iova, part)?;
            rest = after;
        }
        Ok(())
    }
}

/// A work queue's ring: `1 << log_size` slots of `1 << log_stride` bytes from `offset` on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ring {
    pub(crate) buffer: Buffer,
    /// Where in the buffer slot 0 lies.
    pub(crate) offset: u64,
    pub(crate) log_stride: u8,
    pub(crate) log_size: u8,
}

impl Ring {
    /// Bytes of the ring.
    pub(crate) fn len(&self) -> u64 {
        1 << (self.log_stride + self.log_size)
    }

    /// Reads from slot `index` (of any number of turns) on, wrapping at the ring's end.
    pub(crate) fn read(
        &self,
        memory: &dyn GuestMemory,
        index: u32,
        to: &mut [u8],
    ) -> Result<(), DmaFault> {
        let mut at = (u64::from(index) << self.log_stride) & (self.len() - 1);
        let mut rest = to;
        while !rest.is_empty() {
            let here = rest
                .len()
                .min(usize::try_from(self.len() - at).unwrap_or(usize::MAX));
            let (part, after) = rest.split_at_mut(here);
            self.buffer.read(memory, self.offset + at, part)?;
            rest = after;
            at = 0;
        }
        Ok(())
    }

    /// Writes slot `index` (of any number of turns) from `within` on; the bytes don't wrap.
    pub(crate) fn write(
        &self,
        memory: &dyn GuestMemory,
        index: u32,
        within: u64,
        from: &[u8],
    ) -> Result<(), DmaFault> {
        let at = (u64::from(index) << self.log_stride) & (self.len() - 1);
        self.buffer.write(memory, self.offset + at + within, from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ram;

    #[test]
    fn a_read_wraps_over_pages_and_the_end() {
        let ram = Ram::new(0x4000);
        let buffer = Buffer {
            pages: vec![0x3000, 0x1000],
            log_page: 12,
            start: 0,
        };
        let ring = Ring {
            buffer,
            offset: 0,
            log_stride: 6,
            log_size: 7,
        };
        ring.write(&ram, 127, 0, &[7; 64]).unwrap();
        ring.write(&ram, 128, 0, &[8; 64]).unwrap();
        let mut both = [0; 128];
        ring.read(&ram, 127, &mut both).unwrap();
        assert_eq!(both[..64], [7; 64]);
        assert_eq!(both[64..], [8; 64]);
        let mut direct = [0; 64];
        ram.read(0x3000, &mut direct).unwrap();
        assert_eq!(direct, [8; 64]);
    }

    #[test]
    fn outside_the_pages_is_a_fault() {
        let buffer = Buffer {
            pages: vec![0],
            log_page: 12,
            start: 64,
        };
        assert!(buffer.pieces(4032, 1).is_err());
        assert!(buffer.pieces(u64::MAX, 2).is_err());
        assert_eq!(buffer.pieces(0, 4), Ok(vec![(64, 4)]));
    }
}
