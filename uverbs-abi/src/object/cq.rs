//! Completion queues.

methods! {
    CQ;

    /// Makes a completion queue.
    "UVERBS_METHOD_CQ_CREATE" create = 0 with uhw {
        "UVERBS_ATTR_CREATE_CQ_HANDLE" HANDLE = 0: NewHandle<handle::Cq>, required;
        /// Entries asked for.
        "UVERBS_ATTR_CREATE_CQ_CQE" CQE = 1: In<u32>, required;
        /// Comes back in events.
        "UVERBS_ATTR_CREATE_CQ_USER_HANDLE" USER_HANDLE = 2: In<u64>, required;
        "UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL" COMP_CHANNEL = 3: FdIn<handle::CompChannel>, optional;
        "UVERBS_ATTR_CREATE_CQ_COMP_VECTOR" COMP_VECTOR = 4: In<u32>, required;
        "UVERBS_ATTR_CREATE_CQ_FLAGS" FLAGS = 5: Flags<types::CreateCqFlags>, optional;
        /// Entries granted.
        "UVERBS_ATTR_CREATE_CQ_RESP_CQE" RESP_CQE = 6: Out<u32>, required;
        /// libibverbs sends it as not mandatory, since kernels before 5.8 do not know it.
        "UVERBS_ATTR_CREATE_CQ_EVENT_FD" EVENT_FD = 7: FdIn<handle::AsyncEvent>, optional;
    }

    /// Destroys a completion queue.
    "UVERBS_METHOD_CQ_DESTROY" destroy = 1 {
        "UVERBS_ATTR_DESTROY_CQ_HANDLE" HANDLE = 0: DestroyHandle<handle::Cq>, required;
        /// Events that the kernel delivered, which the program must have seen before it forgets the
        /// user handle.
        "UVERBS_ATTR_DESTROY_CQ_RESP" RESP = 1: Out<write::cq::DestroyCqResp>, required;
    }
}
