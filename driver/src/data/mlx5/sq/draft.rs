//! Describing a batch step by step.

use wqe_format::mlx5::{
    AtomicSegment, CtrlFlags, CtrlSegment, DS_UNIT, DataSegment, DatagramSegment,
    MaskedAtomic4Segment, MaskedAtomic8Segment, MaskedFetchAdd4Segment, MaskedFetchAdd8Segment,
    MmoSegment, Opcode, RaddrSegment, XrcSegment, opmod,
};
use wqe_format::rxe::Sge;
use zerocopy::FromBytes;
use zerocopy::byteorder::big_endian::U32;

use super::super::error::PostError;
use super::super::record::{QueueKind, WorkKind};
use super::super::ring::{Cursor, unit, units};
use super::request::{Bind, Destination, InlinePiece, Remote, Segmentation, SendFlags};
use super::segments::Consumed;
use super::{Position, SendQueue};

/// The most that one copy request copies; its length field holds 0 then.
const COPY_2_GIB: u64 = 1 << 31;

/// What a work request does.
#[derive(Clone, Copy, Debug)]
#[allow(
    missing_docs,
    reason = "the fields are what the operations are called with"
)]
pub enum Operation {
    /// Sends.
    Send,
    /// Sends, with immediate data as the peer gets it.
    SendWithImm { imm: U32 },
    /// Sends, and invalidates a key of the peer.
    SendWithInv { rkey: u32 },
    /// Writes.
    RdmaWrite(Remote),
    /// Writes, with immediate data as the peer gets it.
    RdmaWriteWithImm { remote: Remote, imm: U32 },
    /// Reads.
    RdmaRead(Remote),
    /// Compares and swaps 8 bytes.
    AtomicCmpAndSwp {
        remote: Remote,
        compare: u64,
        swap: u64,
    },
    /// Adds to 8 bytes.
    AtomicFetchAndAdd { remote: Remote, add: u64 },
    /// Compares and swaps 8 bytes under masks. Unproven on hardware.
    MaskedCmpAndSwp8 {
        remote: Remote,
        compare: u64,
        compare_mask: u64,
        swap: u64,
        swap_mask: u64,
    },
    /// Adds to fields of 8 bytes; each bit of `boundaries` ends a field. Unproven on hardware.
    MaskedFetchAndAdd8 {
        remote: Remote,
        add: u64,
        boundaries: u64,
    },
    /// Compares and swaps 4 bytes under masks. Unproven on hardware.
    MaskedCmpAndSwp4 {
        remote: Remote,
        compare: u32,
        compare_mask: u32,
        swap: u32,
        swap_mask: u32,
    },
    /// Adds to fields of 4 bytes; each bit of `boundaries` ends a field. Unproven on hardware.
    MaskedFetchAndAdd4 {
        remote: Remote,
        add: u32,
        boundaries: u32,
    },
    /// Invalidates a key.
    LocalInv { rkey: u32 },
    /// Binds a memory window.
    BindMw(Bind),
    /// Sends a packet in segments.
    Tso(Segmentation),
    /// Copies memory. The state of the copy is in opaque memory of the protection domain.
    Memcpy {
        to_lkey: u32,
        to: u64,
        from_lkey: u32,
        from: u64,
        length: u64,
        state_lkey: u32,
        state: u64,
    },
    /// Does nothing, in order.
    Nop,
}

/// A batch in the making. It holds no borrow of its queue, since between libibverbs' `ibv_wr_start` and
/// `ibv_wr_complete` the program calls as it likes; use it with the queue that began it, and post nothing else meanwhile:
/// such a batch is refused.
#[derive(Clone, Copy, Debug)]
pub struct Draft {
    begun: u32,
    position: Position,
    stop: u32,
    open: Option<Open>,
    last: Cursor,
    inline: bool,
    error: Option<PostError>,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    wr_id: u64,
    /// Behind the operation's segments.
    payload: Cursor,
    /// Behind what was put so far.
    cursor: Cursor,
    opcode: Opcode,
    opmod: u8,
    flags: CtrlFlags,
    stream: u16,
    kind: WorkKind,
    imm: Option<U32>,
    next_fence: CtrlFlags,
    /// Whether it may have a payload.
    takes_payload: bool,
    /// Whether it lacks one.
    needs_payload: bool,
    /// Whether it lacks a destination.
    needs_destination: bool,
    /// Whether the packet's header is to be put into the Ethernet segment, with or without checksums.
    header: Option<bool>,
}

