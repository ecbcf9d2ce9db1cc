//! mlx5: ConnectX adapters.
//!
//! A shared object with the official provider is not what a program that links `libmlx5.so.1` gets (it registers itself
//! first), so these devices are ours on request only: see [`Claim::OnRequest`].

use std::sync::Arc;

use oxverbs::ffi_core::mlx5_control::environment::Environment;
use oxverbs::ffi_core::mlx5_control::{self as core, Mlx5Context, OpenError};
use oxverbs::ffi_core::uverbs_abi::types::DriverId;
use oxverbs::ffi_core::{Errno, MLX5_DEVICE_IDS, Uctx};

use crate::abi::driver::{verbs_device_ops, verbs_match_ent};
use crate::abi::release::Op;
use crate::common::{Entry, address, device as any_device, memory as any_memory};
use crate::context::{Family, Make, Opened, free_context};
use crate::lock::Threads;
use crate::log;
use crate::provider::{Claim, Static, device_ops, match_driver, match_end, match_pci};

mod ah;
mod counters;
mod cq;
mod device;
mod dm;
mod domain;
#[cfg(feature = "drop-in")]
mod dv;
mod flow;
mod memory;
mod qp;
mod srq;
mod wq;
mod xrc;

/// The file beside the plug-in that `cargo xtask install --mlx5` makes.
const MARKER: &str = "claim-mlx5";

/// What an open mlx5 device keeps.
#[derive(Debug)]
pub(crate) struct Mlx5 {
    context: Arc<Mlx5Context>,
    /// Address of the page where completion queues are armed, for programs that arm them themselves.
    #[cfg(feature = "drop-in")]
    arming_page: Box<usize>,
    /// Numbers that the program keeps from queue pairs; the kernel frees them with the context.
    #[cfg(feature = "drop-in")]
    reserved: dv::numbers::Reserved,
}

impl Mlx5 {
    /// The core's context.
    pub(crate) fn context(&self) -> &Arc<Mlx5Context> {
        &self.context
    }

    /// Where the address of the page is kept, on which completion queues are armed, as long as the device is open.
    #[cfg(feature = "drop-in")]
    pub(crate) fn arming_page(&self) -> *const usize {
        &raw const *self.arming_page
    }

    /// Numbers that the program keeps from queue pairs.
    #[cfg(feature = "drop-in")]
    pub(crate) fn reserved(&self) -> &dv::numbers::Reserved {
        &self.reserved
    }

    /// How many threads its queues are used from, but for what a program says of single ones.
    pub(crate) fn threads(&self) -> Threads {
        if self.context.environment().single_threaded {
            Threads::One
        } else {
            Threads::Many
        }
    }

    fn made_by(
        make: fn(Uctx, Environment) -> Result<core::Opened, OpenError>,
        uctx: Uctx,
    ) -> Result<Opened<Self>, Errno> {
        let environment = Environment::of_process();
        for warning in environment.warnings() {
            log::always(format_args!("{warning}"));
        }
        let opened = make(uctx, environment).map_err(|error| {
            if !matches!(error, OpenError::Kernel(_)) {
                log::always(format_args!("{error}"));
            }
            Errno::from(error)
        })?;
        Ok(Opened {
            num_comp_vectors: opened.num_comp_vectors,
            core_support: opened.core_support,
            async_event: opened.async_event,
            family: Self {
                #[cfg(feature = "drop-in")]
                arming_page: Box::new(
                    opened
                        .context
                        .uars()
                        .cq_page()
                        .0
                        .as_ptr()
                        .expose_provenance(),
                ),
                #[cfg(feature = "drop-in")]
                reserved: dv::numbers::Reserved::default(),
                context: opened.context,
            },
        })
    }

    /// The key of memory that is not there, if the device has one.
    pub(crate) fn null_lkey(&self) -> Option<u32> {
        self.context.limits().dump_fill_mkey
    }
}

/// PCI vendor of all of them; compared, with the device's id, where the kernel does not say the driver.
const MELLANOX: u16 = 0x15b3;
static MATCHES: Static<[verbs_match_ent; MLX5_DEVICE_IDS.len() + 2]> = Static({
    let mut table = [match_end(); MLX5_DEVICE_IDS.len() + 2];
    table[0] = match_driver(DriverId::MLX5);
    let mut index = 0;
    while index < MLX5_DEVICE_IDS.len() {
        table[index + 1] = match_pci(MELLANOX, MLX5_DEVICE_IDS[index]);
        index += 1;
    }
    table
});

/// What libibverbs registers. mlx5_ib has had one kernel ABI.
pub(crate) static DEVICE_OPS: Static<verbs_device_ops> = Static(device_ops::<Mlx5>(
    c"oxverbs-mlx5",
    1,
    1,
    (&raw const MATCHES).cast(),
));

impl Family for Mlx5 {
    const DRIVER: DriverId = DriverId::MLX5;
    const CLAIM: Claim = if cfg!(feature = "drop-in") {
        Claim::UnlessOthersAreNamed
    } else {
        Claim::OnRequest(MARKER)
    };

    const IMPORT: Option<Make<Self>> = Some(|uctx| Self::made_by(Mlx5Context::import, uctx));

    fn open(uctx: Uctx) -> Result<Opened<Self>, Errno> {
        Self::made_by(Mlx5Context::open, uctx)
    }

    fn uctx(&self) -> &Uctx {
        self.context.uctx()
    }

