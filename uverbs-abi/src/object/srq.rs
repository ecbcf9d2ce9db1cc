//! Shared receive queues.

methods! {
    SRQ;

    /// Makes a shared receive queue. Since kernel 5.8; a write command before.
    "UVERBS_METHOD_SRQ_CREATE" create = 0 with uhw {
        "UVERBS_ATTR_CREATE_SRQ_HANDLE" HANDLE = 0: NewHandle<handle::Srq>, required;
        "UVERBS_ATTR_CREATE_SRQ_PD_HANDLE" PD_HANDLE = 1: HandleIn<handle::Pd>, required;
        "UVERBS_ATTR_CREATE_SRQ_XRCD_HANDLE" XRCD_HANDLE = 2: HandleIn<handle::Xrcd>, optional;
        "UVERBS_ATTR_CREATE_SRQ_CQ_HANDLE" CQ_HANDLE = 3: HandleIn<handle::Cq>, optional;
        /// Comes back in events.
        "UVERBS_ATTR_CREATE_SRQ_USER_HANDLE" USER_HANDLE = 4: In<u64>, required;
        "UVERBS_ATTR_CREATE_SRQ_MAX_WR" MAX_WR = 5: In<u32>, required;
        "UVERBS_ATTR_CREATE_SRQ_MAX_SGE" MAX_SGE = 6: In<u32>, required;
        "UVERBS_ATTR_CREATE_SRQ_LIMIT" LIMIT = 7: In<u32>, required;
        "UVERBS_ATTR_CREATE_SRQ_MAX_NUM_TAGS" MAX_NUM_TAGS = 8: In<u32>, optional;
        "UVERBS_ATTR_CREATE_SRQ_TYPE" TYPE = 9: Const<types::SrqType>, required;
        "UVERBS_ATTR_CREATE_SRQ_EVENT_FD" EVENT_FD = 10: FdIn<handle::AsyncEvent>, optional;
        "UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR" RESP_MAX_WR = 11: Out<u32>, required;
        "UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE" RESP_MAX_SGE = 12: Out<u32>, required;
        /// Written for XRC only.
        "UVERBS_ATTR_CREATE_SRQ_RESP_SRQ_NUM" RESP_SRQ_NUM = 13: Out<u32>, optional;
    }

    /// Destroys a shared receive queue.
    "UVERBS_METHOD_SRQ_DESTROY" destroy = 1 {
        "UVERBS_ATTR_DESTROY_SRQ_HANDLE" HANDLE = 0: DestroyHandle<handle::Srq>, required;
        /// Events that the kernel delivered, which the program must have seen before it forgets the
        /// user handle.
        "UVERBS_ATTR_DESTROY_SRQ_RESP" RESP = 1: Out<write::srq::DestroySrqResp>, required;
    }
}
