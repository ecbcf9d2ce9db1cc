//! How large queues become for what a program asks.
//!
//! The kernel is told sizes, not asked for them, so any choice that the device takes would do. These
//! are the ones that programs know from libmlx5 (rdma-core 56, `providers/mlx5/verbs.c` and `srq.c`):
//! perftest and libfabric search for them, and UCX computes with them. All of them are idempotent: who
//! asks for what was returned gets the same again.

use std::fmt;

use uverbs_abi::types::QpCap;

use crate::sys::errno::Errno;

/// Bytes of a send queue's basic block (PRM, "Send Work Queue": `MLX5_SEND_WQE_BB`).
pub const WQEBB: u32 = 64;

/// Bytes of a receive queue's largest entry, far above what any device has.
const MAX_STRIDE: u32 = 1 << 15;

/// Sizes of WQE segments in bytes (PRM, "WQE segments"; `mlx5dv.h`).
mod segment {
    pub(super) const CTRL: u32 = 16;
    pub(super) const RADDR: u32 = 16;
    pub(super) const ATOMIC: u32 = 16;
    pub(super) const MASKED_ATOMIC: u32 = 32;
    pub(super) const DATAGRAM: u32 = 48;
    pub(super) const XRC: u32 = 16;
    /// With room for 16 more bytes of the Ethernet header.
    pub(super) const ETH: u32 = 32;
    pub(super) const ETH_PAD: u32 = 16;
    pub(super) const DATA: u32 = 16;
    pub(super) const INLINE_HEADER: u32 = 4;
    pub(super) const UMR_CTRL: u32 = 48;
    pub(super) const MKEY_CONTEXT: u32 = 64;
    /// KLMs come in groups of four.
    pub(super) const KLM_GROUP: u32 = 64;
    pub(super) const SRQ_NEXT: u32 = 16;
    pub(super) const RECEIVE_SIGNATURE: u32 = 16;
}

/// What a context can do at most, from the response of `GET_CONTEXT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a send WQE.
    pub max_sq_desc_sz: u32,
    /// Bytes of a receive WQE.
    pub max_rq_desc_sz: u32,
    /// Basic blocks of a send queue.
    pub max_send_wqebb: u32,
    /// Receives of a receive queue.
    pub max_recv_wr: u32,
    /// Receives of a shared receive queue.
    pub max_srq_recv_wr: u32,
}

/// Operations that a queue pair will post, with the numbers of `ibv_qp_create_send_ops_flags`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendOps(pub u64);

impl SendOps {
    /// `IBV_QP_EX_WITH_RDMA_WRITE`
    pub const RDMA_WRITE: Self = Self(1 << 0);
    /// `IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM`
    pub const RDMA_WRITE_WITH_IMM: Self = Self(1 << 1);
    /// `IBV_QP_EX_WITH_SEND`
    pub const SEND: Self = Self(1 << 2);
    /// `IBV_QP_EX_WITH_SEND_WITH_IMM`
    pub const SEND_WITH_IMM: Self = Self(1 << 3);
    /// `IBV_QP_EX_WITH_RDMA_READ`
    pub const RDMA_READ: Self = Self(1 << 4);
    /// `IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP`
    pub const ATOMIC_CMP_AND_SWP: Self = Self(1 << 5);
    /// `IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD`
    pub const ATOMIC_FETCH_AND_ADD: Self = Self(1 << 6);
    /// `IBV_QP_EX_WITH_LOCAL_INV`
    pub const LOCAL_INV: Self = Self(1 << 7);
    /// `IBV_QP_EX_WITH_BIND_MW`
    pub const BIND_MW: Self = Self(1 << 8);
    /// `IBV_QP_EX_WITH_SEND_WITH_INV`
    pub const SEND_WITH_INV: Self = Self(1 << 9);
    /// `IBV_QP_EX_WITH_TSO`
    pub const TSO: Self = Self(1 << 10);

