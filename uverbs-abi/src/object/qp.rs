//! Queue pairs.

methods! {
    QP;

    /// Makes a queue pair. Since kernel 5.8; a write command before.
    "UVERBS_METHOD_QP_CREATE" create = 0 with uhw {
        "UVERBS_ATTR_CREATE_QP_HANDLE" HANDLE = 0: NewHandle<handle::Qp>, required;
        /// Only for [`XRC_TGT`](crate::types::QpType::XRC_TGT), instead of a protection domain.
        "UVERBS_ATTR_CREATE_QP_XRCD_HANDLE" XRCD_HANDLE = 1: HandleIn<handle::Xrcd>, optional;
        "UVERBS_ATTR_CREATE_QP_PD_HANDLE" PD_HANDLE = 2: HandleIn<handle::Pd>, optional;
        "UVERBS_ATTR_CREATE_QP_SRQ_HANDLE" SRQ_HANDLE = 3: HandleIn<handle::Srq>, optional;
        "UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE" SEND_CQ_HANDLE = 4: HandleIn<handle::Cq>, optional;
        "UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE" RECV_CQ_HANDLE = 5: HandleIn<handle::Cq>, optional;
        "UVERBS_ATTR_CREATE_QP_IND_TABLE_HANDLE" IND_TABLE_HANDLE = 6: HandleIn<handle::RwqIndTbl>, optional;
        /// Comes back in events.
        "UVERBS_ATTR_CREATE_QP_USER_HANDLE" USER_HANDLE = 7: In<u64>, required;
        /// Capacity asked for.
        "UVERBS_ATTR_CREATE_QP_CAP" CAP = 8: In<types::QpCap>, required;
        "UVERBS_ATTR_CREATE_QP_TYPE" TYPE = 9: Const<types::QpType>, required;
        "UVERBS_ATTR_CREATE_QP_FLAGS" FLAGS = 10: Flags<types::CreateQpFlags>, optional;
        "UVERBS_ATTR_CREATE_QP_SOURCE_QPN" SOURCE_QPN = 11: In<u32>, optional;
        "UVERBS_ATTR_CREATE_QP_EVENT_FD" EVENT_FD = 12: FdIn<handle::AsyncEvent>, optional;
        /// Capacity granted.
        "UVERBS_ATTR_CREATE_QP_RESP_CAP" RESP_CAP = 13: Out<types::QpCap>, required;
        "UVERBS_ATTR_CREATE_QP_RESP_QP_NUM" RESP_QP_NUM = 14: Out<u32>, required;
    }

    /// Destroys a queue pair. `EBUSY` while it is attached to a multicast group.
    "UVERBS_METHOD_QP_DESTROY" destroy = 1 {
        "UVERBS_ATTR_DESTROY_QP_HANDLE" HANDLE = 0: DestroyHandle<handle::Qp>, required;
        /// Events that the kernel delivered, which the program must have seen before it forgets the
        /// user handle.
        "UVERBS_ATTR_DESTROY_QP_RESP" RESP = 1: Out<write::qp::DestroyQpResp>, required;
    }
}
