//! Memory regions. Ordinary memory is registered by a write command.

methods! {
    MR;

    /// Registers device memory.
    "UVERBS_METHOD_DM_MR_REG" dm_reg = 0 {
        "UVERBS_ATTR_REG_DM_MR_HANDLE" HANDLE = 0: NewHandle<handle::Mr>, required;
        "UVERBS_ATTR_REG_DM_MR_OFFSET" OFFSET = 1: In<u64>, required;
        "UVERBS_ATTR_REG_DM_MR_LENGTH" LENGTH = 2: In<u64>, required;
        "UVERBS_ATTR_REG_DM_MR_PD_HANDLE" PD_HANDLE = 3: HandleIn<handle::Pd>, required;
        "UVERBS_ATTR_REG_DM_MR_ACCESS_FLAGS" ACCESS_FLAGS = 4: Flags<types::AccessFlags>, optional;
        "UVERBS_ATTR_REG_DM_MR_DM_HANDLE" DM_HANDLE = 5: HandleIn<handle::Dm>, required;
        "UVERBS_ATTR_REG_DM_MR_RESP_LKEY" RESP_LKEY = 6: Out<u32>, required;
        "UVERBS_ATTR_REG_DM_MR_RESP_RKEY" RESP_RKEY = 7: Out<u32>, required;
    }

    /// Deregisters a memory region of any kind.
    "UVERBS_METHOD_MR_DESTROY" destroy = 1 {
        "UVERBS_ATTR_DESTROY_MR_HANDLE" HANDLE = 0: DestroyHandle<handle::Mr>, required;
    }

    /// Advises the kernel about pages of on-demand-paging regions.
    "UVERBS_METHOD_ADVISE_MR" advise = 2 {
        "UVERBS_ATTR_ADVISE_MR_PD_HANDLE" PD_HANDLE = 0: HandleIn<handle::Pd>, required;
        "UVERBS_ATTR_ADVISE_MR_ADVICE" ADVICE = 1: Const<types::AdviseMrAdvice>, required;
        "UVERBS_ATTR_ADVISE_MR_FLAGS" FLAGS = 2: Flags<types::AdviseMrFlags>, required;
        "UVERBS_ATTR_ADVISE_MR_SGE_LIST" SGE_LIST = 3: SliceIn<types::Sge>, required;
    }

    /// Keys and range of a memory region of a shared context.
    "UVERBS_METHOD_QUERY_MR" query = 3 {
        "UVERBS_ATTR_QUERY_MR_HANDLE" HANDLE = 0: HandleIn<handle::Mr>, required;
        "UVERBS_ATTR_QUERY_MR_RESP_LKEY" RESP_LKEY = 1: Out<u32>, required;
        "UVERBS_ATTR_QUERY_MR_RESP_RKEY" RESP_RKEY = 2: Out<u32>, required;
        "UVERBS_ATTR_QUERY_MR_RESP_LENGTH" RESP_LENGTH = 3: Out<u64>, required;
        "UVERBS_ATTR_QUERY_MR_RESP_IOVA" RESP_IOVA = 4: Out<u64>, optional;
    }

    /// Registers a dma-buf.
    "UVERBS_METHOD_REG_DMABUF_MR" reg_dmabuf = 4 {
        "UVERBS_ATTR_REG_DMABUF_MR_HANDLE" HANDLE = 0: NewHandle<handle::Mr>, required;
        "UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE" PD_HANDLE = 1: HandleIn<handle::Pd>, required;
        "UVERBS_ATTR_REG_DMABUF_MR_OFFSET" OFFSET = 2: In<u64>, required;
        "UVERBS_ATTR_REG_DMABUF_MR_LENGTH" LENGTH = 3: In<u64>, required;
        "UVERBS_ATTR_REG_DMABUF_MR_IOVA" IOVA = 4: In<u64>, required;
        /// A descriptor of another subsystem, hence a value of 4 bytes and not an object.
        "UVERBS_ATTR_REG_DMABUF_MR_FD" FD = 5: In<i32>, required;
        "UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS" ACCESS_FLAGS = 6: Flags<types::AccessFlags>, optional;
        "UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY" RESP_LKEY = 7: Out<u32>, required;
        "UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY" RESP_RKEY = 8: Out<u32>, required;
    }
}