    const RDMA: Self = Self(Self::RDMA_WRITE.0 | Self::RDMA_WRITE_WITH_IMM.0 | Self::RDMA_READ.0);
    const ATOMIC: Self = Self(Self::ATOMIC_CMP_AND_SWP.0 | Self::ATOMIC_FETCH_AND_ADD.0);
    const KEYS: Self = Self(Self::LOCAL_INV.0 | Self::BIND_MW.0);
    const CONNECTED: Self = Self(
        Self::RDMA.0
            | Self::ATOMIC.0
            | Self::KEYS.0
            | Self::SEND.0
            | Self::SEND_WITH_IMM.0
            | Self::SEND_WITH_INV.0,
    );

    /// Both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    const fn any(self, of: Self) -> bool {
        self.0 & of.0 != 0
    }
}

/// Operations that only mlx5 has, with the numbers of `mlx5dv_qp_create_send_ops_flags`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceOps(pub u64);

impl DeviceOps {
    /// `MLX5DV_QP_EX_WITH_MR_INTERLEAVED`
    pub const MR_INTERLEAVED: Self = Self(1 << 0);
    /// `MLX5DV_QP_EX_WITH_MR_LIST`
    pub const MR_LIST: Self = Self(1 << 1);
    /// `MLX5DV_QP_EX_WITH_MKEY_CONFIGURE`
    pub const MKEY_CONFIGURE: Self = Self(1 << 2);
    /// `MLX5DV_QP_EX_WITH_RAW_WQE`
    pub const RAW_WQE: Self = Self(1 << 3);
    /// `MLX5DV_QP_EX_WITH_MEMCPY`
    pub const MEMCPY: Self = Self(1 << 4);
    /// Atomics with masks. Ours alone: mlx5dv has no number for them.
    pub const MASKED_ATOMIC: Self = Self(1 << 63);

    const MEMORY_KEY: Self =
        Self(Self::MR_INTERLEAVED.0 | Self::MR_LIST.0 | Self::MKEY_CONFIGURE.0);

    const fn any(self, of: Self) -> bool {
        self.0 & of.0 != 0
    }
}

/// Kinds of queue pairs, as far as the layout of their work requests differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Datagrams.
    Ud,
    /// Datagrams below an IPoIB interface (`IBV_QP_CREATE_SOURCE_QPN`).
    Underlay,
    /// Sender of an extended reliable connection.
    XrcSend,
    /// Target of an extended reliable connection.
    XrcRecv,
    /// Ethernet frames.
    RawPacket,
    /// Initiator of dynamic connections.
    Dci,
}

impl Transport {
    /// Operations of a queue pair that was made without naming any.
    pub const fn default_ops(self) -> SendOps {
        match self {
            Self::Rc | Self::Uc | Self::XrcSend | Self::XrcRecv | Self::Dci => SendOps::CONNECTED,
            Self::Ud | Self::Underlay => {
                SendOps(SendOps::SEND.0 | SendOps::SEND_WITH_IMM.0 | SendOps::TSO.0)
            }
            Self::RawPacket => SendOps(SendOps::SEND.0 | SendOps::TSO.0),
        }
    }

    /// Whether the send queue has a buffer of its own. The others have one buffer, receives first.
    pub const fn separate_send_buffer(self) -> bool {
        matches!(self, Self::RawPacket | Self::Underlay)
    }

    /// Bytes that this transport adds to every send.
    const fn overhead(self) -> u32 {
        match self {
            Self::Rc | Self::Uc => 0,
            Self::Ud | Self::Dci => segment::DATAGRAM,
            Self::Underlay => segment::DATAGRAM + segment::ETH + segment::ETH_PAD,
            Self::XrcSend | Self::XrcRecv => segment::XRC,
            Self::RawPacket => segment::ETH,
        }
    }
}

/// Bytes before the data of the largest work request among `ops`.
pub const fn send_overhead(transport: Transport, ops: SendOps, device: DeviceOps) -> u32 {
    let mut size = segment::CTRL;
    if ops.any(SendOps::RDMA) {
        size = larger(size, segment::CTRL + segment::RADDR);
    }
    if ops.any(SendOps::ATOMIC) {
        size = larger(size, segment::CTRL + segment::RADDR + segment::ATOMIC);
    }
    if device.any(DeviceOps::MASKED_ATOMIC) {
        let masked = segment::CTRL + segment::RADDR + segment::MASKED_ATOMIC;
        size = larger(size, masked);
    }
    if ops.any(SendOps::KEYS) || device.any(DeviceOps::MEMORY_KEY) {
        let key = segment::CTRL + segment::UMR_CTRL + segment::MKEY_CONTEXT + segment::KLM_GROUP;
        size = larger(size, key);
    }
    size + transport.overhead()
}

