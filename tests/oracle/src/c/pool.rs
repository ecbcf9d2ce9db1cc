//! Shared receive queues, XRC's and receive work queues of libibverbs, with whichever provider has the device.

use std::ffi::{c_int, c_void};
use std::ptr;

use anyhow::{Context as _, Result, ensure};
use oxverbs_ffi::abi::attr::{ibv_srq_attr, ibv_srq_init_attr_ex};
use oxverbs_ffi::abi::domain::ibv_xrcd_init_attr;
use oxverbs_ffi::abi::objects::{ibv_cq, ibv_qp, ibv_srq};
use oxverbs_ffi::abi::work::ibv_wc;
use oxverbs_ffi::abi::wq::{ibv_wq, ibv_wq_attr, ibv_wq_init_attr};
use wqe_format::mlx5::Cqe64;

use super::device::{CDevice, Object, QpSpec};
use super::library::{Slot, slot, slot_types};
use super::locate::Places;
use super::post::{PostRecv, context_op, post_receives, slot as ops};
use crate::call::{Outcome, Service};
use crate::matrix;
use crate::pool::{Kind, Pool};
use crate::receive::Receive;
use crate::ring::CqWriter;
use crate::subject::RecvMemory;

type PollCq = unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int;

/// A queue of libibverbs. Its objects stay until the process ends.
#[derive(Debug)]
pub struct CPool {
    name: &'static str,
    cq: Object<ibv_cq>,
    queue: *mut c_void,
    post: PostRecv,
    poll_cq: PollCq,
    limits: (u32, u32),
    memory: RecvMemory,
    user_index: u32,
    writer: CqWriter,
}

/// `IBV_SRQ_INIT_ATTR_TYPE`, `_PD`, `_XRCD`, `_CQ`
const TYPE_PD: u32 = 0b11;
const XRCD_CQ: u32 = 0b1100;
/// `IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS`
const XRCD_ALL: u32 = 0b11;
/// `IBV_WQ_ATTR_STATE`, `IBV_WQS_RDY`
const WQ_STATE: u32 = 1;
const WQ_READY: u32 = 1;

/// The device's function of a slot.
macro_rules! function {
    ($device:expr, $slot:ident, $type:ty) => {{
        // SAFETY: an open device.
        let function = unsafe { slot($device.context, Slot::$slot) }?;
        // SAFETY: the slot's type.
        unsafe { std::mem::transmute::<*const c_void, $type>(function) }
    }};
}

impl CPool {
    /// A queue for `max_wr` work requests of `max_sge` elements.
    ///
    /// # Errors
    ///
    /// As the calls.
    pub fn new(
        name: &'static str,
        device: &CDevice,
        places: &Places,
        kind: Kind,
        (max_wr, max_sge): (u32, u32),
    ) -> Result<Self> {
        let cq = device.cq(255)?;
        // SAFETY: an open device.
        let fd = unsafe { (*device.context).cmd_fd };
        let writer = places.cq(cq)?;
        // SAFETY: an open device, and the slot's type.
        let poll_cq = unsafe { context_op(device.context, ops::POLL_CQ) };
        if kind == Kind::Wq {
            let (wq, limits) = work_queue(device, cq, (max_wr, max_sge))?;
            // SAFETY: a live queue.
            let handle = unsafe { (*wq).handle };
            let (memory, user_index) = places.wq(fd, handle)?;
            // SAFETY: as above.
            let post = unsafe { (*wq).post_recv }.context("no post_recv")?;
            return Ok(Self {
                name,
                cq,
                queue: wq.cast(),
                // SAFETY: the two differ in the queue's type only, which is `void` here.
                post: unsafe {
                    std::mem::transmute::<*const c_void, PostRecv>(post as *const c_void)
                },
                poll_cq,
                limits,
                memory,
                user_index,
                writer,
            });
        }
        let (srq, limits) = shared(device, cq, kind, (max_wr, max_sge))?;
        // SAFETY: a live queue.
        let handle = unsafe { (*srq.pointer()).handle };
        let (memory, mut user_index) = places.srq(fd, handle)?;
        if kind == Kind::Srq {
            let spec = QpSpec {
                service: Service::Rc,
                recv_wr: 0,
                recv_sge: 0,
                ..matrix::SPEC
            };
            let (qp, _): (Object<ibv_qp>, _) = device.qp(&spec, cq, srq)?;
            device.restart(qp, Service::Rc)?;
            user_index = places.numbers(qp)?.1;
        }
        Ok(Self {
            name,
            cq,
            queue: srq.pointer().cast(),
            post: device.post_srq_recv(),
            poll_cq,
            limits,
            memory,
            user_index,
            writer,
        })
    }
}

