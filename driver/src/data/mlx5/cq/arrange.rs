//! From an entry's fields to a completion's words, for the kinds of entries that come in numbers.
//!
//! Byte by byte that is half of what a completion costs. Processors that bring sixteen bytes into any order at once do it
//! in a tenth of the instructions; which way is taken is decided when a queue is made.

use super::completion::{Completion, Place, flag, half_pair, pair};
use super::ring::Entry;

/// Writes all of a completion behind status and opcode.
pub(super) trait Arrange {
    /// Of a send that read nothing from its peer.
    ///
    /// # Safety
    ///
    /// `out` is valid for a write; the processor can do it.
    unsafe fn send(out: *mut Completion, cqe: Entry);

    /// Of a receive without immediate data or an invalidated key; nothing is said of checksums.
    ///
    /// # Safety
    ///
    /// As for [`send`](Self::send).
    unsafe fn receive(out: *mut Completion, cqe: Entry);
}

/// On any processor.
#[derive(Debug)]
pub(super) struct Portable;

impl Arrange for Portable {
    #[inline(always)]
    unsafe fn send(out: *mut Completion, cqe: Entry) {
        // SAFETY: passed on.
        let place = unsafe { Place::new(out) };
        place.set::<{ Place::VENDOR_LENGTH }>(0);
        place.set::<{ Place::IMM_QUEUE }>(pair(0, cqe.get().qpn()));
        place.set::<{ Place::SOURCE_FLAGS }>(0);
        place.set::<{ Place::REST }>(0);
    }

    #[inline(always)]
    unsafe fn receive(out: *mut Completion, cqe: Entry) {
        // SAFETY: passed on.
        let place = unsafe { Place::new(out) };
        place.set::<{ Place::VENDOR_LENGTH }>(pair(0, cqe.get().byte_cnt.get()));
        place.set::<{ Place::IMM_QUEUE }>(pair(0, cqe.get().qpn()));
        let source = cqe.get().flags_rqpn.into_bits().get();
        let flags = if source >> 28 & 3 != 0 { flag::GRH } else { 0 };
        place.set::<{ Place::SOURCE_FLAGS }>(pair(source & 0xff_ffff, flags));
        place.set::<{ Place::REST }>(rest(cqe, source));
    }
}

/// The last word of a receive completion; `source` is the entry's `flags_rqpn`.
#[inline(always)]
pub(super) fn rest(cqe: Entry, source: u32) -> u64 {
    let pkey = cqe.get().imm_inval_pkey.get() as u16;
    let levels = u16::from_ne_bytes([(source >> 24) as u8 & 0xf, cqe.get().dlid_path_bits()]);
    pair(half_pair(pkey, cqe.get().slid.get()), half_pair(levels, 0))
}

/// What is best where [`has_best`] says that it can be done.
#[cfg(target_arch = "x86_64")]
pub(super) type Best = shuffled::Shuffled;
#[cfg(not(target_arch = "x86_64"))]
pub(super) type Best = Portable;

/// Whether the processor can do it.
pub(super) fn has_best() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("ssse3")
        && std::arch::is_x86_feature_detected!("movbe");
    #[cfg(not(target_arch = "x86_64"))]
    true
}

#[cfg(target_arch = "x86_64")]
mod shuffled {
    use std::arch::x86_64::{
        __m128i, _mm_and_si128, _mm_insert_epi16, _mm_loadu_si128, _mm_min_epu8, _mm_set_epi64x,
        _mm_setzero_si128, _mm_shuffle_epi8, _mm_storeu_si128,
    };
    use std::mem::offset_of;

    use wqe_format::mlx5::Cqe64;

    use super::{Arrange, Completion, Entry};

    /// With SSSE3, and MOVBE for what surrounds it.
    #[derive(Debug)]
    pub(in super::super) struct Shuffled;

    /// No byte of the source: 0.
    const NONE: u8 = 0x80;

    /// Sixteen bytes of an entry in a register are shuffled into sixteen of a completion: for each of these the place of
    /// the byte that it gets.
    const fn vector(bytes: [u8; 16]) -> [i64; 2] {
        let value = u128::from_le_bytes(bytes);
        [value as i64, (value >> 64) as i64]
    }

