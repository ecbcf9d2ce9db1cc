//! The table of operations, and those that need no state of ours: device, port, memory, addresses.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::NonNull;

use oxverbs::ffi_core::uverbs_abi::handle::{Ah, Mr, Mw, Pd, Qp};
use oxverbs::ffi_core::uverbs_abi::types::{
    AccessFlags, AdviseMrAdvice, AdviseMrFlags, MwType, PortAttrEx, Sge,
};
use oxverbs::ffi_core::uverbs_abi::udata::rxe::CreateAhResp;
use oxverbs::ffi_core::uverbs_abi::write::ah::{AhAttr, GlobalRoute};
use oxverbs::ffi_core::uverbs_abi::write::device::{ExQueryDeviceResp, QueryDeviceResp};
use oxverbs::ffi_core::{DmabufMr, Errno, UserMr};

use crate::abi::attr::{ibv_ah_attr, ibv_device_attr, ibv_device_attr_ex, ibv_port_attr};
use crate::abi::driver::{IBV_MR_TYPE_DMABUF_MR, IBV_MR_TYPE_MR, verbs_mr};
use crate::abi::objects::{ibv_ah, ibv_context, ibv_gid, ibv_mw, ibv_pd, ibv_qp};
use crate::abi::release::{Layout, Op};
use crate::abi::work::ibv_sge;
use crate::context::{free_context, uctx};
use crate::door::control;
use crate::library::library;
use crate::{cq, log, qp, srq};

/// A slot of `verbs_context_ops`; unset ones are answered by libibverbs with `EOPNOTSUPP`.
pub(crate) type Slot = Option<NonNull<c_void>>;

/// `verbs_context_ops` as a release reads it.
pub(crate) fn table(layout: &Layout) -> Vec<Slot> {
    let ours: &[(Op, *const ())] = &[
        (Op::advise_mr, advise_mr as *const ()),
        (Op::alloc_mw, alloc_mw as *const ()),
        (Op::alloc_pd, alloc_pd as *const ()),
        (Op::attach_mcast, attach_mcast as *const ()),
        (Op::bind_mw, qp::bind_mw as *const ()),
        (Op::create_ah, create_ah as *const ()),
        (Op::create_cq, cq::create_cq as *const ()),
        (Op::create_cq_ex, cq::create_cq_ex as *const ()),
        (Op::create_qp, qp::create_qp as *const ()),
        (Op::create_qp_ex, qp::create_qp_ex as *const ()),
        (Op::create_srq, srq::create_srq as *const ()),
        (Op::create_srq_ex, srq::create_srq_ex as *const ()),
        (Op::dealloc_mw, dealloc_mw as *const ()),
        (Op::dealloc_pd, dealloc_pd as *const ()),
        (Op::dereg_mr, dereg_mr as *const ()),
        (Op::destroy_ah, destroy_ah as *const ()),
        (Op::destroy_cq, cq::destroy_cq as *const ()),
        (Op::destroy_qp, qp::destroy_qp as *const ()),
        (Op::destroy_srq, srq::destroy_srq as *const ()),
        (Op::detach_mcast, detach_mcast as *const ()),
        (Op::free_context, free_context as *const ()),
        (Op::modify_qp, qp::modify_qp as *const ()),
        (Op::modify_srq, srq::modify_srq as *const ()),
        (Op::poll_cq, cq::poll_cq as *const ()),
        (Op::post_recv, qp::post_recv as *const ()),
        (Op::post_send, qp::post_send as *const ()),
        (Op::post_srq_recv, srq::post_srq_recv as *const ()),
        (Op::query_device_ex, query_device_ex as *const ()),
        (Op::query_port, query_port as *const ()),
        (Op::query_qp, qp::query_qp as *const ()),
        (Op::query_srq, srq::query_srq as *const ()),
        (Op::reg_dmabuf_mr, reg_dmabuf_mr as *const ()),
        (Op::reg_mr, reg_mr as *const ()),
        (Op::req_notify_cq, cq::req_notify_cq as *const ()),
        (Op::resize_cq, cq::resize_cq as *const ()),
    ];
    let mut table = vec![None; layout.ops];
    for &(op, function) in ours {
        if let Some(slot) = layout.slot(op) {
            table[slot] = NonNull::new(function.cast_mut().cast());
        }
    }
    table
}

/// What the kernel's answer to a destroy means to the program. `None`: the device is gone, its objects with it, and
/// libibverbs was told to bear that; there are no events to wait for.
pub(crate) fn destroyed<T>(result: Result<T, Errno>) -> Result<Option<T>, Errno> {
    match result {
        Ok(answer) => Ok(Some(answer)),
        Err(Errno(libc::EIO)) if library().is_some_and(|l| l.allows_disassociate()) => Ok(None),
        Err(errno) => Err(errno),
    }
}

