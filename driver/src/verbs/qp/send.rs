//! The half of a queue pair that sends.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use uverbs_abi::types::QpState;
use wqe_format::rxe::{BindMw, Flush, Operation, SendFlags, Sge};
use zerocopy::byteorder::big_endian::U32;

use super::describe::{Payload, describe_mlx5, describe_rxe};
use super::{Connected, Marker, Paired, QpInner, RawPacket, Rc, Service, Ud, operation};
use crate::data::{mlx5, rxe};
use crate::sys::fd::UverbsFd;
use crate::verbs::address::{Destination, To};
use crate::verbs::completion::Completion;
use crate::verbs::mr::{RegionSlice, RemoteMemory};
use crate::verbs::post::PostError;
use crate::verbs::token::{Token, Tokens};

/// The sending half of a queue pair.
#[derive(Debug)]
pub struct SendHalf<T> {
    pub(super) shared: Arc<QpInner>,
    data: Data,
    tokens: Tokens,
    resets: u32,
    signal_all: bool,
    _service: Marker<T>,
}

#[derive(Debug)]
pub(super) enum Data {
    Rxe {
        sq: rxe::SendQueue,
        doorbell: rxe::Doorbell,
    },
    Mlx5 {
        /// `None`: the queue pair does not send.
        sq: Option<mlx5::SendQueue>,
        /// How often the state had changed when it was looked at.
        seen: u32,
    },
}

impl<T: Service> SendHalf<T> {
    pub(super) fn new(shared: Arc<QpInner>, data: Data, tokens: Tokens, signal_all: bool) -> Self {
        Self {
            shared,
            data,
            tokens,
            resets: 0,
            signal_all,
            _service: PhantomData,
        }
    }

    /// Begins a batch of sends, which one doorbell announces. A batch that is dropped posts nothing.
    #[inline]
    pub fn batch(&mut self) -> SendBatch<'_, T> {
        let ours = self.shared.pd.context.is_ours();
        let state = self.shared.state();
        let accepting = matches!(
            state,
            QpState::RTS | QpState::SQD | QpState::SQE | QpState::ERR
        );
        let resets = self.shared.resets.load(Ordering::Acquire);
        let fd = self.shared.pd.context.uctx().fd();
        // The family is matched here, once for the batch.
        let core = match &mut self.data {
            Data::Rxe { sq, doorbell } => {
                // The queue's memory does not exist in a forked child.
                if ours && self.resets != resets {
                    self.resets = resets;
                    sq.reset();
                }
                sq.set_accepting(accepting);
                let draft = sq.begin();
                Core::Rxe(RxeBatch {
                    sq,
                    doorbell,
                    fd,
                    draft,
                })
            }
            Data::Mlx5 { sq: None, .. } => Core::Nothing,
            Data::Mlx5 { sq: Some(sq), seen } => {
                if ours && *seen != self.shared.changes.load(Ordering::Acquire) {
                    take_up(&self.shared, sq, seen, &mut self.resets);
                }
                let draft = sq.begin();
                Core::Mlx5 { sq, draft }
            }
        };
        SendBatch {
            core,
            ours,
            _service: PhantomData,
        }
    }

    /// Gives back the buffer of a completed send; `None` if it was not posted here, or not safely.
    pub fn reclaim(&mut self, completion: &Completion) -> Option<RegionSlice> {
        let ours =
            completion.queue == self.shared.send_cq.id && completion.qp_num() == self.shared.qp_num;
        if ours {
            self.tokens.reclaim(completion.wr_id())
        } else {
            None
        }
    }

    /// The queue itself, in its present state.
    pub(super) fn mlx5(&mut self) -> Option<&mut mlx5::SendQueue> {
        match &mut self.data {
            Data::Mlx5 { sq: Some(sq), seen } => {
                take_up(&self.shared, sq, seen, &mut self.resets);
                Some(sq)
            }
            _ => None,
        }
    }

    /// Whether every send makes a completion.
    pub fn signals_all(&self) -> bool {
        self.signal_all
    }

    /// Posts one signaled work request whose buffer the queue keeps.
    pub(super) fn post_kept<F>(
        &mut self,
        buffer: RegionSlice,
        describe: F,
    ) -> Result<Token, PostError>
    where
        F: for<'b, 'q> FnOnce(&'b mut SendBatch<'q, T>, u64) -> WorkRequest<'b, 'q, T>,
    {
        let full = PostError::Refused(rxe::PostError::QueueFull);
        let token = self.tokens.next().ok_or(full)?;
        let mut batch = self.batch();
        describe(&mut batch, token.wr_id())
            .signaled()
            .sges(&[buffer.sge()]);
        // SAFETY: `tokens` keeps the region registered until the completion, and it is never lent as a
        // slice.
        let posted = unsafe { batch.post() };
        match posted {
            // With a doorbell that failed, the work request is in the queue nonetheless.
            Ok(()) | Err(PostError::Doorbell(_)) => self.tokens.keep(buffer),
            Err(_) => {}
        }
        posted.map(|()| token)
    }
}

