//! Objects of one process in another that has the same context (release 65): what a program hands over of each.
//!
//! The layouts are those of rdma-core 65's providers/mlx5/mlx5.h, since one side may have Debian's library.

use std::ffi::{c_int, c_void};

use oxverbs::ffi_core::uverbs_abi::handle::mlx5::{DevxObj, DevxUmem, Var};
use oxverbs::ffi_core::wqe_format::mlx5::firmware::{Opcode, bits};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::devx::{Object, Umem};
use super::memory::VirtioPage;
use super::ours;
use crate::abi::dv::mlx5dv_var;
use crate::abi::objects::ibv_context;
use crate::door::{control, guarded};

/// Of an object of the firmware's (`struct mlx5dv_devx_obj_attrs`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable)]
pub(super) struct ObjectBlob {
    handle: u32,
    /// What it is, as far as software steering takes such; else 0.
    kind: u32,
    number: u32,
    padding: u32,
    rx_icm_addr: u64,
    log_range: u8,
    padding_at_the_end: [u8; 7],
}

/// Of memory (`struct mlx5dv_devx_umem_attrs`).
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
struct UmemBlob {
    handle: u32,
    number: u32,
}

/// Of a page for virtio queues (`struct mlx5dv_var_attrs`).
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
struct PageBlob {
    handle: u32,
    page_id: u32,
    length: u32,
    padding: u32,
    mmap_off: i64,
}

/// What commands make, where software steering takes it (`enum mlx5_devx_obj_type`).
mod kind {
    pub(super) const FLOW_TABLE: u32 = 1;
    pub(super) const FLOW_COUNTER: u32 = 2;
    pub(super) const FLOW_METER: u32 = 3;
    pub(super) const QP: u32 = 4;
    pub(super) const PACKET_REFORMAT: u32 = 5;
    pub(super) const TIR: u32 = 6;
    pub(super) const FLOW_GROUP: u32 = 7;
    pub(super) const FLOW_TABLE_ENTRY: u32 = 8;
    pub(super) const FLOW_SAMPLER: u32 = 9;
    pub(super) const FIRST_HIT: u32 = 10;
    pub(super) const ASO_METER: u32 = 11;
    pub(super) const CONNECTIONS: u32 = 12;
}

/// Bits of a command or its answer, of which the program may have sent or wanted fewer.
fn field(bytes: &[u8], first: usize, width: usize) -> u64 {
    match first + width <= bytes.len() * 8 {
        true => bits::get(bytes, first, width),
        false => 0,
    }
}

impl ObjectBlob {
    /// Of what a command made. Fields are those of `mlx5_ifc.h`.
    pub(super) fn of(handle: DevxObj, input: &[u8], output: &[u8]) -> Self {
        let mut it = Self {
            handle: handle.0,
            ..Self::default()
        };
        let opcode = Opcode(field(input, 0, 16) as u16);
        // Numbers of objects stand in 24 bits behind another field, or in 32.
        let (short, long) = (field(output, 0x48, 24), field(output, 0x40, 32));
        let (kind, number) = match opcode {
            Opcode::CREATE_QP => (kind::QP, short),
            Opcode::CREATE_TIR => {
                it.rx_icm_addr = field(output, 0x60, 32)
                    | field(output, 0x40, 8) << 32
                    | field(output, 0x08, 24) << 40;
                (kind::TIR, short)
            }
            Opcode::CREATE_FLOW_TABLE => (kind::FLOW_TABLE, short),
            Opcode::CREATE_FLOW_GROUP => (kind::FLOW_GROUP, short),
            // Its number is the program's choice.
            Opcode::SET_FLOW_TABLE_ENTRY => (kind::FLOW_TABLE_ENTRY, field(input, 0x100, 32)),
            Opcode::ALLOC_FLOW_COUNTER => (kind::FLOW_COUNTER, long),
            Opcode::ALLOC_PACKET_REFORMAT_CONTEXT => (kind::PACKET_REFORMAT, long),
            Opcode::CREATE_GENERAL_OBJECT => {
                it.log_range = field(input, 0x63, 5) as u8;
                let kind = match field(input, 0x30, 16) {
                    0x0a => kind::FLOW_METER,
                    0x20 => kind::FLOW_SAMPLER,
                    0x24 => kind::ASO_METER,
                    0x25 => kind::FIRST_HIT,
                    0x31 => kind::CONNECTIONS,
                    _ => 0,
                };
                (kind, long)
            }
            _ => (0, 0),
        };
        (it.kind, it.number) = (kind, number as u32);
        it
    }
}

/// Writes what is handed over.
///
/// # Safety
///
/// `to` has room for it, as the sizes of [`_mlx5dv_get_export_sizes`] say.
unsafe fn hand_over<T: IntoBytes + Immutable>(blob: &T, to: *mut c_void) {
    let bytes = blob.as_bytes();
    // SAFETY: the caller's promise.
    unsafe { to.cast::<u8>().copy_from(bytes.as_ptr(), bytes.len()) };
}

