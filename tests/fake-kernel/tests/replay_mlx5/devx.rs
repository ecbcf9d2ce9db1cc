//! Calls that only mlx5dv makes.

use oxverbs::control::kernel::{CreateMatcher, CreateRule, DevxNotice, RegUmem, Uctx};
use oxverbs::sys::errno::Errno;
use uverbs_abi::handle::FlowAction;
use uverbs_abi::object::mlx5::{
    DevxEventChannelFlags, DmType, FlowTableType, FlowType, PacketReformatType, PpAllocFlags,
};

use crate::call::{Values, name};
use crate::replay::EVENTS;

/// Makes the call again; `None` if it is not one of them.
pub(crate) fn again(u: &Uctx, v: Values<'_>) -> Option<Result<(), Errno>> {
    let mut output = vec![0; v.room("_CMD_OUT")];
    let input = v.bytes("_CMD_IN");
    Some(match name(v.0) {
        "MLX5_IB_METHOD_DEVX_OTHER" => u.devx_command(&input, &mut output),
        "MLX5_IB_METHOD_DEVX_OBJ_CREATE" => u.devx_obj_create(&input, &mut output).map(drop),
        "MLX5_IB_METHOD_DEVX_OBJ_MODIFY" => {
            u.devx_obj_modify(v.handle("_MODIFY_HANDLE"), &input, &mut output)
        }
        "MLX5_IB_METHOD_DEVX_OBJ_QUERY" => {
            u.devx_obj_query(v.handle("_QUERY_HANDLE"), &input, &mut output)
        }
        "MLX5_IB_METHOD_DEVX_OBJ_ASYNC_QUERY" => {
            let (len, wr_id): (u64, u64) = (v.get("_OUT_LEN"), v.get("_WR_ID"));
            u.devx_obj_query_async(v.handle("_ASYNC_HANDLE"), &input, len as u16, wr_id, EVENTS)
        }
        "MLX5_IB_METHOD_DEVX_OBJ_DESTROY" => u.devx_obj_destroy(v.handle("_HANDLE")),
        "MLX5_IB_METHOD_DEVX_QUERY_EQN" => u.devx_query_eqn(v.get("_USER_VEC")).map(drop),
        "MLX5_IB_METHOD_DEVX_ASYNC_CMD_FD_ALLOC" => u.devx_async_cmd_file().map(drop),
        "MLX5_IB_METHOD_DEVX_ASYNC_EVENT_FD_ALLOC" => {
            let flags: DevxEventChannelFlags = v.get("_FLAGS");
            u.devx_event_file(flags).map(drop)
        }
        "MLX5_IB_METHOD_DEVX_SUBSCRIBE_EVENT" => {
            let events: Vec<u16> = v.list("_TYPE_NUM_LIST");
            let notice = if v.has("_COOKIE") {
                DevxNotice::Record {
                    cookie: v.get("_COOKIE"),
                }
            } else {
                DevxNotice::EventFd(v.get("_FD_NUM"))
            };
            u.devx_subscribe(EVENTS, v.maybe("_OBJ_HANDLE"), &events, notice)
        }
        "MLX5_IB_METHOD_DEVX_UMEM_REG" => {
            // what mlx5dv_devx_umem_reg asks for, and it is optional then
            let any = v.get::<u64>("_PGSZ_BITMAP") == !0xfff;
            let umem = RegUmem {
                addr: v.get("_ADDR"),
                length: v.get("_LEN"),
                access: v.get("_ACCESS"),
                page_sizes: (!any).then(|| v.get("_PGSZ_BITMAP")),
                dmabuf: None,
            };
            // SAFETY: no device is behind this kernel.
            unsafe { u.devx_umem_reg(&umem) }.map(drop)
        }
        "MLX5_IB_METHOD_DEVX_UMEM_DEREG" => u.devx_umem_dereg(v.handle("_HANDLE")),
        "MLX5_IB_METHOD_VAR_OBJ_ALLOC" => u.alloc_var().map(drop),
        "MLX5_IB_METHOD_VAR_OBJ_DESTROY" => u.destroy_var(v.handle("_HANDLE")),
        "MLX5_IB_METHOD_PP_OBJ_ALLOC" => {
            let flags: u64 = v.get("_FLAGS");
            u.alloc_pp(&v.bytes("_CTX"), PpAllocFlags(flags as u32))
                .map(drop)
        }
        "MLX5_IB_METHOD_PP_OBJ_DESTROY" => u.destroy_pp(v.handle("_HANDLE")),
        "MLX5_IB_METHOD_QUERY_PORT" => u.query_port_mlx5(v.get("_PORT_NUM")).map(drop),
        "MLX5_IB_METHOD_DM_MAP_OP_ADDR" => u
            .dm_map_op_addr(v.handle("_HANDLE"), v.get("_OP"))
            .map(drop),
        "UVERBS_METHOD_DM_ALLOC" if v.get::<u64>("_REQ_TYPE") != 0 => {
            let kind: u64 = v.get("_REQ_TYPE");
            u.alloc_icm_mlx5(DmType(kind as u32), v.get("_LENGTH"), v.get("_ALIGNMENT"))
                .map(drop)
        }
        _ => return steering(u, v),
    })
}