const fn larger(a: u32, b: u32) -> u32 {
    if a > b { a } else { b }
}

/// A size that the device cannot have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge {
    /// What was asked for.
    pub what: &'static str,
    /// How much of it.
    pub asked: u64,
    /// What the device can do. 0 is not allowed where this is [`u64::MAX`].
    pub most: u64,
}

impl TooLarge {
    fn check(what: &'static str, asked: u64, most: u32) -> Result<u32, Self> {
        match u32::try_from(asked) {
            Ok(fits) if fits <= most => Ok(fits),
            _ => Err(Self {
                what,
                asked,
                most: most.into(),
            }),
        }
    }

    fn zero(what: &'static str) -> Self {
        Self {
            what,
            asked: 0,
            most: u64::MAX,
        }
    }
}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, asked, most } = self;
        if *most == u64::MAX {
            write!(f, "{what} cannot be {asked}")
        } else {
            write!(f, "{asked} {what} asked for, the device can do {most}")
        }
    }
}

impl std::error::Error for TooLarge {}

impl From<TooLarge> for Errno {
    fn from(_: TooLarge) -> Self {
        Self(libc::EINVAL)
    }
}

/// A send queue to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendRequest {
    /// Kind of the queue pair.
    pub transport: Transport,
    /// What will be posted; without, [`Transport::default_ops`].
    pub ops: Option<SendOps>,
    /// What will be posted beyond verbs.
    pub device_ops: DeviceOps,
    /// Work requests.
    pub max_wr: u32,
    /// Gather entries of each.
    pub max_sge: u32,
    /// Bytes that fit into a work request itself.
    pub max_inline: u32,
    /// Bytes of the header that segmentation repeats (`IBV_QP_INIT_ATTR_MAX_TSO_HEADER`).
    pub max_tso_header: u32,
}

/// A send queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendGeometry {
    /// Bytes of the largest work request, in whole basic blocks.
    pub wqe_size: u32,
    /// Basic blocks of the ring, a power of two, or 0 for no send queue.
    pub wqe_cnt: u32,
    /// Work requests of the largest size that fit.
    pub max_post: u32,
    /// Gather entries of each.
    pub max_gs: u32,
    /// Bytes that fit into a work request itself.
    pub max_inline: u32,
}

impl SendGeometry {
    /// Bytes of the ring.
    pub const fn bytes(&self) -> usize {
        self.wqe_cnt as usize * WQEBB as usize
    }

    /// Sizes of the send queue for what was asked.
    pub fn new(limits: &Limits, asked: &SendRequest) -> Result<Self, TooLarge> {
        if asked.max_wr == 0 {
            return Ok(Self {
                max_inline: asked.max_inline,
                ..Self::default()
            });
        }
        let ops = asked.ops.unwrap_or(asked.transport.default_ops());
        let overhead = send_overhead(asked.transport, ops, asked.device_ops);
        let most = limits.max_sq_desc_sz;
        let inline = match u64::from(asked.max_inline) {
            0 => 0,
            bytes => {
                let payload = u64::from(segment::INLINE_HEADER) + bytes;
                u64::from(overhead) + payload.next_multiple_of(16)
            }
        };
        let inline_most = most
            .saturating_sub(overhead)
            .saturating_sub(segment::INLINE_HEADER);
        if inline > u64::from(most) {
            return Err(TooLarge {
                what: "bytes of inline data",
                asked: asked.max_inline.into(),
                most: inline_most.into(),
            });
        }
        let headers = u64::from(overhead) + u64::from(asked.max_tso_header).next_multiple_of(16);
        let headers = TooLarge::check("bytes of headers in a work request", headers, most)?;
        let gather_most = (most - headers) / segment::DATA;
        TooLarge::check("gather entries", asked.max_sge.into(), gather_most)?;
        let gather = headers + asked.max_sge * segment::DATA;
        // both are at most `most`, and rounding up to a block must stay within it too
        let wqe_size = u64::from(gather)
            .max(inline)
            .next_multiple_of(u64::from(WQEBB));
        let wqe_size = TooLarge::check("bytes in a work request", wqe_size, most)?;
        let too_many = TooLarge {
            what: "sends",
            asked: asked.max_wr.into(),
            most: u64::from(limits.max_send_wqebb) * u64::from(WQEBB) / u64::from(wqe_size),
        };
        let ring = (u64::from(asked.max_wr) * u64::from(wqe_size))
            .checked_next_power_of_two()
            .ok_or(too_many)?;
        // basic blocks have 16-bit numbers (`wqe_counter`)
        let most = limits.max_send_wqebb.min(1 << 16);
        let blocks = ring / u64::from(WQEBB);
        let wqe_cnt = TooLarge::check("basic blocks", blocks, most).map_err(|_| too_many)?;
        let max_post = ring / u64::from(wqe_size);
        Ok(Self {
            wqe_size,
            wqe_cnt,
            max_post: u32::try_from(max_post).expect("at most the number of blocks"),
            max_gs: asked.max_sge,
            // a request without any data has no room for it (libmlx5 grants -4 bytes then)
            max_inline: (wqe_size - overhead).saturating_sub(segment::INLINE_HEADER),
        })
    }
}

