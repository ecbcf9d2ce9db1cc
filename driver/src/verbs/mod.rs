//! The nouns a user types: devices, contexts, queue pairs.

mod address;
mod advice;
mod attributes;
mod channel;
mod completion;
mod context;
mod counters;
mod cq;
mod device;
mod device_memory;
mod discovery;
mod event;
mod gid;
mod id;
mod mlx5;
mod mr;
mod mw;
mod neighbours;
mod pd;
mod post;
mod qp;
mod srq;
mod tags;
mod token;
mod xrc;

pub use crate::control::vfio::objects::DriverUsage;
pub use address::{Address, AddressHandle, Destination};
pub use attributes::{DeviceAttributes, LinkLayer, Mtu, PortAttributes, PortState};
pub use channel::CompletionChannel;
pub use completion::{Completion, TagFlags};
pub use context::Context;
pub use cq::{CompletionQueue, Completions};
pub use device::{Device, Driver, Guid, NodeType, Transport};
pub use device_memory::{DeviceMemory, DeviceMemoryRegion, NullRegion};
pub use discovery::{devices, vfio_devices};
pub use event::{AsyncEvent, Subject};
pub use gid::{Gid, GidEntry, GidType};
pub use id::ObjectId;
pub use mr::{Dmabuf, MemoryRegion, RegionSlice, RemoteMemory};
pub use mw::MemoryWindow;
pub use pd::ProtectionDomain;
pub use post::PostError;
pub use qp::{
    Connected, Ece, Endpoint, FlowMatch, FlowRule, Mlx5Queues, Paired, Peer, QpAttributes,
    QueuePair, QueuePairBuilder, RateLimit, RawPacket, Rc, RecvHalf, SendBatch, SendHalf, Service,
    Timing, Uc, Ud, WorkRequest, XrcInitiator,
};
pub use srq::{SharedReceiveQueue, SharedReceiveQueueAttributes};
pub use tags::{TagHandle, TagListAttributes, TagMatchingQueue};
pub use token::Token;
pub use uverbs_abi::types::{
    AccessFlags, AdviseMrAdvice, EventType, MwType, QpAttrMask, QpCap, QpState,
};
pub use wqe_format::rxe::{BindMw, Flush, Sge, WcFlags, WcOpcode, WcStatus};
pub use xrc::{SrqNumber, XrcDomain, XrcTarget};
