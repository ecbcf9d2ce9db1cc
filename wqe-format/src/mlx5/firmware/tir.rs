//! Transport interface receive: what a packet's rule leads to.

use super::layout::layouts;

layouts! {
    /// Transport interface receive context.
    Tirc = "tirc", 0xf0 {
        u8 disp_type: 0x20, 0x4;
        bool tls_en: 0x24, 0x1;
        u16 lro_timeout_period_usecs: 0x84, 0x10;
        u8 packet_merge_mask: 0x94, 0x4;
        u8 lro_max_ip_payload_size: 0x98, 0x8;
        u32 inline_rqn: 0xe8, 0x18;
        bool rx_hash_symmetric: 0x100, 0x1;
        bool tunneled_offload_en: 0x102, 0x1;
        u32 indirect_table: 0x108, 0x18;
        u8 rx_hash_fn: 0x120, 0x4;
        u8 self_lb_block: 0x126, 0x2;
        u32 transport_domain: 0x128, 0x18;
        [u32; 10] rx_hash_toeplitz_key: 0x140, 0x20;
        (RxHashFieldSelect) rx_hash_field_selector_outer: 0x280, 0x20;
        (RxHashFieldSelect) rx_hash_field_selector_inner: 0x2a0, 0x20;
    }

    /// What of a packet is hashed.
    RxHashFieldSelect = "rx_hash_field_select", 0x4 {
        bool l3_prot_type: 0x0, 0x1;
        bool l4_prot_type: 0x1, 0x1;
        u32 selected_fields: 0x2, 0x1e;
    }

    /// Which fields MODIFY_TIR means.
    ModifyTirBitmask = "modify_tir_bitmask", 0x8 {
        bool self_lb_en: 0x3b, 0x1;
        bool hash: 0x3d, 0x1;
        bool packet_merge: 0x3f, 0x1;
    }

    /// Input of CREATE_TIR (0x900).
    CreateTirIn = "create_tir_in", 0x110 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
        (Tirc) ctx: 0x100, 0x780;
    }

    /// Output of CREATE_TIR (0x900).
    CreateTirOut = "create_tir_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 icm_address_63_40: 0x8, 0x18;
        u32 syndrome: 0x20, 0x20;
        u8 icm_address_39_32: 0x40, 0x8;
        u32 tirn: 0x48, 0x18;
        u32 icm_address_31_0: 0x60, 0x20;
    }

    /// Input of MODIFY_TIR (0x901).
    ModifyTirIn = "modify_tir_in", 0x110 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
        u32 tirn: 0x48, 0x18;
        (ModifyTirBitmask) bitmask: 0x80, 0x40;
        (Tirc) ctx: 0x100, 0x780;
    }

    /// Output of MODIFY_TIR (0x901).
    ModifyTirOut = "modify_tir_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }

    /// Input of DESTROY_TIR (0x902).
    DestroyTirIn = "destroy_tir_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
        u32 tirn: 0x48, 0x18;
    }

    /// Output of DESTROY_TIR (0x902).
    DestroyTirOut = "destroy_tir_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }

    /// Input of QUERY_TIR (0x903).
    QueryTirIn = "query_tir_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        u32 tirn: 0x48, 0x18;
    }

    /// Output of QUERY_TIR (0x903).
    QueryTirOut = "query_tir_out", 0x110 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        (Tirc) tir_context: 0x100, 0x780;
    }
}