// ---- device and port ----

fn firmware(version: u64) -> [c_char; 64] {
    let text = format!(
        "{}.{}.{}",
        version >> 32 & 0xffff,
        version >> 16 & 0xffff,
        version & 0xffff
    );
    let mut field = [0; 64];
    for (place, byte) in field.iter_mut().zip(text.bytes()) {
        *place = byte as c_char;
    }
    field
}

fn old_attributes(from: &QueryDeviceResp) -> ibv_device_attr {
    ibv_device_attr {
        fw_ver: firmware(from.fw_ver),
        // both in network order
        node_guid: u64::from_ne_bytes(from.node_guid),
        sys_image_guid: u64::from_ne_bytes(from.sys_image_guid),
        max_mr_size: from.max_mr_size,
        page_size_cap: from.page_size_cap,
        vendor_id: from.vendor_id,
        vendor_part_id: from.vendor_part_id,
        hw_ver: from.hw_ver,
        max_qp: from.max_qp as c_int,
        max_qp_wr: from.max_qp_wr as c_int,
        device_cap_flags: from.device_cap_flags,
        max_sge: from.max_sge as c_int,
        max_sge_rd: from.max_sge_rd as c_int,
        max_cq: from.max_cq as c_int,
        max_cqe: from.max_cqe as c_int,
        max_mr: from.max_mr as c_int,
        max_pd: from.max_pd as c_int,
        max_qp_rd_atom: from.max_qp_rd_atom as c_int,
        max_ee_rd_atom: from.max_ee_rd_atom as c_int,
        max_res_rd_atom: from.max_res_rd_atom as c_int,
        max_qp_init_rd_atom: from.max_qp_init_rd_atom as c_int,
        max_ee_init_rd_atom: from.max_ee_init_rd_atom as c_int,
        atomic_cap: from.atomic_cap,
        max_ee: from.max_ee as c_int,
        max_rdd: from.max_rdd as c_int,
        max_mw: from.max_mw as c_int,
        max_raw_ipv6_qp: from.max_raw_ipv6_qp as c_int,
        max_raw_ethy_qp: from.max_raw_ethy_qp as c_int,
        max_mcast_grp: from.max_mcast_grp as c_int,
        max_mcast_qp_attach: from.max_mcast_qp_attach as c_int,
        max_total_mcast_qp_attach: from.max_total_mcast_qp_attach as c_int,
        max_ah: from.max_ah as c_int,
        max_fmr: from.max_fmr as c_int,
        max_map_per_fmr: from.max_map_per_fmr as c_int,
        max_srq: from.max_srq as c_int,
        max_srq_wr: from.max_srq_wr as c_int,
        max_srq_sge: from.max_srq_sge as c_int,
        max_pkeys: from.max_pkeys,
        local_ca_ack_delay: from.local_ca_ack_delay,
        phys_port_cnt: from.phys_port_cnt,
    }
}

fn attributes(from: &ExQueryDeviceResp) -> ibv_device_attr_ex {
    // SAFETY: numbers only; all-zero bytes are valid, padding included.
    let mut to: ibv_device_attr_ex = unsafe { std::mem::zeroed() };
    to.orig_attr = old_attributes(&from.base);
    to.odp_caps.general_caps = from.odp_caps.general_caps;
    to.odp_caps.rc_odp_caps = from.odp_caps.per_transport_caps.rc_odp_caps;
    to.odp_caps.uc_odp_caps = from.odp_caps.per_transport_caps.uc_odp_caps;
    to.odp_caps.ud_odp_caps = from.odp_caps.per_transport_caps.ud_odp_caps;
    to.completion_timestamp_mask = from.timestamp_mask;
    to.hca_core_clock = from.hca_core_clock;
    to.device_cap_flags_ex = from.device_cap_flags_ex;
    to.rss_caps.supported_qpts = from.rss_caps.supported_qpts;
    to.rss_caps.max_rwq_indirection_tables = from.rss_caps.max_rwq_indirection_tables;
    to.rss_caps.max_rwq_indirection_table_size = from.rss_caps.max_rwq_indirection_table_size;
    to.max_wq_type_rq = from.max_wq_type_rq;
    to.raw_packet_caps = from.raw_packet_caps;
    to.tm_caps.max_rndv_hdr_size = from.tm_caps.max_rndv_hdr_size;
    to.tm_caps.max_num_tags = from.tm_caps.max_num_tags;
    to.tm_caps.flags = from.tm_caps.flags;
    to.tm_caps.max_ops = from.tm_caps.max_ops;
    to.tm_caps.max_sge = from.tm_caps.max_sge;
    to.max_cq_count = from.cq_moderation_caps.max_cq_moderation_count;
    to.max_cq_period = from.cq_moderation_caps.max_cq_moderation_period;
    to.max_dm_size = from.max_dm_size;
    to.xrc_odp_caps = from.xrc_odp_caps;
    to.phys_port_cnt_ex = u32::from(from.base.phys_port_cnt);
    to
}

