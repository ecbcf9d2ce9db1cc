//! Queue pairs.

use std::os::fd::RawFd;
use std::sync::Arc;

use uverbs_abi::handle::{Cq, Pd, Qp, Srq, Xrcd};
use uverbs_abi::types::{CreateQpFlags, DeviceCapFlags, QpAttrMask, QpCap, QpState, QpType};
use uverbs_abi::udata::mlx5::{
    CreateQp as DriverInput, CreateQpFlags as DriverFlags, CreateQpResp, DciStreams,
};
use uverbs_abi::write::qp::{ExModifyQp, ModifyQp};

use super::buffer::{Allocator, QueueBuffer, ResourceType, qp_alignment};
use super::context::Mlx5Context;
use super::dbrec::DoorbellRecord;
use super::entry::{Dying, Entry, Kind};
use super::environment::QueueKind as Setting;
use super::geometry::{
    self, DeviceOps, ReceiveGeometry, ReceiveRequest, SendGeometry, SendOps, SendRequest,
    Transport, WQEBB,
};
use super::placement::QpPlacement;
use super::uar::{BfregIndex, Counted, ThreadRegister};
use super::user_index;
use crate::control::kernel::CreateQp as KernelRequest;
use crate::data::mlx5::{
    KeepAlive, QueueKind, QueueRecord, ReceiveSide, RecvParts, RecvQueue, RecvShared, SendLimits,
    SendParts, SendQueue, SendShared, SrqShared,
};
use crate::sys::errno::Errno;
use crate::sys::pages::page_size;

/// Asks the kernel for enhanced connection establishment, version 1.
const ECE_VERSION_1: u32 = 0x1000_0000;

/// A queue pair to make, of any transport but a dynamically connected target and one that spreads
/// packets over work queues.
#[derive(Clone, Debug)]
pub struct QpRequest<'a> {
    /// Kind of queue pair.
    pub transport: Transport,
    /// The protection domain; a target for XRC has none.
    pub pd: Pd,
    /// The XRC domain of a target.
    pub xrcd: Xrcd,
    /// Where sends complete.
    pub send_cq: Cq,
    /// Where receives complete.
    pub recv_cq: Cq,
    /// Where receives come from, instead of an own queue.
    pub srq: Option<(Srq, Arc<SrqShared>)>,
    /// Comes back in events.
    pub user_handle: u64,
    /// Comes back with completions.
    pub cookie: usize,
    /// Capacity asked for. What it says of receives counts only without a shared queue.
    pub cap: QpCap,
    /// Whether every send makes a completion.
    pub sq_sig_all: bool,
    /// What will be posted; without, all that the transport has.
    pub send_ops: Option<SendOps>,
    /// What will be posted beyond verbs, if anything was named.
    pub device_ops: Option<DeviceOps>,
    /// Bytes that one work request copies at most, 0 if none does.
    pub max_copy: u64,
    /// Bytes of the header that segmentation repeats, of raw packets.
    pub max_tso_header: u32,
    /// How the kernel's core makes it.
    pub flags: CreateQpFlags,
    /// Send as if from this queue pair, below IPoIB.
    pub source_qpn: Option<u32>,
    /// The file that asynchronous events go to.
    pub async_event: Option<RawFd>,
    /// How the driver makes it, as far as the program says: tunnels, self-loopback, credits, scatter to
    /// completions.
    pub driver_flags: DriverFlags,
    /// Whether short messages never arrive within completions.
    pub no_scatter_to_cqe: bool,
    /// Whether messages may be placed out of order.
    pub out_of_order: bool,
    /// Streams of an initiator of dynamic connections.
    pub dci_streams: Option<DciStreams>,
    /// The thread domain's register.
    pub thread: Option<&'a ThreadRegister>,
    /// The program's allocator.
    pub allocator: Option<Arc<dyn Allocator>>,
}

