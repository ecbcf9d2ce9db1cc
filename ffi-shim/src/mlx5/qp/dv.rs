//! Queue pairs of mlx5dv: dynamic connections, and work requests that only mlx5 has.

use std::ffi::{c_uint, c_void};
use std::mem::offset_of;

use oxverbs::ffi_core::Errno;
use oxverbs::ffi_core::mlx5::{PostError, QueueKind};
use oxverbs::ffi_core::mlx5_control::geometry::DeviceOps;
use oxverbs::ffi_core::mlx5_control::placement::QpPlacement;
use oxverbs::ffi_core::mlx5_control::special::DctRequest;
use oxverbs::ffi_core::refusal::reason;
use oxverbs::ffi_core::uverbs_abi::handle::mlx5::Any;
use oxverbs::ffi_core::uverbs_abi::udata::mlx5::{CreateQpFlags, DciStreams};
use oxverbs::ffi_core::wqe_format::mlx5::firmware::Opcode;
use oxverbs::ffi_core::wqe_format::mlx5::firmware::qp::{QueryQpIn, QueryQpOut};

use super::copy::{Copies, wr_memcpy};
use super::key::{
    wr_mkey_configure, wr_mr_interleaved, wr_mr_list, wr_set_mkey_access_flags, wr_set_mkey_crypto,
    wr_set_mkey_layout_interleaved, wr_set_mkey_layout_list, wr_set_mkey_sig_block,
};
use super::post::address;
use super::{Object, Qp, Send, Special, attr, bare, create_any, of, qp_type};
use crate::abi::attr::ibv_qp_init_attr_ex;
use crate::abi::dv::{mlx5dv_qp_ex, mlx5dv_qp_init_attr};
use crate::abi::objects::{ibv_ah, ibv_context, ibv_qp, ibv_qp_ex};
use crate::common::memory::of_pd;
use crate::common::slice;
use crate::context::{family, uctx};
use crate::mlx5::{Mlx5, cq, domain, srq};

/// Of a queue pair that has none of it.
pub(super) const NOTHING: mlx5dv_qp_ex = mlx5dv_qp_ex {
    comp_mask: 0,
    wr_set_dc_addr: None,
    wr_mr_interleaved: None,
    wr_mr_list: None,
    wr_mkey_configure: None,
    wr_set_mkey_access_flags: None,
    wr_set_mkey_layout_list: None,
    wr_set_mkey_layout_interleaved: None,
    wr_set_mkey_sig_block: None,
    wr_raw_wqe: None,
    wr_set_dc_addr_stream: None,
    wr_memcpy: None,
    wr_set_mkey_crypto: None,
};

/// The functions of a queue pair.
pub(super) fn functions(kind: QueueKind, ops: Option<DeviceOps>) -> mlx5dv_qp_ex {
    let mut functions = NOTHING;
    if kind == QueueKind::Dci {
        functions.wr_memcpy = Some(wr_memcpy);
        functions.wr_set_dc_addr = Some(wr_set_dc_addr);
        functions.wr_set_dc_addr_stream = Some(wr_set_dc_addr_stream);
    }
    if ops.is_none_or(|ops| ops.0 == 0) {
        return functions;
    }
    functions.wr_raw_wqe = Some(wr_raw_wqe);
    if kind == QueueKind::Rc {
        functions.wr_memcpy = Some(wr_memcpy);
        functions.wr_mr_interleaved = Some(wr_mr_interleaved);
        functions.wr_mr_list = Some(wr_mr_list);
        functions.wr_mkey_configure = Some(wr_mkey_configure);
        functions.wr_set_mkey_access_flags = Some(wr_set_mkey_access_flags);
        functions.wr_set_mkey_layout_list = Some(wr_set_mkey_layout_list);
        functions.wr_set_mkey_layout_interleaved = Some(wr_set_mkey_layout_interleaved);
        functions.wr_set_mkey_sig_block = Some(wr_set_mkey_sig_block);
        functions.wr_set_mkey_crypto = Some(wr_set_mkey_crypto);
    }
    functions
}

/// The queue pair's view for building mlx5's own work requests.
///
/// # Safety
///
/// A queue pair of ours.
pub(crate) unsafe fn view(qp: *mut ibv_qp_ex) -> *mut mlx5dv_qp_ex {
    qp.wrapping_byte_add(offset_of!(Qp, dv)).cast()
}

pub(super) fn qp_of(view: *mut mlx5dv_qp_ex) -> *mut ibv_qp_ex {
    view.wrapping_byte_sub(offset_of!(Qp, dv)).cast()
}

