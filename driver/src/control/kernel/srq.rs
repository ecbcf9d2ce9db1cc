//! Shared receive queues.

use std::os::fd::RawFd;

use uverbs_abi::Command;
use uverbs_abi::handle::{Cq, Pd, Srq, Xrcd};
use uverbs_abi::object::srq;
use uverbs_abi::types::{SrqAttrMask, SrqType};
use uverbs_abi::udata::rxe;
use uverbs_abi::write::WriteCall;
use uverbs_abi::write::srq::{
    CreateSrq as WriteCreateSrq, CreateSrqResp, CreateXsrq, DestroySrq, ModifySrq, QuerySrq,
    QuerySrqResp,
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::{Errno, Tried, Uctx, driver_answer, driver_input, uhw};

/// A shared receive queue to make.
#[derive(Clone, Copy, Debug, Default)]
pub struct CreateSrq {
    /// Kind; a basic one by default.
    pub srq_type: SrqType,
    /// The protection domain.
    pub pd: Pd,
    /// The XRC domain of an [`XRC`](SrqType::XRC) queue.
    pub xrcd: Xrcd,
    /// Where receives of an [`XRC`](SrqType::XRC) queue or operations on the list of a
    /// [`TM`](SrqType::TM) queue complete.
    pub cq: Cq,
    /// Tags of a [`TM`](SrqType::TM) queue.
    pub max_num_tags: u32,
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
    /// For peers, who name an [`XRC`](SrqType::XRC) queue by it; 0 for others.
    pub srq_num: u32,
    /// The driver's answer.
    pub udata: O,
}

impl<O> SrqCreated<O> {
    fn of(resp: &CreateSrqResp, udata: O) -> Self {
        Self {
            handle: resp.srq_handle,
            max_wr: resp.max_wr,
            max_sge: resp.max_sge,
            srq_num: resp.srqn,
            udata,
        }
    }
}

impl<T> SrqCreated<T> {
    fn map<O>(self, answer: impl FnOnce(T) -> O) -> SrqCreated<O> {
        SrqCreated {
            handle: self.handle,
            max_wr: self.max_wr,
            max_sge: self.max_sge,
            srq_num: self.srq_num,
            udata: answer(self.udata),
        }
    }
}

impl Uctx {
    /// Makes a shared receive queue.
    pub fn create_srq<O: FromBytes>(&self, attr: &CreateSrq) -> Result<SrqCreated<O>, Errno> {
        // SAFETY: there is no input.
        unsafe { self.create_srq_with(attr, &()) }
    }

    /// Makes a shared receive queue, for a driver that wants to know more.
    ///
    /// # Safety
    ///
    /// Memory that `input` names is valid for what the kernel and the device do with it until the
    /// object is destroyed (K4, K5).
    pub unsafe fn create_srq_with<I, O>(
        &self,
        attr: &CreateSrq,
        input: &I,
    ) -> Result<SrqCreated<O>, Errno>
    where
        I: IntoBytes + Immutable,
        O: FromBytes,
    {
        if let Some(objects) = self.objects() {
            let input = driver_input(input)?;
            // SAFETY: the caller vouches for memory that the input names.
            let made = unsafe { objects.create_srq(attr, &input) }?;
            return Ok(made.map(|answer| driver_answer(&answer)));
        }
        use srq::create;
        let mut cmd = Command::new();
        match attr.srq_type {
            SrqType::XRC => {
                cmd.object(create::XRCD_HANDLE, attr.xrcd)
                    .object(create::CQ_HANDLE, attr.cq)
                    .output(create::RESP_SRQ_NUM);
            }
            SrqType::TM => {
                cmd.object(create::CQ_HANDLE, attr.cq)
                    .input(create::MAX_NUM_TAGS, attr.max_num_tags);
            }
            _ => {}
        }
        cmd.new_handle(create::HANDLE)
            .constant(create::TYPE, attr.srq_type)
            .input(create::USER_HANDLE, attr.user_handle)
            .object(create::PD_HANDLE, attr.pd)
            .input(create::MAX_WR, attr.max_wr)
            .input(create::MAX_SGE, attr.max_sge)
            .input(create::LIMIT, attr.srq_limit);
        if let Some(file) = attr.async_event {
            cmd.fd(create::EVENT_FD, file);
        }
        cmd.output(create::RESP_MAX_WR).output(create::RESP_MAX_SGE);
        uhw::<_, I, O>(&mut cmd, input);
        if let Tried::Done = self.try_method(&mut cmd)? {
            return Ok(SrqCreated {
                handle: cmd.handle(create::HANDLE)?,
                max_wr: cmd.get(create::RESP_MAX_WR)?,
                max_sge: cmd.get(create::RESP_MAX_SGE)?,
                srq_num: cmd.get(create::RESP_SRQ_NUM).unwrap_or_default(),
                udata: cmd.uhw().unwrap_or_else(|_| O::new_zeroed()),
            });
        }
        if attr.srq_type == SrqType::BASIC {
            let mut call = WriteCall::new(WriteCreateSrq {
                response: 0,
                user_handle: attr.user_handle,
                pd_handle: attr.pd,
                max_wr: attr.max_wr,
                max_sge: attr.max_sge,
                srq_limit: attr.srq_limit,
            });
            call.uhw_in(input).uhw_out::<O>();
            self.write(&mut call)?;
            return Ok(SrqCreated::of(&call.response(), call.uhw()));
        }
        let mut request = CreateXsrq {
            user_handle: attr.user_handle,
            srq_type: attr.srq_type,
            pd_handle: attr.pd,
            max_wr: attr.max_wr,
            max_sge: attr.max_sge,
            srq_limit: attr.srq_limit,
            cq_handle: attr.cq,
            ..CreateXsrq::default()
        };
        if attr.srq_type == SrqType::TM {
            request.max_num_tags = attr.max_num_tags;
        } else {
            request.xrcd_handle = attr.xrcd;
        }
        let mut call = WriteCall::new(request);
        call.uhw_in(input).uhw_out::<O>();
        self.write(&mut call)?;
        Ok(SrqCreated::of(&call.response(), call.uhw()))
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
        if let Some(objects) = self.objects() {
            return objects.modify_srq(handle, mask, srq_limit);
        }
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
        if let Some(objects) = self.objects() {
            return objects.query_srq(handle);
        }
        self.simple(QuerySrq {
            srq_handle: handle,
            ..QuerySrq::default()
        })
    }

    /// Destroys a shared receive queue; answers how many of its events the kernel has delivered.
    pub fn destroy_srq(&self, handle: Srq) -> Result<u32, Errno> {
        if let Some(objects) = self.objects() {
            return objects.destroy_srq(handle);
        }
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