impl QpRequest<'_> {
    /// A queue pair of this kind without queues.
    pub fn new(transport: Transport) -> Self {
        Self {
            transport,
            pd: Pd::default(),
            xrcd: Xrcd::default(),
            send_cq: Cq::default(),
            recv_cq: Cq::default(),
            srq: None,
            user_handle: 0,
            cookie: 0,
            cap: QpCap::default(),
            sq_sig_all: false,
            send_ops: None,
            device_ops: None,
            max_copy: 0,
            max_tso_header: 0,
            flags: CreateQpFlags::NONE,
            source_qpn: None,
            async_event: None,
            driver_flags: DriverFlags::NONE,
            no_scatter_to_cqe: false,
            out_of_order: false,
            dci_streams: None,
            thread: None,
            allocator: None,
        }
    }

    fn qp_type(&self) -> QpType {
        match self.transport {
            Transport::Rc => QpType::RC,
            Transport::Uc => QpType::UC,
            Transport::Ud | Transport::Underlay => QpType::UD,
            Transport::XrcSend => QpType::XRC_INI,
            Transport::XrcRecv => QpType::XRC_TGT,
            Transport::RawPacket => QpType::RAW_PACKET,
            Transport::Dci => QpType::DRIVER,
        }
    }

    fn kind(&self) -> QueueKind {
        match self.transport {
            Transport::Rc => QueueKind::Rc,
            Transport::Uc => QueueKind::Uc,
            Transport::Ud | Transport::Underlay => QueueKind::Ud,
            Transport::XrcSend => QueueKind::XrcSend,
            Transport::XrcRecv => QueueKind::XrcRecv,
            Transport::RawPacket => QueueKind::RawPacket,
            Transport::Dci => QueueKind::Dci,
        }
    }

    fn setting(&self) -> Setting {
        match self.transport {
            Transport::Rc => Setting::Rc,
            Transport::Uc => Setting::Uc,
            Transport::Ud | Transport::Underlay => Setting::Ud,
            Transport::RawPacket => Setting::RawPacket,
            _ => Setting::OtherQp,
        }
    }
}

/// A queue pair as it was made.
#[derive(Debug)]
pub struct MadeQp {
    /// The kernel's part.
    pub object: QpObject,
    /// The send queue, if one was asked for.
    pub send: Option<SendQueue>,
    /// The receive queue, if one was asked for.
    pub receive: Option<RecvQueue>,
}

/// The kernel's part of a queue pair; it is destroyed with this, unless it was before.
#[derive(Debug)]
pub struct QpObject {
    pub(super) context: Arc<Mlx5Context>,
    pub(super) handle: Qp,
    pub(super) number: u32,
    pub(super) transport: Transport,
    pub(super) cap: QpCap,
    pub(super) state: QpState,
    pub(super) ece: Ece,
    /// Keeps the memory of the queues until the kernel has destroyed it.
    record: Option<Arc<QueueRecord>>,
    entry: Option<Entry>,
    /// Counts the use of a shared register.
    counted: Option<Counted>,
    placement: Box<QpPlacement>,
    destroyed: bool,
}

/// Options of enhanced connection establishment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ece {
    /// What the device offers, or has accepted.
    pub(super) get: u32,
    /// What the next modify is to ask for.
    pub(super) set: u32,
}

/// Sizes and flags of a queue pair to be.
struct Plan {
    send: SendGeometry,
    receive: ReceiveGeometry,
    flags: DriverFlags,
    signature: bool,
}

