//! Handles: the numbers by which the kernel knows a program's objects.
//!
//! A handle is an index of the open device file, not a name of the hardware's: a queue pair has a
//! handle and, apart from it, a queue pair number. One type per object, so that a completion queue
//! is not given where a protection domain is meant. The number is public: libibverbs stores it in
//! its C structs, and an emulator hands it out.

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::object::Object;

/// An object that has handles.
pub trait Handle: Copy + From<u32> + Into<u32> {
    /// Its object id.
    const OBJECT: Object;
}

macro_rules! handles {
    ($( $(#[$meta:meta])* $name:ident = $object:ident; )*) => {$(
        $(#[$meta])*
        #[repr(transparent)]
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash,
            FromBytes, IntoBytes, Immutable,
        )]
        pub struct $name(pub u32);

        impl Handle for $name {
            const OBJECT: Object = Object::$object;
        }

        impl From<u32> for $name {
            fn from(number: u32) -> Self {
                Self(number)
            }
        }

        impl From<$name> for u32 {
            fn from(handle: $name) -> u32 {
                handle.0
            }
        }
    )*};
}

handles! {
    /// A protection domain.
    Pd = PD;
    /// A completion queue.
    Cq = CQ;
    /// A queue pair.
    Qp = QP;
    /// A shared receive queue.
    Srq = SRQ;
    /// An address handle.
    Ah = AH;
    /// A memory region.
    Mr = MR;
    /// A memory window.
    Mw = MW;
    /// A flow steering rule.
    Flow = FLOW;
    /// An XRC domain.
    Xrcd = XRCD;
    /// A receive work queue indirection table.
    RwqIndTbl = RWQ_IND_TBL;
    /// A work queue.
    Wq = WQ;
    /// A flow action.
    FlowAction = FLOW_ACTION;
    /// Device memory.
    Dm = DM;
    /// A set of counters.
    Counters = COUNTERS;
}

/// Handles of mlx5's own objects.
pub mod mlx5 {
    use super::Handle;
    use crate::object::Object;
    use zerocopy::{FromBytes, Immutable, IntoBytes};

    handles! {
        /// An object that a firmware command made.
        DevxObj = MLX5_DEVX_OBJ;
        /// Memory that firmware commands may name.
        DevxUmem = MLX5_DEVX_UMEM;
        /// What flow rules look at.
        FlowMatcher = MLX5_FLOW_MATCHER;
        /// A doorbell page for virtio queues.
        Var = MLX5_VAR;
        /// A rate for packet pacing.
        Pp = MLX5_PP;
        /// A doorbell page.
        Uar = MLX5_UAR;
        /// A flow table that firmware commands may name.
        SteeringAnchor = MLX5_STEERING_ANCHOR;
        /// Any object of the context's: the firmware command says which kind.
        Any = ANY;
    }

    /// A file from which answers of asynchronous firmware commands are read.
    #[derive(Clone, Copy, Debug)]
    pub enum DevxAsyncCmd {}

    impl super::FdObject for DevxAsyncCmd {
        const OBJECT: Object = Object::MLX5_DEVX_ASYNC_CMD_FD;
    }

    /// A dma-buf: a descriptor of another subsystem's (`UVERBS_ATTR_RAW_FD`), no object of the tree.
    #[derive(Clone, Copy, Debug)]
    pub enum Dmabuf {}

    impl super::FdObject for Dmabuf {
        const OBJECT: Object = Object::ANY;
    }

    /// A file from which the device's events are read.
    #[derive(Clone, Copy, Debug)]
    pub enum DevxAsyncEvent {}

    impl super::FdObject for DevxAsyncEvent {
        const OBJECT: Object = Object::MLX5_DEVX_ASYNC_EVENT_FD;
    }
}

/// An object whose handle is a file descriptor.
pub trait FdObject {
    /// Its object id.
    const OBJECT: Object;
}

/// A completion channel, read for completion events.
#[derive(Clone, Copy, Debug)]
pub enum CompChannel {}

impl FdObject for CompChannel {
    const OBJECT: Object = Object::COMP_CHANNEL;
}

/// An asynchronous event file.
#[derive(Clone, Copy, Debug)]
pub enum AsyncEvent {}

impl FdObject for AsyncEvent {
    const OBJECT: Object = Object::ASYNC_EVENT;
}
