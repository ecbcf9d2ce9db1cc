//! Memory regions and windows.

use crate::types::{AccessFlags, MwType, ReregMrFlags};
use crate::{Reserved, handle};

abi_structs! {
    /// Registers memory.
    "ib_uverbs_reg_mr" RegMr [40] {
        0 response: u64,
        /// Address in the program.
        8 start: u64,
        16 length: u64,
        /// Address that peers use.
        24 hca_va: u64,
        32 pd_handle: handle::Pd,
        36 access_flags: AccessFlags,
    }

    /// Answer to [`RegMr`].
    "ib_uverbs_reg_mr_resp" RegMrResp [12] {
        0 mr_handle: handle::Mr,
        4 lkey: u32,
        8 rkey: u32,
    }

    /// Changes a registration.
    "ib_uverbs_rereg_mr" ReregMr [48] {
        0 response: u64,
        8 mr_handle: handle::Mr,
        /// Which of the rest counts.
        12 flags: ReregMrFlags,
        16 start: u64,
        24 length: u64,
        32 hca_va: u64,
        40 pd_handle: handle::Pd,
        44 access_flags: AccessFlags,
    }

    /// Answer to [`ReregMr`].
    "ib_uverbs_rereg_mr_resp" ReregMrResp [8] {
        0 lkey: u32,
        4 rkey: u32,
    }

    /// Deregisters memory.
    "ib_uverbs_dereg_mr" DeregMr [4] {
        0 mr_handle: handle::Mr,
    }

    /// Makes a memory window.
    "ib_uverbs_alloc_mw" AllocMw [16] {
        0 response: u64,
        8 pd_handle: handle::Pd,
        12 mw_type: MwType,
        13 reserved: Reserved<3>,
    }

    /// Answer to [`AllocMw`].
    "ib_uverbs_alloc_mw_resp" AllocMwResp [8] {
        0 mw_handle: handle::Mw,
        4 rkey: u32,
    }

    /// Destroys a memory window.
    "ib_uverbs_dealloc_mw" DeallocMw [4] {
        0 mw_handle: handle::Mw,
    }
}

write_commands! {
    "IB_USER_VERBS_CMD_REG_MR" 9: RegMr => RegMrResp;
    "IB_USER_VERBS_CMD_REREG_MR" 11: ReregMr => ReregMrResp;
    "IB_USER_VERBS_CMD_DEREG_MR" 13: DeregMr => ();
    "IB_USER_VERBS_CMD_ALLOC_MW" 14: AllocMw => AllocMwResp;
    "IB_USER_VERBS_CMD_DEALLOC_MW" 16: DeallocMw => ();
}
