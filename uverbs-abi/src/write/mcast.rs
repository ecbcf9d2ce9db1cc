//! Multicast groups.

use crate::{Reserved, handle};

abi_structs! {
    /// Attaches a queue pair to a group.
    "ib_uverbs_attach_mcast" AttachMcast [24] {
        0 gid: [u8; 16],
        16 qp_handle: handle::Qp,
        20 mlid: u16,
        22 reserved: Reserved<2>,
    }

    /// Detaches a queue pair from a group.
    "ib_uverbs_detach_mcast" DetachMcast [24] {
        0 gid: [u8; 16],
        16 qp_handle: handle::Qp,
        20 mlid: u16,
        22 reserved: Reserved<2>,
    }
}

write_commands! {
    "IB_USER_VERBS_CMD_ATTACH_MCAST" 30: AttachMcast => ();
    "IB_USER_VERBS_CMD_DETACH_MCAST" 31: DetachMcast => ();
}
