//! DEVX: firmware commands by programs, the objects that they make, memory and registers for them, and events.

use std::ffi::{c_int, c_void};
use std::mem::size_of;
use std::os::fd::{IntoRawFd, RawFd};
use std::slice;

use oxverbs::ffi_core::uverbs_abi::handle::mlx5::{Any, DevxObj, DevxUmem, Uar};
use oxverbs::ffi_core::uverbs_abi::object::mlx5::{DevxEventChannelFlags, UarAllocType};
use oxverbs::ffi_core::uverbs_abi::types::AccessFlags;
use oxverbs::ffi_core::{DevxNotice, Errno, RegUmem, SharedMapping, Uctx};

use super::export::ObjectBlob;
use super::ours;
use crate::abi::dv::{mlx5dv_devx_uar, mlx5dv_devx_umem_in};
use crate::abi::objects::{ibv_context, ibv_cq, ibv_qp, ibv_srq};
use crate::abi::wq::{ibv_rwq_ind_table, ibv_wq};
use crate::context::uctx;
use crate::door::{control, guarded, set_errno};

/// An object that a firmware command made. Programs do not look into it.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) context: *mut ibv_context,
    pub(crate) handle: DevxObj,
    /// What another process is told of it.
    pub(super) blob: ObjectBlob,
}

/// The kernel's handle of an object.
///
/// # Safety
///
/// `object` is one of [`mlx5dv_devx_obj_create`].
pub(super) unsafe fn handle_of(object: *mut c_void) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { (*object.cast::<Object>()).handle }.0
}