fn steering(u: &Uctx, v: Values<'_>) -> Option<Result<(), Errno>> {
    let table: u64 = v.get("_FT_TYPE");
    let table = FlowTableType(table as u32);
    Some(match name(v.0) {
        "MLX5_IB_METHOD_FLOW_MATCHER_CREATE" => {
            let flags: u64 = v.get("_FLOW_FLAGS");
            let matcher = CreateMatcher {
                mask: &v.bytes("_MATCH_MASK"),
                flow_type: FlowType(v.element("_FLOW_TYPE").into()),
                priority: v.get("_FLOW_TYPE"),
                criteria: v.get("_MATCH_CRITERIA"),
                flow_flags: flags as u32,
                table: v.has("_FT_TYPE").then_some(table),
            };
            u.create_flow_matcher(&matcher).map(drop)
        }
        "MLX5_IB_METHOD_FLOW_MATCHER_DESTROY" => u.destroy_flow_matcher(v.handle("_HANDLE")),
        "MLX5_IB_METHOD_CREATE_FLOW" => {
            let actions: Vec<FlowAction> = v.list("_ARR_FLOW_ACTIONS");
            let rule = CreateRule {
                matcher: v.handle("_FLOW_MATCHER"),
                value: &v.bytes("_MATCH_VALUE"),
                qp: v.maybe("_DEST_QP"),
                devx: v.maybe("_DEST_DEVX"),
                actions: &actions,
                tag: v.has("_FLOW_TAG").then(|| v.get("_FLOW_TAG")),
                flags: v.get("_FLOW_FLAGS"),
                ..CreateRule::default()
            };
            u.create_flow_rule(&rule).map(drop)
        }
        "MLX5_IB_METHOD_FLOW_ACTION_CREATE_MODIFY_HEADER" => {
            let actions: Vec<[u8; 8]> = v.list("_ACTIONS_PRM");
            u.create_modify_header(table, &actions).map(drop)
        }
        "MLX5_IB_METHOD_FLOW_ACTION_CREATE_PACKET_REFORMAT" => {
            let kind: u64 = v.get("_REFORMAT_TYPE");
            let kind = PacketReformatType(kind as u32);
            u.create_packet_reformat(kind, table, &v.bytes("_DATA_BUF"))
                .map(drop)
        }
        "UVERBS_METHOD_FLOW_ACTION_DESTROY" => u.destroy_flow_action(v.handle("_HANDLE")),
        "MLX5_IB_METHOD_STEERING_ANCHOR_CREATE" => u
            .create_steering_anchor(table, v.get("_PRIORITY"))
            .map(drop),
        "MLX5_IB_METHOD_STEERING_ANCHOR_DESTROY" => u.destroy_steering_anchor(v.handle("_HANDLE")),
        _ => return None,
    })
}
