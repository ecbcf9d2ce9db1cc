//! Which function is which command's, and when it may come.

use wqe_format::mlx5::firmware::Opcode;

use super::hca::Stage;
use super::refusal::{bad_operation, bad_parameter, bad_system};
use super::{
    Reply, counter, cq, dct, domains, done, eq, flow, hca, mad, memic, mkey, nic_vport, object,
    owner, pacing, page_fault, qp, qp_modify, raw, register, srq, steering, virtual_function,
    vport, xrq,
};
use crate::completion;
use crate::device::Device;

type Command = fn(&mut Device, &[u8]) -> Reply;

/// How far up the device must be for a command.
fn needs(opcode: Opcode) -> Stage {
    match opcode {
        Opcode::ENABLE_HCA | Opcode::DISABLE_HCA => Stage::Disabled,
        Opcode::QUERY_ISSI
        | Opcode::SET_ISSI
        | Opcode::QUERY_PAGES
        | Opcode::MANAGE_PAGES
        | Opcode::QUERY_HCA_CAP
        | Opcode::SET_HCA_CAP
        | Opcode::QUERY_ADAPTER
        | Opcode::ACCESS_REG
        | Opcode::TEARDOWN_HCA
        | Opcode::INIT_HCA => Stage::Enabled,
        _ => Stage::Initialized,
    }
}

pub(super) fn dispatch(device: &mut Device, opcode: Opcode, input: &[u8]) -> Reply {
    let command = command(opcode).ok_or(bad_operation("there is no such command"))?;
    if (device.hca.stage as u8) < needs(opcode) as u8 {
        return Err(bad_system("the device is not up far enough"));
    }
    if device.config.virtual_function {
        virtual_function::may(opcode, input)?;
    }
    let uid = owner::uid(input);
    if uid != 0 && uid != owner::SHARED && device.resources.uctxs.get(u32::from(uid)).is_none() {
        return Err(bad_parameter("there is no such user context"));
    }
    // What a command leaves behind, completions of before don't come to any more.
    completion::settle_all(device);
    command(device, input)
}