/// A receive queue to be, of a queue pair or a work queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiveRequest {
    /// Work requests; of a work queue at least one.
    pub max_wr: u32,
    /// Scatter entries of each.
    pub max_sge: u32,
    /// Whether each begins with a signature (`MLX5_QP_SIGNATURE`, `MLX5_RWQ_SIGNATURE`).
    pub signature: bool,
    /// Whether each begins as one of a striding work queue does.
    pub striding: bool,
    /// Whether messages may be placed out of order (`MLX5DV_QP_CREATE_OOO_DP`), and then how many
    /// receives the device can do so with this transport; 0 does nothing.
    pub out_of_order: u32,
}

/// A receive queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiveGeometry {
    /// Entries of the ring, a power of two, or 0 for no receive queue.
    pub wqe_cnt: u32,
    /// Bytes of an entry, as a power of two.
    pub wqe_shift: u32,
    /// Receives that fit.
    pub max_post: u32,
    /// Scatter entries of each.
    pub max_gs: u32,
}

impl ReceiveGeometry {
    /// Bytes of the ring.
    pub const fn bytes(&self) -> usize {
        (self.wqe_cnt as usize) << self.wqe_shift
    }

    /// Sizes of a queue pair's receive queue; of none if nothing is asked for. A queue pair with a
    /// shared receive queue has none, whatever it asks for.
    pub fn new(limits: &Limits, asked: &ReceiveRequest) -> Result<Self, TooLarge> {
        if asked.max_wr == 0 {
            return Ok(Self::default());
        }
        let doubled = asked.out_of_order != 0 && asked.max_wr > 1;
        let most = if doubled {
            asked.out_of_order
        } else {
            limits.max_recv_wr
        };
        let wr = TooLarge::check("receives", asked.max_wr.into(), most)?;
        // messages may overtake, so that the oldest entry is not the first one to come free: half
        // of the ring stays unused
        let mut geometry = Self::ring(
            limits,
            asked,
            if doubled {
                u64::from(wr) * 2
            } else {
                wr.into()
            },
        )?;
        if doubled {
            geometry.max_post /= 2;
        }
        Ok(geometry)
    }

    /// Sizes of a work queue.
    pub fn work_queue(limits: &Limits, asked: &ReceiveRequest) -> Result<Self, TooLarge> {
        if asked.max_wr == 0 {
            return Err(TooLarge::zero("receives of a work queue"));
        }
        // the device's limit for these is its own (`max_wq_type_rq`), which the kernel checks
        TooLarge::check("receives", asked.max_wr.into(), 1 << 24)?;
        Self::ring(limits, asked, asked.max_wr.into())
    }

