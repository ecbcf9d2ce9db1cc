//! Capabilities of RoCE.

use crate::mlx5::firmware::layout::layouts;

layouts! {
    /// Capabilities of RoCE (type 4).
    RoceCap = "roce_cap", 0x100 {
        bool roce_apm: 0x0, 0x1;
        bool sw_r_roce_src_udp_port: 0x4, 0x1;
        bool fl_rc_qp_when_roce_disabled: 0x5, 0x1;
        bool fl_rc_qp_when_roce_enabled: 0x6, 0x1;
        bool roce_cc_general: 0x7, 0x1;
        bool qp_ooo_transmit_default: 0x8, 0x1;
        u8 qp_ts_format: 0x1e, 0x2;
        u8 l3_type: 0x8c, 0x4;
        u8 roce_version: 0x98, 0x8;
        u16 r_roce_dest_udp_port: 0xb0, 0x10;
        u16 r_roce_max_src_udp_port: 0xc0, 0x10;
        u16 r_roce_min_src_udp_port: 0xd0, 0x10;
        u16 roce_address_table_size: 0xf0, 0x10;
    }
}
