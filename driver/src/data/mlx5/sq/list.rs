//! Posting whole work requests.

use wqe_format::mlx5::{AtomicSegment, CtrlFlags, CtrlSegment, Opcode, RaddrSegment, XrcSegment};
use wqe_format::rxe::Sge;
use zerocopy::byteorder::big_endian::U32;

use super::super::error::{PostError, Refused};
use super::super::record::{QueueKind, WorkKind};
use super::super::ring::{Cursor, unit, units};
use super::request::{Bind, InlinePiece, Remote, SendFlags, SendRequest, WrOpcode};
use super::segments::Consumed;
use super::{Last, Position, SendQueue};

/// Local memory of an atomic: libmlx5 takes 8 bytes of it whatever its length says.
const ATOMIC_LENGTH: u32 = 8;

/// What writing any work request comes to.
#[derive(Clone, Copy, Debug)]
struct Put {
    position: Position,
    /// At which head to ask for room again.
    stop: u32,
    /// Units of 16 bytes.
    ds: u32,
    /// Whether it has inline data.
    inline: bool,
}

impl SendQueue {
    /// Posts work requests until one is refused or there is none, and gives them to the device at once. Says how many.
    ///
    /// A work request posted alone may be copied into the register.
    ///
    /// # Errors
    ///
    /// The work request that was refused, and why; those before it are posted.
    #[inline]
    pub fn post<R: SendRequest>(
        &mut self,
        requests: impl IntoIterator<Item = R>,
    ) -> Result<u32, Refused<R>> {
        let hot = self.hot();
        let mut blocks = self.blocks;
        let mut head = self.head;
        // Numbers that the loop need not keep up: the last work request is where the next one would be, less its units; it has
        // inline data if it is the last one that had.
        let mut ds = 0;
        let mut inline = head;
        let mut result = Ok(());
        for request in requests {
            let next = head.wrapping_add(1);
            if head != self.stop
                && let Some(written) = hot.put(blocks, next, &request)
            {
                head = next;
                blocks = blocks.wrapping_add(written.blocks);
                ds = written.ds;
                if written.inline {
                    inline = next;
                }
                continue;
            }
            let position = Position {
                blocks,
                head,
                fence: self.fence,
            };
            match self.put(position, self.stop, request) {
                Ok(put) => {
                    // All before the next is posted, come what may.
                    Position {
                        blocks,
                        head,
                        fence: self.fence,
                    } = put.position;
                    self.stop = put.stop;
                    ds = put.ds;
                    if put.inline {
                        inline = head;
                    }
                }
                Err(refused) => {
                    result = Err(refused);
                    break;
                }
            }
        }
        let count = head.wrapping_sub(self.head);
        if count != 0 {
            let position = Position {
                blocks,
                head,
                fence: self.fence,
            };
            self.announce(position, self.last_before(blocks, ds, inline == head));
        }
        result.map(|()| count)
    }

    /// Posts one work request: [`post`](Self::post) of a list of one, in fewer steps. All of the frequent ones is in the
    /// caller, which saves a call's registers, and the time that stores of them wait before the register's.
    ///
    /// # Errors
    ///
    /// Why it was refused.
    #[inline(always)]
    pub fn post_one<R: SendRequest>(&mut self, request: R) -> Result<(), Refused<R>> {
        let (blocks, head) = (self.blocks, self.head);
        if head != self.stop {
            let head = head.wrapping_add(1);
            if let Some(written) = self.hot().put(blocks, head, &request) {
                let last = Last {
                    ctrl: written.ctrl,
                    ds: written.ds,
                    inline: written.inline,
                };
                // There was no fence before it, and there is none behind it.
                // SAFETY: nothing is promised.
                unsafe {
                    self.announce_to::<false>(blocks.wrapping_add(written.blocks), head, last, true)
                };
                return Ok(());
            }
        }
        self.post_other(request)
    }

