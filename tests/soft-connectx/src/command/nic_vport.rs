//! The Ethernet side of the port: addresses, filters, the table of RoCE addresses.

use wqe_format::mlx5::firmware::nic_vport::{
    ModifyNicVportContextIn, NicVportContext, QueryNicVportContextIn, QueryNicVportContextOut,
};
use wqe_format::mlx5::firmware::roce::{QueryRoceAddressIn, QueryRoceAddressOut, SetRoceAddressIn};

use super::refusal::{Refusal, bad_index, bad_parameter};
use super::{Reply, done, owner};
use crate::device::Device;
use crate::port::{NicPort, RoceAddress};

fn own(other: bool) -> Result<(), Refusal> {
    if other {
        Err(bad_parameter("there is no other port"))
    } else {
        Ok(())
    }
}

fn list(kind: u8) -> Result<usize, Refusal> {
    match kind {
        0..=2 => Ok(kind.into()),
        _ => Err(bad_parameter(
            "addresses are listed for one, for many, or for VLANs",
        )),
    }
}

pub(super) fn query(device: &mut Device, input: &[u8]) -> Reply {
    let view = QueryNicVportContextIn::new(input)?;
    own(view.other_vport())?;
    let (kind, nic) = (view.allowed_list_type(), &device.port.nic);
    let entries = &nic.lists[list(kind)?];
    let mut output = QueryNicVportContextOut::zeroed();
    let mut context = output.nic_vport_context_mut();
    context.as_bytes_mut().copy_from_slice(&nic.context);
    context
        .set_allowed_list_type(kind)
        .set_allowed_list_size(entries.len() as u16);
    context
        .set_node_guid(device.port.node_guid)
        .set_port_guid(device.port.guid);
    context.set_system_image_guid(device.port.node_guid);
    let mut output = output.into_inner().to_vec();
    output.extend(entries.iter().flat_map(|entry| entry.to_be_bytes()));
    Ok(output)
}

pub(super) fn modify(device: &mut Device, input: &[u8]) -> Reply {
    let view = ModifyNicVportContextIn::new(input)?;
    own(view.other_vport())?;
    let (select, new) = (view.field_select(), view.nic_vport_context());
    let kind = list(new.allowed_list_type())?;
    let count = usize::from(new.allowed_list_size());
    let entries = &input[ModifyNicVportContextIn::SIZE..];
    let entries: Vec<u64> = owner::addresses(entries).take(count).collect();
    if select.addresses_list() && entries.len() != count {
        return Err(bad_parameter("there are fewer addresses than are claimed"));
    }
    let port = &mut device.port;
    if select.node_guid() {
        port.node_guid = new.node_guid();
    }
    if select.port_guid() {
        port.guid = new.port_guid();
    }
    let NicPort { context, lists, .. } = &mut port.nic;
    let mut kept = NicVportContext::new(&mut context[..])?;
    if select.addresses_list() {
        lists[kind] = entries;
    }
    if select.roce_en() {
        kept.set_roce_en(new.roce_en());
    }
    if select.mtu() {
        kept.set_mtu(new.mtu());
    }
    if select.min_inline() {
        kept.set_min_wqe_inline_mode(new.min_wqe_inline_mode());
    }
    if select.promisc() {
        kept.set_promisc_uc(new.promisc_uc())
            .set_promisc_mc(new.promisc_mc());
        kept.set_promisc_all(new.promisc_all());
    }
    if select.permanent_address() {
        let address = new.permanent_address();
        let mut place = kept.permanent_address_mut();
        place.set_mac_addr_47_32(address.mac_addr_47_32());
        place.set_mac_addr_31_0(address.mac_addr_31_0());
    }
    if select.disable_mc_local_lb() {
        kept.set_disable_mc_local_lb(new.disable_mc_local_lb());
    }
    if select.disable_uc_local_lb() {
        kept.set_disable_uc_local_lb(new.disable_uc_local_lb());
    }
    done()
}

pub(super) fn set_roce_address(device: &mut Device, input: &[u8]) -> Reply {
    let view = SetRoceAddressIn::new(input)?;
    let index = usize::from(view.roce_address_index());
    let place = device.port.nic.roce.get_mut(index);
    let place = place.ok_or(bad_index("the table of addresses is shorter"))?;
    *place = RoceAddress::parse(&view.roce_address());
    done()
}

pub(super) fn query_roce_address(device: &mut Device, input: &[u8]) -> Reply {
    let view = QueryRoceAddressIn::new(input)?;
    let index = usize::from(view.roce_address_index());
    let address = device.port.nic.roce.get(index);
    let address = address.ok_or(bad_index("the table of addresses is shorter"))?;
    let mut output = QueryRoceAddressOut::zeroed();
    address.emit(&mut output.roce_address_mut());
    Ok(output.into_inner().to_vec())
}