/// The program's command and room for its answer.
///
/// # Safety
///
/// `input` has `in_len` readable bytes, `output` has `out_len` that nobody else uses, for `'a`.
unsafe fn buffers<'a>(
    input: *const c_void,
    in_len: usize,
    output: *mut c_void,
    out_len: usize,
) -> Result<(&'a [u8], &'a mut [u8]), Errno> {
    if input.is_null() || output.is_null() {
        return Err(Errno(libc::EINVAL));
    }
    // SAFETY: the caller's promise.
    let input = unsafe { slice::from_raw_parts(input.cast(), in_len) };
    // SAFETY: as above.
    let output = unsafe { slice::from_raw_parts_mut(output.cast(), out_len) };
    Ok((input, output))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_devx_general_cmd(
    context: *mut ibv_context,
    input: *const c_void,
    in_len: usize,
    output: *mut c_void,
    out_len: usize,
) -> c_int {
    control("mlx5dv_devx_general_cmd", || {
        // SAFETY: an open context by the verb's contract.
        let device = unsafe { ours(context) }?;
        // SAFETY: the caller's buffers.
        let (input, output) = unsafe { buffers(input, in_len, output, out_len) }?;
        device.context().uctx().devx_command(input, output)
    })
}

/// Makes an object.
///
/// # Safety
///
/// An open context.
pub(super) unsafe fn create(
    context: *mut ibv_context,
    input: &[u8],
    output: &mut [u8],
) -> Result<*mut Object, Errno> {
    // SAFETY: the caller's promise.
    let device = unsafe { ours(context) }?;
    let handle = device.context().uctx().devx_obj_create(input, output)?;
    let blob = ObjectBlob::of(handle, input, output);
    Ok(Box::into_raw(Box::new(Object {
        context,
        handle,
        blob,
    })))
}

/// Destroys an object. It stays if that fails.
///
/// # Safety
///
/// One of [`create`], which is not used any more.
pub(super) unsafe fn destroy(object: *mut Object) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let Object {
        context, handle, ..
    } = unsafe { &*object };
    // SAFETY: its context is open.
    unsafe { uctx(*context) }?.devx_obj_destroy(*handle)?;
    // SAFETY: made by `create`, and gone for the kernel and the program.
    drop(unsafe { Box::from_raw(object) });
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_devx_obj_create(
    context: *mut ibv_context,
    input: *const c_void,
    in_len: usize,
    output: *mut c_void,
    out_len: usize,
) -> *mut Object {
    control("mlx5dv_devx_obj_create", || {
        // SAFETY: the caller's buffers.
        let (input, output) = unsafe { buffers(input, in_len, output, out_len) }?;
        // SAFETY: an open context by the verb's contract.
        unsafe { create(context, input, output) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_devx_obj_destroy(object: *mut Object) -> c_int {
    // SAFETY: the caller's object.
    control("mlx5dv_devx_obj_destroy", || unsafe { destroy(object) })
}

/// A command on an object.
type Run = fn(&Uctx, Any, &[u8], &mut [u8]) -> Result<(), Errno>;

/// What C structs keep the kernel's handle of an object in.
trait Kept {
    /// The handle, of whatever kind.
    fn any(self) -> Any;
}

impl Kept for DevxObj {
    fn any(self) -> Any {
        Any(self.0)
    }
}

impl Kept for u32 {
    fn any(self) -> Any {
        Any(self)
    }
}

impl Kept for c_int {
    fn any(self) -> Any {
        Any(self as u32)
    }
}

/// Functions that run a command on an object.
macro_rules! commands {
    ($($name:ident($object:ty: $handle:ident) $run:ident;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(
            object: *mut $object,
            input: *const c_void,
            in_len: usize,
            output: *mut c_void,
            out_len: usize,
        ) -> c_int {
            control(stringify!($name), || {
                // SAFETY: the caller's object.
                let context = unsafe { (*object).context };
                // SAFETY: its context is open.
                let device = unsafe { ours(context) }?;
                // SAFETY: the caller's object.
                let handle = unsafe { (*object).$handle }.any();
                // SAFETY: the caller's buffers.
                let (input, output) = unsafe { buffers(input, in_len, output, out_len) }?;
                let run: Run = Uctx::$run;
                run(device.context().uctx(), handle, input, output)
            })
        }
    )*};
}

commands! {
    mlx5dv_devx_obj_query(Object: handle) devx_obj_query;
    mlx5dv_devx_obj_modify(Object: handle) devx_obj_modify;
    mlx5dv_devx_cq_query(ibv_cq: handle) devx_obj_query;
    mlx5dv_devx_cq_modify(ibv_cq: handle) devx_obj_modify;
    mlx5dv_devx_qp_query(ibv_qp: handle) devx_obj_query;
    mlx5dv_devx_srq_query(ibv_srq: handle) devx_obj_query;
    mlx5dv_devx_srq_modify(ibv_srq: handle) devx_obj_modify;
    mlx5dv_devx_wq_query(ibv_wq: handle) devx_obj_query;
    mlx5dv_devx_wq_modify(ibv_wq: handle) devx_obj_modify;
    mlx5dv_devx_ind_tbl_query(ibv_rwq_ind_table: ind_tbl_handle) devx_obj_query;
    mlx5dv_devx_ind_tbl_modify(ibv_rwq_ind_table: ind_tbl_handle) devx_obj_modify;
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_devx_qp_modify(
    qp: *mut ibv_qp,
    input: *const c_void,
    in_len: usize,
    output: *mut c_void,
    out_len: usize,
) -> c_int {
    control("mlx5dv_devx_qp_modify", || {
        // SAFETY: the caller's queue pair.
        let context = unsafe { (*qp).context };
        // SAFETY: its context is open.
        let device = unsafe { ours(context) }?;
        // SAFETY: the caller's queue pair.
        let handle = Any(unsafe { (*qp).handle });
        // SAFETY: the caller's buffers.
        let (input, output) = unsafe { buffers(input, in_len, output, out_len) }?;
        let uctx = device.context().uctx();
        uctx.devx_obj_modify(handle, input, output)?;
        let opcode = input
            .first_chunk()
            .map_or(0, |bytes| u16::from_be_bytes(*bytes));
        // SAFETY: a queue pair of ours.
        unsafe { crate::mlx5::qp::dv::brought(qp, opcode) };
        Ok(())
    })
}

/// What a program made a file of, for commands or events: it reads the descriptor.
#[repr(C)]
#[derive(Debug)]
struct Channel {
    fd: c_int,
    context: *mut ibv_context,
}

fn channel(
    context: *mut ibv_context,
    make: impl FnOnce(&Uctx) -> Result<std::os::fd::OwnedFd, Errno>,
) -> Result<*mut Channel, Errno> {
    // SAFETY: an open context by the verb's contract.
    let device = unsafe { ours(context) }?;
    let fd = make(device.context().uctx())?.into_raw_fd();
    Ok(Box::into_raw(Box::new(Channel { fd, context })))
}

/// # Safety
///
/// One of [`channel`], which is not used any more.
unsafe fn close(channel: *mut Channel) {
    // SAFETY: made by `channel`, and gone for the program.
    let channel = unsafe { Box::from_raw(channel) };
    // SAFETY: the channel's own descriptor.
    unsafe { libc::close(channel.fd) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_devx_create_cmd_comp(context: *mut ibv_context) -> *mut Channel {
    control("mlx5dv_devx_create_cmd_comp", || {
        channel(context, Uctx::devx_async_cmd_file)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_devx_destroy_cmd_comp(comp: *mut Channel) {
    // SAFETY: the caller's object.
    guarded("mlx5dv_devx_destroy_cmd_comp", || unsafe { close(comp) });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_devx_obj_query_async(
    object: *mut Object,
    input: *const c_void,
    in_len: usize,
    out_len: usize,
    wr_id: u64,
    comp: *mut Channel,
) -> c_int {
    control("mlx5dv_devx_obj_query_async", || {
        // SAFETY: the caller's object.
        let Object {
            context, handle, ..
        } = unsafe { &*object };
        // SAFETY: its context is open.
        let uctx = unsafe { uctx(*context) }?;
        // SAFETY: the caller's buffer.
        let input = unsafe { crate::common::slice(input.cast::<u8>(), in_len) };
        let out_len = u16::try_from(out_len).map_err(|_| Errno(libc::EINVAL))?;
        // SAFETY: the caller's object.
        let file = unsafe { (*comp).fd };
        uctx.devx_obj_query_async(Any(handle.0), input, out_len, wr_id, file)
    })
}

/// Reads one record.
///
/// # Safety
///
/// `to` has `len` writable bytes.
unsafe fn read(fd: RawFd, to: *mut c_void, len: usize) -> Result<usize, Errno> {
    // SAFETY: the caller's promise.
    let got = unsafe { libc::read(fd, to, len) };
    usize::try_from(got).map_err(|_| Errno::last())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_devx_get_async_cmd_comp(
    comp: *mut Channel,
    answer: *mut c_void,
    len: usize,
) -> c_int {
    control("mlx5dv_devx_get_async_cmd_comp", || {
        // SAFETY: the caller's object.
        let fd = unsafe { (*comp).fd };
        // SAFETY: the caller's memory.
        let got = unsafe { read(fd, answer, len) }?;
        // The number of the request comes before the answer (`mlx5dv_devx_async_cmd_hdr`).
        (got >= size_of::<u64>())
            .then_some(())
            .ok_or(Errno(libc::EINVAL))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_devx_create_event_channel(
    context: *mut ibv_context,
    flags: u32,
) -> *mut Channel {
    control("mlx5dv_devx_create_event_channel", || {
        channel(context, |uctx| {
            uctx.devx_event_file(DevxEventChannelFlags(flags))
        })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_devx_destroy_event_channel(events: *mut Channel) {
    // SAFETY: the caller's object.
    guarded("mlx5dv_devx_destroy_event_channel", || unsafe {
        close(events)
    });
}

/// Subscribes.
///
/// # Safety
///
/// The caller's objects; `object` may be null.
unsafe fn subscribe(
    events: *mut Channel,
    object: *mut Object,
    numbers: &[u16],
    notice: DevxNotice,
) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let Channel { fd, context } = unsafe { &*events };
    // SAFETY: null or an object.
    let object = unsafe { object.as_ref() }.map(|object| object.handle);
    // SAFETY: the channel's context is open.
    unsafe { uctx(*context) }?.devx_subscribe(*fd, object, numbers, notice)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_devx_subscribe_devx_event(
    events: *mut Channel,
    object: *mut Object,
    bytes: u16,
    numbers: *const u16,
    cookie: u64,
) -> c_int {
    control("mlx5dv_devx_subscribe_devx_event", || {
        // SAFETY: as many bytes by the verb's contract.
        let numbers = unsafe { crate::common::slice(numbers, usize::from(bytes) / 2) };
        // SAFETY: the caller's objects.
        unsafe { subscribe(events, object, numbers, DevxNotice::Record { cookie }) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_devx_subscribe_devx_event_fd(
    events: *mut Channel,
    fd: c_int,
    object: *mut Object,
    number: u16,
) -> c_int {
    control("mlx5dv_devx_subscribe_devx_event_fd", || {
        // SAFETY: the caller's objects.
        unsafe { subscribe(events, object, &[number], DevxNotice::EventFd(fd)) }
    })
}

/// Answers the bytes of the event, or -1 with errno.
#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_devx_get_event(
    events: *mut Channel,
    event: *mut c_void,
    len: usize,
) -> isize {
    let got = guarded("mlx5dv_devx_get_event", || {
        // SAFETY: the caller's object.
        let fd = unsafe { (*events).fd };
        // SAFETY: the caller's memory.
        let got = unsafe { read(fd, event, len) }?;
        // The cookie comes first (`mlx5dv_devx_async_event_hdr`); 0 is the end of a device that is gone.
        if got > 0 && got < size_of::<u64>() {
            return Err(Errno(libc::EINVAL));
        }
        Ok(got as isize)
    });
    got.unwrap_or(Err(Errno(libc::EIO)))
        .unwrap_or_else(|errno| {
            set_errno(errno.0);
            -1
        })
}

/// Memory that firmware commands name. The program reads the number.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Umem {
    pub(super) number: u32,
    pub(super) context: *mut ibv_context,
    pub(super) handle: DevxUmem,
}

fn register(context: *mut ibv_context, umem: &RegUmem) -> Result<*mut Umem, Errno> {
    // SAFETY: an open context by the verb's contract.
    let device = unsafe { ours(context) }?;
    // SAFETY: the memory is the program's, which answers for its use (C3).
    let (handle, number) = unsafe { device.context().uctx().devx_umem_reg(umem) }?;
    Ok(Box::into_raw(Box::new(Umem {
        number,
        context,
        handle,
    })))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_devx_umem_reg(
    context: *mut ibv_context,
    addr: *mut c_void,
    size: usize,
    access: u32,
) -> *mut Umem {
    control("mlx5dv_devx_umem_reg", || {
        let umem = RegUmem {
            addr: addr.expose_provenance() as u64,
            length: size as u64,
            access: AccessFlags(access),
            ..RegUmem::default()
        };
        register(context, &umem)
    })
}

/// `MLX5DV_UMEM_MASK_DMABUF`.
const UMEM_DMABUF: u64 = 1;

#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_devx_umem_reg_ex(
    context: *mut ibv_context,
    umem: *const mlx5dv_devx_umem_in,
) -> *mut Umem {
    control("mlx5dv_devx_umem_reg_ex", || {
        // SAFETY: the caller's attributes; the last field only if the mask says so.
        let mask = unsafe { (*umem).comp_mask };
        if mask & !UMEM_DMABUF != 0 {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        let dmabuf = if mask & UMEM_DMABUF != 0 {
            // SAFETY: as above.
            Some(unsafe { (*umem).dmabuf_fd })
        } else {
            None
        };
        // SAFETY: as above.
        let addr = unsafe { (*umem).addr };
        let asked = RegUmem {
            addr: addr.expose_provenance() as u64,
            // SAFETY: as above.
            length: unsafe { (*umem).size } as u64,
            // SAFETY: as above.
            access: AccessFlags(unsafe { (*umem).access }),
            // SAFETY: as above.
            page_sizes: Some(unsafe { (*umem).pgsz_bitmap }),
            dmabuf,
        };
        register(context, &asked)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_devx_umem_dereg(umem: *mut Umem) -> c_int {
    control("mlx5dv_devx_umem_dereg", || {
        // SAFETY: the caller's object.
        let Umem {
            context, handle, ..
        } = unsafe { &*umem };
        // SAFETY: its context is open.
        unsafe { uctx(*context) }?.devx_umem_dereg(*handle)?;
        // SAFETY: made by `register`, and gone for the kernel and the program.
        drop(unsafe { Box::from_raw(umem) });
        Ok(())
    })
}

/// A page of doorbell registers: the program's view, and ours behind it.
#[repr(C)]
#[derive(Debug)]
struct Register {
    view: mlx5dv_devx_uar,
    context: *mut ibv_context,
    handle: Uar,
    mapping: SharedMapping,
}

/// Where the first register of a page is (PRM, "UAR Page Format").
const FIRST_REGISTER: usize = 0x800;
/// `enum mlx5dv_uar_flags`: BlueFlame, plain, plain and used by this process alone.
const UAR_KINDS: [UarAllocType; 3] = [UarAllocType::BF, UarAllocType::NC, UarAllocType::NC];

#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_devx_alloc_uar(context: *mut ibv_context, flags: u32) -> *mut Register {
    control("mlx5dv_devx_alloc_uar", || {
        // SAFETY: an open context by the verb's contract.
        let device = unsafe { ours(context) }?;
        let kind = *UAR_KINDS
            .get(flags as usize)
            .ok_or(Errno(libc::EOPNOTSUPP))?;
        let uctx = device.context().uctx();
        let page = uctx.alloc_uar(kind)?;
        let free = |errno| {
            // Nobody is left to tell.
            let _ = uctx.destroy_uar(page.handle);
            errno
        };
        let len = page.mmap_length as usize;
        if len <= FIRST_REGISTER {
            return Err(free(Errno(libc::EPROTO)));
        }
        let mapping = SharedMapping::map(uctx.fd(), len, page.mmap_offset).map_err(free)?;
        let start = mapping.start().as_ptr();
        Ok(Box::into_raw(Box::new(Register {
            view: mlx5dv_devx_uar {
                reg_addr: start.wrapping_add(FIRST_REGISTER).cast(),
                base_addr: start.cast(),
                page_id: page.page_id,
                mmap_off: page.mmap_offset as i64,
                comp_mask: 0,
            },
            context,
            handle: page.handle,
            mapping,
        })))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_devx_free_uar(register: *mut Register) {
    guarded("mlx5dv_devx_free_uar", || {
        // SAFETY: made by `mlx5dv_devx_alloc_uar`, and gone for the program.
        let register = unsafe { Box::from_raw(register) };
        let Register {
            context,
            handle,
            mapping,
            ..
        } = *register;
        drop(mapping);
        // SAFETY: its context is open.
        if let Ok(uctx) = unsafe { uctx(context) } {
            // Nobody is left to tell.
            let _ = uctx.destroy_uar(handle);
        }
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_devx_query_eqn(
    context: *mut ibv_context,
    vector: u32,
    eqn: *mut u32,
) -> c_int {
    control("mlx5dv_devx_query_eqn", || {
        // SAFETY: an open context by the verb's contract.
        let device = unsafe { ours(context) }?;
        let number = device.context().uctx().devx_query_eqn(vector)?;
        // SAFETY: the caller's memory.
        unsafe { eqn.write(number) };
        Ok(())
    })
}