fn shared(
    device: &CDevice,
    cq: Object<ibv_cq>,
    kind: Kind,
    (max_wr, max_sge): (u32, u32),
) -> Result<(Object<ibv_srq>, (u32, u32))> {
    let create = function!(device, CreateSrqEx, slot_types::CreateSrqEx);
    let mut attr = ibv_srq_init_attr_ex {
        srq_context: ptr::null_mut(),
        attr: ibv_srq_attr {
            max_wr,
            max_sge,
            srq_limit: 0,
        },
        comp_mask: TYPE_PD,
        // IBV_SRQT_BASIC
        srq_type: 0,
        pd: device.pd,
        xrcd: ptr::null_mut(),
        cq: ptr::null_mut(),
        max_num_tags: 0,
        max_ops: 0,
    };
    if kind == Kind::Xrc {
        let open = function!(device, OpenXrcd, slot_types::Open);
        let mut domain = ibv_xrcd_init_attr {
            comp_mask: XRCD_ALL,
            fd: -1,
            oflags: libc::O_CREAT,
        };
        // SAFETY: an open device and filled attributes.
        attr.xrcd = unsafe { open(device.context, (&raw mut domain).cast()) };
        ensure!(!attr.xrcd.is_null(), "ibv_open_xrcd");
        attr.comp_mask |= XRCD_CQ;
        // IBV_SRQT_XRC
        attr.srq_type = 1;
        attr.cq = cq.pointer();
    }
    // SAFETY: an open device and filled attributes.
    let srq = unsafe { create(device.context, &raw mut attr) };
    let error = std::io::Error::last_os_error();
    ensure!(!srq.is_null(), "ibv_create_srq_ex: {error}");
    Ok((Object(srq), (attr.attr.max_wr, attr.attr.max_sge)))
}

fn work_queue(
    device: &CDevice,
    cq: Object<ibv_cq>,
    (max_wr, max_sge): (u32, u32),
) -> Result<(*mut ibv_wq, (u32, u32))> {
    let create = function!(device, CreateWq, slot_types::CreateWq);
    let modify = function!(device, ModifyWq, slot_types::ModifyWq);
    let mut attr = ibv_wq_init_attr {
        wq_context: ptr::null_mut(),
        // IBV_WQT_RQ
        wq_type: 0,
        max_wr,
        max_sge,
        pd: device.pd,
        cq: cq.pointer(),
        comp_mask: 0,
        create_flags: 0,
    };
    // SAFETY: an open device and filled attributes.
    let wq = unsafe { create(device.context, &raw mut attr) };
    let error = std::io::Error::last_os_error();
    ensure!(!wq.is_null(), "ibv_create_wq: {error}");
    let mut state = ibv_wq_attr {
        attr_mask: WQ_STATE,
        wq_state: WQ_READY,
        curr_wq_state: 0,
        flags: 0,
        flags_mask: 0,
    };
    // SAFETY: the new queue and filled attributes.
    let errno = unsafe { modify(wq, &raw mut state) };
    ensure!(errno == 0, "ibv_modify_wq: {errno}");
    Ok((wq, (attr.max_wr, attr.max_sge)))
}

impl Pool for CPool {
    fn name(&self) -> &'static str {
        self.name
    }

    fn limits(&self) -> (u32, u32) {
        self.limits
    }

    fn memory(&self) -> RecvMemory {
        self.memory
    }

    fn post(&mut self, list: &[Receive]) -> Outcome {
        // SAFETY: the queue that the function is of.
        unsafe { post_receives(self.post, self.queue, list) }
    }

    fn complete(&mut self, cqe: Cqe64) -> Option<u64> {
        self.writer.write(&[], cqe);
        // SAFETY: all fields are numbers.
        let mut wc: ibv_wc = unsafe { std::mem::zeroed() };
        // SAFETY: a completion queue and room for one completion.
        let n = unsafe { (self.poll_cq)(self.cq.pointer(), 1, &raw mut wc) };
        (n == 1).then_some(wc.wr_id)
    }

    fn user_index(&self) -> u32 {
        self.user_index
    }
}
