//! Receive work queues and indirection tables.

use std::os::fd::RawFd;
use std::sync::atomic::Ordering;

use oxverbs::sys::Errno;

use crate::core::memory::use_pd;
use crate::core::objects::{IndTable, Object, Wq};
use crate::mlx5;
use crate::request::Uhw;
use crate::state::{State, release_pd};

const EINVAL: Errno = Errno(libc::EINVAL);
const EBUSY: Errno = Errno(libc::EBUSY);

/// `IB_USER_VERBS_MAX_LOG_IND_TBL_SIZE` is 13; a ConnectX-5 has 11.
const MAX_LOG_TABLE: u32 = 11;

/// A work queue to make.
#[derive(Debug)]
pub(crate) struct NewWq {
    pub(crate) pd: u32,
    pub(crate) cq: u32,
    pub(crate) user_handle: u64,
    pub(crate) wq_type: u32,
    pub(crate) max_wr: u32,
    pub(crate) max_sge: u32,
    pub(crate) flags: u64,
    pub(crate) event_fd: Option<RawFd>,
}

/// A work queue that was made.
#[derive(Debug)]
pub(crate) struct MadeWq {
    pub(crate) handle: u32,
    pub(crate) wqn: u32,
    pub(crate) uhw: Vec<u8>,
}

/// Of `IB_UVERBS_EX_CMD_MODIFY_WQ`: the attributes and which of them count.
#[derive(Debug)]
pub(crate) struct ModifyWq {
    pub(crate) mask: u32,
    pub(crate) state: u32,
    pub(crate) current: u32,
    pub(crate) flags_mask: u32,
}

impl State {
    pub(crate) fn ind_table_number(&mut self, fd: RawFd, handle: u32) -> Result<u32, Errno> {
        match self.object(fd, handle)? {
            Object::IndTable(number) => Ok(number),
            _ => Err(EINVAL),
        }
    }

    pub(crate) fn wq_number(&mut self, fd: RawFd, handle: u32) -> Result<u32, Errno> {
        match self.object(fd, handle)? {
            Object::Wq(number) => Ok(number),
            _ => Err(EINVAL),
        }
    }

    pub(crate) fn create_wq(
        &mut self,
        fd: RawFd,
        new: &NewWq,
        uhw: &Uhw<'_>,
    ) -> Result<MadeWq, Errno> {
        self.only_mlx5()?;
        let pd = self.pd(fd, new.pd)?;
        let cq = self.cq_number(fd, new.cq)?;
        let async_file = self.async_file(fd, new.event_fd)?;
        let device = self.device(fd)?;
        let wqn = device.next_qpn;
        device.next_qpn += 1;
        let (queue, uhw) = mlx5::work_queue::create(self, fd, new, wqn, uhw)?;
        let device = self.device(fd)?;
        device.wqs.insert(
            wqn,
            Wq {
                queue,
                pd,
                cq,
                user_handle: new.user_handle,
                async_file,
                async_events: 0,
                state: 0,
                users: 0,
            },
        );
        use_pd(device, pd);
        if let Some(cq) = device.cqs.get_mut(&cq) {
            cq.users += 1;
        }
        Ok(MadeWq {
            handle: self.add_object(fd, Object::Wq(wqn))?,
            wqn,
            uhw,
        })
    }

    /// Only reset, ready and error; from reset not to error (`ib_uverbs_ex_modify_wq`, `mlx5_ib_modify_wq`).
    pub(crate) fn modify_wq(
        &mut self,
        fd: RawFd,
        handle: u32,
        modify: &ModifyWq,
    ) -> Result<(), Errno> {
        let number = self.wq_number(fd, handle)?;
        let wq = self.device(fd)?.wqs.get_mut(&number).ok_or(EINVAL)?;
        if modify.mask == 0 || modify.mask & !0b111 != 0 {
            return Err(EINVAL);
        }
        let current = match modify.mask & 0b010 {
            0 => wq.state,
            _ => modify.current,
        };
        let next = match modify.mask & 0b001 {
            0 => current,
            _ => modify.state,
        };
        if current != wq.state || next > 2 || (current == 0 && next == 2) {
            return Err(EINVAL);
        }
        // VLAN stripping is the one flag that changes.
        if modify.mask & 0b100 != 0 && modify.flags_mask & !1 != 0 {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        wq.state = next;
        if next == 0 {
            wq.queue.reset();
        }
        Ok(())
    }

    pub(crate) fn destroy_wq(&mut self, fd: RawFd, handle: u32) -> Result<u32, Errno> {
        let number = self.wq_number(fd, handle)?;
        let device = self.device(fd)?;
        if device.wqs.get(&number).is_some_and(|wq| wq.users > 0) {
            return Err(EBUSY);
        }
        let wq = device.wqs.remove(&number).ok_or(EINVAL)?;
        wq.queue.is_alive.store(false, Ordering::Release);
        release_pd(device, wq.pd);
        if let Some(cq) = device.cqs.get_mut(&wq.cq) {
            cq.users = cq.users.saturating_sub(1);
        }
        self.context(fd)?.objects.remove(&handle);
        let unseen = self.withdraw(wq.async_file, wq.user_handle);
        Ok(wq.async_events.saturating_sub(unseen))
    }

    /// Handle and number.
    pub(crate) fn create_ind_table(
        &mut self,
        fd: RawFd,
        log_size: u32,
        handles: &[u32],
    ) -> Result<(u32, u32), Errno> {
        self.only_mlx5()?;
        if log_size > MAX_LOG_TABLE || handles.len() < 1 << log_size {
            return Err(EINVAL);
        }
        let mut wqs = Vec::with_capacity(1 << log_size);
        for handle in &handles[..1 << log_size] {
            wqs.push(self.wq_number(fd, *handle)?);
        }
        let device = self.device(fd)?;
        let number = device.number();
        for wq in &wqs {
            if let Some(wq) = device.wqs.get_mut(wq) {
                wq.users += 1;
            }
        }
        device.ind_tables.insert(number, IndTable { wqs, users: 0 });
        Ok((self.add_object(fd, Object::IndTable(number))?, number))
    }

    pub(crate) fn destroy_ind_table(&mut self, fd: RawFd, handle: u32) -> Result<(), Errno> {
        let number = self.ind_table_number(fd, handle)?;
        let device = self.device(fd)?;
        let table = device.ind_tables.get(&number).ok_or(EINVAL)?;
        if table.users > 0 {
            return Err(EBUSY);
        }
        if let Some(table) = device.ind_tables.remove(&number) {
            for wq in table.wqs {
                if let Some(wq) = device.wqs.get_mut(&wq) {
                    wq.users -= 1;
                }
            }
        }
        self.context(fd)?.objects.remove(&handle);
        Ok(())
    }
}
