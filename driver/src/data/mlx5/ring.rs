//! A send queue's ring: basic blocks of 64 bytes, written in units of 16.
//!
//! A work request begins on a block and goes on at the ring's start when it meets the end. Where it can meet it is between
//! units, never inside of one; inline data and headers are copied in at most two pieces.

use std::ptr::NonNull;

use wqe_format::mlx5::{DS_UNIT, SEND_WQE_BB};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Units of a block.
const UNITS: u32 = (SEND_WQE_BB / DS_UNIT) as u32;
/// The same as a power of two.
const UNITS_SHIFT: u32 = UNITS.ilog2();

/// Sixteen bytes as the ring stores them.
pub(super) use wqe_format::mlx5::Unit;

/// A segment of one unit.
#[inline(always)]
pub(super) fn unit<T: Into<Unit>>(segment: T) -> Unit {
    segment.into()
}

/// A segment of `N` units.
#[inline(always)]
pub(super) fn units<T: IntoBytes + Immutable + Copy, const N: usize>(segment: T) -> [Unit; N] {
    const { assert!(size_of::<T>() == N * DS_UNIT) };
    <[Unit; N]>::read_from_bytes(segment.as_bytes()).unwrap_or([[0; 2]; N])
}

/// The ring's memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct SendRing {
    start: NonNull<Unit>,
    end: NonNull<Unit>,
    /// Blocks, less one.
    mask: u32,
}

// SAFETY: memory of the process, not of a thread; who may access it is said at each access.
unsafe impl Send for SendRing {}

impl SendRing {
    /// # Safety
    ///
    /// `wqebbs` (a power of two) blocks at `start`, aligned to 64 bytes, are readable and writable as long as the value or a
    /// copy is used.
    pub(super) unsafe fn new(start: NonNull<u8>, wqebbs: u32) -> Self {
        assert!(wqebbs.is_power_of_two());
        let bytes = wqebbs as usize * SEND_WQE_BB;
        // SAFETY: the end of the memory that the caller promised.
        let end = unsafe { start.add(bytes) };
        Self {
            start: start.cast(),
            end: end.cast(),
            mask: wqebbs - 1,
        }
    }

    /// Blocks.
    #[inline(always)]
    pub(super) fn wqebbs(&self) -> u32 {
        self.mask + 1
    }

    /// Blocks, less one.
    #[inline(always)]
    pub(super) fn mask(&self) -> u32 {
        self.mask
    }

    #[inline(always)]
    pub(super) fn start(&self) -> NonNull<Unit> {
        self.start
    }

    #[inline(always)]
    pub(super) fn end(&self) -> NonNull<Unit> {
        self.end
    }

    /// The block that a counter of posted blocks is at.
    #[inline(always)]
    pub(super) fn block(&self, counter: u32) -> NonNull<Unit> {
        let offset = (counter & self.mask) as usize * SEND_WQE_BB;
        // SAFETY: the masked counter is below the number of blocks.
        unsafe { self.start.byte_add(offset) }
    }

    /// The unit with a number, counted from any start of the ring on.
    #[inline(always)]
    pub(super) fn unit(&self, number: u32) -> NonNull<Unit> {
        let offset = (number & ((self.mask << UNITS_SHIFT) | (UNITS - 1))) as usize;
        // SAFETY: the masked number is below the number of units.
        unsafe { self.start.add(offset) }
    }

    /// Copies bytes into the ring, going on at its start: from byte `skip` of a unit on.
    ///
    /// # Safety
    ///
    /// `from` is readable for `len` bytes, no more than the ring has. The units are the caller's.
    #[inline(always)]
    pub(super) unsafe fn copy_in(&self, number: u32, skip: usize, from: *const u8, len: usize) {
        let at = self.unit(number.wrapping_add((skip / DS_UNIT) as u32));
        // SAFETY: within the unit.
        let at = unsafe { at.cast::<u8>().add(skip % DS_UNIT) };
        let left = self.end.addr().get() - at.addr().get();
        if len <= left {
            // SAFETY: the caller's promise, and it fits.
            unsafe { copy(from, at.as_ptr(), len) };
        } else {
            // SAFETY: the first piece, up to the end.
            unsafe { copy(from, at.as_ptr(), left) };
            // SAFETY: within what is readable.
            let rest = unsafe { from.add(left) };
            // SAFETY: the second piece, from the start.
            unsafe { copy(rest, self.start.as_ptr().cast(), len - left) };
        }
    }
}

/// Copies bytes. Short ones are copied without a call.
///
/// # Safety
///
/// As for [`std::ptr::copy_nonoverlapping`].
#[inline(always)]
unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    if len.wrapping_sub(1) < 64 {
        // SAFETY: the caller's promise; between 1 and 64.
        unsafe { copy_short(from, to, len) };
    } else {
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
    }
}

