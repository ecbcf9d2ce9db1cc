//! Shared receive queues.

use std::os::fd::RawFd;

use uverbs_abi::Command;
use uverbs_abi::handle::{Pd, Srq};
use uverbs_abi::object::srq;
use uverbs_abi::types::{SrqAttrMask, SrqType};
use uverbs_abi::udata::rxe;
use uverbs_abi::write::WriteCall;
use uverbs_abi::write::srq::{
    CreateSrq as WriteCreateSrq, DestroySrq, ModifySrq, QuerySrq, QuerySrqResp,
};
use zerocopy::FromBytes;

use super::{Errno, Tried, Uctx};

/// A basic shared receive queue to make.
#[derive(Clone, Copy, Debug, Default)]
pub struct CreateSrq {
    /// The protection domain.
    pub pd: Pd,
    /// Comes back in events.
    pub user_handle: u64,
    /// Receives asked for.
    pub max_wr: u32,
    /// Scatter entries of each.
    pub max_sge: u32,
    /// An event comes when fewer receives are left.
    pub srq_limit: u32,
    /// The file that asynchronous events go to; without one, the context's first. Kernels that
    /// cannot choose ignore it.
    pub async_event: Option<RawFd>,
}

/// A new shared receive queue.
#[derive(Clone, Copy, Debug)]
pub struct SrqCreated<O> {
    /// For the kernel.
    pub handle: Srq,
    /// Receives granted.
    pub max_wr: u32,
    /// Scatter entries of each.
    pub max_sge: u32,
    /// The driver's answer.
    pub udata: O,
}

impl Uctx {
    /// Makes a basic shared receive queue.
    pub fn create_srq<O: FromBytes>(&self, attr: &CreateSrq) -> Result<SrqCreated<O>, Errno> {
        use srq::create;
        let mut cmd = Command::new();
        cmd.new_handle(create::HANDLE)
            .constant(create::TYPE, SrqType::BASIC)
            .input(create::USER_HANDLE, attr.user_handle)
            .object(create::PD_HANDLE, attr.pd)
            .input(create::MAX_WR, attr.max_wr)
            .input(create::MAX_SGE, attr.max_sge)
            .input(create::LIMIT, attr.srq_limit);
        if let Some(file) = attr.async_event {
            cmd.fd(create::EVENT_FD, file);
        }
        cmd.output(create::RESP_MAX_WR).output(create::RESP_MAX_SGE);
        if size_of::<O>() > 0 {
            cmd.uhw_out::<O>();
        }
        if let Tried::Done = self.try_method(&mut cmd)? {
            return Ok(SrqCreated {
                handle: cmd.handle(create::HANDLE)?,
                max_wr: cmd.get(create::RESP_MAX_WR)?,
                max_sge: cmd.get(create::RESP_MAX_SGE)?,
                udata: cmd.uhw().unwrap_or_else(|_| O::new_zeroed()),
            });
        }
        let mut call = WriteCall::new(WriteCreateSrq {
            response: 0,
            user_handle: attr.user_handle,
            pd_handle: attr.pd,
            max_wr: attr.max_wr,
            max_sge: attr.max_sge,
            srq_limit: attr.srq_limit,
        });
        call.uhw_out::<O>();
        self.write(&mut call)?;
        let resp = call.response();
        Ok(SrqCreated {
            handle: resp.srq_handle,
            max_wr: resp.max_wr,
            max_sge: resp.max_sge,
            udata: call.uhw(),
        })
    }

    /// Changes size or limit of a shared receive queue, as far as `mask` goes.
    ///
    /// rxe refuses it (`EINVAL`): see [`modify_srq_rxe`](Self::modify_srq_rxe).
    pub fn modify_srq(
        &self,
        handle: Srq,
        mask: SrqAttrMask,
        max_wr: u32,
        srq_limit: u32,
    ) -> Result<(), Errno> {
        self.simple(ModifySrq {
            srq_handle: handle,
            attr_mask: mask,
            max_wr,
            srq_limit,
        })
    }

    /// [`modify_srq`](Self::modify_srq) on rxe, which wants its own data with every modify, makes a
    /// new queue when the size changes and answers where to map it. The answer is all zero if there is
    /// no new queue.
    pub fn modify_srq_rxe(
        &self,
        handle: Srq,
        mask: SrqAttrMask,
        max_wr: u32,
        srq_limit: u32,
    ) -> Result<rxe::MmapInfo, Errno> {
        let mut info = rxe::MmapInfo::default();
        let mut call = WriteCall::new(ModifySrq {
            srq_handle: handle,
            attr_mask: mask,
            max_wr,
            srq_limit,
        });
        // The kernel writes through this address during the call (K2), and `info` outlives it.
        let address = (&raw mut info).expose_provenance() as u64;
        call.uhw_in(&rxe::ModifySrqCmd {
            mmap_info_addr: address,
        });
        self.write(&mut call)?;
        Ok(info)
    }

    /// Attributes of a shared receive queue.
    pub fn query_srq(&self, handle: Srq) -> Result<QuerySrqResp, Errno> {
        self.simple(QuerySrq {
            srq_handle: handle,
            ..QuerySrq::default()
        })
    }

    /// Destroys a shared receive queue; answers how many of its events the kernel has delivered.
    pub fn destroy_srq(&self, handle: Srq) -> Result<u32, Errno> {
        use srq::destroy;
        let mut cmd = Command::new();
        cmd.output(destroy::RESP).destroy(destroy::HANDLE, handle);
        let resp = match self.try_method(&mut cmd)? {
            Tried::Done => cmd.get(destroy::RESP)?,
            Tried::Unknown => self.simple(DestroySrq {
                srq_handle: handle,
                ..DestroySrq::default()
            })?,
        };
        Ok(resp.events_reported)
    }
}
