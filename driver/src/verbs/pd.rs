//! Protection domains.

use std::sync::Arc;

use uverbs_abi::handle;
use uverbs_abi::types::{AccessFlags, MwType};
use uverbs_abi::udata::mlx5::AllocPdResp;

use super::address::{Address, AddressHandle};
use super::context::{Context, ContextInner, Family};
use super::cq::CompletionQueue;
use super::mr::{Dmabuf, MemoryRegion};
use super::mw::MemoryWindow;
use super::qp::{QueuePairBuilder, Service};
use super::srq::{SharedReceiveQueue, SharedReceiveQueueAttributes};
use crate::error::{Error, Result};

/// A protection domain: queue pairs reach only the memory of their own domain. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ProtectionDomain {
    pub(super) inner: Arc<PdInner>,
}

#[derive(Debug)]
pub(super) struct PdInner {
    pub(super) context: Arc<ContextInner>,
    pub(super) handle: handle::Pd,
}

impl Drop for PdInner {
    fn drop(&mut self) {
        if self.context.is_ours() {
            // Its objects hold it, so it is not in use any more; nobody is left to tell.
            let _ = self.context.uctx().dealloc_pd(self.handle);
        }
    }
}

impl ProtectionDomain {
    pub(super) fn new(context: &Context) -> Result<Self> {
        let context = Arc::clone(&context.inner);
        let handle = match &context.family {
            // The kernel's mlx5 driver refuses who has no room for its number of the domain.
            Family::Mlx5(context) => (context.uctx().alloc_pd::<AllocPdResp>()).map(|(pd, _)| pd),
            Family::Rxe(uctx) => uctx.alloc_pd::<()>().map(|(pd, ())| pd),
        };
        let handle = handle.map_err(|errno| Error::kernel("make a protection domain", errno))?;
        Ok(Self {
            inner: Arc::new(PdInner { context, handle }),
        })
    }

    /// Allocates `len` zeroed bytes in whole pages and registers them. They are read and written by copying
    /// ([`MemoryRegion::copy_in`]), so this is safe whatever the device does.
    ///
    /// # Errors
    ///
    /// Names the limit of locked memory if that is why.
    pub fn allocate(&self, len: usize, access: AccessFlags) -> Result<MemoryRegion> {
        MemoryRegion::allocate(self, len, access)
    }

    /// Registers memory of the caller's.
    ///
    /// # Errors
    ///
    /// Names the limit of locked memory if that is why.
    ///
    /// # Safety
    ///
    /// The memory stays valid until the region is dropped. The device writes to it when work requests or
    /// peers say so; no reference says otherwise meanwhile.
    pub unsafe fn register(
        &self,
        start: *mut u8,
        len: usize,
        access: AccessFlags,
    ) -> Result<MemoryRegion> {
        // SAFETY: the caller vouches for the memory.
        unsafe { MemoryRegion::register(self, start, len, access) }
    }

    /// Registers a part of a dma-buf.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` where kernel or device do not have it.
    pub fn register_dmabuf(&self, dmabuf: Dmabuf<'_>, access: AccessFlags) -> Result<MemoryRegion> {
        MemoryRegion::register_dmabuf(self, dmabuf, access)
    }

    /// Makes a memory window.
    ///
    /// # Errors
    ///
    /// The device has no more, or none of this type.
    pub fn memory_window(&self, mw_type: MwType) -> Result<MemoryWindow> {
        MemoryWindow::new(self, mw_type)
    }

    /// Makes an address handle, for datagrams.
    ///
    /// # Errors
    ///
    /// Says so if nobody answers for the GID.
    pub fn address_handle(&self, address: &Address) -> Result<AddressHandle> {
        AddressHandle::new(self, address)
    }

    /// Makes a shared receive queue.
    ///
    /// # Errors
    ///
    /// More than the device has.
    pub fn shared_receive_queue(
        &self,
        attributes: SharedReceiveQueueAttributes,
    ) -> Result<SharedReceiveQueue> {
        SharedReceiveQueue::new(self, attributes, None)
    }

    /// Begins a queue pair whose sends and receives complete on `cq`.
    pub fn queue_pair<T: Service>(&self, cq: &CompletionQueue) -> QueuePairBuilder<T> {
        QueuePairBuilder::new(self, cq)
    }
}
