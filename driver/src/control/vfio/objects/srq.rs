//! Shared receive queues: a receive memory pool, or a queue for XRC.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use uverbs_abi::handle::Srq;
use uverbs_abi::types::{EventType, SrqAttrMask, SrqType};
use uverbs_abi::udata::mlx5::{CreateSrq as DriverInput, CreateSrqFlags, CreateSrqResp};
use uverbs_abi::write::srq::QuerySrqResp;
use wqe_format::mlx5::firmware::Opcode;
use wqe_format::mlx5::firmware::rmp::{
    CreateRmpIn, CreateRmpOut, ModifyRmpIn, QueryRmpIn, QueryRmpOut,
};
use wqe_format::mlx5::firmware::xrc_srq::{
    ArmXrcSrqIn, CreateXrcSrqIn, CreateXrcSrqOut, QueryXrcSrqIn, QueryXrcSrqOut,
};

use super::Objects;
use super::cq::{CompletionQueue, with_pages};
use super::domain::{Pdn, Xrcdn};
use super::events::EventFile;
use super::platform::Mapped;
use super::ring::Ring;
use crate::control::kernel::{CreateSrq, SrqCreated};
use crate::sys::errno::Errno;

/// A shared receive queue.
#[derive(Debug)]
pub(super) struct SharedQueue {
    /// Of a pool, or of a queue for XRC: numbers of different kinds.
    pub(super) number: u32,
    xrc: bool,
    entries: u32,
    max_sge: u32,
    user_handle: u64,
    events: Option<Arc<EventFile>>,
    told: AtomicU32,
    _pd: Arc<Pdn>,
    _xrcd: Option<Arc<Xrcdn>>,
    _cq: Option<Arc<CompletionQueue>>,
    _ring: Ring,
    _record: Arc<Mapped>,
}

/// Bytes of the next-segment of an entry, and of each scatter entry behind it.
const SEGMENT: u32 = 16;
/// Bytes of the shortest entry (`mlx5_ib` `create_srq`).
const SHORTEST: u32 = 32;
/// Ready (`mlx5_ifc.h` `MLX5_RMPC_STATE_RDY`).
const READY: u8 = 1;
/// ARM_XRC_SRQ of a queue for XRC (`MLX5_ARM_XRC_SRQ_IN_OP_MOD_XRC_SRQ`).
const ARM_XRC: u16 = 1;

impl Objects {
    /// Makes a shared receive queue, basic or for XRC (else `EOPNOTSUPP`).
    ///
    /// # Safety
    ///
    /// As for [`Uctx::create_srq_with`](crate::control::kernel::Uctx::create_srq_with).
    pub unsafe fn create_srq(
        &self,
        request: &CreateSrq,
        input: &DriverInput,
    ) -> Result<SrqCreated<CreateSrqResp>, Errno> {
        let xrc = match request.srq_type {
            SrqType::BASIC => false,
            SrqType::XRC => true,
            _ => return Err(Errno(libc::EOPNOTSUPP)),
        };
        let most = 1u32 << self.caps.general.log_max_srq_sz().min(31);
        let entries = request.max_wr.checked_add(1);
        let entries = entries.and_then(u32::checked_next_power_of_two);
        let entries = entries.filter(|entries| *entries <= most);
        let entries = entries.ok_or(Errno(libc::EINVAL))?;
        let entry = request.max_sge.checked_add(1);
        let entry = entry.and_then(|segments| segments.checked_mul(SEGMENT));
        let entry = entry.and_then(u32::checked_next_power_of_two);
        let entry = entry.ok_or(Errno(libc::EINVAL))?.max(SHORTEST);
        if entry > u32::from(self.caps.general.max_wqe_sz_rq()).next_power_of_two() {
            return Err(Errno(libc::EINVAL));
        }
        let pd = self.pds.get(request.pd.0)?;
        let xrcd = xrc.then(|| self.xrcds.get(request.xrcd.0)).transpose()?;
        let cq = xrc.then(|| self.cqs.get(request.cq.0)).transpose()?;
        let events = request
            .async_event
            .map(|fd| self.files.find(fd))
            .transpose()?;
        let bytes = u64::from(entries) * u64::from(entry);
        let ring = match xrc {
            true => Ring::new(&*self.platform, input.buf_addr, bytes),
            false => Ring::of_work_queue(&*self.platform, input.buf_addr, bytes),
        }?;
        let (record_address, record) = self.record(input.db_addr)?;
        let signature = input.flags.contains(CreateSrqFlags::SIGNATURE);
        let (log_entries, log_entry) =
            (entries.trailing_zeros() as u8, entry.trailing_zeros() as u8);

        let number = if xrc {
            let mut bytes = with_pages(CreateXrcSrqIn::SIZE, &ring);
            let mut command =
                CreateXrcSrqIn::new(&mut bytes[..]).map_err(|_| Errno(libc::EINVAL))?;
            command.set_opcode(Opcode::CREATE_XRC_SRQ.0);
            let mut context = command.xrc_srq_context_entry_mut();
            context
                .set_wq_signature(signature)
                .set_log_page_size(ring.log_page_size())
                .set_page_offset(ring.page_offset())
                .set_log_xrc_srq_size(log_entries)
                .set_log_rq_stride(log_entry - 4)
                .set_pd(pd.0)
                .set_xrcd(xrcd.as_ref().map_or(0, |xrcd| xrcd.0))
                .set_cqn(cq.as_ref().map_or(0, |cq| cq.number))
                .set_db_record_addr_h((record_address >> 32) as u32)
                .set_db_record_addr_l(record_address as u32 >> 2);
            if self.caps.user_indices() {
                context.set_user_index(input.uidx);
            }
            let mut output = CreateXrcSrqOut::zeroed();
            self.platform.execute(&bytes, output.as_bytes_mut())?;
            output.xrc_srqn()
        } else {
            let mut bytes = with_pages(CreateRmpIn::SIZE, &ring);
            let mut command = CreateRmpIn::new(&mut bytes[..]).map_err(|_| Errno(libc::EINVAL))?;
            command.set_opcode(Opcode::CREATE_RMP.0);
            let mut context = command.ctx_mut();
            context.set_state(READY);
            context
                .wq_mut()
                .set_wq_signature(signature)
                .set_log_wq_pg_sz(ring.log_page_size())
                .set_page_offset(ring.page_offset())
                .set_log_wq_stride(log_entry)
                .set_log_wq_sz(log_entries)
                .set_pd(pd.0)
                .set_dbr_addr(record_address);
            let mut output = CreateRmpOut::zeroed();
            self.platform.execute(&bytes, output.as_bytes_mut())?;
            output.rmpn()
        };
        let max_sge = entry / SEGMENT - 1;
        let handle = self.srqs.insert(SharedQueue {
            number,
            xrc,
            entries,
            max_sge,
            user_handle: request.user_handle,
            events,
            told: AtomicU32::new(0),
            _pd: pd,
            _xrcd: xrcd,
            _cq: cq,
            _ring: ring,
            _record: record,
        });
        self.numbers.insert(number, handle);
        Ok(SrqCreated {
            handle: Srq(handle),
            max_wr: entries - 1,
            max_sge,
            srq_num: if xrc { number } else { 0 },
            udata: CreateSrqResp {
                srqn: number,
                ..CreateSrqResp::default()
            },
        })
    }

