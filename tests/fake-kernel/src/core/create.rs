//! Making and destroying queues, for ioctl methods and write commands alike.
//!
//! Here is what holds for every family: references, event files, numbers. A family's own part, with what the
//! program sent to its driver and what that answers, is in its room.

use std::os::fd::RawFd;
use std::sync::atomic::Ordering;

use oxverbs::sys::Errno;
use uverbs_abi::types::{MwType, QpCap, QpState, QpType};
use uverbs_abi::write::cq::DestroyCqResp;
use uverbs_abi::write::qp::ModifyQp;

use crate::config::Family;
use crate::core::memory::use_pd;
use crate::core::objects::{Cq, CqKind, Object, Qp, QpKind, Srq, SrqKind};
use crate::event::EventKind;
use crate::mlx5;
use crate::request::Uhw;
use crate::rxe;
use crate::state::{State, release_qp, release_srq};

/// A completion queue to make.
#[derive(Debug)]
pub(crate) struct NewCq {
    pub(crate) cqe: u32,
    pub(crate) user_handle: u64,
    pub(crate) channel: Option<RawFd>,
    pub(crate) vector: u32,
    pub(crate) flags: u64,
    pub(crate) event_fd: Option<RawFd>,
}

/// A shared receive queue to make.
#[derive(Debug)]
pub(crate) struct NewSrq {
    pub(crate) pd: u32,
    pub(crate) user_handle: u64,
    pub(crate) max_wr: u32,
    pub(crate) max_sge: u32,
    pub(crate) limit: u32,
    pub(crate) srq_type: u64,
    pub(crate) xrcd: Option<u32>,
    pub(crate) cq: Option<u32>,
    #[allow(dead_code, reason = "no family matches tags yet")]
    pub(crate) max_num_tags: u32,
    pub(crate) event_fd: Option<RawFd>,
}

/// A queue pair to make.
#[derive(Debug)]
pub(crate) struct NewQp {
    pub(crate) pd: Option<u32>,
    pub(crate) send_cq: Option<u32>,
    pub(crate) recv_cq: Option<u32>,
    pub(crate) srq: Option<u32>,
    pub(crate) xrcd: Option<u32>,
    pub(crate) ind_table: Option<u32>,
    pub(crate) source_qpn: Option<u32>,
    pub(crate) user_handle: u64,
    pub(crate) cap: QpCap,
    pub(crate) qp_type: QpType,
    pub(crate) signal_all: bool,
    pub(crate) flags: u64,
    pub(crate) event_fd: Option<RawFd>,
}

/// A completion queue that was made.
#[derive(Debug)]
pub(crate) struct MadeCq {
    pub(crate) handle: u32,
    pub(crate) cqe: u32,
    /// What the driver answers.
    pub(crate) uhw: Vec<u8>,
}

/// A shared receive queue that was made.
#[derive(Debug)]
pub(crate) struct MadeSrq {
    pub(crate) handle: u32,
    pub(crate) max_wr: u32,
    pub(crate) max_sge: u32,
    /// Number that the core answers; 0 where only the driver does.
    pub(crate) srqn: u32,
    pub(crate) uhw: Vec<u8>,
}

/// A queue pair that was made.
#[derive(Debug)]
pub(crate) struct MadeQp {
    pub(crate) handle: u32,
    pub(crate) qpn: u32,
    pub(crate) cap: QpCap,
    pub(crate) uhw: Vec<u8>,
}

const EINVAL: Errno = Errno(libc::EINVAL);
const EBUSY: Errno = Errno(libc::EBUSY);

impl State {
    pub(crate) fn pd(&mut self, fd: RawFd, handle: u32) -> Result<u32, Errno> {
        match self.object(fd, handle)? {
            Object::Pd(number) => Ok(number),
            _ => Err(EINVAL),
        }
    }

    pub(crate) fn cq_number(&mut self, fd: RawFd, handle: u32) -> Result<u32, Errno> {
        match self.object(fd, handle)? {
            Object::Cq(number) => Ok(number),
            _ => Err(EINVAL),
        }
    }

    pub(crate) fn qp_number(&mut self, fd: RawFd, handle: u32) -> Result<u32, Errno> {
        match self.object(fd, handle)? {
            Object::Qp(number) | Object::OpenedQp(number) => Ok(number),
            _ => Err(EINVAL),
        }
    }

    pub(crate) fn srq_number(&mut self, fd: RawFd, handle: u32) -> Result<u32, Errno> {
        match self.object(fd, handle)? {
            Object::Srq(number) => Ok(number),
            _ => Err(EINVAL),
        }
    }

    /// The event file of a new object: the one that it names, else the context's first.
    pub(crate) fn async_file(
        &mut self,
        fd: RawFd,
        event_fd: Option<RawFd>,
    ) -> Result<Option<u64>, Errno> {
        match event_fd {
            Some(event_fd) => self.expect_file(event_fd, EventKind::Async).map(Some),
            None => Ok(self.context(fd)?.async_file),
        }
    }

