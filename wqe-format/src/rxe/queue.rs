//! The header of a shared queue (`struct rxe_queue_buf`).
//!
//! Producer and consumer index stand in cache lines of their own. An index counts entries modulo the
//! queue's size; the queue is empty when they are equal and full when the producer's successor is the
//! consumer, so a queue of `mask + 1` entries holds `mask`. That may be none: a queue pair that was made for no
//! receives has a receive queue of one entry, which is empty and full at once.

/// Offset of `log2_elem_size` (`u32`): log2 of an entry's size in bytes.
pub const LOG2_ELEM_SIZE: usize = 0;
/// Offset of `index_mask` (`u32`): number of entries − 1.
pub const INDEX_MASK: usize = 4;
/// Offset of `producer_index` (`u32`).
pub const PRODUCER_INDEX: usize = 128;
/// Offset of `consumer_index` (`u32`).
pub const CONSUMER_INDEX: usize = 256;
/// Offset of the first entry.
pub const DATA: usize = 384;

/// Size and number of a queue's entries, checked against the memory that holds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    log2_elem_size: u32,
    index_mask: u32,
}

/// Why a queue's header can't be true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadGeometry {
    /// The memory does not even hold the header.
    NoHeader,
    /// The entry size is less than what an entry needs, or 4 GiB and more.
    ElementSize(u32),
    /// The mask is not a power of two − 1.
    Mask(u32),
    /// The entries do not fit into the memory.
    TooLong,
}

impl core::fmt::Display for BadGeometry {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::NoHeader => f.write_str("the mapping is shorter than a queue header"),
            Self::ElementSize(log2) => write!(f, "entries of 2^{log2} bytes"),
            Self::Mask(mask) => write!(f, "index mask {mask:#x}"),
            Self::TooLong => f.write_str("the entries do not fit into the mapping"),
        }
    }
}

impl core::error::Error for BadGeometry {}

impl Geometry {
    /// Checks what a header says (`log2_elem_size`, `index_mask`) against the length of the mapping, `len` bytes, and
    /// the least size of an entry.
    pub const fn check(
        log2_elem_size: u32,
        index_mask: u32,
        len: usize,
        least: usize,
    ) -> Result<Self, BadGeometry> {
        if len < DATA {
            return Err(BadGeometry::NoHeader);
        }
        if log2_elem_size >= 32 || (1_usize << log2_elem_size) < least {
            return Err(BadGeometry::ElementSize(log2_elem_size));
        }
        if index_mask & index_mask.wrapping_add(1) != 0 {
            return Err(BadGeometry::Mask(index_mask));
        }
        // At most 2^32 entries of 2^31 bytes: no overflow of 64 bits.
        let bytes = (index_mask as u64 + 1) << log2_elem_size;
        if bytes > (len - DATA) as u64 {
            return Err(BadGeometry::TooLong);
        }
        Ok(Self {
            log2_elem_size,
            index_mask,
        })
    }

    /// Bytes of one entry.
    #[inline]
    pub const fn elem_size(self) -> usize {
        1 << self.log2_elem_size
    }

    /// Number of entries − 1, which is how many the queue holds when it is full.
    #[inline]
    pub const fn mask(self) -> u32 {
        self.index_mask
    }

    /// Offset of the entry with index `index` (taken modulo the number of entries) from the start of the mapping.
    #[inline]
    pub const fn offset(self, index: u32) -> usize {
        DATA + (((index & self.index_mask) as usize) << self.log2_elem_size)
    }

    /// The index after `index`.
    #[inline]
    pub const fn next(self, index: u32) -> u32 {
        index.wrapping_add(1) & self.index_mask
    }

    /// Entries between consumer and producer, for indices as they stand in a header.
    #[inline]
    pub const fn used(self, producer: u32, consumer: u32) -> u32 {
        producer.wrapping_sub(consumer) & self.index_mask
    }

    /// Whether there is no room for one more entry.
    #[inline]
    pub const fn is_full(self, producer: u32, consumer: u32) -> bool {
        self.next(producer) == consumer & self.index_mask
    }
}
