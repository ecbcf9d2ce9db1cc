//! Memory keys.

use super::layout::layouts;

layouts! {
    /// Memory key context.
    Mkc = "mkc", 0x40 {
        bool free: 0x1, 0x1;
        u8 access_mode_4_2: 0x3, 0x3;
        bool relaxed_ordering_write: 0xd, 0x1;
        bool small_fence_on_rdma_read_response: 0xf, 0x1;
        bool umr_en: 0x10, 0x1;
        bool a: 0x11, 0x1;
        bool rw: 0x12, 0x1;
        bool rr: 0x13, 0x1;
        bool lw: 0x14, 0x1;
        bool lr: 0x15, 0x1;
        u8 access_mode_1_0: 0x16, 0x2;
        u8 ma_translation_mode: 0x1a, 0x2;
        u32 qpn: 0x20, 0x18;
        u8 mkey_7_0: 0x38, 0x8;
        bool length64: 0x60, 0x1;
        bool bsf_en: 0x61, 0x1;
        bool sync_umr: 0x62, 0x1;
        bool expected_sigerr_count: 0x65, 0x1;
        bool en_rinval: 0x67, 0x1;
        u32 pd: 0x68, 0x18;
        u64 start_addr: 0x80, 0x40;
        u64 len: 0xc0, 0x40;
        u32 bsf_octword_size: 0x100, 0x20;
        u16 crossing_target_vhca_id: 0x180, 0x10;
        u32 translations_octword_size: 0x1a0, 0x20;
        bool relaxed_ordering_read: 0x1d9, 0x1;
        u8 log_page_size: 0x1da, 0x6;
    }

    /// Input of CREATE_MKEY (0x200).
    CreateMkeyIn = "create_mkey_in", 0x110 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
        bool pg_access: 0x60, 0x1;
        bool mkey_umem_valid: 0x61, 0x1;
        bool data_direct: 0x62, 0x1;
        (Mkc) memory_key_mkey_entry: 0x80, 0x200;
        u32 translations_octword_actual_size: 0x300, 0x20;
        [u32] klm_pas_mtt: 0x880, 0x20;
    }

    /// Output of CREATE_MKEY (0x200).
    CreateMkeyOut = "create_mkey_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        u32 mkey_index: 0x48, 0x18;
    }

    /// Input of QUERY_MKEY (0x201).
    QueryMkeyIn = "query_mkey_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        u32 mkey_index: 0x48, 0x18;
        bool pg_access: 0x60, 0x1;
    }

    /// Output of QUERY_MKEY (0x201).
    QueryMkeyOut = "query_mkey_out", 0x130 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        (Mkc) memory_key_mkey_entry: 0x80, 0x200;
        bytes bsf0_klm0_pas_mtt0_1: 0x880, 0x80;
        bytes bsf1_klm1_pas_mtt2_3: 0x900, 0x80;
    }

    /// Input of DESTROY_MKEY (0x202).
    DestroyMkeyIn = "destroy_mkey_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
        u32 mkey_index: 0x48, 0x18;
    }

    /// Output of DESTROY_MKEY (0x202).
    DestroyMkeyOut = "destroy_mkey_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }

    /// A list of translations by reference.
    UmrPointerDescArgument = "umr_pointer_desc_argument", 0x10 {
        u32 mkey: 0x20, 0x20;
        u32 addressh_63_32: 0x40, 0x20;
        u32 addressl_31_0: 0x60, 0x20;
    }
}
