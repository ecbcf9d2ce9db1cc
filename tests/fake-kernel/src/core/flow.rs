//! Flow steering rules, and the counters that they count into.

use std::os::fd::RawFd;

use oxverbs::sys::Errno;
use uverbs_abi::types::QpType;
use uverbs_abi::write::flow::{CreateFlow, FlowSpecHdr};
use zerocopy::FromBytes;

use crate::core::objects::{Flow, Object};
use crate::state::State;

const EINVAL: Errno = Errno(libc::EINVAL);

/// `IB_FLOW_SPEC_*` of `uapi rdma/ib_user_ioctl_verbs.h` and what goes with them: the low byte with its
/// known values, and the bit for an inner header.
const KNOWN_SPECS: [u32; 15] = [
    0x20, 0x22, 0x30, 0x31, 0x34, 0x40, 0x41, 0x50, 0x51, 0x60, 0x1000, 0x1001, 0x1002, 0x1003,
    0x100,
];
/// `IB_FLOW_SPEC_INNER`
const INNER: u32 = 0x100;

impl State {
    /// `ib_uverbs_ex_create_flow`; the handle.
    pub(crate) fn create_flow(
        &mut self,
        fd: RawFd,
        command: &CreateFlow,
        specs: &[u8],
    ) -> Result<u32, Errno> {
        self.only_mlx5()?;
        let attr = &command.flow_attr;
        if command.comp_mask != 0 || attr.port != 1 || attr.r#type > 3 {
            return Err(EINVAL);
        }
        if usize::from(attr.size) > specs.len() {
            return Err(EINVAL);
        }
        let specs = &specs[..attr.size.into()];
        check_specs(specs, attr.num_of_specs)?;
        let qpn = self.qp_number(fd, command.qp_handle.0)?;
        let device = self.device(fd)?;
        let qp = device.qps.get_mut(&qpn).ok_or(EINVAL)?;
        if !matches!(qp.qp_type, QpType::UD | QpType::RAW_PACKET) {
            return Err(EINVAL);
        }
        qp.flows += 1;
        let number = device.number();
        device.flows.insert(number, Flow { qp: qpn });
        self.add_object(fd, Object::Flow(number))
    }

    pub(crate) fn destroy_flow(&mut self, fd: RawFd, handle: u32) -> Result<(), Errno> {
        let Object::Flow(number) = self.object(fd, handle)? else {
            return Err(EINVAL);
        };
        let device = self.device(fd)?;
        let flow = device.flows.remove(&number).ok_or(EINVAL)?;
        if let Some(qp) = device.qps.get_mut(&flow.qp) {
            qp.flows -= 1;
        }
        self.context(fd)?.objects.remove(&handle);
        Ok(())
    }

    pub(crate) fn create_counters(&mut self, fd: RawFd) -> Result<u32, Errno> {
        self.only_mlx5()?;
        let device = self.device(fd)?;
        let number = device.number();
        device.counters.insert(number);
        self.add_object(fd, Object::Counters(number))
    }

    pub(crate) fn destroy_counters(&mut self, fd: RawFd, handle: u32) -> Result<(), Errno> {
        let Object::Counters(number) = self.object(fd, handle)? else {
            return Err(EINVAL);
        };
        self.device(fd)?.counters.remove(&number);
        self.context(fd)?.objects.remove(&handle);
        Ok(())
    }
}

/// The specifications fill the rule exactly, and each is known.
fn check_specs(mut specs: &[u8], n: u8) -> Result<(), Errno> {
    for _ in 0..n {
        let (header, _) = FlowSpecHdr::read_from_prefix(specs).map_err(|_| EINVAL)?;
        let size = usize::from(header.size);
        if size < size_of::<FlowSpecHdr>() || size > specs.len() || !header.reserved.is_zero() {
            return Err(EINVAL);
        }
        let kind = header.r#type;
        if !KNOWN_SPECS.contains(&kind) && !KNOWN_SPECS.contains(&(kind & !INNER)) {
            return Err(EINVAL);
        }
        specs = &specs[size..];
    }
    if specs.is_empty() {
        Ok(())
    } else {
        Err(EINVAL)
    }
}
