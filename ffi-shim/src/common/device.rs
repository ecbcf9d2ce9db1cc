//! Attributes of devices and ports.

use std::ffi::{c_char, c_int, c_uint};
use std::fmt;

use oxverbs::ffi_core::Errno;
use oxverbs::ffi_core::uverbs_abi::types::PortAttrEx;
use oxverbs::ffi_core::uverbs_abi::write::device::{ExQueryDeviceResp, QueryDeviceResp};
use zerocopy::{FromBytes, FromZeros};

use crate::abi::attr::{ibv_device_attr, ibv_device_attr_ex, ibv_port_attr};
use crate::abi::objects::ibv_context;
use crate::context::uctx;
use crate::door::control;
use crate::library::library;

/// Writes a text into a zeroed field of C's, as much of it as fits before the terminator.
pub(crate) fn put_text(field: &mut [c_char; 64], text: fmt::Arguments<'_>) {
    *field = [0; 64];
    for (place, byte) in field[..63].iter_mut().zip(text.to_string().bytes()) {
        *place = byte as c_char;
    }
}

fn firmware(version: u64) -> [c_char; 64] {
    let mut field = [0; 64];
    put_text(
        &mut field,
        format_args!(
            "{}.{}.{}",
            version >> 32 & 0xffff,
            version >> 16 & 0xffff,
            version & 0xffff
        ),
    );
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

pub(crate) fn attributes(from: &ExQueryDeviceResp) -> ibv_device_attr_ex {
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

/// Asks the kernel for a device's attributes, with the driver's part `O`, for a caller of `ibv_query_device_ex` who has
/// `attr_size` bytes. With room for the plain attributes only, it asks for no more.
///
/// # Safety
///
/// The verb's arguments (C1).
pub(crate) unsafe fn query<O: FromZeros + FromBytes>(
    context: *mut ibv_context,
    input: *const u32,
    attr_size: usize,
) -> Result<(ExQueryDeviceResp, O), Errno> {
    // SAFETY: if there is an input, its first word is its comp_mask.
    let comp_mask = unsafe { input.as_ref() }.copied().unwrap_or(0);
    if comp_mask != 0 || attr_size < size_of::<ibv_device_attr>() {
        return Err(Errno(libc::EINVAL));
    }
    // SAFETY: an open context (C1).
    let uctx = unsafe { uctx(context) }?;
    if attr_size > size_of::<ibv_device_attr>() {
        let answer = uctx.query_device_ex::<O>()?;
        return Ok((answer.attr, answer.udata));
    }
    let core = ExQueryDeviceResp {
        base: uctx.query_device()?,
        ..ExQueryDeviceResp::default()
    };
    Ok((core, O::new_zeroed()))
}

/// Gives a caller as much of the attributes as it has room for, and zeroes the rest of its memory.
///
/// # Safety
///
/// `attr` has `attr_size` writable bytes; `answer` was zeroed with its padding.
pub(crate) unsafe fn give_attributes(
    answer: &ibv_device_attr_ex,
    attr: *mut ibv_device_attr_ex,
    attr_size: usize,
) {
    // SAFETY: the caller's promise.
    unsafe { attr.cast::<u8>().write_bytes(0, attr_size) };
    let len = attr_size.min(size_of::<ibv_device_attr_ex>());
    let from = (&raw const *answer).cast::<u8>();
    // SAFETY: as above; `answer` has at least `len` bytes.
    unsafe { from.copy_to_nonoverlapping(attr.cast(), len) };
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

pub(crate) unsafe extern "C" fn query_port(
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
