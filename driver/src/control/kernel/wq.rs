//! Receive work queues and the tables that spread packets over them.

use std::os::fd::RawFd;

use uverbs_abi::Command;
use uverbs_abi::handle::{Cq, Pd, RwqIndTbl, Wq};
use uverbs_abi::object::{rwq_ind_tbl, wq};
use uverbs_abi::types::{WqFlags, WqType};
use uverbs_abi::write::WriteCall;
use uverbs_abi::write::wq::{
    ExCreateRwqIndTable, ExCreateWq, ExDestroyRwqIndTable, ExDestroyWq, ExModifyWq,
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::{Errno, Tried, Uctx, driver_answer, driver_input, uhw};

/// A work queue to make.
#[derive(Clone, Copy, Debug, Default)]
pub struct CreateWq {
    /// Kind.
    pub wq_type: WqType,
    /// The protection domain.
    pub pd: Pd,
    /// Where receives complete.
    pub cq: Cq,
    /// Comes back in events.
    pub user_handle: u64,
    /// Receives asked for.
    pub max_wr: u32,
    /// Scatter entries of each.
    pub max_sge: u32,
    /// How it is made.
    pub flags: WqFlags,
    /// The file that asynchronous events go to; without one, the context's first. Kernels that
    /// cannot choose ignore it.
    pub async_event: Option<RawFd>,
}

/// A new work queue.
#[derive(Clone, Copy, Debug)]
pub struct WqCreated<O> {
    /// For the kernel.
    pub handle: Wq,
    /// The device's number.
    pub wq_num: u32,
    /// Receives granted.
    pub max_wr: u32,
    /// Scatter entries of each.
    pub max_sge: u32,
    /// The driver's answer.
    pub udata: O,
}

/// A new indirection table.
#[derive(Clone, Copy, Debug)]
pub struct RwqIndTableCreated<O> {
    /// For the kernel.
    pub handle: RwqIndTbl,
    /// The kernel's number of it.
    pub number: u32,
    /// The driver's answer.
    pub udata: O,
}

/// The most work queues of one table (`IB_USER_VERBS_MAX_LOG_IND_TBL_SIZE`).
const MAX_LOG_TABLE: u32 = 13;

impl Uctx {
    /// Makes a work queue.
    ///
    /// # Safety
    ///
    /// Memory that `input` names is valid for what the kernel and the device do with it until the
    /// object is destroyed (K4, K5).
    pub unsafe fn create_wq_with<I, O>(
        &self,
        attr: &CreateWq,
        input: &I,
    ) -> Result<WqCreated<O>, Errno>
    where
        I: IntoBytes + Immutable,
        O: FromBytes,
    {
        if let Some(objects) = self.objects() {
            let input = driver_input(input)?;
            // SAFETY: the caller vouches for memory that the input names.
            let made = unsafe { objects.create_wq(attr, &input) }?;
            return Ok(WqCreated {
                handle: made.handle,
                wq_num: made.wq_num,
                max_wr: made.max_wr,
                max_sge: made.max_sge,
                udata: driver_answer(&made.udata),
            });
        }
        use wq::create;
        let mut cmd = Command::new();
        cmd.new_handle(create::HANDLE)
            .input(create::USER_HANDLE, attr.user_handle)
            .object(create::PD_HANDLE, attr.pd)
            .object(create::CQ_HANDLE, attr.cq)
            .constant(create::TYPE, attr.wq_type)
            .input(create::MAX_WR, attr.max_wr)
            .input(create::MAX_SGE, attr.max_sge);
        if let Some(file) = attr.async_event {
            cmd.fd(create::EVENT_FD, file);
        }
        cmd.flags(create::FLAGS, attr.flags)
            .output(create::RESP_MAX_WR)
            .output(create::RESP_MAX_SGE)
            .output(create::RESP_WQ_NUM);
        uhw::<_, I, O>(&mut cmd, input);
        if let Tried::Done = self.try_method(&mut cmd)? {
            return Ok(WqCreated {
                handle: cmd.handle(create::HANDLE)?,
                wq_num: cmd.get(create::RESP_WQ_NUM)?,
                max_wr: cmd.get(create::RESP_MAX_WR)?,
                max_sge: cmd.get(create::RESP_MAX_SGE)?,
                udata: cmd.uhw().unwrap_or_else(|_| O::new_zeroed()),
            });
        }
        let mut call = WriteCall::new(ExCreateWq {
            wq_type: attr.wq_type,
            user_handle: attr.user_handle,
            pd_handle: attr.pd,
            cq_handle: attr.cq,
            max_wr: attr.max_wr,
            max_sge: attr.max_sge,
            create_flags: attr.flags,
            ..ExCreateWq::default()
        });
        call.uhw_in(input).uhw_out::<O>();
        self.write(&mut call)?;
        let resp = call.response();
        Ok(WqCreated {
            handle: resp.wq_handle,
            wq_num: resp.wqn,
            max_wr: resp.max_wr,
            max_sge: resp.max_sge,
            udata: call.uhw(),
        })
    }

    /// Changes state or flags of a work queue, as far as `attr.attr_mask` goes.
    pub fn modify_wq_with<I>(&self, attr: &ExModifyWq, input: &I) -> Result<(), Errno>
    where
        I: IntoBytes + Immutable,
    {
        if let Some(objects) = self.objects() {
            return objects.modify_wq(attr);
        }
        let mut call = WriteCall::new(*attr);
        call.uhw_in(input);
        self.write(&mut call)
    }

    /// Destroys a work queue; answers how many of its events the kernel has delivered.
    pub fn destroy_wq(&self, handle: Wq) -> Result<u32, Errno> {
        if let Some(objects) = self.objects() {
            return objects.destroy_wq(handle);
        }
        use wq::destroy;
        let mut cmd = Command::new();
        cmd.output(destroy::RESP).destroy(destroy::HANDLE, handle);
        match self.try_method(&mut cmd)? {
            Tried::Done => Ok(cmd.get(destroy::RESP)?),
            Tried::Unknown => {
                let resp = self.simple(ExDestroyWq {
                    comp_mask: 0,
                    wq_handle: handle,
                })?;
                Ok(resp.events_reported)
            }
        }
    }

    /// Makes a table of `queues`, whose number is a power of two, at most 8192.
    pub fn create_rwq_ind_table<O>(&self, queues: &[Wq]) -> Result<RwqIndTableCreated<O>, Errno>
    where
        O: FromBytes,
    {
        let log = queues.len().checked_ilog2();
        let Some(log) = log.filter(|log| queues.len() == 1 << log && *log <= MAX_LOG_TABLE) else {
            return Err(Errno(libc::EINVAL));
        };
        if let Some(objects) = self.objects() {
            let made = objects.create_rwq_ind_table(queues)?;
            return Ok(RwqIndTableCreated {
                handle: made.handle,
                number: made.number,
                udata: O::new_zeroed(),
            });
        }
        // two sizes of memory, since the largest table takes 32 KiB of stack
        const SMALL: usize = 64;
        const LARGE: usize = 16 + (1 << (MAX_LOG_TABLE - 1));
        if queues.len() <= 64 {
            self.create_table::<SMALL, O>(log, queues)
        } else {
            self.create_table::<LARGE, O>(log, queues)
        }
    }

    fn create_table<const IN: usize, O: FromBytes>(
        &self,
        log: u32,
        queues: &[Wq],
    ) -> Result<RwqIndTableCreated<O>, Errno> {
        let mut call = WriteCall::<_, IN, 56>::with_capacity(ExCreateRwqIndTable {
            comp_mask: 0,
            log_ind_tbl_size: log,
        });
        call.tail(queues.as_bytes());
        if queues.len() == 1 {
            call.tail(&[0; 4]); // the command is a multiple of 8 bytes
        }
        call.uhw_out::<O>();
        self.write(&mut call)?;
        let resp = call.response();
        Ok(RwqIndTableCreated {
            handle: resp.ind_tbl_handle,
            number: resp.ind_tbl_num,
            udata: call.uhw(),
        })
    }

    /// Destroys a table. `EBUSY` while queue pairs receive by it.
    pub fn destroy_rwq_ind_table(&self, handle: RwqIndTbl) -> Result<(), Errno> {
        if let Some(objects) = self.objects() {
            return objects.destroy_rwq_ind_table(handle);
        }
        let mut cmd = Command::new();
        cmd.destroy(rwq_ind_tbl::destroy::HANDLE, handle);
        match self.try_method(&mut cmd)? {
            Tried::Done => Ok(()),
            Tried::Unknown => self.simple(ExDestroyRwqIndTable {
                comp_mask: 0,
                ind_tbl_handle: handle,
            }),
        }
    }
}
