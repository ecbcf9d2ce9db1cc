//! [`Extras`] by the core, of mlx5.

use oxverbs::control::mlx5::special::{BareQp, RssRequest};
use oxverbs::control::mlx5::wq::{TableObject, WqObject, WqRequest, WqState};
use oxverbs::data::mlx5::RecvQueue;
use uverbs_abi::types::QpType;
use uverbs_abi::udata::mlx5::{CreateQpFlags, RxHashFields, RxHashFunction};
use uverbs_abi::write::flow::{EthFilter, FlowAttr, FlowSpecEth, FlowSpecHdr};
use uverbs_abi::write::wq::ExModifyWq;
use zerocopy::IntoBytes;

use super::mlx5::Mlx5;
use super::*;
use crate::verbs::extras::{Clock, Extras, SpreadInit, Timed};

/// `IB_FLOW_SPEC_ETH` (`include/rdma/ib_verbs.h`, which uapi has no name for).
const ETH: u32 = 0x20;
/// `IBV_WQ_STATE` of the mask of a change.
const WQ_STATE: u32 = 1;
/// Addresses and ports of UDP over IPv4.
const FIELDS: RxHashFields = RxHashFields(
    RxHashFields::SRC_IPV4.0
        | RxHashFields::DST_IPV4.0
        | RxHashFields::SRC_PORT_UDP.0
        | RxHashFields::DST_PORT_UDP.0,
);
/// The key of "Verifying the RSS hash calculation", Microsoft's documentation of network drivers.
const KEY: [u8; 40] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0,
    0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c,
    0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
];

/// Work queues with a table, who spreads packets over them, and which. Each goes before what it uses.
#[derive(Debug)]
pub(super) struct Spread {
    _rule: Rule,
    _qp: BareQp,
    _table: TableObject,
    _queues: Vec<(WqObject, RecvQueue)>,
}

#[derive(Debug)]
struct Rule {
    handle: handle::Flow,
    context: Arc<Mlx5Context>,
}

impl Drop for Rule {
    fn drop(&mut self) {
        // What cannot be destroyed keeps its queue pair, whose end says so.
        let _ = self.context.uctx().destroy_flow(self.handle);
    }
}

impl Extras for Core {
    fn null_key(&self) -> Option<u32> {
        self.mlx5.as_ref()?.context.limits().dump_fill_mkey
    }

    fn clock(&self) -> Answer<Option<Clock>> {
        let ticks = self
            .mlx5
            .as_ref()
            .and_then(|mlx5| mlx5.context.read_clock());
        let Some(ticks) = ticks else {
            return Ok(None);
        };
        let device = self.uctx.query_device_ex::<()>();
        let device = device.map_err(|errno| fault("query the device", errno))?;
        let khz = device.attr.hca_core_clock;
        Ok((khz != 0).then_some(Clock { ticks, khz }))
    }

    fn knows_wall_clock(&self) -> bool {
        let mlx5 = self.mlx5.as_ref();
        mlx5.is_some_and(|mlx5| mlx5.context.clock_page().is_some())
    }

    fn create_timed_cq(&self, cqe: u32) -> Answer<Cq> {
        self.extra("tell times")?.create_timed_cq(self, cqe)
    }

    fn poll_timed(&self, cq: Cq) -> Answer<Option<Timed>> {
        self.extra("tell times")?.poll_timed(cq)
    }

    fn spreads(&self) -> Answer<bool> {
        let device = self.uctx.query_device_ex::<()>();
        let device = device.map_err(|errno| fault("query the device", errno))?;
        Ok(device.attr.rss_caps.supported_qpts & 1 << QpType::RAW_PACKET.0 != 0)
    }

    fn spread(&self, init: &SpreadInit) -> Answer<()> {
        let mlx5 = self.extra("spread packets")?;
        mlx5.end_spread();
        mlx5.spread(*self.pds.get(init.pd.0)?, init)
    }
}

