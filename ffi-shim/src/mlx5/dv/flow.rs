//! Flow rules in the device's own terms: matchers, rules, actions on headers, and anchors in flow tables.

use std::ffi::{c_int, c_uint, c_void};
use std::slice;

use oxverbs::ffi_core::uverbs_abi::handle::mlx5::{DevxObj, FlowMatcher, SteeringAnchor};
use oxverbs::ffi_core::uverbs_abi::handle::{FlowAction, Qp};
use oxverbs::ffi_core::uverbs_abi::object::mlx5::{
    CreateFlowFlags, FlowTableType, FlowType, PacketReformatType,
};
use oxverbs::ffi_core::{CreateMatcher, CreateRule, Errno};

use super::{EOPNOTSUPP, devx, ours};
use crate::abi::dv::{
    mlx5dv_flow_action_attr, mlx5dv_flow_matcher_attr, mlx5dv_steering_anchor_attr,
};
use crate::abi::objects::{ibv_context, ibv_qp};
use crate::abi::wq::ibv_flow;
use crate::context::uctx;
use crate::door::control;
use crate::mlx5::flow::Rule;

/// An object of the kernel's with its context, as `verbs_flow_action` begins too.
#[repr(C)]
#[derive(Debug)]
struct Kept {
    context: *mut ibv_context,
    handle: u32,
    /// `verbs_flow_action.type`: 0 is of no kind that verbs change.
    kind: c_uint,
}

fn keep(context: *mut ibv_context, handle: u32) -> *mut Kept {
    Box::into_raw(Box::new(Kept {
        context,
        handle,
        kind: 0,
    }))
}

/// Bits, as the manual's `fte_match_param`: how many bytes, then the bytes.
///
/// # Safety
///
/// A `struct mlx5dv_flow_match_parameters`, which stays as it is for `'a`.
unsafe fn bits<'a>(parameters: *const usize) -> Result<&'a [u8], Errno> {
    if parameters.is_null() {
        return Err(Errno(libc::EINVAL));
    }
    // SAFETY: the caller's promise.
    let len = unsafe { parameters.read() };
    // SAFETY: so many bytes follow.
    Ok(unsafe { slice::from_raw_parts(parameters.wrapping_add(1).cast(), len) })
}

/// `MLX5DV_FLOW_MATCHER_MASK_FT_TYPE`.
const MATCHER_TABLE: u64 = 1;

