//! Ports: state, addresses, speed, partition keys.

use uverbs_abi::types::{PortAttrEx, PortCapFlags, QueryPortFlags};
use uverbs_abi::write::device::PortAttr;
use wqe_format::mlx5::firmware::Opcode;
use wqe_format::mlx5::firmware::hca_vport::{
    QueryHcaVportContextIn, QueryHcaVportContextOut, QueryHcaVportPkeyIn, QueryHcaVportPkeyOut,
};
use wqe_format::mlx5::firmware::register::RegisterId;
use wqe_format::mlx5::firmware::register::access::{AccessRegisterIn, AccessRegisterOut};
use wqe_format::mlx5::firmware::register::port::{PmtuReg, PtysReg, PvlcReg};
use wqe_format::mlx5::firmware::vport::{QueryVportStateIn, QueryVportStateOut};

use super::Objects;
use crate::sys::errno::Errno;

/// ACCESS_REG that reads (`MLX5_ACCESS_REGISTER_IN_OP_MOD_READ`).
const READ: u16 = 1;
/// PTYS of an InfiniBand or an Ethernet port (Linux `mlx5/port.h` `MLX5_PTYS_IB`, `MLX5_PTYS_EN`).
const PTYS_IB: u8 = 1;
const PTYS_ETHERNET: u8 = 4;

/// Link layers (`IBV_LINK_LAYER_*`).
const LINK_INFINIBAND: u8 = 1;
const LINK_ETHERNET: u8 = 2;

/// Port states (`enum ibv_port_state`) and physical ones (`enum ib_port_phys_state`).
const DOWN: u8 = 1;
const ACTIVE: u8 = 4;
const PHYSICAL_DISABLED: u8 = 3;
const PHYSICAL_UP: u8 = 5;

/// Speeds by lane (`enum ib_port_speed`) and widths.
const SDR: u8 = 1;
const QDR: u8 = 4;
const EDR: u8 = 32;
const HDR: u8 = 64;
const WIDTH_1X: u8 = 1;
const WIDTH_2X: u8 = 16;
const WIDTH_4X: u8 = 2;

impl Objects {
    /// Reads a register of port 1.
    fn register<const LEN: usize>(
        &self,
        id: RegisterId,
        ask: [u8; LEN],
    ) -> Result<[u8; LEN], Errno> {
        let mut input = vec![0; AccessRegisterIn::SIZE + LEN];
        input[AccessRegisterIn::SIZE..].copy_from_slice(&ask);
        let mut command = AccessRegisterIn::new(&mut input[..]).map_err(|_| Errno(libc::EINVAL))?;
        command
            .set_opcode(Opcode::ACCESS_REG.0)
            .set_op_mod(READ)
            .set_register_id(id.0);
        let mut output = vec![0; AccessRegisterOut::SIZE + LEN];
        self.platform.execute(&input, &mut output)?;
        let mut register = [0; LEN];
        register.copy_from_slice(&output[AccessRegisterOut::SIZE..]);
        Ok(register)
    }

    fn ptys(&self, protocol: u8) -> Result<PtysReg<[u8; PtysReg::SIZE]>, Errno> {
        let mut ask = PtysReg::zeroed();
        ask.set_local_port(1).set_proto_mask(protocol);
        let bytes = self.register(RegisterId::PTYS, ask.into_inner())?;
        PtysReg::new(bytes).map_err(|_| Errno(libc::EIO))
    }

    fn pmtu(&self) -> Result<PmtuReg<[u8; PmtuReg::SIZE]>, Errno> {
        let mut ask = PmtuReg::zeroed();
        ask.set_local_port(1);
        let bytes = self.register(RegisterId::PMTU, ask.into_inner())?;
        PmtuReg::new(bytes).map_err(|_| Errno(libc::EIO))
    }

    /// How many partition keys a port has room for (`mlx5_to_sw_pkey_sz`: 128 << n, up to 5).
    pub(super) fn pkey_count(&self) -> u16 {
        if self.caps.is_ethernet() {
            return 1;
        }
        128 << self.caps.general.pkey_table_size().min(5)
    }

