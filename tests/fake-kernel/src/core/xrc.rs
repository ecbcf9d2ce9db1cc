//! Domains of extended reliable connections, and queue pairs in them that others open by number.

use std::os::fd::RawFd;

use oxverbs::sys::Errno;
use uverbs_abi::types::{QpCap, QpType};

use crate::config::Family;
use crate::core::objects::{Object, Xrcd};
use crate::raw;
use crate::state::State;

const EINVAL: Errno = Errno(libc::EINVAL);
const EBUSY: Errno = Errno(libc::EBUSY);
const EOPNOTSUPP: Errno = Errno(libc::EOPNOTSUPP);

impl State {
    /// What only mlx5 offers.
    pub(crate) fn only_mlx5(&self) -> Result<(), Errno> {
        match self.config.family {
            Family::Rxe => Err(EOPNOTSUPP),
            Family::Mlx5 => Ok(()),
        }
    }

    pub(crate) fn xrcd_number(&mut self, fd: RawFd, handle: u32) -> Result<u32, Errno> {
        match self.object(fd, handle)? {
            Object::Xrcd(number) => Ok(number),
            _ => Err(EINVAL),
        }
    }

    /// `ib_uverbs_open_xrcd`; the handle.
    pub(crate) fn open_xrcd(&mut self, fd: RawFd, file: RawFd, oflags: u32) -> Result<u32, Errno> {
        self.only_mlx5()?;
        let flags = oflags as i32;
        let creates = flags & libc::O_CREAT != 0;
        if flags & !(libc::O_CREAT | libc::O_EXCL) != 0 {
            return Err(EINVAL);
        }
        let inode = match file {
            -1 if !creates => return Err(EINVAL),
            -1 => None,
            file => Some(raw::inode(file).ok_or(Errno(libc::EBADF))?),
        };
        let device = self.device(fd)?;
        let mut known = device.xrcds.iter_mut();
        let found = known.find(|(_, xrcd)| inode.is_some() && xrcd.inode == inode);
        let number = match found {
            Some(_) if flags & libc::O_EXCL != 0 => return Err(EINVAL),
            Some((number, xrcd)) => {
                xrcd.opens += 1;
                *number
            }
            None if !creates => return Err(Errno(libc::EAGAIN)),
            None => {
                let number = device.number();
                device.xrcds.insert(
                    number,
                    Xrcd {
                        inode,
                        opens: 1,
                        users: 0,
                    },
                );
                number
            }
        };
        self.add_object(fd, Object::Xrcd(number))
    }

    pub(crate) fn close_xrcd(&mut self, fd: RawFd, handle: u32) -> Result<(), Errno> {
        let number = self.xrcd_number(fd, handle)?;
        let device = self.device(fd)?;
        let xrcd = device.xrcds.get_mut(&number).ok_or(EINVAL)?;
        if xrcd.opens == 1 && xrcd.users > 0 {
            return Err(EBUSY);
        }
        xrcd.opens -= 1;
        if xrcd.opens == 0 {
            device.xrcds.remove(&number);
        }
        self.context(fd)?.objects.remove(&handle);
        Ok(())
    }

    /// `ib_uverbs_open_qp`; handle and capacity.
    pub(crate) fn open_qp(
        &mut self,
        fd: RawFd,
        xrcd: u32,
        qpn: u32,
        qp_type: QpType,
    ) -> Result<(u32, QpCap), Errno> {
        self.only_mlx5()?;
        let xrcd = self.xrcd_number(fd, xrcd)?;
        if qp_type != QpType::XRC_TGT {
            return Err(EINVAL);
        }
        let qp = self.device(fd)?.qps.get_mut(&qpn).ok_or(EINVAL)?;
        if qp.xrcd != Some(xrcd) {
            return Err(EINVAL);
        }
        qp.opens += 1;
        let cap = qp.cap;
        Ok((self.add_object(fd, Object::OpenedQp(qpn))?, cap))
    }
}
