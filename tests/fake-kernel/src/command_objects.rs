//! Making and destroying objects, for ioctl methods and write commands alike.

use std::os::fd::RawFd;

use oxverbs::sys::Errno;
use uverbs_abi::types::{AccessFlags, MwType, QpCap, QpState, QpType};
use uverbs_abi::udata::rxe::MmapInfo;
use uverbs_abi::write::ah::AhAttr;
use uverbs_abi::write::cq::DestroyCqResp;
use uverbs_abi::write::qp::ModifyQp;
use wqe_format::rxe::{Cqe, RecvWqe, SendWqe, Sge};

use crate::config::Lie;
use crate::device;
use crate::event::EventKind;
use crate::objects::{Ah, Armed, Cq, Mr, Mw, Object, Pd, Qp, Srq};
use crate::ring::Producer;
use crate::state::{State, release_pd, release_qp};

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
    pub(crate) event_fd: Option<RawFd>,
}

/// A queue pair to make.
#[derive(Debug)]
pub(crate) struct NewQp {
    pub(crate) pd: u32,
    pub(crate) send_cq: u32,
    pub(crate) recv_cq: u32,
    pub(crate) srq: Option<u32>,
    pub(crate) user_handle: u64,
    pub(crate) cap: QpCap,
    pub(crate) qp_type: QpType,
    pub(crate) signal_all: bool,
    pub(crate) flags: u64,
    pub(crate) event_fd: Option<RawFd>,
}

const EINVAL: Errno = Errno(libc::EINVAL);
const EBUSY: Errno = Errno(libc::EBUSY);

/// `IB_UVERBS_ACCESS_*` that rxe of Linux 6.12 supports.
const ACCESS_SUPPORTED: u32 = 0x3f | (0b11 << 8);