    #[inline(always)]
    fn constant([low, high]: [i64; 2]) -> __m128i {
        // SAFETY: SSE2, which each of these processors has.
        unsafe { _mm_set_epi64x(high, low) }
    }

    /// Where the first source begins, whose last number is the queue pair's.
    const LENGTH_AT: usize = offset_of!(Cqe64, byte_cnt);
    /// Where the second source begins.
    const SOURCE_AT: usize = offset_of!(Cqe64, rx_hash_type);

    /// Vendor error, length, immediate data, queue pair.
    const SEND: [i64; 2] = vector(middle([NONE; 4]));
    const RECEIVE: [i64; 2] = vector(middle([3, 2, 1, 0]));

    const fn middle([a, b, c, d]: [u8; 4]) -> [u8; 16] {
        const QUEUE: u8 = (offset_of!(Cqe64, sop_drop_qpn) - LENGTH_AT) as u8;
        let (x, y, z) = (QUEUE + 3, QUEUE + 2, QUEUE + 1);
        [
            NONE, NONE, NONE, NONE, a, b, c, d, NONE, NONE, NONE, NONE, x, y, z, NONE,
        ]
    }

    /// Source and flags, key index, local identifier, level and path bits. The key's index was put into a place of the
    /// second source that is not used, whose number it is in words.
    const ADDRESS: [i64; 2] = {
        const FLAGS: u8 = (offset_of!(Cqe64, flags_rqpn) - SOURCE_AT) as u8;
        const LID: u8 = (offset_of!(Cqe64, slid) - SOURCE_AT) as u8;
        const PATH: u8 = (offset_of!(Cqe64, ml_path) - SOURCE_AT) as u8;
        const KEY: u8 = 2 * KEY_PLACE as u8;
        vector([
            FLAGS + 3,
            FLAGS + 2,
            FLAGS + 1,
            NONE,
            FLAGS,
            NONE,
            NONE,
            NONE,
            KEY + 1,
            KEY,
            LID + 1,
            LID,
            FLAGS,
            PATH,
            NONE,
            NONE,
        ])
    };
    const KEY_PLACE: i32 = 1;
    const _: () = assert!(SOURCE_AT + 2 * KEY_PLACE as usize == offset_of!(Cqe64, reserved_18));
    /// Which bits of these bytes count. Of the flags, whether a global route header came: either of two bits.
    const BITS: [i64; 2] = vector([
        0xff, 0xff, 0xff, 0, 0x30, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f, 0x7f, 0, 0,
    ]);
    /// The most that each may be, which makes one bit of those two.
    const MOST: [i64; 2] = vector([
        0xff, 0xff, 0xff, 0, 1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f, 0x7f, 0, 0,
    ]);

    impl Arrange for Shuffled {
        #[inline(always)]
        unsafe fn send(out: *mut Completion, cqe: Entry) {
            // SAFETY: inside the entry.
            let source = unsafe { load::<LENGTH_AT>(cqe) };
            // SAFETY: the processor can, by contract.
            let middle = unsafe { _mm_shuffle_epi8(source, constant(SEND)) };
            // SAFETY: passed on.
            unsafe { store::<{ offset_of!(Completion, vendor_err) }>(out, middle) };
            // SAFETY: SSE2.
            let nothing = unsafe { _mm_setzero_si128() };
            // SAFETY: passed on.
            unsafe { store::<{ offset_of!(Completion, src_qp) }>(out, nothing) };
        }

        #[inline(always)]
        unsafe fn receive(out: *mut Completion, cqe: Entry) {
            // SAFETY: inside the entry.
            let source = unsafe { load::<LENGTH_AT>(cqe) };
            // SAFETY: the processor can, by contract.
            let middle = unsafe { _mm_shuffle_epi8(source, constant(RECEIVE)) };
            // SAFETY: passed on.
            unsafe { store::<{ offset_of!(Completion, vendor_err) }>(out, middle) };
            // SAFETY: inside the entry.
            let source = unsafe { load::<SOURCE_AT>(cqe) };
            let [_, _, high, low] = cqe.get().imm_inval_pkey.to_bytes();
            let key = i32::from(u16::from_ne_bytes([high, low]));
            // SAFETY: SSE2.
            let source = unsafe { _mm_insert_epi16::<KEY_PLACE>(source, key) };
            // SAFETY: the processor can, by contract.
            let address = unsafe { _mm_shuffle_epi8(source, constant(ADDRESS)) };
            // SAFETY: SSE2.
            let address = unsafe { _mm_and_si128(address, constant(BITS)) };
            // SAFETY: SSE2.
            let address = unsafe { _mm_min_epu8(address, constant(MOST)) };
            // SAFETY: passed on.
            unsafe { store::<{ offset_of!(Completion, src_qp) }>(out, address) };
        }
    }

