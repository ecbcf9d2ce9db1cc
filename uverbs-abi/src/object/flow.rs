//! Flow steering rules; made by a write command.

methods! {
    FLOW;

    /// Destroys the object. `EBUSY` while others use it.
    "UVERBS_METHOD_FLOW_DESTROY" destroy = 0 {
        "UVERBS_ATTR_DESTROY_FLOW_HANDLE" HANDLE = 0: DestroyHandle<handle::Flow>, required;
    }
}