impl State {
    fn pd(&mut self, fd: RawFd, handle: u32) -> Result<u32, Errno> {
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
            Object::Qp(number) => Ok(number),
            _ => Err(EINVAL),
        }
    }

    pub(crate) fn srq_number(&mut self, fd: RawFd, handle: u32) -> Result<u32, Errno> {
        match self.object(fd, handle)? {
            Object::Srq(number) => Ok(number),
            _ => Err(EINVAL),
        }
    }

    fn async_file(&mut self, fd: RawFd, event_fd: Option<RawFd>) -> Result<Option<u64>, Errno> {
        match event_fd {
            Some(event_fd) => self.expect_file(event_fd, EventKind::Async).map(Some),
            None => Ok(self.context(fd)?.async_file),
        }
    }

    /// Where a queue can be mapped, as this kernel tells it.
    fn told(&self, mut info: MmapInfo) -> MmapInfo {
        match self.config.lie {
            Some(Lie::QueueSize(size)) => info.size = size,
            Some(Lie::QueueOffset(offset)) => info.offset = offset,
            _ => {}
        }
        info
    }

    pub(crate) fn alloc_pd(&mut self, fd: RawFd) -> Result<u32, Errno> {
        let device = self.device(fd)?;
        let number = device.number();
        device.pds.insert(number, Pd::default());
        self.add_object(fd, Object::Pd(number))
    }

    pub(crate) fn dealloc_pd(&mut self, fd: RawFd, handle: u32) -> Result<(), Errno> {
        let number = self.pd(fd, handle)?;
        let device = self.device(fd)?;
        if device.pds.get(&number).is_some_and(|pd| pd.users > 0) {
            return Err(EBUSY);
        }
        device.pds.remove(&number);
        self.context(fd)?.objects.remove(&handle);
        Ok(())
    }

    /// Handle and key.
    pub(crate) fn reg_mr(
        &mut self,
        fd: RawFd,
        pd: u32,
        (start, length, iova): (u64, u64, u64),
        access: AccessFlags,
    ) -> Result<(u32, u32), Errno> {
        let pd = self.pd(fd, pd)?;
        let page = crate::ring::PAGE as u64 - 1;
        if start & page != iova & page || length == 0 || start.checked_add(length).is_none() {
            return Err(EINVAL);
        }
        check_access(access)?;
        crate::raw::copy_in(start, 1)?;
        crate::raw::copy_in(start + length - 1, 1)?;
        let device = self.device(fd)?;
        let number = device.number();
        let key = device.key(number);
        device.mrs.insert(
            number,
            Mr {
                pd,
                key,
                start,
                iova,
                length,
                access,
                windows: 0,
                valid: true,
            },
        );
        use_pd(device, pd);
        Ok((self.add_object(fd, Object::Mr(number))?, key))
    }

    /// Changes rights, protection domain or both; rxe cannot change the range.
    pub(crate) fn rereg_mr(
        &mut self,
        fd: RawFd,
        handle: u32,
        pd: Option<u32>,
        access: Option<AccessFlags>,
    ) -> Result<u32, Errno> {
        let Object::Mr(number) = self.object(fd, handle)? else {
            return Err(EINVAL);
        };
        let pd = pd.map(|pd| self.pd(fd, pd)).transpose()?;
        let device = self.device(fd)?;
        let Some(mr) = device.mrs.get_mut(&number) else {
            return Err(EINVAL);
        };
        if mr.windows > 0 {
            return Err(EBUSY);
        }
        if let Some(access) = access {
            check_access(access)?;
            mr.access = access;
        }
        let key = mr.key;
        if let Some(pd) = pd {
            let old = std::mem::replace(&mut mr.pd, pd);
            use_pd(device, pd);
            release_pd(device, old);
        }
        Ok(key)
    }

    pub(crate) fn dereg_mr(&mut self, fd: RawFd, handle: u32) -> Result<(), Errno> {
        let Object::Mr(number) = self.object(fd, handle)? else {
            return Err(EINVAL);
        };
        let device = self.device(fd)?;
        if device.mrs.get(&number).is_some_and(|mr| mr.windows > 0) {
            return Err(EINVAL);
        }
        if let Some(mr) = device.mrs.remove(&number) {
            release_pd(device, mr.pd);
        }
        self.context(fd)?.objects.remove(&handle);
        Ok(())
    }

    pub(crate) fn query_mr(&mut self, fd: RawFd, handle: u32) -> Result<Mr, Errno> {
        let Object::Mr(number) = self.object(fd, handle)? else {
            return Err(EINVAL);
        };
        self.device(fd)?.mrs.get(&number).cloned().ok_or(EINVAL)
    }

    /// Handle and key.
    pub(crate) fn alloc_mw(
        &mut self,
        fd: RawFd,
        pd: u32,
        mw_type: MwType,
    ) -> Result<(u32, u32), Errno> {
        let pd = self.pd(fd, pd)?;
        if mw_type != MwType::TYPE_1 && mw_type != MwType::TYPE_2 {
            return Err(EINVAL);
        }
        let device = self.device(fd)?;
        let number = device.number();
        let key = device.key(number);
        device.mws.insert(
            number,
            Mw {
                pd,
                mw_type,
                key,
                bound: None,
            },
        );
        use_pd(device, pd);
        Ok((self.add_object(fd, Object::Mw(number))?, key))
    }

    pub(crate) fn dealloc_mw(&mut self, fd: RawFd, handle: u32) -> Result<(), Errno> {
        let Object::Mw(number) = self.object(fd, handle)? else {
            return Err(EINVAL);
        };
        let device = self.device(fd)?;
        if let Some(mw) = device.mws.remove(&number) {
            if let Some(mr) = mw.bound.and_then(|bound| device.mrs.get_mut(&bound.mr)) {
                mr.windows -= 1;
            }
            release_pd(device, mw.pd);
        }
        self.context(fd)?.objects.remove(&handle);
        Ok(())
    }

    /// Handle, entries, and where to map them.
    pub(crate) fn create_cq(
        &mut self,
        fd: RawFd,
        new: &NewCq,
    ) -> Result<(u32, u32, MmapInfo), Errno> {
        if new.vector >= device::COMP_VECTORS || new.cqe == 0 || new.cqe > device::MAX_CQE {
            return Err(EINVAL);
        }
        if new.flags != 0 {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        let channel = new
            .channel
            .map(|channel| self.expect_file(channel, EventKind::Completion))
            .transpose()?;
        let async_file = self.async_file(fd, new.event_fd)?;
        let ring = self.new_ring(fd, new.cqe, size_of::<Cqe>(), Producer::Kernel)?;
        let info = self.told(ring.mmap_info());
        let cqe = ring.capacity();
        let device = self.device(fd)?;
        let number = device.number();
        device.cqs.insert(
            number,
            Cq {
                ring,
                cqe,
                user_handle: new.user_handle,
                channel,
                async_file,
                armed: Armed::default(),
                users: 0,
                completion_events: 0,
                async_events: 0,
            },
        );
        Ok((self.add_object(fd, Object::Cq(number))?, cqe, info))
    }

    pub(crate) fn resize_cq(
        &mut self,
        fd: RawFd,
        handle: u32,
        cqe: u32,
    ) -> Result<(u32, MmapInfo), Errno> {
        let number = self.cq_number(fd, handle)?;
        if cqe == 0 || cqe > device::MAX_CQE {
            return Err(EINVAL);
        }
        let old = self.device(fd)?.cqs.get(&number).ok_or(EINVAL)?;
        if old.ring.used() > cqe {
            return Err(EINVAL);
        }
        let mut ring = self.new_ring(fd, cqe, size_of::<Cqe>(), Producer::Kernel)?;
        let info = self.told(ring.mmap_info());
        let cq = self.device(fd)?.cqs.get_mut(&number).ok_or(EINVAL)?;
        ring.take_over(&cq.ring);
        cq.ring = ring;
        cq.cqe = cq.ring.capacity();
        Ok((cq.cqe, info))
    }

    pub(crate) fn destroy_cq(&mut self, fd: RawFd, handle: u32) -> Result<DestroyCqResp, Errno> {
        let number = self.cq_number(fd, handle)?;
        let device = self.device(fd)?;
        if device.cqs.get(&number).is_some_and(|cq| cq.users > 0) {
            return Err(EBUSY);
        }
        let cq = device.cqs.remove(&number).ok_or(EINVAL)?;
        self.context(fd)?.objects.remove(&handle);
        let unseen = self.withdraw(cq.channel, cq.user_handle);
        let unseen_async = self.withdraw(cq.async_file, cq.user_handle);
        Ok(DestroyCqResp {
            comp_events_reported: cq.completion_events.saturating_sub(unseen),
            async_events_reported: cq.async_events.saturating_sub(unseen_async),
        })
    }

    fn withdraw(&mut self, file: Option<u64>, user_handle: u64) -> u32 {
        file.and_then(|file| self.files.get_mut(&file))
            .map_or(0, |file| file.withdraw(user_handle))
    }

    /// Handle, granted work requests and elements, number, and where to map the queue.
    pub(crate) fn create_srq(
        &mut self,
        fd: RawFd,
        new: &NewSrq,
    ) -> Result<(u32, u32, u32, u32, MmapInfo), Errno> {
        let pd = self.pd(fd, new.pd)?;
        if new.srq_type != 0 {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        if new.max_wr == 0 || new.max_wr > device::MAX_SRQ_WR || new.max_sge > device::MAX_SRQ_SGE {
            return Err(EINVAL);
        }
        if new.limit > new.max_wr {
            return Err(EINVAL);
        }
        let async_file = self.async_file(fd, new.event_fd)?;
        let max_sge = new.max_sge.max(1);
        let ring = self.new_ring(fd, new.max_wr, recv_entry(max_sge), Producer::Program)?;
        let info = self.told(ring.mmap_info());
        let max_wr = ring.capacity();
        let device = self.device(fd)?;
        let number = device.number();
        device.srqs.insert(
            number,
            Srq {
                ring,
                pd,
                max_sge,
                limit: new.limit,
                user_handle: new.user_handle,
                async_file,
                users: 0,
                async_events: 0,
            },
        );
        use_pd(device, pd);
        let handle = self.add_object(fd, Object::Srq(number))?;
        // `RXE_MIN_SRQ_INDEX`
        Ok((handle, max_wr, max_sge, 0x2_0001 + number, info))
    }

    /// Changes limit and size; a new size gives a new queue.
    pub(crate) fn modify_srq(
        &mut self,
        fd: RawFd,
        handle: u32,
        max_wr: Option<u32>,
        limit: Option<u32>,
    ) -> Result<Option<MmapInfo>, Errno> {
        let number = self.srq_number(fd, handle)?;
        let srq = self.device(fd)?.srqs.get(&number).ok_or(EINVAL)?;
        let capacity = srq.ring.capacity();
        let (used, max_sge) = (srq.ring.used(), srq.max_sge);
        if max_wr.is_some_and(|n| n == 0 || n > device::MAX_SRQ_WR || n < used || n < srq.limit) {
            return Err(EINVAL);
        }
        if limit.is_some_and(|limit| limit > max_wr.unwrap_or(capacity)) {
            return Err(EINVAL);
        }
        let ring = max_wr
            .map(|n| self.new_ring(fd, n, recv_entry(max_sge), Producer::Program))
            .transpose()?;
        let info = ring.as_ref().map(|ring| self.told(ring.mmap_info()));
        let srq = self.device(fd)?.srqs.get_mut(&number).ok_or(EINVAL)?;
        if let Some(mut ring) = ring {
            ring.take_over(&srq.ring);
            srq.ring = ring;
        }
        if let Some(limit) = limit {
            srq.limit = limit;
        }
        Ok(info)
    }

    pub(crate) fn destroy_srq(&mut self, fd: RawFd, handle: u32) -> Result<u32, Errno> {
        let number = self.srq_number(fd, handle)?;
        let device = self.device(fd)?;
        if device.srqs.get(&number).is_some_and(|srq| srq.users > 0) {
            return Err(EBUSY);
        }
        let srq = device.srqs.remove(&number).ok_or(EINVAL)?;
        release_pd(device, srq.pd);
        self.context(fd)?.objects.remove(&handle);
        let unseen = self.withdraw(srq.async_file, srq.user_handle);
        Ok(srq.async_events.saturating_sub(unseen))
    }

    /// Handle, number, granted capacity, and where to map receive and send queue.
    pub(crate) fn create_qp(
        &mut self,
        fd: RawFd,
        new: &NewQp,
    ) -> Result<(u32, u32, QpCap, MmapInfo, MmapInfo), Errno> {
        let pd = self.pd(fd, new.pd)?;
        let send_cq = self.cq_number(fd, new.send_cq)?;
        let recv_cq = self.cq_number(fd, new.recv_cq)?;
        let srq = new.srq.map(|srq| self.srq_number(fd, srq)).transpose()?;
        if !matches!(new.qp_type, QpType::RC | QpType::UC | QpType::UD) || new.flags != 0 {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        if !device::has_capacity(&new.cap, srq.is_none()) {
            return Err(EINVAL);
        }
        let async_file = self.async_file(fd, new.event_fd)?;
        let mut cap = new.cap;
        // Elements and inline bytes share the room behind a work request (`rxe_init_sq`).
        let payload =
            (cap.max_send_sge as usize * size_of::<Sge>()).max(cap.max_inline_data as usize);
        cap.max_send_sge = (payload / size_of::<Sge>()) as u32;
        cap.max_inline_data = payload as u32;
        let entry = SendWqe::PAYLOAD + payload;
        let send = self.new_ring(fd, cap.max_send_wr, entry, Producer::Program)?;
        cap.max_send_wr = send.capacity();
        let recv = match srq {
            Some(_) => None,
            None => {
                let entry = recv_entry(cap.max_recv_sge);
                Some(self.new_ring(fd, cap.max_recv_wr, entry, Producer::Program)?)
            }
        };
        if let Some(recv) = &recv {
            cap.max_recv_wr = recv.capacity();
        }
        let send_info = self.told(send.mmap_info());
        let recv_info = recv.as_ref().map(|recv| self.told(recv.mmap_info()));
        let device = self.device(fd)?;
        let qpn = device.next_qpn;
        device.next_qpn += 1;
        for cq in [send_cq, recv_cq] {
            if let Some(cq) = device.cqs.get_mut(&cq) {
                cq.users += 1;
            }
        }
        if let Some(srq) = srq.and_then(|srq| device.srqs.get_mut(&srq)) {
            srq.users += 1;
        }
        use_pd(device, pd);
        device.qps.insert(
            qpn,
            Qp {
                qp_type: new.qp_type,
                state: QpState::RESET,
                pd,
                send_cq,
                recv_cq,
                srq,
                send,
                recv,
                cap,
                signal_all: new.signal_all,
                user_handle: new.user_handle,
                async_file,
                async_events: 0,
                groups: 0,
                attr: ModifyQp::default(),
                wait: None,
            },
        );
        let handle = self.add_object(fd, Object::Qp(qpn))?;
        Ok((handle, qpn, cap, recv_info.unwrap_or_default(), send_info))
    }

    pub(crate) fn destroy_qp(&mut self, fd: RawFd, handle: u32) -> Result<u32, Errno> {
        let qpn = self.qp_number(fd, handle)?;
        let device = self.device(fd)?;
        if device.qps.get(&qpn).is_some_and(|qp| qp.groups > 0) {
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
        self.context(fd)?.objects.remove(&handle);
        let unseen = self.withdraw(qp.async_file, qp.user_handle);
        Ok(qp.async_events.saturating_sub(unseen))
    }

    /// Handle, and the number that datagrams name.
    pub(crate) fn create_ah(
        &mut self,
        fd: RawFd,
        pd: u32,
        attr: AhAttr,
    ) -> Result<(u32, u32), Errno> {
        let pd = self.pd(fd, pd)?;
        let gids = self.device(fd)?.gids.len();
        if attr.is_global == 0 || attr.port_num != 1 || usize::from(attr.grh.sgid_index) >= gids {
            return Err(EINVAL);
        }
        let device = self.device(fd)?;
        let number = device.number();
        device.ahs.insert(number, Ah { pd, attr });
        use_pd(device, pd);
        Ok((self.add_object(fd, Object::Ah(number))?, number))
    }

    pub(crate) fn destroy_ah(&mut self, fd: RawFd, handle: u32) -> Result<(), Errno> {
        let Object::Ah(number) = self.object(fd, handle)? else {
            return Err(EINVAL);
        };
        let device = self.device(fd)?;
        if let Some(ah) = device.ahs.remove(&number) {
            release_pd(device, ah.pd);
        }
        self.context(fd)?.objects.remove(&handle);
        Ok(())
    }
}

fn use_pd(device: &mut crate::objects::Device, pd: u32) {
    if let Some(pd) = device.pds.get_mut(&pd) {
        pd.users += 1;
    }
}

fn recv_entry(max_sge: u32) -> usize {
    RecvWqe::PAYLOAD + max_sge as usize * size_of::<Sge>()
}

/// `ib_check_mr_access`, and what rxe adds.
fn check_access(access: AccessFlags) -> Result<(), Errno> {
    let bits = access.0 & !AccessFlags::OPTIONAL_RANGE.0;
    if bits & !ACCESS_SUPPORTED != 0 {
        return Err(Errno(libc::EOPNOTSUPP));
    }
    let needs_local = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
    if bits & needs_local.0 != 0 && !access.contains(AccessFlags::LOCAL_WRITE) {
        return Err(EINVAL);
    }
    Ok(())
}
