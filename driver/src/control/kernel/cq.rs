//! Completion queues.

use std::os::fd::RawFd;

use uverbs_abi::Command;
use uverbs_abi::handle::Cq;
use uverbs_abi::object::cq;
use uverbs_abi::object::mlx5::extra::CREATE_CQ_UAR_INDEX;
use uverbs_abi::types::{CreateCqFlags, DriverId};
use uverbs_abi::write::WriteCall;
use uverbs_abi::write::cq::{
    CqModeration, CreateCq as WriteCreateCq, DestroyCq, DestroyCqResp, ExCreateCq, ExModifyCq,
    ReqNotifyCq, ResizeCq,
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::{Errno, Tried, Uctx, driver_answer, driver_input, uhw};

/// A completion queue to make.
#[derive(Clone, Copy, Debug, Default)]
pub struct CreateCq {
    /// Entries asked for.
    pub cqe: u32,
    /// Comes back in events.
    pub user_handle: u64,
    /// The channel that completion events go to.
    pub comp_channel: Option<RawFd>,
    /// The completion vector.
    pub comp_vector: u32,
    /// How it is made.
    pub flags: CreateCqFlags,
    /// The file that asynchronous events go to; without one, the context's first. Kernels that
    /// cannot choose ignore it.
    pub async_event: Option<RawFd>,
    /// The doorbell page of an mlx5 queue, where its number does not fit the driver's input. Only the
    /// ioctl takes it.
    pub uar_index: Option<u32>,
}

/// A new completion queue.
#[derive(Clone, Copy, Debug)]
pub struct CqCreated<O> {
    /// For the kernel.
    pub handle: Cq,
    /// Entries granted.
    pub cqe: u32,
    /// The driver's answer.
    pub udata: O,
}

/// A completion queue of another size.
#[derive(Clone, Copy, Debug)]
pub struct CqResized<O> {
    /// Entries granted.
    pub cqe: u32,
    /// The driver's answer.
    pub udata: O,
}

impl<T> CqCreated<T> {
    fn map<O>(self, answer: impl FnOnce(T) -> O) -> CqCreated<O> {
        CqCreated {
            handle: self.handle,
            cqe: self.cqe,
            udata: answer(self.udata),
        }
    }
}

impl<T> CqResized<T> {
    fn map<O>(self, answer: impl FnOnce(T) -> O) -> CqResized<O> {
        CqResized {
            cqe: self.cqe,
            udata: answer(self.udata),
        }
    }
}

impl Uctx {
    /// Makes a completion queue.
    pub fn create_cq<O: FromBytes>(&self, attr: &CreateCq) -> Result<CqCreated<O>, Errno> {
        // SAFETY: there is no input.
        unsafe { self.create_cq_with(attr, &()) }
    }

    /// Makes a completion queue, for a driver that wants to know more.
    ///
    /// # Safety
    ///
    /// Memory that `input` names is valid for what the kernel and the device do with it until the
    /// object is destroyed (K4, K5).
    pub unsafe fn create_cq_with<I, O>(
        &self,
        attr: &CreateCq,
        input: &I,
    ) -> Result<CqCreated<O>, Errno>
    where
        I: IntoBytes + Immutable,
        O: FromBytes,
    {
        if let Some(objects) = self.objects() {
            let input = driver_input(input)?;
            // SAFETY: the caller vouches for memory that the input names.
            let made = unsafe { objects.create_cq(attr, &input) }?;
            return Ok(made.map(|answer| driver_answer(&answer)));
        }
        use cq::create;
        let mut cmd = Command::new();
        cmd.new_handle(create::HANDLE)
            .output(create::RESP_CQE)
            .input(create::CQE, attr.cqe)
            .input(create::USER_HANDLE, attr.user_handle);
        if let Some(channel) = attr.comp_channel {
            cmd.fd(create::COMP_CHANNEL, channel);
        }
        cmd.input(create::COMP_VECTOR, attr.comp_vector);
        if let Some(file) = attr.async_event {
            cmd.fd(create::EVENT_FD, file).optional();
        }
        if !attr.flags.is_empty() {
            cmd.flags(create::FLAGS, attr.flags);
        }
        if let Some(index) = attr.uar_index {
            cmd.input(CREATE_CQ_UAR_INDEX, index);
        }
        uhw::<_, I, O>(&mut cmd, input);
        if let Tried::Done = self.try_method(&mut cmd)? {
            return Ok(CqCreated {
                handle: cmd.handle(create::HANDLE)?,
                cqe: cmd.get(create::RESP_CQE)?,
                udata: cmd.uhw().unwrap_or_else(|_| O::new_zeroed()),
            });
        }
        if attr.uar_index.is_some() {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        let comp_channel = attr.comp_channel.unwrap_or(-1);
        // mlx5's completions have timestamps anyway, and the oldest command will do
        let stamps_only = attr.flags == CreateCqFlags::TIMESTAMP_COMPLETION;
        if attr.flags.is_empty() || stamps_only && self.driver() == DriverId::MLX5 {
            let mut call = WriteCall::new(WriteCreateCq {
                user_handle: attr.user_handle,
                cqe: attr.cqe,
                comp_vector: attr.comp_vector,
                comp_channel,
                ..WriteCreateCq::default()
            });
            call.uhw_in(input).uhw_out::<O>();
            self.write(&mut call)?;
            let resp = call.response();
            return Ok(CqCreated {
                handle: resp.cq_handle,
                cqe: resp.cqe,
                udata: call.uhw(),
            });
        }
        let mut call = WriteCall::new(ExCreateCq {
            user_handle: attr.user_handle,
            cqe: attr.cqe,
            comp_vector: attr.comp_vector,
            comp_channel,
            flags: attr.flags,
            ..ExCreateCq::default()
        });
        call.uhw_in(input).uhw_out::<O>();
        self.write(&mut call)?;
        let resp = call.response().base;
        Ok(CqCreated {
            handle: resp.cq_handle,
            cqe: resp.cqe,
            udata: call.uhw(),
        })
    }

    /// Changes the size of a completion queue.
    pub fn resize_cq<O: FromBytes>(&self, handle: Cq, cqe: u32) -> Result<CqResized<O>, Errno> {
        // SAFETY: there is no input.
        unsafe { self.resize_cq_with(handle, cqe, &()) }
    }

    /// Changes the size of a completion queue, for a driver that wants to know more.
    ///
    /// # Safety
    ///
    /// Memory that `input` names is valid for what the kernel and the device do with it until the
    /// object is destroyed (K4, K5).
    pub unsafe fn resize_cq_with<I, O>(
        &self,
        handle: Cq,
        cqe: u32,
        input: &I,
    ) -> Result<CqResized<O>, Errno>
    where
        I: IntoBytes + Immutable,
        O: FromBytes,
    {
        if let Some(objects) = self.objects() {
            let input = driver_input(input)?;
            // SAFETY: the caller vouches for memory that the input names.
            let made = unsafe { objects.resize_cq(handle, cqe, &input) }?;
            return Ok(made.map(|answer| driver_answer(&answer)));
        }
        let mut call = WriteCall::new(ResizeCq {
            response: 0,
            cq_handle: handle,
            cqe,
        });
        call.uhw_in(input).uhw_out::<O>();
        self.write(&mut call)?;
        Ok(CqResized {
            cqe: call.response().cqe,
            udata: call.uhw(),
        })
    }

    /// Holds events back: one comes after `count` completions or `period` microseconds, whichever is
    /// first.
    pub fn modify_cq_moderation(&self, handle: Cq, count: u16, period: u16) -> Result<(), Errno> {
        if let Some(objects) = self.objects() {
            return objects.modify_cq_moderation(handle, count, period);
        }
        const MODERATION: u32 = 1 << 0;
        self.simple(ExModifyCq {
            cq_handle: handle,
            attr_mask: MODERATION,
            attr: CqModeration {
                cq_count: count,
                cq_period: period,
            },
            ..ExModifyCq::default()
        })
    }

    /// Asks for an event on the channel at the next completion, or the next solicited one.
    pub fn req_notify_cq(&self, handle: Cq, solicited_only: bool) -> Result<(), Errno> {
        self.simple(ReqNotifyCq {
            cq_handle: handle,
            solicited_only: solicited_only.into(),
        })
    }

    /// Destroys a completion queue; answers how many of its events the kernel has delivered.
    pub fn destroy_cq(&self, handle: Cq) -> Result<DestroyCqResp, Errno> {
        if let Some(objects) = self.objects() {
            return objects.destroy_cq(handle);
        }
        use cq::destroy;
        let mut cmd = Command::new();
        cmd.output(destroy::RESP).destroy(destroy::HANDLE, handle);
        match self.try_method(&mut cmd)? {
            Tried::Done => Ok(cmd.get(destroy::RESP)?),
            Tried::Unknown => self.simple(DestroyCq {
                cq_handle: handle,
                ..DestroyCq::default()
            }),
        }
    }
}
