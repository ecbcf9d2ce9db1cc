//! Bringing the device up and down, its interface's version, capabilities, pages.

use wqe_format::mlx5::firmware::caps::CapType;
use wqe_format::mlx5::firmware::caps::command::{QueryHcaCapIn, QueryHcaCapOut, SetHcaCapIn};
use wqe_format::mlx5::firmware::hca::{
    DisableHcaIn, EnableHcaIn, QueryAdapterOut, QueryIssiOut, QuerySpecialContextsOut, SetIssiIn,
    TeardownHcaIn,
};
use wqe_format::mlx5::firmware::pages::{
    ManagePagesIn, ManagePagesOut, QueryPagesIn, QueryPagesOut,
};

use super::refusal::{Refusal, bad_operation, bad_parameter, bad_system, no_resources};
use super::{Reply, done, starve};
use crate::device::Device;
use crate::pages;
use crate::resources::Resources;

/// How far up the device is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stage {
    #[default]
    Disabled,
    Enabled,
    Initialized,
}

/// What these commands set.
#[derive(Debug, Default)]
pub(crate) struct Hca {
    pub(crate) stage: Stage,
    /// Version of the interface (ISSI) that the driver chose.
    issi: u16,
    /// Whether the interface's register stops it, with everything that is made.
    pub(crate) may_stop: bool,
}

/// The local key that names physical memory to kernels (`resd_lkey`).
pub(crate) const RESERVED_LKEY: u32 = 0x600;
/// The key of memory that is nowhere, for elements of lists whose bytes nobody wants (`dump_fill_mkey`).
pub(crate) const DUMP_FILL_MKEY: u32 = 0x400;
/// The key that page faults are taken through (`null_mkey`).
pub(crate) const NULL_MKEY: u32 = 0x200;
/// The key that ends a scatter list (`terminate_scatter_list_mkey`; `MLX5_INVALID_LKEY`).
pub(crate) const TERMINATE_KEY: u32 = 0x100;
/// The key a repeat block begins with (`repeated_mkey`).
pub(crate) const REPEATED_KEY: u32 = 0x300;

/// There is no function but the own one, which is number 0 to itself.
fn own(function: u16) -> Result<(), Refusal> {
    match function {
        0 => Ok(()),
        _ => Err(bad_parameter("there is no other function")),
    }
}

pub(super) fn enable(device: &mut Device, input: &[u8]) -> Reply {
    own(EnableHcaIn::new(input)?.function_id())?;
    if device.hca.stage != Stage::Disabled {
        return Err(bad_system("the device is enabled already"));
    }
    device.hca.stage = Stage::Enabled;
    done()
}

pub(super) fn disable(device: &mut Device, input: &[u8]) -> Reply {
    own(DisableHcaIn::new(input)?.function_id())?;
    if device.hca.stage == Stage::Initialized {
        device.resources = Resources::new(&device.config);
        device.memic = crate::memic::Memic::default();
        device.paging = crate::paging::Paging::default();
    }
    device.hca = Hca::default();
    done()
}

pub(super) fn init(device: &mut Device, _input: &[u8]) -> Reply {
    if device.hca.stage != Stage::Enabled {
        return Err(bad_system("the device can't be initialized now"));
    }
    if device.pages.count() < pages::BOOT + pages::INIT {
        return Err(no_resources("too few pages were given"));
    }
    device.hca.stage = Stage::Initialized;
    done()
}

pub(super) fn teardown(device: &mut Device, input: &[u8]) -> Reply {
    const GRACEFUL: u16 = 0;
    /// What follows is the register that stops the device.
    const PREPARE_FAST: u16 = 2;
    let input = TeardownHcaIn::new(input)?;
    if device.hca.stage != Stage::Initialized {
        return Err(bad_system("the device is not initialized"));
    }
    match input.profile() {
        GRACEFUL => {}
        PREPARE_FAST => {
            device.hca.may_stop = true;
            return done();
        }
        _ => return Err(bad_parameter("a teardown is graceful or fast")),
    }
    device.resources = Resources::new(&device.config);
    device.transport = Default::default();
    device.hca.stage = Stage::Enabled;
    done()
}

pub(super) fn query_issi(device: &mut Device, _input: &[u8]) -> Reply {
    let mut output = QueryIssiOut::zeroed();
    output
        .set_current_issi(device.hca.issi)
        .set_supported_issi_dw0(0b11);
    Ok(output.into_inner().to_vec())
}

