//! Schedules: nodes and leaves that share the bandwidth of what sends, and queue pairs that a leaf stands for.

use std::ffi::{c_int, c_void};

use oxverbs::ffi_core::refusal::reason;
use oxverbs::ffi_core::uverbs_abi::handle::mlx5::{Any, DevxObj};
use oxverbs::ffi_core::wqe_format::mlx5::firmware::Opcode;
use oxverbs::ffi_core::wqe_format::mlx5::firmware::bits;
use oxverbs::ffi_core::wqe_format::mlx5::firmware::caps::CapType;
use oxverbs::ffi_core::wqe_format::mlx5::firmware::caps::qos::QosCap;
use oxverbs::ffi_core::wqe_format::mlx5::firmware::object::GeneralObjOutCmdHdr;
use oxverbs::ffi_core::wqe_format::mlx5::firmware::sq::{ModifySqIn, ModifySqOut};
use oxverbs::ffi_core::{Errno, Uctx};

use super::caps::Caps;
use super::change::Change;
use super::object::{self, HEAD};
use super::state::{EXTENSION_CAPABILITY, RTS};
use super::{EOPNOTSUPP, ours};
use crate::abi::dv::mlx5dv_sched_attr;
use crate::abi::objects::{ibv_context, ibv_qp};
use crate::door::control;
use crate::mlx5::qp::dv as qp_dv;
use crate::mlx5::qp::qp_type::{RAW_PACKET, RC, UC, UD};

const EINVAL: Errno = Errno(libc::EINVAL);

/// What an element is (rdma-core's providers/mlx5/mlx5_ifc.h, `MLX5_SCHED_ELEM_TYPE_TSAR` and `_QUEUE_GROUP`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Node = 0,
    Leaf = 4,
}

/// An element. Programs do not look into it.
#[derive(Debug)]
struct Element {
    context: *mut ibv_context,
    handle: DevxObj,
    /// The firmware's number.
    number: u32,
}

/// `enum mlx5dv_sched_elem_attr_flags`, which are the firmware's bits for what a command sets.
const SHARE: u32 = 1;
const RATE: u32 = 1 << 1;

/// What the device can do; without a capability, nothing of it.
#[derive(Debug, Default)]
struct Can {
    elements: bool,
    share: bool,
    rate: bool,
    /// Queue pairs, and send queues of raw ones, may be put into a leaf.
    queue_pairs: bool,
    send_queues: bool,
}

/// `cmd_hca_cap.qos` (`mlx5_ifc.h`), and `qos_cap.nic_qp_scheduling` (rdma-core's).
const QOS: usize = 0x21b;
const OF_QUEUE_PAIRS: usize = 0x21;
/// `ELEMENT_TYPE_CAP_MASK_TASR`, `_QUEUE_GROUP`, `TSAR_TYPE_CAP_MASK_DWRR` (rdma-core, same place).
const NODES: u16 = 1;
const LEAVES: u16 = 1 << 4;
const WEIGHTED: u16 = 1;

impl Can {
    fn of(uctx: &Uctx) -> Self {
        let Some(general) = Caps::of(uctx, CapType::GENERAL).filter(|caps| caps.has(QOS)) else {
            return Self::default();
        };
        let Some(caps) = Caps::of(uctx, CapType::QOS) else {
            return Self::default();
        };
        let Ok(qos) = QosCap::new(caps.bytes()) else {
            return Self::default();
        };
        let kinds = qos.nic_element_type();
        let send_queues = qos.nic_sq_scheduling();
        Self {
            elements: kinds & NODES != 0
                && kinds & LEAVES != 0
                && qos.nic_tsar_type() & WEIGHTED != 0,
            share: send_queues && qos.nic_bw_share(),
            rate: send_queues && qos.nic_rate_limit(),
            queue_pairs: caps.has(OF_QUEUE_PAIRS) && general.has(EXTENSION_CAPABILITY),
            send_queues,
        }
    }

    /// Whether it can do what is asked.
    fn check(&self, asked: &mlx5dv_sched_attr) -> Result<(), Errno> {
        if asked.flags & SHARE != 0 && !self.share || asked.flags & RATE != 0 && !self.rate {
            return Err(EOPNOTSUPP);
        }
        Ok(())
    }
}

/// What a program asks: the root has no parent and no limits, a leaf has a parent.
///
/// # Safety
///
/// Null, or the caller's attributes.
unsafe fn valid<'a>(
    asked: *const mlx5dv_sched_attr,
    kind: Kind,
) -> Result<&'a mlx5dv_sched_attr, Errno> {
    // SAFETY: the caller's promise.
    let asked = unsafe { asked.as_ref() }.ok_or(EINVAL)?;
    let parentless = asked.parent.is_null() && (kind == Kind::Leaf || asked.flags != 0);
    if asked.comp_mask != 0 || asked.flags & !(SHARE | RATE) != 0 || parentless {
        return Err(EINVAL);
    }
    Ok(asked)
}