    /// # Safety
    ///
    /// The entry is the program's.
    #[inline(always)]
    unsafe fn load<const AT: usize>(cqe: Entry) -> __m128i {
        const { assert!(AT + size_of::<__m128i>() <= size_of::<Cqe64>()) };
        // SAFETY: inside the entry.
        let at = unsafe { cqe.at().add(AT) };
        // SAFETY: readable, and any bytes will do.
        unsafe { _mm_loadu_si128(at.as_ptr().cast()) }
    }

    /// # Safety
    ///
    /// `out` is valid for a write.
    #[inline(always)]
    unsafe fn store<const AT: usize>(out: *mut Completion, value: __m128i) {
        const { assert!(AT + size_of::<__m128i>() <= size_of::<Completion>()) };
        // SAFETY: inside the completion.
        let at = unsafe { out.byte_add(AT) };
        // SAFETY: writable by contract.
        unsafe { _mm_storeu_si128(at.cast(), value) };
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::NonNull;

    use proptest::prelude::*;
    use wqe_format::mlx5::Cqe64;
    use zerocopy::FromBytes;

    use super::*;

    #[repr(align(64))]
    struct Bytes([u8; 64]);

    /// Both ways, into memory with something else in it.
    fn both(bytes: [u8; 64], sends: bool, before: Completion) -> [Completion; 2] {
        let bytes = Bytes(bytes);
        // SAFETY: aligned, and lives until the end of this function.
        let cqe = unsafe { Entry::new(NonNull::from_ref(&bytes.0).cast()) };
        let mut out = [before; 2];
        let [one, other] = &mut out;
        if sends {
            // SAFETY: a place of this function.
            unsafe { Portable::send(one, cqe) };
            // SAFETY: as above, and asked for below.
            unsafe { Best::send(other, cqe) };
        } else {
            // SAFETY: a place of this function.
            unsafe { Portable::receive(one, cqe) };
            // SAFETY: as above, and asked for below.
            unsafe { Best::receive(other, cqe) };
        }
        out
    }

    proptest! {
        /// The fields are those that the entry's type reads, however they are brought into place.
        #[test]
        fn ways_agree(bytes: [u8; 32], more: [u8; 32], sends: bool, fill: u8) {
            prop_assume!(has_best());
            let mut whole = [0; 64];
            whole[..32].copy_from_slice(&bytes);
            whole[32..].copy_from_slice(&more);
            let before = Completion {
                wr_id: u64::from_ne_bytes([fill; 8]),
                status: u32::from_ne_bytes([fill; 4]),
                opcode: u32::from_ne_bytes([fill; 4]),
                vendor_err: 1,
                byte_len: 2,
                imm_or_rkey: 3,
                qp_num: 4,
                src_qp: 5,
                wc_flags: 6,
                pkey_index: 7,
                slid: 8,
                sl: 9,
                dlid_path_bits: 10,
                reserved: [11; 2],
            };
            let cqe = Cqe64::read_from_bytes(&whole).unwrap();
            let expected = Completion {
                wr_id: before.wr_id,
                status: before.status,
                opcode: before.opcode,
                qp_num: cqe.qpn(),
                ..if sends {
                    Completion::default()
                } else {
                    Completion {
                        byte_len: cqe.byte_cnt.get(),
                        src_qp: cqe.src_qp(),
                        wc_flags: if cqe.has_grh() { flag::GRH } else { 0 },
                        pkey_index: cqe.pkey_index(),
                        slid: cqe.slid.get(),
                        sl: cqe.sl(),
                        dlid_path_bits: cqe.dlid_path_bits(),
                        ..Completion::default()
                    }
                }
            };
            prop_assert_eq!(both(whole, sends, before), [expected; 2]);
        }
    }
}
