//! Verbs that only mlx5 has, or has with rules of its own.

use std::os::fd::{OwnedFd, RawFd};

use uverbs_abi::Command;
use uverbs_abi::handle::mlx5::{Any, DevxObj, DevxUmem, Pp, Uar, Var};
use uverbs_abi::handle::{Dm, Pd};
use uverbs_abi::object::device as core_device;
use uverbs_abi::object::mlx5::{
    DevxEventChannelFlags, PpAllocFlags, QueryPort, UarAllocType, device, devx, devx_async_cmd_fd,
    devx_async_event_fd, devx_obj, devx_umem, dm, extra, pd, pp, uar, var,
};
use uverbs_abi::types::AccessFlags;
use uverbs_abi::udata::mlx5::{AllocUcontextFlags, AllocUcontextReqV2, AllocUcontextResp};
use zerocopy::IntoBytes;

use super::{ContextInfo, Errno, Uctx};
use crate::sys::ioctl::FdTaker;

/// What [`Uctx::get_context_mlx5`] answers.
#[derive(Debug)]
pub struct Mlx5Context {
    /// The context and the driver's answer.
    pub info: ContextInfo<AllocUcontextResp>,
    /// Whether the context may have DEVX objects.
    pub devx: bool,
}

/// A page of the device to map from the device file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DevicePage<H> {
    /// For the kernel.
    pub handle: H,
    /// For mmap(2).
    pub mmap_offset: u64,
    /// Bytes to map.
    pub mmap_length: u32,
    /// The device's number of the page.
    pub page_id: u32,
}

/// How an event of the device's is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DevxNotice {
    /// By a record in the file, with this cookie.
    Record {
        /// Comes back.
        cookie: u64,
    },
    /// By a signal to this eventfd.
    EventFd(RawFd),
}

/// Memory for firmware commands.
#[derive(Clone, Copy, Debug, Default)]
pub struct RegUmem {
    /// First address; of a dma-buf, its first byte.
    pub addr: u64,
    /// Bytes.
    pub length: u64,
    /// Rights of the device.
    pub access: AccessFlags,
    /// Page sizes that may be used, a bit each; any that fits if absent.
    pub page_sizes: Option<u64>,
    /// The dma-buf that the memory is part of.
    pub dmabuf: Option<RawFd>,
}

/// The smallest page that the device knows (`MLX5_ADAPTER_PAGE_SIZE`).
const ADAPTER_PAGE_SIZE: u64 = 4096;

/// Where a page of device memory is to be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmPage {
    /// Bytes from the start of the page.
    pub start_offset: u64,
    /// Index for [`MmapCommand::DEVICE_MEM`](uverbs_abi::udata::mlx5::mmap::MmapCommand::DEVICE_MEM).
    pub page_index: u16,
}

impl Uctx {
    /// Makes the context.
    ///
    /// Kernels and devices say in no particular way what they do not know, so it is asked for less and
    /// less until one agrees: the whole request, without its youngest fields, and all of these once
    /// more without DEVX. The errno is that of the last attempt.
    pub fn get_context_mlx5(&self, request: AllocUcontextReqV2) -> Result<Mlx5Context, Errno> {
        if let Some(objects) = self.objects() {
            return objects.get_context(&request);
        }
        let mut request = request;
        loop {
            let devx = request.flags.contains(AllocUcontextFlags::DEVX);
            let mut last = Errno(libc::EINVAL);
            for len in AllocUcontextReqV2::LENGTHS {
                match self.get_context_with(&request.as_bytes()[..len]) {
                    Ok(info) => return Ok(Mlx5Context { info, devx }),
                    Err(errno) => last = errno,
                }
            }
            if !devx {
                return Err(last);
            }
            request.flags = AllocUcontextFlags(request.flags.0 & !AllocUcontextFlags::DEVX.0);
        }
    }

    /// What [`get_context_mlx5`](Self::get_context_mlx5) answered to another process, which gave this one
    /// the descriptor.
    pub fn query_context_mlx5(&self) -> Result<ContextInfo<AllocUcontextResp>, Errno> {
        use core_device::query_context as query;
        let mut cmd = Command::new();
        cmd.output(query::NUM_COMP_VECTORS)
            .output(query::CORE_SUPPORT)
            .output(extra::QUERY_CONTEXT_UCTX);
        self.method(&mut cmd)?;
        Ok(ContextInfo {
            num_comp_vectors: cmd.get(query::NUM_COMP_VECTORS)?,
            core_support: cmd.get(query::CORE_SUPPORT)?,
            async_event: None,
            udata: cmd.get(extra::QUERY_CONTEXT_UCTX)?,
        })
    }

