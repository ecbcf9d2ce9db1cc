//! Queue pairs: made and destroyed.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use uverbs_abi::handle::Qp;
use uverbs_abi::types::{CreateQpFlags, EventType, QpCap, QpState, QpType};
use uverbs_abi::udata::mlx5::{
    CreateQp as DriverInput, CreateQpFlags as DriverFlags, CreateQpResp,
};
use wqe_format::mlx5::firmware::Opcode;
use wqe_format::mlx5::firmware::qp::{CreateQpIn, CreateQpOut};
use wqe_format::mlx5::firmware::qpc::Qpc;

use super::Objects;
use super::cq::{CompletionQueue, with_pages};
use super::domain::{Pdn, Xrcdn};
use super::events::EventFile;
use super::platform::Mapped;
use super::ring::Ring;
use super::srq::SharedQueue;
use crate::control::kernel::{CreateQp, QpCreated};
use crate::sys::errno::Errno;

/// A queue pair that CREATE_QP made.
#[derive(Debug)]
pub(super) struct QueuePair {
    pub(super) number: u32,
    pub(super) service: Service,
    pub(super) qp_type: QpType,
    pub(super) cap: QpCap,
    pub(super) sq_sig_all: bool,
    pub(super) send_cq: Option<Arc<CompletionQueue>>,
    pub(super) recv_cq: Option<Arc<CompletionQueue>>,
    pub(super) pd: Option<Arc<Pdn>>,
    pub(super) state: Mutex<State>,
    user_handle: u64,
    events: Option<Arc<EventFile>>,
    told: AtomicU32,
    /// Where its doorbell record is for the device, if it has receives of its own.
    pub(super) record: Option<u64>,
    _srq: Option<Arc<SharedQueue>>,
    _xrcd: Option<Arc<Xrcdn>>,
    _ring: Option<Ring>,
    _record: Arc<Mapped>,
}

/// What changes of a queue pair.
#[derive(Clone, Copy, Debug)]
pub(super) struct State {
    /// As it was last brought to.
    pub(super) state: QpState,
    /// Reads and atomics that it answers at once, as last said.
    pub(super) responder_depth: u8,
    /// Rights of its peer, as last said.
    pub(super) access: uverbs_abi::types::AccessFlags,
}

/// Service types in contexts (Linux `mlx5/qp.h` `MLX5_QP_ST_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Service {
    Rc = 0,
    Uc = 1,
    Ud = 2,
    Xrc = 3,
    Dci = 5,
}

impl Service {
    fn new(request: &CreateQp, flags: DriverFlags) -> Result<Self, Errno> {
        Ok(match request.qp_type {
            QpType::RC => Self::Rc,
            QpType::UC => Self::Uc,
            QpType::UD => Self::Ud,
            QpType::XRC_INI | QpType::XRC_TGT => Self::Xrc,
            QpType::DRIVER if flags.contains(DriverFlags::TYPE_DCI) => Self::Dci,
            _ => return Err(Errno(libc::EOPNOTSUPP)),
        })
    }
}

/// Migrated: no other path waits (`MLX5_QP_PM_MIGRATED`).
pub(super) const MIGRATED: u8 = 3;

/// Where receives come from (`qpc.rq_type`).
const OWN_RECEIVES: u8 = 0;
const SHARED_RECEIVES: u8 = 1;
const NO_RECEIVES: u8 = 3;
/// With tags: the device reads what is announced (`qpc.offload_type`, `MLX5_QPC_OFFLOAD_TYPE_RNDV`).
const OFFLOAD_RENDEZVOUS: u8 = 1;

/// Data within completions (Linux `mlx5_ib.h` `MLX5_RES_SCAT_DATA*_CQE`, `MLX5_REQ_SCAT_DATA*_CQE`): up to 32
/// bytes in an entry of 64, 64 in one of 128.
const fn scatter(entry_size: u32, units: [u8; 2]) -> u8 {
    units[(entry_size == 128) as usize]
}

/// What can happen to a queue pair.
const OF_QUEUE_PAIRS: &[EventType] = &[
    EventType::QP_FATAL,
    EventType::QP_REQ_ERR,
    EventType::QP_ACCESS_ERR,
    EventType::COMM_EST,
    EventType::SQ_DRAINED,
    EventType::PATH_MIG,
    EventType::PATH_MIG_ERR,
    EventType::QP_LAST_WQE_REACHED,
];

