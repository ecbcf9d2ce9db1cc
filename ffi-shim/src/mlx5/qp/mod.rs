//! Queue pairs: creation and destruction. Their states are in [`state`], posting is in [`post`] and [`builder`].

use std::ffi::{c_int, c_uint};
use std::mem::offset_of;
use std::sync::{Mutex, MutexGuard, PoisonError};

use oxverbs::ffi_core::Errno;
use oxverbs::ffi_core::mlx5::{Draft, QueueKind, RecvQueue, SendQueue};
use oxverbs::ffi_core::mlx5_control::geometry::{DeviceOps, SendOps, Transport};
use oxverbs::ffi_core::mlx5_control::qp::{MadeQp, QpObject, QpRequest};
#[cfg(feature = "drop-in")]
use oxverbs::ffi_core::mlx5_control::special::DctObject;
use oxverbs::ffi_core::mlx5_control::special::{BareQp, RssRequest};
use oxverbs::ffi_core::uverbs_abi::handle::Xrcd;
use oxverbs::ffi_core::uverbs_abi::types::{CreateQpFlags, QpCap, QpState, QpType};
use oxverbs::ffi_core::uverbs_abi::udata::mlx5::{
    CreateQpFlags as DriverFlags, DciStreams, RxHashFields, RxHashFunction,
};

use crate::abi::attr::{ibv_qp_init_attr, ibv_qp_init_attr_ex};
use crate::abi::domain::{ibv_qp_open_attr, verbs_xrcd};
use crate::abi::objects::{ibv_context, ibv_pd, ibv_qp};
use crate::common::events::Events;
use crate::common::memory::of_pd;
use crate::common::qp::{HEAD, caps, offer_builder};
use crate::common::{destroyed, slice};
use crate::context::family;
use crate::door::control;
use crate::lock::{Locked, QueueLock, Threads};
use crate::mlx5::domain::{self, Share};
use crate::mlx5::{Mlx5, cq, srq, wq};

mod builder;
#[cfg(feature = "drop-in")]
mod copy;
#[cfg(feature = "drop-in")]
pub(crate) mod dv;
#[cfg(feature = "drop-in")]
mod key;
mod post;
mod state;
mod tags;

pub(crate) use post::{bind_mw, post_recv, post_send, receive_list};
pub(crate) use state::{modify_qp, modify_qp_rate_limit, query_ece, query_qp, set_ece};
pub(crate) use tags::{create_for_tags, post_changes};

/// A queue pair: room for the program's view, which differs between releases, and ours behind it.
#[repr(C, align(8))]
#[derive(Debug)]
pub(crate) struct Qp {
    head: [u64; HEAD / 8],
    send: Option<Locked<Send, QueueLock>>,
    recv: Option<Locked<RecvQueue, QueueLock>>,
    /// For the control verbs, which may come from several threads.
    object: Mutex<Object>,
    sq_sig_all: bool,
    _domain: Option<Share>,
    /// By which programs build mlx5's own work requests.
    #[cfg(feature = "drop-in")]
    dv: crate::abi::dv::mlx5dv_qp_ex,
    #[cfg(feature = "drop-in")]
    copies: Option<copy::Copies>,
    #[cfg(feature = "drop-in")]
    drains_signature_errors: bool,
}

const _: () = assert!(offset_of!(Qp, send) >= HEAD);

#[derive(Debug)]
struct Send {
    queue: SendQueue,
    /// The batch between `ibv_wr_start` and `ibv_wr_complete`.
    draft: Draft,
    #[cfg(feature = "drop-in")]
    key: key::PendingKey,
}

/// What stands behind a queue pair.
#[derive(Debug)]
enum Object {
    /// One with queues, or an XRC target.
    Queues(QpObject),
    /// One that spreads packets over work queues, which nobody changes.
    Spreads(BareQp),
    /// An XRC target that somebody else made.
    Opened(BareQp),
    /// A target of dynamic connections.
    #[cfg(feature = "drop-in")]
    Target(DctObject),
}

