//! Memory on the device.

use uverbs_abi::Command;
use uverbs_abi::handle::{Dm, Pd};
use uverbs_abi::object::mlx5::{DmType, extra};
use uverbs_abi::object::{dm, mr};
use uverbs_abi::types::AccessFlags;

use super::{DmPage, Errno, MrKeys, Uctx};

/// A range of device memory to register.
#[derive(Clone, Copy, Debug, Default)]
pub struct DmMr {
    /// The protection domain.
    pub pd: Pd,
    /// The memory.
    pub dm: Dm,
    /// First byte of it.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// Rights; with [`ZERO_BASED`](AccessFlags::ZERO_BASED), for the program has no address of it.
    pub access: AccessFlags,
}

impl Uctx {
    /// Allocates mlx5's mappable device memory (MEMIC): `length` bytes, aligned to `1 << log_align`.
    pub fn alloc_dm_mlx5(&self, length: u64, log_align: u32) -> Result<(Dm, DmPage), Errno> {
        use dm::alloc;
        let mut cmd = Command::new();
        cmd.new_handle(alloc::HANDLE)
            .input(alloc::LENGTH, length)
            .input(alloc::ALIGNMENT, log_align)
            .constant(extra::ALLOC_DM_TYPE, DmType::MEMIC)
            .optional()
            .output(extra::ALLOC_DM_START_OFFSET)
            .output(extra::ALLOC_DM_PAGE_INDEX);
        self.method(&mut cmd)?;
        let page = DmPage {
            start_offset: cmd.get(extra::ALLOC_DM_START_OFFSET)?,
            page_index: cmd.get(extra::ALLOC_DM_PAGE_INDEX)?,
        };
        Ok((cmd.handle(alloc::HANDLE)?, page))
    }

    /// Allocates mlx5's device memory of another kind, which only the device's commands use; answers
    /// its address there.
    pub fn alloc_icm_mlx5(
        &self,
        kind: DmType,
        length: u64,
        log_align: u32,
    ) -> Result<(Dm, u64), Errno> {
        use dm::alloc;
        let mut cmd = Command::new();
        cmd.new_handle(alloc::HANDLE)
            .input(alloc::LENGTH, length)
            .input(alloc::ALIGNMENT, log_align)
            .constant(extra::ALLOC_DM_TYPE, kind)
            .output(extra::ALLOC_DM_START_OFFSET);
        self.method(&mut cmd)?;
        Ok((
            cmd.handle(alloc::HANDLE)?,
            cmd.get(extra::ALLOC_DM_START_OFFSET)?,
        ))
    }

    /// Frees device memory. `EBUSY` while it is registered.
    pub fn free_dm(&self, handle: Dm) -> Result<(), Errno> {
        let mut cmd = Command::new();
        cmd.destroy(dm::free::HANDLE, handle);
        self.method(&mut cmd)
    }

    /// Registers device memory.
    pub fn reg_dm_mr(&self, mr: &DmMr) -> Result<MrKeys, Errno> {
        use mr::dm_reg as reg;
        let mut cmd = Command::new();
        cmd.new_handle(reg::HANDLE)
            .output(reg::RESP_LKEY)
            .output(reg::RESP_RKEY)
            .object(reg::PD_HANDLE, mr.pd)
            .object(reg::DM_HANDLE, mr.dm)
            .input(reg::OFFSET, mr.offset)
            .input(reg::LENGTH, mr.length)
            .flags(reg::ACCESS_FLAGS, mr.access);
        self.method(&mut cmd)?;
        Ok(MrKeys {
            handle: cmd.handle(reg::HANDLE)?,
            lkey: cmd.get(reg::RESP_LKEY)?,
            rkey: cmd.get(reg::RESP_RKEY)?,
        })
    }
}
