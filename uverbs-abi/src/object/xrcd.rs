//! XRC domains; made by a write command.

methods! {
    XRCD;

    /// Destroys the object. `EBUSY` while others use it.
    "UVERBS_METHOD_XRCD_DESTROY" destroy = 0 {
        "UVERBS_ATTR_DESTROY_XRCD_HANDLE" HANDLE = 0: DestroyHandle<handle::Xrcd>, required;
    }
}
