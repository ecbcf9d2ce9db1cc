//! Asking for capabilities and setting them.

use crate::mlx5::firmware::layout::layouts;

layouts! {
    /// Input of QUERY_HCA_CAP (0x100).
    QueryHcaCapIn = "query_hca_cap_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        bool other_function: 0x40, 0x1;
        bool ec_vf_function: 0x41, 0x1;
        u16 function_id: 0x50, 0x10;
    }

    /// Output of QUERY_HCA_CAP (0x100).
    QueryHcaCapOut = "query_hca_cap_out", 0x1010 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        bytes capability: 0x80, 0x8000;
    }

    /// Input of SET_HCA_CAP (0x109).
    SetHcaCapIn = "set_hca_cap_in", 0x1010 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        bool other_function: 0x40, 0x1;
        bool ec_vf_function: 0x41, 0x1;
        u16 function_id: 0x50, 0x10;
        bytes capability: 0x80, 0x8000;
    }

    /// Output of SET_HCA_CAP (0x109).
    SetHcaCapOut = "set_hca_cap_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }
}