impl SendQueue {
    /// Begins a batch.
    #[inline]
    pub fn begin(&self) -> Draft {
        Draft {
            begun: self.head,
            position: self.position(),
            stop: self.stop,
            open: None,
            last: Cursor::default(),
            inline: false,
            error: if self.accepting {
                None
            } else {
                Some(PostError::WrongState)
            },
        }
    }

    /// Begins a work request, and ends the one before; the `set_` functions complete it, in any order. An error is also
    /// kept in the draft.
    ///
    /// # Safety
    ///
    /// The headers of [`Operation::Tso`] are readable, if they are within the queue's limit.
    #[inline]
    pub unsafe fn open(
        &self,
        draft: &mut Draft,
        wr_id: u64,
        flags: SendFlags,
        operation: &Operation,
    ) -> Result<(), PostError> {
        self.close(draft);
        if let Some(error) = draft.error {
            return Err(error);
        }
        if draft.begun != self.head {
            return Err(draft.fail(PostError::Incomplete));
        }
        if draft.position.head == draft.stop {
            match self.look_for_room(draft.position.head) {
                Ok(stop) => draft.stop = stop,
                Err(error) => return Err(draft.fail(error)),
            }
        }
        // SAFETY: the caller's promise.
        match unsafe { self.describe(&draft.position, wr_id, flags, operation) } {
            Ok(open) => {
                draft.open = Some(open);
                Ok(())
            }
            Err(error) => Err(draft.fail(error)),
        }
    }