    /// Allocates a doorbell page. `EOPNOTSUPP` on kernels before 5.7, whose pages come with the
    /// context, and of a page for BlueFlame where the platform has no write-combining.
    pub fn alloc_uar(&self, kind: UarAllocType) -> Result<DevicePage<Uar>, Errno> {
        use uar::alloc;
        let mut cmd = Command::new();
        cmd.new_handle(alloc::HANDLE)
            .constant(alloc::TYPE, kind)
            .output(alloc::MMAP_OFFSET)
            .output(alloc::MMAP_LENGTH)
            .output(alloc::PAGE_ID);
        self.method(&mut cmd)?;
        Ok(DevicePage {
            handle: cmd.handle(alloc::HANDLE)?,
            mmap_offset: cmd.get(alloc::MMAP_OFFSET)?,
            mmap_length: cmd.get(alloc::MMAP_LENGTH)?,
            page_id: cmd.get(alloc::PAGE_ID)?,
        })
    }

    /// Frees a doorbell page; after its mapping is gone.
    pub fn destroy_uar(&self, handle: Uar) -> Result<(), Errno> {
        let mut cmd = Command::new();
        cmd.destroy(uar::destroy::HANDLE, handle);
        self.method(&mut cmd)
    }

    /// Allocates a doorbell page for virtio queues.
    pub fn alloc_var(&self) -> Result<DevicePage<Var>, Errno> {
        use var::alloc;
        let mut cmd = Command::new();
        cmd.new_handle(alloc::HANDLE)
            .output(alloc::MMAP_OFFSET)
            .output(alloc::MMAP_LENGTH)
            .output(alloc::PAGE_ID);
        self.method(&mut cmd)?;
        Ok(DevicePage {
            handle: cmd.handle(alloc::HANDLE)?,
            mmap_offset: cmd.get(alloc::MMAP_OFFSET)?,
            mmap_length: cmd.get(alloc::MMAP_LENGTH)?,
            page_id: cmd.get(alloc::PAGE_ID)?,
        })
    }

    /// Frees a doorbell page for virtio queues.
    pub fn destroy_var(&self, handle: Var) -> Result<(), Errno> {
        let mut cmd = Command::new();
        cmd.destroy(var::destroy::HANDLE, handle);
        self.method(&mut cmd)
    }

    /// Allocates a rate for packet pacing: a `set_pp_rate_limit_context` of the firmware's. Answers the
    /// device's number of it too.
    pub fn alloc_pp(&self, context: &[u8], flags: PpAllocFlags) -> Result<(Pp, u16), Errno> {
        use pp::alloc;
        let mut cmd = Command::new();
        cmd.new_handle(alloc::HANDLE)
            .slice(alloc::CTX, context)
            .flags_as_u64(alloc::FLAGS, flags)
            .output(alloc::INDEX);
        self.method(&mut cmd)?;
        Ok((cmd.handle(alloc::HANDLE)?, cmd.get(alloc::INDEX)?))
    }

    /// Frees a rate.
    pub fn destroy_pp(&self, handle: Pp) -> Result<(), Errno> {
        let mut cmd = Command::new();
        cmd.destroy(pp::destroy::HANDLE, handle);
        self.method(&mut cmd)
    }

    /// Fills `path` with where in sysfs the device's own path to memory is, and a zero. `ENODEV` if it has none.
    pub fn data_direct_path(&self, path: &mut [u8]) -> Result<(), Errno> {
        use device::get_data_direct_sysfs_path as method;
        let mut cmd = Command::new();
        cmd.output_slice(method::PATH, path);
        self.method(&mut cmd)
    }

    /// Runs a firmware command that makes nothing, such as QUERY_HCA_CAP. Where `EREMOTEIO` comes
    /// back, `output` has the firmware's status and syndrome.
    pub fn devx_command(&self, input: &[u8], output: &mut [u8]) -> Result<(), Errno> {
        let mut cmd = Command::new();
        cmd.slice(devx::other::CMD_IN, input)
            .output_slice(devx::other::CMD_OUT, output);
        self.method(&mut cmd)
    }

