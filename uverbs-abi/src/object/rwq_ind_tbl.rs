//! Receive work queue indirection tables; made by a write command.

methods! {
    RWQ_IND_TBL;

    /// Destroys the object. `EBUSY` while others use it.
    "UVERBS_METHOD_RWQ_IND_TBL_DESTROY" destroy = 0 {
        "UVERBS_ATTR_DESTROY_RWQ_IND_TBL_HANDLE" HANDLE = 0: DestroyHandle<handle::RwqIndTbl>, required;
    }
}