pub(super) fn set_issi(device: &mut Device, input: &[u8]) -> Reply {
    let issi = SetIssiIn::new(input)?.current_issi();
    if issi > 1 {
        return Err(bad_parameter("there are the interface's versions 0 and 1"));
    }
    device.hca.issi = issi;
    done()
}

pub(super) fn query_adapter(_device: &mut Device, _input: &[u8]) -> Reply {
    let mut output = QueryAdapterOut::zeroed();
    let mut adapter = output.query_adapter_struct_mut();
    adapter
        .set_ieee_vendor_id(0x0002c9)
        .set_vsd_vendor_id(0x15b3);
    // A parameter set of its own, which no vendor gave.
    let name = b"OXV0000000001";
    adapter.vsd_contd_psid_mut()[..name.len()].copy_from_slice(name);
    Ok(output.into_inner().to_vec())
}

pub(super) fn query_special_contexts(_device: &mut Device, _input: &[u8]) -> Reply {
    let mut output = QuerySpecialContextsOut::zeroed();
    output
        .set_dump_fill_mkey(DUMP_FILL_MKEY)
        .set_resd_lkey(RESERVED_LKEY)
        .set_null_mkey(NULL_MKEY)
        .set_terminate_scatter_list_mkey(TERMINATE_KEY.to_be())
        .set_repeated_mkey(REPEATED_KEY);
    Ok(output.into_inner().to_vec())
}

pub(super) fn query_capabilities(device: &mut Device, input: &[u8]) -> Reply {
    let input = QueryHcaCapIn::new(input)?;
    if input.other_function() {
        return Err(bad_parameter("there is no other function"));
    }
    let (kind, current) = CapType::of_op_mod(input.op_mod());
    let Some(capability) = device.caps.query(kind, current) else {
        return Err(bad_parameter("capabilities of this kind are not offered"));
    };
    let mut output = vec![0; QueryHcaCapOut::SIZE];
    let mut reply = QueryHcaCapOut::new(&mut output[..])?;
    let place = reply.capability_mut();
    place[..capability.len()].copy_from_slice(capability);
    Ok(output)
}

pub(super) fn set_capabilities(device: &mut Device, input: &[u8]) -> Reply {
    let input = SetHcaCapIn::new(input)?;
    if input.other_function() {
        return Err(bad_parameter("there is no other function"));
    }
    if device.hca.stage == Stage::Initialized {
        return Err(bad_system(
            "capabilities are set before the device is initialized",
        ));
    }
    let (kind, _) = CapType::of_op_mod(input.op_mod());
    device
        .caps
        .set(kind, input.capability())
        .map_err(bad_parameter)?;
    done()
}

pub(super) fn query_pages(device: &mut Device, input: &[u8]) -> Reply {
    let input = QueryPagesIn::new(input)?;
    let wanted = match input.op_mod() {
        1 => pages::BOOT,
        2 => pages::BOOT + pages::INIT,
        3 => 0,
        _ => return Err(bad_parameter("pages are asked for boot, init or later")),
    };
    let mut output = QueryPagesOut::zeroed();
    output
        .set_function_id(device.config.function_id())
        .set_num_pages(wanted.saturating_sub(device.pages.count()));
    Ok(output.into_inner().to_vec())
}

pub(super) fn manage_pages(device: &mut Device, input: &[u8]) -> Reply {
    const CANNOT: u16 = 0;
    const GIVE: u16 = 1;
    const TAKE: u16 = 2;
    let input = ManagePagesIn::new(input)?;
    let count = input.input_num_entries();
    if input.function_id() != device.config.function_id() {
        return Err(bad_parameter("the pages are another function's"));
    }
    match input.op_mod() {
        CANNOT => {
            starve::refused(device);
            done()
        }
        GIVE => {
            let pages: Vec<u64> = input.pas().take(count as usize).collect();
            if pages.len() != count as usize {
                return Err(bad_parameter(
                    "there are fewer pages than entries are claimed",
                ));
            }
            if !device.pages.give(&pages) {
                return Err(bad_parameter("a page is unaligned or was given already"));
            }
            done()
        }
        TAKE => {
            let kept = match device.hca.stage {
                Stage::Initialized => pages::BOOT + pages::INIT,
                _ => 0,
            };
            let back = device.pages.take(count, kept);
            let mut output = vec![0; ManagePagesOut::SIZE + 8 * back.len()];
            let mut reply = ManagePagesOut::new(&mut output[..])?;
            reply.set_output_num_entries(back.len() as u32);
            for (index, page) in back.iter().enumerate() {
                reply.set_pas(index, *page);
            }
            Ok(output)
        }
        _ => Err(bad_operation("pages are given, taken or not to be had")),
    }
}
