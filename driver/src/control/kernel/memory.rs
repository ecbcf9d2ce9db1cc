//! Protection domains, memory regions, memory windows.

use std::os::fd::RawFd;

use uverbs_abi::Command;
use uverbs_abi::handle::{Mr, Mw, Pd};
use uverbs_abi::object::mlx5::{RegDmabufFlags, extra};
use uverbs_abi::object::{mr, mw, pd};
use uverbs_abi::types::{AccessFlags, AdviseMrAdvice, AdviseMrFlags, MwType, ReregMrFlags, Sge};
use uverbs_abi::write::WriteCall;
use uverbs_abi::write::mr::{AllocMw, DeallocMw, DeregMr, RegMr, ReregMr};
use uverbs_abi::write::pd::{AllocPd, DeallocPd};
use zerocopy::FromBytes;

use super::{Errno, Tried, Uctx, driver_answer};

/// A range of the program's memory to register.
#[derive(Clone, Copy, Debug, Default)]
pub struct UserMr {
    /// The protection domain.
    pub pd: Pd,
    /// First address.
    pub start: u64,
    /// Bytes.
    pub length: u64,
    /// First address as peers and work requests name it.
    pub hca_va: u64,
    /// Rights.
    pub access: AccessFlags,
}

/// A range of a dma-buf to register.
#[derive(Clone, Copy, Debug)]
pub struct DmabufMr {
    /// The protection domain.
    pub pd: Pd,
    /// First byte in the dma-buf.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// First address as peers and work requests name it.
    pub iova: u64,
    /// The dma-buf.
    pub fd: RawFd,
    /// Rights.
    pub access: AccessFlags,
}

/// A new memory region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MrKeys {
    /// For the kernel.
    pub handle: Mr,
    /// For work requests.
    pub lkey: u32,
    /// For peers.
    pub rkey: u32,
}

/// A memory region of a shared context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MrInfo {
    /// For work requests.
    pub lkey: u32,
    /// For peers.
    pub rkey: u32,
    /// Bytes.
    pub length: u64,
}

/// A new memory window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MwKeys {
    /// For the kernel.
    pub handle: Mw,
    /// For peers, after binding.
    pub rkey: u32,
}

impl Uctx {
    /// Makes a protection domain.
    pub fn alloc_pd<O: FromBytes>(&self) -> Result<(Pd, O), Errno> {
        if let Some(objects) = self.objects() {
            return objects
                .alloc_pd()
                .map(|(pd, answer)| (pd, driver_answer(&answer)));
        }
        let mut call = WriteCall::new(AllocPd::default());
        call.uhw_out::<O>();
        self.write(&mut call)?;
        Ok((call.response().pd_handle, call.uhw()))
    }

    /// Destroys a protection domain.
    pub fn dealloc_pd(&self, handle: Pd) -> Result<(), Errno> {
        if let Some(objects) = self.objects() {
            return objects.dealloc_pd(handle);
        }
        let mut cmd = Command::new();
        cmd.destroy(pd::destroy::HANDLE, handle);
        match self.try_method(&mut cmd)? {
            Tried::Done => Ok(()),
            Tried::Unknown => self.simple(DeallocPd { pd_handle: handle }),
        }
    }

    /// Registers memory.
    ///
    /// # Safety
    ///
    /// From now until [`dereg_mr`](Self::dereg_mr) the device, and peers as far as `mr.access` goes,
    /// may read and write the range (K3); no Rust reference may be live meanwhile that says otherwise.
    pub unsafe fn reg_mr(&self, mr: &UserMr) -> Result<MrKeys, Errno> {
        if let Some(objects) = self.objects() {
            // SAFETY: the caller vouches for the range.
            return unsafe { objects.reg_mr(mr) };
        }
        let resp = self.simple(RegMr {
            response: 0,
            start: mr.start,
            length: mr.length,
            hca_va: mr.hca_va,
            pd_handle: mr.pd,
            access_flags: mr.access,
        })?;
        Ok(MrKeys {
            handle: resp.mr_handle,
            lkey: resp.lkey,
            rkey: resp.rkey,
        })
    }

    /// Changes a registration as far as `flags` go; answers the new local and remote key.
    ///
    /// # Safety
    ///
    /// As for [`reg_mr`](Self::reg_mr), for the old range and the new one.
    pub unsafe fn rereg_mr(
        &self,
        handle: Mr,
        flags: ReregMrFlags,
        mr: &UserMr,
    ) -> Result<(u32, u32), Errno> {
        if let Some(objects) = self.objects() {
            // SAFETY: the caller vouches for both ranges.
            return unsafe { objects.rereg_mr(handle, flags, mr) };
        }
        let resp = self.simple(ReregMr {
            response: 0,
            mr_handle: handle,
            flags,
            start: mr.start,
            length: mr.length,
            hca_va: mr.hca_va,
            pd_handle: mr.pd,
            access_flags: mr.access,
        })?;
        Ok((resp.lkey, resp.rkey))
    }