/// Where a queue pair's memory is.
///
/// # Safety
///
/// A queue pair of ours (C1).
pub(crate) unsafe fn placement(qp: *const ibv_qp) -> Result<QpPlacement, Errno> {
    // SAFETY: the caller's promise.
    match &*unsafe { of(qp.cast_mut()) }.object() {
        Object::Queues(object) => Ok(*object.placement()),
        Object::Spreads(object) => Ok(QpPlacement {
            answer: *object.answer(),
            ..QpPlacement::default()
        }),
        _ => Err(Errno(libc::EINVAL)),
    }
}

/// Whether a queue pair of mlx5's own kind initiates dynamic connections, and is not a target of them.
///
/// # Safety
///
/// A queue pair of ours (C1).
pub(crate) unsafe fn is_initiator(qp: *const ibv_qp) -> bool {
    // SAFETY: the caller's promise.
    matches!(&*unsafe { of(qp.cast_mut()) }.object(), Object::Queues(_))
}

/// `MLX5_QPC_STATE_SQDRAINED` (rdma-core's providers/mlx5/mlx5_ifc.h).
const DRAINED: u8 = 5;

/// Cancels what a drained queue pair has not begun of this number; says how many.
///
/// # Safety
///
/// The view of a queue pair of ours (C1).
pub(crate) unsafe fn cancel(view: *mut mlx5dv_qp_ex, wr_id: u64) -> Result<u32, Errno> {
    let qp = qp_of(view).cast::<ibv_qp>();
    // SAFETY: the caller's promise.
    let send = unsafe { of(qp) }.send.as_ref();
    let send = send.ok_or(Errno(libc::EINVAL))?;
    // SAFETY: the caller's promise.
    let base = unsafe { &*qp };
    // SAFETY: its context is open.
    let uctx = unsafe { uctx(base.context) }?;
    let mut send = send.lock();
    let mut input = QueryQpIn::zeroed();
    input.set_opcode(Opcode::QUERY_QP.0).set_qpn(base.qp_num);
    let mut output = QueryQpOut::zeroed();
    uctx.devx_obj_query(Any(base.handle), input.as_bytes(), output.as_bytes_mut())
        .map_err(|errno| reason(errno, output.as_bytes()))?;
    if output.qpc().state() != DRAINED {
        return Err(Errno(libc::EINVAL));
    }
    let next = output.qpc().hw_sq_wqebb_counter();
    // SAFETY: the device said that it is drained; it goes on when a program says so, which must not be at the same time.
    Ok(unsafe { send.queue.cancel(next, wr_id) })
}

/// A firmware command of the program's changed the state; the queues are told what a verb would have told them.
///
/// # Safety
///
/// A queue pair of ours (C1).
pub(crate) unsafe fn brought(qp: *mut ibv_qp, opcode: u16) {
    // SAFETY: the caller's promise.
    let ours = unsafe { of(qp) };
    // Opcodes of `mlx5_ifc.h`: RST2INIT and INIT2INIT; those that end in RTS; 2RST.
    match opcode {
        0x502 | 0x50e => {
            if let Some(recv) = &ours.recv {
                recv.lock().set_accepting(true);
            }
        }
        0x504 | 0x505 | 0x506 | 0x50c => {
            if let Some(send) = &ours.send {
                send.lock().queue.set_accepting(true);
            }
        }
        0x50a => {
            if let Some(send) = &ours.send {
                send.lock().queue.set_accepting(false);
            }
            if let Some(recv) = &ours.recv {
                recv.lock().set_accepting(false);
            }
        }
        _ => {}
    }
}

/// `enum mlx5dv_qp_init_attr_mask`.
mod mask {
    pub(super) const CREATE_FLAGS: u64 = 1;
    pub(super) const DC: u64 = 1 << 1;
    pub(super) const SEND_OPS: u64 = 1 << 2;
    pub(super) const DCI_STREAMS: u64 = 1 << 3;
    pub(super) const ALL: u64 = (1 << 4) - 1;
}

/// `enum mlx5dv_qp_create_flags`.
mod flag {
    pub(super) const TUNNEL_OFFLOADS: u32 = 1;
    pub(super) const SELF_LOOPBACK_UC: u32 = 1 << 1;
    pub(super) const SELF_LOOPBACK_MC: u32 = 1 << 2;
    pub(super) const DISABLE_SCATTER: u32 = 1 << 3;
    pub(super) const ALLOW_SCATTER: u32 = 1 << 4;
    pub(super) const PACKET_BASED_CREDIT: u32 = 1 << 5;
    pub(super) const SIG_PIPELINING: u32 = 1 << 6;
    /// Receives out of order; the queues of ours take them in order.
    pub(super) const OOO_DP: u32 = 1 << 7;
}

/// `enum mlx5dv_dc_type`.
const DCT: c_uint = 1;
const DCI: c_uint = 2;