impl Mlx5Context {
    fn plan(&self, asked: &QpRequest<'_>) -> Result<Plan, Errno> {
        if asked.transport == Transport::Underlay || asked.source_qpn.is_some() {
            // the data path does not write its work requests
            return Err(Errno(libc::EOPNOTSUPP));
        }
        if asked.max_tso_header != 0 && asked.transport != Transport::RawPacket {
            return Err(Errno(libc::EINVAL));
        }
        let limits = &self.limits().limits;
        let signature = self.environment().qp_signature;
        let send = SendGeometry::new(
            limits,
            &SendRequest {
                transport: asked.transport,
                ops: asked.send_ops,
                device_ops: asked.device_ops.unwrap_or_default(),
                max_wr: asked.cap.max_send_wr,
                max_sge: asked.cap.max_send_sge,
                max_inline: asked.cap.max_inline_data,
                max_tso_header: asked.max_tso_header,
            },
        )?;
        let receive = match asked.srq {
            // what is asked for beside a shared queue is ignored, as ibv_create_qp(3) says
            Some(_) => ReceiveGeometry::default(),
            None => ReceiveGeometry::new(
                limits,
                &ReceiveRequest {
                    max_wr: asked.cap.max_recv_wr,
                    max_sge: asked.cap.max_recv_sge,
                    signature,
                    striding: false,
                    out_of_order: 0,
                },
            )?,
        };
        let mut flags = asked.driver_flags;
        if self.environment().scatter_to_cqe {
            flags |= DriverFlags::SCATTER_CQE;
        }
        // those who post DC requests step by step, and those who say so, get none
        let builder = asked.send_ops.is_some() || asked.device_ops.is_some();
        if asked.no_scatter_to_cqe || builder && asked.transport == Transport::Dci {
            flags = DriverFlags(flags.0 & !DriverFlags::SCATTER_CQE.0);
        }
        if asked.transport == Transport::Dci {
            flags |= DriverFlags::TYPE_DCI;
        }
        if let Some(streams) = asked.dci_streams {
            let caps = &self.device().dci_streams_caps;
            if asked.transport != Transport::Dci
                || streams.log_num_concurent > caps.max_log_num_concurent
                || streams.log_num_errored > caps.max_log_num_errored
            {
                return Err(Errno(libc::EINVAL));
            }
            flags |= DriverFlags::DCI_STREAM;
        }
        if signature {
            flags |= DriverFlags::SIGNATURE;
        }
        // how many receives the device places so is a firmware capability that is not asked for
        if asked.out_of_order {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        Ok(Plan {
            send,
            receive,
            flags,
            signature,
        })
    }

    /// Buffers of the queue pair, and of its send queue where that has its own.
    fn qp_buffers(
        &self,
        asked: &QpRequest<'_>,
        plan: &Plan,
    ) -> Result<(QueueBuffer, Option<QueueBuffer>), Errno> {
        let source = self.source(asked.allocator.as_ref(), asked.setting());
        let make = |size, alignment| {
            QueueBuffer::new(
                size,
                ResourceType::QP,
                alignment,
                &source,
                self.huge_pages(),
            )
        };
        let (send, receive) = (plan.send.bytes(), plan.receive.bytes());
        if asked.transport.separate_send_buffer() {
            let main = make(receive, page_size())?;
            return Ok((main, Some(make(send, page_size())?)));
        }
        let send_stride = if send == 0 { 1 } else { WQEBB as usize };
        let alignment = qp_alignment(send + receive, send_stride, 1 << plan.receive.wqe_shift);
        Ok((make(send + receive, alignment)?, None))
    }

    /// Whether the device computes and checks checksums of the queue pair's packets: raw ones on Ethernet, as libmlx5
    /// has it, which says nothing of datagrams but those below IPoIB.
    fn checks_packets(&self, asked: &QpRequest<'_>) -> bool {
        asked.transport == Transport::RawPacket
            && self.has_ethernet()
            && u64::from(self.attributes().base.device_cap_flags)
                & DeviceCapFlags::RAW_IP_CSUM.bits()
                != 0
    }

    fn send_limits(&self, asked: &QpRequest<'_>, send: &SendGeometry) -> SendLimits {
        let raw = asked.transport == Transport::RawPacket && self.has_ethernet();
        let tso = &self.device().tso_caps;
        let segments = tso.supported_qpts >> QpType::RAW_PACKET.0 & 1 != 0;
        SendLimits {
            max_wr: send.max_post,
            max_sge: send.max_gs,
            max_inline: send.max_inline,
            min_inline_header: self.limits().eth_min_inline,
            max_tso: if raw && segments { tso.max_tso } else { 0 },
            max_tso_header: asked.max_tso_header,
            checksums: self.checks_packets(asked),
            atomics: self.has_atomics(),
            max_copy: asked.max_copy,
        }
    }

    /// Makes a queue pair, in RESET.
    ///
    /// `EINVAL` for sizes that the device cannot have or a mixture that makes no sense, `EOPNOTSUPP` for
    /// what the device does not do.
    pub fn create_qp(self: &Arc<Self>, asked: &QpRequest<'_>) -> Result<MadeQp, Errno> {
        let plan = self.plan(asked)?;
        let (buffer, send_buffer) = self.qp_buffers(asked, &plan)?;
        let doorbell = self.records().take(asked.allocator.as_ref())?;
        let target = asked.transport == Transport::XrcRecv;
        let by_index = self.names_queues_by_index();
        let index = (by_index && !target)
            .then(|| self.indices().take())
            .transpose()?;
        let mut lease = match asked.thread {
            Some(thread) => thread.lease(),
            None => self.uars().lease(),
        };
        let (bfreg_index, bfreg_flag) = match lease.index() {
            BfregIndex::Kernel => (0, DriverFlags::NONE),
            BfregIndex::Page(page) => (page, DriverFlags::UAR_PAGE_INDEX),
            BfregIndex::Extra(number) => (number, DriverFlags::BFREG_INDEX),
        };
        let input = DriverInput {
            buf_addr: buffer.address(),
            db_addr: doorbell.address(),
            sq_wqe_count: plan.send.wqe_cnt,
            rq_wqe_count: plan.receive.wqe_cnt,
            rq_wqe_shift: plan.receive.wqe_shift,
            flags: plan.flags | bfreg_flag,
            uidx: match &index {
                Some(index) => index.get(),
                None if by_index => 0,
                None => user_index::NONE,
            },
            bfreg_index,
            sq_buf_addr: send_buffer.as_ref().map_or(0, QueueBuffer::address),
            ece_options: if self.limits().ece { ECE_VERSION_1 } else { 0 },
            dci_streams: asked.dci_streams.unwrap_or_default(),
            ..DriverInput::default()
        };
        let mut request = KernelRequest {
            qp_type: asked.qp_type(),
            pd: asked.pd,
            xrcd: asked.xrcd,
            send_cq: asked.send_cq,
            recv_cq: asked.recv_cq,
            srq: asked.srq.as_ref().map(|(handle, _)| *handle),
            user_handle: asked.user_handle,
            cap: asked.cap,
            sq_sig_all: asked.sq_sig_all,
            flags: asked.flags,
            async_event: asked.async_event,
            ..KernelRequest::default()
        };
        request.cap.max_inline_data = plan.send.max_inline;
        if asked.srq.is_some() && request.cap.max_recv_wr > self.limits().limits.max_recv_wr {
            // the kernel would compare it with the device's limit
            request.cap.max_recv_wr = 0;
        }
        let rings = Rings::new(buffer, send_buffer, doorbell, &plan);
        let making = self.making(Kind::Queue);
        // SAFETY: the rings and the record live as long as the object below has them, which destroys the
        // kernel's queue pair first.
        let created = unsafe {
            self.uctx()
                .create_qp_with::<_, CreateQpResp>(&request, &input)
        }?;
        let mut object = QpObject {
            context: self.clone(),
            handle: created.handle,
            number: created.qp_num,
            transport: asked.transport,
            cap: geometry::granted(&asked.cap, &plan.send, &plan.receive),
            state: QpState::RESET,
            ece: Ece {
                get: created.udata.ece_options,
                set: 0,
            },
            record: None,
            entry: None,
            counted: None,
            placement: Box::new(QpPlacement {
                answer: created.udata,
                ..rings.placement(&plan)
            }),
            destroyed: false,
        };
        let doorbell = rings.doorbell();
        let record = Arc::new(rings.into_record(self, asked, &plan, created.qp_num));
        object.record = Some(record.clone());
        if !target {
            let custom = asked.allocator.is_some();
            let entry = making.enter(index, created.qp_num, record.clone(), custom);
            // before the object, which takes it to destroy itself
            drop(making);
            object.entry = Some(entry?);
        }
        let register = lease.register(self.uars(), created.udata.bfreg_index)?;
        object.counted = lease.into_counted();
        object.placement.register = register.base().as_ptr().expose_provenance() as u64;
        object.placement.register_half = register.half();
        object.placement.mmap_offset = self.uars().mmap_offset(&register);
        let send = (plan.send.wqe_cnt != 0).then(|| {
            let parts = SendParts {
                record: record.clone(),
                doorbell,
                register,
                limits: self.send_limits(asked, &plan.send),
                signal_all: asked.sq_sig_all,
                signature: plan.signature,
            };
            // SAFETY: the doorbell record lives in the record, as the ring does; both are new, and this
            // is the only send queue over them.
            unsafe { SendQueue::new(parts) }
        });
        let receive = (plan.receive.wqe_cnt != 0).then(|| {
            let parts = RecvParts {
                record,
                doorbell,
                max_wr: plan.receive.max_post,
                max_sge: plan.receive.max_gs,
            };
            // SAFETY: as above, for receives.
            unsafe { RecvQueue::new(parts) }
        });
        Ok(MadeQp {
            object,
            send,
            receive,
        })
    }
}

/// Memory of a queue pair that is being made.
struct Rings {
    buffer: QueueBuffer,
    send_buffer: Option<QueueBuffer>,
    doorbell: DoorbellRecord,
    send_offset: usize,
}

impl Rings {
    fn new(
        buffer: QueueBuffer,
        send_buffer: Option<QueueBuffer>,
        doorbell: DoorbellRecord,
        plan: &Plan,
    ) -> Self {
        Self {
            send_offset: plan.receive.bytes(),
            buffer,
            send_buffer,
            doorbell,
        }
    }

