//! rxe: devices of Linux' software RDMA driver.

use oxverbs::ffi_core::uverbs_abi::types::DriverId;
use oxverbs::ffi_core::{Errno, Uctx};

use crate::abi::driver::verbs_device_ops;
use crate::abi::release::Op;
use crate::common::{Entry, address, device as any_device, memory};
use crate::context::{Family, Opened, free_context};
use crate::provider::{Claim, Static, device_ops, match_driver, match_end, match_name};

mod ah;
mod cq;
mod device;
mod qp;
mod srq;

/// What an open rxe device keeps.
#[derive(Debug)]
pub(crate) struct Rxe {
    uctx: Uctx,
}

static MATCHES: Static<[crate::abi::driver::verbs_match_ent; 3]> = Static([
    match_driver(DriverId::RXE),
    // What libibverbs compares where the kernel does not say the driver: the device's name.
    match_name(c"rdma_device:Nrxe*"),
    match_end(),
]);

/// What libibverbs registers. rxe's kernel ABI: 2 since Linux 4.18, 1 before (equal on 64-bit).
pub(crate) static DEVICE_OPS: Static<verbs_device_ops> = Static(device_ops::<Rxe>(
    c"oxverbs",
    1,
    2,
    &raw const MATCHES.0 as *const _,
));

impl Family for Rxe {
    const DRIVER: DriverId = DriverId::RXE;
    const CLAIM: Claim = Claim::UnlessOthersAreNamed;

    fn open(uctx: Uctx) -> Result<Opened<Self>, Errno> {
        let info = uctx.get_context::<()>()?;
        Ok(Opened {
            num_comp_vectors: info.num_comp_vectors,
            core_support: info.core_support,
            async_event: info.async_event,
            family: Self { uctx },
        })
    }

    fn uctx(&self) -> &Uctx {
        &self.uctx
    }

    fn operations() -> &'static [Entry] {
        OPERATIONS.0
    }
}

static OPERATIONS: Static<&[Entry]> = Static(&[
    (Op::advise_mr, memory::advise_mr as *const ()),
    (Op::alloc_mw, memory::alloc_mw as *const ()),
    (Op::alloc_pd, device::alloc_pd as *const ()),
    (Op::attach_mcast, address::attach_mcast as *const ()),
    (Op::bind_mw, qp::bind_mw as *const ()),
    (Op::create_ah, ah::create_ah as *const ()),
    (Op::create_cq, cq::create_cq as *const ()),
    (Op::create_cq_ex, cq::create_cq_ex as *const ()),
    (Op::create_qp, qp::create_qp as *const ()),
    (Op::create_qp_ex, qp::create_qp_ex as *const ()),
    (Op::create_srq, srq::create_srq as *const ()),
    (Op::create_srq_ex, srq::create_srq_ex as *const ()),
    (Op::dealloc_mw, memory::dealloc_mw as *const ()),
    (Op::dealloc_pd, device::dealloc_pd as *const ()),
    (Op::dereg_mr, memory::dereg_mr as *const ()),
    (Op::destroy_ah, ah::destroy_ah as *const ()),
    (Op::destroy_cq, cq::destroy_cq as *const ()),
    (Op::destroy_qp, qp::destroy_qp as *const ()),
    (Op::destroy_srq, srq::destroy_srq as *const ()),
    (Op::detach_mcast, address::detach_mcast as *const ()),
    (Op::free_context, free_context::<Rxe> as *const ()),
    (Op::modify_qp, qp::modify_qp as *const ()),
    (Op::modify_srq, srq::modify_srq as *const ()),
    (Op::poll_cq, cq::poll_cq as *const ()),
    (Op::post_recv, qp::post_recv as *const ()),
    (Op::post_send, qp::post_send as *const ()),
    (Op::post_srq_recv, srq::post_srq_recv as *const ()),
    (Op::query_device_ex, device::query_device_ex as *const ()),
    (Op::query_port, any_device::query_port as *const ()),
    (Op::query_qp, qp::query_qp as *const ()),
    (Op::query_srq, srq::query_srq as *const ()),
    (Op::reg_dmabuf_mr, memory::reg_dmabuf_mr as *const ()),
    (Op::reg_mr, memory::reg_mr as *const ()),
    (Op::req_notify_cq, cq::req_notify_cq as *const ()),
    (Op::resize_cq, cq::resize_cq as *const ()),
]);