    fn operations() -> &'static [Entry] {
        OPERATIONS.0
    }
}

static OPERATIONS: Static<&[Entry]> = Static(&[
    (Op::advise_mr, any_memory::advise_mr as *const ()),
    (Op::alloc_dm, dm::alloc_dm as *const ()),
    (Op::alloc_mw, any_memory::alloc_mw as *const ()),
    (Op::alloc_null_mr, memory::alloc_null_mr as *const ()),
    (
        Op::alloc_parent_domain,
        domain::alloc_parent_domain as *const (),
    ),
    (Op::alloc_pd, domain::alloc_pd as *const ()),
    (Op::alloc_td, domain::alloc_td as *const ()),
    (Op::attach_mcast, address::attach_mcast as *const ()),
    (
        Op::attach_counters_point_flow,
        counters::attach_counters_point_flow as *const (),
    ),
    (Op::bind_mw, qp::bind_mw as *const ()),
    (Op::close_xrcd, xrc::close_xrcd as *const ()),
    (Op::cq_event, cq::cq_event as *const ()),
    (Op::create_ah, ah::create_ah as *const ()),
    (Op::create_counters, counters::create_counters as *const ()),
    (Op::create_cq, cq::create_cq as *const ()),
    (Op::create_cq_ex, cq::create_cq_ex as *const ()),
    (Op::create_flow, flow::create_flow as *const ()),
    (Op::create_qp, qp::create_qp as *const ()),
    (Op::create_qp_ex, qp::create_qp_ex as *const ()),
    (
        Op::create_rwq_ind_table,
        wq::create_rwq_ind_table as *const (),
    ),
    (Op::create_srq, srq::create_srq as *const ()),
    (Op::create_srq_ex, srq::create_srq_ex as *const ()),
    (Op::create_wq, wq::create_wq as *const ()),
    (Op::dealloc_mw, any_memory::dealloc_mw as *const ()),
    (Op::dealloc_pd, domain::dealloc_pd as *const ()),
    (Op::dealloc_td, domain::dealloc_td as *const ()),
    (Op::dereg_mr, memory::dereg_mr as *const ()),
    (Op::destroy_ah, ah::destroy_ah as *const ()),
    (
        Op::destroy_counters,
        counters::destroy_counters as *const (),
    ),
    (Op::destroy_cq, cq::destroy_cq as *const ()),
    (Op::destroy_flow, flow::destroy_flow as *const ()),
    #[cfg(feature = "drop-in")]
    (
        Op::destroy_flow_action,
        dv::flow::destroy_flow_action as *const (),
    ),
    (Op::destroy_qp, qp::destroy_qp as *const ()),
    (
        Op::destroy_rwq_ind_table,
        wq::destroy_rwq_ind_table as *const (),
    ),
    (Op::destroy_srq, srq::destroy_srq as *const ()),
    (Op::destroy_wq, wq::destroy_wq as *const ()),
    (Op::detach_mcast, address::detach_mcast as *const ()),
    (Op::free_context, free_context::<Mlx5> as *const ()),
    (Op::free_dm, dm::free_dm as *const ()),
    (Op::get_srq_num, srq::get_srq_num as *const ()),
    (Op::import_dm, dm::import_dm as *const ()),
    (Op::import_mr, memory::import_mr as *const ()),
    (Op::import_pd, domain::import_pd as *const ()),
    (Op::modify_cq, cq::modify_cq as *const ()),
    (Op::modify_qp, qp::modify_qp as *const ()),
    (
        Op::modify_qp_rate_limit,
        qp::modify_qp_rate_limit as *const (),
    ),
    (Op::modify_srq, srq::modify_srq as *const ()),
    (Op::modify_wq, wq::modify_wq as *const ()),
    (Op::open_qp, qp::open_qp as *const ()),
    (Op::open_xrcd, xrc::open_xrcd as *const ()),
    (Op::poll_cq, cq::poll_cq as *const ()),
    (Op::post_recv, qp::post_recv as *const ()),
    (Op::post_send, qp::post_send as *const ()),
    (Op::post_srq_ops, srq::post_srq_ops as *const ()),
    (Op::post_srq_recv, srq::post_srq_recv as *const ()),
    (Op::query_device_ex, device::query_device_ex as *const ()),
    (Op::query_ece, qp::query_ece as *const ()),
    (Op::query_port, any_device::query_port as *const ()),
    (Op::query_qp, qp::query_qp as *const ()),
    (Op::query_rt_values, device::query_rt_values as *const ()),
    (Op::query_srq, srq::query_srq as *const ()),
    (Op::read_counters, counters::read_counters as *const ()),
    (Op::reg_dm_mr, dm::reg_dm_mr as *const ()),
    (Op::reg_dmabuf_mr, any_memory::reg_dmabuf_mr as *const ()),
    (Op::reg_mr, any_memory::reg_mr as *const ()),
    (Op::req_notify_cq, cq::req_notify_cq as *const ()),
    (Op::rereg_mr, memory::rereg_mr as *const ()),
    (Op::resize_cq, cq::resize_cq as *const ()),
    (Op::set_ece, qp::set_ece as *const ()),
    (Op::unimport_dm, dm::unimport_dm as *const ()),
    (Op::unimport_mr, memory::unimport_mr as *const ()),
    (Op::unimport_pd, domain::unimport_pd as *const ()),
]);