impl<T: Paired> SendHalf<T> {
    /// Posts a SEND. The queue keeps the buffer until [`reclaim`](Self::reclaim) gets its completion.
    ///
    /// # Errors
    ///
    /// The queue is full, or the queue pair is not ready to send.
    pub fn send(&mut self, buffer: RegionSlice) -> Result<Token, PostError> {
        self.post_kept(buffer, |batch, wr_id| batch.send(wr_id))
    }

    /// Posts an RDMA WRITE, as [`send`](Self::send) does.
    ///
    /// # Errors
    ///
    /// As for [`send`](Self::send).
    pub fn write(&mut self, buffer: RegionSlice, to: RemoteMemory) -> Result<Token, PostError> {
        self.post_kept(buffer, |batch, wr_id| batch.write(wr_id, to))
    }
}

impl SendHalf<Rc> {
    /// Posts an RDMA READ into the buffer, as [`send`](Self::send) does.
    ///
    /// # Errors
    ///
    /// As for [`send`](Self::send).
    pub fn read(&mut self, buffer: RegionSlice, from: RemoteMemory) -> Result<Token, PostError> {
        self.shared.check_takes_data(&buffer)?;
        self.post_kept(buffer, |batch, wr_id| batch.read(wr_id, from))
    }
}

impl SendHalf<Ud> {
    /// Posts a datagram. The queue keeps the buffer until [`reclaim`](Self::reclaim) gets its completion.
    ///
    /// # Errors
    ///
    /// The queue is full, or the queue pair is not ready to send.
    pub fn send(&mut self, buffer: RegionSlice, to: &Destination<'_>) -> Result<Token, PostError> {
        self.post_kept(buffer, |batch, wr_id| batch.send(wr_id, to))
    }
}

/// Sends that are posted together, with one doorbell.
///
/// A work request is begun by the function of its operation, modified ([`WorkRequest::signaled`]) and
/// finished with its payload ([`WorkRequest::sges`], [`WorkRequest::inline`]). One that is not finished, or
/// not valid, makes [`post`](Self::post) fail, and nothing of the batch is posted then.
#[derive(Debug)]
#[must_use = "a batch that is dropped posts nothing"]
pub struct SendBatch<'q, T> {
    core: Core<'q>,
    ours: bool,
    _service: Marker<T>,
}

#[derive(Debug)]
enum Core<'q> {
    Rxe(RxeBatch<'q>),
    Mlx5 {
        sq: &'q mut mlx5::SendQueue,
        draft: mlx5::Draft,
    },
    /// There is no send queue.
    Nothing,
}

/// Tells a queue what became of its queue pair.
#[cold]
fn take_up(shared: &QpInner, sq: &mut mlx5::SendQueue, seen: &mut u32, resets: &mut u32) {
    let changes = shared.changes.load(Ordering::Acquire);
    if !shared.is_clean() {
        sq.set_accepting(false);
        return;
    }
    let now = shared.resets.load(Ordering::Acquire);
    if *resets != now {
        *resets = now;
        sq.reset();
    }
    sq.set_accepting(matches!(
        shared.state(),
        QpState::RTS | QpState::SQD | QpState::SQE | QpState::ERR
    ));
    *seen = changes;
}

#[derive(Debug)]
struct RxeBatch<'q> {
    sq: &'q mut rxe::SendQueue,
    doorbell: &'q rxe::Doorbell,
    fd: &'q UverbsFd,
    draft: rxe::Draft,
}

