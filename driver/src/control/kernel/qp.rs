//! Queue pairs.

use std::os::fd::RawFd;

use uverbs_abi::Command;
use uverbs_abi::handle::{Cq, Pd, Qp, Srq};
use uverbs_abi::object::qp;
use uverbs_abi::types::{CreateQpFlags, QpAttrMask, QpCap, QpType};
use uverbs_abi::write::WriteCall;
use uverbs_abi::write::qp::{
    CreateQp as WriteCreateQp, DestroyQp, ExCreateQp, ExModifyQp, ModifyQp, QueryQp, QueryQpResp,
};
use zerocopy::FromBytes;

use super::{Errno, Tried, Uctx};

/// A queue pair to make, of any type that has a protection domain and two completion queues.
#[derive(Clone, Copy, Debug)]
pub struct CreateQp {
    /// Service type.
    pub qp_type: QpType,
    /// The protection domain.
    pub pd: Pd,
    /// Where sends complete.
    pub send_cq: Cq,
    /// Where receives complete.
    pub recv_cq: Cq,
    /// Where receives come from, instead of an own queue.
    pub srq: Option<Srq>,
    /// Comes back in events.
    pub user_handle: u64,
    /// Capacity asked for.
    pub cap: QpCap,
    /// Whether every send makes a completion.
    pub sq_sig_all: bool,
    /// Further flags, which a kernel without the ioctl takes by the extended command only.
    pub flags: CreateQpFlags,
    /// The file that asynchronous events go to; without one, the context's first. Kernels that
    /// cannot choose ignore it.
    pub async_event: Option<RawFd>,
}

/// A new queue pair.
#[derive(Clone, Copy, Debug)]
pub struct QpCreated<O> {
    /// For the kernel.
    pub handle: Qp,
    /// For peers.
    pub qp_num: u32,
    /// Capacity granted.
    pub cap: QpCap,
    /// The driver's answer.
    pub udata: O,
}

impl Uctx {
    /// Makes a queue pair.
    pub fn create_qp<O: FromBytes>(&self, attr: &CreateQp) -> Result<QpCreated<O>, Errno> {
        use qp::create;
        let mut cmd = Command::new();
        cmd.object(create::PD_HANDLE, attr.pd)
            .object(create::SEND_CQ_HANDLE, attr.send_cq)
            .object(create::RECV_CQ_HANDLE, attr.recv_cq)
            .new_handle(create::HANDLE)
            .constant(create::TYPE, attr.qp_type)
            .input(create::USER_HANDLE, attr.user_handle)
            .input(create::CAP, attr.cap);
        if let Some(file) = attr.async_event {
            cmd.fd(create::EVENT_FD, file);
        }
        let mut flags = attr.flags;
        if attr.sq_sig_all {
            flags |= CreateQpFlags::SQ_SIG_ALL;
        }
        if !flags.is_empty() {
            cmd.flags(create::FLAGS, flags);
        }
        if let Some(srq) = attr.srq {
            cmd.object(create::SRQ_HANDLE, srq);
        }
        cmd.output(create::RESP_CAP).output(create::RESP_QP_NUM);
        if size_of::<O>() > 0 {
            cmd.uhw_out::<O>();
        }
        if let Tried::Done = self.try_method(&mut cmd)? {
            return Ok(QpCreated {
                handle: cmd.handle(create::HANDLE)?,
                qp_num: cmd.get(create::RESP_QP_NUM)?,
                cap: cmd.get(create::RESP_CAP)?,
                udata: cmd.uhw().unwrap_or_else(|_| O::new_zeroed()),
            });
        }
        if attr.flags.is_empty() {
            self.create_qp_by_write(attr)
        } else {
            self.create_qp_by_extended_write(attr)
        }
    }

    fn create_qp_by_write<O: FromBytes>(&self, attr: &CreateQp) -> Result<QpCreated<O>, Errno> {
        let mut call = WriteCall::new(WriteCreateQp {
            user_handle: attr.user_handle,
            pd_handle: attr.pd,
            send_cq_handle: attr.send_cq,
            recv_cq_handle: attr.recv_cq,
            srq_handle: attr.srq.unwrap_or_default(),
            max_send_wr: attr.cap.max_send_wr,
            max_recv_wr: attr.cap.max_recv_wr,
            max_send_sge: attr.cap.max_send_sge,
            max_recv_sge: attr.cap.max_recv_sge,
            max_inline_data: attr.cap.max_inline_data,
            sq_sig_all: attr.sq_sig_all.into(),
            qp_type: attr.qp_type,
            is_srq: attr.srq.is_some().into(),
            ..WriteCreateQp::default()
        });
        call.uhw_out::<O>();
        self.write(&mut call)?;
        let resp = call.response();
        Ok(QpCreated {
            handle: resp.qp_handle,
            qp_num: resp.qpn,
            cap: resp.cap(),
            udata: call.uhw(),
        })
    }

    fn create_qp_by_extended_write<O: FromBytes>(
        &self,
        attr: &CreateQp,
    ) -> Result<QpCreated<O>, Errno> {
        let mut call = WriteCall::new(ExCreateQp {
            user_handle: attr.user_handle,
            pd_handle: attr.pd,
            send_cq_handle: attr.send_cq,
            recv_cq_handle: attr.recv_cq,
            srq_handle: attr.srq.unwrap_or_default(),
            max_send_wr: attr.cap.max_send_wr,
            max_recv_wr: attr.cap.max_recv_wr,
            max_send_sge: attr.cap.max_send_sge,
            max_recv_sge: attr.cap.max_recv_sge,
            max_inline_data: attr.cap.max_inline_data,
            sq_sig_all: attr.sq_sig_all.into(),
            qp_type: attr.qp_type,
            is_srq: attr.srq.is_some().into(),
            create_flags: attr.flags,
            ..ExCreateQp::default()
        });
        call.uhw_out::<O>();
        self.write(&mut call)?;
        let resp = call.response().base;
        Ok(QpCreated {
            handle: resp.qp_handle,
            qp_num: resp.qpn,
            cap: resp.cap(),
            udata: call.uhw(),
        })
    }

    /// Changes the attributes that `attr.attr_mask` names.
    pub fn modify_qp(&self, attr: &ModifyQp) -> Result<(), Errno> {
        self.simple(*attr)
    }

    /// Changes attributes, the rate limit too.
    pub fn modify_qp_ex(&self, attr: &ExModifyQp) -> Result<(), Errno> {
        self.simple(*attr).map(drop)
    }

    /// Attributes of a queue pair; the kernel may answer more than `mask` asks for.
    pub fn query_qp(&self, handle: Qp, mask: QpAttrMask) -> Result<QueryQpResp, Errno> {
        self.simple(QueryQp {
            response: 0,
            qp_handle: handle,
            attr_mask: mask,
        })
    }

    /// Destroys a queue pair; answers how many of its events the kernel has delivered.
    pub fn destroy_qp(&self, handle: Qp) -> Result<u32, Errno> {
        use qp::destroy;
        let mut cmd = Command::new();
        cmd.output(destroy::RESP).destroy(destroy::HANDLE, handle);
        let resp = match self.try_method(&mut cmd)? {
            Tried::Done => cmd.get(destroy::RESP)?,
            Tried::Unknown => self.simple(DestroyQp {
                qp_handle: handle,
                ..DestroyQp::default()
            })?,
        };
        Ok(resp.events_reported)
    }
}
