//! Where completion entries stand and whose they are.
//!
//! Entry `ci` of a queue of `n` entries stands at `ci mod n`. The device writes the lap's parity, `ci / n` modulo
//! 2, in bit 0 of the entry's last byte, and opcode 0xf stands in entries that it has never written: an entry is
//! ours when bit 0 is the expected parity and the opcode is not 0xf (PRM 8.19.1 "CQE ownership"). Bits 1 to 3 say
//! something else (solicited event, format) and must not be looked at here.

use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, AtomicU16, Ordering};

use wqe_format::mlx5::Cqe64;

use super::handover::{self, is_ours};

/// Bytes of the part of an entry that has the fields, whatever the entry's size.
const FIELDS: usize = 64;
/// Where that part has the opcode, the format and the owner bit.
const OP_OWN: usize = Cqe64::OP_OWN_OFFSET;
/// `op_own` of an entry that the device has not written yet.
pub(super) const NEVER_WRITTEN: u8 = 0xf0;

/// The 64 bytes of an entry that have its fields, where they stand.
///
/// The hot path reads single fields through it. A copy of the entry would go through the stack.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry(NonNull<Cqe64>);

// SAFETY: the ring is memory of the process, not of a thread; who has the queue reads it.
unsafe impl Send for Entry {}

/// Bytes that look like an entry which nobody has written.
#[repr(align(64))]
struct Nobodys([u8; 64]);

static NOBODYS: Nobodys = Nobodys([NEVER_WRITTEN; 64]);

impl Entry {
    /// An entry of no ring, which is never ours.
    pub(super) fn nobodys() -> Self {
        Self(NonNull::from_ref(&NOBODYS.0).cast())
    }

    /// # Safety
    ///
    /// `at` is aligned to 64 and readable for 64 bytes as long as this is used.
    #[inline(always)]
    pub(super) const unsafe fn new(at: NonNull<Cqe64>) -> Self {
        Self(at)
    }

    /// The last byte: kind, format and owner. Read once, before everything else of the entry.
    ///
    /// Acquire: what the device wrote before this byte is seen by what is read after it (a plain load on x86-64, where
    /// loads are not reordered).
    #[inline(always)]
    pub(super) fn op_own(self) -> u8 {
        // SAFETY: the last of the 64 bytes.
        let byte = unsafe { self.0.cast::<u8>().add(OP_OWN) };
        // SAFETY: it is readable, and only accessed atomically while the device may write it.
        handover::look(unsafe { AtomicU8::from_ptr(byte.as_ptr()) })
    }

    /// The last two bytes: with enhanced compression the first of them says whether the entry is ours, so that both are read
    /// at once. Ordered as [`op_own`](Self::op_own).
    #[inline(always)]
    pub(super) fn turn_and_op_own(self) -> [u8; 2] {
        const AT: usize = core::mem::offset_of!(Cqe64, signature);
        const { assert!(AT + 1 == OP_OWN && AT.is_multiple_of(align_of::<AtomicU16>())) };
        // SAFETY: inside the entry.
        let bytes = unsafe { self.at().add(AT) };
        // SAFETY: they are readable, aligned as the entry is, and only accessed atomically while the device may write them.
        let bytes = unsafe { AtomicU16::from_ptr(bytes.cast().as_ptr()) };
        bytes.load(Ordering::Acquire).to_ne_bytes()
    }

    /// The fields, of an entry that is ours: the device does not write it. Only fields that are used are loaded.
    #[inline(always)]
    pub(super) fn get(self) -> Cqe64 {
        // SAFETY: readable by `new`'s contract; any bytes are a `Cqe64`.
        unsafe { self.0.read() }
    }

    /// The last four bytes, as a number: the counter above, then signature and `op_own`. Of an entry that is ours.
    #[inline(always)]
    pub(super) fn last_word(self) -> u32 {
        const AT: usize = core::mem::offset_of!(Cqe64, wqe_counter);
        const { assert!(AT + size_of::<u32>() == FIELDS && AT.is_multiple_of(align_of::<u32>())) };
        // SAFETY: inside the entry.
        let word = unsafe { self.at().add(AT) };
        // SAFETY: readable, and aligned as the entry is.
        u32::from_be(unsafe { word.cast().read() })
    }

    /// The user's index: its upper two bytes as they stand, and the last. Of an entry that is ours.
    #[inline(always)]
    pub(super) fn user_index_parts(self) -> (u16, u8) {
        const AT: usize = core::mem::offset_of!(Cqe64, srqn_uidx) + 1;
        // SAFETY: inside the entry.
        let upper = unsafe { self.at().add(AT) };
        // SAFETY: readable; it need not be aligned.
        let upper = unsafe { upper.cast().read_unaligned() };
        let [.., lower] = self.get().srqn_uidx.to_bytes();
        (upper, lower)
    }