fn driver_flags(asked: u32) -> Result<(CreateQpFlags, bool), Errno> {
    if asked & !((1 << 8) - 1) != 0 {
        return Err(Errno(libc::EINVAL));
    }
    if asked & flag::DISABLE_SCATTER != 0 && asked & flag::ALLOW_SCATTER != 0 {
        return Err(Errno(libc::EINVAL));
    }
    if asked & flag::OOO_DP != 0 {
        return Err(Errno(libc::EOPNOTSUPP));
    }
    let mut flags = CreateQpFlags::NONE;
    for (bit, flag) in [
        (flag::TUNNEL_OFFLOADS, CreateQpFlags::TUNNEL_OFFLOADS),
        (flag::SELF_LOOPBACK_UC, CreateQpFlags::TIR_ALLOW_SELF_LB_UC),
        (flag::SELF_LOOPBACK_MC, CreateQpFlags::TIR_ALLOW_SELF_LB_MC),
        (flag::ALLOW_SCATTER, CreateQpFlags::ALLOW_SCATTER_CQE),
        (flag::ALLOW_SCATTER, CreateQpFlags::SCATTER_CQE),
        (
            flag::PACKET_BASED_CREDIT,
            CreateQpFlags::PACKET_BASED_CREDIT_MODE,
        ),
    ] {
        if asked & bit != 0 {
            flags |= flag;
        }
    }
    Ok((flags, asked & flag::DISABLE_SCATTER != 0))
}

/// Operations that a kind of queue pair can have.
fn check_ops(kind: c_uint, ops: u64) -> Result<(), Errno> {
    let keys = DeviceOps::MR_INTERLEAVED.0 | DeviceOps::MR_LIST.0 | DeviceOps::MKEY_CONFIGURE.0;
    let can = match kind {
        qp_type::RC => keys | DeviceOps::MEMCPY.0 | DeviceOps::RAW_WQE.0,
        qp_type::DRIVER => DeviceOps::MEMCPY.0 | DeviceOps::RAW_WQE.0,
        _ => DeviceOps::RAW_WQE.0,
    };
    (ops & !can == 0)
        .then_some(())
        .ok_or(Errno(libc::EOPNOTSUPP))
}

/// `mlx5dv_create_qp`.
///
/// # Safety
///
/// As for the verb.
pub(crate) unsafe fn create_dv(
    context: *mut ibv_context,
    init: *mut ibv_qp_init_attr_ex,
    dv: *mut mlx5dv_qp_init_attr,
) -> Result<*mut Qp, Errno> {
    // SAFETY: the caller's attributes, which the verb writes back to.
    let init = unsafe { &mut *init };
    // SAFETY: null, or the caller's attributes.
    let Some(dv) = (unsafe { dv.as_ref() }) else {
        return create_any(context, init, &Special::default());
    };
    let has = |bit| dv.comp_mask & bit != 0;
    let driver = init.qp_type == qp_type::DRIVER;
    if dv.comp_mask & !mask::ALL != 0 || has(mask::DC) != driver {
        return Err(Errno(libc::EINVAL));
    }
    let (flags, no_scatter_to_cqe) = if has(mask::CREATE_FLAGS) {
        driver_flags(dv.create_flags)?
    } else {
        (CreateQpFlags::NONE, false)
    };
    let drains_signature_errors =
        has(mask::CREATE_FLAGS) && dv.create_flags & flag::SIG_PIPELINING != 0;
    if drains_signature_errors {
        // A queue pair that was drained goes on from there.
        // SAFETY: an open mlx5 device (C1).
        let device = unsafe { family::<Mlx5>(context) }?;
        if !device.context().limits().sqd2rts {
            return Err(Errno(libc::EOPNOTSUPP));
        }
    }
    let initiator = driver && dv.dc_init_attr.dc_type == DCI;
    if driver && !initiator {
        if dv.dc_init_attr.dc_type != DCT
            || dv.comp_mask & !(mask::DC | mask::CREATE_FLAGS) != 0
            || !flags.is_empty()
        {
            return Err(Errno(libc::EINVAL));
        }
        // SAFETY: of a target, the union has the key.
        let key = unsafe { dv.dc_init_attr.u.dct_access_key };
        // SAFETY: the caller's promise.
        return unsafe { create_target(context, init, key, no_scatter_to_cqe) };
    }
    let device_ops = has(mask::SEND_OPS).then_some(dv.send_ops_flags);
    if let Some(ops) = device_ops {
        check_ops(init.qp_type, ops)?;
    }
    let copies = if device_ops.is_some_and(|ops| ops & DeviceOps::MEMCPY.0 != 0) {
        // SAFETY: the caller's promise.
        Some(unsafe { Copies::new(context, init) }?)
    } else {
        None
    };
    let special = Special {
        driver_flags: flags,
        no_scatter_to_cqe,
        device_ops: device_ops.map(DeviceOps),
        initiator,
        copies,
        drains_signature_errors,
        dci_streams: if has(mask::DCI_STREAMS) {
            // SAFETY: of an initiator with streams, the union has them.
            let [log_num_concurent, log_num_errored] = unsafe { dv.dc_init_attr.u.dci_streams };
            Some(DciStreams {
                log_num_concurent,
                log_num_errored,
            })
        } else {
            None
        },
    };
    create_any(context, init, &special)
}

