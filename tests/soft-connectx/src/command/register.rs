//! Access to registers.

use wqe_format::mlx5::firmware::register::RegisterId;
use wqe_format::mlx5::firmware::register::access::AccessRegisterIn;
use wqe_format::mlx5::firmware::register::counters::{
    Eth2863CntrsGrpDataLayout, Eth8023CntrsGrpDataLayout, IbExtPortCntrsGrpDataLayout, PpcntReg,
};
use wqe_format::mlx5::firmware::register::port::{
    PaosReg, PfccReg, PmlpReg, PmtuReg, PtysReg, PvlcReg,
};

use super::Reply;
use super::refusal::{Refusal, bad_parameter};
use crate::config::LinkLayer;
use crate::device::Device;
use crate::port::{self, Count, FrameCount, MTU, NicPort, Traffic};

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
        RegisterId::PPCNT => counters(device, data)?,
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
    // Without this bit a write leaves the administrative state, and reads the register (rdma-core's tests ask so). A virtual
    // function's port is not its own.
    if written && asked.ase() && !device.config.virtual_function {
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

/// Groups of the port's counters (`MLX5_*_COUNTERS_GROUP` of Linux include/linux/mlx5/device.h).
const GROUP_IEEE_802_3: u8 = 0x0;
const GROUP_RFC_2863: u8 = 0x1;
const GROUP_INFINIBAND_EXTENDED: u8 = 0x21;

/// Octets of the frame check sequence, which RFC 2863 counts (`ifInOctets`: with framing characters) and IEEE 802.3 does
/// not (5.2.2.1.8, `aOctetsTransmittedOK`).
const CHECK: u64 = 4;

/// Packets of any kind, and octets in them.
fn sum<const N: usize>(counts: [(u64, u64); N]) -> (u64, u64) {
    (counts.iter()).fold((0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1))
}

/// Sets both halves of counters in a group's layout.
macro_rules! set_counters {
    ($layout:ident, $($high:ident $low:ident = $value:expr,)*) => {
        $({
            let value: u64 = $value;
            $layout.$high((value >> 32) as u32).$low(value as u32);
        })*
    };
}

/// Counters of the port, in groups; this model's cable never errs, so that those of errors stay 0.
fn counters(device: &Device, data: &[u8]) -> Result<Vec<u8>, Refusal> {
    let asked = PpcntReg::new(data)?;
    let mut register = PpcntReg::zeroed();
    register
        .set_swid(asked.swid())
        .set_local_port(asked.local_port())
        .set_pnat(asked.pnat());
    register.set_grp(asked.grp()).set_prio_tc(asked.prio_tc());
    let set = register.counter_set_mut();
    let (rdma, nic) = (&device.port.traffic, &device.port.nic);
    match asked.grp() {
        GROUP_INFINIBAND_EXTENDED => infiniband_counters(rdma, set)?,
        GROUP_IEEE_802_3 => ethernet_counters(rdma, nic, set)?,
        GROUP_RFC_2863 => interface_counters(rdma, nic, set)?,
        _ => {}
    }
    Ok(register.into_inner().to_vec())
}

/// Data in units of four octets (IBTA 16.1.3.5, `PortXmitData`).
fn infiniband_counters(rdma: &Traffic, set: &mut [u8]) -> Result<(), Refusal> {
    let mut group = IbExtPortCntrsGrpDataLayout::new(set)?;
    let sent = sum([rdma.sent.unicast, rdma.sent.multicast]);
    let received = sum([rdma.received.unicast, rdma.received.multicast]);
    set_counters!(group,
        set_port_xmit_data_high set_port_xmit_data_low = sent.1 / 4,
        set_port_rcv_data_high set_port_rcv_data_low = received.1 / 4,
        set_port_xmit_pkts_high set_port_xmit_pkts_low = sent.0,
        set_port_rcv_pkts_high set_port_rcv_pkts_low = received.0,
        set_port_unicast_xmit_pkts_high set_port_unicast_xmit_pkts_low = rdma.sent.unicast.0,
        set_port_multicast_xmit_pkts_high set_port_multicast_xmit_pkts_low = rdma.sent.multicast.0,
        set_port_unicast_rcv_pkts_high set_port_unicast_rcv_pkts_low = rdma.received.unicast.0,
        set_port_multicast_rcv_pkts_high set_port_multicast_rcv_pkts_low = rdma.received.multicast.0,
    );
    Ok(())
}

/// Frames of either kind: RDMA packets are frames as well.
fn ethernet_counters(rdma: &Traffic, nic: &NicPort, set: &mut [u8]) -> Result<(), Refusal> {
    let mut group = Eth8023CntrsGrpDataLayout::new(set)?;
    let all = |rdma: &Count, nic: &FrameCount| {
        let kinds = [nic.unicast, nic.multicast, nic.broadcast];
        sum([sum(kinds), rdma.unicast, rdma.multicast])
    };
    let sent = all(&rdma.sent, &nic.sent);
    let received = all(&rdma.received, &nic.received);
    set_counters!(group,
        set_a_frames_transmitted_ok_high set_a_frames_transmitted_ok_low = sent.0,
        set_a_frames_received_ok_high set_a_frames_received_ok_low = received.0,
        set_a_octets_transmitted_ok_high set_a_octets_transmitted_ok_low = sent.1,
        set_a_octets_received_ok_high set_a_octets_received_ok_low = received.1,
        set_a_multicast_frames_xmitted_ok_high set_a_multicast_frames_xmitted_ok_low
            = nic.sent.multicast.0 + rdma.sent.multicast.0,
        set_a_broadcast_frames_xmitted_ok_high set_a_broadcast_frames_xmitted_ok_low = nic.sent.broadcast.0,
        set_a_multicast_frames_received_ok_high set_a_multicast_frames_received_ok_low
            = nic.received.multicast.0 + rdma.received.multicast.0,
        set_a_broadcast_frames_received_ok_high set_a_broadcast_frames_received_ok_low = nic.received.broadcast.0,
    );
    Ok(())
}

fn interface_counters(rdma: &Traffic, nic: &NicPort, set: &mut [u8]) -> Result<(), Refusal> {
    let mut group = Eth2863CntrsGrpDataLayout::new(set)?;
    let octets = |rdma: &Count, nic: &FrameCount| {
        let kinds = [nic.unicast, nic.multicast, nic.broadcast];
        let (frames, octets) = sum([sum(kinds), rdma.unicast, rdma.multicast]);
        octets + CHECK * frames
    };
    set_counters!(group,
        set_if_out_octets_high set_if_out_octets_low = octets(&rdma.sent, &nic.sent),
        set_if_in_octets_high set_if_in_octets_low = octets(&rdma.received, &nic.received),
        set_if_out_ucast_pkts_high set_if_out_ucast_pkts_low = rdma.sent.unicast.0 + nic.sent.unicast.0,
        set_if_in_ucast_pkts_high set_if_in_ucast_pkts_low = rdma.received.unicast.0 + nic.received.unicast.0,
        set_if_out_multicast_pkts_high set_if_out_multicast_pkts_low
            = rdma.sent.multicast.0 + nic.sent.multicast.0,
        set_if_in_multicast_pkts_high set_if_in_multicast_pkts_low
            = rdma.received.multicast.0 + nic.received.multicast.0,
        set_if_out_broadcast_pkts_high set_if_out_broadcast_pkts_low = nic.sent.broadcast.0,
        set_if_in_broadcast_pkts_high set_if_in_broadcast_pkts_low = nic.received.broadcast.0,
    );
    Ok(())
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