    pub(crate) fn create_cq(
        &mut self,
        fd: RawFd,
        new: &NewCq,
        uhw: &Uhw<'_>,
    ) -> Result<MadeCq, Errno> {
        if new.vector >= self.facts().comp_vectors || new.cqe == 0 {
            return Err(EINVAL);
        }
        let channel = new
            .channel
            .map(|channel| self.expect_file(channel, EventKind::Completion))
            .transpose()?;
        let async_file = self.async_file(fd, new.event_fd)?;
        let number = self.device(fd)?.number();
        let (cqe, kind, answer) = match self.config.family {
            Family::Rxe => rxe::queues::cq(self, fd, new, uhw)?,
            Family::Mlx5 => mlx5::queues::cq(self, fd, new, number, uhw)?,
        };
        self.device(fd)?.cqs.insert(
            number,
            Cq {
                kind,
                cqe,
                user_handle: new.user_handle,
                channel,
                async_file,
                users: 0,
                completion_events: 0,
                async_events: 0,
                moderation: (0, 0),
            },
        );
        Ok(MadeCq {
            handle: self.add_object(fd, Object::Cq(number))?,
            cqe,
            uhw: answer,
        })
    }

    /// Entries, and what the driver answers.
    pub(crate) fn resize_cq(
        &mut self,
        fd: RawFd,
        handle: u32,
        cqe: u32,
        uhw: &Uhw<'_>,
    ) -> Result<(u32, Vec<u8>), Errno> {
        let number = self.cq_number(fd, handle)?;
        if cqe == 0 {
            return Err(EINVAL);
        }
        match self.config.family {
            Family::Rxe => rxe::queues::resize_cq(self, fd, number, cqe, uhw),
            Family::Mlx5 => mlx5::queues::resize_cq(self, fd, number, cqe, uhw),
        }
    }

    pub(crate) fn destroy_cq(&mut self, fd: RawFd, handle: u32) -> Result<DestroyCqResp, Errno> {
        let number = self.cq_number(fd, handle)?;
        let device = self.device(fd)?;
        if device.cqs.get(&number).is_some_and(|cq| cq.users > 0) {
            return Err(EBUSY);
        }
        let cq = device.cqs.remove(&number).ok_or(EINVAL)?;
        if let CqKind::Mlx5(own) = &cq.kind {
            own.is_alive.store(false, Ordering::Release);
        }
        self.context(fd)?.objects.remove(&handle);
        let unseen = self.withdraw(cq.channel, cq.user_handle);
        let unseen_async = self.withdraw(cq.async_file, cq.user_handle);
        Ok(DestroyCqResp {
            comp_events_reported: cq.completion_events.saturating_sub(unseen),
            async_events_reported: cq.async_events.saturating_sub(unseen_async),
        })
    }

    /// Takes back what was reported of an object and not yet read; says how many.
    pub(crate) fn withdraw(&mut self, file: Option<u64>, user_handle: u64) -> u32 {
        file.and_then(|file| self.files.get_mut(&file))
            .map_or(0, |file| file.withdraw(user_handle))
    }

    pub(crate) fn create_srq(
        &mut self,
        fd: RawFd,
        new: &NewSrq,
        uhw: &Uhw<'_>,
    ) -> Result<MadeSrq, Errno> {
        let pd = self.pd(fd, new.pd)?;
        let xrcd = new
            .xrcd
            .map(|handle| self.xrcd_number(fd, handle))
            .transpose()?;
        let cq = new
            .cq
            .map(|handle| self.cq_number(fd, handle))
            .transpose()?;
        if (new.srq_type == 1 && xrcd.is_none()) || (new.srq_type != 0 && cq.is_none()) {
            return Err(EINVAL);
        }
        if new.max_wr == 0 || new.limit > new.max_wr {
            return Err(EINVAL);
        }
        let async_file = self.async_file(fd, new.event_fd)?;
        let number = self.device(fd)?.number();
        let (srq, srqn, answer) = match self.config.family {
            Family::Rxe => rxe::queues::srq(self, fd, new, number, uhw)?,
            Family::Mlx5 => mlx5::queues::srq(self, fd, new, number, uhw)?,
        };
        let (max_wr, max_sge) = (srq.max_wr, srq.max_sge);
        let device = self.device(fd)?;
        device.srqs.insert(
            number,
            Srq {
                pd,
                async_file,
                xrcd,
                cq,
                ..srq
            },
        );
        use_pd(device, pd);
        if let Some(xrcd) = xrcd.and_then(|xrcd| device.xrcds.get_mut(&xrcd)) {
            xrcd.users += 1;
        }
        if let Some(cq) = cq.and_then(|cq| device.cqs.get_mut(&cq)) {
            cq.users += 1;
        }
        Ok(MadeSrq {
            handle: self.add_object(fd, Object::Srq(number))?,
            max_wr,
            max_sge,
            srqn,
            uhw: answer,
        })
    }

    /// Changes limit and size.
    pub(crate) fn modify_srq(
        &mut self,
        fd: RawFd,
        handle: u32,
        max_wr: Option<u32>,
        limit: Option<u32>,
        uhw: &Uhw<'_>,
    ) -> Result<(), Errno> {
        let number = self.srq_number(fd, handle)?;
        match self.config.family {
            Family::Rxe => rxe::queues::modify_srq(self, fd, number, max_wr, limit, uhw),
            Family::Mlx5 => mlx5::queues::modify_srq(self, fd, number, max_wr, limit),
        }
    }

