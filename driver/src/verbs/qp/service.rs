//! Service types as types.

use std::fmt;

use uverbs_abi::types::QpType;
use wqe_format::rxe::Transport;

use crate::control::mlx5::geometry as mlx5;

mod sealed {
    pub trait Sealed {}
}

/// A service type.
pub trait Service: sealed::Sealed + fmt::Debug + Send + Sync + 'static {
    /// Its number in the kernel.
    #[doc(hidden)]
    const QP_TYPE: QpType;
    /// The same for rxe's queues, which do not have all.
    #[doc(hidden)]
    const TRANSPORT: Option<Transport>;
    /// The same for mlx5's queues.
    #[doc(hidden)]
    const MLX5: mlx5::Transport;
}

/// A service type with one peer.
pub trait Connected: Service {}

/// A service type whose peer is a queue pair that receives by itself, so that work requests name no queue.
pub trait Paired: Connected {}

/// Reliable connection: in order, acknowledged, with remote reads and atomics.
#[derive(Clone, Copy, Debug)]
pub enum Rc {}

/// Unreliable connection: in order, losses are not repaired.
#[derive(Clone, Copy, Debug)]
pub enum Uc {}

/// Unreliable datagrams, each with its own destination.
#[derive(Clone, Copy, Debug)]
pub enum Ud {}

/// Whole Ethernet packets, headers and all; which ones arrive is for [`FlowRule`](crate::FlowRule)s to say. On mlx5, by
/// programs with `CAP_NET_RAW`.
#[derive(Clone, Copy, Debug)]
pub enum RawPacket {}

/// The sending end of extended reliable connections: as [`Rc`], but each work request names one of the peer's shared receive
/// queues. The other end is an [`XrcTarget`](crate::XrcTarget).
#[derive(Clone, Copy, Debug)]
pub enum XrcInitiator {}

macro_rules! services {
    ($($name:ident: $qp_type:ident $mlx5:ident $rxe:expr),*) => {$(
        impl sealed::Sealed for $name {}
        impl Service for $name {
            const QP_TYPE: QpType = QpType::$qp_type;
            const TRANSPORT: Option<Transport> = $rxe;
            const MLX5: mlx5::Transport = mlx5::Transport::$mlx5;
        }
    )*};
}

services!(
    Rc: RC Rc Some(Transport::Rc),
    Uc: UC Uc Some(Transport::Uc),
    Ud: UD Ud Some(Transport::Ud),
    RawPacket: RAW_PACKET RawPacket None,
    XrcInitiator: XRC_INI XrcSend None
);

impl Connected for Rc {}
impl Connected for Uc {}
impl Connected for XrcInitiator {}

impl Paired for Rc {}
impl Paired for Uc {}
