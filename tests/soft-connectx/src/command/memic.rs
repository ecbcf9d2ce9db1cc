//! Memory on the device: the kernel's commands, of which no user context has any.

use wqe_format::mlx5::firmware::memic::{
    AllocMemicIn, AllocMemicOut, DeallocMemicIn, ModifyMemicIn, ModifyMemicOut,
};

use super::refusal::{self, bad_operation, bad_parameter, bad_resource, no_resources};
use super::{Reply, done, owner};
use crate::device::Device;
use crate::memic::{LOG_ALIGNMENT, Refusal};

/// `op_mod` of `MODIFY_MEMIC` (`MLX5_MODIFY_MEMIC_OP_MOD_ALLOC`, `_DEALLOC`).
const MAP: u16 = 0;
const UNMAP: u16 = 1;

impl From<Refusal> for refusal::Refusal {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Malformed => bad_parameter("the device has no such memory"),
            // The kernel tries its next free range then (`mlx5_cmd_alloc_memic`).
            Refusal::Full => no_resources("the range or the memory is taken"),
            Refusal::Unknown => bad_resource("no such memory was allocated"),
        }
    }
}

fn kernel_only(device: &Device, input: &[u8]) -> Result<(), refusal::Refusal> {
    if !device.caps.has_memory() {
        return Err(bad_operation("there is no memory on this device"));
    }
    if owner::uid(input) != 0 {
        return Err(bad_resource("memory on the device is the kernel's to give"));
    }
    Ok(())
}

pub(super) fn alloc(device: &mut Device, input: &[u8]) -> Reply {
    kernel_only(device, input)?;
    let view = AllocMemicIn::new(input)?;
    if view.log_memic_addr_alignment() > LOG_ALIGNMENT {
        return Err(bad_parameter("the alignment is too large"));
    }
    let range = (view.range_start_addr(), view.range_size().into());
    let start = device.memic.alloc(range, view.memic_size().into())?;
    let mut output = AllocMemicOut::zeroed();
    output.set_memic_start_addr(start);
    Ok(output.into_inner().to_vec())
}

pub(super) fn dealloc(device: &mut Device, input: &[u8]) -> Reply {
    kernel_only(device, input)?;
    let view = DeallocMemicIn::new(input)?;
    let (start, size) = (view.memic_start_addr(), view.memic_size());
    device.memic.free(start, size.into())?;
    done()
}

pub(super) fn modify(device: &mut Device, input: &[u8]) -> Reply {
    kernel_only(device, input)?;
    let view = ModifyMemicIn::new(input)?;
    let (start, operation) = (view.memic_start_addr(), view.memic_operation_type());
    let mut output = ModifyMemicOut::zeroed();
    match view.op_mod() {
        MAP => _ = output.set_memic_operation_addr(device.memic.map(start, operation)?),
        UNMAP => device.memic.unmap(start, operation)?,
        _ => return Err(bad_operation("an operation is mapped or unmapped")),
    }
    Ok(output.into_inner().to_vec())
}