    /// # Safety
    ///
    /// As for [`open`](Self::open).
    #[inline(always)]
    unsafe fn describe(
        &self,
        position: &Position,
        wr_id: u64,
        flags: SendFlags,
        operation: &Operation,
    ) -> Result<Open, PostError> {
        let kind = self.kind;
        let mut cursor = Cursor::behind_ctrl(position.blocks);
        let local = matches!(
            operation,
            Operation::LocalInv { .. }
                | Operation::BindMw(_)
                | Operation::Memcpy { .. }
                | Operation::Nop
        );
        let transport = if local { 0 } else { self.transport_units() };
        cursor.skip(transport);
        let mut open = Open {
            wr_id,
            payload: cursor,
            cursor,
            opcode: Opcode::NOP,
            opmod: 0,
            flags: CtrlFlags(self.always.0 | flags.ctrl(position.fence).0),
            stream: 0,
            kind: WorkKind::Plain,
            imm: None,
            next_fence: CtrlFlags::NONE,
            takes_payload: !local,
            needs_payload: false,
            needs_destination: transport != 0,
            header: None,
        };
        let reliable = matches!(kind, QueueKind::Rc | QueueKind::XrcSend | QueueKind::Dci);
        let connected = reliable || kind == QueueKind::Uc;
        let datagram = kind == QueueKind::Ud;
        let raw = kind == QueueKind::RawPacket;
        open.opcode = match *operation {
            Operation::Send if raw => {
                let checksums = flags.contains(SendFlags::IP_CSUM);
                if self.limits.min_inline_header == 0 {
                    // SAFETY: behind the control segment of a free block; nothing of the packet is read.
                    unsafe { self.put_eth(&mut cursor, checksums, std::iter::empty()) }?;
                } else {
                    open.header = Some(checksums);
                    open.needs_payload = true;
                }
                Opcode::SEND
            }
            Operation::Send if connected || datagram => Opcode::SEND,
            Operation::SendWithImm { imm } if connected || datagram => {
                open.imm = Some(imm);
                Opcode::SEND_IMM
            }
            Operation::SendWithInv { rkey } if connected => {
                open.imm = Some(U32::new(rkey));
                Opcode::SEND_INVAL
            }
            Operation::RdmaWrite(remote) if connected => {
                self.put_target(&mut cursor, remote);
                Opcode::RDMA_WRITE
            }
            Operation::RdmaWriteWithImm { remote, imm } if connected => {
                self.put_target(&mut cursor, remote);
                open.imm = Some(imm);
                Opcode::RDMA_WRITE_IMM
            }
            Operation::RdmaRead(remote) if reliable => {
                self.put_target(&mut cursor, remote);
                Opcode::RDMA_READ
            }
            Operation::AtomicCmpAndSwp {
                remote,
                compare,
                swap,
            } if reliable => {
                let segment = AtomicSegment::compare_swap(compare, swap);
                self.put_operands(&mut open, &mut cursor, remote, [unit(segment)])?;
                Opcode::ATOMIC_CS
            }
            Operation::AtomicFetchAndAdd { remote, add } if reliable => {
                let segment = AtomicSegment::fetch_add(add);
                self.put_operands(&mut open, &mut cursor, remote, [unit(segment)])?;
                Opcode::ATOMIC_FA
            }
            Operation::MaskedCmpAndSwp8 {
                remote,
                compare,
                compare_mask,
                swap,
                swap_mask,
            } if reliable => {
                let segment = MaskedAtomic8Segment::new(compare, compare_mask, swap, swap_mask);
                let segment = units::<_, 2>(segment);
                self.put_operands(&mut open, &mut cursor, remote, segment)?;
                open.opmod = opmod::EXTENDED_ATOMIC_8;
                Opcode::ATOMIC_MASKED_CS
            }
            Operation::MaskedFetchAndAdd8 {
                remote,
                add,
                boundaries,
            } if reliable => {
                let segment = MaskedFetchAdd8Segment::new(add, boundaries);
                self.put_operands(&mut open, &mut cursor, remote, [unit(segment)])?;
                open.opmod = opmod::EXTENDED_ATOMIC_8;
                Opcode::ATOMIC_MASKED_FA
            }
            Operation::MaskedCmpAndSwp4 {
                remote,
                compare,
                compare_mask,
                swap,
                swap_mask,
            } if reliable => {
                let segment = MaskedAtomic4Segment::new(compare, compare_mask, swap, swap_mask);
                self.put_operands(&mut open, &mut cursor, remote, [unit(segment)])?;
                open.opmod = opmod::EXTENDED_ATOMIC_4;
                Opcode::ATOMIC_MASKED_CS
            }
            Operation::MaskedFetchAndAdd4 {
                remote,
                add,
                boundaries,
            } if reliable => {
                let segment = MaskedFetchAdd4Segment::new(add, boundaries);
                self.put_operands(&mut open, &mut cursor, remote, [unit(segment)])?;
                open.opmod = opmod::EXTENDED_ATOMIC_4;
                Opcode::ATOMIC_MASKED_FA
            }
            Operation::LocalInv { rkey } if connected => {
                let bind = Bind {
                    old_rkey: rkey,
                    ..Bind::default()
                };
                self.describe_window(&mut open, &mut cursor, &bind, WorkKind::LocalInv)?
            }
            Operation::BindMw(bind) if connected => {
                self.describe_window(&mut open, &mut cursor, &bind, WorkKind::BindMw)?
            }
            Operation::Tso(segmentation) if raw => {
                let checksums = flags.contains(SendFlags::IP_CSUM);
                // SAFETY: behind the control segment, in free blocks; the caller's promise.
                unsafe { self.put_tso(&mut cursor, checksums, &segmentation) }?;
                Opcode::TSO
            }
            Operation::Memcpy {
                to_lkey,
                to,
                from_lkey,
                from,
                length,
                state_lkey,
                state,
            } if matches!(kind, QueueKind::Rc | QueueKind::Dci) => {
                if length == 0 || length > self.limits.max_copy.min(COPY_2_GIB) {
                    return Err(PostError::CopyLength);
                }
                // 2 GiB are written as 0.
                let length = (length % COPY_2_GIB) as u32;
                let segments = [
                    unit(MmoSegment::new(state, state_lkey)),
                    unit(DataSegment::new(from, length, from_lkey)),
                    unit(DataSegment::new(to, length, to_lkey)),
                ];
                // SAFETY: the rest of a free block.
                unsafe { cursor.put_all(&self.ring, segments) };
                open.opmod = opmod::MMO_DMA;
                open.kind = WorkKind::Memcpy;
                Opcode::MMO
            }
            Operation::Nop => Opcode::NOP,
            _ => return Err(PostError::Opcode),
        };
        open.payload = cursor;
        open.cursor = cursor;
        Ok(open)
    }

