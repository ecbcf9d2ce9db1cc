//! What a virtual function may not do: it is the physical function's to do.
//!
//! Which commands Linux sends of physical functions only: HOST_ENDIANNESS (`set_hca_ctrl` of `main.c`); and of managers of the
//! ports only, how a port pauses (`mlx5e_ethtool_set_pauseparam`), and a port's addresses and GUIDs (`vport.c`). A virtual
//! port's subnet management interface is its card's. What Linux says of virtual functions too is done: an Ethernet interface
//! does not come up without PMTU, and says up and down by PAOS, which is without effect here ([`register`](super::register)).
//! Unproven on hardware: the status of refusals.

use wqe_format::mlx5::firmware::Opcode;
use wqe_format::mlx5::firmware::hca_vport::ModifyHcaVportContextIn;
use wqe_format::mlx5::firmware::nic_vport::ModifyNicVportContextIn;
use wqe_format::mlx5::firmware::register::RegisterId;
use wqe_format::mlx5::firmware::register::access::AccessRegisterIn;

use super::refusal::{Refusal, bad_operation, bad_parameter};

/// Whether a virtual function may say this.
pub(super) fn may(opcode: Opcode, input: &[u8]) -> Result<(), Refusal> {
    match opcode {
        Opcode::MAD_IFC => Err(bad_operation(
            "a virtual function has no subnet management interface",
        )),
        Opcode::ACCESS_REG => register(&AccessRegisterIn::new(input)?),
        Opcode::MODIFY_NIC_VPORT_CONTEXT => {
            let view = ModifyNicVportContextIn::new(input)?;
            let select = view.field_select();
            match select.permanent_address() || select.node_guid() || select.port_guid() {
                true => Err(bad_parameter("who a port is, its physical function says")),
                false => Ok(()),
            }
        }
        Opcode::MODIFY_HCA_VPORT_CONTEXT => {
            let view = ModifyHcaVportContextIn::new(input)?;
            match view.hca_vport_context().field_select() {
                0 => Ok(()),
                _ => Err(bad_parameter("who a port is, its physical function says")),
            }
        }
        _ => Ok(()),
    }
}

fn register(view: &AccessRegisterIn<&[u8]>) -> Result<(), Refusal> {
    const WRITE: u16 = 0;
    match RegisterId(view.register_id()) {
        RegisterId::HOST_ENDIANNESS => Err(bad_operation(
            "the physical function knows the host already",
        )),
        RegisterId::PFCC if view.op_mod() == WRITE => {
            Err(bad_operation("the port is the physical function's"))
        }
        _ => Ok(()),
    }
}