    /// Where it stands.
    #[inline(always)]
    pub(super) const fn at(self) -> NonNull<u8> {
        self.0.cast()
    }

    /// The next entry, or the ring's end.
    ///
    /// # Safety
    ///
    /// The entry is in the ring.
    #[inline(always)]
    pub(super) unsafe fn after<const WIDE: bool>(self) -> Self {
        // SAFETY: passed on.
        unsafe { self.ahead::<WIDE>(1) }
    }

    /// The entry `count` places behind it.
    ///
    /// # Safety
    ///
    /// The entry is in the ring, which has as many; what is beyond the ring's end is not looked at.
    #[inline(always)]
    pub(super) unsafe fn ahead<const WIDE: bool>(self, count: usize) -> Self {
        let at = self.0.as_ptr().wrapping_add(count << WIDE as u32);
        // SAFETY: not null: no ring is so near to the end of the address space.
        Self(unsafe { NonNull::new_unchecked(at) })
    }

    /// Places from `first`, which is of the same ring and not behind this.
    #[inline(always)]
    pub(super) fn places_from<const WIDE: bool>(self, first: Self) -> usize {
        let distance = self.0.addr().get().wrapping_sub(first.0.addr().get());
        distance / (FIELDS << WIDE as u32)
    }

    /// Asks the processor to load the entry `count` places behind it, wherever that is.
    #[inline(always)]
    pub(super) fn prefetch<const WIDE: bool>(self, count: usize) {
        super::prefetch(self.0.as_ptr().wrapping_add(count << WIDE as u32).cast());
    }
}

/// The buffer of a completion queue.
///
/// Device memory by rule: never a reference into it, only reads and writes through pointers.
#[derive(Clone, Copy)]
pub(super) struct CqRing {
    base: NonNull<u8>,
    /// A power of two, at most 2^24.
    count: u32,
    /// log2 of the entry's size: 6 or 7.
    shift: u8,
    /// Where an entry behind the last would have its fields.
    end: Entry,
}

impl CqRing {
    /// A ring over `count` entries of `entry_size` bytes at `base`.
    ///
    /// Returns `None` if a number is not one that a queue can have: `count` a power of two of at most 2^24,
    /// `entry_size` 64 or 128.
    pub(super) fn new(base: NonNull<u8>, count: u32, entry_size: u32) -> Option<Self> {
        let shift = match entry_size {
            64 => 6,
            128 => 7,
            _ => return None,
        };
        // 24 bits of consumer index are what the doorbell record carries (uapi: libmlx5 masks with 0xffffff).
        if !count.is_power_of_two() || count > 1 << 24 {
            return None;
        }
        let end = ((count as usize + 1) << shift) - FIELDS;
        let end = base.as_ptr().wrapping_add(end).cast();
        let end = Entry(NonNull::new(end)?);
        Some(Self {
            base,
            count,
            shift,
            end,
        })
    }

    /// Marks every entry as never written, as a queue starts.
    ///
    /// # Safety
    ///
    /// The device does not use the ring yet, and nobody else reads or writes it.
    pub(super) unsafe fn mark_never_written(&self) {
        for index in 0..self.count {
            self.set_op_own(index, NEVER_WRITTEN);
        }
    }

    /// Number of entries.
    #[inline(always)]
    pub(super) const fn count(&self) -> u32 {
        self.count
    }

    /// Bytes per entry.
    #[inline(always)]
    pub(super) const fn entry_size(&self) -> usize {
        1 << self.shift
    }

    /// Whether entries have 128 bytes.
    #[inline(always)]
    pub(super) const fn is_wide(&self) -> bool {
        self.shift == 7
    }

    /// The owner bit that the device writes into entry `ci`.
    #[inline(always)]
    pub(super) const fn parity(&self, ci: u32) -> u8 {
        (ci & self.count != 0) as u8
    }

    /// Where an entry behind the last would have its fields.
    #[inline(always)]
    pub(super) const fn end(&self) -> Entry {
        self.end
    }

    /// The first byte of entry `ci`.
    #[inline(always)]
    pub(super) fn entry(&self, ci: u32) -> NonNull<u8> {
        let offset = ((ci & (self.count - 1)) as usize) << self.shift;
        // SAFETY: the index is masked to the ring and the ring has `count << shift` bytes (`CompletionQueue::new`
        // takes that as its contract).
        unsafe { self.base.add(offset) }
    }