    /// A partition key. `EINVAL` if there is no such port or index.
    pub fn query_pkey(&self, port: u8, index: u16) -> Result<u16, Errno> {
        self.check_port(port)?;
        if index >= self.pkey_count() {
            return Err(Errno(libc::EINVAL));
        }
        if self.caps.is_ethernet() {
            // the only one there is (`IB_DEFAULT_PKEY_FULL`)
            return Ok(0xffff);
        }
        let mut input = QueryHcaVportPkeyIn::zeroed();
        input
            .set_opcode(Opcode::QUERY_HCA_VPORT_PKEY.0)
            .set_port_num(1)
            .set_pkey_index(index);
        let mut output = [0; QueryHcaVportPkeyOut::SIZE + 4];
        self.platform.execute(input.as_bytes(), &mut output)?;
        let output = QueryHcaVportPkeyOut::new(&output[..]).map_err(|_| Errno(libc::EIO))?;
        let key = output.pkey().next().map(|key| key.pkey());
        key.ok_or(Errno(libc::EIO))
    }

    pub(super) fn check_port(&self, port: u8) -> Result<(), Errno> {
        match (1..=self.caps.general.num_ports()).contains(&port) {
            true => Ok(()),
            false => Err(Errno(libc::EINVAL)),
        }
    }

    /// Attributes of a port.
    pub fn query_port(&self, port: u8) -> Result<PortAttrEx, Errno> {
        self.check_port(port)?;
        let mut attr = PortAttr {
            max_msg_sz: 1 << self.caps.general.log_max_msg().min(31),
            gid_tbl_len: self.gid_count(),
            pkey_tbl_len: self.pkey_count(),
            ..PortAttr::default()
        };
        if self.caps.is_ethernet() {
            self.ethernet_port(&mut attr)?;
        } else {
            self.infiniband_port(&mut attr)?;
        }
        Ok(PortAttrEx {
            active_speed_ex: attr.active_speed.into(),
            legacy_resp: attr,
            ..PortAttrEx::default()
        })
    }

    /// The InfiniBand context of the port.
    pub(super) fn hca_vport(
        &self,
    ) -> Result<QueryHcaVportContextOut<[u8; QueryHcaVportContextOut::SIZE]>, Errno> {
        let mut input = QueryHcaVportContextIn::zeroed();
        input
            .set_opcode(Opcode::QUERY_HCA_VPORT_CONTEXT.0)
            .set_port_num(1);
        let mut output = QueryHcaVportContextOut::zeroed();
        self.platform
            .execute(input.as_bytes(), output.as_bytes_mut())?;
        Ok(output)
    }

    fn infiniband_port(&self, attr: &mut PortAttr) -> Result<(), Errno> {
        let output = self.hca_vport()?;
        let port = output.hca_vport_context();
        attr.lid = port.lid();
        attr.lmc = port.lmc();
        attr.sm_lid = port.sm_lid();
        attr.sm_sl = port.sm_sl();
        attr.state = port.vport_state();
        attr.phys_state = port.port_physical_state();
        attr.port_cap_flags = port.cap_mask1();
        attr.bad_pkey_cntr = port.pkey_violation_counter().into();
        attr.qkey_viol_cntr = port.qkey_violation_counter().into();
        attr.subnet_timeout = port.subnet_timeout();
        attr.init_type_reply = port.init_type_reply();
        attr.link_layer = LINK_INFINIBAND;
        if port.grh_required() {
            attr.flags |= QueryPortFlags::GRH_REQUIRED;
        }
        let types = self.ptys(PTYS_IB)?;
        attr.active_width = width(types.ib_link_width_oper());
        // the register has the numbers of `enum ib_port_speed`
        attr.active_speed = types.ib_proto_oper() as u8;
        let mtu = self.pmtu()?;
        attr.max_mtu = mtu_number(mtu.max_mtu());
        attr.active_mtu = mtu_number(mtu.oper_mtu());
        let mut ask = PvlcReg::zeroed();
        ask.set_local_port(1);
        let lanes = self.register(RegisterId::PVLC, ask.into_inner())?;
        let lanes = PvlcReg::new(lanes).map_err(|_| Errno(libc::EIO))?;
        attr.max_vl_num = lanes_number(lanes.vl_hw_cap());
        Ok(())
    }

