//! Page faults of on-demand paging.

use wqe_format::mlx5::firmware::page_fault::{MemPageFaultInfo, PageFaultResumeIn};

use super::refusal::{bad_parameter, bad_resource};
use super::{Reply, done, owner};
use crate::device::Device;
use crate::paging;

pub(super) fn resume(device: &mut Device, input: &[u8]) -> Reply {
    let view = PageFaultResumeIn::new(input)?;
    if owner::uid(input) != 0 {
        return Err(bad_resource("pages are the kernel's to bring"));
    }
    let bytes = view.page_fault_info().to_be_bytes();
    let info = MemPageFaultInfo::new(&bytes[..])?;
    let token = u64::from(info.fault_token_47_32()) << 32 | u64::from(info.fault_token_31_0());
    if !paging::resume(device, token, info.error()) {
        return Err(bad_parameter("nobody waits with this token"));
    }
    done()
}
