//! What initiators of extended reliable connections send: each work request names a shared receive queue of the peer's.

use uverbs_abi::types::AccessFlags;
use wqe_format::rxe::Operation;
use zerocopy::byteorder::big_endian::U32;

use super::operation;
use super::send::{SendBatch, SendHalf, WorkRequest};
use super::{Endpoint, Peer, QueuePair, Timing, XrcInitiator};
use crate::error::Result;
use crate::verbs::address::To;
use crate::verbs::mr::{RegionSlice, RemoteMemory};
use crate::verbs::post::PostError;
use crate::verbs::token::Token;
use crate::verbs::xrc::SrqNumber;

impl QueuePair<XrcInitiator> {
    /// INIT to RTR: the peer is the target `peer`. What an initiator receives are answers, so attributes of a receiver have
    /// no meaning.
    ///
    /// # Errors
    ///
    /// Says so if nobody answers for the peer's GID.
    pub fn to_rtr(&mut self, peer: &Peer) -> Result<()> {
        self.modify(&super::rtr(peer))
    }

    /// RTR to RTS: ready to send, from packet number `psn` on.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn to_rts(&mut self, psn: u32, timing: Timing) -> Result<()> {
        self.modify(&super::reliable_rts(psn, timing))
    }

    /// RESET to RTS in one go, with usual values: connects the `local` endpoint of this queue pair to the `remote` one of a
    /// target.
    ///
    /// # Errors
    ///
    /// Says so if nobody answers for the peer's GID.
    pub fn connect(&mut self, local: &Endpoint, remote: &Endpoint) -> Result<()> {
        self.to_init(local.port, AccessFlags::NONE)?;
        self.to_rtr(&remote.as_peer_of(local))?;
        self.to_rts(local.psn, Timing::default())
    }
}

impl SendHalf<XrcInitiator> {
    /// Posts a SEND. The queue keeps the buffer until [`reclaim`](Self::reclaim) gets its completion.
    ///
    /// # Errors
    ///
    /// The queue is full, or the queue pair is not ready to send.
    pub fn send(
        &mut self,
        buffer: RegionSlice,
        srq: SrqNumber,
    ) -> std::result::Result<Token, PostError> {
        self.post_kept(buffer, |batch, wr_id| batch.send(wr_id, srq))
    }

    /// Posts an RDMA WRITE, as [`send`](Self::send) does.
    ///
    /// # Errors
    ///
    /// As for [`send`](Self::send).
    pub fn write(
        &mut self,
        buffer: RegionSlice,
        srq: SrqNumber,
        to: RemoteMemory,
    ) -> std::result::Result<Token, PostError> {
        self.post_kept(buffer, |batch, wr_id| batch.write(wr_id, srq, to))
    }

    /// Posts an RDMA READ into the buffer, as [`send`](Self::send) does.
    ///
    /// # Errors
    ///
    /// As for [`send`](Self::send).
    pub fn read(
        &mut self,
        buffer: RegionSlice,
        srq: SrqNumber,
        from: RemoteMemory,
    ) -> std::result::Result<Token, PostError> {
        self.shared.check_takes_data(&buffer)?;
        self.post_kept(buffer, |batch, wr_id| batch.read(wr_id, srq, from))
    }
}

impl<'q> SendBatch<'q, XrcInitiator> {
    #[inline]
    fn to(
        &mut self,
        wr_id: u64,
        srq: SrqNumber,
        operation: Operation,
    ) -> WorkRequest<'_, 'q, XrcInitiator> {
        self.begin(wr_id, operation, Some(To::Xrc(srq.0)))
    }

    /// SEND.
    #[inline]
    pub fn send(&mut self, wr_id: u64, srq: SrqNumber) -> WorkRequest<'_, 'q, XrcInitiator> {
        self.to(wr_id, srq, Operation::Send)
    }

    /// SEND with immediate data.
    #[inline]
    pub fn send_imm(
        &mut self,
        wr_id: u64,
        srq: SrqNumber,
        imm: u32,
    ) -> WorkRequest<'_, 'q, XrcInitiator> {
        self.to(wr_id, srq, Operation::SendWithImm { imm: U32::new(imm) })
    }

    /// SEND that invalidates a key of the receiver's.
    #[inline]
    pub fn send_invalidate(
        &mut self,
        wr_id: u64,
        srq: SrqNumber,
        rkey: u32,
    ) -> WorkRequest<'_, 'q, XrcInitiator> {
        self.to(wr_id, srq, Operation::SendWithInv { rkey })
    }

    /// RDMA WRITE, to memory of the shared queue's protection domain.
    #[inline]
    pub fn write(
        &mut self,
        wr_id: u64,
        srq: SrqNumber,
        to: RemoteMemory,
    ) -> WorkRequest<'_, 'q, XrcInitiator> {
        self.to(wr_id, srq, operation::write(to))
    }

    /// RDMA WRITE with immediate data, which takes a receive of the shared queue's.
    #[inline]
    pub fn write_imm(
        &mut self,
        wr_id: u64,
        srq: SrqNumber,
        to: RemoteMemory,
        imm: u32,
    ) -> WorkRequest<'_, 'q, XrcInitiator> {
        self.to(wr_id, srq, operation::write_imm(to, imm))
    }

    /// RDMA READ, of memory of the shared queue's protection domain.
    #[inline]
    pub fn read(
        &mut self,
        wr_id: u64,
        srq: SrqNumber,
        from: RemoteMemory,
    ) -> WorkRequest<'_, 'q, XrcInitiator> {
        self.to(wr_id, srq, operation::read(from))
    }

    /// Compare and swap of 8 bytes; the old value goes to the local memory.
    #[inline]
    pub fn compare_swap(
        &mut self,
        wr_id: u64,
        srq: SrqNumber,
        at: RemoteMemory,
        compare: u64,
        swap: u64,
    ) -> WorkRequest<'_, 'q, XrcInitiator> {
        self.to(wr_id, srq, operation::compare_swap(at, compare, swap))
    }

    /// Fetch and add of 8 bytes; the old value goes to the local memory.
    #[inline]
    pub fn fetch_add(
        &mut self,
        wr_id: u64,
        srq: SrqNumber,
        at: RemoteMemory,
        add: u64,
    ) -> WorkRequest<'_, 'q, XrcInitiator> {
        self.to(wr_id, srq, operation::fetch_add(at, add))
    }
}
