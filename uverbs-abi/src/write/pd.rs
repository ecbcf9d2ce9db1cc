//! Protection domains.

use crate::handle;

abi_structs! {
    /// Makes a protection domain.
    "ib_uverbs_alloc_pd" AllocPd [8] {
        0 response: u64,
    }

    /// Answer to [`AllocPd`].
    "ib_uverbs_alloc_pd_resp" AllocPdResp [4] {
        0 pd_handle: handle::Pd,
    }

    /// Destroys a protection domain.
    "ib_uverbs_dealloc_pd" DeallocPd [4] {
        0 pd_handle: handle::Pd,
    }
}

write_commands! {
    "IB_USER_VERBS_CMD_ALLOC_PD" 3: AllocPd => AllocPdResp;
    "IB_USER_VERBS_CMD_DEALLOC_PD" 4: DeallocPd => ();
}
