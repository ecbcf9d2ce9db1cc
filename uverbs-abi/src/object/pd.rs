//! Protection domains; made by a write command.

methods! {
    PD;

    /// Destroys the object. `EBUSY` while others use it.
    "UVERBS_METHOD_PD_DESTROY" destroy = 0 {
        "UVERBS_ATTR_DESTROY_PD_HANDLE" HANDLE = 0: DestroyHandle<handle::Pd>, required;
    }
}