/// Reads it.
///
/// # Safety
///
/// `from` is what the other process was given.
unsafe fn take_over<T: FromBytes>(from: *const c_void) -> T {
    // SAFETY: the caller's promise; any bytes are a value.
    unsafe { from.cast::<T>().read_unaligned() }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_devx_obj_export(object: *mut Object, data: *mut c_void) -> c_int {
    control("mlx5dv_devx_obj_export", || {
        // SAFETY: the caller's object.
        let blob = unsafe { (*object).blob };
        // SAFETY: the caller's memory.
        unsafe { hand_over(&blob, data) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_devx_obj_import(
    context: *mut ibv_context,
    data: *mut c_void,
) -> *mut Object {
    control("mlx5dv_devx_obj_import", || {
        // SAFETY: an open context by the verb's contract.
        unsafe { ours(context) }?;
        // SAFETY: the caller's memory.
        let blob: ObjectBlob = unsafe { take_over(data) };
        Ok(Box::into_raw(Box::new(Object {
            context,
            handle: DevxObj(blob.handle),
            blob,
        })))
    })
}

/// The other process has the object still.
#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_devx_obj_unimport(object: *mut Object) {
    guarded("mlx5dv_devx_obj_unimport", || {
        // SAFETY: made by `mlx5dv_devx_obj_import`, and gone for the program.
        drop(unsafe { Box::from_raw(object) });
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_devx_umem_export(umem: *mut Umem, data: *mut c_void) -> c_int {
    control("mlx5dv_devx_umem_export", || {
        // SAFETY: the caller's object.
        let umem = unsafe { &*umem };
        let blob = UmemBlob {
            handle: umem.handle.0,
            number: umem.number,
        };
        // SAFETY: the caller's memory.
        unsafe { hand_over(&blob, data) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_devx_umem_import(
    context: *mut ibv_context,
    data: *mut c_void,
) -> *mut Umem {
    control("mlx5dv_devx_umem_import", || {
        // SAFETY: an open context by the verb's contract.
        unsafe { ours(context) }?;
        // SAFETY: the caller's memory.
        let blob: UmemBlob = unsafe { take_over(data) };
        Ok(Box::into_raw(Box::new(Umem {
            number: blob.number,
            context,
            handle: DevxUmem(blob.handle),
        })))
    })
}

/// The other process has the memory still.
#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_devx_umem_unimport(umem: *mut Umem) {
    guarded("mlx5dv_devx_umem_unimport", || {
        // SAFETY: made by `mlx5dv_devx_umem_import`, and gone for the program.
        drop(unsafe { Box::from_raw(umem) });
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_var_export(page: *mut VirtioPage, data: *mut c_void) -> c_int {
    control("mlx5dv_var_export", || {
        // SAFETY: the caller's object.
        let VirtioPage { view, handle, .. } = unsafe { &*page };
        let blob = PageBlob {
            handle: handle.0,
            page_id: view.page_id,
            length: view.length,
            padding: 0,
            mmap_off: view.mmap_off,
        };
        // SAFETY: the caller's memory.
        unsafe { hand_over(&blob, data) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_var_import(
    context: *mut ibv_context,
    data: *mut c_void,
) -> *mut VirtioPage {
    control("mlx5dv_var_import", || {
        // SAFETY: an open context by the verb's contract.
        unsafe { ours(context) }?;
        // SAFETY: the caller's memory.
        let blob: PageBlob = unsafe { take_over(data) };
        Ok(Box::into_raw(Box::new(VirtioPage {
            view: mlx5dv_var {
                page_id: blob.page_id,
                length: blob.length,
                mmap_off: blob.mmap_off,
                comp_mask: 0,
            },
            context,
            handle: Var(blob.handle),
        })))
    })
}

/// The other process has the page still.
#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_var_unimport(page: *mut VirtioPage) {
    guarded("mlx5dv_var_unimport", || {
        // SAFETY: made by `mlx5dv_var_import`, and gone for the program.
        drop(unsafe { Box::from_raw(page) });
    });
}

/// Bytes that a program needs to hand each of them over (`struct mlx5dv_export_sizes`): pages, memory, objects.
const SIZES: [u32; 3] = [
    size_of::<PageBlob>() as u32,
    size_of::<UmemBlob>() as u32,
    size_of::<ObjectBlob>() as u32,
];

#[unsafe(no_mangle)]
unsafe extern "C" fn _mlx5dv_get_export_sizes(sizes: *mut c_void, len: usize) {
    // A longer struct of a later release has no more that we know of.
    // SAFETY: the caller's memory, of that length.
    unsafe { sizes.cast::<u8>().write_bytes(0, len) };
    let room = len.min(size_of_val(&SIZES));
    // SAFETY: as above, and no more than there are.
    unsafe { sizes.cast::<u8>().copy_from(SIZES.as_ptr().cast(), room) };
}
