//! What a work request of a batch does, and its segments up to the payload.

use wqe_format::mlx5::{
    AtomicSegment, CtrlFlags, CtrlSegment, DataSegment, MaskedAtomic4Segment, MaskedAtomic8Segment,
    MaskedFetchAdd4Segment, MaskedFetchAdd8Segment, MmoSegment, Opcode, RaddrSegment, opmod,
};
use zerocopy::byteorder::big_endian::U32;

use super::super::error::PostError;
use super::super::record::{QueueKind, WorkKind};
use super::super::ring::{Cursor, Unit, unit, units};
use super::SendQueue;
use super::request::{Bind, Remote, Segmentation, SendFlags};

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

/// Operations by class, as bits: which classes a kind of queue has is one number.
pub(super) mod class {
    pub(in super::super) const SEND: u16 = 1;
    pub(in super::super) const INVALIDATE: u16 = 1 << 1;
    pub(in super::super) const WRITE: u16 = 1 << 2;
    pub(in super::super) const READ: u16 = 1 << 3;
    pub(in super::super) const ATOMIC: u16 = 1 << 4;
    pub(in super::super) const WINDOW: u16 = 1 << 5;
    pub(in super::super) const PACKET: u16 = 1 << 6;
    pub(in super::super) const COPY: u16 = 1 << 7;
}

/// The classes of operations that a kind of queue has.
pub(super) const fn classes(kind: QueueKind) -> u16 {
    use class::*;
    const CONNECTED: u16 = SEND | INVALIDATE | WRITE | WINDOW;
    match kind {
        QueueKind::Rc | QueueKind::Dci => CONNECTED | READ | ATOMIC | COPY,
        QueueKind::XrcSend => CONNECTED | READ | ATOMIC,
        QueueKind::Uc => CONNECTED,
        QueueKind::Ud => SEND,
        QueueKind::RawPacket => PACKET,
        _ => 0,
    }
}

/// Those of them that drafts have a short way for, where nothing stands between control segment and remote address. A queue
/// that signs its work requests has none.
pub(super) const fn frequent(kind: QueueKind, plain: bool) -> u16 {
    use class::*;
    match kind {
        QueueKind::Rc | QueueKind::Uc if plain => {
            classes(kind) & (SEND | INVALIDATE | WRITE | READ)
        }
        _ => 0,
    }
}

/// A frequent work request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frequent {
    pub(super) class: u16,
    pub(super) opcode: Opcode,
    pub(super) remote: Option<Remote>,
    /// Immediate data or a key, if there is such.
    pub(super) imm: Option<U32>,
}

impl Operation {
    /// What a frequent one is.
    #[inline(always)]
    pub(super) fn frequent(&self) -> Option<Frequent> {
        let (class, opcode, remote, imm) = match *self {
            Self::Send => (class::SEND, Opcode::SEND, None, None),
            Self::SendWithImm { imm } => (class::SEND, Opcode::SEND_IMM, None, Some(imm)),
            Self::SendWithInv { rkey } => {
                let key = U32::new(rkey);
                (class::INVALIDATE, Opcode::SEND_INVAL, None, Some(key))
            }
            Self::RdmaWrite(remote) => (class::WRITE, Opcode::RDMA_WRITE, Some(remote), None),
            Self::RdmaWriteWithImm { remote, imm } => (
                class::WRITE,
                Opcode::RDMA_WRITE_IMM,
                Some(remote),
                Some(imm),
            ),
            Self::RdmaRead(remote) => (class::READ, Opcode::RDMA_READ, Some(remote), None),
            _ => return None,
        };
        Some(Frequent {
            class,
            opcode,
            remote,
            imm,
        })
    }
}

/// A control segment's second word without immediate data, as memory holds it, by the lower three of libibverbs' flags
/// (fence, signaled, solicited).
pub(super) const fn second_words(always: CtrlFlags) -> [u64; 8] {
    let mut words = [0; 8];
    let mut asked = 0;
    while asked < words.len() {
        let flags = SendFlags(asked as u32).ctrl(CtrlFlags::NONE).with(always);
        words[asked] = CtrlSegment::new(Opcode::NOP, 0, 0, 0, flags).unit()[1];
        asked += 1;
    }
    words
}

