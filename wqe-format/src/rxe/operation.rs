//! What a send work request can ask for.

use zerocopy::byteorder::big_endian::U32 as Be32;

/// Kind of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
}

/// `enum ib_uverbs_wr_opcode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
#[allow(missing_docs, reason = "the field's names")]
pub enum WrOpcode {
    RdmaWrite = 0,
    RdmaWriteWithImm = 1,
    Send = 2,
    SendWithImm = 3,
    RdmaRead = 4,
    AtomicCmpAndSwp = 5,
    AtomicFetchAndAdd = 6,
    LocalInv = 7,
    BindMw = 8,
    SendWithInv = 9,
    Flush = 14,
    AtomicWrite = 15,
}

impl WrOpcode {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::RdmaWrite,
        Self::RdmaWriteWithImm,
        Self::Send,
        Self::SendWithImm,
        Self::RdmaRead,
        Self::AtomicCmpAndSwp,
        Self::AtomicFetchAndAdd,
        Self::LocalInv,
        Self::BindMw,
        Self::SendWithInv,
        Self::Flush,
        Self::AtomicWrite,
    ];

    /// The opcode with a number, if rxe has it.
    pub const fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::RdmaWrite,
            1 => Self::RdmaWriteWithImm,
            2 => Self::Send,
            3 => Self::SendWithImm,
            4 => Self::RdmaRead,
            5 => Self::AtomicCmpAndSwp,
            6 => Self::AtomicFetchAndAdd,
            7 => Self::LocalInv,
            8 => Self::BindMw,
            9 => Self::SendWithInv,
            14 => Self::Flush,
            15 => Self::AtomicWrite,
            _ => return None,
        })
    }

    /// Whether a program may ask for the operation when it creates a queue pair (12 for RC, 6 for UC, 2 for UD, as
    /// libibverbs knows of rxe).
    pub const fn is_offered_by(self, transport: Transport) -> bool {
        match transport {
            Transport::Rc => true,
            Transport::Uc => matches!(
                self,
                Self::RdmaWrite
                    | Self::RdmaWriteWithImm
                    | Self::Send
                    | Self::SendWithImm
                    | Self::BindMw
                    | Self::SendWithInv
            ),
            Transport::Ud => matches!(self, Self::Send | Self::SendWithImm),
        }
    }

    /// Whether the operation may be posted: what is offered, and the invalidation of a local key on UC, which some
    /// kernels have there and others complete with an error.
    #[inline]
    pub const fn may_be_posted_on(self, transport: Transport) -> bool {
        self.is_offered_by(transport)
            || matches!((self, transport), (Self::LocalInv, Transport::Uc))
    }

    /// Whether the operation has a scatter/gather list.
    #[inline]
    pub const fn has_local_memory(self) -> bool {
        !matches!(
            self,
            Self::LocalInv | Self::BindMw | Self::Flush | Self::AtomicWrite
        )
    }

    /// Whether the operation sends local memory, so that it can be copied into the work request.
    #[inline]
    pub const fn can_be_inline(self) -> bool {
        matches!(
            self,
            Self::RdmaWrite
                | Self::RdmaWriteWithImm
                | Self::Send
                | Self::SendWithImm
                | Self::SendWithInv
        )
    }

    /// Whether the operation makes no sense without memory or a value.
    #[inline]
    pub const fn needs_payload(self) -> bool {
        matches!(
            self,
            Self::AtomicCmpAndSwp | Self::AtomicFetchAndAdd | Self::AtomicWrite
        )
    }
}

/// Flags of a send work request (`enum ib_send_flags`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SendFlags(pub u32);

impl SendFlags {
    /// Wait for earlier reads and atomics.
    pub const FENCE: Self = Self(1);
    /// Report the completion.
    pub const SIGNALED: Self = Self(2);
    /// Wake a receiver that waits for solicited completions only.
    pub const SOLICITED: Self = Self(4);
    /// The payload is in the work request.
    pub const INLINE: Self = Self(8);

    /// Whether all flags of `other` are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// These and `other`.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Access rights of a memory window (`enum ib_uverbs_access_flags`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Access(pub u32);

impl Access {
    /// Local writing.
    pub const LOCAL_WRITE: Self = Self(1);
    /// RDMA WRITE.
    pub const REMOTE_WRITE: Self = Self(2);
    /// RDMA READ.
    pub const REMOTE_READ: Self = Self(4);
    /// Atomics.
    pub const REMOTE_ATOMIC: Self = Self(8);
    /// Windows may be bound to the region.
    pub const MW_BIND: Self = Self(16);
    /// Addresses start at 0.
    pub const ZERO_BASED: Self = Self(32);
    /// FLUSH to global visibility.
    pub const FLUSH_GLOBAL: Self = Self(1 << 8);
    /// FLUSH to persistence.
    pub const FLUSH_PERSISTENT: Self = Self(1 << 9);
}

/// Arguments of binding a memory window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BindMw {
    /// Start of the window.
    pub addr: u64,
    /// Its length; 0 unbinds.
    pub length: u64,
    /// Local key of the region below.
    pub mr_lkey: u32,
    /// Key of the window before.
    pub mw_rkey: u32,
    /// Key of the window afterwards.
    pub rkey: u32,
    /// Rights of the window.
    pub access: Access,
}