    fn ring(limits: &Limits, asked: &ReceiveRequest, wr: u64) -> Result<Self, TooLarge> {
        let mut prefix = 0;
        if asked.signature {
            prefix += segment::RECEIVE_SIGNATURE;
        }
        if asked.striding {
            prefix += segment::SRQ_NEXT;
        }
        let most = limits.max_rq_desc_sz.min(MAX_STRIDE).saturating_sub(prefix) / segment::DATA;
        let sge = TooLarge::check("scatter entries", asked.max_sge.max(1).into(), most)?;
        let stride = (prefix + sge * segment::DATA).next_power_of_two();
        let bytes = (wr.next_power_of_two() * u64::from(stride)).max(WQEBB.into());
        let entries = bytes / u64::from(stride);
        // entries have 16-bit numbers (`wqe_counter`)
        let wqe_cnt = TooLarge::check("entries of a receive queue", entries, 1 << 16)?;
        Ok(Self {
            wqe_cnt,
            wqe_shift: stride.trailing_zeros(),
            max_post: wqe_cnt,
            max_gs: (stride - prefix) / segment::DATA,
        })
    }
}

/// A shared receive queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SrqGeometry {
    /// Entries of the buffer, a power of two: those for receives, then those that wait until the
    /// device has let go of them after a page fault.
    pub wqe_cnt: u32,
    /// Entries for receives, one of which the device always holds.
    pub nwqes: u32,
    /// Bytes of an entry, as a power of two.
    pub wqe_shift: u32,
    /// Receives that fit.
    pub max_post: u32,
    /// Scatter entries of each.
    pub max_gs: u32,
    /// Whether there are waiting entries.
    pub wait_queue: bool,
}

impl SrqGeometry {
    /// Bytes of the buffer.
    pub const fn bytes(&self) -> usize {
        (self.wqe_cnt as usize) << self.wqe_shift
    }

    /// Sizes of a shared receive queue for `max_wr` receives of `max_sge` entries.
    ///
    /// Every receive queue entry starts with the number of the next one, and one entry is the tail that
    /// the device waits at. Twice as many entries as asked for are made where the device can do it.
    pub fn new(limits: &Limits, max_wr: u32, max_sge: u32) -> Result<Self, TooLarge> {
        let wr = u64::from(TooLarge::check(
            "receives of a shared receive queue",
            max_wr.into(),
            limits.max_srq_recv_wr,
        )?);
        let most = limits.max_rq_desc_sz.min(MAX_STRIDE / 2) / segment::DATA;
        let sge = TooLarge::check("scatter entries", max_sge.into(), most)?;
        let stride = (segment::SRQ_NEXT + sge * segment::DATA)
            .max(32)
            .next_power_of_two();
        let wait_queue = wr * 2 < u64::from(limits.max_srq_recv_wr);
        let all = if wait_queue { wr * 2 + 1 } else { wr + 1 };
        let wqe_cnt = TooLarge::check(
            "entries of a shared receive queue",
            all.next_power_of_two(),
            // entries are linked by 16-bit numbers (`mlx5_wqe_srq_next_seg`), and the device counts
            // what was posted in as many bits: half of them tells full from empty
            1 << 15,
        )?;
        let nwqes = u32::try_from((wr + 1).next_power_of_two()).expect("not above `wqe_cnt`");
        Ok(Self {
            wqe_cnt,
            nwqes,
            wqe_shift: stride.trailing_zeros(),
            max_post: nwqes - 1,
            max_gs: (stride - segment::SRQ_NEXT) / segment::DATA,
            wait_queue,
        })
    }
}

/// Entries of the buffer of a completion queue for `cqe` completions: a power of two, one of them
/// never used, so that programs get one less.
pub fn cq_entries(cqe: u32) -> Result<u32, TooLarge> {
    if cqe == 0 {
        return Err(TooLarge::zero("entries of a completion queue"));
    }
    TooLarge::check(
        "entries of a completion queue",
        (u64::from(cqe) + 1).next_power_of_two(),
        1 << 24,
    )
}

/// What a program hears about its queue pair.
pub fn granted(asked: &QpCap, send: &SendGeometry, receive: &ReceiveGeometry) -> QpCap {
    QpCap {
        max_send_wr: send.max_post,
        max_recv_wr: receive.max_post,
        max_send_sge: asked.max_send_sge,
        max_recv_sge: receive.max_gs,
        max_inline_data: send.max_inline,
    }
}

#[cfg(test)]
#[path = "geometry_tests.rs"]
mod tests;
