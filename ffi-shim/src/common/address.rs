//! Addresses and multicast groups.

use std::ffi::c_int;

use oxverbs::ffi_core::uverbs_abi::handle::Qp;
use oxverbs::ffi_core::uverbs_abi::write::ah::{AhAttr, GlobalRoute};

use crate::abi::attr::ibv_ah_attr;
use crate::abi::objects::{ibv_gid, ibv_qp};
use crate::common::destroyed;
use crate::context::uctx;
use crate::door::control;

pub(crate) fn path(attr: &ibv_ah_attr) -> AhAttr {
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

pub(crate) unsafe extern "C" fn attach_mcast(
    qp: *mut ibv_qp,
    gid: *const ibv_gid,
    lid: u16,
) -> c_int {
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

pub(crate) unsafe extern "C" fn detach_mcast(
    qp: *mut ibv_qp,
    gid: *const ibv_gid,
    lid: u16,
) -> c_int {
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