/// Kind of the firmware's object (rdma-core's providers/mlx5/mlx5_ifc.h, `MLX5_OBJ_TYPE_SCHEDULING_ELEMENT`), bytes behind
/// the command's head, and in them (`sched_elem`): what is set (`modify_field_select`), `scheduling_hierarchy`, and of its
/// `sched_context` the kind of element, the weighing of a node (`tsar_type`: 0, by deficit), the parent, share and rate.
const OBJECT: u16 = 0x26;
const BODY: usize = 0x80;
const SELECT: (usize, usize) = (0, 64);
const HIERARCHY: (usize, usize) = (0x40, 8);
const KIND: (usize, usize) = (0x100, 8);
const PARENT: (usize, usize) = (0x140, 32);
const BW_SHARE: (usize, usize) = (0x1a0, 32);
const MAX_RATE: (usize, usize) = (0x1c0, 32);
/// `MLX5_SCHED_HIERARCHY_NIC`.
const OF_THE_NIC: u64 = 3;

/// A command on an element, of this number if there is one.
fn command(
    opcode: Opcode,
    number: u32,
    kind: Kind,
    asked: &mlx5dv_sched_attr,
    parent: u32,
) -> [u8; HEAD + BODY] {
    let mut input = object::command(opcode, OBJECT, number, 0);
    let body = &mut input[HEAD..];
    let mut set = |(first, width), value| bits::set(body, first, width, value);
    set(SELECT, asked.flags.into());
    set(HIERARCHY, OF_THE_NIC);
    set(KIND, kind as u64);
    set(PARENT, parent.into());
    if asked.flags & SHARE != 0 {
        set(BW_SHARE, asked.bw_share.into());
    }
    if asked.flags & RATE != 0 {
        set(MAX_RATE, asked.max_avg_bw.into());
    }
    input
}

/// # Safety
///
/// An open context, and null or the caller's attributes.
unsafe fn create(
    context: *mut ibv_context,
    asked: *const mlx5dv_sched_attr,
    kind: Kind,
) -> Result<*mut Element, Errno> {
    // SAFETY: the caller's promise.
    let uctx = unsafe { ours(context) }?.context().uctx();
    // SAFETY: as above.
    let asked = unsafe { valid(asked, kind) }?;
    let can = Can::of(uctx);
    // A leaf's parent is there only if the device has elements.
    if kind == Kind::Node && !can.elements {
        return Err(EOPNOTSUPP);
    }
    can.check(asked)?;
    // SAFETY: null, or a node of ours by the verb's contract.
    let parent = unsafe { asked.parent.cast::<Element>().as_ref() };
    let parent = parent.map_or(0, |parent| parent.number);
    let input = command(Opcode::CREATE_GENERAL_OBJECT, 0, kind, asked, parent);
    let mut output = GeneralObjOutCmdHdr::zeroed();
    let handle = uctx
        .devx_obj_create(&input, output.as_bytes_mut())
        .map_err(|errno| reason(errno, output.as_bytes()))?;
    Ok(Box::into_raw(Box::new(Element {
        context,
        handle,
        number: output.obj_id(),
    })))
}

/// # Safety
///
/// Null or an element of ours, and null or the caller's attributes.
unsafe fn modify(
    element: *mut Element,
    asked: *const mlx5dv_sched_attr,
    kind: Kind,
) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let element = unsafe { element.as_ref() }.ok_or(EINVAL)?;
    // SAFETY: as above.
    let asked = unsafe { valid(asked, kind) }?;
    // SAFETY: its context is open.
    let uctx = unsafe { ours(element.context) }?.context().uctx();
    Can::of(uctx).check(asked)?;
    // The parent stays.
    let opcode = Opcode::MODIFY_GENERAL_OBJECT;
    let input = command(opcode, element.number, kind, asked, 0);
    let mut output = GeneralObjOutCmdHdr::zeroed();
    uctx.devx_obj_modify(Any(element.handle.0), &input, output.as_bytes_mut())
        .map_err(|errno| reason(errno, output.as_bytes()))
}

/// # Safety
///
/// Null or an element of ours, which is used no more. It stays if this fails.
unsafe fn destroy(element: *mut Element) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let ours_of = unsafe { element.as_ref() }.ok_or(EINVAL)?;
    // SAFETY: its context is open.
    let device = unsafe { ours(ours_of.context) }?;
    device.context().uctx().devx_obj_destroy(ours_of.handle)?;
    // SAFETY: made by `create`, and gone for the kernel and the program.
    drop(unsafe { Box::from_raw(element) });
    Ok(())
}