    fn doorbell(&self) -> std::ptr::NonNull<u32> {
        self.doorbell.words()
    }

    fn placement(&self, plan: &Plan) -> QpPlacement {
        QpPlacement {
            doorbell: self.doorbell.address(),
            send_ring: match &self.send_buffer {
                Some(own) => own.address(),
                None => self.buffer.address() + self.send_offset as u64,
            },
            send_blocks: plan.send.wqe_cnt,
            receive_ring: self.buffer.address(),
            receive_entries: plan.receive.wqe_cnt,
            receive_shift: plan.receive.wqe_shift,
            ..QpPlacement::default()
        }
    }

    /// What posters and pollers share.
    fn into_record(
        self,
        context: &Mlx5Context,
        asked: &QpRequest<'_>,
        plan: &Plan,
        number: u32,
    ) -> QueueRecord {
        let null_lkey = context.null_lkey();
        let send = (plan.send.wqe_cnt != 0).then(|| {
            let ring = match &self.send_buffer {
                Some(own) => own.start(),
                // SAFETY: the buffer was made for the receive ring and, behind it, the send ring.
                None => unsafe { self.buffer.start().add(self.send_offset) },
            };
            SendShared::new(ring, plan.send.wqe_cnt, null_lkey)
        });
        let receive = match &asked.srq {
            Some((_, srq)) => ReceiveSide::shared(srq.clone()),
            None if plan.receive.wqe_cnt == 0 => ReceiveSide::None,
            None => ReceiveSide::Own(RecvShared::new(
                self.buffer.start(),
                plan.receive.wqe_cnt,
                plan.receive.wqe_shift,
                plan.signature,
                null_lkey,
            )),
        };
        let memory: KeepAlive = Box::new((self.buffer, self.send_buffer, self.doorbell));
        // SAFETY: the rings are within the buffers, which are new and live in `memory`.
        let record = unsafe {
            QueueRecord::new(
                asked.kind(),
                number,
                asked.cookie,
                send,
                receive,
                Some(memory),
            )
        };
        if context.checks_packets(asked) {
            return record.with_checksums();
        }
        record
    }
}

impl QpObject {
    /// The kernel's handle.
    pub fn handle(&self) -> Qp {
        self.handle
    }