unsafe extern "C" fn query_device_ex(
    context: *mut ibv_context,
    input: *const u32,
    attr: *mut ibv_device_attr_ex,
    attr_size: usize,
) -> c_int {
    control("query_device", || {
        // SAFETY: if there is an input, its first word is its comp_mask.
        let comp_mask = unsafe { input.as_ref() }.copied().unwrap_or(0);
        if comp_mask != 0 || attr_size < size_of::<ibv_device_attr>() {
            return Err(Errno(libc::EINVAL));
        }
        // SAFETY: an open context (C1).
        let uctx = unsafe { uctx(context) }?;
        let answer = if attr_size == size_of::<ibv_device_attr>() {
            ExQueryDeviceResp {
                base: uctx.query_device()?,
                ..ExQueryDeviceResp::default()
            }
        } else {
            uctx.query_device_ex::<()>()?.attr
        };
        let answer = attributes(&answer);
        // SAFETY: the caller has `attr_size` bytes.
        unsafe { attr.cast::<u8>().write_bytes(0, attr_size) };
        let len = attr_size.min(size_of::<ibv_device_attr_ex>());
        let from = (&raw const answer).cast::<u8>();
        // SAFETY: as above; `answer` was zeroed with its padding and has at least `len` bytes.
        unsafe { from.copy_to_nonoverlapping(attr.cast(), len) };
        Ok(())
    })
}

fn port_attributes(from: &PortAttrEx) -> ibv_port_attr {
    let old = &from.legacy_resp;
    ibv_port_attr {
        state: c_uint::from(old.state),
        max_mtu: c_uint::from(old.max_mtu),
        active_mtu: c_uint::from(old.active_mtu),
        gid_tbl_len: old.gid_tbl_len as c_int,
        port_cap_flags: old.port_cap_flags,
        max_msg_sz: old.max_msg_sz,
        bad_pkey_cntr: old.bad_pkey_cntr,
        qkey_viol_cntr: old.qkey_viol_cntr,
        pkey_tbl_len: old.pkey_tbl_len,
        lid: old.lid,
        sm_lid: old.sm_lid,
        lmc: old.lmc,
        max_vl_num: old.max_vl_num,
        sm_sl: old.sm_sl,
        subnet_timeout: old.subnet_timeout,
        init_type_reply: old.init_type_reply,
        active_width: old.active_width,
        active_speed: old.active_speed,
        phys_state: old.phys_state,
        link_layer: old.link_layer,
        flags: old.flags.0,
        port_cap_flags2: from.port_cap_flags2,
        active_speed_ex: from.active_speed_ex,
    }
}

unsafe extern "C" fn query_port(
    context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
) -> c_int {
    control("query_port", || {
        // SAFETY: an open context (C1).
        let answer = port_attributes(&unsafe { uctx(context) }?.query_port(port)?);
        let layout = library().ok_or(Errno(libc::ENOSYS))?.layout;
        let from = (&raw const answer).cast::<u8>();
        // Callers built before release 49 have four bytes less.
        // SAFETY: the caller has as many bytes as its release's struct; the struct has no padding.
        unsafe { from.copy_to_nonoverlapping(attr.cast(), layout.port_attr_size) };
        Ok(())
    })
}

// ---- protection domains and memory ----

unsafe extern "C" fn alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    control("alloc_pd", || {
        // SAFETY: an open context (C1).
        let (handle, ()) = unsafe { uctx(context) }?.alloc_pd()?;
        Ok(Box::into_raw(Box::new(ibv_pd {
            context,
            handle: handle.0,
        })))
    })
}

unsafe extern "C" fn dealloc_pd(pd: *mut ibv_pd) -> c_int {
    control("dealloc_pd", || {
        let (context, handle) = {
            // SAFETY: a protection domain of ours (C1).
            let object = unsafe { &*pd };
            (object.context, object.handle)
        };
        // SAFETY: its context is open.
        destroyed(unsafe { uctx(context) }?.dealloc_pd(Pd(handle)))?;
        // SAFETY: made by `alloc_pd`, and gone for the kernel and the program.
        drop(unsafe { Box::from_raw(pd) });
        Ok(())
    })
}

