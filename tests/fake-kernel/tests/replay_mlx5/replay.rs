//! A call made again by our control path.

use std::sync::{Arc, Mutex};

use fake_kernel::record::Recorded;
use oxverbs::control::kernel::{CreateCq, CreateQp, CreateSrq, CreateWq, DmMr, Uctx, UserMr};
use oxverbs::sys::errno::Errno;
use oxverbs::sys::fd::UverbsFd;
use oxverbs::sys::kernel::KernelRef;
use uverbs_abi::handle::{Flow, Srq, Wq};
use uverbs_abi::object::mlx5::UarAllocType;
use uverbs_abi::types::{CreateQpFlags, DriverId, QpType, SrqType, WqType};
use uverbs_abi::udata::mlx5;
use uverbs_abi::write;
use zerocopy::{FromBytes, IntoBytes};

use crate::call::{Values, name};
use crate::scribe::Scribe;

/// What we send for the same as `official`.
pub(crate) fn replay(official: &Recorded, without_ioctl: bool) -> Vec<Recorded> {
    let scribe = Arc::new(Scribe {
        has_ioctl: !without_ioctl,
        calls: Mutex::default(),
    });
    let kernel = KernelRef::Fake(scribe.clone());
    let fd = UverbsFd::open(kernel, c"/dev/infiniband/uverbs0").expect("a descriptor");
    let uctx = Uctx::new(fd, DriverId::MLX5).expect("a context");
    let probe = std::mem::take(&mut *scribe.calls.lock().expect("no panic"));
    let v = Values(official);
    if name(official) == "IB_USER_VERBS_CMD_QUERY_DEVICE" && !v.has("_CORE_IN") {
        return probe; // the question whether the ioctl takes write commands
    }
    again(&uctx, v).unwrap_or_else(|errno| panic!("{errno}: {official:?}"));
    std::mem::take(&mut *scribe.calls.lock().expect("no panic"))
}

/// The event file that the recorded program named.
pub(crate) const EVENTS: i32 = 9;

