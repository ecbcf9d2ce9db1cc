//! Completion queues, and both interfaces that poll them.

use std::ffi::{c_int, c_uint};
use std::mem::offset_of;

use oxverbs::ffi_core::rxe::CompletionQueue;
use oxverbs::ffi_core::uverbs_abi::handle::Cq as CqHandle;
use oxverbs::ffi_core::uverbs_abi::types::CreateCqFlags;
use oxverbs::ffi_core::uverbs_abi::udata::rxe::{CreateCqResp, MmapInfo, ResizeCqResp};
use oxverbs::ffi_core::wqe_format::rxe::Cqe;
use oxverbs::ffi_core::{CreateCq, Errno, SharedMapping, Uctx};

use crate::abi::attr::ibv_cq_init_attr_ex;
use crate::abi::objects::{ibv_comp_channel, ibv_context, ibv_cq, ibv_cq_ex};
use crate::abi::work::{cq_ex_ops, ibv_poll_cq_attr, ibv_wc};
use crate::common::destroyed;
use crate::common::events::Events;
use crate::context::uctx;
use crate::door::{control, guarded};
use crate::lock::Locked;

/// A completion queue: what the program sees, and ours behind it.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Cq {
    ibv: ibv_cq_ex,
    queue: Locked<Queue>,
}

const _: () = assert!(offset_of!(Cq, queue) >= 288);

#[derive(Debug)]
struct Queue {
    ring: CompletionQueue,
    /// The completion that `start_poll` and `next_poll` show.
    current: Cqe,
    /// Whether there is one that is not stepped over yet.
    showing: bool,
}

/// `IBV_WC_STANDARD_FLAGS`: everything but timestamps, VLAN, flow tag and tag matching, which rxe does not have.
const WC_FLAGS: u64 = 0x7f;
/// `IBV_CQ_INIT_ATTR_MASK_FLAGS`.
const ATTR_FLAGS: u32 = 1;
/// `IBV_CREATE_CQ_ATTR_SINGLE_THREADED`: a promise that we need not use.
const SINGLE_THREADED: u32 = 1;
/// `IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN`.
const IGNORE_OVERRUN: u32 = 2;

pub(crate) fn map(uctx: &Uctx, info: &MmapInfo) -> Result<SharedMapping, Errno> {
    if info.size == 0 {
        // The kernel answered less than its ABI says.
        return Err(Errno(libc::EPROTO));
    }
    SharedMapping::map(uctx.fd(), info.size as usize, info.offset)
}

/// Makes a queue of entries; the error of a header that lies.
pub(crate) fn checked<T, E>(result: Result<T, E>) -> Result<T, Errno> {
    result.map_err(|_| Errno(libc::EPROTO))
}

fn create(
    context: *mut ibv_context,
    cqe: u32,
    channel: *mut ibv_comp_channel,
    comp_vector: u32,
    flags: CreateCqFlags,
    extended: Option<u64>,
) -> Result<*mut Cq, Errno> {
    // SAFETY: an open context (C1).
    let uctx = unsafe { uctx(context) }?;
    // SAFETY: null, or a channel of this context.
    let comp_channel = unsafe { channel.as_ref() }.map(|channel| channel.fd);
    // SAFETY: an open context.
    let async_fd = unsafe { (*context).async_fd };
    // The kernel wants the address that events will carry before the queue exists.
    let place = Box::<Cq>::new_uninit();
    let attr = CreateCq {
        cqe,
        user_handle: place.as_ptr().expose_provenance() as u64,
        comp_channel,
        comp_vector,
        flags,
        async_event: (async_fd >= 0).then_some(async_fd),
        ..CreateCq::default()
    };
    let made = uctx.create_cq::<CreateCqResp>(&attr)?;
    let ring = map(uctx, &made.udata.mi).and_then(|m| checked(CompletionQueue::new(m)));
    let ring = match ring {
        Ok(ring) => ring,
        Err(errno) => {
            uctx.destroy_cq(made.handle)?;
            return Err(errno);
        }
    };
    // SAFETY: all-zero is a valid `ibv_cq_ex`; libibverbs initialises the lock in it after we return.
    let mut ibv: ibv_cq_ex = unsafe { std::mem::zeroed() };
    ibv.base.context = context;
    ibv.base.handle = made.handle.0;
    ibv.base.cqe = made.cqe as c_int;
    if let Some(wc_flags) = extended {
        ibv.ops = poll_ops(wc_flags);
    }
    let cq = Cq {
        ibv,
        queue: Locked::new(Queue {
            ring,
            current: Cqe::default(),
            showing: false,
        }),
    };
    Ok(Box::into_raw(Box::write(place, cq)))
}

pub(crate) unsafe extern "C" fn create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> *mut ibv_cq {
    control("create_cq", || {
        let cqe = u32::try_from(cqe).map_err(|_| Errno(libc::EINVAL))?;
        let vector = comp_vector as u32;
        create(context, cqe, channel, vector, CreateCqFlags(0), None).map(<*mut Cq>::cast)
    })
}

