//! Shared receive queues: a receive memory pool, a queue for XRC, or one with a list of tags.

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
use wqe_format::mlx5::firmware::srq::ArmRqIn;
use wqe_format::mlx5::firmware::wq::Wq;
use wqe_format::mlx5::firmware::xrc_srq::{
    ArmXrcSrqIn, CreateXrcSrqIn, CreateXrcSrqOut, QueryXrcSrqIn, QueryXrcSrqOut,
};
use wqe_format::mlx5::firmware::xrq::{CreateXrqIn, CreateXrqOut, QueryXrqIn, QueryXrqOut};

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
    /// Each kind has numbers of its own.
    pub(super) number: u32,
    kind: Kind,
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

/// What the device makes of a shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A receive memory pool.
    Pool,
    /// A queue for XRC.
    Xrc,
    /// A queue with a list of tags.
    Tags,
}

impl SharedQueue {
    /// Whether messages are matched with a list of tags.
    pub(super) fn has_tags(&self) -> bool {
        self.kind == Kind::Tags
    }
}

/// Where a queue is, and how large.
struct Shape<'a> {
    ring: &'a Ring,
    record: u64,
    log_entries: u8,
    log_entry: u8,
    signature: bool,
    pd: u32,
}

impl Shape<'_> {
    /// Writes it to a work queue's context.
    fn describe(&self, mut wq: Wq<&mut [u8]>) {
        wq.set_wq_signature(self.signature)
            .set_log_wq_pg_sz(self.ring.log_page_size())
            .set_page_offset(self.ring.page_offset())
            .set_log_wq_stride(self.log_entry)
            .set_log_wq_sz(self.log_entries)
            .set_pd(self.pd)
            .set_dbr_addr(self.record);
    }

    /// CREATE_RMP: a pool; answers its number.
    fn create_pool(&self, objects: &Objects) -> Result<u32, Errno> {
        let mut bytes = with_pages(CreateRmpIn::SIZE, self.ring);
        let mut command = CreateRmpIn::new(&mut bytes[..]).map_err(|_| Errno(libc::EINVAL))?;
        command.set_opcode(Opcode::CREATE_RMP.0);
        let mut context = command.ctx_mut();
        context.set_state(READY);
        self.describe(context.wq_mut());
        let mut output = CreateRmpOut::zeroed();
        objects.platform.execute(&bytes, output.as_bytes_mut())?;
        Ok(output.rmpn())
    }

    /// CREATE_XRC_SRQ: a queue for XRC; answers its number.
    fn create_for_xrc(&self, objects: &Objects, xrcd: u32, named: Named) -> Result<u32, Errno> {
        let mut bytes = with_pages(CreateXrcSrqIn::SIZE, self.ring);
        let mut command = CreateXrcSrqIn::new(&mut bytes[..]).map_err(|_| Errno(libc::EINVAL))?;
        command.set_opcode(Opcode::CREATE_XRC_SRQ.0);
        let mut context = command.xrc_srq_context_entry_mut();
        context
            .set_wq_signature(self.signature)
            .set_log_page_size(self.ring.log_page_size())
            .set_page_offset(self.ring.page_offset())
            .set_log_xrc_srq_size(self.log_entries)
            .set_log_rq_stride(self.log_entry - 4)
            .set_pd(self.pd)
            .set_xrcd(xrcd)
            .set_cqn(named.cqn)
            .set_db_record_addr_h((self.record >> 32) as u32)
            .set_db_record_addr_l(self.record as u32 >> 2);
        if let Some(index) = named.user_index {
            context.set_user_index(index);
        }
        let mut output = CreateXrcSrqOut::zeroed();
        objects.platform.execute(&bytes, output.as_bytes_mut())?;
        Ok(output.xrc_srqn())
    }

    /// CREATE_XRQ: a queue with a list of up to 2^`log_tags` tags, and what the sender announces read by the device; answers
    /// its number. The choices are `mlx5_ib`'s (Linux drivers/infiniband/hw/mlx5/srq_cmd.c `create_xrq_cmd`).
    fn create_with_tags(
        &self,
        objects: &Objects,
        log_tags: u8,
        named: Named,
    ) -> Result<u32, Errno> {
        let mut bytes = with_pages(CreateXrqIn::SIZE, self.ring);
        let mut command = CreateXrqIn::new(&mut bytes[..]).map_err(|_| Errno(libc::EINVAL))?;
        command.set_opcode(Opcode::CREATE_XRQ.0);
        let mut context = command.xrq_context_mut();
        context
            .set_topology(TAG_MATCHING)
            .set_offload(RENDEZVOUS)
            .set_cqn(named.cqn);
        if let Some(index) = named.user_index {
            context.set_user_index(index);
        }
        context
            .tag_matching_topology_context_mut()
            .set_log_matching_list_sz(log_tags);
        self.describe(context.wq_mut());
        let mut output = CreateXrqOut::zeroed();
        objects.platform.execute(&bytes, output.as_bytes_mut())?;
        Ok(output.xrqn())
    }
}

