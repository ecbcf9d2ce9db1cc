//! The InfiniBand side of a virtual port.

use super::layout::layouts;

layouts! {
    /// InfiniBand context of a virtual port.
    HcaVportContext = "hca_vport_context", 0x200 {
        u32 field_select: 0x0, 0x20;
        bool sm_virt_aware: 0x100, 0x1;
        bool has_smi: 0x101, 0x1;
        bool has_raw: 0x102, 0x1;
        bool grh_required: 0x103, 0x1;
        u8 num_port_plane: 0x108, 0x8;
        u8 port_physical_state: 0x110, 0x4;
        u8 vport_state_policy: 0x114, 0x4;
        u8 port_state: 0x118, 0x4;
        u8 vport_state: 0x11c, 0x4;
        u64 system_image_guid: 0x140, 0x40;
        u64 port_guid: 0x180, 0x40;
        u64 node_guid: 0x1c0, 0x40;
        u32 cap_mask1: 0x200, 0x20;
        u32 cap_mask1_field_select: 0x220, 0x20;
        u32 cap_mask2: 0x240, 0x20;
        u32 cap_mask2_field_select: 0x260, 0x20;
        u16 lid: 0x300, 0x10;
        u8 init_type_reply: 0x314, 0x4;
        u8 lmc: 0x318, 0x3;
        u8 subnet_timeout: 0x31b, 0x5;
        u16 sm_lid: 0x320, 0x10;
        u8 sm_sl: 0x330, 0x4;
        u16 qkey_violation_counter: 0x340, 0x10;
        u16 pkey_violation_counter: 0x350, 0x10;
    }

    /// A partition key.
    Pkey = "pkey", 0x4 {
        u16 pkey: 0x10, 0x10;
    }

    /// Input of QUERY_HCA_VPORT_CONTEXT (0x762).
    QueryHcaVportContextIn = "query_hca_vport_context_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        bool other_vport: 0x40, 0x1;
        u8 port_num: 0x4c, 0x4;
        u16 vport_number: 0x50, 0x10;
    }

    /// Output of QUERY_HCA_VPORT_CONTEXT (0x762).
    QueryHcaVportContextOut = "query_hca_vport_context_out", 0x210 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        (HcaVportContext) hca_vport_context: 0x80, 0x1000;
    }

    /// Input of MODIFY_HCA_VPORT_CONTEXT (0x763).
    ModifyHcaVportContextIn = "modify_hca_vport_context_in", 0x210 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        bool other_vport: 0x40, 0x1;
        u8 port_num: 0x4c, 0x4;
        u16 vport_number: 0x50, 0x10;
        (HcaVportContext) hca_vport_context: 0x80, 0x1000;
    }

    /// Output of MODIFY_HCA_VPORT_CONTEXT (0x763).
    ModifyHcaVportContextOut = "modify_hca_vport_context_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }

    /// Input of QUERY_HCA_VPORT_GID (0x764).
    QueryHcaVportGidIn = "query_hca_vport_gid_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        bool other_vport: 0x40, 0x1;
        u8 port_num: 0x4c, 0x4;
        u16 vport_number: 0x50, 0x10;
        u16 gid_index: 0x70, 0x10;
    }

    /// Output of QUERY_HCA_VPORT_GID (0x764).
    QueryHcaVportGidOut = "query_hca_vport_gid_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        u16 gids_num: 0x60, 0x10;
        [(Array128)] gid: 0x80, 0x80;
    }

    /// Input of QUERY_HCA_VPORT_PKEY (0x765).
    QueryHcaVportPkeyIn = "query_hca_vport_pkey_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        bool other_vport: 0x40, 0x1;
        u8 port_num: 0x4c, 0x4;
        u16 vport_number: 0x50, 0x10;
        u16 pkey_index: 0x70, 0x10;
    }

    /// Output of QUERY_HCA_VPORT_PKEY (0x765).
    QueryHcaVportPkeyOut = "query_hca_vport_pkey_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        [(Pkey)] pkey: 0x80, 0x20;
    }

    /// 16 bytes: a GID.
    Array128 = "array128_auto", 0x10 {
        bytes array128_auto: 0x0, 0x80;
    }
}
