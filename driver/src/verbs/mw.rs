//! Memory windows.

use std::sync::Arc;

use uverbs_abi::handle;
use uverbs_abi::types::MwType;

use super::pd::{PdInner, ProtectionDomain};
use crate::error::{Error, Result};

/// A memory window: remote access to a part of a region, given and taken by work requests.
#[derive(Debug)]
pub struct MemoryWindow {
    pd: Arc<PdInner>,
    handle: handle::Mw,
    mw_type: MwType,
    rkey: u32,
}

impl MemoryWindow {
    pub(super) fn new(pd: &ProtectionDomain, mw_type: MwType) -> Result<Self> {
        let pd = Arc::clone(&pd.inner);
        let keys = pd
            .context
            .uctx()
            .alloc_mw(pd.handle, mw_type)
            .map_err(|errno| Error::kernel("make a memory window", errno))?;
        Ok(Self {
            pd,
            handle: keys.handle,
            mw_type,
            rkey: keys.rkey,
        })
    }

    /// Its type.
    pub fn mw_type(&self) -> MwType {
        self.mw_type
    }

    /// Its key: after a bind, that of the bind.
    pub fn rkey(&self) -> u32 {
        self.rkey
    }

    /// The key for the next bind: the same window, another low byte (IBTA 10.6.7.2.3).
    pub fn next_rkey(&self) -> u32 {
        self.rkey & !0xff | u32::from((self.rkey as u8).wrapping_add(1))
    }

    /// Notes the key that a completed bind gave.
    pub fn set_rkey(&mut self, rkey: u32) {
        self.rkey = rkey;
    }
}

impl Drop for MemoryWindow {
    fn drop(&mut self) {
        if self.pd.context.is_ours() {
            // A destructor has nobody to tell.
            let _ = self.pd.context.uctx().dealloc_mw(self.handle);
        }
    }
}