    /// The 64 bytes of entry `ci` that have the fields: the entry itself, or the upper half of a 128-byte one.
    #[inline(always)]
    pub(super) fn fields(&self, ci: u32) -> NonNull<u8> {
        // SAFETY: an entry has `1 << shift` bytes, of which the fields are the last 64.
        unsafe { self.entry(ci).add(self.entry_size() - FIELDS) }
    }

    /// The fields of entry `ci`.
    #[inline(always)]
    pub(super) fn at(&self, ci: u32) -> Entry {
        // SAFETY: 64 bytes inside the ring, aligned to 64 as the ring is.
        unsafe { Entry::new(self.fields(ci).cast()) }
    }

    /// The last byte of entry `ci`.
    pub(super) fn op_own(&self, ci: u32) -> u8 {
        self.at(ci).op_own()
    }

    /// Writes the last byte of entry `ci`.
    pub(super) fn set_op_own(&self, ci: u32, op_own: u8) {
        // SAFETY: byte 63 of the 64 bytes at `fields`.
        let byte = unsafe { self.fields(ci).add(OP_OWN) };
        // SAFETY: the ring outlives `self`; the byte is only accessed atomically while the device may write it.
        unsafe { AtomicU8::from_ptr(byte.as_ptr()) }.store(op_own, Ordering::Release);
    }

    /// Entry `ci`, if it is ours.
    #[inline(always)]
    pub(super) fn ours(&self, ci: u32) -> Option<Entry> {
        let entry = self.at(ci);
        is_ours(entry.op_own(), self.parity(ci)).then_some(entry)
    }

    /// Copies entry `ci` of `self` to entry `to` of `other`, with the owner bit that `other` expects there.
    ///
    /// # Safety
    ///
    /// Both entries are the program's: the source handed over, the destination not in the device's reach.
    pub(super) unsafe fn copy_entry(&self, ci: u32, other: &CqRing, to: u32) {
        debug_assert_eq!(self.shift, other.shift);
        let (source, destination) = (self.entry(ci), other.entry(to));
        // SAFETY: whole entries of the two rings, of the same size; they may be the same entry (`copy` allows it).
        unsafe { source.copy_to(destination, self.entry_size()) };
        let op_own = other.op_own(to);
        other.set_op_own(to, (op_own & !1) | other.parity(to));
    }

    /// Replaces the fields of entry `ci`, with the owner bit of its lap.
    ///
    /// # Safety
    ///
    /// The entry is the program's.
    pub(super) unsafe fn write(&self, ci: u32, cqe: Cqe64) {
        let fields = self.fields(ci).cast::<Cqe64>();
        // SAFETY: 64 bytes inside the ring, aligned to 64, the program's by contract.
        unsafe { fields.write(cqe) };
        let op_own = self.op_own(ci);
        self.set_op_own(ci, (op_own & !1) | self.parity(ci));
    }
}

impl fmt::Debug for CqRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CqRing")
            .field("count", &self.count)
            .field("entry_size", &self.entry_size())
            .finish()
    }
}

// SAFETY: the ring is memory that no thread owns; whoever has the `CompletionQueue` has the program's entries.
unsafe impl Send for CqRing {}

#[cfg(test)]
mod tests {
    use super::*;

    /// B33: only bit 0 is the owner (0xd2 and 0xd3 differ in it; 0xd0 and 0xd2 do not), and opcode 0xf is never
    /// valid whatever the owner bit.
    #[test]
    fn owner_is_bit_0_and_opcode_f_is_nobodys() {
        for op_own in 0..=0xffu8 {
            for parity in 0..2 {
                let expected = op_own & 1 == parity && op_own >> 4 != 0xf;
                assert_eq!(is_ours(op_own, parity), expected, "{op_own:#x} {parity}");
            }
        }
    }

    /// B33: `(ci >> log2 n) & 1` over laps, sizes and the wrap of the consumer index at 2^32.
    #[test]
    fn parity_is_the_lap_modulo_two() {
        for log2 in [1, 2, 16, 24] {
            let n = 1u32 << log2;
            let ring = CqRing::new(NonNull::dangling(), n, 64).unwrap();
            let starts = [
                0,
                n - 1,
                n,
                n + 1,
                2 * n - 1,
                2 * n,
                3 * n,
                u32::MAX - 1,
                u32::MAX,
            ];
            for ci in starts {
                assert_eq!(
                    u32::from(ring.parity(ci)),
                    (ci >> log2) & 1,
                    "n {n} ci {ci}"
                );
            }
        }
        for (count, size) in [(0, 64), (3, 64), (1 << 25, 64), (4, 32), (4, 256), (4, 0)] {
            assert!(
                CqRing::new(NonNull::dangling(), count, size).is_none(),
                "{count} x {size}"
            );
        }
    }
}