#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_create_flow_matcher(
    context: *mut ibv_context,
    attr: *const mlx5dv_flow_matcher_attr,
) -> *mut Kept {
    control("mlx5dv_create_flow_matcher", || {
        // SAFETY: an open context by the verb's contract.
        let device = unsafe { ours(context) }?;
        // SAFETY: the caller's attributes.
        let attr = unsafe { &*attr };
        // `IBV_FLOW_ATTR_NORMAL` is 0, as the kernel's.
        if attr.comp_mask & !MATCHER_TABLE != 0 || attr.r#type != 0 {
            return Err(EOPNOTSUPP);
        }
        let matcher = CreateMatcher {
            // SAFETY: the caller's mask.
            mask: unsafe { bits(attr.match_mask) }?,
            flow_type: FlowType::NORMAL,
            priority: attr.priority,
            criteria: attr.match_criteria_enable,
            flow_flags: attr.flags,
            table: (attr.comp_mask & MATCHER_TABLE != 0).then_some(FlowTableType(attr.ft_type)),
        };
        let handle = device.context().uctx().create_flow_matcher(&matcher)?;
        Ok(keep(context, handle.0))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_destroy_flow_matcher(matcher: *mut Kept) -> c_int {
    control("mlx5dv_destroy_flow_matcher", || {
        // SAFETY: the caller's object.
        let Kept {
            context, handle, ..
        } = unsafe { &*matcher };
        // SAFETY: its context is open.
        unsafe { uctx(*context) }?.destroy_flow_matcher(FlowMatcher(*handle))?;
        // SAFETY: made by `keep`, and gone for the kernel and the program.
        drop(unsafe { Box::from_raw(matcher) });
        Ok(())
    })
}

/// `enum mlx5dv_flow_action_type`.
mod action {
    pub(super) const DEST_IBV_QP: u32 = 0;
    pub(super) const DROP: u32 = 1;
    pub(super) const IBV_FLOW_ACTION: u32 = 3;
    pub(super) const TAG: u32 = 4;
    pub(super) const DEST_DEVX: u32 = 5;
    pub(super) const COUNTERS_DEVX: u32 = 6;
    pub(super) const DEFAULT_MISS: u32 = 7;
    /// Since release 60; its attributes are longer.
    pub(super) const COUNTERS_DEVX_WITH_OFFSET: u32 = 8;
}

/// What a rule does.
#[derive(Default)]
struct Does {
    qp: Option<Qp>,
    devx: Option<DevxObj>,
    flags: CreateFlowFlags,
    tag: Option<u32>,
    actions: Vec<FlowAction>,
    counter: Option<(DevxObj, Option<u32>)>,
}

impl Does {
    fn has_destination(&self) -> bool {
        self.qp.is_some() || self.devx.is_some() || !self.flags.is_empty()
    }

    /// # Safety
    ///
    /// An element of the caller's list, with its objects.
    unsafe fn add(
        &mut self,
        attr: *const mlx5dv_flow_action_attr,
        long: bool,
    ) -> Result<(), Errno> {
        // SAFETY: the caller's promise.
        let kind = unsafe { (*attr).r#type };
        // SAFETY: as above; a pointer, or a number in its first half.
        let object = unsafe { (*attr).object };
        match kind {
            action::DEST_IBV_QP | action::DEST_DEVX | action::DEFAULT_MISS | action::DROP
                if self.has_destination() =>
            {
                return Err(EOPNOTSUPP);
            }
            action::DEST_IBV_QP => {
                // SAFETY: a queue pair by the kind.
                self.qp = Some(Qp(unsafe { (*object.cast::<ibv_qp>()).handle }));
            }
            action::DEST_DEVX => {
                // SAFETY: an object by the kind.
                self.devx = Some(DevxObj(unsafe { devx::handle_of(object) }));
            }
            action::DEFAULT_MISS => self.flags = CreateFlowFlags::DEFAULT_MISS,
            action::DROP => self.flags = CreateFlowFlags::DROP,
            action::TAG if self.tag.is_none() => self.tag = Some(object.addr() as u32),
            action::TAG => return Err(Errno(libc::EINVAL)),
            action::IBV_FLOW_ACTION => {
                // SAFETY: an action of ours by the kind.
                let handle = unsafe { (*object.cast::<Kept>()).handle };
                self.actions.push(FlowAction(handle));
            }
            action::COUNTERS_DEVX if self.counter.is_none() => {
                // SAFETY: an object by the kind.
                self.counter = Some((DevxObj(unsafe { devx::handle_of(object) }), None));
            }
            action::COUNTERS_DEVX_WITH_OFFSET if long && self.counter.is_none() => {
                // SAFETY: the longer form has a number behind the object.
                let offset = unsafe { attr.wrapping_add(1).cast::<u32>().read() };
                // SAFETY: an object by the kind.
                let object = DevxObj(unsafe { devx::handle_of(object) });
                self.counter = Some((object, Some(offset)));
            }
            _ => return Err(EOPNOTSUPP),
        }
        Ok(())
    }
}

/// # Safety
///
/// As for the verb; `stride` is the size of an element.
unsafe fn create(
    matcher: *const Kept,
    value: *const usize,
    count: usize,
    list: *const mlx5dv_flow_action_attr,
    stride: usize,
) -> Result<*mut ibv_flow, Errno> {
    let short = size_of::<mlx5dv_flow_action_attr>();
    if stride < short || !stride.is_multiple_of(8) {
        return Err(Errno(libc::EINVAL));
    }
    // SAFETY: the caller's matcher.
    let Kept {
        context, handle, ..
    } = unsafe { &*matcher };
    // SAFETY: its context is open.
    let device = unsafe { ours(*context) }?;
    let mut does = Does::default();
    for index in 0..count {
        let attr = list.wrapping_byte_add(index * stride);
        // SAFETY: an element of the caller's list.
        unsafe { does.add(attr, stride > short) }?;
    }
    let counters: Vec<_> = does.counter.iter().map(|(object, _)| *object).collect();
    let offsets: Vec<_> = does
        .counter
        .iter()
        .filter_map(|(_, offset)| *offset)
        .collect();
    let rule = CreateRule {
        matcher: FlowMatcher(*handle),
        // SAFETY: the caller's value.
        value: unsafe { bits(value) }?,
        qp: does.qp,
        devx: does.devx,
        actions: &does.actions,
        tag: does.tag,
        flags: does.flags,
        counters: &counters,
        counter_offsets: &offsets,
    };
    let flow = device.context().uctx().create_flow_rule(&rule)?;
    Ok(Rule::object(*context, flow, std::ptr::null_mut()))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_create_flow(
    matcher: *const Kept,
    value: *const usize,
    count: usize,
    list: *const mlx5dv_flow_action_attr,
) -> *mut ibv_flow {
    let stride = size_of::<mlx5dv_flow_action_attr>();
    // SAFETY: the caller's arguments.
    control("mlx5dv_create_flow", || unsafe {
        create(matcher, value, count, list, stride)
    })
}

/// The same with longer actions.
#[unsafe(no_mangle)]
unsafe extern "C" fn __mlx5dv_create_flow(
    matcher: *const Kept,
    value: *const usize,
    count: usize,
    list: *const mlx5dv_flow_action_attr,
    stride: usize,
) -> *mut ibv_flow {
    // SAFETY: the caller's arguments.
    control("mlx5dv_create_flow", || unsafe {
        create(matcher, value, count, list, stride)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_create_flow_action_modify_header(
    context: *mut ibv_context,
    bytes: usize,
    actions: *const [u8; 8],
    table: u32,
) -> *mut Kept {
    control("mlx5dv_create_flow_action_modify_header", || {
        // SAFETY: an open context by the verb's contract.
        let device = unsafe { ours(context) }?;
        // SAFETY: as many bytes by the verb's contract.
        let actions = unsafe { crate::common::slice(actions, bytes / 8) };
        let uctx = device.context().uctx();
        let handle = uctx.create_modify_header(FlowTableType(table), actions)?;
        Ok(keep(context, handle.0))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_create_flow_action_packet_reformat(
    context: *mut ibv_context,
    bytes: usize,
    headers: *const c_void,
    kind: u32,
    table: u32,
) -> *mut Kept {
    control("mlx5dv_create_flow_action_packet_reformat", || {
        // SAFETY: an open context by the verb's contract.
        let device = unsafe { ours(context) }?;
        // SAFETY: as many bytes by the verb's contract.
        let headers = unsafe { crate::common::slice(headers.cast::<u8>(), bytes) };
        let (kind, table) = (PacketReformatType(kind), FlowTableType(table));
        let handle = device
            .context()
            .uctx()
            .create_packet_reformat(kind, table, headers)?;
        Ok(keep(context, handle.0))
    })
}

/// `ibv_destroy_flow_action`.
pub(crate) unsafe extern "C" fn destroy_flow_action(action: *mut c_void) -> c_int {
    control("destroy_flow_action", || {
        let action = action.cast::<Kept>();
        // SAFETY: an action of ours by the verb's contract.
        let Kept {
            context, handle, ..
        } = unsafe { &*action };
        // SAFETY: its context is open.
        unsafe { uctx(*context) }?.destroy_flow_action(FlowAction(*handle))?;
        // SAFETY: made by `keep`, and gone for the kernel and the program.
        drop(unsafe { Box::from_raw(action) });
        Ok(())
    })
}

/// A flow table that firmware commands may name: its number, which the program reads, and ours behind it.
#[repr(C)]
#[derive(Debug)]
struct Anchor {
    number: u32,
    context: *mut ibv_context,
    handle: SteeringAnchor,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_create_steering_anchor(
    context: *mut ibv_context,
    attr: *const mlx5dv_steering_anchor_attr,
) -> *mut Anchor {
    control("mlx5dv_create_steering_anchor", || {
        // SAFETY: an open context by the verb's contract.
        let device = unsafe { ours(context) }?;
        // SAFETY: the caller's attributes.
        let attr = unsafe { &*attr };
        if attr.comp_mask != 0 {
            return Err(EOPNOTSUPP);
        }
        let uctx = device.context().uctx();
        let (handle, number) =
            uctx.create_steering_anchor(FlowTableType(attr.ft_type), attr.priority)?;
        Ok(Box::into_raw(Box::new(Anchor {
            number,
            context,
            handle,
        })))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_destroy_steering_anchor(anchor: *mut Anchor) -> c_int {
    control("mlx5dv_destroy_steering_anchor", || {
        // SAFETY: the caller's object.
        let Anchor {
            context, handle, ..
        } = unsafe { &*anchor };
        // SAFETY: its context is open.
        unsafe { uctx(*context) }?.destroy_steering_anchor(*handle)?;
        // SAFETY: made above, and gone for the kernel and the program.
        drop(unsafe { Box::from_raw(anchor) });
        Ok(())
    })
}
