//! Pages of doorbell registers from the kernel.

use std::sync::Arc;

use uverbs_abi::handle::mlx5::Uar;
use uverbs_abi::object::mlx5::UarAllocType;
use uverbs_abi::udata::mlx5::mmap::{self, MmapCommand};

use super::file::DeviceFile;
use super::uar::{PageKind, PageSource, UarPage};
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
                let mapping = match uncached {
                    Some(Ok(mapping)) => mapping,
                    // kernels from before there was the choice, and whoever did not choose
                    _ => self.map(MmapCommand::REGULAR_PAGE, number)?,
                };
                Ok(UarPage {
                    mapping,
                    number,
                    object: None,
                })
            })
            .collect()
    }

    fn map(&self, command: MmapCommand, index: u32) -> Result<SharedMapping, Errno> {
        let offset = mmap::offset(command, index, page_size() as u64).ok_or(Errno(libc::EINVAL))?;
        SharedMapping::map(self.uctx.fd(), page_size(), offset)
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
            mapping: SharedMapping::map(self.uctx.fd(), len, page.mmap_offset)?,
            number: page.page_id,
            object: Some(Box::new(object)),
        })
    }
}

impl PageSource for KernelPages {
    fn page(&self, kind: PageKind) -> Result<UarPage, Errno> {
        match kind {
            PageKind::BlueFlame => self.object(UarAllocType::BF),
            PageKind::NonCached => self.object(UarAllocType::NC),
            PageKind::LegacyExtra(number) => Ok(UarPage {
                mapping: self.map(MmapCommand::ALLOC_WC, number)?,
                number,
                object: None,
            }),
        }
    }
}