    #[inline(always)]
    fn put_target(&self, cursor: &mut Cursor, remote: Remote) {
        let segment = unit(RaddrSegment::new(remote.addr, remote.rkey));
        // SAFETY: free blocks: `open` saw room for a work request.
        unsafe { cursor.put(&self.ring, segment) };
    }

    #[inline(always)]
    fn put_operands<const N: usize>(
        &self,
        open: &mut Open,
        cursor: &mut Cursor,
        remote: Remote,
        operands: [[u64; 2]; N],
    ) -> Result<(), PostError> {
        if !self.limits.atomics {
            return Err(PostError::AtomicsOff);
        }
        if cursor.ds() + 2 + N as u32 > self.max_ds {
            return Err(PostError::Length);
        }
        self.put_target(cursor, remote);
        // SAFETY: free blocks, in which a work request of `max_ds` units has room.
        unsafe { cursor.put_all(&self.ring, operands) };
        open.needs_payload = true;
        Ok(())
    }

    fn describe_window(
        &self,
        open: &mut Open,
        cursor: &mut Cursor,
        bind: &Bind,
        kind: WorkKind,
    ) -> Result<Opcode, PostError> {
        // SAFETY: behind the control segment, in free blocks.
        unsafe { self.put_bind(cursor, bind) }?;
        open.kind = kind;
        open.imm = Some(U32::new(bind.old_rkey));
        open.next_fence = CtrlFlags::SMALL_FENCE;
        Ok(Opcode::UMR)
    }

    /// Gives the open datagram its destination.
    #[inline]
    pub fn set_datagram(&self, draft: &mut Draft, to: &Destination<'_>) {
        let segment = to.av.to_qp(to.qpn, to.qkey);
        self.set_address(draft, QueueKind::Ud, units::<_, 3>(segment), 0);
    }

    /// Gives the open request of a dynamically connected initiator its destination, and its stream if the queue pair has
    /// such.
    #[inline]
    pub fn set_dct(
        &self,
        draft: &mut Draft,
        av: &DatagramSegment,
        dctn: u32,
        access_key: u64,
        stream: u16,
    ) {
        let segment = av.to_dct(dctn, access_key);
        self.set_address(draft, QueueKind::Dci, units::<_, 3>(segment), stream);
    }

    /// Gives the open XRC request its remote shared receive queue.
    #[inline]
    pub fn set_srqn(&self, draft: &mut Draft, srqn: u32) {
        let segment = unit(XrcSegment::new(srqn));
        self.set_address(draft, QueueKind::XrcSend, [segment], 0);
    }

    #[inline(always)]
    fn set_address<const N: usize>(
        &self,
        draft: &mut Draft,
        kind: QueueKind,
        segment: [[u64; 2]; N],
        stream: u16,
    ) {
        match &mut draft.open {
            Some(open) if open.takes_payload && kind == self.kind => {
                let mut cursor = Cursor::behind_ctrl(draft.position.blocks);
                for unit in segment {
                    // SAFETY: the rest of a free block: `open` saw room.
                    unsafe { cursor.put_in_block(&self.ring, unit) };
                }
                open.needs_destination = false;
                open.stream = stream;
            }
            _ => {
                draft.fail(PostError::Incomplete);
            }
        }
    }

    /// Gives the open work request one piece of local memory, in place of what was given before.
    ///
    /// # Safety
    ///
    /// As for [`set_sges`](Self::set_sges).
    #[inline]
    pub unsafe fn set_sge(&self, draft: &mut Draft, sge: &Sge) -> Result<(), PostError> {
        // SAFETY: the caller's promise.
        unsafe { self.put_list(draft, std::slice::from_ref(sge)) }
    }

    /// Gives the open work request its scatter/gather list, in place of what was given before.
    ///
    /// # Safety
    ///
    /// On a raw packet queue, the first 18 bytes of the packet are readable at the elements' addresses: its header is copied
    /// into the ring. Other queues read nothing.
    #[inline]
    pub unsafe fn set_sges(&self, draft: &mut Draft, sges: &[Sge]) -> Result<(), PostError> {
        if sges.len() > self.limits.max_sge as usize {
            return Err(draft.fail(PostError::TooManySges));
        }
        // SAFETY: the caller's promise.
        unsafe { self.put_list(draft, sges) }
    }