    fn ethernet_port(&self, attr: &mut PortAttr) -> Result<(), Errno> {
        attr.link_layer = LINK_ETHERNET;
        attr.port_cap_flags = PortCapFlags::CM_SUP.0 | PortCapFlags::IP_BASED_GIDS.0;
        attr.flags |= QueryPortFlags::GRH_REQUIRED;
        let types = self.ptys(PTYS_ETHERNET)?;
        (attr.active_width, attr.active_speed) = ethernet_speed(types.eth_proto_oper());
        attr.max_mtu = mtu_number(4096);
        // what is left of a frame for a packet's payload (`iboe_get_mtu`: 24 bytes of headers and 66 more)
        const HEADERS: u16 = 14 + 40 + 12 + 28 + 4;
        let frame = self.pmtu()?.oper_mtu();
        attr.active_mtu = mtu_number(frame.saturating_sub(HEADERS)).max(1);
        let mut input = QueryVportStateIn::zeroed();
        input.set_opcode(Opcode::QUERY_VPORT_STATE.0);
        let mut output = QueryVportStateOut::zeroed();
        self.platform
            .execute(input.as_bytes(), output.as_bytes_mut())?;
        (attr.state, attr.phys_state) = match output.state() {
            0 => (DOWN, PHYSICAL_DISABLED),
            _ => (ACTIVE, PHYSICAL_UP),
        };
        Ok(())
    }
}

/// `enum ibv_mtu` of a number of bytes: the largest that fits.
fn mtu_number(bytes: u16) -> u8 {
    match bytes {
        4096.. => 5,
        2048.. => 4,
        1024.. => 3,
        512.. => 2,
        256.. => 1,
        _ => 0,
    }
}

/// Widths of the register (Linux `mlx5/port.h` `MLX5_PTYS_WIDTH_*`) as `enum ib_port_width`.
fn width(register: u16) -> u8 {
    match register {
        2 => WIDTH_2X,
        4 => WIDTH_4X,
        // 8x, 12x
        8 => 4,
        16 => 8,
        _ => WIDTH_1X,
    }
}

/// `enum ib_port_vl_num`-like codes of a number of virtual lanes (IBTA 14.2.5.6, `VLCap`).
fn lanes_number(lanes: u8) -> u8 {
    match lanes {
        1 => 1,
        2 => 2,
        4 => 3,
        8 => 4,
        15 => 5,
        other => other,
    }
}

/// Width and speed of an Ethernet link, by the bit of `eth_proto_oper` (Linux `mlx5/port.h`
/// `enum mlx5e_link_mode`; `translate_eth_legacy_proto_oper` of the kernel's driver).
fn ethernet_speed(oper: u32) -> (u8, u8) {
    match oper.checked_ilog2() {
        // 1 Gbit/s of three kinds
        Some(0 | 1 | 17 | 25) => (WIDTH_1X, SDR),
        // 10
        Some(4 | 12 | 13 | 14 | 26) => (WIDTH_1X, QDR),
        // 25
        Some(27..=29) => (WIDTH_1X, EDR),
        // 40
        Some(6 | 7 | 15 | 16) => (WIDTH_4X, QDR),
        // 50
        Some(18 | 30 | 31) => (WIDTH_1X, HDR),
        // 56
        Some(8) => (WIDTH_4X, 16),
        // 100
        Some(20..=23) => (WIDTH_4X, EDR),
        _ => (WIDTH_4X, QDR),
    }
}