#[allow(clippy::too_many_lines, reason = "a table")]
fn again(u: &Uctx, v: Values<'_>) -> Result<(), Errno> {
    if let Some(result) = crate::devx::again(u, v) {
        return result;
    }
    match name(v.0) {
        "UVERBS_METHOD_GET_CONTEXT" => u.get_context_mlx5(v.input()).map(drop),
        "UVERBS_METHOD_ASYNC_EVENT_ALLOC" => u.alloc_async_event().map(drop),
        "UVERBS_METHOD_QUERY_PORT" => {
            let port: u64 = v.get("_PORT_NUM");
            u.query_port(port as u8).map(drop)
        }
        "UVERBS_METHOD_QUERY_GID_ENTRY" => {
            let (port, index): (u64, u64) = (v.get("_ENTRY_PORT"), v.get("_GID_INDEX"));
            u.query_gid_entry(port as u32, index as u32).map(drop)
        }
        "IB_USER_VERBS_EX_CMD_QUERY_DEVICE" => {
            u.query_device_ex::<mlx5::QueryDeviceResp>().map(drop)
        }
        "IB_USER_VERBS_CMD_QUERY_DEVICE" => u.query_device().map(drop),
        "MLX5_IB_METHOD_UAR_OBJ_ALLOC" => {
            let kind: u64 = v.get("_TYPE");
            u.alloc_uar(UarAllocType(kind as u32)).map(drop)
        }
        "MLX5_IB_METHOD_UAR_OBJ_DESTROY" => u.destroy_uar(v.handle("_HANDLE")),
        "IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL" => u.create_comp_channel().map(drop),
        "IB_USER_VERBS_CMD_ALLOC_PD" => u.alloc_pd::<mlx5::AllocPdResp>().map(drop),
        "UVERBS_METHOD_PD_DESTROY" => u.dealloc_pd(v.handle("_HANDLE")),
        "IB_USER_VERBS_CMD_REG_MR" => {
            let (request, _): (write::mr::RegMr, _) = v.request();
            let mr = UserMr {
                pd: request.pd_handle,
                start: request.start,
                length: request.length,
                hca_va: request.hca_va,
                access: request.access_flags,
            };
            // SAFETY: no device is behind this kernel.
            unsafe { u.reg_mr(&mr) }.map(drop)
        }
        "IB_USER_VERBS_CMD_REREG_MR" => {
            let (request, _): (write::mr::ReregMr, _) = v.request();
            let mr = UserMr {
                pd: request.pd_handle,
                start: request.start,
                length: request.length,
                hca_va: request.hca_va,
                access: request.access_flags,
            };
            // SAFETY: no device is behind this kernel.
            unsafe { u.rereg_mr(request.mr_handle, request.flags, &mr) }.map(drop)
        }
        "UVERBS_METHOD_MR_DESTROY" => u.dereg_mr(v.handle("_HANDLE")),
        "IB_USER_VERBS_CMD_ALLOC_MW" => {
            let (request, _): (write::mr::AllocMw, _) = v.request();
            u.alloc_mw(request.pd_handle, request.mw_type).map(drop)
        }
        "UVERBS_METHOD_MW_DESTROY" => u.dealloc_mw(v.handle("_HANDLE")),
        "UVERBS_METHOD_CQ_CREATE" => {
            let attr = CreateCq {
                cqe: v.get("CREATE_CQ_CQE"),
                user_handle: v.get("_USER_HANDLE"),
                comp_channel: v.has("_COMP_CHANNEL").then_some(EVENTS),
                comp_vector: v.get("_COMP_VECTOR"),
                flags: v.get("_CQ_FLAGS"),
                async_event: v.has("_EVENT_FD").then_some(EVENTS),
                uar_index: v.has("_UAR_INDEX").then(|| v.get("_UAR_INDEX")),
            };
            let input: mlx5::CreateCq = v.input();
            assert!(input.reserved0.is_zero() && input.reserved1.is_zero());
            // SAFETY: no device is behind this kernel.
            unsafe { u.create_cq_with::<_, mlx5::CreateCqResp>(&attr, &input) }.map(drop)
        }
        "IB_USER_VERBS_CMD_RESIZE_CQ" => {
            let (request, _): (write::cq::ResizeCq, _) = v.request();
            let input: mlx5::ResizeCq = v.input();
            // SAFETY: no device is behind this kernel.
            unsafe { u.resize_cq_with::<_, ()>(request.cq_handle, request.cqe, &input) }.map(drop)
        }
        "IB_USER_VERBS_EX_CMD_MODIFY_CQ" => {
            let (request, _): (write::cq::ExModifyCq, _) = v.request();
            let attr = request.attr;
            u.modify_cq_moderation(request.cq_handle, attr.cq_count, attr.cq_period)
        }
        "UVERBS_METHOD_CQ_DESTROY" => u.destroy_cq(v.handle("_HANDLE")).map(drop),
        "UVERBS_METHOD_SRQ_CREATE" => srq(u, v),
        "IB_USER_VERBS_CMD_MODIFY_SRQ" => {
            let (request, _): (write::srq::ModifySrq, _) = v.request();
            let (mask, max_wr) = (request.attr_mask, request.max_wr);
            u.modify_srq(request.srq_handle, mask, max_wr, request.srq_limit)
        }
        "IB_USER_VERBS_CMD_QUERY_SRQ" => {
            let (request, _): (write::srq::QuerySrq, _) = v.request();
            u.query_srq(request.srq_handle).map(drop)
        }
        "UVERBS_METHOD_SRQ_DESTROY" => u.destroy_srq(v.handle("_HANDLE")).map(drop),
        "UVERBS_METHOD_QP_CREATE" if v.has("_IND_TABLE_HANDLE") => qp::<mlx5::CreateQpRss>(u, v),
        "UVERBS_METHOD_QP_CREATE" => qp::<mlx5::CreateQp>(u, v),
        "IB_USER_VERBS_CMD_OPEN_QP" => {
            let (request, _): (write::qp::OpenQp, _) = v.request();
            let xrcd = request.pd_handle.into();
            u.open_qp(xrcd, request.qpn, request.user_handle).map(drop)
        }
        "IB_USER_VERBS_CMD_MODIFY_QP" => u.modify_qp(&v.request().0),
        "IB_USER_VERBS_EX_CMD_MODIFY_QP" => {
            let (request, _) = v.request();
            let input: mlx5::ModifyQp = v.input();
            u.modify_qp_ex_with::<_, mlx5::ModifyQpResp>(&request, &input)
                .map(drop)
        }
        "IB_USER_VERBS_CMD_QUERY_QP" => {
            let (request, _): (write::qp::QueryQp, _) = v.request();
            u.query_qp(request.qp_handle, request.attr_mask).map(drop)
        }
        "UVERBS_METHOD_QP_DESTROY" => u.destroy_qp(v.handle("_HANDLE")).map(drop),
        "IB_USER_VERBS_CMD_ATTACH_MCAST" => {
            let (request, _): (write::mcast::AttachMcast, _) = v.request();
            u.attach_mcast(request.qp_handle, request.gid, request.mlid)
        }
        "IB_USER_VERBS_CMD_DETACH_MCAST" => {
            let (request, _): (write::mcast::DetachMcast, _) = v.request();
            u.detach_mcast(request.qp_handle, request.gid, request.mlid)
        }
        "IB_USER_VERBS_CMD_CREATE_AH" => {
            let (request, _): (write::ah::CreateAh, _) = v.request();
            let (pd, user) = (request.pd_handle, request.user_handle);
            u.create_ah::<mlx5::CreateAhResp>(pd, user, &request.attr)
                .map(drop)
        }
        "UVERBS_METHOD_AH_DESTROY" => u.destroy_ah(v.handle("_HANDLE")),
        "IB_USER_VERBS_CMD_OPEN_XRCD" => {
            let (request, _): (write::xrcd::OpenXrcd, _) = v.request();
            let file = (request.fd >= 0).then_some(request.fd);
            u.open_xrcd(file, request.oflags as i32).map(drop)
        }
        "UVERBS_METHOD_XRCD_DESTROY" => u.close_xrcd(v.handle("_HANDLE")),
        "UVERBS_METHOD_WQ_CREATE" => {
            let kind: u64 = v.get("_TYPE");
            let attr = CreateWq {
                wq_type: WqType(kind as u32),
                pd: v.handle("_PD_HANDLE"),
                cq: v.handle("_CQ_HANDLE"),
                user_handle: v.get("_USER_HANDLE"),
                max_wr: v.get("_WQ_MAX_WR"),
                max_sge: v.get("_WQ_MAX_SGE"),
                flags: v.get("_FLAGS"),
                async_event: v.has("_EVENT_FD").then_some(EVENTS),
            };
            let input: mlx5::CreateWq = v.input();
            // SAFETY: no device is behind this kernel.
            unsafe { u.create_wq_with::<_, mlx5::CreateWqResp>(&attr, &input) }.map(drop)
        }
        "IB_USER_VERBS_EX_CMD_MODIFY_WQ" => {
            u.modify_wq_with(&v.request().0, &v.input::<mlx5::ModifyWq>())
        }
        "UVERBS_METHOD_WQ_DESTROY" => u.destroy_wq(v.handle("_HANDLE")).map(drop),
        "IB_USER_VERBS_EX_CMD_CREATE_RWQ_IND_TBL" => {
            let (request, rest): (write::wq::ExCreateRwqIndTable, _) = v.request();
            let (queues, _) =
                <[Wq]>::ref_from_prefix_with_elems(&rest, 1 << request.log_ind_tbl_size)
                    .expect("as many queues as it says");
            u.create_rwq_ind_table::<()>(queues).map(drop)
        }
        "UVERBS_METHOD_RWQ_IND_TBL_DESTROY" => u.destroy_rwq_ind_table(v.handle("_HANDLE")),
        "IB_USER_VERBS_EX_CMD_CREATE_FLOW" => {
            let (request, specs): (write::flow::CreateFlow, _) = v.request();
            u.create_flow_mlx5(request.qp_handle, &request.flow_attr, &specs, None)
                .map(drop::<Flow>)
        }
        "UVERBS_METHOD_FLOW_DESTROY" => u.destroy_flow(v.handle("_HANDLE")),
        "UVERBS_METHOD_DM_ALLOC" => u
            .alloc_dm_mlx5(v.get("_LENGTH"), v.get("_ALIGNMENT"))
            .map(drop),
        "UVERBS_METHOD_DM_FREE" => u.free_dm(v.handle("_HANDLE")),
        "UVERBS_METHOD_DM_MR_REG" => u
            .reg_dm_mr(&DmMr {
                pd: v.handle("_PD_HANDLE"),
                dm: v.handle("_DM_HANDLE"),
                offset: v.get("_OFFSET"),
                length: v.get("_LENGTH"),
                access: v.get("_ACCESS_FLAGS"),
            })
            .map(drop),
        other => panic!("{other} is not in the table"),
    }
}