pub(crate) unsafe extern "C" fn create_cq_ex(
    context: *mut ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    control("create_cq_ex", || {
        // SAFETY: the caller's attributes.
        let attr = unsafe { &*attr };
        if attr.comp_mask & !ATTR_FLAGS != 0 {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        // Flags count only if the mask says so.
        let flags = if attr.comp_mask & ATTR_FLAGS != 0 {
            attr.flags
        } else {
            0
        };
        if flags & !(SINGLE_THREADED | IGNORE_OVERRUN) != 0 || attr.wc_flags & !WC_FLAGS != 0 {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        let kernel_flags = if flags & IGNORE_OVERRUN != 0 {
            CreateCqFlags(2)
        } else {
            CreateCqFlags(0)
        };
        create(
            context,
            attr.cqe,
            attr.channel,
            attr.comp_vector,
            kernel_flags,
            Some(attr.wc_flags),
        )
        .map(<*mut Cq>::cast)
    })
}

/// # Safety
///
/// A completion queue of ours (C1).
unsafe fn of<'a, T>(cq: *mut T) -> &'a Cq {
    // SAFETY: made by `create`, which is where the program's pointer comes from.
    unsafe { &*cq.cast::<Cq>() }
}

/// Kernel handle of a completion queue.
///
/// # Safety
///
/// A completion queue of ours (C1).
pub(crate) unsafe fn handle(cq: *mut ibv_cq) -> CqHandle {
    // SAFETY: the caller's promise.
    CqHandle(unsafe { of(cq) }.ibv.base.handle)
}

pub(crate) unsafe extern "C" fn resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    control("resize_cq", || {
        let cqe = u32::try_from(cqe).map_err(|_| Errno(libc::EINVAL))?;
        // SAFETY: a queue of ours (C1).
        let ours = unsafe { of(cq) };
        // SAFETY: its context is open.
        let uctx = unsafe { uctx(ours.ibv.base.context) }?;
        // Nobody polls while the kernel carries the completions over.
        let mut queue = ours.queue.lock();
        let resized = uctx.resize_cq::<ResizeCqResp>(CqHandle(ours.ibv.base.handle), cqe)?;
        let mapping = map(uctx, &resized.udata.mi)?;
        checked(queue.ring.replace(mapping))?;
        drop(queue);
        // SAFETY: a field that only this verb writes; programs read it, and serialise that (C2).
        unsafe { (*cq).cqe = resized.cqe as c_int };
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // Not traced: this is the data path of programs that sleep.
    guarded("req_notify_cq", || {
        // SAFETY: a queue of ours (C1).
        let ours = unsafe { of(cq) };
        // SAFETY: its context is open.
        let uctx = unsafe { uctx(ours.ibv.base.context) }?;
        uctx.req_notify_cq(CqHandle(ours.ibv.base.handle), solicited_only != 0)
    })
    .map_or(libc::EIO, |result| result.map_or_else(|e| e.0, |()| 0))
}

pub(crate) unsafe extern "C" fn destroy_cq(cq: *mut ibv_cq) -> c_int {
    control("destroy_cq", || {
        // SAFETY: a queue of ours (C1).
        let base = unsafe { &raw mut (*cq.cast::<Cq>()).ibv.base };
        // SAFETY: as above.
        let context = unsafe { (*base).context };
        // SAFETY: its context is open.
        let uctx = unsafe { uctx(context) }?;
        // SAFETY: as above.
        let reported = destroyed(uctx.destroy_cq(unsafe { handle(cq) }))?;
        let [completion, asynchronous] = Events::of_cq(base);
        // SAFETY: a live object, whose lock libibverbs initialised when it was made.
        unsafe { completion.wait(reported.as_ref().map(|of| of.comp_events_reported)) };
        // SAFETY: as above.
        unsafe { asynchronous.wait(reported.as_ref().map(|of| of.async_events_reported)) };
        // SAFETY: made by `create`, and gone for the kernel and the program.
        drop(unsafe { Box::from_raw(cq.cast::<Cq>()) });
        Ok(())
    })
}

// ---- polling ----

/// rxe writes flags in the kernel's numbers (`enum ib_wc_flags`), where an invalidated key is 4; it is 8 in
/// libibverbs (`IBV_WC_WITH_INV`), whose 4 says that a checksum is right, which rxe never says.
#[inline]
fn as_program_sees(mut cqe: Cqe) -> Cqe {
    const KERNEL_INVALIDATED: u32 = 4;
    const PROGRAM_INVALIDATED: u32 = 8;
    if cqe.raw_flags & KERNEL_INVALIDATED != 0 {
        cqe.raw_flags ^= KERNEL_INVALIDATED | PROGRAM_INVALIDATED;
    }
    cqe
}

pub(crate) unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, room: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: a queue of ours (C1).
    let mut queue = unsafe { of(cq) }.queue.lock();
    // Most polls find nothing; they are kept to the lock and two loads.
    if queue.ring.is_empty() {
        return 0;
    }
    // SAFETY: the caller has room for `room` completions.
    unsafe { take(&mut queue.ring, room, wc) }
}

/// Takes up to `room` completions.
///
/// # Safety
///
/// `wc` has room for as many.
#[inline(never)]
unsafe fn take(ring: &mut CompletionQueue, room: c_int, wc: *mut ibv_wc) -> c_int {
    let mut count = 0;
    while count < room {
        let Some(cqe) = ring.peek() else { break };
        ring.step();
        // The kernel's completion is laid out as the program's (uapi `struct ib_uverbs_wc`, `struct ibv_wc`).
        // SAFETY: the caller has room for `room` completions.
        let place = unsafe { wc.add(count as usize) };
        // SAFETY: as above; both are aligned to 8.
        unsafe { place.cast::<Cqe>().write(as_program_sees(cqe)) };
        count += 1;
    }
    if count > 0 {
        ring.publish();
    }
    count
}

fn poll_ops(wc_flags: u64) -> cq_ex_ops {
    let with = |bit: u32| wc_flags & (1 << bit) != 0;
    cq_ex_ops {
        start_poll: Some(start_poll),
        next_poll: Some(next_poll),
        end_poll: Some(end_poll),
        read_opcode: Some(read_opcode),
        read_vendor_err: Some(read_vendor_err),
        read_wc_flags: Some(read_wc_flags),
        read_byte_len: with(0).then_some(read_byte_len as _),
        read_imm_data: with(1).then_some(read_imm_data as _),
        read_qp_num: with(2).then_some(read_qp_num as _),
        read_src_qp: with(3).then_some(read_src_qp as _),
        read_slid: with(4).then_some(read_slid as _),
        read_sl: with(5).then_some(read_sl as _),
        read_dlid_path_bits: with(6).then_some(read_dlid_path_bits as _),
        ..cq_ex_ops::default()
    }
}

impl Queue {
    /// Shows the next completion, if there is one.
    #[inline]
    fn show(&mut self) -> Option<Cqe> {
        let next = self.ring.peek();
        self.showing = next.is_some();
        if let Some(cqe) = next {
            self.current = as_program_sees(cqe);
        }
        next
    }

    /// Steps over the completion that is shown; over none twice.
    #[inline]
    fn pass(&mut self) {
        if self.showing {
            self.ring.step();
            self.showing = false;
        }
    }
}

/// Copies what the program reads without a call.
///
/// # Safety
///
/// A queue of ours, polled by the caller.
#[inline]
unsafe fn put(cq: *mut ibv_cq_ex, next: Option<Cqe>) -> c_int {
    let Some(cqe) = next else {
        return libc::ENOENT;
    };
    // SAFETY: fields that belong to whoever polls.
    unsafe { (*cq).wr_id = cqe.wr_id };
    // SAFETY: as above.
    unsafe { (*cq).status = cqe.raw_status };
    0
}

unsafe extern "C" fn start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    // SAFETY: the caller's attributes.
    if unsafe { (*attr).comp_mask } != 0 {
        return libc::EINVAL;
    }
    // SAFETY: a queue of ours (C1).
    let locked = unsafe { &of(cq).queue };
    locked.hold();
    // SAFETY: held since the line before, until `end_poll` or the release below.
    let next = unsafe { locked.held() }.show();
    if next.is_none() {
        locked.release();
    }
    // SAFETY: this thread polls.
    unsafe { put(cq, next) }
}

unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: a queue of ours (C1).
    let locked = unsafe { &of(cq).queue };
    // SAFETY: held since `start_poll`.
    let queue = unsafe { locked.held() };
    queue.pass();
    let next = queue.show();
    // SAFETY: this thread polls.
    unsafe { put(cq, next) }
}

unsafe extern "C" fn end_poll(cq: *mut ibv_cq_ex) {
    // SAFETY: a queue of ours (C1).
    let locked = unsafe { &of(cq).queue };
    // SAFETY: held since `start_poll`.
    let queue = unsafe { locked.held() };
    queue.pass();
    queue.ring.publish();
    locked.release();
}

macro_rules! read {
    ($($name:ident -> $type:ty: $field:ident;)*) => {
        $(unsafe extern "C" fn $name(cq: *mut ibv_cq_ex) -> $type {
            // SAFETY: a queue of ours (C1).
            let locked = unsafe { &of(cq).queue };
            // SAFETY: held since `start_poll`.
            unsafe { locked.held() }.current.$field.into()
        })*
    };
}

read! {
    read_opcode -> c_uint: raw_opcode;
    read_vendor_err -> u32: vendor_err;
    read_wc_flags -> c_uint: raw_flags;
    read_byte_len -> u32: byte_len;
    read_imm_data -> u32: ex;
    read_qp_num -> u32: qp_num;
    read_src_qp -> u32: src_qp;
    read_slid -> u32: slid;
    read_sl -> u8: sl;
    read_dlid_path_bits -> u8: dlid_path_bits;
}