/// Copies 1 to 64 bytes by two moves, which overlap if need be.
///
/// # Safety
///
/// As for [`std::ptr::copy_nonoverlapping`], with such a length.
#[inline(always)]
pub(super) unsafe fn copy_short(from: *const u8, to: *mut u8, len: usize) {
    if len >= 16 {
        if len > 32 {
            // SAFETY: the length is between the size and twice of it.
            unsafe { two::<[u128; 2]>(from, to, len) };
        } else {
            // SAFETY: as above.
            unsafe { two::<u128>(from, to, len) };
        }
    } else if len >= 8 {
        // SAFETY: as above.
        unsafe { two::<u64>(from, to, len) };
    } else if len >= 4 {
        // SAFETY: as above.
        unsafe { two::<u32>(from, to, len) };
    } else if len >= 2 {
        // SAFETY: as above.
        unsafe { two::<u16>(from, to, len) };
    } else {
        // SAFETY: one byte, by the caller's promise.
        unsafe { two::<u8>(from, to, len) };
    }
}

/// Copies the first and the last bytes of a range, which are all of it.
///
/// # Safety
///
/// `len` bytes are readable and writable and do not overlap, and `size_of::<T>() <= len <= 2 * size_of::<T>()`.
#[inline(always)]
unsafe fn two<T: Copy>(from: *const u8, to: *mut u8, len: usize) {
    let last = len - size_of::<T>();
    // SAFETY: the last bytes of the range.
    let from_last = unsafe { from.add(last) };
    // SAFETY: as above.
    let to_last = unsafe { to.add(last) };
    // SAFETY: the first bytes of the range.
    let first = unsafe { from.cast::<T>().read_unaligned() };
    // SAFETY: its last bytes.
    let last = unsafe { from_last.cast::<T>().read_unaligned() };
    // SAFETY: as for reading.
    unsafe { to.cast::<T>().write_unaligned(first) };
    // SAFETY: as for reading.
    unsafe { to_last.cast::<T>().write_unaligned(last) };
}

/// Where the next unit of a work request goes. Only numbers: with any ring, they are places in it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cursor {
    /// The control segment's unit.
    first: u32,
    /// Units of the work request so far, with the control segment.
    ds: u32,
}

impl Cursor {
    /// Behind the control segment of a work request that begins at a block.
    #[inline(always)]
    pub(super) fn behind_ctrl(block: u32) -> Self {
        Self {
            first: block << UNITS_SHIFT,
            ds: 1,
        }
    }

    /// Behind so many units of a work request that begins at a block.
    #[inline(always)]
    pub(super) fn at(block: u32, ds: u32) -> Self {
        Self {
            first: block << UNITS_SHIFT,
            ds,
        }
    }

    /// The number of the control segment's unit.
    #[inline(always)]
    pub(super) fn first(&self) -> u32 {
        self.first
    }

    /// Units so far.
    #[inline(always)]
    pub(super) fn ds(&self) -> u32 {
        self.ds
    }

    /// The control segment.
    #[inline(always)]
    pub(super) fn ctrl(&self, ring: &SendRing) -> NonNull<Unit> {
        ring.unit(self.first)
    }

    /// The number of the unit that comes next.
    #[inline(always)]
    pub(super) fn next(&self) -> u32 {
        self.first.wrapping_add(self.ds)
    }

    /// Stores a unit.
    ///
    /// # Safety
    ///
    /// The unit is the caller's: of a block that is free, and nobody else writes to it.
    #[inline(always)]
    pub(super) unsafe fn put(&mut self, ring: &SendRing, unit: Unit) {
        // SAFETY: a unit of the ring, by the caller's promise nobody else's.
        unsafe { ring.unit(self.next()).write(unit) };
        self.ds += 1;
    }

    /// Stores a unit of the control segment's own block.
    ///
    /// # Safety
    ///
    /// As for [`put`](Self::put), and fewer than four units were stored.
    #[inline(always)]
    pub(super) unsafe fn put_in_block(&mut self, ring: &SendRing, unit: Unit) {
        // SAFETY: a block has four units.
        let place = unsafe { self.ctrl(ring).add(self.ds as usize) };
        // SAFETY: the caller's promise.
        unsafe { place.write(unit) };
        self.ds += 1;
    }

    /// Stores several.
    ///
    /// # Safety
    ///
    /// As for [`put`](Self::put).
    #[inline(always)]
    pub(super) unsafe fn put_all<const N: usize>(&mut self, ring: &SendRing, units: [Unit; N]) {
        for unit in units {
            // SAFETY: the caller's promise.
            unsafe { self.put(ring, unit) };
        }
    }

    /// Steps over units that are written otherwise.
    #[inline(always)]
    pub(super) fn skip(&mut self, units: u32) {
        self.ds += units;
    }

    /// Steps back to the unit that was stored last.
    #[inline(always)]
    pub(super) fn back_one(&mut self) {
        self.ds -= 1;
    }
}
