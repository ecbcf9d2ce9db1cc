//! Queue pairs.

use std::os::fd::RawFd;

use uverbs_abi::Command;
use uverbs_abi::handle::{Cq, Pd, Qp, RwqIndTbl, Srq, Xrcd};
use uverbs_abi::object::qp;
use uverbs_abi::types::{CreateQpFlags, QpAttrMask, QpCap, QpType};
use uverbs_abi::write::WriteCall;
use uverbs_abi::write::qp::{
    CreateQpResp, DestroyQp, ExCreateQp, ExModifyQp, ModifyQp, OpenQp, QueryQp, QueryQpResp,
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::{Errno, Tried, Uctx, driver_answer, driver_input, uhw};

/// A queue pair to make. The kernel takes different objects for different types; those that the type
/// does not have are not sent, whatever they are here.
#[derive(Clone, Copy, Debug, Default)]
pub struct CreateQp {
    /// Service type.
    pub qp_type: QpType,
    /// The protection domain; [`XRC_TGT`](QpType::XRC_TGT) has none.
    pub pd: Pd,
    /// The XRC domain of an [`XRC_TGT`](QpType::XRC_TGT).
    pub xrcd: Xrcd,
    /// Where sends complete; [`XRC_TGT`](QpType::XRC_TGT) has none.
    pub send_cq: Cq,
    /// Where receives complete; neither XRC type has one.
    pub recv_cq: Cq,
    /// Where receives come from, instead of an own queue.
    pub srq: Option<Srq>,
    /// Receives are spread over these work queues, instead of an own queue: no `recv_cq` then, and a
    /// `send_cq` only with `cap.max_send_wr`.
    pub ind_table: Option<RwqIndTbl>,
    /// Send as if from this queue pair.
    pub source_qpn: Option<u32>,
    /// Comes back in events.
    pub user_handle: u64,
    /// Capacity asked for; an XRC initiator's receives are not sent, since it has none.
    pub cap: QpCap,
    /// Whether every send makes a completion.
    pub sq_sig_all: bool,
    /// Further flags, which a kernel without the ioctl takes by the extended command only.
    pub flags: CreateQpFlags,
    /// The file that asynchronous events go to; without one, the context's first. Kernels that
    /// cannot choose ignore it.
    pub async_event: Option<RawFd>,
}

impl CreateQp {
    fn has_pd(&self) -> bool {
        self.qp_type != QpType::XRC_TGT
    }

    fn has_send_cq(&self) -> bool {
        self.has_pd() && (self.ind_table.is_none() || self.cap.max_send_wr > 0)
    }

    fn has_recv_cq(&self) -> bool {
        self.has_pd() && self.ind_table.is_none() && self.qp_type != QpType::XRC_INI
    }

    /// What the kernel is told. libibverbs leaves an XRC initiator's receives out as well.
    fn asked_cap(&self) -> QpCap {
        let mut cap = self.cap;
        if self.qp_type == QpType::XRC_INI {
            cap.max_recv_wr = 0;
            cap.max_recv_sge = 0;
        }
        cap
    }

    /// As the extended write command.
    fn extended(&self) -> ExCreateQp {
        /// `rwq_ind_tbl_handle` counts (`IB_UVERBS_CREATE_QP_MASK_IND_TABLE`).
        const IND_TABLE: u32 = 1 << 0;
        /// `source_qpn` counts (`IBV_QP_CREATE_SOURCE_QPN`); the ioctl has an attribute instead.
        const SOURCE_QPN: CreateQpFlags = CreateQpFlags(1 << 10);

        let cap = self.asked_cap();
        let mut flags = self.flags;
        if self.source_qpn.is_some() {
            flags |= SOURCE_QPN;
        }
        ExCreateQp {
            user_handle: self.user_handle,
            pd_handle: if self.has_pd() {
                self.pd
            } else {
                Pd(self.xrcd.0)
            },
            send_cq_handle: if self.has_send_cq() {
                self.send_cq
            } else {
                Cq(0)
            },
            recv_cq_handle: if self.has_recv_cq() {
                self.recv_cq
            } else {
                Cq(0)
            },
            srq_handle: self.srq.unwrap_or_default(),
            max_send_wr: cap.max_send_wr,
            max_recv_wr: cap.max_recv_wr,
            max_send_sge: cap.max_send_sge,
            max_recv_sge: cap.max_recv_sge,
            max_inline_data: cap.max_inline_data,
            sq_sig_all: self.sq_sig_all.into(),
            qp_type: self.qp_type,
            is_srq: self.srq.is_some().into(),
            comp_mask: if self.ind_table.is_some() {
                IND_TABLE
            } else {
                0
            },
            create_flags: flags,
            rwq_ind_tbl_handle: self.ind_table.unwrap_or_default(),
            source_qpn: self.source_qpn.unwrap_or_default(),
            ..ExCreateQp::default()
        }
    }
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

impl<O> QpCreated<O> {
    fn of(resp: &CreateQpResp, udata: O) -> Self {
        Self {
            handle: resp.qp_handle,
            qp_num: resp.qpn,
            cap: resp.cap(),
            udata,
        }
    }
}

impl<T> QpCreated<T> {
    fn map<O>(self, answer: impl FnOnce(T) -> O) -> QpCreated<O> {
        QpCreated {
            handle: self.handle,
            qp_num: self.qp_num,
            cap: self.cap,
            udata: answer(self.udata),
        }
    }
}

impl Uctx {
    /// Makes a queue pair.
    pub fn create_qp<O: FromBytes>(&self, attr: &CreateQp) -> Result<QpCreated<O>, Errno> {
        // SAFETY: there is no input.
        unsafe { self.create_qp_with(attr, &()) }
    }

    /// Makes a queue pair, for a driver that wants to know more.
    ///
    /// # Safety
    ///
    /// Memory that `input` names is valid for what the kernel and the device do with it until the
    /// object is destroyed (K4, K5).
    pub unsafe fn create_qp_with<I, O>(
        &self,
        attr: &CreateQp,
        input: &I,
    ) -> Result<QpCreated<O>, Errno>
    where
        I: IntoBytes + Immutable,
        O: FromBytes,
    {
        if let Some(objects) = self.objects() {
            if attr.ind_table.is_some() {
                let made = objects.create_rss(attr, &driver_input(input)?)?;
                return Ok(made.map(|answer| driver_answer(&answer)));
            }
            let input = driver_input(input)?;
            // SAFETY: the caller vouches for memory that the input names.
            let made = unsafe { objects.create_qp(attr, &input) }?;
            return Ok(made.map(|answer| driver_answer(&answer)));
        }
        use qp::create;
        let mut cmd = Command::new();
        if attr.has_pd() {
            cmd.object(create::PD_HANDLE, attr.pd);
        } else {
            cmd.object(create::XRCD_HANDLE, attr.xrcd);
        }
        if let Some(table) = attr.ind_table {
            cmd.object(create::IND_TABLE_HANDLE, table);
        }
        if attr.has_send_cq() {
            cmd.object(create::SEND_CQ_HANDLE, attr.send_cq);
        }
        if attr.has_recv_cq() {
            cmd.object(create::RECV_CQ_HANDLE, attr.recv_cq);
        }
        cmd.new_handle(create::HANDLE)
            .constant(create::TYPE, attr.qp_type)
            .input(create::USER_HANDLE, attr.user_handle)
            .input(create::CAP, attr.asked_cap());
        if let Some(file) = attr.async_event {
            cmd.fd(create::EVENT_FD, file);
        }
        if let Some(qpn) = attr.source_qpn {
            cmd.input(create::SOURCE_QPN, qpn);
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
        uhw::<_, I, O>(&mut cmd, input);
        if let Tried::Done = self.try_method(&mut cmd)? {
            return Ok(QpCreated {
                handle: cmd.handle(create::HANDLE)?,
                qp_num: cmd.get(create::RESP_QP_NUM)?,
                cap: cmd.get(create::RESP_CAP)?,
                udata: cmd.uhw().unwrap_or_else(|_| O::new_zeroed()),
            });
        }
        let request = attr.extended();
        if request.comp_mask == 0 && request.create_flags.is_empty() {
            let mut call = WriteCall::new(request.legacy());
            call.uhw_in(input).uhw_out::<O>();
            self.write(&mut call)?;
            Ok(QpCreated::of(&call.response(), call.uhw()))
        } else {
            let mut call = WriteCall::new(request);
            call.uhw_in(input).uhw_out::<O>();
            self.write(&mut call)?;
            Ok(QpCreated::of(&call.response().base, call.uhw()))
        }
    }

    /// Opens the XRC target queue pair that another process made in the same XRC domain.
    ///
    /// `EOPNOTSUPP` where this process drives the device: no other process has a queue pair there.
    pub fn open_qp(&self, xrcd: Xrcd, qp_num: u32, user_handle: u64) -> Result<Qp, Errno> {
        if self.objects().is_some() {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        let resp = self.simple(OpenQp {
            user_handle,
            pd_handle: xrcd.0,
            qpn: qp_num,
            qp_type: QpType::XRC_TGT,
            ..OpenQp::default()
        })?;
        Ok(resp.qp_handle)
    }

    /// Changes the attributes that `attr.attr_mask` names.
    pub fn modify_qp(&self, attr: &ModifyQp) -> Result<(), Errno> {
        if let Some(objects) = self.objects() {
            return objects
                .modify_qp(
                    &ExModifyQp {
                        base: *attr,
                        ..ExModifyQp::default()
                    },
                    &Default::default(),
                )
                .map(drop);
        }
        self.simple(*attr)
    }

    /// Changes attributes, the rate limit too.
    pub fn modify_qp_ex(&self, attr: &ExModifyQp) -> Result<(), Errno> {
        self.modify_qp_ex_with(attr, &())
    }

    /// Changes attributes, for a driver that wants to know and has to say more.
    pub fn modify_qp_ex_with<I, O>(&self, attr: &ExModifyQp, input: &I) -> Result<O, Errno>
    where
        I: IntoBytes + Immutable,
        O: FromBytes,
    {
        if let Some(objects) = self.objects() {
            let answer = objects.modify_qp(attr, &driver_input(input)?)?;
            return Ok(driver_answer(&answer));
        }
        let mut call = WriteCall::new(*attr);
        call.uhw_in(input).uhw_out::<O>();
        self.write(&mut call)?;
        Ok(call.uhw())
    }

    /// Attributes of a queue pair; the kernel may answer more than `mask` asks for.
    pub fn query_qp(&self, handle: Qp, mask: QpAttrMask) -> Result<QueryQpResp, Errno> {
        if let Some(objects) = self.objects() {
            return objects.query_qp(handle, mask);
        }
        self.simple(QueryQp {
            response: 0,
            qp_handle: handle,
            attr_mask: mask,
        })
    }

    /// Destroys a queue pair; answers how many of its events the kernel has delivered.
    pub fn destroy_qp(&self, handle: Qp) -> Result<u32, Errno> {
        if let Some(objects) = self.objects() {
            return objects.destroy_qp(handle);
        }
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