    /// # Safety
    ///
    /// As for [`set_sges`](Self::set_sges).
    #[inline(always)]
    unsafe fn put_list(&self, draft: &mut Draft, sges: &[Sge]) -> Result<(), PostError> {
        let pieces = sges.iter().map(InlinePiece::of_sge);
        // SAFETY: the caller's promise.
        let (mut cursor, consumed) = unsafe { self.payload(draft, pieces) }?;
        if cursor.ds() + sges.len() as u32 > self.max_ds {
            return Err(draft.fail(PostError::TooManySges));
        }
        let mut skipped = consumed.bytes;
        for sge in sges.iter().skip(consumed.pieces) {
            let rest = Sge {
                addr: sge.addr.wrapping_add(skipped as u64),
                ..*sge
            };
            // SAFETY: free blocks, in which a work request of `max_ds` units has room.
            let put = unsafe { self.put_sge(&mut cursor, &rest, sge.length - skipped as u32) };
            if let Err(error) = put {
                return Err(draft.fail(error));
            }
            skipped = 0;
        }
        draft.set_payload(cursor);
        Ok(())
    }

    /// Copies inline data into the open work request, in place of what was given before.
    ///
    /// # Safety
    ///
    /// Every piece is readable, if their sum is within the limit; a sum that is not is refused before anything is read but the
    /// header of a raw packet.
    #[inline]
    pub unsafe fn set_inline<I>(&self, draft: &mut Draft, pieces: I) -> Result<(), PostError>
    where
        I: Iterator<Item = InlinePiece> + Clone,
    {
        // SAFETY: the caller's promise.
        let (mut cursor, consumed) = unsafe { self.payload(draft, pieces.clone()) }?;
        let mut first = consumed.bytes;
        let pieces = pieces.skip(consumed.pieces).map(move |piece| {
            let skipped = std::mem::take(&mut first);
            InlinePiece {
                addr: piece.addr.wrapping_add(skipped),
                len: piece.len - skipped,
            }
        });
        // SAFETY: free blocks; the caller's promise.
        match unsafe { self.put_inline(&mut cursor, pieces) } {
            Ok(()) => {
                draft.inline = true;
                draft.set_payload(cursor);
                Ok(())
            }
            Err(error) => Err(draft.fail(error)),
        }
    }

    /// Where the payload goes, after a raw packet's header was taken from it.
    ///
    /// # Safety
    ///
    /// On raw packet queues, the pieces' first bytes are readable.
    #[inline(always)]
    unsafe fn payload<I>(
        &self,
        draft: &mut Draft,
        pieces: I,
    ) -> Result<(Cursor, Consumed), PostError>
    where
        I: Iterator<Item = InlinePiece>,
    {
        match draft.open {
            Some(open) if open.takes_payload => match open.header {
                None => Ok((open.payload, Consumed::default())),
                Some(checksums) => {
                    let mut cursor = Cursor::behind_ctrl(draft.position.blocks);
                    // SAFETY: behind the control segment of a free block; the caller's promise.
                    let put = unsafe { self.put_eth(&mut cursor, checksums, pieces) };
                    put.map(|consumed| (cursor, consumed))
                        .map_err(|error| draft.fail(error))
                }
            },
            _ => Err(draft.fail(PostError::Incomplete)),
        }
    }

