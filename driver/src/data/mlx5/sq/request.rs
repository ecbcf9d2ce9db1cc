//! What can be posted.

use wqe_format::mlx5::{CtrlFlags, DatagramSegment};
use wqe_format::rxe::Sge;
use zerocopy::byteorder::big_endian::U32;

/// Flags of a work request, with libibverbs' numbers (`enum ibv_send_flags`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendFlags(pub u32);

impl SendFlags {
    /// None.
    pub const NONE: Self = Self(0);
    /// Begins after all reads and atomics before it.
    pub const FENCE: Self = Self(1);
    /// Makes a completion.
    pub const SIGNALED: Self = Self(1 << 1);
    /// Makes a solicited event at the peer.
    pub const SOLICITED: Self = Self(1 << 2);
    /// The data is taken now.
    pub const INLINE: Self = Self(1 << 3);
    /// The device computes IP, TCP and UDP checksums.
    pub const IP_CSUM: Self = Self(1 << 4);

    /// Whether all flags of `other` are set.
    #[inline]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both sets of flags.
    #[inline]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The control segment's flags; `fence` is what the work request has if it does not ask for a fence.
    #[inline(always)]
    pub(super) const fn ctrl(self, fence: CtrlFlags) -> CtrlFlags {
        let asked = Self::pick(self, Self::SIGNALED, CtrlFlags::CQ_UPDATE)
            | Self::pick(self, Self::SOLICITED, CtrlFlags::SOLICITED);
        let fence = if self.contains(Self::FENCE) {
            CtrlFlags::FENCE
        } else {
            fence
        };
        CtrlFlags(asked | fence.0)
    }

    /// `to` if `flag` is set; both are single bits, so it takes no branch.
    #[inline(always)]
    const fn pick(self, flag: Self, to: CtrlFlags) -> u8 {
        ((self.0 / flag.0) & 1) as u8 * to.0
    }
}

/// Kind of a work request in a list, with libibverbs' numbers (`enum ibv_wr_opcode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrOpcode(pub u32);

#[allow(missing_docs, reason = "libibverbs' names")]
impl WrOpcode {
    pub const RDMA_WRITE: Self = Self(0);
    pub const RDMA_WRITE_WITH_IMM: Self = Self(1);
    pub const SEND: Self = Self(2);
    pub const SEND_WITH_IMM: Self = Self(3);
    pub const RDMA_READ: Self = Self(4);
    pub const ATOMIC_CMP_AND_SWP: Self = Self(5);
    pub const ATOMIC_FETCH_AND_ADD: Self = Self(6);
    pub const LOCAL_INV: Self = Self(7);
    pub const BIND_MW: Self = Self(8);
    pub const SEND_WITH_INV: Self = Self(9);
    pub const TSO: Self = Self(10);
}

/// Remote memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remote {
    /// Address.
    pub addr: u64,
    /// Key.
    pub rkey: u32,
}

/// Operands of an atomic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AtomicOperands {
    /// What is compared with, or added.
    pub compare_add: u64,
    /// What is stored.
    pub swap: u64,
}

/// Destination of a datagram.
#[derive(Clone, Copy, Debug)]
pub struct Destination<'a> {
    /// Address vector of the address handle.
    pub av: &'a DatagramSegment,
    /// Remote queue pair.
    pub qpn: u32,
    /// Its key.
    pub qkey: u32,
}

/// Memory that a window is bound to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bind {
    /// Whether the window is of type 1, which is bound to a protection domain; type 2 is to a queue pair.
    pub type_1: bool,
    /// Key that the window has.
    pub old_rkey: u32,
    /// Key that it gets: its low byte counts.
    pub new_rkey: u32,
    /// Start.
    pub addr: u64,
    /// Bytes; none unbinds.
    pub length: u64,
    /// Key of the memory region.
    pub lkey: u32,
    /// Access, with libibverbs' numbers (`enum ibv_access_flags`).
    pub access: u32,
}

