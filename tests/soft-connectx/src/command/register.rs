//! Access to registers.

use wqe_format::mlx5::firmware::register::RegisterId;
use wqe_format::mlx5::firmware::register::access::AccessRegisterIn;
use wqe_format::mlx5::firmware::register::counters::PpcntReg;
use wqe_format::mlx5::firmware::register::port::{
    PaosReg, PfccReg, PmlpReg, PmtuReg, PtysReg, PvlcReg,
};

use super::Reply;
use super::refusal::{Refusal, bad_parameter};
use crate::config::LinkLayer;
use crate::device::Device;
use crate::port::{self, MTU};

/// Where a register's bytes begin, in input and output.
const DATA: usize = 16;
/// Bytes of an Ethernet frame beyond its payload of `MTU`.
const ETHERNET_MTU: u16 = 9978;

/// What `PTYS` calls links: the kind of protocol (`proto_mask`), rates and width.
const INFINIBAND: u8 = 1;
const ETHERNET: u8 = 4;
/// SDR to EDR.
const RATES: u16 = 0x3f;
const EDR: u16 = 0x20;
/// One and four lanes.
const WIDTHS: u16 = 0x3;
const FOUR_LANES: u16 = 0x2;
/// 100GBASE-CR4, -SR4, -KR4, -LR4 in `eth_proto_*`.
const ETHERNET_100G: u32 = 0xf << 20;

pub(super) fn access(device: &mut Device, input: &[u8]) -> Reply {
    const WRITE: u16 = 0;
    let view = AccessRegisterIn::new(input)?;
    let data = &input[DATA..];
    let written = view.op_mod() == WRITE;
    let register = match RegisterId(view.register_id()) {
        RegisterId::HOST_ENDIANNESS => data.to_vec(),
        RegisterId::NODE_DESC => node_description(device, data, written),
        RegisterId::PTYS => link_type(device, data)?,
        RegisterId::PMTU => mtu(device, data)?,
        RegisterId::PVLC => lanes(data)?,
        RegisterId::PAOS => administrative_state(device, data, written)?,
        RegisterId::PPCNT => counters(data)?,
        RegisterId::PFCC => flow_control(device, data, written)?,
        RegisterId::PMLP => modules(data)?,
        _ => return Err(bad_parameter("there is no such register")),
    };
    let mut output = vec![0; DATA];
    output.extend(register);
    Ok(output)
}

fn node_description(device: &mut Device, data: &[u8], written: bool) -> Vec<u8> {
    if written {
        let len = data.len().min(64);
        device.port.description[..len].copy_from_slice(&data[..len]);
    }
    device.port.description.to_vec()
}

fn link_type(device: &Device, data: &[u8]) -> Result<Vec<u8>, Refusal> {
    let asked = PtysReg::new(data)?;
    let mut register = PtysReg::zeroed();
    register
        .set_local_port(asked.local_port())
        .set_proto_mask(asked.proto_mask());
    match (device.config.link, asked.proto_mask()) {
        (LinkLayer::InfiniBand, INFINIBAND) => {
            register
                .set_ib_link_width_capability(WIDTHS)
                .set_ib_proto_capability(RATES);
            register
                .set_ib_link_width_admin(WIDTHS)
                .set_ib_proto_admin(RATES);
            if device.port.up {
                register
                    .set_ib_link_width_oper(FOUR_LANES)
                    .set_ib_proto_oper(EDR);
            }
        }
        (LinkLayer::Ethernet, ETHERNET) => {
            register
                .set_eth_proto_capability(ETHERNET_100G)
                .set_eth_proto_admin(ETHERNET_100G);
            if device.port.up {
                register.set_eth_proto_oper(1 << 20);
            }
        }
        _ => {}
    }
    Ok(register.into_inner().to_vec())
}

fn mtu(device: &Device, data: &[u8]) -> Result<Vec<u8>, Refusal> {
    let asked = PmtuReg::new(data)?;
    let largest = match device.config.link {
        LinkLayer::InfiniBand => MTU,
        LinkLayer::Ethernet => ETHERNET_MTU,
    };
    let mut register = PmtuReg::zeroed();
    register.set_local_port(asked.local_port());
    register
        .set_max_mtu(largest)
        .set_admin_mtu(largest)
        .set_oper_mtu(largest);
    Ok(register.into_inner().to_vec())
}

fn lanes(data: &[u8]) -> Result<Vec<u8>, Refusal> {
    let asked = PvlcReg::new(data)?;
    let mut register = PvlcReg::zeroed();
    // Code 4: lanes 0 to 7.
    register.set_local_port(asked.local_port());
    register
        .set_vl_hw_cap(4)
        .set_vl_admin(4)
        .set_vl_operational(4);
    Ok(register.into_inner().to_vec())
}

fn administrative_state(
    device: &mut Device,
    data: &[u8],
    written: bool,
) -> Result<Vec<u8>, Refusal> {
    const UP: u8 = 1;
    const DOWN: u8 = 2;
    let asked = PaosReg::new(data)?;
    // Without this bit a write leaves the administrative state, and reads the register (rdma-core's tests ask so).
    if written && asked.ase() {
        match asked.admin_status() {
            UP => port::want(device, true),
            DOWN => port::want(device, false),
            _ => return Err(bad_parameter("the port is brought up or down")),
        }
    }
    let status = |up| if up { UP } else { DOWN };
    let mut register = PaosReg::zeroed();
    register.set_local_port(asked.local_port());
    register
        .set_admin_status(status(device.port.wanted))
        .set_oper_status(status(device.port.up));
    Ok(register.into_inner().to_vec())
}

/// Counters of the port, in groups; this model's cable never errs.
fn counters(data: &[u8]) -> Result<Vec<u8>, Refusal> {
    let asked = PpcntReg::new(data)?;
    let mut register = PpcntReg::zeroed();
    register
        .set_swid(asked.swid())
        .set_local_port(asked.local_port())
        .set_pnat(asked.pnat());
    register.set_grp(asked.grp()).set_prio_tc(asked.prio_tc());
    Ok(register.into_inner().to_vec())
}

/// What pauses the other end: kept, though this model's cable is never full.
fn flow_control(device: &mut Device, data: &[u8], written: bool) -> Result<Vec<u8>, Refusal> {
    let asked = PfccReg::new(data)?;
    let kept = &mut device.port.nic.flow_control;
    if written {
        kept.copy_from_slice(&asked.as_bytes()[..PfccReg::SIZE]);
    }
    let mut register = PfccReg::new(kept.to_vec())?;
    register.set_local_port(asked.local_port());
    Ok(register.into_inner())
}

/// Lanes of the port: four of module 0.
fn modules(data: &[u8]) -> Result<Vec<u8>, Refusal> {
    let asked = PmlpReg::new(data)?;
    let mut register = PmlpReg::zeroed();
    register.set_local_port(asked.local_port()).set_width(4);
    register
        .set_lane1_module_mapping(1 << 16)
        .set_lane2_module_mapping(2 << 16);
    register.set_lane3_module_mapping(3 << 16);
    Ok(register.into_inner().to_vec())
}
