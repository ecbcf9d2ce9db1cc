//! Memory keys that work requests configure.

use std::ffi::c_int;

use oxverbs::ffi_core::Errno;
use oxverbs::ffi_core::wqe_format::mlx5::firmware::bits;

use super::{EOPNOTSUPP, devx, ours};
use crate::abi::dv::{mlx5dv_mkey, mlx5dv_mkey_init_attr};
use crate::door::control;
use crate::mlx5::domain;

/// A key: what the program sees, and ours behind it.
#[repr(C)]
#[derive(Debug)]
struct Mkey {
    view: mlx5dv_mkey,
    entries: u32,
    object: *mut devx::Object,
}

/// Entries that a key was made for.
///
/// # Safety
///
/// One of [`mlx5dv_create_mkey`].
pub(crate) unsafe fn entries_of(mkey: *mut mlx5dv_mkey) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { (*mkey.cast::<Mkey>()).entries }
}

/// `enum mlx5dv_mkey_init_attr_flags`.
mod flag {
    pub(super) const INDIRECT: u32 = 1;
    pub(super) const UPDATE_TAG: u32 = 1 << 3;
    pub(super) const REMOTE_INVALIDATE: u32 = 1 << 4;
}

/// CREATE_MKEY (`mlx5_ifc.h`, `create_mkey_in`), without translations.
const CREATE_MKEY: u16 = 0x200;
const INPUT: usize = 0x110;
const OUTPUT: usize = 0x10;
/// Where the context of the key is in it.
const CONTEXT: usize = 0x10;

fn command(pdn: u32, entries: u32, flags: u32) -> [u8; INPUT] {
    let mut input = [0; INPUT];
    input[..2].copy_from_slice(&CREATE_MKEY.to_be_bytes());
    // `mlx5_ifc.h`, `mkc`: free, configured by work requests, entries with lengths, local reads, any queue pair.
    let context = &mut input[CONTEXT..];
    bits::set(context, 0x01, 1, 1);
    bits::set(context, 0x10, 1, 1);
    bits::set(context, 0x15, 1, 1);
    bits::set(context, 0x16, 2, 2);
    bits::set(context, 0x20, 24, 0xff_ffff);
    bits::set(context, 0x68, 24, pdn.into());
    bits::set(context, 0x1a0, 32, entries.into());
    if flags & flag::REMOTE_INVALIDATE != 0 {
        bits::set(context, 0x67, 1, 1);
    }
    input
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_create_mkey(attr: *mut mlx5dv_mkey_init_attr) -> *mut mlx5dv_mkey {
    control("mlx5dv_create_mkey", || {
        // SAFETY: the caller's attributes, which the verb writes back to.
        let attr = unsafe { &mut *attr };
        // SAFETY: a protection domain by the verb's contract.
        let context = unsafe { (*attr.pd).context };
        // SAFETY: its context is open.
        let device = unsafe { ours(context) }?;
        let mut can = flag::INDIRECT | flag::REMOTE_INVALIDATE;
        if device.context().limits().mkey_update_tag {
            can |= flag::UPDATE_TAG;
        }
        // Signatures and encryption are not offered.
        if attr.create_flags == 0 || attr.create_flags & !can != 0 {
            return Err(EOPNOTSUPP);
        }
        // They come in groups of four.
        let entries = u32::from(attr.max_entries).next_multiple_of(4);
        // SAFETY: a protection domain of ours.
        let pdn = unsafe { domain::number(attr.pd) };
        let input = command(pdn, entries, attr.create_flags);
        let mut output = [0; OUTPUT];
        // SAFETY: an open context.
        let object = unsafe { devx::create(context, &input, &mut output) }?;
        attr.max_entries = u16::try_from(entries).map_err(|_| Errno(libc::EINVAL))?;
        let index = u32::from_be_bytes([0, output[9], output[10], output[11]]);
        let key = index << 8;
        let mkey = Mkey {
            view: mlx5dv_mkey {
                lkey: key,
                rkey: key,
            },
            entries,
            object,
        };
        Ok(Box::into_raw(Box::new(mkey)).cast())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_destroy_mkey(mkey: *mut mlx5dv_mkey) -> c_int {
    control("mlx5dv_destroy_mkey", || {
        let mkey = mkey.cast::<Mkey>();
        // SAFETY: the caller's key.
        let object = unsafe { (*mkey).object };
        // SAFETY: as above; it is used no more.
        unsafe { devx::destroy(object) }?;
        // SAFETY: made by `mlx5dv_create_mkey`, and gone for the device and the program.
        drop(unsafe { Box::from_raw(mkey) });
        Ok(())
    })
}
