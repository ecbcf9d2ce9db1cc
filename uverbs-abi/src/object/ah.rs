//! Address handles; made by a write command.

methods! {
    AH;

    /// Destroys the object. `EBUSY` while others use it.
    "UVERBS_METHOD_AH_DESTROY" destroy = 0 {
        "UVERBS_ATTR_DESTROY_AH_HANDLE" HANDLE = 0: DestroyHandle<handle::Ah>, required;
    }
}