/// What completions of a queue call it, and where they are.
struct Named {
    cqn: u32,
    user_index: Option<u32>,
}

/// Bytes of the next-segment of an entry, and of each scatter entry behind it.
const SEGMENT: u32 = 16;
/// Bytes of the shortest entry (`mlx5_ib` `create_srq`).
const SHORTEST: u32 = 32;
/// Ready (`mlx5_ifc.h` `MLX5_RMPC_STATE_RDY`).
const READY: u8 = 1;
/// ARM_XRC_SRQ of a queue for XRC (`MLX5_ARM_XRC_SRQ_IN_OP_MOD_XRC_SRQ`).
const ARM_XRC: u16 = 1;
/// ARM_RQ of a queue with tags (`MLX5_ARM_RQ_IN_OP_MOD_XRQ`).
const ARM_TAGS: u16 = 2;
/// `MLX5_XRQC_TOPOLOGY_TAG_MATCHING`.
const TAG_MATCHING: u8 = 1;
/// `MLX5_XRQC_OFFLOAD_RNDV`.
const RENDEZVOUS: u8 = 1;

impl Objects {
    /// Makes a shared receive queue, basic, for XRC or with tags (else `EOPNOTSUPP`).
    ///
    /// # Safety
    ///
    /// As for [`Uctx::create_srq_with`](crate::control::kernel::Uctx::create_srq_with).
    pub unsafe fn create_srq(
        &self,
        request: &CreateSrq,
        input: &DriverInput,
    ) -> Result<SrqCreated<CreateSrqResp>, Errno> {
        let kind = match request.srq_type {
            SrqType::BASIC => Kind::Pool,
            SrqType::XRC => Kind::Xrc,
            SrqType::TM => Kind::Tags,
            _ => return Err(Errno(libc::EOPNOTSUPP)),
        };
        let log_tags = match kind {
            // One more than the list has, as `mlx5_ib` asks for (`mlx5_ib_create_srq`).
            Kind::Tags => request
                .max_num_tags
                .checked_ilog2()
                .map(|log| log as u8 + 1),
            Kind::Pool | Kind::Xrc => Some(0),
        };
        let log_tags = log_tags.ok_or(Errno(libc::EINVAL))?;
        if kind == Kind::Tags && log_tags > self.caps.general.log_tag_matching_list_sz() {
            return Err(Errno(libc::EINVAL));
        }
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
        let xrcd = (kind == Kind::Xrc).then(|| self.xrcds.get(request.xrcd.0));
        let xrcd = xrcd.transpose()?;
        let cq = (kind != Kind::Pool).then(|| self.cqs.get(request.cq.0));
        let cq = cq.transpose()?;
        let events = request
            .async_event
            .map(|fd| self.files.find(fd))
            .transpose()?;
        let bytes = u64::from(entries) * u64::from(entry);
        let ring = match kind {
            Kind::Xrc => Ring::new(&*self.platform, input.buf_addr, bytes),
            Kind::Pool | Kind::Tags => Ring::of_work_queue(&*self.platform, input.buf_addr, bytes),
        }?;
        let (record_address, record) = self.record(input.db_addr)?;
        let shape = Shape {
            ring: &ring,
            record: record_address,
            log_entries: entries.trailing_zeros() as u8,
            log_entry: entry.trailing_zeros() as u8,
            signature: input.flags.contains(CreateSrqFlags::SIGNATURE),
            pd: pd.0,
        };
        let named = Named {
            cqn: cq.as_ref().map_or(0, |cq| cq.number),
            user_index: self.caps.user_indices().then_some(input.uidx),
        };
        let number = match kind {
            Kind::Pool => shape.create_pool(self),
            Kind::Xrc => shape.create_for_xrc(self, xrcd.as_ref().map_or(0, |xrcd| xrcd.0), named),
            Kind::Tags => shape.create_with_tags(self, log_tags, named),
        }?;
        let max_sge = entry / SEGMENT - 1;
        let handle = self.srqs.insert(SharedQueue {
            number,
            kind,
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
            srq_num: if kind == Kind::Pool { 0 } else { number },
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
        match queue.kind {
            Kind::Xrc => {
                let mut command = ArmXrcSrqIn::zeroed();
                command
                    .set_opcode(Opcode::ARM_XRC_SRQ.0)
                    .set_op_mod(ARM_XRC)
                    .set_xrc_srqn(queue.number)
                    .set_lwm(lwm);
                self.run_bytes::<16>(command.as_bytes()).map(drop)
            }
            Kind::Tags => {
                let mut command = ArmRqIn::zeroed();
                command
                    .set_opcode(Opcode::ARM_RQ.0)
                    .set_op_mod(ARM_TAGS)
                    .set_srq_number(queue.number)
                    .set_lwm(lwm);
                self.run_bytes::<16>(command.as_bytes()).map(drop)
            }
            Kind::Pool => {
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
    }

    /// Attributes: sizes as granted, the limit as it is; 0 once the event came.
    pub fn query_srq(&self, handle: Srq) -> Result<QuerySrqResp, Errno> {
        let queue = self.srqs.get(handle.0)?;
        let limit = match queue.kind {
            Kind::Xrc => {
                let mut input = QueryXrcSrqIn::zeroed();
                input
                    .set_opcode(Opcode::QUERY_XRC_SRQ.0)
                    .set_xrc_srqn(queue.number);
                let mut output = QueryXrcSrqOut::zeroed();
                self.platform
                    .execute(input.as_bytes(), output.as_bytes_mut())?;
                output.xrc_srq_context_entry().lwm()
            }
            Kind::Tags => {
                let mut input = QueryXrqIn::zeroed();
                input.set_opcode(Opcode::QUERY_XRQ.0).set_xrqn(queue.number);
                let mut output = QueryXrqOut::zeroed();
                self.platform
                    .execute(input.as_bytes(), output.as_bytes_mut())?;
                output.xrq_context().wq().lwm()
            }
            Kind::Pool => {
                let mut input = QueryRmpIn::zeroed();
                input.set_opcode(Opcode::QUERY_RMP.0).set_rmpn(queue.number);
                let mut output = QueryRmpOut::zeroed();
                self.platform
                    .execute(input.as_bytes(), output.as_bytes_mut())?;
                output.rmp_context().wq().lwm()
            }
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
            let opcode = match queue.kind {
                Kind::Xrc => Opcode::DESTROY_XRC_SRQ,
                Kind::Tags => Opcode::DESTROY_XRQ,
                Kind::Pool => Opcode::DESTROY_RMP,
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
