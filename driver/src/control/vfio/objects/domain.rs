//! Protection domains and doorbell pages.

use std::sync::{Mutex, PoisonError};

use uverbs_abi::handle::{self, Pd};
use uverbs_abi::udata::mlx5::AllocPdResp;
use wqe_format::mlx5::firmware::Opcode;

use super::Objects;
use crate::sys::errno::Errno;

/// A protection domain: the device's number.
#[derive(Debug)]
pub(super) struct Pdn(pub(super) u32);

/// An XRC domain: the device's number.
#[derive(Debug)]
pub(super) struct Xrcdn(pub(super) u32);

/// Something of the device's that is made when it is needed first, and lives as long as the device is up.
#[derive(Debug, Default)]
pub(super) struct MadeOnce(Mutex<Option<u32>>);

impl MadeOnce {
    /// Its number.
    pub(super) fn get_or_make(
        &self,
        make: impl FnOnce() -> Result<u32, Errno>,
    ) -> Result<u32, Errno> {
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match *made {
            Some(number) => Ok(number),
            None => Ok(*made.insert(make()?)),
        }
    }
}

impl Objects {
    /// Makes a protection domain.
    pub fn alloc_pd(&self) -> Result<(Pd, AllocPdResp), Errno> {
        let number = self.run_for_number(Opcode::ALLOC_PD)?;
        let handle = Pd(self.pds.insert(Pdn(number)));
        Ok((handle, AllocPdResp { pdn: number }))
    }

    /// Destroys a protection domain. `EBUSY` while there are objects in it.
    pub fn dealloc_pd(&self, handle: Pd) -> Result<(), Errno> {
        self.pds
            .remove(handle.0, |pd| self.run_on(Opcode::DEALLOC_PD, pd.0))
    }

    /// A protection domain for queue pairs that have none of their own.
    pub(super) fn base_pd(&self) -> Result<u32, Errno> {
        self.base_pd
            .get_or_make(|| self.run_for_number(Opcode::ALLOC_PD))
    }

    /// An XRC domain for initiators, which are in none of the program's.
    pub(super) fn base_xrcd(&self) -> Result<u32, Errno> {
        self.base_xrcd
            .get_or_make(|| self.run_for_number(Opcode::ALLOC_XRCD))
    }

    /// Makes an XRC domain. Those of this context only: there are no files that others could find it by.
    pub fn open_xrcd(&self) -> Result<handle::Xrcd, Errno> {
        let number = self.run_for_number(Opcode::ALLOC_XRCD)?;
        Ok(handle::Xrcd(self.xrcds.insert(Xrcdn(number))))
    }

    /// Destroys an XRC domain. `EBUSY` while there are objects in it.
    pub fn close_xrcd(&self, handle: handle::Xrcd) -> Result<(), Errno> {
        self.xrcds
            .remove(handle.0, |xrcd| self.run_on(Opcode::DEALLOC_XRCD, xrcd.0))
    }

    /// Allocates a doorbell page: the number of a page of 4 KiB in BAR 0.
    pub fn alloc_uar(&self) -> Result<u32, Errno> {
        self.run_for_number(Opcode::ALLOC_UAR)
    }

    /// Frees a doorbell page.
    pub fn destroy_uar(&self, number: u32) -> Result<(), Errno> {
        self.run_on(Opcode::DEALLOC_UAR, number)
    }
}