    pub(crate) fn destroy_srq(&mut self, fd: RawFd, handle: u32) -> Result<u32, Errno> {
        let number = self.srq_number(fd, handle)?;
        let device = self.device(fd)?;
        if device.srqs.get(&number).is_some_and(|srq| srq.users > 0) {
            return Err(EBUSY);
        }
        let srq = device.srqs.remove(&number).ok_or(EINVAL)?;
        if let SrqKind::Mlx5(own) = &srq.kind {
            own.is_alive.store(false, Ordering::Release);
        }
        release_srq(device, &srq);
        self.context(fd)?.objects.remove(&handle);
        let unseen = self.withdraw(srq.async_file, srq.user_handle);
        Ok(srq.async_events.saturating_sub(unseen))
    }

    pub(crate) fn create_qp(
        &mut self,
        fd: RawFd,
        new: &NewQp,
        uhw: &Uhw<'_>,
    ) -> Result<MadeQp, Errno> {
        let pd = new.pd.map(|pd| self.pd(fd, pd)).transpose()?;
        let send_cq = new.send_cq.map(|cq| self.cq_number(fd, cq)).transpose()?;
        let recv_cq = new.recv_cq.map(|cq| self.cq_number(fd, cq)).transpose()?;
        let srq = new.srq.map(|srq| self.srq_number(fd, srq)).transpose()?;
        let xrcd = new
            .xrcd
            .map(|handle| self.xrcd_number(fd, handle))
            .transpose()?;
        let ind_table = match new.ind_table {
            Some(handle) => Some(self.ind_table_number(fd, handle)?),
            None => None,
        };
        if (new.qp_type == QpType::XRC_TGT) != xrcd.is_some() {
            return Err(EINVAL);
        }
        let async_file = self.async_file(fd, new.event_fd)?;
        let device = self.device(fd)?;
        let qpn = device.next_qpn;
        device.next_qpn += 1;
        let (cap, kind, answer) = match self.config.family {
            Family::Rxe => rxe::queues::qp(self, fd, new, uhw)?,
            Family::Mlx5 => mlx5::queues::qp(self, fd, new, qpn, uhw)?,
        };
        let device = self.device(fd)?;
        for cq in [send_cq, recv_cq].into_iter().flatten() {
            if let Some(cq) = device.cqs.get_mut(&cq) {
                cq.users += 1;
            }
        }
        if let Some(srq) = srq.and_then(|srq| device.srqs.get_mut(&srq)) {
            srq.users += 1;
        }
        if let Some(pd) = pd {
            use_pd(device, pd);
        }
        if let Some(xrcd) = xrcd.and_then(|xrcd| device.xrcds.get_mut(&xrcd)) {
            xrcd.users += 1;
        }
        if let Some(table) = ind_table.and_then(|table| device.ind_tables.get_mut(&table)) {
            table.users += 1;
        }
        device.qps.insert(
            qpn,
            Qp {
                qp_type: new.qp_type,
                state: QpState::RESET,
                pd,
                send_cq,
                recv_cq,
                srq,
                kind,
                cap,
                signal_all: new.signal_all,
                user_handle: new.user_handle,
                async_file,
                async_events: 0,
                groups: 0,
                flows: 0,
                opens: 1,
                xrcd,
                ind_table,
                attr: ModifyQp::default(),
            },
        );
        Ok(MadeQp {
            handle: self.add_object(fd, Object::Qp(qpn))?,
            qpn,
            cap,
            uhw: answer,
        })
    }

    pub(crate) fn destroy_qp(&mut self, fd: RawFd, handle: u32) -> Result<u32, Errno> {
        let qpn = self.qp_number(fd, handle)?;
        let device = self.device(fd)?;
        let qp = device.qps.get_mut(&qpn).ok_or(EINVAL)?;
        if qp.opens > 1 {
            // Others have it open still.
            qp.opens -= 1;
            self.context(fd)?.objects.remove(&handle);
            return Ok(0);
        }
        if qp.groups > 0 || qp.flows > 0 {
            return Err(EBUSY);
        }
        let qp = device.qps.remove(&qpn).ok_or(EINVAL)?;
        release_qp(device, &qp);
        let windows: Vec<u32> = device
            .mws
            .iter_mut()
            .filter(|(_, mw)| mw.mw_type == MwType::TYPE_2)
            .filter_map(|(_, mw)| {
                mw.bound
                    .take_if(|bound| bound.qp == qpn)
                    .map(|bound| bound.mr)
            })
            .collect();
        for mr in windows {
            if let Some(mr) = device.mrs.get_mut(&mr) {
                mr.windows -= 1;
            }
        }
        if let QpKind::Mlx5(own) = &qp.kind {
            mlx5::queues::destroyed_qp(self, fd, own);
        }
        self.context(fd)?.objects.remove(&handle);
        let unseen = self.withdraw(qp.async_file, qp.user_handle);
        Ok(qp.async_events.saturating_sub(unseen))
    }
}