/// The three functions of a kind of element.
macro_rules! elements {
    ($kind:expr, $create:ident, $modify:ident, $destroy:ident) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $create(
            context: *mut ibv_context,
            asked: *const mlx5dv_sched_attr,
        ) -> *mut Element {
            // SAFETY: the caller's arguments.
            control(stringify!($create), || unsafe {
                create(context, asked, $kind)
            })
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn $modify(
            element: *mut Element,
            asked: *const mlx5dv_sched_attr,
        ) -> c_int {
            // SAFETY: the caller's arguments.
            control(stringify!($modify), || unsafe {
                modify(element, asked, $kind)
            })
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn $destroy(element: *mut Element) -> c_int {
            // SAFETY: the caller's element.
            control(stringify!($destroy), || unsafe { destroy(element) })
        }
    };
}

elements!(
    Kind::Node,
    mlx5dv_sched_node_create,
    mlx5dv_sched_node_modify,
    mlx5dv_sched_node_destroy
);
elements!(
    Kind::Leaf,
    mlx5dv_sched_leaf_create,
    mlx5dv_sched_leaf_modify,
    mlx5dv_sched_leaf_destroy
);

/// In the extension of a queue pair's context (rdma-core's providers/mlx5/mlx5_ifc.h, `qpc_ext`): the leaves of what it
/// sends as requester and as responder, and their bit in the mask (`MLX5_QPC_OPT_MASK_32_QOS_QUEUE_GROUP_ID`).
const REQUESTER: (usize, usize) = (0x20, 32);
const RESPONDER: (usize, usize) = (0x40, 32);
const CHANGED: u64 = 1 << 1;
/// `MLX5_MODIFY_SQ_BITMASK_QOS_QUEUE_GROUP_ID` and `MLX5_SQC_STATE_RDY` (same place).
const SQ_CHANGED: u64 = 1 << 2;
const SQ_READY: u8 = 1;
/// `IBV_QPS_INIT`.
const INIT: u32 = 1;

/// Puts a raw queue pair's send queue into a leaf.
fn put_send_queue(uctx: &Uctx, qp: &ibv_qp, leaf: u32) -> Result<(), Errno> {
    // SAFETY: a queue pair of ours, as its context says.
    let sqn = unsafe { qp_dv::placement(qp) }?.answer.sqn;
    let mut input = ModifySqIn::zeroed();
    input
        .set_opcode(Opcode::MODIFY_SQ.0)
        .set_sq_state(SQ_READY)
        .set_sqn(sqn)
        .set_modify_bitmask(SQ_CHANGED);
    input
        .ctx_mut()
        .set_state(SQ_READY)
        .set_qos_queue_group_id(leaf as u16);
    let mut output = ModifySqOut::zeroed();
    uctx.devx_obj_modify(Any(qp.handle), input.as_bytes(), output.as_bytes_mut())
        .map_err(|errno| reason(errno, output.as_bytes()))
}

/// Lets leaves of a schedule stand for what a queue pair sends; null for none.
#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_modify_qp_sched_elem(
    qp: *mut ibv_qp,
    requester: *const c_void,
    responder: *const c_void,
) -> c_int {
    control("mlx5dv_modify_qp_sched_elem", || {
        // SAFETY: the caller's queue pair.
        let qp = unsafe { &*qp };
        // SAFETY: its context is open.
        let uctx = unsafe { ours(qp.context) }?.context().uctx();
        // SAFETY: null, or leaves of ours by the verb's contract.
        let number =
            |leaf: *const c_void| unsafe { leaf.cast::<Element>().as_ref() }.map(|l| l.number);
        let (requester, responder) = (number(requester), number(responder));
        if matches!(qp.qp_type, UC | UD | RAW_PACKET) && responder.is_some() {
            return Err(EINVAL);
        }
        let can = Can::of(uctx);
        let opcode = match (qp.qp_type, qp.state) {
            (RAW_PACKET, RTS) if can.send_queues => {
                return put_send_queue(uctx, qp, requester.unwrap_or(0));
            }
            (RC | UC | UD, INIT) if can.queue_pairs => Opcode::INIT2INIT_QP,
            (RC | UC | UD, RTS) if can.queue_pairs => Opcode::RTS2RTS_QP,
            _ => return Err(EOPNOTSUPP),
        };
        let leaves = [
            (REQUESTER, requester.unwrap_or(0)),
            (RESPONDER, responder.unwrap_or(0)),
        ];
        Change::new(opcode, qp.qp_num)
            .extended(CHANGED, &leaves)
            .run(uctx, qp)
    })
}
