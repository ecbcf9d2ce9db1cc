//! Memory keys that work requests configure.

use std::ffi::c_int;
use std::sync::Arc;

use oxverbs::ffi_core::Errno;
use oxverbs::ffi_core::mlx5::{KeyError, KeySignature};
use oxverbs::ffi_core::refusal::reason;
use oxverbs::ffi_core::wqe_format::mlx5::BsfSegment;
use oxverbs::ffi_core::wqe_format::mlx5::firmware::bits;

use super::device::has_signatures;
use super::signature::Signature;
use super::{EOPNOTSUPP, devx, ours};
use crate::abi::dv::{mlx5dv_mkey, mlx5dv_mkey_init_attr};
use crate::abi::protection::{mlx5dv_mkey_err, mlx5dv_sig_err};
use crate::door::control;
use crate::mlx5::domain;

/// A key: what the program sees, and ours behind it.
#[repr(C)]
#[derive(Debug)]
struct Mkey {
    view: mlx5dv_mkey,
    entries: u32,
    object: *mut devx::Object,
    signature: Option<Signature>,
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

/// The signatures of a key that has some.
///
/// # Safety
///
/// One of [`mlx5dv_create_mkey`].
pub(crate) unsafe fn signature_of(mkey: *mut mlx5dv_mkey) -> Option<Arc<KeySignature>> {
    // SAFETY: the caller's promise.
    let mkey = unsafe { &*mkey.cast::<Mkey>() };
    Some(mkey.signature.as_ref()?.key.clone())
}

/// `enum mlx5dv_mkey_init_attr_flags`.
mod flag {
    pub(super) const INDIRECT: u32 = 1;
    pub(super) const BLOCK_SIGNATURE: u32 = 1 << 1;
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
    if flags & flag::BLOCK_SIGNATURE != 0 {
        // There is a byte stream format, of so many units of 16 bytes.
        bits::set(context, 0x61, 1, 1);
        bits::set(context, 0x100, 32, (size_of::<BsfSegment>() / 16) as u64);
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
        let mut can = flag::INDIRECT | flag::REMOTE_INVALIDATE | flag::BLOCK_SIGNATURE;
        if device.context().limits().mkey_update_tag {
            can |= flag::UPDATE_TAG;
        }
        // Encryption is not offered.
        if attr.create_flags == 0 || attr.create_flags & !can != 0 {
            return Err(EOPNOTSUPP);
        }
        // They come in groups of four.
        let entries = u32::from(attr.max_entries).next_multiple_of(4);
        let max_entries = u16::try_from(entries).map_err(|_| Errno(libc::EINVAL))?;
        // SAFETY: a protection domain of ours.
        let pdn = unsafe { domain::number(attr.pd) };
        let mut signature = None;
        if attr.create_flags & flag::BLOCK_SIGNATURE != 0 {
            if !has_signatures(device) {
                return Err(EOPNOTSUPP);
            }
            // SAFETY: an open context.
            signature = Some(unsafe { Signature::new(context, pdn) }?);
        }
        let input = command(pdn, entries, attr.create_flags);
        let mut output = [0; OUTPUT];
        // SAFETY: an open context.
        let object = unsafe { devx::create(context, &input, &mut output) }.map_err(|errno| {
            if let Some(signature) = &mut signature {
                // SAFETY: nobody knows of it; what stays is gone with the context.
                let _ = unsafe { signature.destroy() };
            }
            reason(errno, &output)
        })?;
        attr.max_entries = max_entries;
        let index = u32::from_be_bytes([0, output[9], output[10], output[11]]);
        let key = index << 8;
        if let Some(signature) = &signature {
            let keys = device.context().signatures();
            keys.insert(index, signature.key.clone());
        }
        let mkey = Mkey {
            view: mlx5dv_mkey {
                lkey: key,
                rkey: key,
            },
            entries,
            object,
            signature,
        };
        Ok(Box::into_raw(Box::new(mkey)).cast())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_destroy_mkey(mkey: *mut mlx5dv_mkey) -> c_int {
    control("mlx5dv_destroy_mkey", || {
        let mkey = mkey.cast::<Mkey>();
        // SAFETY: the caller's key, which is used no more.
        let ours_of = unsafe { &mut *mkey };
        if let Some(signature) = &mut ours_of.signature {
            // SAFETY: as above.
            unsafe { signature.destroy() }?;
        }
        let object = ours_of.object;
        // SAFETY: as above.
        let context = unsafe { (*object).context };
        // SAFETY: as above.
        unsafe { devx::destroy(object) }?;
        if ours_of.signature.is_some() {
            // SAFETY: a key's context is open.
            let keys = unsafe { ours(context) }?.context().signatures();
            keys.remove(ours_of.view.lkey >> 8);
        }
        // SAFETY: made by `mlx5dv_create_mkey`, and gone for the device and the program.
        drop(unsafe { Box::from_raw(mkey) });
        Ok(())
    })
}

/// What was wrong with a signature of the key's data, if polling met it since the last time that this was asked.
#[unsafe(no_mangle)]
unsafe extern "C" fn _mlx5dv_mkey_check(
    mkey: *mut mlx5dv_mkey,
    info: *mut mlx5dv_mkey_err,
    _size: usize,
) -> c_int {
    control("mlx5dv_mkey_check", || {
        // SAFETY: the caller's key.
        let signature = unsafe { signature_of(mkey) }.ok_or(Errno(libc::EINVAL))?;
        let found = signature.check().map_err(|_| Errno(libc::EINVAL))?;
        // SAFETY: the caller's memory; all releases have these fields.
        let kind = unsafe { &raw mut (*info).err_type };
        let part = found.as_ref().map_or(0, |error| error.part as u32);
        // SAFETY: as above.
        unsafe { kind.write(part) };
        let Some(KeyError {
            actual,
            expected,
            offset,
            ..
        }) = found
        else {
            return Ok(());
        };
        let error = mlx5dv_sig_err {
            actual_value: actual,
            expected_value: expected,
            offset,
        };
        // SAFETY: as above.
        let place = unsafe { &raw mut (*info).err };
        // SAFETY: as above.
        unsafe { place.write(error) };
        Ok(())
    })
}