/// What a program can ask for beyond verbs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Special {
    pub(crate) driver_flags: DriverFlags,
    pub(crate) no_scatter_to_cqe: bool,
    /// Work requests of mlx5's own.
    pub(crate) device_ops: Option<DeviceOps>,
    /// It initiates dynamic connections.
    pub(crate) initiator: bool,
    pub(crate) dci_streams: Option<DciStreams>,
    /// It copies memory.
    #[cfg(feature = "drop-in")]
    pub(crate) copies: Option<copy::Copies>,
    /// What is posted behind an error of a signature waits for the program.
    #[cfg(feature = "drop-in")]
    pub(crate) drains_signature_errors: bool,
}

impl Qp {
    fn object(&self) -> MutexGuard<'_, Object> {
        // A panic was reported when it happened; the kernel's object is as it was.
        self.object.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// # Safety
///
/// A queue pair of ours (C1).
#[inline(always)]
unsafe fn of<'a, T>(qp: *mut T) -> &'a Qp {
    // SAFETY: made by `create`, which is where the program's pointer comes from.
    unsafe { &*qp.cast::<Qp>() }
}

/// `enum ibv_qp_type`.
pub(crate) mod qp_type {
    pub(crate) const RC: u32 = 2;
    pub(crate) const UC: u32 = 3;
    pub(crate) const UD: u32 = 4;
    pub(crate) const RAW_PACKET: u32 = 8;
    pub(crate) const XRC_SEND: u32 = 9;
    pub(crate) const XRC_RECV: u32 = 10;
    #[cfg(feature = "drop-in")]
    pub(crate) const DRIVER: u32 = 0xff;
}

/// `enum ibv_qp_init_attr_mask`.
mod attr {
    pub(super) const PD: u32 = 1;
    pub(super) const XRCD: u32 = 1 << 1;
    pub(super) const CREATE_FLAGS: u32 = 1 << 2;
    pub(super) const MAX_TSO_HEADER: u32 = 1 << 3;
    pub(super) const IND_TABLE: u32 = 1 << 4;
    pub(super) const RX_HASH: u32 = 1 << 5;
    pub(super) const SEND_OPS: u32 = 1 << 6;
    pub(super) const ALL: u32 = (1 << 7) - 1;
}

/// `IBV_QP_CREATE_SOURCE_QPN`.
const CREATE_SOURCE_QPN: u32 = 1 << 10;

fn transport(number: c_uint) -> Result<(Transport, QueueKind), Errno> {
    Ok(match number {
        qp_type::RC => (Transport::Rc, QueueKind::Rc),
        qp_type::UC => (Transport::Uc, QueueKind::Uc),
        qp_type::UD => (Transport::Ud, QueueKind::Ud),
        qp_type::RAW_PACKET => (Transport::RawPacket, QueueKind::RawPacket),
        qp_type::XRC_SEND => (Transport::XrcSend, QueueKind::XrcSend),
        qp_type::XRC_RECV => (Transport::XrcRecv, QueueKind::XrcRecv),
        // Dynamic connections are made by mlx5dv only.
        _ => return Err(Errno(libc::EINVAL)),
    })
}

fn create(
    context: *mut ibv_context,
    init: &mut ibv_qp_init_attr_ex,
    special: &Special,
) -> Result<*mut Qp, Errno> {
    let has = |bit| init.comp_mask & bit != 0;
    let (transport, kind) = if special.initiator {
        (Transport::Dci, QueueKind::Dci)
    } else {
        transport(init.qp_type)?
    };
    if init.comp_mask & !attr::ALL != 0 || has(attr::MAX_TSO_HEADER) && kind != QueueKind::RawPacket
    {
        return Err(Errno(libc::EINVAL));
    }
    // SAFETY: an open mlx5 device (C1).
    let device = unsafe { family::<Mlx5>(context) }?;
    // Whoever asks for work requests of mlx5's own builds the others too.
    let named = special.device_ops.is_some_and(|ops| ops.0 != 0);
    let send_ops = if has(attr::SEND_OPS) {
        Some(init.send_ops_flags)
    } else {
        named.then_some(0)
    };
    let builder = match send_ops {
        Some(wanted) => {
            let ops = builder::ops(kind, device.context().has_atomics(), wanted);
            Some(ops.ok_or(Errno(libc::EOPNOTSUPP))?)
        }
        None => None,
    };
    let pd = if has(attr::PD) {
        init.pd
    } else {
        std::ptr::null_mut()
    };
    let mut request = QpRequest::new(transport);
    if kind == QueueKind::XrcRecv {
        if !has(attr::XRCD) || init.xrcd.is_null() {
            return Err(Errno(libc::EINVAL));
        }
        // SAFETY: an XRC domain of ours (C1).
        request.xrcd = Xrcd(unsafe { (*init.xrcd.cast::<verbs_xrcd>()).handle });
    } else {
        if pd.is_null() || init.send_cq.is_null() {
            return Err(Errno(libc::EINVAL));
        }
        // SAFETY: a protection domain of ours (C1).
        (_, request.pd) = unsafe { of_pd(pd) };
        // SAFETY: a completion queue of ours (C1).
        request.send_cq = unsafe { cq::handle(init.send_cq) };
        if kind != QueueKind::XrcSend {
            if init.recv_cq.is_null() {
                return Err(Errno(libc::EINVAL));
            }
            // SAFETY: as above.
            request.recv_cq = unsafe { cq::handle(init.recv_cq) };
            if !init.srq.is_null() {
                // SAFETY: a shared receive queue of ours (C1).
                request.srq = Some(unsafe { srq::shared(init.srq) });
            }
        }
        request.cap = QpCap {
            max_send_wr: init.cap.max_send_wr,
            max_recv_wr: init.cap.max_recv_wr,
            max_send_sge: init.cap.max_send_sge,
            max_recv_sge: init.cap.max_recv_sge,
            max_inline_data: init.cap.max_inline_data,
        };
    }
    if has(attr::CREATE_FLAGS) {
        if init.create_flags & CREATE_SOURCE_QPN != 0 {
            if kind != QueueKind::Ud {
                return Err(Errno(libc::EINVAL));
            }
            request.transport = Transport::Underlay;
            request.source_qpn = Some(init.source_qpn);
        }
        // The other flags have the kernel's numbers.
        request.flags = CreateQpFlags(init.create_flags & !CREATE_SOURCE_QPN);
    }
    request.sq_sig_all = init.sq_sig_all != 0;
    request.driver_flags = special.driver_flags;
    request.no_scatter_to_cqe = special.no_scatter_to_cqe;
    request.device_ops = special.device_ops;
    request.dci_streams = special.dci_streams;
    request.send_ops = send_ops.map(SendOps);
    if has(attr::MAX_TSO_HEADER) {
        request.max_tso_header = init.max_tso_header.into();
    }
    // SAFETY: an open context.
    let async_fd = unsafe { (*context).async_fd };
    request.async_event = (async_fd >= 0).then_some(async_fd);
    let mut share = None;
    if !pd.is_null() {
        // SAFETY: a protection domain of ours (C1), which outlives the queue pair.
        request.thread = unsafe { domain::thread_register(pd) };
        // SAFETY: as above.
        request.allocator = unsafe { domain::allocator(pd) };
        // SAFETY: as above.
        share = unsafe { domain::share(pd) };
    }
    #[cfg(feature = "drop-in")]
    if let Some(copies) = &special.copies {
        request.max_copy = copies.max as u64;
        // SAFETY: as above; a queue pair that copies has one.
        share = Some(unsafe { domain::hold(pd) });
    }
    let threads = if request.thread.is_some() {
        Threads::One
    } else {
        device.threads()
    };
    let place = Box::<Qp>::new_uninit();
    request.cookie = place.as_ptr().expose_provenance();
    request.user_handle = request.cookie as u64;
    let MadeQp {
        object,
        send,
        receive,
    } = device.context().create_qp(&request)?;
    init.cap = caps(object.cap());
    let (handle, number) = (object.handle(), object.number());
    let send = send.map(|queue| {
        let draft = queue.begin();
        let send = Send {
            queue,
            draft,
            #[cfg(feature = "drop-in")]
            key: key::PendingKey::default(),
        };
        Locked::with(send, QueueLock::new(threads))
    });
    let qp = Qp {
        head: [0; HEAD / 8],
        send,
        recv: receive.map(|queue| Locked::with(queue, QueueLock::new(threads))),
        object: Mutex::new(Object::Queues(object)),
        sq_sig_all: init.sq_sig_all != 0,
        _domain: share,
        #[cfg(feature = "drop-in")]
        dv: dv::functions(kind, special.device_ops),
        #[cfg(feature = "drop-in")]
        copies: special.copies,
        #[cfg(feature = "drop-in")]
        drains_signature_errors: special.drains_signature_errors,
    };
    // A raw packet queue would take packets before RTR if it were told of receives.
    if kind == QueueKind::RawPacket
        && let Some(recv) = &qp.recv
    {
        recv.lock().hold_back(true);
    }
    let has_send = qp.send.is_some();
    let qp = Box::into_raw(Box::write(place, qp));
    // SAFETY: the head of the new object, zeroed, which is a valid `ibv_qp`.
    let base = unsafe { &mut *qp.cast::<ibv_qp>() };
    base.context = context;
    base.qp_context = init.qp_context;
    base.pd = pd;
    base.send_cq = init.send_cq;
    base.recv_cq = init.recv_cq;
    base.srq = init.srq;
    base.handle = handle.0;
    base.qp_num = number;
    base.state = c_uint::from(QpState::RESET.0);
    base.qp_type = init.qp_type;
    // SAFETY: the new object's own.
    unsafe { Events::of_qp(base).init() };
    if let Some(ops) = builder.filter(|_| has_send) {
        // SAFETY: the head of the new object, which has a send queue.
        unsafe { offer_builder(qp, &ops) };
    }
    Ok(qp)
}

/// Makes a queue pair without queues, of what `make` makes for a user handle. The rest of `ibv_qp` is the caller's to fill.
fn bare(
    share: Option<Share>,
    make: impl FnOnce(u64) -> Result<Object, Errno>,
) -> Result<*mut Qp, Errno> {
    let place = Box::<Qp>::new_uninit();
    let object = make(place.as_ptr().expose_provenance() as u64)?;
    let (handle, number) = match &object {
        Object::Queues(object) => (object.handle(), object.number()),
        Object::Spreads(object) | Object::Opened(object) => (object.handle(), object.number()),
        #[cfg(feature = "drop-in")]
        Object::Target(object) => (object.handle(), object.number()),
    };
    let qp = Qp {
        head: [0; HEAD / 8],
        send: None,
        recv: None,
        object: Mutex::new(object),
        sq_sig_all: false,
        _domain: share,
        #[cfg(feature = "drop-in")]
        dv: dv::NOTHING,
        #[cfg(feature = "drop-in")]
        copies: None,
        #[cfg(feature = "drop-in")]
        drains_signature_errors: false,
    };
    let qp = Box::into_raw(Box::write(place, qp));
    // SAFETY: the head of the new object, zeroed, which is a valid `ibv_qp`.
    let base = unsafe { &mut *qp.cast::<ibv_qp>() };
    base.handle = handle.0;
    base.qp_num = number;
    // SAFETY: the new object's own.
    unsafe { Events::of_qp(base).init() };
    Ok(qp)
}

/// A queue pair that spreads packets over a table of work queues.
fn create_spreading(
    context: *mut ibv_context,
    init: &ibv_qp_init_attr_ex,
    driver_flags: DriverFlags,
) -> Result<*mut Qp, Errno> {
    let has = |bit| init.comp_mask & bit != 0;
    if init.comp_mask & !attr::ALL != 0
        || has(attr::SEND_OPS)
        || !has(attr::PD)
        || !has(attr::IND_TABLE)
        || init.pd.is_null()
        || init.rwq_ind_tbl.is_null()
    {
        return Err(Errno(libc::EINVAL));
    }
    let (qp_type, _) = transport(init.qp_type)?;
    let qp_type = match qp_type {
        Transport::RawPacket => QpType::RAW_PACKET,
        Transport::Ud => QpType::UD,
        _ => return Err(Errno(libc::EOPNOTSUPP)),
    };
    // SAFETY: an open mlx5 device (C1).
    let device = unsafe { family::<Mlx5>(context) }?;
    // SAFETY: a protection domain of ours (C1).
    let (_, pd) = unsafe { of_pd(init.pd) };
    // SAFETY: as many bytes by the verb's contract.
    let key = unsafe { slice(init.rx_hash_key.cast_const(), init.rx_hash_key_len.into()) };
    // SAFETY: an open context.
    let async_fd = unsafe { (*context).async_fd };
    // SAFETY: a protection domain of ours (C1).
    let share = unsafe { domain::share(init.pd) };
    let qp = bare(share, |user_handle| {
        let request = RssRequest {
            qp_type,
            pd,
            // SAFETY: a table of ours (C1).
            table: unsafe { wq::table_handle(init.rwq_ind_tbl.cast()) },
            user_handle,
            flags: if has(attr::CREATE_FLAGS) {
                CreateQpFlags(init.create_flags)
            } else {
                CreateQpFlags::NONE
            },
            function: RxHashFunction(init.rx_hash_function),
            fields: RxHashFields(init.rx_hash_fields_mask),
            key: key.to_vec(),
            driver_flags,
            async_event: (async_fd >= 0).then_some(async_fd),
        };
        Ok(Object::Spreads(device.context().create_rss_qp(&request)?))
    })?;
    // SAFETY: the new object.
    let base = unsafe { &mut *qp.cast::<ibv_qp>() };
    base.context = context;
    base.qp_context = init.qp_context;
    base.pd = init.pd;
    base.qp_type = init.qp_type;
    Ok(qp)
}

/// `IBV_QP_OPEN_ATTR_*`: number, domain, context, type.
const OPEN_NEEDED: u32 = 1 | 2 | 8;
const OPEN_CONTEXT: u32 = 4;
/// `IBV_QPS_UNKNOWN`.
const STATE_UNKNOWN: c_uint = 7;

/// An XRC target that another process of the domain made.
pub(crate) unsafe extern "C" fn open_qp(
    context: *mut ibv_context,
    attr: *mut ibv_qp_open_attr,
) -> *mut Qp {
    control("open_qp", || {
        // SAFETY: the caller's attributes.
        let attr = unsafe { &*attr };
        if attr.comp_mask & !(OPEN_NEEDED | OPEN_CONTEXT) != 0 {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        let complete = attr.comp_mask & OPEN_NEEDED == OPEN_NEEDED && !attr.xrcd.is_null();
        if !complete || attr.qp_type != qp_type::XRC_RECV {
            return Err(Errno(libc::EINVAL));
        }
        // SAFETY: an open mlx5 device (C1).
        let device = unsafe { family::<Mlx5>(context) }?;
        // SAFETY: an XRC domain of ours (C1).
        let xrcd = Xrcd(unsafe { (*attr.xrcd).handle });
        let qp = bare(None, |user_handle| {
            let opened = device.context().open_qp(xrcd, attr.qp_num, user_handle)?;
            Ok(Object::Opened(opened))
        })?;
        // SAFETY: the new object.
        let base = unsafe { &mut *qp.cast::<ibv_qp>() };
        base.context = context;
        base.qp_context = attr.qp_context;
        base.qp_type = attr.qp_type;
        base.state = STATE_UNKNOWN;
        Ok(qp)
    })
}

pub(crate) unsafe extern "C" fn create_qp(pd: *mut ibv_pd, init: *mut ibv_qp_init_attr) -> *mut Qp {
    control("create_qp", || {
        // SAFETY: a protection domain of ours (C1).
        let (context, _) = unsafe { of_pd(pd) };
        // SAFETY: the caller's attributes, which the verb writes back to.
        let init = unsafe { &mut *init };
        // SAFETY: numbers and pointers; all-zero bytes are valid.
        let mut extended: ibv_qp_init_attr_ex = unsafe { std::mem::zeroed() };
        extended.qp_context = init.qp_context;
        extended.send_cq = init.send_cq;
        extended.recv_cq = init.recv_cq;
        extended.srq = init.srq;
        extended.cap = init.cap;
        extended.qp_type = init.qp_type;
        extended.sq_sig_all = init.sq_sig_all;
        extended.comp_mask = attr::PD;
        extended.pd = pd;
        let qp = create(context, &mut extended, &Special::default())?;
        init.cap = extended.cap;
        Ok(qp)
    })
}

pub(crate) unsafe extern "C" fn create_qp_ex(
    context: *mut ibv_context,
    init: *mut ibv_qp_init_attr_ex,
) -> *mut Qp {
    control("create_qp_ex", || {
        // SAFETY: the caller's attributes, which the verb writes back to.
        create_any(context, unsafe { &mut *init }, &Special::default())
    })
}

fn create_any(
    context: *mut ibv_context,
    init: &mut ibv_qp_init_attr_ex,
    special: &Special,
) -> Result<*mut Qp, Errno> {
    if init.comp_mask & attr::RX_HASH != 0 {
        create_spreading(context, init, special.driver_flags)
    } else {
        create(context, init, special)
    }
}

/// Removes what is left of a queue from its completion queues.
///
/// # Safety
///
/// `qp` is one of ours (C1), and so are its queues.
unsafe fn clean(qp: *mut ibv_qp, key: u32) {
    // SAFETY: the caller's promise.
    let base = unsafe { &*qp };
    let shared = if base.srq.is_null() {
        None
    } else {
        // SAFETY: a shared receive queue of ours, which stays as long as the queue pair.
        Some(unsafe { srq::shared(base.srq) }.1)
    };
    // SAFETY: null, or a completion queue of ours that stays as long as the queue pair.
    unsafe { cq::clean(base.recv_cq, key, shared.as_deref()) };
    if base.send_cq != base.recv_cq {
        // SAFETY: as above.
        unsafe { cq::clean(base.send_cq, key, None) };
    }
}

pub(crate) unsafe extern "C" fn destroy_qp(qp: *mut ibv_qp) -> c_int {
    control("destroy_qp", || {
        // SAFETY: a queue pair of ours (C1), which nobody else uses.
        let mut object = unsafe { of(qp) }.object();
        let reported = match &mut *object {
            Object::Queues(object) => {
                let dying = destroyed(object.destroy())?;
                if let Some(key) = dying.as_ref().and_then(|dying| dying.key()) {
                    // SAFETY: as above.
                    unsafe { clean(qp, key) };
                }
                dying.map(|dying| dying.events())
            }
            Object::Spreads(object) | Object::Opened(object) => destroyed(object.destroy())?,
            #[cfg(feature = "drop-in")]
            Object::Target(object) => {
                let dying = destroyed(object.destroy())?;
                if let Some(key) = dying.as_ref().and_then(|dying| dying.key()) {
                    // SAFETY: as above.
                    unsafe { clean(qp, key) };
                }
                dying.map(|dying| dying.events())
            }
        };
        drop(object);
        // SAFETY: a live object, whose lock was initialised when it was made.
        unsafe { Events::of_qp(qp).wait(reported) };
        // SAFETY: made by `create`, and gone for the kernel and the program.
        drop(unsafe { Box::from_raw(qp.cast::<Qp>()) });
        Ok(())
    })
}
