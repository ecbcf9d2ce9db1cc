//! Protection domains, memory regions and windows, address handles.

use std::os::fd::RawFd;

use oxverbs::sys::Errno;
use uverbs_abi::types::{AccessFlags, MwType};
use uverbs_abi::write::ah::AhAttr;

use crate::config::Family;
use crate::core::objects::{Ah, Device, Mr, Mw, Object, Pd};
use crate::raw;
use crate::state::{State, release_pd};

const EINVAL: Errno = Errno(libc::EINVAL);
const EBUSY: Errno = Errno(libc::EBUSY);

/// `IB_UVERBS_ACCESS_*` that rxe of Linux 6.12 supports.
const ACCESS_SUPPORTED_RXE: u32 = 0x3f | (0b11 << 8);
/// The same of mlx5: paging on demand, huge pages.
const ACCESS_SUPPORTED_MLX5: u32 = 0xff;

impl State {
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
        check_access(self.config.family, access)?;
        check_range((start, length, iova), access)?;
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
                mapping: None,
                dm: None,
            },
        );
        use_pd(device, pd);
        Ok((self.add_object(fd, Object::Mr(number))?, key))
    }

    /// Changes rights, protection domain, range; rxe cannot change the last.
    pub(crate) fn rereg_mr(
        &mut self,
        fd: RawFd,
        handle: u32,
        pd: Option<u32>,
        access: Option<AccessFlags>,
        range: Option<(u64, u64, u64)>,
    ) -> Result<u32, Errno> {
        let Object::Mr(number) = self.object(fd, handle)? else {
            return Err(EINVAL);
        };
        let pd = pd.map(|pd| self.pd(fd, pd)).transpose()?;
        if range.is_some() {
            self.only_mlx5()?;
        }
        let family = self.config.family;
        let device = self.device(fd)?;
        let Some(mr) = device.mrs.get_mut(&number) else {
            return Err(EINVAL);
        };
        if mr.windows > 0 {
            return Err(EBUSY);
        }
        if let Some(access) = access {
            check_access(family, access)?;
        }
        if let Some(range) = range {
            check_range(range, access.unwrap_or(mr.access))?;
            (mr.start, mr.length, mr.iova) = range;
        }
        if let Some(access) = access {
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
            if let Some(dm) = mr.dm.and_then(|dm| device.dms.get_mut(&dm)) {
                dm.users -= 1;
            }
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

    /// Handle, and the number that datagrams name.
    pub(crate) fn create_ah(
        &mut self,
        fd: RawFd,
        pd: u32,
        attr: AhAttr,
    ) -> Result<(u32, u32), Errno> {
        let pd = self.pd(fd, pd)?;
        let gids = self.device(fd)?.gids.len();
        let (port, sgid_index) = (attr.port_num, attr.grh.sgid_index);
        if !self.is_path(port, attr.is_global != 0, sgid_index, gids) {
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

/// An object starts to use a protection domain.
pub(crate) fn use_pd(device: &mut Device, pd: u32) {
    if let Some(pd) = device.pds.get_mut(&pd) {
        pd.users += 1;
    }
}

/// What the kernel pins must be there; pages on demand may come later.
fn check_range((start, length, iova): (u64, u64, u64), access: AccessFlags) -> Result<(), Errno> {
    let page = raw::PAGE as u64 - 1;
    let end = start.checked_add(length).ok_or(EINVAL)?;
    if start & page != iova & page || length == 0 {
        return Err(EINVAL);
    }
    if !access.contains(AccessFlags::ON_DEMAND) {
        raw::copy_in(start, 1)?;
        raw::copy_in(end - 1, 1)?;
    }
    Ok(())
}

/// `ib_check_mr_access`, and what the drivers add.
fn check_access(family: Family, access: AccessFlags) -> Result<(), Errno> {
    let bits = access.0 & !AccessFlags::OPTIONAL_RANGE.0;
    let supported = match family {
        Family::Rxe => ACCESS_SUPPORTED_RXE,
        Family::Mlx5 => ACCESS_SUPPORTED_MLX5,
    };
    if bits & !supported != 0 {
        return Err(Errno(libc::EOPNOTSUPP));
    }
    let needs_local = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
    if bits & needs_local.0 != 0 && !access.contains(AccessFlags::LOCAL_WRITE) {
        return Err(EINVAL);
    }
    Ok(())
}