/// Headers of segmented packets.
#[derive(Clone, Copy, Debug)]
pub struct Segmentation {
    /// The headers, from the Ethernet header on.
    pub header: *const u8,
    /// Bytes of it.
    pub header_len: u16,
    /// Payload bytes of each packet.
    pub mss: u16,
}

/// A piece of inline data; laid out as libibverbs' `struct ibv_data_buf`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct InlinePiece {
    /// Its start; need not be registered.
    pub addr: *const u8,
    /// Its length in bytes.
    pub len: usize,
}

impl InlinePiece {
    /// The memory that an element names by address.
    #[inline]
    pub fn of_sge(sge: &Sge) -> Self {
        Self {
            addr: std::ptr::with_exposed_provenance(sge.addr as usize),
            len: sge.length as usize,
        }
    }
}

/// A work request in a list. The queue asks for what the opcode and the kind of the queue need, once each, so that
/// neither a conversion nor a copy stands between a foreign form of it (`ibv_send_wr`) and the ring.
///
/// # Safety
///
/// With [`SendFlags::INLINE`], what the elements name is readable, if it is not longer than the queue's limit; so are
/// [`segmentation`](Self::segmentation)'s headers, if they are within theirs, and on raw packet queues the first 18 bytes.
pub unsafe trait SendRequest {
    /// The program's number.
    fn wr_id(&self) -> u64;
    /// What to do.
    fn opcode(&self) -> WrOpcode;
    /// How.
    fn flags(&self) -> SendFlags;
    /// Local memory.
    fn sges(&self) -> &[Sge];

    /// Immediate data as the peer gets it.
    fn imm(&self) -> U32 {
        U32::ZERO
    }

    /// Key to invalidate, here or there.
    fn invalidate_rkey(&self) -> u32 {
        0
    }

    /// Target of writes, reads and atomics.
    fn remote(&self) -> Remote {
        Remote::default()
    }

    /// The same of atomics, which libibverbs has elsewhere.
    fn atomic_remote(&self) -> Remote {
        self.remote()
    }

    /// Operands of atomics.
    fn atomic(&self) -> AtomicOperands {
        AtomicOperands::default()
    }

    /// Destination of a datagram.
    fn destination(&self) -> Option<Destination<'_>> {
        None
    }

    /// Remote shared receive queue on XRC.
    fn remote_srqn(&self) -> u32 {
        0
    }

    /// Arguments of a bind; `None` is refused.
    fn bind(&self) -> Option<Bind> {
        None
    }

    /// Headers of segmented packets.
    fn segmentation(&self) -> Option<Segmentation> {
        None
    }
}

/// A borrowed request is one.
// SAFETY: the borrowed one's promise.
unsafe impl<R: SendRequest> SendRequest for &R {
    #[inline]
    fn wr_id(&self) -> u64 {
        (**self).wr_id()
    }

    #[inline]
    fn opcode(&self) -> WrOpcode {
        (**self).opcode()
    }

    #[inline]
    fn flags(&self) -> SendFlags {
        (**self).flags()
    }

    #[inline]
    fn sges(&self) -> &[Sge] {
        (**self).sges()
    }

    #[inline]
    fn imm(&self) -> U32 {
        (**self).imm()
    }

    #[inline]
    fn invalidate_rkey(&self) -> u32 {
        (**self).invalidate_rkey()
    }

    #[inline]
    fn remote(&self) -> Remote {
        (**self).remote()
    }

    #[inline]
    fn atomic_remote(&self) -> Remote {
        (**self).atomic_remote()
    }

    #[inline]
    fn atomic(&self) -> AtomicOperands {
        (**self).atomic()
    }

    #[inline]
    fn destination(&self) -> Option<Destination<'_>> {
        (**self).destination()
    }

    #[inline]
    fn remote_srqn(&self) -> u32 {
        (**self).remote_srqn()
    }

    #[inline]
    fn bind(&self) -> Option<Bind> {
        (**self).bind()
    }

    #[inline]
    fn segmentation(&self) -> Option<Segmentation> {
        (**self).segmentation()
    }
}