/// Context and handle of a protection domain.
///
/// # Safety
///
/// It is one of ours (C1).
pub(crate) unsafe fn of_pd(pd: *mut ibv_pd) -> (*mut ibv_context, Pd) {
    // SAFETY: alive by the caller's promise.
    let pd = unsafe { &*pd };
    (pd.context, Pd(pd.handle))
}

fn new_mr(
    context: *mut ibv_context,
    keys: oxverbs::ffi_core::MrKeys,
    mr_type: c_uint,
    access: c_int,
) -> *mut verbs_mr {
    // SAFETY: all-zero is a valid `verbs_mr`.
    let mut mr: verbs_mr = unsafe { std::mem::zeroed() };
    mr.ibv_mr.context = context;
    mr.ibv_mr.handle = keys.handle.0;
    mr.ibv_mr.lkey = keys.lkey;
    mr.ibv_mr.rkey = keys.rkey;
    mr.mr_type = mr_type;
    mr.access = access;
    Box::into_raw(Box::new(mr))
}

unsafe extern "C" fn reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    hca_va: u64,
    access: c_int,
) -> *mut verbs_mr {
    control("reg_mr", || {
        // SAFETY: a protection domain of ours (C1).
        let (context, pd) = unsafe { of_pd(pd) };
        let mr = UserMr {
            pd,
            start: addr.expose_provenance() as u64,
            length: length as u64,
            hca_va,
            access: AccessFlags(access as u32),
        };
        // SAFETY: an open context.
        let uctx = unsafe { uctx(context) }?;
        // SAFETY: what C programs register is theirs, and they know what it means.
        let keys = unsafe { uctx.reg_mr(&mr) }?;
        Ok(new_mr(context, keys, IBV_MR_TYPE_MR, access))
    })
}

unsafe extern "C" fn reg_dmabuf_mr(
    pd: *mut ibv_pd,
    offset: u64,
    length: usize,
    iova: u64,
    fd: c_int,
    access: c_int,
) -> *mut verbs_mr {
    control("reg_dmabuf_mr", || {
        // SAFETY: a protection domain of ours (C1).
        let (context, pd) = unsafe { of_pd(pd) };
        let mr = DmabufMr {
            pd,
            offset,
            length: length as u64,
            iova,
            fd,
            access: AccessFlags(access as u32),
        };
        // SAFETY: an open context.
        let keys = unsafe { uctx(context) }?.reg_dmabuf_mr(&mr)?;
        Ok(new_mr(context, keys, IBV_MR_TYPE_DMABUF_MR, access))
    })
}

unsafe extern "C" fn dereg_mr(mr: *mut verbs_mr) -> c_int {
    control("dereg_mr", || {
        let (context, handle) = {
            // SAFETY: a region of ours (C1).
            let object = unsafe { &*mr };
            (object.ibv_mr.context, object.ibv_mr.handle)
        };
        // SAFETY: its context is open.
        destroyed(unsafe { uctx(context) }?.dereg_mr(Mr(handle)))?;
        // SAFETY: made by `new_mr`, and gone for the kernel and the program.
        drop(unsafe { Box::from_raw(mr) });
        Ok(())
    })
}

unsafe extern "C" fn advise_mr(
    pd: *mut ibv_pd,
    advice: c_uint,
    flags: u32,
    list: *mut ibv_sge,
    count: u32,
) -> c_int {
    control("advise_mr", || {
        // SAFETY: a protection domain of ours (C1).
        let (context, pd) = unsafe { of_pd(pd) };
        // SAFETY: `count` elements by the verb's contract.
        let list = unsafe { slice(list.cast_const(), count as usize) };
        let list: Vec<Sge> = list
            .iter()
            .map(|sge| Sge {
                addr: sge.addr,
                length: sge.length,
                lkey: sge.lkey,
            })
            .collect();
        // SAFETY: an open context.
        let uctx = unsafe { uctx(context) }?;
        uctx.advise_mr(pd, AdviseMrAdvice(advice), AdviseMrFlags(flags), &list)
    })
}

unsafe extern "C" fn alloc_mw(pd: *mut ibv_pd, mw_type: c_uint) -> *mut ibv_mw {
    control("alloc_mw", || {
        // SAFETY: a protection domain of ours (C1).
        let (context, handle) = unsafe { of_pd(pd) };
        let kind = u8::try_from(mw_type).map_err(|_| Errno(libc::EINVAL))?;
        // SAFETY: an open context.
        let keys = unsafe { uctx(context) }?.alloc_mw(handle, MwType(kind))?;
        Ok(Box::into_raw(Box::new(ibv_mw {
            context,
            pd,
            rkey: keys.rkey,
            handle: keys.handle.0,
            r#type: mw_type,
        })))
    })
}