impl Objects {
    /// Makes a queue pair in RESET.
    ///
    /// # Safety
    ///
    /// As for [`Uctx::create_qp_with`](crate::control::kernel::Uctx::create_qp_with).
    pub unsafe fn create_qp(
        &self,
        request: &CreateQp,
        input: &DriverInput,
    ) -> Result<QpCreated<CreateQpResp>, Errno> {
        if input.flags.contains(DriverFlags::TYPE_DCT) {
            return self.create_dct(request, input);
        }
        if request.qp_type == QpType::RAW_PACKET {
            return self.create_raw(request, input);
        }
        let service = Service::new(request, input.flags)?;
        let target = request.qp_type == QpType::XRC_TGT;
        let initiator = request.qp_type == QpType::XRC_INI;
        let pd = (!target).then(|| self.pds.get(request.pd.0)).transpose()?;
        let xrcd = target.then(|| self.xrcds.get(request.xrcd.0)).transpose()?;
        let queue = |has: bool, handle: u32| has.then(|| self.cqs.get(handle)).transpose();
        let send_cq = queue(!target, request.send_cq.0)?;
        let recv_cq = queue(!target && !initiator, request.recv_cq.0)?;
        let srq = request.srq.map(|srq| self.srqs.get(srq.0)).transpose()?;
        let events = request
            .async_event
            .map(|fd| self.files.find(fd))
            .transpose()?;
        let bytes = ring_bytes(input)?;
        let ring = (bytes > 0)
            .then(|| Ring::new(&*self.platform, input.buf_addr, bytes))
            .transpose()?;
        let (record_address, record) = self.record(input.db_addr)?;
        let uar = match input.flags.contains(DriverFlags::UAR_PAGE_INDEX) {
            true => input.bfreg_index,
            false if input.sq_wqe_count == 0 => 0,
            // the context's registers are made on demand, and each queue says its own
            false => return Err(Errno(libc::EINVAL)),
        };

        let mut bytes = match &ring {
            Some(ring) => with_pages(CreateQpIn::SIZE, ring),
            None => vec![0; CreateQpIn::SIZE],
        };
        let mut command = CreateQpIn::new(&mut bytes[..]).map_err(|_| Errno(libc::EINVAL))?;
        command.set_opcode(Opcode::CREATE_QP.0);
        if self.caps.general.ece_support() {
            command.set_ece(input.ece_options);
        }
        let mut context = command.qpc_mut();
        context
            .set_st(service as u8)
            .set_pm_state(MIGRATED)
            .set_pd(match &pd {
                Some(pd) => pd.0,
                None => self.base_pd()?,
            })
            .set_uar_page(uar)
            .set_dbr_addr(record_address)
            .set_wq_signature(input.flags.contains(DriverFlags::SIGNATURE))
            .set_block_lb_mc(
                request
                    .flags
                    .contains(CreateQpFlags::BLOCK_MULTICAST_LOOPBACK),
            );
        if let Some(ring) = &ring {
            context
                .set_log_page_size(ring.log_page_size())
                .set_page_offset(ring.page_offset());
        }
        if self.caps.user_indices() {
            context.set_user_index(input.uidx);
        }
        describe_queues(
            &mut context,
            input,
            // The kernel names an empty queue of its own for both ends of XRC, which receive nothing themselves; without one
            // they have none.
            srq.is_some(),
            service,
        )?;
        if let Some(cq) = &send_cq {
            context.set_cqn_snd(cq.number);
        }
        if let Some(cq) = &recv_cq {
            context.set_cqn_rcv(cq.number);
        }
        match (&srq, &xrcd) {
            (_, Some(xrcd)) => {
                context.set_xrcd(xrcd.0);
            }
            (Some(srq), None) => {
                context.set_srqn_rmpn_xrqn(srq.number);
                if srq.has_tags() {
                    context.set_offload_type(OFFLOAD_RENDEZVOUS);
                }
            }
            (None, None) if initiator => {
                context.set_xrcd(self.base_xrcd()?);
            }
            (None, None) if service == Service::Dci => {
                context.set_srqn_rmpn_xrqn(self.reserved_srq()?);
            }
            (None, None) => {}
        }
        if input.flags.contains(DriverFlags::DCI_STREAM) {
            context
                .set_log_num_dci_stream_channels(input.dci_streams.log_num_concurent)
                .set_log_num_dci_errored_streams(input.dci_streams.log_num_errored);
        }
        if recv_cq.as_ref().is_some_and(|cq| cq.real_time)
            || send_cq.as_ref().is_some_and(|cq| cq.real_time)
        {
            context.set_ts_format(REAL_TIME);
        }
        self.scatter(&mut context, input, request, service, &send_cq, &recv_cq);
        let mut output = CreateQpOut::zeroed();
        self.platform.execute(&bytes, output.as_bytes_mut())?;
        let number = output.qpn();
        self.qps.insert_at(
            number,
            QueuePair {
                number,
                service,
                qp_type: request.qp_type,
                cap: request.cap,
                sq_sig_all: request.sq_sig_all,
                send_cq,
                recv_cq,
                pd,
                state: Mutex::new(State {
                    state: QpState::RESET,
                    responder_depth: 0,
                    access: Default::default(),
                }),
                user_handle: request.user_handle,
                events,
                told: AtomicU32::new(0),
                record: (input.rq_wqe_count != 0).then_some(record_address),
                _srq: srq,
                _xrcd: xrcd,
                _ring: ring,
                _record: record,
            },
        );
        Ok(QpCreated {
            handle: Qp(number),
            qp_num: number,
            cap: request.cap,
            udata: CreateQpResp {
                ece_options: output.ece(),
                ..CreateQpResp::default()
            },
        })
    }

