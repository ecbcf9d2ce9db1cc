//! Protection domains, address handles.

use std::sync::Arc;

use uverbs_abi::handle::{Ah, Pd};
use uverbs_abi::udata::mlx5::{AllocPdResp, CmdsSuppUhw, CreateAhResp};
use uverbs_abi::write::ah::AhAttr;
use wqe_format::mlx5::DatagramSegment;

use super::av::{self, Wire};
use super::context::Mlx5Context;
use crate::sys::errno::Errno;

/// A protection domain.
#[derive(Debug)]
pub struct PdObject {
    context: Arc<Mlx5Context>,
    handle: Pd,
    number: u32,
    destroyed: bool,
}

impl Mlx5Context {
    /// Makes a protection domain.
    pub fn alloc_pd(self: &Arc<Self>) -> Result<PdObject, Errno> {
        let (handle, answer) = self.uctx().alloc_pd::<AllocPdResp>()?;
        Ok(PdObject {
            context: self.clone(),
            handle,
            number: answer.pdn,
            destroyed: false,
        })
    }
}

impl PdObject {
    /// The kernel's handle.
    pub fn handle(&self) -> Pd {
        self.handle
    }

    /// The device's number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The context.
    pub fn context(&self) -> &Arc<Mlx5Context> {
        &self.context
    }

    /// Destroys it in the kernel, if nothing is in it (`EBUSY`).
    pub fn destroy(&mut self) -> Result<(), Errno> {
        if !self.destroyed {
            self.context.uctx().dealloc_pd(self.handle)?;
            self.destroyed = true;
        }
        Ok(())
    }
}

impl Drop for PdObject {
    fn drop(&mut self) {
        if self.context.is_ours() {
            // Nobody is left to tell.
            let _ = self.destroy();
        }
    }
}

/// An address handle. On InfiniBand the kernel does not know of it.
#[derive(Debug)]
pub struct AhObject {
    context: Arc<Mlx5Context>,
    handle: Option<Ah>,
    av: DatagramSegment,
    is_global: bool,
}

impl Mlx5Context {
    /// Makes an address handle.
    ///
    /// On Ethernet the kernel finds out where the destination is, so the call may block and fail with
    /// `ETIMEDOUT` or `EHOSTUNREACH`; kernels before 4.10 do not, and `resolve` has to. `EINVAL` if
    /// there is no such port, or no global route where one is needed.
    pub fn create_ah(
        self: &Arc<Self>,
        pd: Pd,
        user_handle: u64,
        attr: &AhAttr,
        resolve: impl FnOnce() -> Result<[u8; 6], Errno>,
    ) -> Result<AhObject, Errno> {
        let is_global = attr.is_global != 0;
        let wire = self.wire(attr.port_num, is_global, attr.grh.sgid_index)?;
        let (handle, rmac) = if wire == Wire::InfiniBand {
            (None, [0; 6])
        } else if self.limits().commands.contains(CmdsSuppUhw::CREATE_AH) {
            let (handle, answer) = self
                .uctx()
                .create_ah::<CreateAhResp>(pd, user_handle, attr)?;
            (Some(handle), answer.dmac)
        } else {
            (None, resolve()?)
        };
        Ok(AhObject {
            context: self.clone(),
            handle,
            av: av::address_vector(attr, wire, rmac),
            is_global,
        })
    }
}

impl AhObject {
    /// The address vector, to which posting adds the destination's number and key.
    pub fn av(&self) -> &DatagramSegment {
        &self.av
    }

    /// Whether it has a global route.
    pub fn is_global(&self) -> bool {
        self.is_global
    }

    /// Destroys it in the kernel.
    pub fn destroy(&mut self) -> Result<(), Errno> {
        if let Some(handle) = self.handle {
            self.context.uctx().destroy_ah(handle)?;
            self.handle = None;
        }
        Ok(())
    }
}

impl Drop for AhObject {
    fn drop(&mut self) {
        if self.context.is_ours() {
            // Nobody is left to tell.
            let _ = self.destroy();
        }
    }
}