impl<'q, T: Service> SendBatch<'q, T> {
    /// Posts the batch.
    ///
    /// # Errors
    ///
    /// The first error of its work requests; nothing is posted then.
    ///
    /// # Safety
    ///
    /// The memory that gather elements name stays valid until the work requests complete, and is not
    /// written to meanwhile (not read either, if the operation writes to it; then, unless the queue pair was made without
    /// [data in completions](super::QueuePairBuilder::data_in_completions), elements name it by its address in this process). Numbers of work requests are
    /// below 2^63, unless nothing is posted safely.
    #[inline]
    pub unsafe fn post(self) -> Result<(), PostError> {
        if !self.ours {
            return Err(PostError::ForkedChild);
        }
        match self.core {
            Core::Rxe(batch) => {
                if let Some(error) = batch.draft.error() {
                    return Err(error.into());
                }
                if batch.sq.commit(&batch.draft) {
                    batch.doorbell.ring(batch.fd).map_err(PostError::Doorbell)?;
                }
                Ok(())
            }
            Core::Mlx5 { sq, mut draft } => {
                sq.commit(&mut draft)?;
                Ok(())
            }
            Core::Nothing => Err(mlx5::PostError::QueueFull.into()),
        }
    }

    #[inline]
    pub(super) fn begin<'b>(
        &'b mut self,
        wr_id: u64,
        operation: Operation,
        to: Option<To>,
    ) -> WorkRequest<'b, 'q, T> {
        WorkRequest {
            batch: self,
            wr_id,
            operation,
            to,
            flags: SendFlags(0),
        }
    }
}

impl<'q, T: Paired> SendBatch<'q, T> {
    /// SEND.
    #[inline]
    pub fn send(&mut self, wr_id: u64) -> WorkRequest<'_, 'q, T> {
        self.begin(wr_id, Operation::Send, None)
    }

    /// SEND with immediate data.
    #[inline]
    pub fn send_imm(&mut self, wr_id: u64, imm: u32) -> WorkRequest<'_, 'q, T> {
        self.begin(wr_id, Operation::SendWithImm { imm: U32::new(imm) }, None)
    }

    /// RDMA WRITE.
    #[inline]
    pub fn write(&mut self, wr_id: u64, to: RemoteMemory) -> WorkRequest<'_, 'q, T> {
        self.begin(wr_id, operation::write(to), None)
    }

    /// RDMA WRITE with immediate data, which takes a receive of the peer's.
    #[inline]
    pub fn write_imm(&mut self, wr_id: u64, to: RemoteMemory, imm: u32) -> WorkRequest<'_, 'q, T> {
        self.begin(wr_id, operation::write_imm(to, imm), None)
    }
}

impl<'q, T: Connected> SendBatch<'q, T> {
    /// Invalidates a local key.
    #[inline]
    pub fn local_invalidate(&mut self, wr_id: u64, rkey: u32) -> WorkRequest<'_, 'q, T> {
        self.begin(wr_id, Operation::LocalInv { rkey }, None)
    }

    /// Binds a memory window.
    #[inline]
    pub fn bind(&mut self, wr_id: u64, bind: BindMw) -> WorkRequest<'_, 'q, T> {
        self.begin(wr_id, Operation::BindMw(bind), None)
    }
}

impl<'q> SendBatch<'q, Rc> {
    /// SEND that invalidates a key of the receiver's.
    #[inline]
    pub fn send_invalidate(&mut self, wr_id: u64, rkey: u32) -> WorkRequest<'_, 'q, Rc> {
        self.begin(wr_id, Operation::SendWithInv { rkey }, None)
    }

    /// RDMA READ.
    #[inline]
    pub fn read(&mut self, wr_id: u64, from: RemoteMemory) -> WorkRequest<'_, 'q, Rc> {
        self.begin(wr_id, operation::read(from), None)
    }

    /// Compare and swap of 8 bytes; the old value goes to the local memory.
    #[inline]
    pub fn compare_swap(
        &mut self,
        wr_id: u64,
        at: RemoteMemory,
        compare: u64,
        swap: u64,
    ) -> WorkRequest<'_, 'q, Rc> {
        self.begin(wr_id, operation::compare_swap(at, compare, swap), None)
    }

    /// Fetch and add of 8 bytes; the old value goes to the local memory.
    #[inline]
    pub fn fetch_add(&mut self, wr_id: u64, at: RemoteMemory, add: u64) -> WorkRequest<'_, 'q, Rc> {
        self.begin(wr_id, operation::fetch_add(at, add), None)
    }

    /// Flush of remote memory.
    #[inline]
    pub fn flush(&mut self, wr_id: u64, flush: Flush) -> WorkRequest<'_, 'q, Rc> {
        self.begin(wr_id, Operation::Flush(flush), None)
    }

