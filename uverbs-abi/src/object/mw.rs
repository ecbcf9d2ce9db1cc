//! Memory windows; made by a write command.

methods! {
    MW;

    /// Destroys the object. `EBUSY` while others use it.
    "UVERBS_METHOD_MW_DESTROY" destroy = 0 {
        "UVERBS_ATTR_DESTROY_MW_HANDLE" HANDLE = 0: DestroyHandle<handle::Mw>, required;
    }
}
