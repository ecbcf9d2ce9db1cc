//! The InfiniBand side of the port.

use wqe_format::mlx5::firmware::hca_vport::{
    HcaVportContext, ModifyHcaVportContextIn, QueryHcaVportContextIn, QueryHcaVportContextOut,
    QueryHcaVportGidIn, QueryHcaVportGidOut, QueryHcaVportPkeyIn, QueryHcaVportPkeyOut,
};
use wqe_format::mlx5::firmware::lag::{QueryLagIn, QueryLagOut};
use wqe_format::mlx5::firmware::vport::{QueryVportStateIn, QueryVportStateOut};

use super::refusal::{Refusal, bad_index, bad_parameter};
use super::{Reply, done};
use crate::device::Device;
use crate::port::{GIDS, PKEYS};

/// The index that means a whole table.
const WHOLE_TABLE: u16 = 0xffff;

/// States of a port (IBTA 14.2.5.6).
const PORT_DOWN: u8 = 1;
const PORT_ACTIVE: u8 = 4;
const PHYSICAL_POLLING: u8 = 2;
const PHYSICAL_LINK_UP: u8 = 5;

/// What of the port's capabilities the host may set: that it has connection management, a
/// subnet manager, an SNMP agent, device management, vendor classes, notices of changes
/// (IBTA 14.2.5.6 `CapabilityMask`).
const SETTABLE: u32 = 1 << 16 | 1 << 1 | 1 << 17 | 1 << 19 | 1 << 20 | 1 << 22;

fn own(other: bool) -> Result<(), Refusal> {
    if other {
        Err(bad_parameter("there is no other port"))
    } else {
        Ok(())
    }
}

pub(super) fn query_context(device: &mut Device, input: &[u8]) -> Reply {
    own(QueryHcaVportContextIn::new(input)?.other_vport())?;
    let port = &device.port;
    let state = if port.up { PORT_ACTIVE } else { PORT_DOWN };
    let mut output = QueryHcaVportContextOut::zeroed();
    let mut context: HcaVportContext<&mut [u8]> = output.hca_vport_context_mut();
    context
        .set_has_smi(!device.config.virtual_function)
        .set_port_physical_state(if port.up {
            PHYSICAL_LINK_UP
        } else {
            PHYSICAL_POLLING
        })
        .set_port_state(state)
        .set_vport_state(state)
        .set_system_image_guid(port.node_guid)
        .set_port_guid(port.guid)
        .set_node_guid(port.node_guid)
        .set_cap_mask1(port.capabilities)
        .set_cap_mask1_field_select(SETTABLE)
        .set_lid(port.lid)
        .set_sm_lid(port.sm_lid)
        .set_subnet_timeout(18);
    Ok(output.into_inner().to_vec())
}

pub(super) fn modify_context(device: &mut Device, input: &[u8]) -> Reply {
    let input = ModifyHcaVportContextIn::new(input)?;
    own(input.other_vport())?;
    let context = input.hca_vport_context();
    // `MLX5_HCA_VPORT_SEL_*`: 0 port GUID, 1 node GUID, 2 state policy.
    let select = context.field_select();
    if select & 1 != 0 {
        device.port.guid = context.port_guid();
    }
    if select & 2 != 0 {
        device.port.node_guid = context.node_guid();
    }
    // Capabilities have a mask of their own, and no bit in `field_select`.
    let change = context.cap_mask1_field_select();
    if change & !SETTABLE != 0 {
        return Err(bad_parameter(
            "the host can't set these capabilities of the port",
        ));
    }
    let kept = device.port.capabilities & !change;
    device.port.capabilities = kept | context.cap_mask1() & change;
    done()
}

/// The entries of a table that an index names.
fn entries(index: u16, size: u16) -> Result<std::ops::Range<u16>, Refusal> {
    match index {
        WHOLE_TABLE => Ok(0..size),
        index if index < size => Ok(index..index + 1),
        _ => Err(bad_index("the table is shorter")),
    }
}

pub(super) fn query_gid(device: &mut Device, input: &[u8]) -> Reply {
    let input = QueryHcaVportGidIn::new(input)?;
    own(input.other_vport())?;
    let entries = entries(input.gid_index(), GIDS)?;
    let mut output = QueryHcaVportGidOut::zeroed();
    output.set_gids_num(entries.len() as u16);
    let mut output = output.into_inner().to_vec();
    output.extend(entries.flat_map(|index| device.port.gid(index)));
    Ok(output)
}

pub(super) fn query_pkey(device: &mut Device, input: &[u8]) -> Reply {
    let input = QueryHcaVportPkeyIn::new(input)?;
    own(input.other_vport())?;
    let entries = entries(input.pkey_index(), PKEYS)?;
    let mut output = QueryHcaVportPkeyOut::zeroed().into_inner().to_vec();
    output.extend(entries.flat_map(|index| u32::from(device.port.pkey(index)).to_be_bytes()));
    Ok(output)
}

pub(super) fn query_state(device: &mut Device, input: &[u8]) -> Reply {
    own(QueryVportStateIn::new(input)?.other_vport())?;
    let mut output = QueryVportStateOut::zeroed();
    output.set_admin_state(1).set_state(device.port.up.into());
    Ok(output.into_inner().to_vec())
}

/// The port is on its own: `lag_state` 0. Programs ask without looking at `lag_master` (UCX takes `lag_state` 0 for the answer
/// of a device whose aggregation is off, `uct_ib_mlx5_devx_md_open`).
pub(super) fn query_lag(_device: &mut Device, input: &[u8]) -> Reply {
    QueryLagIn::new(input)?;
    Ok(QueryLagOut::zeroed().into_inner().to_vec())
}
