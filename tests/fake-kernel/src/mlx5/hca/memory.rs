//! The program's memory as the device reaches it: by address, at any time, past every rule of the language.
//!
//! Rings and doorbell records belong to the program's library, which keeps them until the command that
//! destroys the object has returned. The objects here refuse to touch memory after that command has begun.

use std::ptr;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// The bytes at `address`.
///
/// # Safety
///
/// They are mapped.
pub(crate) unsafe fn read(address: u64, bytes: &mut [u8]) {
    // SAFETY: whole words first, as a device's reads are; see the callee.
    let done = unsafe { read_words(address, bytes) };
    for (i, byte) in bytes.iter_mut().enumerate().skip(done) {
        let from = ptr::with_exposed_provenance_mut::<u8>(address as usize + i);
        // SAFETY: mapped, by the caller's word; a byte is always aligned.
        let from = unsafe { AtomicU8::from_ptr(from) };
        *byte = from.load(Ordering::Relaxed);
    }
}

/// # Safety
///
/// As for [`read`].
unsafe fn read_words(address: u64, bytes: &mut [u8]) -> usize {
    if !address.is_multiple_of(8) {
        return 0;
    }
    let mut done = 0;
    for chunk in bytes.chunks_exact_mut(8) {
        let from = ptr::with_exposed_provenance_mut::<u64>(address as usize + done);
        // SAFETY: mapped, by the caller's word, and aligned.
        let from = unsafe { AtomicU64::from_ptr(from) };
        chunk.copy_from_slice(&from.load(Ordering::Relaxed).to_ne_bytes());
        done += 8;
    }
    done
}

/// Writes `bytes` at `address`.
///
/// # Safety
///
/// The range is mapped, and the program expects the device to write there.
pub(crate) unsafe fn write(address: u64, bytes: &[u8]) {
    let mut done = 0;
    if address.is_multiple_of(8) {
        for chunk in bytes.chunks_exact(8) {
            let mut word = [0; 8];
            word.copy_from_slice(chunk);
            let to = ptr::with_exposed_provenance_mut::<u64>(address as usize + done);
            // SAFETY: mapped, by the caller's word, and aligned.
            let to = unsafe { AtomicU64::from_ptr(to) };
            to.store(u64::from_ne_bytes(word), Ordering::Relaxed);
            done += 8;
        }
    }
    for (i, byte) in bytes.iter().enumerate().skip(done) {
        let to = ptr::with_exposed_provenance_mut::<u8>(address as usize + i);
        // SAFETY: mapped, by the caller's word; a byte is always aligned.
        let to = unsafe { AtomicU8::from_ptr(to) };
        to.store(*byte, Ordering::Relaxed);
    }
}

/// The big-endian word at `address`; what the program stored before it is seen too.
///
/// # Safety
///
/// It is mapped and aligned.
pub(crate) unsafe fn read_be32(address: u64) -> u32 {
    let from = ptr::with_exposed_provenance_mut::<u32>(address as usize);
    // SAFETY: by the caller's word.
    let from = unsafe { AtomicU32::from_ptr(from) };
    u32::from_be(from.load(Ordering::Acquire))
}

/// Stores the byte by which the program sees that an entry is its own, after everything else.
///
/// # Safety
///
/// As for [`write`].
pub(crate) unsafe fn publish(address: u64, byte: u8) {
    let to = ptr::with_exposed_provenance_mut::<u8>(address as usize);
    // SAFETY: by the caller's word.
    let to = unsafe { AtomicU8::from_ptr(to) };
    to.store(byte, Ordering::Release);
}
