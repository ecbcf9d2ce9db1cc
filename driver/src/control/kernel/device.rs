//! The context, the device, its ports and GIDs, and event files.

use std::os::fd::OwnedFd;

use uverbs_abi::Command;
use uverbs_abi::object::{async_event, device};
use uverbs_abi::types::{CoreSupport, GidEntry, PortAttrEx};
use uverbs_abi::write::WriteCall;
use uverbs_abi::write::context::{CreateCompChannel, GetContext};
use uverbs_abi::write::device::{
    ExQueryDevice, ExQueryDeviceResp, QueryDevice, QueryDeviceResp, QueryPort,
};
use zerocopy::FromBytes;

use super::{Errno, Tried, Uctx, driver_answer};
use crate::sys::ioctl::FdTaker;

/// What [`Uctx::get_context`] answers.
#[derive(Debug)]
pub struct ContextInfo<O> {
    /// Completion vectors of the device.
    pub num_comp_vectors: u32,
    /// What the kernel's core can do; nothing on kernels without the ioctl.
    pub core_support: CoreSupport,
    /// The asynchronous event file, which only a kernel without the ioctl makes already here; else
    /// [`Uctx::alloc_async_event`] makes it.
    pub async_event: Option<OwnedFd>,
    /// The driver's answer.
    pub udata: O,
}

/// What [`Uctx::query_device_ex`] answers.
#[derive(Clone, Copy, Debug)]
pub struct DeviceAttr<O> {
    /// The attributes; those behind `response_length` are zero.
    pub attr: ExQueryDeviceResp,
    /// The driver's answer.
    pub udata: O,
}

impl Uctx {
    /// Makes the context; the first verb of any descriptor.
    pub fn get_context<O: FromBytes>(&self) -> Result<ContextInfo<O>, Errno> {
        self.get_context_with(&[])
    }

    /// Makes the context, for a driver that wants to know more. The input has no fixed length: some
    /// kernels refuse one that is longer than they know.
    pub fn get_context_with<O: FromBytes>(&self, input: &[u8]) -> Result<ContextInfo<O>, Errno> {
        use device::get_context as get;
        let mut cmd = Command::new();
        cmd.output(get::NUM_COMP_VECTORS).output(get::CORE_SUPPORT);
        if !input.is_empty() {
            cmd.uhw_in_bytes(input);
        }
        if size_of::<O>() > 0 {
            cmd.uhw_out::<O>();
        }
        if let Tried::Done = self.try_method(&mut cmd)? {
            return Ok(ContextInfo {
                num_comp_vectors: cmd.get(get::NUM_COMP_VECTORS)?,
                core_support: cmd.get(get::CORE_SUPPORT)?,
                async_event: None,
                udata: cmd.uhw().unwrap_or_else(|_| O::new_zeroed()),
            });
        }
        let taker = FdTaker::new();
        let mut call = WriteCall::new(GetContext::default());
        call.uhw_in(input).uhw_out::<O>();
        self.write(&mut call)?;
        let resp = call.response();
        Ok(ContextInfo {
            num_comp_vectors: resp.num_comp_vectors,
            core_support: CoreSupport::NONE,
            async_event: Some(taker.take(resp.async_fd)?),
            udata: call.uhw(),
        })
    }

    /// Attributes of the device, the old set.
    pub fn query_device(&self) -> Result<QueryDeviceResp, Errno> {
        if let Some(objects) = self.objects() {
            return objects.query_device_ex().map(|answer| answer.attr.base);
        }
        self.simple(QueryDevice::default())
    }

