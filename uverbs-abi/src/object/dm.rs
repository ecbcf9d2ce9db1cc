//! Memory on the device.

methods! {
    DM;

    /// Allocates.
    "UVERBS_METHOD_DM_ALLOC" alloc = 0 {
        "UVERBS_ATTR_ALLOC_DM_HANDLE" HANDLE = 0: NewHandle<handle::Dm>, required;
        "UVERBS_ATTR_ALLOC_DM_LENGTH" LENGTH = 1: In<u64>, required;
        /// Logarithm of the alignment.
        "UVERBS_ATTR_ALLOC_DM_ALIGNMENT" ALIGNMENT = 2: In<u32>, required;
    }

    /// Frees. `EBUSY` while it is registered.
    "UVERBS_METHOD_DM_FREE" free = 1 {
        "UVERBS_ATTR_FREE_DM_HANDLE" HANDLE = 0: DestroyHandle<handle::Dm>, required;
    }
}