fn srq(u: &Uctx, v: Values<'_>) -> Result<(), Errno> {
    let kind: u64 = v.get("_TYPE");
    let attr = CreateSrq {
        srq_type: SrqType(kind as u32),
        pd: v.handle("_PD_HANDLE"),
        xrcd: v.handle("_XRCD_HANDLE"),
        cq: v.handle("_CQ_HANDLE"),
        max_num_tags: v.get("_MAX_NUM_TAGS"),
        user_handle: v.get("_USER_HANDLE"),
        max_wr: v.get("CREATE_SRQ_MAX_WR"),
        max_sge: v.get("CREATE_SRQ_MAX_SGE"),
        srq_limit: v.get("_LIMIT"),
        async_event: v.has("_EVENT_FD").then_some(EVENTS),
    };
    let input: mlx5::CreateSrq = v.input();
    assert!(input.reserved0.is_zero() && input.reserved1.is_zero());
    // SAFETY: no device is behind this kernel.
    unsafe { u.create_srq_with::<_, mlx5::CreateSrqResp>(&attr, &input) }.map(drop)
}

fn qp<I>(u: &Uctx, v: Values<'_>) -> Result<(), Errno>
where
    I: FromBytes + IntoBytes + zerocopy::Immutable,
{
    let kind: u64 = v.get("_TYPE");
    let flags: CreateQpFlags = v.get("_QP_FLAGS");
    let attr = CreateQp {
        qp_type: QpType(kind as u8),
        pd: v.handle("_PD_HANDLE"),
        xrcd: v.handle("_XRCD_HANDLE"),
        send_cq: v.handle("_SEND_CQ_HANDLE"),
        recv_cq: v.handle("_RECV_CQ_HANDLE"),
        srq: v.maybe::<Srq>("_SRQ_HANDLE"),
        ind_table: v.maybe("_IND_TABLE_HANDLE"),
        source_qpn: v.has("_SOURCE_QPN").then(|| v.get("_SOURCE_QPN")),
        user_handle: v.get("_USER_HANDLE"),
        cap: v.get("CREATE_QP_CAP"),
        sq_sig_all: flags.contains(CreateQpFlags::SQ_SIG_ALL),
        flags: CreateQpFlags(flags.0 & !CreateQpFlags::SQ_SIG_ALL.0),
        async_event: v.has("_EVENT_FD").then_some(EVENTS),
    };
    // SAFETY: no device is behind this kernel.
    unsafe { u.create_qp_with::<I, mlx5::CreateQpResp>(&attr, &v.input()) }.map(drop)
}
