//! Bringing the device up and down, and what it is.

use super::layout::layouts;

layouts! {
    /// Input of ENABLE_HCA (0x104).
    EnableHcaIn = "enable_hca_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        bool embedded_cpu_function: 0x40, 0x1;
        u16 function_id: 0x50, 0x10;
    }

    /// Output of ENABLE_HCA (0x104).
    EnableHcaOut = "enable_hca_out", 0xc {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }

    /// Input of DISABLE_HCA (0x105).
    DisableHcaIn = "disable_hca_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        bool embedded_cpu_function: 0x40, 0x1;
        u16 function_id: 0x50, 0x10;
    }

    /// Output of DISABLE_HCA (0x105).
    DisableHcaOut = "disable_hca_out", 0xc {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }

    /// Input of QUERY_ISSI (0x10a).
    QueryIssiIn = "query_issi_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
    }

    /// Output of QUERY_ISSI (0x10a).
    QueryIssiOut = "query_issi_out", 0x70 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        u16 current_issi: 0x50, 0x10;
        u32 supported_issi_dw0: 0x360, 0x20;
    }

    /// Input of SET_ISSI (0x10b).
    SetIssiIn = "set_issi_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        u16 current_issi: 0x50, 0x10;
    }

    /// Output of SET_ISSI (0x10b).
    SetIssiOut = "set_issi_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }

    /// Input of INIT_HCA (0x102).
    InitHcaIn = "init_hca_in", 0x20 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        u16 sw_vhca_id: 0x62, 0xe;
        [u32; 4] sw_owner_id: 0x80, 0x20;
    }

    /// Output of INIT_HCA (0x102).
    InitHcaOut = "init_hca_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }

    /// Input of TEARDOWN_HCA (0x103).
    TeardownHcaIn = "teardown_hca_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        u16 profile: 0x50, 0x10;
    }

    /// Output of TEARDOWN_HCA (0x103).
    TeardownHcaOut = "teardown_hca_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        bool state: 0x7f, 0x1;
    }

    /// Input of SET_DRIVER_VERSION (0x10d).
    SetDriverVersionIn = "set_driver_version_in", 0x50 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        bytes driver_version: 0x80, 0x200;
    }

    /// Output of SET_DRIVER_VERSION (0x10d).
    SetDriverVersionOut = "set_driver_version_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }

    /// Input of QUERY_ADAPTER (0x101).
    QueryAdapterIn = "query_adapter_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
    }

    /// Output of QUERY_ADAPTER (0x101).
    QueryAdapterOut = "query_adapter_out", 0x110 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        (QueryAdapterParamBlock) query_adapter_struct: 0x80, 0x800;
    }

    /// What QUERY_ADAPTER answers.
    QueryAdapterParamBlock = "query_adapter_param_block", 0x100 {
        u32 ieee_vendor_id: 0xc8, 0x18;
        u16 vsd_vendor_id: 0xf0, 0x10;
        bytes vsd: 0x100, 0x680;
        bytes vsd_contd_psid: 0x780, 0x80;
    }

    /// Input of QUERY_SPECIAL_CONTEXTS (0x203).
    QuerySpecialContextsIn = "query_special_contexts_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
    }

    /// Output of QUERY_SPECIAL_CONTEXTS (0x203).
    QuerySpecialContextsOut = "query_special_contexts_out", 0x20 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        u32 dump_fill_mkey: 0x40, 0x20;
        u32 resd_lkey: 0x60, 0x20;
        u32 null_mkey: 0x80, 0x20;
        u32 terminate_scatter_list_mkey: 0xa0, 0x20;
        u32 repeated_mkey: 0xc0, 0x20;
    }
}