    /// Puts a work request into the batch that the program built itself, from the control segment on; its index is
    /// filled in. The program answers for what the device makes of it.
    pub fn raw(&self, draft: &mut Draft, wr_id: u64, wqe: &[u8]) -> Result<(), PostError> {
        // SAFETY: no headers are read.
        unsafe { self.open(draft, wr_id, SendFlags::NONE, &Operation::Nop) }?;
        draft.open = None;
        let Ok((ctrl, _)) = CtrlSegment::read_from_prefix(wqe) else {
            return Err(draft.fail(PostError::Length));
        };
        let ds = u32::from(ctrl.ds());
        let length = ds as usize * DS_UNIT;
        if ds == 0 || ds > self.max_ds || length > wqe.len() {
            return Err(draft.fail(PostError::Length));
        }
        let mut cursor = Cursor::behind_ctrl(draft.position.blocks);
        let index = draft.position.blocks as u16;
        let word =
            u32::from(ctrl.opmod()) << 24 | u32::from(index) << 8 | u32::from(ctrl.opcode().0);
        let at = cursor.ctrl(&self.ring);
        let first = cursor.next() - 1;
        // SAFETY: free blocks; the length was compared with the slice's and with the room.
        unsafe { self.ring.copy_in(first, 0, wqe.as_ptr(), length) };
        // SAFETY: the first word of the control segment.
        unsafe { at.cast::<U32>().write(U32::new(word)) };
        cursor.skip(ds - 1);
        self.end(
            draft,
            cursor,
            wr_id,
            ctrl.opcode(),
            WorkKind::Raw,
            CtrlFlags::NONE,
        );
        Ok(())
    }

    /// Ends the open work request; the next one goes behind it. One that lacks what its operation needs (a datagram's
    /// destination, an atomic's memory) is not taken, and the draft keeps the error.
    #[inline]
    pub fn close(&self, draft: &mut Draft) {
        let Some(open) = draft.open.take() else {
            return;
        };
        if open.needs_payload || open.needs_destination {
            draft.fail(PostError::Incomplete);
            return;
        }
        let index = draft.position.blocks as u16;
        let ds = open.cursor.ds() as u8;
        let segment = CtrlSegment::new(open.opcode, index, self.qpn, ds, open.flags)
            .with_opmod(open.opmod)
            .with_dci_stream(open.stream);
        let at = open.cursor.ctrl(&self.ring);
        match open.imm {
            // SAFETY: the first unit of a free block.
            Some(imm) => unsafe { at.write(unit(segment.with_imm(imm))) },
            None => {
                // The immediate data is not the device's business, and libmlx5 leaves it as it was.
                let [first, second] = unit(segment);
                let at = at.cast::<u64>();
                // SAFETY: as above.
                unsafe { at.write(first) };
                // SAFETY: the second half of the unit.
                let half = unsafe { at.add(1) };
                // SAFETY: its first four bytes, the lower ones of the value on the little-endian machines that we are built for.
                unsafe { half.cast::<u32>().write(second as u32) };
            }
        }
        self.end(
            draft,
            open.cursor,
            open.wr_id,
            open.opcode,
            open.kind,
            open.next_fence,
        );
    }

    #[inline(always)]
    fn end(
        &self,
        draft: &mut Draft,
        cursor: Cursor,
        wr_id: u64,
        opcode: Opcode,
        kind: WorkKind,
        next_fence: CtrlFlags,
    ) {
        let last = self.last(&cursor, false);
        self.finish(&mut draft.position, last, wr_id, opcode.0, kind);
        draft.position.fence = next_fence;
        draft.last = cursor;
    }

    /// Ends the batch: gives all of it to the device, or nothing if there was an error. Says how many work requests.
    ///
    /// # Errors
    ///
    /// The first of the batch.
    #[inline]
    pub fn commit(&mut self, mut draft: Draft) -> Result<u32, PostError> {
        self.close(&mut draft);
        if let Some(error) = draft.error {
            return Err(error);
        }
        if draft.begun != self.head {
            return Err(PostError::Incomplete);
        }
        self.stop = if draft.position.fence == CtrlFlags::NONE {
            draft.stop
        } else {
            draft.position.head
        };
        let count = draft.position.head.wrapping_sub(self.head);
        if count != 0 {
            let last = self.last(&draft.last, draft.inline);
            self.announce(draft.position, last);
        }
        Ok(count)
    }
}

impl Draft {
    /// The first error of the batch; work requests begun after it are refused with the same.
    #[inline]
    pub fn error(&self) -> Option<PostError> {
        self.error
    }

    #[inline(always)]
    fn set_payload(&mut self, cursor: Cursor) {
        if let Some(open) = &mut self.open {
            open.cursor = cursor;
            open.needs_payload = false;
        }
    }

    /// Makes the batch fail with an error that the caller found.
    pub fn refuse(&mut self, error: PostError) {
        self.fail(error);
    }

    #[cold]
    fn fail(&mut self, error: PostError) -> PostError {
        self.open = None;
        *self.error.get_or_insert(error)
    }
}