    /// Registers a dma-buf.
    pub fn reg_dmabuf_mr(&self, mr: &DmabufMr) -> Result<MrKeys, Errno> {
        self.reg_dmabuf_mr_by(mr, None)
    }

    /// Registers a dma-buf with mlx5's own flags. Not in 6.1 (`EOPNOTSUPP`).
    pub fn reg_dmabuf_mr_mlx5(
        &self,
        mr: &DmabufMr,
        flags: RegDmabufFlags,
    ) -> Result<MrKeys, Errno> {
        self.reg_dmabuf_mr_by(mr, Some(flags))
    }

    fn reg_dmabuf_mr_by(
        &self,
        mr: &DmabufMr,
        flags: Option<RegDmabufFlags>,
    ) -> Result<MrKeys, Errno> {
        use mr::reg_dmabuf as reg;
        let mut cmd = Command::new();
        cmd.new_handle(reg::HANDLE)
            .output(reg::RESP_LKEY)
            .output(reg::RESP_RKEY)
            .object(reg::PD_HANDLE, mr.pd)
            .input(reg::OFFSET, mr.offset)
            .input(reg::LENGTH, mr.length)
            .input(reg::IOVA, mr.iova)
            .input(reg::FD, mr.fd)
            .flags(reg::ACCESS_FLAGS, mr.access);
        if let Some(flags) = flags {
            cmd.flags(extra::REG_DMABUF_FLAGS, flags);
        }
        self.method(&mut cmd)?;
        Ok(MrKeys {
            handle: cmd.handle(reg::HANDLE)?,
            lkey: cmd.get(reg::RESP_LKEY)?,
            rkey: cmd.get(reg::RESP_RKEY)?,
        })
    }

    /// Advises the kernel about pages of on-demand-paging regions.
    pub fn advise_mr(
        &self,
        pd: Pd,
        advice: AdviseMrAdvice,
        flags: AdviseMrFlags,
        list: &[Sge],
    ) -> Result<(), Errno> {
        use mr::advise;
        let mut cmd = Command::new();
        cmd.object(advise::PD_HANDLE, pd)
            .constant(advise::ADVICE, advice)
            .flags(advise::FLAGS, flags)
            .slice(advise::SGE_LIST, list);
        self.method(&mut cmd)
    }

    /// Keys and length of a region that another process of a shared context registered.
    pub fn query_mr(&self, handle: Mr) -> Result<MrInfo, Errno> {
        use mr::query;
        let mut cmd = Command::new();
        cmd.object(query::HANDLE, handle)
            .output(query::RESP_LKEY)
            .output(query::RESP_RKEY)
            .output(query::RESP_LENGTH);
        self.method(&mut cmd)?;
        Ok(MrInfo {
            lkey: cmd.get(query::RESP_LKEY)?,
            rkey: cmd.get(query::RESP_RKEY)?,
            length: cmd.get(query::RESP_LENGTH)?,
        })
    }

    /// Deregisters memory of any kind.
    pub fn dereg_mr(&self, handle: Mr) -> Result<(), Errno> {
        if let Some(objects) = self.objects() {
            return objects.dereg_mr(handle);
        }
        let mut cmd = Command::new();
        cmd.destroy(mr::destroy::HANDLE, handle);
        match self.try_method(&mut cmd)? {
            Tried::Done => Ok(()),
            Tried::Unknown => self.simple(DeregMr { mr_handle: handle }),
        }
    }

    /// Makes a memory window.
    pub fn alloc_mw(&self, pd: Pd, mw_type: MwType) -> Result<MwKeys, Errno> {
        if let Some(objects) = self.objects() {
            return objects.alloc_mw(pd, mw_type);
        }
        let resp = self.simple(AllocMw {
            pd_handle: pd,
            mw_type,
            ..AllocMw::default()
        })?;
        Ok(MwKeys {
            handle: resp.mw_handle,
            rkey: resp.rkey,
        })
    }

    /// Destroys a memory window.
    pub fn dealloc_mw(&self, handle: Mw) -> Result<(), Errno> {
        if let Some(objects) = self.objects() {
            return objects.dealloc_mw(handle);
        }
        let mut cmd = Command::new();
        cmd.destroy(mw::destroy::HANDLE, handle);
        match self.try_method(&mut cmd)? {
            Tried::Done => Ok(()),
            Tried::Unknown => self.simple(DeallocMw { mw_handle: handle }),
        }
    }
}
