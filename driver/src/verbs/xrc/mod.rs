//! Extended reliable connections: many processes of a node receive through one connection, each from shared queues.
//!
//! The sender has a queue pair of service type [`XrcInitiator`](crate::XrcInitiator), the receiver an [`XrcTarget`] in an
//! [`XrcDomain`]. The target has no queues: each message names a shared receive queue of the same domain by its
//! [`SrqNumber`], and completes where that queue completes.

mod target;

use std::fmt;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use uverbs_abi::handle;

use super::context::{Context, ContextInner, Family};
use super::cq::CompletionQueue;
use super::pd::ProtectionDomain;
use super::srq::{Named, SharedReceiveQueue, SharedReceiveQueueAttributes, Within};
use crate::control::mlx5::Mlx5Context;
use crate::error::{Error, Result};

pub use target::XrcTarget;

/// The number by which peers name a shared receive queue of an XRC domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SrqNumber(pub u32);

impl fmt::Display for SrqNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:06x}", self.0)
    }
}

/// An XRC domain: targets in it reach the shared receive queues in it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct XrcDomain {
    pub(super) inner: Arc<XrcdInner>,
}

#[derive(Debug)]
pub(super) struct XrcdInner {
    pub(super) context: Arc<ContextInner>,
    pub(super) handle: handle::Xrcd,
}

impl Drop for XrcdInner {
    fn drop(&mut self) {
        if self.context.is_ours() {
            // Its objects hold it, so it is not in use any more; nobody is left to tell.
            let _ = self.context.uctx().close_xrcd(self.handle);
        }
    }
}

impl XrcdInner {
    /// The device; there are no domains on others.
    fn mlx5(&self) -> Result<&Arc<Mlx5Context>> {
        match &self.context.family {
            Family::Mlx5(context) => Ok(context),
            Family::Rxe(_) => Err(none()),
        }
    }
}

fn none() -> Error {
    Error::refused("make an XRC domain", "this device has no XRC")
}

impl Context {
    /// Makes an XRC domain of this context's own.
    ///
    /// # Errors
    ///
    /// The device has no XRC.
    pub fn xrc_domain(&self) -> Result<XrcDomain> {
        self.make_xrc_domain(None)
    }

    /// Makes or opens the XRC domain that all processes share who name the same `file` (its inode, whatever is in it).
    ///
    /// # Errors
    ///
    /// The device has no XRC, or is driven by this process and so shared with nobody.
    pub fn shared_xrc_domain(&self, file: &impl AsFd) -> Result<XrcDomain> {
        self.make_xrc_domain(Some(file.as_fd().as_raw_fd()))
    }

    fn make_xrc_domain(&self, file: Option<i32>) -> Result<XrcDomain> {
        let Family::Mlx5(context) = &self.inner.family else {
            return Err(none());
        };
        if !context.names_queues_by_index() {
            // Its shared queues could not be told from later ones with the same number while completions wait.
            return Err(Error::refused(
                "make an XRC domain",
                "completions of this device carry numbers that are used again; XRC is built for ConnectX-4 and later only",
            ));
        }
        let handle = context
            .uctx()
            .open_xrcd(file, libc::O_CREAT)
            .map_err(|errno| Error::kernel("make an XRC domain", errno))?;
        Ok(XrcDomain {
            inner: Arc::new(XrcdInner {
                context: Arc::clone(&self.inner),
                handle,
            }),
        })
    }
}

impl ProtectionDomain {
    /// Makes a shared receive queue that peers reach through the targets of `domain`. Its receives complete on `cq`; those
    /// that had completed there may still be polled when it is gone.
    ///
    /// # Errors
    ///
    /// More than the device has.
    pub fn xrc_shared_receive_queue(
        &self,
        domain: &XrcDomain,
        cq: &CompletionQueue,
        attributes: SharedReceiveQueueAttributes,
    ) -> Result<SharedReceiveQueue> {
        let within = Within {
            kind: Named::Xrc(Arc::clone(&domain.inner)),
            cq: Arc::clone(&cq.inner),
        };
        SharedReceiveQueue::new(self, attributes, Some(within))
    }
}
