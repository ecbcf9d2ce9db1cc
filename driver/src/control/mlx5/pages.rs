//! Pages of doorbell registers: from the kernel, or from a device that this process drives.

use std::sync::Arc;

use uverbs_abi::handle::mlx5::Uar;
use uverbs_abi::object::mlx5::UarAllocType;
use uverbs_abi::udata::mlx5::mmap::{self, MmapCommand};

use super::file::DeviceFile;
use super::uar::{PageKind, PageMemory, PageSource, UarPage};
use crate::control::vfio::Held;
use crate::control::vfio::objects::Objects;
use crate::sys::errno::Errno;
use crate::sys::mapping::SharedMapping;
use crate::sys::pages::page_size;

/// The kernel as a source of pages.
#[derive(Clone, Debug)]
pub(super) struct KernelPages {
    uctx: Arc<DeviceFile>,
}

/// The kernel's object behind a page.
#[derive(Debug)]
struct Object {
    uctx: Arc<DeviceFile>,
    handle: Uar,
}

impl Drop for Object {
    fn drop(&mut self) {
        if self.uctx.fd().is_owned_by_this_process() {
            // Where that fails the device is gone, and the kernel has freed the page.
            let _ = self.uctx.destroy_uar(self.handle);
        }
    }
}

impl KernelPages {
    pub(super) fn new(uctx: Arc<DeviceFile>) -> Self {
        Self { uctx }
    }

    /// The pages that came with the context.
    pub(super) fn of_context(&self, count: u32, non_cached: bool) -> Result<Vec<UarPage>, Errno> {
        (0..count)
            .map(|number| {
                let uncached = non_cached.then(|| self.map(MmapCommand::NC_PAGE, number));
                let (mapping, mmap_offset) = match uncached {
                    Some(Ok(mapped)) => mapped,
                    // kernels from before there was the choice, and whoever did not choose
                    _ => self.map(MmapCommand::REGULAR_PAGE, number)?,
                };
                Ok(UarPage {
                    mapping: mapping.into(),
                    number,
                    mmap_offset,
                    object: None,
                })
            })
            .collect()
    }

    /// A page, and where it is mapped from.
    fn map(&self, command: MmapCommand, index: u32) -> Result<(SharedMapping, u64), Errno> {
        let offset = mmap::offset(command, index, page_size() as u64).ok_or(Errno(libc::EINVAL))?;
        let mapping = SharedMapping::map(self.uctx.fd(), page_size(), offset)?;
        Ok((mapping, offset))
    }

    fn object(&self, kind: UarAllocType) -> Result<UarPage, Errno> {
        let page = self.uctx.alloc_uar(kind)?;
        let object = Object {
            uctx: self.uctx.clone(),
            handle: page.handle,
        };
        let len = page.mmap_length as usize;
        if len < super::environment::UAR_SIZE || !len.is_multiple_of(page_size()) {
            return Err(Errno(libc::EPROTO));
        }
        Ok(UarPage {
            mapping: SharedMapping::map(self.uctx.fd(), len, page.mmap_offset)?.into(),
            number: page.page_id,
            mmap_offset: page.mmap_offset,
            object: Some(Box::new(object)),
        })
    }
}

impl PageSource for KernelPages {
    fn page(&self, kind: PageKind) -> Result<UarPage, Errno> {
        match kind {
            PageKind::BlueFlame => self.object(UarAllocType::BF),
            PageKind::NonCached => self.object(UarAllocType::NC),
            PageKind::LegacyExtra(number) => {
                let (mapping, mmap_offset) = self.map(MmapCommand::ALLOC_WC, number)?;
                Ok(UarPage {
                    mapping: mapping.into(),
                    number,
                    mmap_offset,
                    object: None,
                })
            }
        }
    }
}

/// A device that this process drives as a source of pages.
#[derive(Debug)]
pub(super) struct DrivenPages {
    objects: Held,
}

/// The device's page behind a mapping.
#[derive(Debug)]
struct Driven {
    objects: Held,
    number: u32,
}

impl Drop for Driven {
    fn drop(&mut self) {
        if self.objects.is_ours() {
            // Where that fails the device is gone.
            let _ = self.objects.destroy_uar(self.number);
        }
    }
}

impl DrivenPages {
    pub(super) fn new(objects: Arc<Objects>) -> Self {
        Self {
            objects: Held::new(objects),
        }
    }
}

impl PageSource for DrivenPages {
    fn page(&self, kind: PageKind) -> Result<UarPage, Errno> {
        let platform = self.objects.platform();
        match kind {
            PageKind::BlueFlame if !platform.write_combining() => Err(Errno(libc::EOPNOTSUPP)),
            PageKind::LegacyExtra(_) => Err(Errno(libc::EOPNOTSUPP)),
            PageKind::BlueFlame | PageKind::NonCached => {
                let number = self.objects.alloc_uar()?;
                let object = Driven {
                    objects: self.objects.clone(),
                    number,
                };
                Ok(UarPage {
                    mapping: PageMemory::Bar(platform.doorbell_page(number)?),
                    number,
                    mmap_offset: 0,
                    object: Some(Box::new(object)),
                })
            }
        }
    }
}