/// A work request of which everything but the payload is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Described {
    pub(super) opcode: Opcode,
    pub(super) opmod: u8,
    /// Units before the payload.
    pub(super) ds: u32,
    pub(super) kind: WorkKind,
    /// The next work request's fence.
    pub(super) next_fence: CtrlFlags,
    /// Immediate data or a key, if there is such.
    pub(super) imm: Option<U32>,
    /// Whether it may have a payload, and a destination.
    pub(super) open: bool,
    /// Whether it must have a payload.
    pub(super) needs_payload: bool,
    /// Whether its Ethernet segment is to be written with the payload.
    pub(super) header: bool,
}

impl SendQueue {
    /// Writes the segments between the transport's own and the payload.
    ///
    /// # Safety
    ///
    /// There is room for a work request at the block; headers of a segmentation are readable, if they are within the limit.
    #[inline(always)]
    pub(super) unsafe fn describe(
        &self,
        block: u32,
        flags: SendFlags,
        operation: &Operation,
    ) -> Result<Described, PostError> {
        let mut cursor = Cursor::behind_ctrl(block);
        let mut it = Described {
            opcode: Opcode::NOP,
            opmod: 0,
            ds: 0,
            kind: WorkKind::Plain,
            next_fence: CtrlFlags::NONE,
            imm: None,
            open: true,
            needs_payload: false,
            header: false,
        };
        let local = matches!(
            operation,
            Operation::LocalInv { .. }
                | Operation::BindMw(_)
                | Operation::Memcpy { .. }
                | Operation::Nop
        );
        if local {
            it.open = false;
        } else {
            cursor.skip(self.transport);
        }
        let has = |class: u16| {
            if self.classes & class == 0 {
                Err(PostError::Opcode)
            } else {
                Ok(())
            }
        };
        it.opcode = match *operation {
            Operation::Send => {
                if self.classes & class::SEND == 0 {
                    has(class::PACKET)?;
                    // SAFETY: behind the control segment of a free block.
                    unsafe { self.describe_packet(&mut it, &mut cursor, flags) }?;
                }
                Opcode::SEND
            }
            Operation::SendWithImm { imm } => {
                has(class::SEND)?;
                it.imm = Some(imm);
                Opcode::SEND_IMM
            }
            Operation::SendWithInv { rkey } => {
                has(class::INVALIDATE)?;
                it.imm = Some(U32::new(rkey));
                Opcode::SEND_INVAL
            }
            Operation::RdmaWrite(remote) => {
                has(class::WRITE)?;
                self.put_target(&mut cursor, remote);
                Opcode::RDMA_WRITE
            }
            Operation::RdmaWriteWithImm { remote, imm } => {
                has(class::WRITE)?;
                self.put_target(&mut cursor, remote);
                it.imm = Some(imm);
                Opcode::RDMA_WRITE_IMM
            }
            Operation::RdmaRead(remote) => {
                has(class::READ)?;
                self.put_target(&mut cursor, remote);
                Opcode::RDMA_READ
            }
            Operation::AtomicCmpAndSwp {
                remote,
                compare,
                swap,
            } => {
                let segment = AtomicSegment::compare_swap(compare, swap);
                self.put_operands(&mut it, &mut cursor, remote, [unit(segment)])?;
                Opcode::ATOMIC_CS
            }
            Operation::AtomicFetchAndAdd { remote, add } => {
                let segment = AtomicSegment::fetch_add(add);
                self.put_operands(&mut it, &mut cursor, remote, [unit(segment)])?;
                Opcode::ATOMIC_FA
            }
            Operation::MaskedCmpAndSwp8 {
                remote,
                compare,
                compare_mask,
                swap,
                swap_mask,
            } => {
                let segment = MaskedAtomic8Segment::new(compare, compare_mask, swap, swap_mask);
                let segment = units::<_, 2>(segment);
                self.put_operands(&mut it, &mut cursor, remote, segment)?;
                it.opmod = opmod::EXTENDED_ATOMIC_8;
                Opcode::ATOMIC_MASKED_CS
            }
            Operation::MaskedFetchAndAdd8 {
                remote,
                add,
                boundaries,
            } => {
                let segment = MaskedFetchAdd8Segment::new(add, boundaries);
                self.put_operands(&mut it, &mut cursor, remote, [unit(segment)])?;
                it.opmod = opmod::EXTENDED_ATOMIC_8;
                Opcode::ATOMIC_MASKED_FA
            }
            Operation::MaskedCmpAndSwp4 {
                remote,
                compare,
                compare_mask,
                swap,
                swap_mask,
            } => {
                let segment = MaskedAtomic4Segment::new(compare, compare_mask, swap, swap_mask);
                self.put_operands(&mut it, &mut cursor, remote, [unit(segment)])?;
                it.opmod = opmod::EXTENDED_ATOMIC_4;
                Opcode::ATOMIC_MASKED_CS
            }
            Operation::MaskedFetchAndAdd4 {
                remote,
                add,
                boundaries,
            } => {
                let segment = MaskedFetchAdd4Segment::new(add, boundaries);
                self.put_operands(&mut it, &mut cursor, remote, [unit(segment)])?;
                it.opmod = opmod::EXTENDED_ATOMIC_4;
                Opcode::ATOMIC_MASKED_FA
            }
            Operation::LocalInv { rkey } => {
                has(class::WINDOW)?;
                let bind = Bind {
                    old_rkey: rkey,
                    ..Bind::default()
                };
                self.describe_window(&mut it, &mut cursor, &bind, WorkKind::LocalInv)?
            }
            Operation::BindMw(bind) => {
                has(class::WINDOW)?;
                self.describe_window(&mut it, &mut cursor, &bind, WorkKind::BindMw)?
            }
            Operation::Tso(segmentation) => {
                has(class::PACKET)?;
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
            } => {
                has(class::COPY)?;
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
                it.opmod = opmod::MMO_DMA;
                it.kind = WorkKind::Memcpy;
                Opcode::MMO
            }
            Operation::Nop => Opcode::NOP,
        };
        it.ds = cursor.ds();
        Ok(it)
    }