/// A target of dynamic connections.
///
/// # Safety
///
/// As for the verb.
unsafe fn create_target(
    context: *mut ibv_context,
    init: &ibv_qp_init_attr_ex,
    access_key: u64,
    no_scatter_to_cqe: bool,
) -> Result<*mut Qp, Errno> {
    if init.comp_mask != attr::PD
        || init.pd.is_null()
        || init.srq.is_null()
        || init.recv_cq.is_null()
    {
        return Err(Errno(libc::EINVAL));
    }
    // SAFETY: an open mlx5 device (C1).
    let device = unsafe { family::<Mlx5>(context) }?;
    // SAFETY: a protection domain of ours (C1).
    let (_, pd) = unsafe { of_pd(init.pd) };
    // SAFETY: an open context.
    let async_fd = unsafe { (*context).async_fd };
    // SAFETY: as above.
    let share = unsafe { domain::share(init.pd) };
    let qp = bare(share, |user_handle| {
        let request = DctRequest {
            pd,
            // SAFETY: a completion queue of ours (C1).
            cq: unsafe { cq::handle(init.recv_cq) },
            // SAFETY: a shared receive queue of ours (C1).
            srq: unsafe { srq::shared(init.srq) },
            access_key,
            user_handle,
            cookie: user_handle as usize,
            no_scatter_to_cqe,
            async_event: (async_fd >= 0).then_some(async_fd),
        };
        Ok(Object::Target(device.context().create_dct(&request)?))
    })?;
    // SAFETY: the new object.
    let base = unsafe { &mut *qp.cast::<ibv_qp>() };
    base.context = context;
    base.qp_context = init.qp_context;
    base.pd = init.pd;
    base.send_cq = init.send_cq;
    base.recv_cq = init.recv_cq;
    base.srq = init.srq;
    base.qp_type = init.qp_type;
    Ok(qp)
}

/// The send side of a queue pair with a builder, whose lock `wr_start` took.
///
/// # Safety
///
/// Between `wr_start` and its end on this thread (C1).
pub(super) unsafe fn held<'a>(view: *mut mlx5dv_qp_ex) -> Option<&'a mut Send> {
    // SAFETY: a queue pair of ours.
    let send = unsafe { of(qp_of(view)) }.send.as_ref()?;
    // SAFETY: the lock is held, and each function below has one reference at a time.
    Some(unsafe { send.held() })
}

unsafe extern "C" fn wr_set_dc_addr(view: *mut mlx5dv_qp_ex, ah: *mut ibv_ah, dctn: u32, key: u64) {
    // SAFETY: between start and complete (C1).
    unsafe { wr_set_dc_addr_stream(view, ah, dctn, key, 0) };
}

unsafe extern "C" fn wr_set_dc_addr_stream(
    view: *mut mlx5dv_qp_ex,
    ah: *mut ibv_ah,
    dctn: u32,
    key: u64,
    stream: u16,
) {
    // SAFETY: between start and complete (C1).
    let Some(Send { queue, draft, .. }) = (unsafe { held(view) }) else {
        return;
    };
    // SAFETY: an address handle by the verb's contract.
    match unsafe { address(ah) } {
        Some(ah) => queue.set_dct(draft, ah.vector(), dctn, key, stream),
        None => draft.refuse(PostError::Incomplete),
    }
}

/// Bytes of the longest work request: 63 units of 16.
const LONGEST: usize = 63 * 16;

unsafe extern "C" fn wr_raw_wqe(view: *mut mlx5dv_qp_ex, wqe: *const c_void) {
    // SAFETY: between start and complete (C1).
    let Some(Send { queue, draft, .. }) = (unsafe { held(view) }) else {
        return;
    };
    // SAFETY: a field of a live object, written by this thread.
    let wr_id = unsafe { (*qp_of(view)).wr_id };
    let bytes = wqe.cast::<u8>();
    // The control segment says how long it is, in the last byte of its second word.
    // SAFETY: the program's work request, of 16 bytes at least.
    let ds = unsafe { bytes.wrapping_add(7).read() } & 0x3f;
    let length = (usize::from(ds) * 16).clamp(16, LONGEST);
    // SAFETY: as long as it says.
    let wqe = unsafe { slice(bytes, length) };
    let _ = queue.raw(draft, wr_id, wqe);
}
