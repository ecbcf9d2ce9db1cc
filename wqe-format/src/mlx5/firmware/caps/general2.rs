//! General capabilities, second page.

use crate::mlx5::firmware::layout::layouts;

layouts! {
    /// General capabilities, second page (type 0x20).
    CmdHcaCap2 = "cmd_hca_cap_2", 0x100 {
        bool migratable: 0x80, 0x1;
        bool query_vuid: 0x92, 0x1;
        bool umr_log_entity_size_5: 0x98, 0x1;
        u8 max_reformat_insert_size: 0xa0, 0x8;
        u8 max_reformat_insert_offset: 0xa8, 0x8;
        u8 max_reformat_remove_size: 0xb0, 0x8;
        u8 max_reformat_remove_offset: 0xb8, 0x8;
        bool migration_multi_load: 0xc8, 0x1;
        bool migration_tracking_state: 0xc9, 0x1;
        bool multiplane_qp_ud: 0xca, 0x1;
        bool migration_in_chunks: 0xd0, 0x1;
        bool sf_eq_usage: 0xd2, 0x1;
        bool multiplane: 0xd8, 0x1;
        u32 cross_vhca_object_to_object_supported: 0xe0, 0x20;
        u64 allowed_object_for_other_vhca_access: 0x100, 0x40;
        u8 flow_table_type_2_type: 0x1a0, 0x8;
        bool format_select_dw_8_6_ext: 0x1aa, 0x1;
        u8 log_min_mkey_entity_size: 0x1ab, 0x5;
        bool sw_vhca_id_valid: 0x221, 0x1;
        u16 sw_vhca_id: 0x222, 0xe;
        u8 ts_cqe_metadata_size2wqe_counter: 0x24b, 0x5;
        u8 format_select_dw_gtpu_dw_0: 0x280, 0x8;
        u8 format_select_dw_gtpu_dw_1: 0x288, 0x8;
        u8 format_select_dw_gtpu_dw_2: 0x290, 0x8;
        u8 format_select_dw_gtpu_first_ext_dw_0: 0x298, 0x8;
        u32 generate_wqe_type: 0x2a0, 0x20;
        u8 min_mkey_log_entity_size_fixed_buffer: 0x38b, 0x5;
        u16 ec_vf_vport_base: 0x390, 0x10;
        u8 max_mkey_log_entity_size_mtt: 0x3aa, 0x6;
        u16 max_rqt_vhca_id: 0x3b0, 0x10;
        bool pcc_ifa2: 0x3f0, 0x1;
        bool min_mkey_log_entity_size_fixed_buffer_valid: 0x401, 0x1;
        u16 return_reg_id: 0x410, 0x10;
        u8 flow_table_hash_type: 0x43c, 0x4;
        u32 max_num_eqs_24b: 0x448, 0x18;
    }
}