    #[inline(always)]
    fn put_target(&self, cursor: &mut Cursor, remote: Remote) {
        let segment = unit(RaddrSegment::new(remote.addr, remote.rkey));
        // SAFETY: free blocks: there is room for a work request.
        unsafe { cursor.put(&self.ring, segment) };
    }

    fn put_operands<const N: usize>(
        &self,
        it: &mut Described,
        cursor: &mut Cursor,
        remote: Remote,
        operands: [Unit; N],
    ) -> Result<(), PostError> {
        if self.classes & class::ATOMIC == 0 {
            return Err(PostError::Opcode);
        }
        if !self.limits.atomics {
            return Err(PostError::AtomicsOff);
        }
        if cursor.ds() + 2 + N as u32 > self.max_ds {
            return Err(PostError::Length);
        }
        self.put_target(cursor, remote);
        // SAFETY: free blocks, in which a work request of `max_ds` units has room.
        unsafe { cursor.put_all(&self.ring, operands) };
        it.needs_payload = true;
        Ok(())
    }

    fn describe_window(
        &self,
        it: &mut Described,
        cursor: &mut Cursor,
        bind: &Bind,
        kind: WorkKind,
    ) -> Result<Opcode, PostError> {
        // SAFETY: behind the control segment, in free blocks.
        unsafe { self.put_bind(cursor, bind) }?;
        it.kind = kind;
        it.imm = Some(U32::new(bind.old_rkey));
        it.next_fence = CtrlFlags::SMALL_FENCE;
        Ok(Opcode::UMR)
    }

    /// A raw packet: its Ethernet segment is written now if no byte of the packet goes into it, else with the payload.
    ///
    /// # Safety
    ///
    /// The cursor is behind the control segment of a free block.
    #[cold]
    unsafe fn describe_packet(
        &self,
        it: &mut Described,
        cursor: &mut Cursor,
        flags: SendFlags,
    ) -> Result<(), PostError> {
        let checksums = flags.contains(SendFlags::IP_CSUM);
        if self.limits.min_inline_header != 0 {
            it.header = true;
            it.needs_payload = true;
            return self.checksums(checksums).map(|_| ());
        }
        // SAFETY: the caller's promise; nothing of the packet is read.
        unsafe { self.put_eth(cursor, checksums, std::iter::empty()) }.map(|_| ())
    }
}