impl Core {
    /// mlx5's part, which alone has what is beyond common verbs.
    fn extra(&self, what: &str) -> Answer<&Mlx5> {
        let missing = || Fault::errno(libc::EOPNOTSUPP, what);
        self.mlx5.as_ref().ok_or_else(missing)
    }
}

impl Mlx5 {
    fn spread(&self, pd: handle::Pd, init: &SpreadInit) -> Answer<()> {
        let cq = self.cq_handle(init.cq)?;
        let mut queues = Vec::new();
        for number in 0..init.queues {
            queues.push(self.work_queue(pd, cq, number, init)?);
        }
        let handles: Vec<_> = (init.table.iter())
            .map(|queue| queues[*queue].0.handle())
            .collect();
        let table = self.context.create_rwq_ind_table(&handles);
        let table = table.map_err(|errno| fault("make a table of work queues", errno))?;
        let qp = self.context.create_rss_qp(&RssRequest {
            qp_type: QpType::RAW_PACKET,
            pd,
            table: table.handle(),
            // the packets are the port's own
            driver_flags: CreateQpFlags::TIR_ALLOW_SELF_LB_UC,
            function: RxHashFunction::TOEPLITZ,
            fields: FIELDS,
            key: KEY.to_vec(),
            ..RssRequest::default()
        });
        let qp = qp.map_err(|errno| fault("spread packets over queues", errno))?;
        let spec = FlowSpecEth {
            hdr: FlowSpecHdr {
                r#type: ETH,
                size: size_of::<FlowSpecEth>() as u16,
                ..FlowSpecHdr::default()
            },
            val: EthFilter {
                dst_mac: init.to,
                src_mac: init.from,
                ..EthFilter::default()
            },
            mask: EthFilter {
                dst_mac: [0xff; 6],
                src_mac: [0xff; 6],
                ..EthFilter::default()
            },
        };
        let attr = FlowAttr {
            num_of_specs: 1,
            port: init.port,
            ..FlowAttr::default()
        };
        let uctx = self.context.uctx();
        let rule = uctx.create_flow_mlx5(qp.handle(), &attr, spec.as_bytes(), None);
        let handle = rule.map_err(|errno| fault("steer packets", errno))?;
        let rule = Rule {
            handle,
            context: self.context.clone(),
        };
        *lock(&self.spread) = Some(Spread {
            _rule: rule,
            _qp: qp,
            _table: table,
            _queues: queues,
        });
        Ok(())
    }

    /// A work queue that is ready, with its receives posted.
    fn work_queue(
        &self,
        pd: handle::Pd,
        cq: handle::Cq,
        number: usize,
        init: &SpreadInit,
    ) -> Answer<(WqObject, RecvQueue)> {
        let made = self.context.create_wq(&WqRequest {
            pd,
            cq,
            max_wr: init.receives as u32,
            max_sge: 1,
            ..WqRequest::default()
        });
        let (mut object, mut queue) = made.map_err(|errno| fault("make a work queue", errno))?;
        object.start_over(&mut queue);
        let ready = object.modify(&ExModifyWq {
            attr_mask: WQ_STATE,
            wq_state: WqState::READY.0,
            ..ExModifyWq::default()
        });
        ready.map_err(|errno| fault("start a work queue", errno))?;
        for at in 0..init.receives {
            let slot = number * init.receives + at;
            let sge = Sge {
                addr: init.slot.addr + slot as u64 * u64::from(init.slot.len),
                ..init.slot
            };
            let list = sges(&[sge]);
            let posted = queue.post([(number as u64, &list[..])]);
            posted.map_err(|refused| Fault {
                errno: None,
                what: format!("post a receive: {}", refused.error),
            })?;
        }
        Ok((object, queue))
    }

    /// Ends what [`Extras::spread`] began.
    pub(super) fn end_spread(&self) {
        lock(&self.spread).take();
    }
}