    /// Whether data of short messages goes into completions: what was received, of RC and UC; what reads and
    /// atomics bring, where every request completes or the program says that it knows.
    fn scatter(
        &self,
        context: &mut Qpc<&mut [u8]>,
        input: &DriverInput,
        request: &CreateQp,
        service: Service,
        send_cq: &Option<Arc<CompletionQueue>>,
        recv_cq: &Option<Arc<CompletionQueue>>,
    ) {
        let asked = input.flags.contains(DriverFlags::SCATTER_CQE);
        if !asked || !self.caps.general.sctr_data_cqe() {
            return;
        }
        if let (Some(cq), Service::Rc | Service::Uc) = (recv_cq, service) {
            context.set_cs_res(scatter(cq.entry_size, [0x1, 0x2]));
        }
        let all = request.sq_sig_all || input.flags.contains(DriverFlags::ALLOW_SCATTER_CQE);
        if let (Some(cq), Service::Rc, true) = (send_cq, service, all) {
            context.set_cs_req(scatter(cq.entry_size, [0x11, 0x22]));
        }
    }

    /// Destroys a queue pair; answers how many of its events were told. `EBUSY` while it is in a multicast
    /// group, as the kernel says it.
    pub fn destroy_qp(&self, handle: Qp) -> Result<u32, Errno> {
        if let Some(events) = self.destroy_dct(handle)? {
            return Ok(events);
        }
        if let Some(events) = self.destroy_raw(handle)? {
            return Ok(events);
        }
        if self.groups.has(handle.0) {
            return Err(Errno(libc::EBUSY));
        }
        self.qps.remove(handle.0, |qp| {
            let state = qp.state.lock().unwrap_or_else(PoisonError::into_inner);
            if state.state != QpState::RESET {
                // as the kernel does; a queue pair in error goes on being destroyed
                let _ = self.run_on(Opcode::QP_2RST, qp.number);
            }
            self.run_on(Opcode::DESTROY_QP, qp.number)?;
            let told = qp.told.load(Ordering::Relaxed);
            let read = |file: &Arc<EventFile>| file.read_of(qp.user_handle, told, OF_QUEUE_PAIRS);
            Ok(qp.events.as_ref().map_or(0, read))
        })
    }

    /// The device says that something happened to a queue pair.
    pub(super) fn qp_event(&self, number: u32, told: EventType) {
        self.qps.look(number, |qp| {
            if let Some(file) = &qp.events {
                qp.told.fetch_add(1, Ordering::Relaxed);
                file.tell(told, qp.user_handle);
            }
        });
    }
}

/// `qpc.ts_format`: timestamps of completions are real time (`mlx5_ifc.h` `MLX5_TIMESTAMP_FORMAT_REAL_TIME`).
const REAL_TIME: u8 = 2;

/// Bytes of the ring: receives, then sends, in basic blocks of 64. `EINVAL` for sizes that make no sense.
fn ring_bytes(input: &DriverInput) -> Result<u64, Errno> {
    let receives = u64::from(input.rq_wqe_count)
        .checked_shl(input.rq_wqe_shift)
        .filter(|_| input.rq_wqe_shift < 32);
    let sends = u64::from(input.sq_wqe_count) * 64;
    receives
        .and_then(|receives| receives.checked_add(sends))
        .ok_or(Errno(libc::EINVAL))
}

/// Sizes of both queues. The stride of receives counts from 16 bytes.
fn describe_queues(
    context: &mut Qpc<&mut [u8]>,
    input: &DriverInput,
    shared: bool,
    service: Service,
) -> Result<(), Errno> {
    let log = |count: u32| match count.is_power_of_two() {
        true => Ok(count.trailing_zeros() as u8),
        false => Err(Errno(libc::EINVAL)),
    };
    if input.rq_wqe_count != 0 {
        let stride = input.rq_wqe_shift.checked_sub(4);
        context
            .set_log_rq_stride(stride.ok_or(Errno(libc::EINVAL))? as u8)
            .set_log_rq_size(log(input.rq_wqe_count)?);
    }
    context.set_rq_type(
        match (shared || service == Service::Dci, input.rq_wqe_count) {
            (true, _) => SHARED_RECEIVES,
            (false, 0) => NO_RECEIVES,
            (false, _) => OWN_RECEIVES,
        },
    );
    match input.sq_wqe_count {
        0 => context.set_no_sq(true),
        count => context.set_log_sq_size(log(count)?),
    };
    Ok(())
}
