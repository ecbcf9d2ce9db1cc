//! Work queues.

methods! {
    WQ;

    /// Makes a work queue. Since kernel 5.8; a write command before.
    "UVERBS_METHOD_WQ_CREATE" create = 0 with uhw {
        "UVERBS_ATTR_CREATE_WQ_HANDLE" HANDLE = 0: NewHandle<handle::Wq>, required;
        "UVERBS_ATTR_CREATE_WQ_PD_HANDLE" PD_HANDLE = 1: HandleIn<handle::Pd>, required;
        "UVERBS_ATTR_CREATE_WQ_CQ_HANDLE" CQ_HANDLE = 2: HandleIn<handle::Cq>, optional;
        /// Comes back in events.
        "UVERBS_ATTR_CREATE_WQ_USER_HANDLE" USER_HANDLE = 3: In<u64>, required;
        "UVERBS_ATTR_CREATE_WQ_TYPE" TYPE = 4: Const<types::WqType>, required;
        "UVERBS_ATTR_CREATE_WQ_EVENT_FD" EVENT_FD = 5: FdIn<handle::AsyncEvent>, optional;
        "UVERBS_ATTR_CREATE_WQ_MAX_WR" MAX_WR = 6: In<u32>, required;
        "UVERBS_ATTR_CREATE_WQ_MAX_SGE" MAX_SGE = 7: In<u32>, required;
        "UVERBS_ATTR_CREATE_WQ_FLAGS" FLAGS = 8: Flags<types::WqFlags>, required;
        "UVERBS_ATTR_CREATE_WQ_RESP_MAX_WR" RESP_MAX_WR = 9: Out<u32>, required;
        "UVERBS_ATTR_CREATE_WQ_RESP_MAX_SGE" RESP_MAX_SGE = 10: Out<u32>, required;
        "UVERBS_ATTR_CREATE_WQ_RESP_WQ_NUM" RESP_WQ_NUM = 11: Out<u32>, optional;
    }

    /// Destroys a work queue.
    "UVERBS_METHOD_WQ_DESTROY" destroy = 1 {
        "UVERBS_ATTR_DESTROY_WQ_HANDLE" HANDLE = 0: DestroyHandle<handle::Wq>, required;
        /// Events that the kernel delivered, which the program must have seen before it forgets the
        /// user handle.
        "UVERBS_ATTR_DESTROY_WQ_RESP" RESP = 1: Out<u32>, required;
    }
}