impl BindMw {
    /// The binding of a window of type 1 (`ibv_bind_mw`), for which the provider chooses the next key.
    ///
    /// `None` if the rights ask for zero-based addresses, which type 1 has not (IBTA o10-36.2.2).
    pub const fn type_1(
        addr: u64,
        length: u64,
        mr_lkey: u32,
        mw_rkey: u32,
        access: Access,
    ) -> Option<Self> {
        if access.0 & Access::ZERO_BASED.0 != 0 {
            return None;
        }
        Some(Self {
            addr,
            length,
            mr_lkey,
            mw_rkey,
            rkey: Self::next_rkey(mw_rkey),
            access,
        })
    }

    /// The key after `rkey`: the low byte counts, the rest is the window's number (`ibv_inc_rkey`).
    #[inline]
    pub const fn next_rkey(rkey: u32) -> u32 {
        (rkey & 0xffff_ff00) | (rkey.wrapping_add(1) & 0xff)
    }
}

/// Arguments of FLUSH.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flush {
    /// Start of the range.
    pub remote_addr: u64,
    /// Its length.
    pub length: u32,
    /// Key of the remote region.
    pub rkey: u32,
    /// `IB_FLUSH_GLOBAL` 1, `IB_FLUSH_PERSISTENT` 2.
    pub placement: u8,
    /// `IB_FLUSH_RANGE` 0, `IB_FLUSH_MR` 1.
    pub selectivity: u8,
}

/// What a send work request asks for, with its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(
    missing_docs,
    reason = "remote_addr and rkey name the peer's memory throughout"
)]
pub enum Operation {
    /// SEND.
    Send,
    /// SEND with immediate data.
    SendWithImm { imm: Be32 },
    /// SEND that invalidates a key of the receiver's.
    SendWithInv { rkey: u32 },
    /// RDMA WRITE.
    RdmaWrite { remote_addr: u64, rkey: u32 },
    /// RDMA WRITE with immediate data, which takes a receive work request.
    RdmaWriteWithImm {
        remote_addr: u64,
        rkey: u32,
        imm: Be32,
    },
    /// RDMA READ.
    RdmaRead { remote_addr: u64, rkey: u32 },
    /// Compare and swap of 8 bytes.
    AtomicCmpAndSwp {
        remote_addr: u64,
        rkey: u32,
        compare: u64,
        swap: u64,
    },
    /// Fetch and add of 8 bytes.
    AtomicFetchAndAdd {
        remote_addr: u64,
        rkey: u32,
        add: u64,
    },
    /// Invalidate a local key.
    LocalInv { rkey: u32 },
    /// Bind a memory window.
    BindMw(BindMw),
    /// Flush remote memory.
    Flush(Flush),
    /// Write 8 bytes atomically.
    AtomicWrite { remote_addr: u64, rkey: u32 },
}

impl Operation {
    /// The operation's number.
    #[inline]
    pub const fn opcode(&self) -> WrOpcode {
        match self {
            Self::Send => WrOpcode::Send,
            Self::SendWithImm { .. } => WrOpcode::SendWithImm,
            Self::SendWithInv { .. } => WrOpcode::SendWithInv,
            Self::RdmaWrite { .. } => WrOpcode::RdmaWrite,
            Self::RdmaWriteWithImm { .. } => WrOpcode::RdmaWriteWithImm,
            Self::RdmaRead { .. } => WrOpcode::RdmaRead,
            Self::AtomicCmpAndSwp { .. } => WrOpcode::AtomicCmpAndSwp,
            Self::AtomicFetchAndAdd { .. } => WrOpcode::AtomicFetchAndAdd,
            Self::LocalInv { .. } => WrOpcode::LocalInv,
            Self::BindMw(_) => WrOpcode::BindMw,
            Self::Flush(_) => WrOpcode::Flush,
            Self::AtomicWrite { .. } => WrOpcode::AtomicWrite,
        }
    }

    /// The remote address, which rxe wants a second time as the start of the transfer; 0 for operations without.
    #[inline]
    pub const fn remote_addr(&self) -> u64 {
        match *self {
            Self::RdmaWrite { remote_addr, .. }
            | Self::RdmaWriteWithImm { remote_addr, .. }
            | Self::RdmaRead { remote_addr, .. }
            | Self::AtomicCmpAndSwp { remote_addr, .. }
            | Self::AtomicFetchAndAdd { remote_addr, .. }
            | Self::AtomicWrite { remote_addr, .. }
            | Self::Flush(Flush { remote_addr, .. }) => remote_addr,
            _ => 0,
        }
    }
}