    /// Sets the limit below which an event comes. The size cannot be changed (`EINVAL`).
    pub fn modify_srq(&self, handle: Srq, mask: SrqAttrMask, limit: u32) -> Result<(), Errno> {
        let queue = self.srqs.get(handle.0)?;
        if mask.contains(SrqAttrMask::MAX_WR) {
            return Err(Errno(libc::EINVAL));
        }
        if !mask.contains(SrqAttrMask::LIMIT) {
            return Ok(());
        }
        let Ok(lwm) = u16::try_from(limit) else {
            return Err(Errno(libc::EINVAL));
        };
        if limit >= queue.entries {
            return Err(Errno(libc::EINVAL));
        }
        if queue.xrc {
            let mut command = ArmXrcSrqIn::zeroed();
            command
                .set_opcode(Opcode::ARM_XRC_SRQ.0)
                .set_op_mod(ARM_XRC)
                .set_xrc_srqn(queue.number)
                .set_lwm(lwm);
            self.run_bytes::<16>(command.as_bytes()).map(drop)
        } else {
            let mut command = ModifyRmpIn::zeroed();
            command
                .set_opcode(Opcode::MODIFY_RMP.0)
                .set_rmp_state(READY)
                .set_rmpn(queue.number);
            command.bitmask_mut().set_lwm(true);
            let mut context = command.ctx_mut();
            context.set_state(READY);
            context.wq_mut().set_lwm(lwm);
            self.run_bytes::<16>(command.as_bytes()).map(drop)
        }
    }

    /// Attributes: sizes as granted, the limit as it is; 0 once the event came.
    pub fn query_srq(&self, handle: Srq) -> Result<QuerySrqResp, Errno> {
        let queue = self.srqs.get(handle.0)?;
        let limit = if queue.xrc {
            let mut input = QueryXrcSrqIn::zeroed();
            input
                .set_opcode(Opcode::QUERY_XRC_SRQ.0)
                .set_xrc_srqn(queue.number);
            let mut output = QueryXrcSrqOut::zeroed();
            self.platform
                .execute(input.as_bytes(), output.as_bytes_mut())?;
            output.xrc_srq_context_entry().lwm()
        } else {
            let mut input = QueryRmpIn::zeroed();
            input.set_opcode(Opcode::QUERY_RMP.0).set_rmpn(queue.number);
            let mut output = QueryRmpOut::zeroed();
            self.platform
                .execute(input.as_bytes(), output.as_bytes_mut())?;
            output.rmp_context().wq().lwm()
        };
        Ok(QuerySrqResp {
            max_wr: queue.entries - 1,
            max_sge: queue.max_sge,
            srq_limit: limit.into(),
            ..QuerySrqResp::default()
        })
    }

    /// Destroys a shared receive queue; answers how many of its events were told. `EBUSY` while queue pairs
    /// receive from it.
    pub fn destroy_srq(&self, handle: Srq) -> Result<u32, Errno> {
        let (told, number) = self.srqs.remove(handle.0, |queue| {
            let opcode = match queue.xrc {
                true => Opcode::DESTROY_XRC_SRQ,
                false => Opcode::DESTROY_RMP,
            };
            self.run_on(opcode, queue.number)?;
            let told = queue.told.load(Ordering::Relaxed);
            let kinds = &[EventType::SRQ_ERR, EventType::SRQ_LIMIT_REACHED];
            let read = |file: &Arc<EventFile>| file.read_of(queue.user_handle, told, kinds);
            Ok((queue.events.as_ref().map_or(0, read), queue.number))
        })?;
        self.numbers.forget(number, handle.0);
        Ok(told)
    }

    /// The device says that something happened to a shared queue.
    pub(super) fn srq_event(&self, number: u32, told: EventType) {
        for handle in self.numbers.of(number) {
            self.srqs.look(handle, |queue| {
                if let Some(file) = &queue.events {
                    queue.told.fetch_add(1, Ordering::Relaxed);
                    file.tell(told, queue.user_handle);
                }
            });
        }
    }
}
