//! Memory on the device, and memory of other devices (dma-buf).

use std::os::fd::RawFd;
use std::sync::Arc;

use oxverbs::sys::Errno;
use uverbs_abi::types::AccessFlags;

use crate::core::memory::use_pd;
use crate::core::objects::{Dm, Mr, Object};
use crate::mlx5;
use crate::raw::{Mapping, PAGE};
use crate::state::State;

const EINVAL: Errno = Errno(libc::EINVAL);
const EBUSY: Errno = Errno(libc::EBUSY);

impl State {
    /// Allocates; handle and page number, by which the program maps it.
    pub(crate) fn alloc_dm(
        &mut self,
        fd: RawFd,
        length: u64,
        log_align: u32,
    ) -> Result<(u32, u32), Errno> {
        self.only_mlx5()?;
        if length == 0 || length > mlx5::device::MAX_DM || log_align > 12 {
            return Err(EINVAL);
        }
        let bytes = (length as usize).next_multiple_of(PAGE);
        let device = self.device(fd)?;
        let page = device.mlx5.next_dm_page((bytes / PAGE) as u32);
        let offset = mlx5::uar::dm_file_offset(page);
        let mapping = Arc::new(Mapping::new(fd, bytes, offset)?);
        let device = self.device(fd)?;
        let number = device.number();
        let dm = Dm {
            length,
            page,
            mapping,
            users: 0,
        };
        device.dms.insert(number, dm);
        Ok((self.add_object(fd, Object::Dm(number))?, page))
    }

    pub(crate) fn free_dm(&mut self, fd: RawFd, handle: u32) -> Result<(), Errno> {
        let number = self.dm_number(fd, handle)?;
        let device = self.device(fd)?;
        if device.dms.get(&number).is_some_and(|dm| dm.users > 0) {
            return Err(EBUSY);
        }
        device.dms.remove(&number);
        self.context(fd)?.objects.remove(&handle);
        Ok(())
    }

    fn dm_number(&mut self, fd: RawFd, handle: u32) -> Result<u32, Errno> {
        match self.object(fd, handle)? {
            Object::Dm(number) => Ok(number),
            _ => Err(EINVAL),
        }
    }

    /// Whether `pages` pages from `page` on belong to a context's device memory.
    pub(crate) fn is_dm(&mut self, fd: RawFd, page: u32, len: usize) -> Result<bool, Errno> {
        let objects: Vec<Object> = self.context(fd)?.objects.values().copied().collect();
        let device = self.device(fd)?;
        Ok(objects.iter().any(|object| {
            matches!(object, Object::Dm(number) if device.dms.get(number).is_some_and(|dm| {
                dm.page == page && len <= (dm.length as usize).next_multiple_of(PAGE)
            }))
        }))
    }

    /// `UVERBS_METHOD_DM_MR_REG`; handle and key. Such a region begins at 0.
    pub(crate) fn reg_dm_mr(
        &mut self,
        fd: RawFd,
        pd: u32,
        dm: u32,
        (offset, length): (u64, u64),
        access: AccessFlags,
    ) -> Result<(u32, u32), Errno> {
        let pd = self.pd(fd, pd)?;
        let number = self.dm_number(fd, dm)?;
        let own = self.device(fd)?.dms.get_mut(&number).ok_or(EINVAL)?;
        let fits = offset
            .checked_add(length)
            .is_some_and(|end| end <= own.length);
        if !access.contains(AccessFlags::ZERO_BASED) || !fits {
            return Err(EINVAL);
        }
        own.users += 1;
        let mapping = own.mapping.clone();
        let start = mapping.address() + offset;
        self.add_mr(fd, pd, Some(number), mapping, (start, length, 0), access)
    }

    /// `UVERBS_METHOD_REG_DMABUF_MR`, with any file that can be mapped in the place of a dma-buf; handle and
    /// key.
    pub(crate) fn reg_dmabuf_mr(
        &mut self,
        fd: RawFd,
        pd: u32,
        file: RawFd,
        (offset, length, iova): (u64, u64, u64),
        access: AccessFlags,
    ) -> Result<(u32, u32), Errno> {
        self.only_mlx5()?;
        let pd = self.pd(fd, pd)?;
        let page = PAGE as u64;
        if offset % page != iova % page || length == 0 {
            return Err(EINVAL);
        }
        // Not what a dma-buf is mapped with (`check_umem` in `mlx5/mr.c`).
        if access.contains(AccessFlags::ON_DEMAND) {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        let inner = offset % page;
        let len = (inner + length).next_multiple_of(page) as usize;
        let mapping = Mapping::new(file, len, offset - inner)?;
        let start = mapping.address() + inner;
        self.add_mr(
            fd,
            pd,
            None,
            Arc::new(mapping),
            (start, length, iova),
            access,
        )
    }

    fn add_mr(
        &mut self,
        fd: RawFd,
        pd: u32,
        dm: Option<u32>,
        mapping: Arc<Mapping>,
        (start, length, iova): (u64, u64, u64),
        access: AccessFlags,
    ) -> Result<(u32, u32), Errno> {
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
                mapping: Some(mapping),
                dm,
            },
        );
        use_pd(device, pd);
        Ok((self.add_object(fd, Object::Mr(number))?, key))
    }
}
