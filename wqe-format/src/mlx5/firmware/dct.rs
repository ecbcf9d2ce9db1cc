//! Dynamically connected targets.

use super::layout::layouts;

layouts! {
    /// Context of a DC target.
    Dctc = "dctc", 0x40 {
        u8 state: 0x4, 0x4;
        u32 user_index: 0x28, 0x18;
        u32 cqn: 0x48, 0x18;
        u8 counter_set_id: 0x60, 0x8;
        u8 atomic_mode: 0x68, 0x4;
        bool rre: 0x6c, 0x1;
        bool rwe: 0x6d, 0x1;
        bool rae: 0x6e, 0x1;
        bool atomic_like_write_en: 0x6f, 0x1;
        bool latency_sensitive: 0x70, 0x1;
        bool rlky: 0x71, 0x1;
        bool free_ar: 0x72, 0x1;
        u8 cs_res: 0x88, 0x8;
        u8 min_rnr_nak: 0x93, 0x5;
        u32 srqn_xrqn: 0xa8, 0x18;
        u32 pd: 0xc8, 0x18;
        u8 tclass: 0xe0, 0x8;
        u32 flow_label: 0xec, 0x14;
        u64 dc_access_key: 0x100, 0x40;
        u8 mtu: 0x145, 0x3;
        u8 port: 0x148, 0x8;
        u16 pkey_index: 0x150, 0x10;
        u8 my_addr_index: 0x168, 0x8;
        u8 hop_limit: 0x178, 0x8;
        u32 dc_access_key_violation_count: 0x180, 0x20;
        bool dei_cfi: 0x1b4, 0x1;
        u8 eth_prio: 0x1b5, 0x3;
        u8 ecn: 0x1b8, 0x2;
        u8 dscp: 0x1ba, 0x6;
        u32 ece: 0x1e0, 0x20;
    }

    /// Input of CREATE_DCT (0x710).
    CreateDctIn = "create_dct_in", 0x80 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
        (Dctc) dct_context_entry: 0x80, 0x200;
    }

    /// Output of CREATE_DCT (0x710).
    CreateDctOut = "create_dct_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        u32 dctn: 0x48, 0x18;
        u32 ece: 0x60, 0x20;
    }

    /// Input of DRAIN_DCT (0x712).
    DrainDctIn = "drain_dct_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
        u32 dctn: 0x48, 0x18;
    }

    /// Output of DRAIN_DCT (0x712).
    DrainDctOut = "drain_dct_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }

    /// Input of DESTROY_DCT (0x711).
    DestroyDctIn = "destroy_dct_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
        u32 dctn: 0x48, 0x18;
    }

    /// Output of DESTROY_DCT (0x711).
    DestroyDctOut = "destroy_dct_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }

    /// Input of QUERY_DCT (0x713).
    QueryDctIn = "query_dct_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        u32 dctn: 0x48, 0x18;
    }

    /// Output of QUERY_DCT (0x713).
    QueryDctOut = "query_dct_out", 0x80 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        (Dctc) dct_context_entry: 0x80, 0x200;
    }
}