    #[cold]
    #[inline(never)]
    fn post_other<R: SendRequest>(&mut self, request: R) -> Result<(), Refused<R>> {
        let put = self.put(self.position(), self.stop, request)?;
        self.stop = put.stop;
        let last = self.last_before(put.position.blocks, put.ds, put.inline);
        self.announce(put.position, last);
        Ok(())
    }

    /// Writes any work request, if there is room for it. Takes and gives values, so that the caller's stay in registers.
    #[inline(never)]
    fn put<R: SendRequest>(
        &self,
        mut position: Position,
        stop: u32,
        request: R,
    ) -> Result<Put, Refused<R>> {
        let room = if position.head == stop {
            self.look_for_room(position.head)
        } else {
            Ok(stop)
        };
        let put = room.and_then(|stop| {
            let (ds, inline) = self.put_kind(&mut position, &request)?;
            // The frequent ones do not look at the fence.
            let stop = if position.fence == CtrlFlags::NONE {
                stop
            } else {
                position.head
            };
            Ok(Put {
                position,
                stop,
                ds,
                inline,
            })
        });
        put.map_err(|error| Refused { error, request })
    }

    /// Says its units, and whether it has inline data.
    #[inline(always)]
    fn put_kind<R: SendRequest>(
        &self,
        position: &mut Position,
        request: &R,
    ) -> Result<(u32, bool), PostError> {
        let kind = self.kind;
        let sges = request.sges();
        if sges.len() > self.limits.max_sge as usize {
            return Err(PostError::TooManySges);
        }
        let mut cursor = Cursor::behind_ctrl(position.blocks);
        let flags = request.flags();
        if kind == QueueKind::XrcSend {
            // Windows are local: they have no remote queue.
            if !matches!(request.opcode(), WrOpcode::BIND_MW | WrOpcode::LOCAL_INV) {
                let segment = unit(XrcSegment::new(request.remote_srqn()));
                // SAFETY: the second unit of a free block: `post` saw room for a work request.
                unsafe { cursor.put_in_block(&self.ring, segment) };
            }
        } else if kind == QueueKind::Ud {
            let to = request.destination().ok_or(PostError::Incomplete)?;
            let segment = units::<_, 3>(to.av.to_qp(to.qpn, to.qkey));
            for unit in segment {
                // SAFETY: the rest of a free block.
                unsafe { cursor.put_in_block(&self.ring, unit) };
            }
        }
        let connected = matches!(kind, QueueKind::Rc | QueueKind::Uc | QueueKind::XrcSend);
        let reliable = matches!(kind, QueueKind::Rc | QueueKind::XrcSend);
        let mut imm = U32::ZERO;
        let mut consumed = Consumed::default();
        let opcode = match request.opcode() {
            WrOpcode::RDMA_WRITE if connected => {
                // SAFETY: as above.
                unsafe { self.put_remote(&mut cursor, request.remote()) };
                Opcode::RDMA_WRITE
            }
            WrOpcode::SEND if connected || kind == QueueKind::Ud => Opcode::SEND,
            WrOpcode::RDMA_READ if reliable => {
                // SAFETY: as above.
                unsafe { self.put_remote(&mut cursor, request.remote()) };
                Opcode::RDMA_READ
            }
            WrOpcode::RDMA_WRITE_WITH_IMM if connected => {
                // SAFETY: as above.
                unsafe { self.put_remote(&mut cursor, request.remote()) };
                imm = request.imm();
                Opcode::RDMA_WRITE_IMM
            }
            WrOpcode::SEND_WITH_IMM if connected || kind == QueueKind::Ud => {
                imm = request.imm();
                Opcode::SEND_IMM
            }
            WrOpcode::SEND_WITH_INV if connected => {
                imm = U32::new(request.invalidate_rkey());
                Opcode::SEND_INVAL
            }
            atomic @ (WrOpcode::ATOMIC_CMP_AND_SWP | WrOpcode::ATOMIC_FETCH_AND_ADD)
                if reliable =>
            {
                let ds = self.put_atomic(position, request, cursor, atomic)?;
                return Ok((ds, false));
            }
            WrOpcode::BIND_MW if connected => {
                let bind = request.bind().ok_or(PostError::Incomplete)?;
                let ds = self.put_window(position, request, &bind, WorkKind::BindMw)?;
                return Ok((ds, false));
            }
            WrOpcode::LOCAL_INV if connected => {
                let bind = Bind {
                    old_rkey: request.invalidate_rkey(),
                    ..Bind::default()
                };
                let ds = self.put_window(position, request, &bind, WorkKind::LocalInv)?;
                return Ok((ds, false));
            }
            WrOpcode::SEND if kind == QueueKind::RawPacket => {
                consumed = self.put_packet(&mut cursor, request)?;
                Opcode::SEND
            }
            WrOpcode::TSO if kind == QueueKind::RawPacket => {
                self.put_segmented(&mut cursor, request)?;
                Opcode::TSO
            }
            _ => return Err(PostError::Opcode),
        };
        let inline = flags.contains(SendFlags::INLINE) && !sges.is_empty();
        if inline {
            let mut first = consumed.bytes;
            let pieces = sges[consumed.pieces.min(sges.len())..]
                .iter()
                .map(move |sge| {
                    let skipped = std::mem::take(&mut first);
                    let piece = InlinePiece::of_sge(sge);
                    InlinePiece {
                        addr: piece.addr.wrapping_add(skipped),
                        len: piece.len - skipped,
                    }
                });
            // SAFETY: free blocks; the trait's promise.
            unsafe { self.put_inline(&mut cursor, pieces) }?;
        } else if let [sge] = sges
            && kind == QueueKind::Rc
        {
            // SAFETY: a free block: two units are before it at most.
            unsafe { self.put_sge(&mut cursor, sge, sge.length) }?;
        } else {
            self.put_sges(&mut cursor, sges, consumed)?;
        }
        let ds = cursor.ds();
        let flags = CtrlFlags(self.always.0 | flags.ctrl(position.fence).0);
        position.fence = CtrlFlags::NONE;
        self.put_ctrl(position, ds, opcode, flags, imm);
        self.finish(position, ds, request.wr_id(), opcode.0, WorkKind::Plain);
        Ok((ds, inline))
    }

