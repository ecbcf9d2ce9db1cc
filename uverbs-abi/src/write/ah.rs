//! Address handles.

use crate::{Reserved, handle};

abi_structs! {
    /// The part of a path that a GRH carries.
    "ib_uverbs_global_route" GlobalRoute [24] {
        0 dgid: [u8; 16],
        16 flow_label: u32,
        20 sgid_index: u8,
        21 hop_limit: u8,
        22 traffic_class: u8,
        23 reserved: Reserved<1>,
    }

    /// A path.
    "ib_uverbs_ah_attr" AhAttr [32] {
        0 grh: GlobalRoute,
        24 dlid: u16,
        26 sl: u8,
        27 src_path_bits: u8,
        28 static_rate: u8,
        /// Whether `grh` counts; always on RoCE.
        29 is_global: u8,
        30 port_num: u8,
        31 reserved: Reserved<1>,
    }

    /// Makes an address handle.
    "ib_uverbs_create_ah" CreateAh [56] {
        0 response: u64,
        8 user_handle: u64,
        16 pd_handle: handle::Pd,
        20 reserved: Reserved<4>,
        24 attr: AhAttr,
    }

    /// Answer to [`CreateAh`].
    "ib_uverbs_create_ah_resp" CreateAhResp [4] {
        0 ah_handle: handle::Ah,
    }

    /// Destroys an address handle.
    "ib_uverbs_destroy_ah" DestroyAh [4] {
        0 ah_handle: handle::Ah,
    }
}

write_commands! {
    "IB_USER_VERBS_CMD_CREATE_AH" 5: CreateAh => CreateAhResp;
    "IB_USER_VERBS_CMD_DESTROY_AH" 8: DestroyAh => ();
}