    /// The queue pair's number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// What was granted.
    pub fn cap(&self) -> &QpCap {
        &self.cap
    }

    /// Kind of the queue pair.
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// The state that it was brought to.
    pub fn state(&self) -> QpState {
        self.state
    }

    /// The context.
    pub fn context(&self) -> &Arc<Mlx5Context> {
        &self.context
    }

    /// Where its memory is.
    pub fn placement(&self) -> &QpPlacement {
        &self.placement
    }

    /// What completions call it; `None` if they never do.
    pub fn key(&self) -> Option<u32> {
        self.entry.as_ref().map(Entry::key)
    }

    /// What its poster and its pollers share; a target of dynamic connections has it from RTR on.
    pub fn record(&self) -> Option<&Arc<QueueRecord>> {
        self.record.as_ref()
    }

    /// [`destroy`](Self::destroy), after which completions still find the queue pair, and nobody else has
    /// its number, until the object is dropped.
    pub(crate) fn destroy_in_kernel(&mut self) -> Result<u32, Errno> {
        if self.destroyed {
            return Ok(0);
        }
        let events = self.context.uctx().destroy_qp(self.handle)?;
        self.destroyed = true;
        Ok(events)
    }

    /// Whether completions call it by the kernel's number, which another one has as soon as this is destroyed: its
    /// completions have to be cleaned before.
    pub(crate) fn lends_its_number(&self) -> bool {
        !self.context.names_queues_by_index()
    }

    /// Brings it to RESET, where it makes no completions.
    pub(crate) fn silence(&mut self) -> Result<(), Errno> {
        let base = ModifyQp {
            attr_mask: QpAttrMask::STATE,
            qp_state: QpState::RESET,
            ..ModifyQp::default()
        };
        let _ = self.modify(&ExModifyQp {
            base,
            ..ExModifyQp::default()
        })?;
        Ok(())
    }

    /// Destroys it in the kernel. Nothing has happened if that fails, as it does while it is in a
    /// multicast group. Both completion queues are to be cleaned before the answer is dropped, and the
    /// data path's queues are to be dropped after it.
    pub fn destroy(&mut self) -> Result<Dying<'_>, Errno> {
        let making = self.context.making(Kind::Queue);
        let events = if self.destroyed {
            0
        } else {
            self.context.uctx().destroy_qp(self.handle)?
        };
        self.destroyed = true;
        Ok(Dying::new(events, self.entry.as_mut(), making))
    }
}

impl Drop for QpObject {
    fn drop(&mut self) {
        if !self.destroyed && self.context.is_ours() && self.destroy().is_err() {
            // The device may still use the rings.
            self.context
                .abandon((self.record.take(), self.entry.take()));
        }
    }
}