    #[inline(always)]
    fn put_ctrl(&self, position: &Position, ds: u32, opcode: Opcode, flags: CtrlFlags, imm: U32) {
        let index = position.blocks as u16;
        let segment = CtrlSegment::new(opcode, index, self.qpn, ds as u8, flags).with_imm(imm);
        // SAFETY: the first unit of a free block.
        unsafe { self.ring.block(position.blocks).write(unit(segment)) };
    }

    /// # Safety
    ///
    /// The cursor is behind one or two units of a free block.
    #[inline(always)]
    unsafe fn put_remote(&self, cursor: &mut Cursor, remote: Remote) {
        let segment = unit(RaddrSegment::new(remote.addr, remote.rkey));
        // SAFETY: the caller's promise.
        unsafe { cursor.put_in_block(&self.ring, segment) };
    }

    pub(super) fn put_sges(
        &self,
        cursor: &mut Cursor,
        sges: &[Sge],
        consumed: Consumed,
    ) -> Result<(), PostError> {
        if cursor.ds() + sges.len() as u32 > self.max_ds {
            return Err(PostError::TooManySges);
        }
        let mut skipped = consumed.bytes;
        for sge in sges.iter().skip(consumed.pieces) {
            let rest = Sge {
                addr: sge.addr.wrapping_add(skipped as u64),
                ..*sge
            };
            // SAFETY: free blocks: there is room for a work request of `max_ds` units.
            unsafe { self.put_sge(cursor, &rest, sge.length - skipped as u32) }?;
            skipped = 0;
        }
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn put_atomic<R: SendRequest>(
        &self,
        position: &mut Position,
        request: &R,
        mut cursor: Cursor,
        opcode: WrOpcode,
    ) -> Result<u32, PostError> {
        if !self.limits.atomics {
            return Err(PostError::AtomicsOff);
        }
        let operands = request.atomic();
        let (opcode, segment) = if opcode == WrOpcode::ATOMIC_CMP_AND_SWP {
            let segment = AtomicSegment::compare_swap(operands.compare_add, operands.swap);
            (Opcode::ATOMIC_CS, segment)
        } else {
            let segment = AtomicSegment::fetch_add(operands.compare_add);
            (Opcode::ATOMIC_FA, segment)
        };
        let sges = request.sges();
        if cursor.ds() + 2 + sges.len() as u32 > self.max_ds {
            return Err(PostError::TooManySges);
        }
        // SAFETY: behind one or two units of a free block.
        unsafe { self.put_remote(&mut cursor, request.atomic_remote()) };
        // SAFETY: free blocks.
        unsafe { cursor.put(&self.ring, unit(segment)) };
        for sge in sges {
            let length = if sge.length == 0 { 0 } else { ATOMIC_LENGTH };
            // SAFETY: free blocks.
            unsafe { self.put_sge(&mut cursor, sge, length) }?;
        }
        let ds = cursor.ds();
        let flags = CtrlFlags(self.always.0 | request.flags().ctrl(position.fence).0);
        position.fence = CtrlFlags::NONE;
        self.put_ctrl(position, ds, opcode, flags, U32::ZERO);
        self.finish(position, ds, request.wr_id(), opcode.0, WorkKind::Plain);
        Ok(ds)
    }

    #[cold]
    #[inline(never)]
    fn put_window<R: SendRequest>(
        &self,
        position: &mut Position,
        request: &R,
        bind: &Bind,
        kind: WorkKind,
    ) -> Result<u32, PostError> {
        let mut cursor = Cursor::behind_ctrl(position.blocks);
        // SAFETY: behind the control segment, in free blocks.
        unsafe { self.put_bind(&mut cursor, bind) }?;
        let ds = cursor.ds();
        let flags = CtrlFlags(self.always.0 | request.flags().ctrl(position.fence).0);
        position.fence = CtrlFlags::SMALL_FENCE;
        self.put_ctrl(position, ds, Opcode::UMR, flags, U32::new(bind.old_rkey));
        self.finish(position, ds, request.wr_id(), Opcode::UMR.0, kind);
        Ok(ds)
    }

    #[inline(never)]
    fn put_packet<R: SendRequest>(
        &self,
        cursor: &mut Cursor,
        request: &R,
    ) -> Result<Consumed, PostError> {
        let sges = request.sges();
        if sges.is_empty() {
            return Err(PostError::HeadersTooShort);
        }
        let checksums = request.flags().contains(SendFlags::IP_CSUM);
        // SAFETY: behind the control segment of a free block; the trait's promise.
        unsafe { self.put_eth(cursor, checksums, sges.iter().map(InlinePiece::of_sge)) }
    }

    #[inline(never)]
    fn put_segmented<R: SendRequest>(
        &self,
        cursor: &mut Cursor,
        request: &R,
    ) -> Result<(), PostError> {
        let segmentation = request.segmentation().ok_or(PostError::Incomplete)?;
        let flags = request.flags();
        if !flags.contains(SendFlags::INLINE) {
            let mut left = u64::from(self.limits.max_tso);
            for sge in request.sges() {
                left = left
                    .checked_sub(sge.length.into())
                    .ok_or(PostError::Segmentation)?;
            }
        }
        let checksums = flags.contains(SendFlags::IP_CSUM);
        // SAFETY: behind the control segment, in free blocks; the trait's promise.
        unsafe { self.put_tso(cursor, checksums, &segmentation) }
    }
}