    /// Attributes of the device. Where the kernel has only the old set, the rest is zero and
    /// `response_length` tells.
    pub fn query_device_ex<O: FromBytes>(&self) -> Result<DeviceAttr<O>, Errno> {
        if let Some(objects) = self.objects() {
            return objects.query_device_ex().map(|answer| DeviceAttr {
                attr: answer.attr,
                udata: driver_answer(&answer.udata),
            });
        }
        let mut call = WriteCall::new(ExQueryDevice::default());
        call.uhw_out::<O>();
        match self.write(&mut call) {
            Ok(()) => Ok(DeviceAttr {
                attr: call.response(),
                udata: call.uhw(),
            }),
            Err(Errno(libc::EOPNOTSUPP | libc::ENOSYS)) => Ok(DeviceAttr {
                attr: ExQueryDeviceResp {
                    base: self.query_device()?,
                    response_length: size_of::<QueryDeviceResp>() as u32,
                    ..ExQueryDeviceResp::default()
                },
                udata: O::new_zeroed(),
            }),
            Err(errno) => Err(errno),
        }
    }

    /// Attributes of a port, numbered from 1. Fields that only the ioctl answers are zero on kernels
    /// without it.
    pub fn query_port(&self, port_num: u8) -> Result<PortAttrEx, Errno> {
        if let Some(objects) = self.objects() {
            return objects.query_port(port_num);
        }
        use device::query_port as query;
        let mut cmd = Command::new();
        cmd.constant(query::PORT_NUM, u32::from(port_num))
            .output(query::RESP);
        if let Tried::Done = self.try_method(&mut cmd)? {
            return Ok(cmd.get(query::RESP)?);
        }
        let request = QueryPort {
            port_num,
            ..QueryPort::default()
        };
        Ok(PortAttrEx {
            legacy_resp: self.simple(request)?,
            ..PortAttrEx::default()
        })
    }

    /// The valid GIDs of all ports, into `entries`; answers how many. `EINVAL` if they are more than
    /// there is room for, `EOPNOTSUPP` on kernels before 5.10, whose GIDs are in sysfs only.
    pub fn query_gid_table(&self, entries: &mut [GidEntry]) -> Result<usize, Errno> {
        if let Some(objects) = self.objects() {
            return objects.query_gid_table(entries);
        }
        use device::query_gid_table as query;
        let room = entries.len();
        let mut cmd = Command::new();
        cmd.constant(query::ENTRY_SIZE, size_of::<GidEntry>() as u64)
            .flags(query::FLAGS, 0)
            .output_slice(query::RESP_ENTRIES, entries)
            .output(query::RESP_NUM_ENTRIES);
        self.method(&mut cmd)?;
        match usize::try_from(cmd.get(query::RESP_NUM_ENTRIES)?) {
            Ok(count) if count <= room => Ok(count),
            _ => Err(Errno(libc::EPROTO)),
        }
    }

    /// One GID. `ENODATA` if the entry is empty, `EOPNOTSUPP` as for
    /// [`query_gid_table`](Self::query_gid_table).
    pub fn query_gid_entry(&self, port_num: u32, gid_index: u32) -> Result<GidEntry, Errno> {
        if let Some(objects) = self.objects() {
            return objects.query_gid_entry(port_num, gid_index);
        }
        use device::query_gid_entry as query;
        let mut cmd = Command::new();
        cmd.constant(query::PORT, port_num)
            .constant(query::GID_INDEX, gid_index)
            .flags(query::FLAGS, 0)
            .output(query::RESP_ENTRY);
        self.method(&mut cmd)?;
        Ok(cmd.get(query::RESP_ENTRY)?)
    }

    /// Makes an asynchronous event file.
    pub fn alloc_async_event(&self) -> Result<OwnedFd, Errno> {
        if let Some(objects) = self.objects() {
            return objects.alloc_async_event();
        }
        use async_event::alloc;
        let taker = FdTaker::new();
        let mut cmd = Command::new();
        cmd.new_fd(alloc::FD_HANDLE);
        self.method(&mut cmd)?;
        taker.take(cmd.raw_fd(alloc::FD_HANDLE)?)
    }

    /// Makes a completion channel.
    pub fn create_comp_channel(&self) -> Result<OwnedFd, Errno> {
        if let Some(objects) = self.objects() {
            return objects.create_comp_channel();
        }
        let taker = FdTaker::new();
        taker.take(self.simple(CreateCompChannel::default())?.fd)
    }
}
