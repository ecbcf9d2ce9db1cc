//! mlx5 (ConnectX): what the device reads and writes.
//!
//! A send work request is a [`CtrlSegment`] and, by its opcode, other segments, in units of 16 bytes; it starts on a basic
//! block of 64 bytes and runs on at the ring's start when it meets the end. A receive work request is a list of
//! [`DataSegment`]s. Completions are [`Cqe64`]. [`doorbell`] has the words that tell the device of new work.
//!
//! | request | segments |
//! |---|---|
//! | SEND | ctrl, data or inline |
//! | WRITE, READ | ctrl, raddr, data or inline |
//! | atomics | ctrl, raddr, atomic, data |
//! | masked atomics | ctrl, raddr, masked atomic, data |
//! | UMR (bind, invalidate) | ctrl, UMR ctrl, mkey context, KLM or repeat block |
//! | datagram | ctrl, datagram, data or inline |
//! | XRC | ctrl, XRC, then as above |
//! | raw Ethernet, TSO | ctrl, eth with header, data |
//! | MMO | ctrl, MMO, data (from), data (to) |
//!
//! All numbers are big-endian. Every segment is a plain value with alignment 1, made by `const` functions and stored whole.
//! Constructors cut off bits that do not fit; none panics.
//!
//! Sources: rdma-core's public `infiniband/mlx5dv.h`, layouts that it lacks from rdma-core `providers/mlx5/wqe.h`, Linux
//! `include/linux/mlx5/{device,qp,mlx5_ifc}.h`, and the manual (ConnectX PRM).

mod atomic;
mod cause;
pub mod compressed;
mod cqe;
mod ctrl;
mod data;
mod datagram;
mod describe;
pub mod doorbell;
mod error;
mod eth;
pub mod firmware;
mod klm;
mod mini;
mod mmo;
mod opcode;
mod protection;
mod psv;
mod raddr;
pub mod request;
pub mod signature;
mod srq;
mod tag;
mod umr;
mod unit;
mod xrc;

pub use atomic::{
    AtomicSegment, MaskedAtomic4Segment, MaskedAtomic8Segment, MaskedFetchAdd4Segment,
    MaskedFetchAdd8Segment,
};
pub use cause::Cause;
pub use cqe::{
    Cqe64, Cqe128, CqeFormat, CqeOpcode, FlagsRqpn, HdsIpExt, HeaderTypes, L3_IPV4, L3_IPV6, OpOwn,
    SopDropQpn, TagState, tag_operation,
};
pub use ctrl::{CtrlFlags, CtrlSegment, OpmodIdxOpcode, QpnDs};
pub use data::{DataSegment, INVALID_LKEY, InlineHeader, MAX_BYTE_COUNT};
pub use datagram::{DatagramSegment, DqpDct, GrhGidFl, StatRateSl, udp_source_port};
pub use error::{ErrorCqe, SignatureErrorCqe, Syndrome};
pub use eth::{ChecksumFlags, EthPadSegment, EthSegment};
pub use klm::{KlmSegment, RepeatBlockSegment, RepeatEntrySegment};
pub use mini::{MiniArray, MiniCqe, MiniFormat};
pub use mmo::{MmoSegment, MmoWqe};
pub use opcode::{Opcode, opmod};
pub use protection::{
    BlockSignature, BlockSize, CrcKind, Escape, Guard, SignatureDomain, SignatureRule,
};
pub use psv::{BsfInline, BsfSegment, CryptoBsfSegment, SetPsvSegment};
pub use raddr::RaddrSegment;
pub use srq::{MprqWqe, RecvSignatureSegment, SrqNextSegment, StridingByteCount};
pub use tag::TagSegment;
pub use umr::{MkeyAccess, MkeyContextSegment, MkeyMask, QpnMkey, UmrCtrlSegment, UmrFlags};
pub use unit::Unit;
pub use xrc::XrcSegment;

/// Bytes of a basic block of the send queue (mlx5dv.h `MLX5_SEND_WQE_BB`).
#[doc(alias = "MLX5_SEND_WQE_BB")]
pub const SEND_WQE_BB: usize = 64;
/// Bytes of the unit that `ds` counts.
pub const DS_UNIT: usize = 16;