    /// Writes 8 bytes at once; [`WorkRequest::atomic_value`] gives them.
    #[inline]
    pub fn atomic_write(&mut self, wr_id: u64, to: RemoteMemory) -> WorkRequest<'_, 'q, Rc> {
        let RemoteMemory {
            addr: remote_addr,
            rkey,
        } = to;
        self.begin(wr_id, Operation::AtomicWrite { remote_addr, rkey }, None)
    }
}

impl<'q> SendBatch<'q, Ud> {
    /// A datagram.
    #[inline]
    pub fn send(&mut self, wr_id: u64, to: &Destination<'_>) -> WorkRequest<'_, 'q, Ud> {
        self.begin(wr_id, Operation::Send, Some(to.to))
    }

    /// A datagram with immediate data.
    #[inline]
    pub fn send_imm(
        &mut self,
        wr_id: u64,
        to: &Destination<'_>,
        imm: u32,
    ) -> WorkRequest<'_, 'q, Ud> {
        let operation = Operation::SendWithImm { imm: U32::new(imm) };
        self.begin(wr_id, operation, Some(to.to))
    }
}

impl<'q> SendBatch<'q, RawPacket> {
    /// A packet, with its Ethernet header.
    ///
    /// # Safety
    ///
    /// What [`WorkRequest::sges`] is given is memory of this process that may be read: devices that want it so get the
    /// packet's headers with the work request, and they are copied there at once.
    #[inline]
    pub unsafe fn send(&mut self, wr_id: u64) -> WorkRequest<'_, 'q, RawPacket> {
        self.begin(wr_id, Operation::Send, None)
    }
}

/// A work request in the making; finish it with one of [`sges`](Self::sges), [`inline`](Self::inline),
/// [`empty`](Self::empty) and [`atomic_value`](Self::atomic_value).
#[derive(Debug)]
#[must_use = "a work request is part of its batch when it is finished with a payload"]
pub struct WorkRequest<'b, 'q, T> {
    batch: &'b mut SendBatch<'q, T>,
    wr_id: u64,
    operation: Operation,
    to: Option<To>,
    flags: SendFlags,
}

impl<T: Service> WorkRequest<'_, '_, T> {
    /// It makes a completion also when it ends well.
    #[inline]
    pub fn signaled(self) -> Self {
        self.with(SendFlags::SIGNALED)
    }

    /// Its arrival is announced to a peer that waits for solicited completions only.
    #[inline]
    pub fn solicited(self) -> Self {
        self.with(SendFlags::SOLICITED)
    }

    /// It waits for earlier reads and atomics.
    #[inline]
    pub fn fenced(self) -> Self {
        self.with(SendFlags::FENCE)
    }

    #[inline]
    fn with(mut self, flag: SendFlags) -> Self {
        self.flags = self.flags.with(flag);
        self
    }

    /// Its payload is in registered memory.
    #[inline]
    pub fn sges(self, sges: &[Sge]) {
        self.finish(Payload::Sges(sges));
    }

    /// It has no payload.
    #[inline]
    pub fn empty(self) {
        self.sges(&[]);
    }

    /// Its payload is copied into the queue now.
    #[inline]
    pub fn inline(self, bytes: &[u8]) {
        self.finish(Payload::Inline(bytes));
    }

    /// The value of an atomic write.
    #[inline]
    pub fn atomic_value(self, value: [u8; 8]) {
        self.finish(Payload::AtomicValue(value));
    }

    /// Errors stay in the draft, and `post` tells the first one.
    #[inline(always)]
    fn finish(self, payload: Payload<'_>) {
        if !self.batch.ours {
            // `post` says so; the queue's memory does not exist in a forked child.
            return;
        }
        match &mut self.batch.core {
            Core::Rxe(RxeBatch { sq, draft, .. }) => {
                let to = match &self.to {
                    Some(To::Rxe(to)) => Some(to),
                    // a handle of another device; the queue misses the destination
                    _ => None,
                };
                let opened = sq.open(draft, self.wr_id, self.flags, &self.operation, to);
                if opened.is_ok() && describe_rxe(sq, draft, payload).is_ok() {
                    sq.close(draft);
                }
            }
            Core::Mlx5 { sq, draft } => {
                let _ = describe_mlx5(
                    sq,
                    draft,
                    self.wr_id,
                    self.flags,
                    &self.operation,
                    self.to.as_ref(),
                    payload,
                );
            }
            Core::Nothing => {}
        }
    }
}