    /// The device's number of one of the context's doorbell pages.
    pub fn devx_query_uar(&self, index: u32) -> Result<u32, Errno> {
        use devx::query_uar as query;
        let mut cmd = Command::new();
        cmd.input(query::USER_IDX, index).output(query::DEV_IDX);
        self.method(&mut cmd)?;
        Ok(cmd.get(query::DEV_IDX)?)
    }

    /// The device's number of the event queue of a completion vector.
    pub fn devx_query_eqn(&self, vector: u32) -> Result<u32, Errno> {
        use devx::query_eqn as query;
        let mut cmd = Command::new();
        cmd.input(query::USER_VEC, vector).output(query::DEV_EQN);
        self.method(&mut cmd)?;
        Ok(cmd.get(query::DEV_EQN)?)
    }

    /// Runs a firmware command that makes an object.
    pub fn devx_obj_create(&self, input: &[u8], output: &mut [u8]) -> Result<DevxObj, Errno> {
        use devx_obj::create;
        let mut cmd = Command::new();
        cmd.new_handle(create::HANDLE)
            .slice(create::CMD_IN, input)
            .output_slice(create::CMD_OUT, output);
        self.method(&mut cmd)?;
        Ok(cmd.handle(create::HANDLE)?)
    }

    /// Runs a firmware command that changes an object, made by one or by a verb.
    pub fn devx_obj_modify(
        &self,
        handle: Any,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<(), Errno> {
        use devx_obj::modify;
        let mut cmd = Command::new();
        cmd.object(modify::HANDLE, handle)
            .slice(modify::CMD_IN, input)
            .output_slice(modify::CMD_OUT, output);
        self.method(&mut cmd)
    }

    /// Runs a firmware command that reads an object, made by one or by a verb.
    pub fn devx_obj_query(
        &self,
        handle: Any,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<(), Errno> {
        use devx_obj::query;
        let mut cmd = Command::new();
        cmd.object(query::HANDLE, handle)
            .slice(query::CMD_IN, input)
            .output_slice(query::CMD_OUT, output);
        self.method(&mut cmd)
    }

    /// Runs a firmware command that reads an object without waiting for it: `out_len` bytes, after
    /// `wr_id`, are read from `file` ([`devx_async_cmd_file`](Self::devx_async_cmd_file)).
    pub fn devx_obj_query_async(
        &self,
        handle: Any,
        input: &[u8],
        out_len: u16,
        wr_id: u64,
        file: RawFd,
    ) -> Result<(), Errno> {
        use devx_obj::async_query as query;
        let mut cmd = Command::new();
        cmd.object(query::HANDLE, handle)
            .slice(query::CMD_IN, input)
            .constant(query::OUT_LEN, out_len)
            .input(query::WR_ID, wr_id)
            .fd(query::FD, file);
        self.method(&mut cmd)
    }

    /// Destroys an object that a firmware command made.
    pub fn devx_obj_destroy(&self, handle: DevxObj) -> Result<(), Errno> {
        let mut cmd = Command::new();
        cmd.destroy(devx_obj::destroy::HANDLE, handle);
        self.method(&mut cmd)
    }

    /// Tells the device about memory; answers its number of it too.
    ///
    /// # Safety
    ///
    /// From now until [`devx_umem_dereg`](Self::devx_umem_dereg) the device may read and, as far as
    /// `umem.access` goes, write the range (K3); no Rust reference may be live meanwhile that says
    /// otherwise.
    pub unsafe fn devx_umem_reg(&self, umem: &RegUmem) -> Result<(DevxUmem, u32), Errno> {
        use devx_umem::reg;
        let mut cmd = Command::new();
        cmd.input(reg::ADDR, umem.addr)
            .input(reg::LEN, umem.length)
            .flags(reg::ACCESS, umem.access);
        if let Some(fd) = umem.dmabuf {
            cmd.fd(reg::DMABUF_FD, fd);
        }
        match umem.page_sizes {
            Some(sizes) => cmd.constant(reg::PGSZ_BITMAP, sizes),
            // kernels before 5.11 do not know it, and choose from the same
            None => cmd
                .constant(reg::PGSZ_BITMAP, !(ADAPTER_PAGE_SIZE - 1))
                .optional(),
        };
        cmd.output(reg::OUT_ID).new_handle(reg::HANDLE);
        self.method(&mut cmd)?;
        Ok((cmd.handle(reg::HANDLE)?, cmd.get(reg::OUT_ID)?))
    }

    /// Makes the device forget memory.
    pub fn devx_umem_dereg(&self, handle: DevxUmem) -> Result<(), Errno> {
        let mut cmd = Command::new();
        cmd.destroy(devx_umem::dereg::HANDLE, handle);
        self.method(&mut cmd)
    }

    /// Makes a file from which answers of asynchronous firmware commands are read.
    pub fn devx_async_cmd_file(&self) -> Result<OwnedFd, Errno> {
        use devx_async_cmd_fd::alloc;
        let taker = FdTaker::new();
        let mut cmd = Command::new();
        cmd.new_fd(alloc::HANDLE);
        self.method(&mut cmd)?;
        taker.take(cmd.raw_fd(alloc::HANDLE)?)
    }

    /// Makes a file from which the device's events are read.
    pub fn devx_event_file(&self, flags: DevxEventChannelFlags) -> Result<OwnedFd, Errno> {
        use devx_async_event_fd::alloc;
        let taker = FdTaker::new();
        let mut cmd = Command::new();
        cmd.new_fd(alloc::HANDLE).flags(alloc::FLAGS, flags);
        self.method(&mut cmd)?;
        taker.take(cmd.raw_fd(alloc::HANDLE)?)
    }

    /// Asks for events, of an object or of the device, by the firmware's numbers.
    pub fn devx_subscribe(
        &self,
        file: RawFd,
        object: Option<DevxObj>,
        events: &[u16],
        notice: DevxNotice,
    ) -> Result<(), Errno> {
        use devx::subscribe_event as subscribe;
        let mut cmd = Command::new();
        cmd.fd(subscribe::FD_HANDLE, file);
        if let DevxNotice::Record { cookie } = notice {
            cmd.input(subscribe::COOKIE, cookie);
        }
        if let Some(object) = object {
            cmd.object(subscribe::OBJ_HANDLE, object);
        }
        cmd.slice(subscribe::TYPE_NUM_LIST, events);
        if let DevxNotice::EventFd(fd) = notice {
            cmd.input(subscribe::FD_NUM, fd as u32);
        }
        self.method(&mut cmd)
    }

    /// Makes an address at which a store is the operation `op` on device memory.
    pub fn dm_map_op_addr(&self, handle: Dm, op: u8) -> Result<DmPage, Errno> {
        use dm::map_op_addr as map;
        let mut cmd = Command::new();
        cmd.object(map::HANDLE, handle)
            .input(map::OP, op)
            .output(map::START_OFFSET)
            .output(map::PAGE_INDEX);
        self.method(&mut cmd)?;
        Ok(DmPage {
            start_offset: cmd.get(map::START_OFFSET)?,
            page_index: cmd.get(map::PAGE_INDEX)?,
        })
    }

    /// Where device memory of a shared context can be mapped, and its length.
    pub fn query_dm(&self, handle: Dm) -> Result<(DmPage, u64), Errno> {
        use dm::query;
        let mut cmd = Command::new();
        cmd.object(query::HANDLE, handle)
            .output(query::START_OFFSET)
            .output(query::PAGE_INDEX)
            .output(query::LENGTH);
        self.method(&mut cmd)?;
        let page = DmPage {
            start_offset: cmd.get(query::START_OFFSET)?,
            page_index: cmd.get(query::PAGE_INDEX)?,
        };
        Ok((page, cmd.get(query::LENGTH)?))
    }

    /// The device's number of a protection domain of a shared context.
    pub fn query_pd(&self, handle: Pd) -> Result<u32, Errno> {
        use pd::query;
        let mut cmd = Command::new();
        cmd.object(query::HANDLE, handle).output(query::PDN);
        self.method(&mut cmd)?;
        Ok(cmd.get(query::PDN)?)
    }

    /// A port as the eswitch knows it.
    pub fn query_port_mlx5(&self, port_num: u32) -> Result<QueryPort, Errno> {
        use device::query_port as query;
        let mut cmd = Command::new();
        cmd.input(query::PORT_NUM, port_num).output(query::RESP);
        self.method(&mut cmd)?;
        Ok(cmd.get(query::RESP)?)
    }
}