fn command(opcode: Opcode) -> Option<Command> {
    Some(match opcode {
        Opcode::ENABLE_HCA => hca::enable,
        Opcode::DISABLE_HCA => hca::disable,
        Opcode::INIT_HCA => hca::init,
        Opcode::TEARDOWN_HCA => hca::teardown,
        Opcode::QUERY_ISSI => hca::query_issi,
        Opcode::SET_ISSI => hca::set_issi,
        Opcode::SET_DRIVER_VERSION => |_, _| done(),
        Opcode::QUERY_ADAPTER => hca::query_adapter,
        Opcode::QUERY_SPECIAL_CONTEXTS => hca::query_special_contexts,
        Opcode::QUERY_HCA_CAP => hca::query_capabilities,
        Opcode::SET_HCA_CAP => hca::set_capabilities,
        Opcode::QUERY_PAGES => hca::query_pages,
        Opcode::MANAGE_PAGES => hca::manage_pages,
        Opcode::ALLOC_UAR => domains::alloc_uar,
        Opcode::DEALLOC_UAR => domains::dealloc_uar,
        Opcode::ALLOC_PD => domains::alloc_pd,
        Opcode::DEALLOC_PD => domains::dealloc_pd,
        Opcode::ALLOC_XRCD => domains::alloc_xrcd,
        Opcode::DEALLOC_XRCD => domains::dealloc_xrcd,
        Opcode::ALLOC_TRANSPORT_DOMAIN => domains::alloc_transport_domain,
        Opcode::DEALLOC_TRANSPORT_DOMAIN => domains::dealloc_transport_domain,
        Opcode::CREATE_UCTX => domains::create_uctx,
        Opcode::DESTROY_UCTX => domains::destroy_uctx,
        Opcode::CREATE_UMEM => domains::create_umem,
        Opcode::DESTROY_UMEM => domains::destroy_umem,
        Opcode::CREATE_EQ => eq::create,
        Opcode::DESTROY_EQ => eq::destroy,
        Opcode::QUERY_EQ => eq::query,
        Opcode::QUERY_HCA_VPORT_CONTEXT => vport::query_context,
        Opcode::MODIFY_HCA_VPORT_CONTEXT => vport::modify_context,
        Opcode::QUERY_HCA_VPORT_GID => vport::query_gid,
        Opcode::QUERY_HCA_VPORT_PKEY => vport::query_pkey,
        Opcode::QUERY_VPORT_STATE => vport::query_state,
        Opcode::QUERY_LAG => vport::query_lag,
        Opcode::ALLOC_Q_COUNTER => counter::alloc,
        Opcode::DEALLOC_Q_COUNTER => counter::dealloc,
        Opcode::QUERY_Q_COUNTER => counter::query,
        Opcode::QUERY_VPORT_COUNTER => counter::query_vport,
        Opcode::ACCESS_REG => register::access,
        Opcode::CREATE_CQ => cq::create,
        Opcode::DESTROY_CQ => cq::destroy,
        Opcode::QUERY_CQ => cq::query,
        Opcode::MODIFY_CQ => cq::modify,
        Opcode::CREATE_MKEY => mkey::create,
        Opcode::DESTROY_MKEY => mkey::destroy,
        Opcode::QUERY_MKEY => mkey::query,
        Opcode::ALLOC_MEMIC => memic::alloc,
        Opcode::DEALLOC_MEMIC => memic::dealloc,
        Opcode::MODIFY_MEMIC => memic::modify,
        Opcode::PAGE_FAULT_RESUME => page_fault::resume,
        Opcode::CREATE_GENERAL_OBJECT => object::create,
        Opcode::DESTROY_GENERAL_OBJECT => object::destroy,
        Opcode::QUERY_GENERAL_OBJECT => object::query,
        Opcode::CREATE_SRQ => srq::create_srq,
        Opcode::DESTROY_SRQ => srq::destroy_srq,
        Opcode::QUERY_SRQ => srq::query_srq,
        Opcode::ARM_RQ => srq::arm_rq,
        Opcode::CREATE_RMP => srq::create_rmp,
        Opcode::MODIFY_RMP => srq::modify_rmp,
        Opcode::DESTROY_RMP => srq::destroy_rmp,
        Opcode::QUERY_RMP => srq::query_rmp,
        Opcode::CREATE_XRC_SRQ => srq::create_xrc_srq,
        Opcode::DESTROY_XRC_SRQ => srq::destroy_xrc_srq,
        Opcode::QUERY_XRC_SRQ => srq::query_xrc_srq,
        Opcode::ARM_XRC_SRQ => srq::arm_xrc_srq,
        Opcode::CREATE_XRQ => xrq::create,
        Opcode::DESTROY_XRQ => xrq::destroy_xrq,
        Opcode::QUERY_XRQ => xrq::query,
        Opcode::ARM_XRQ => xrq::arm_xrq,
        Opcode::CREATE_QP => qp::create,
        Opcode::DESTROY_QP => qp::destroy,
        Opcode::QUERY_QP => qp::query,
        Opcode::RST2INIT_QP => qp_modify::rst_to_init,
        Opcode::INIT2INIT_QP => qp_modify::init_to_init,
        Opcode::INIT2RTR_QP => qp_modify::init_to_rtr,
        Opcode::RTR2RTS_QP => qp_modify::rtr_to_rts,
        Opcode::RTS2RTS_QP => qp_modify::rts_to_rts,
        Opcode::SQERR2RTS_QP => qp_modify::sq_error_to_rts,
        Opcode::SQD_RTS_QP => qp_modify::sqd_to_rts,
        Opcode::QP_2ERR => qp_modify::to_error,
        Opcode::QP_2RST => qp_modify::to_reset,
        Opcode::ATTACH_TO_MCG => qp::attach,
        Opcode::DETACH_FROM_MCG => qp::detach,
        Opcode::MAD_IFC => mad::interface,
        Opcode::CREATE_SQ => raw::create_sq,
        Opcode::MODIFY_SQ => raw::modify_sq,
        Opcode::DESTROY_SQ => raw::destroy_sq,
        Opcode::QUERY_SQ => raw::query_sq,
        Opcode::CREATE_RQ => raw::create_rq,
        Opcode::MODIFY_RQ => raw::modify_rq,
        Opcode::DESTROY_RQ => raw::destroy_rq,
        Opcode::QUERY_RQ => raw::query_rq,
        Opcode::CREATE_TIS => steering::create_tis,
        Opcode::MODIFY_TIS => steering::modify_tis,
        Opcode::DESTROY_TIS => steering::destroy_tis,
        Opcode::QUERY_TIS => steering::query_tis,
        Opcode::CREATE_TIR => steering::create_tir,
        Opcode::MODIFY_TIR => steering::modify_tir,
        Opcode::DESTROY_TIR => steering::destroy_tir,
        Opcode::QUERY_TIR => steering::query_tir,
        Opcode::CREATE_RQT => steering::create_rqt,
        Opcode::MODIFY_RQT => steering::modify_rqt,
        Opcode::DESTROY_RQT => steering::destroy_rqt,
        Opcode::QUERY_RQT => steering::query_rqt,
        Opcode::QUERY_NIC_VPORT_CONTEXT => nic_vport::query,
        Opcode::MODIFY_NIC_VPORT_CONTEXT => nic_vport::modify,
        Opcode::SET_ROCE_ADDRESS => nic_vport::set_roce_address,
        Opcode::QUERY_ROCE_ADDRESS => nic_vport::query_roce_address,
        Opcode::CREATE_FLOW_TABLE => flow::create_table,
        Opcode::MODIFY_FLOW_TABLE => flow::modify_table,
        Opcode::SET_PP_RATE_LIMIT => pacing::set_rate,
        Opcode::DESTROY_FLOW_TABLE => flow::destroy_table,
        Opcode::SET_FLOW_TABLE_ROOT => flow::set_root,
        Opcode::CREATE_FLOW_GROUP => flow::create_group,
        Opcode::DESTROY_FLOW_GROUP => flow::destroy_group,
        Opcode::SET_FLOW_TABLE_ENTRY => flow::set_entry,
        Opcode::QUERY_FLOW_TABLE_ENTRY => flow::query_entry,
        Opcode::DELETE_FLOW_TABLE_ENTRY => flow::delete_entry,
        Opcode::ALLOC_FLOW_COUNTER => flow::alloc_counter,
        Opcode::DEALLOC_FLOW_COUNTER => flow::dealloc_counter,
        Opcode::QUERY_FLOW_COUNTER => flow::query_counter,
        Opcode::CREATE_DCT => dct::create,
        Opcode::CREATE_PSV => domains::create_psv,
        Opcode::DESTROY_PSV => domains::destroy_psv,
        Opcode::DRAIN_DCT => dct::drain,
        Opcode::DESTROY_DCT => dct::destroy,
        Opcode::QUERY_DCT => dct::query,
        _ => return None,
    })
}