unsafe extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    control("dealloc_mw", || {
        let (context, handle) = {
            // SAFETY: a window of ours (C1).
            let object = unsafe { &*mw };
            (object.context, object.handle)
        };
        // SAFETY: its context is open.
        destroyed(unsafe { uctx(context) }?.dealloc_mw(Mw(handle)))?;
        // SAFETY: made by `alloc_mw`, and gone for the kernel and the program.
        drop(unsafe { Box::from_raw(mw) });
        Ok(())
    })
}

// ---- addresses and multicast ----

/// An address handle and its number in datagrams.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct AddressHandle {
    ibv: ibv_ah,
    pub(crate) ah_num: u32,
}

unsafe extern "C" fn create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut AddressHandle {
    control("create_ah", || {
        // SAFETY: a protection domain of ours (C1).
        let (context, pd_handle) = unsafe { of_pd(pd) };
        // SAFETY: the caller's attributes.
        let attr = unsafe { &*attr };
        // SAFETY: an open context.
        let uctx = unsafe { uctx(context) }?;
        let mut ah = Box::new(AddressHandle {
            ibv: ibv_ah {
                context,
                pd,
                handle: 0,
            },
            ah_num: 0,
        });
        let user_handle = (&raw const *ah).expose_provenance() as u64;
        let (handle, answer) =
            uctx.create_ah::<CreateAhResp>(pd_handle, user_handle, &path(attr))?;
        ah.ibv.handle = handle.0;
        ah.ah_num = answer.ah_num;
        if answer.ah_num == 0 {
            // Before 5.16 the kernel wants the resolved path in each datagram.
            log::always(format_args!(
                "create_ah: this kernel's rxe does not number address handles (needs Linux 5.16)"
            ));
            uctx.destroy_ah(handle)?;
            return Err(Errno(libc::EOPNOTSUPP));
        }
        Ok(Box::into_raw(ah))
    })
}

fn path(attr: &ibv_ah_attr) -> AhAttr {
    AhAttr {
        grh: GlobalRoute {
            dgid: attr.grh.dgid.raw,
            flow_label: attr.grh.flow_label,
            sgid_index: attr.grh.sgid_index,
            hop_limit: attr.grh.hop_limit,
            traffic_class: attr.grh.traffic_class,
            ..GlobalRoute::default()
        },
        dlid: attr.dlid,
        sl: attr.sl,
        src_path_bits: attr.src_path_bits,
        static_rate: attr.static_rate,
        is_global: attr.is_global,
        port_num: attr.port_num,
        ..AhAttr::default()
    }
}

unsafe extern "C" fn destroy_ah(ah: *mut AddressHandle) -> c_int {
    control("destroy_ah", || {
        let (context, handle) = {
            // SAFETY: an address handle of ours (C1).
            let object = unsafe { &*ah };
            (object.ibv.context, object.ibv.handle)
        };
        // SAFETY: its context is open.
        destroyed(unsafe { uctx(context) }?.destroy_ah(Ah(handle)))?;
        // SAFETY: made by `create_ah`, and gone for the kernel and the program.
        drop(unsafe { Box::from_raw(ah) });
        Ok(())
    })
}

unsafe extern "C" fn attach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int {
    control("attach_mcast", || {
        let (context, handle) = {
            // SAFETY: a queue pair of ours (C1).
            let object = unsafe { &*qp };
            (object.context, object.handle)
        };
        // SAFETY: the caller's GID.
        let gid = unsafe { *gid };
        // SAFETY: an open context.
        unsafe { uctx(context) }?.attach_mcast(Qp(handle), gid.raw, lid)
    })
}

unsafe extern "C" fn detach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int {
    control("detach_mcast", || {
        let (context, handle) = {
            // SAFETY: a queue pair of ours (C1).
            let object = unsafe { &*qp };
            (object.context, object.handle)
        };
        // SAFETY: the caller's GID.
        let gid = unsafe { *gid };
        // SAFETY: an open context.
        let uctx = unsafe { uctx(context) }?;
        destroyed(uctx.detach_mcast(Qp(handle), gid.raw, lid)).map(drop)
    })
}

/// A C array, which may be null if it is empty.
///
/// # Safety
///
/// `count` readable elements that stay as they are for `'a`, unless `count` is 0.
#[inline]
pub(crate) unsafe fn slice<'a, T>(start: *const T, count: usize) -> &'a [T] {
    if count == 0 || start.is_null() {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(start, count) }
}
