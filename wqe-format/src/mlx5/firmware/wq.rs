//! The work queue that receive queues, send queues and memory pools have in common.

use super::command::CmdPas;
use super::layout::layouts;

layouts! {
    /// Work queue.
    Wq = "wq", 0xc0 {
        u8 wq_type: 0x0, 0x4;
        bool wq_signature: 0x4, 0x1;
        u8 end_padding_mode: 0x5, 0x2;
        bool cd_slave: 0x7, 0x1;
        bool hds_skip_first_sge: 0x20, 0x1;
        u8 log2_hds_buf_size: 0x21, 0x3;
        u8 page_offset: 0x2b, 0x5;
        u16 lwm: 0x30, 0x10;
        u32 pd: 0x48, 0x18;
        u32 uar_page: 0x68, 0x18;
        u64 dbr_addr: 0x80, 0x40;
        u32 hw_counter: 0xc0, 0x20;
        u32 sw_counter: 0xe0, 0x20;
        u8 log_wq_stride: 0x10c, 0x4;
        u8 log_wq_pg_sz: 0x113, 0x5;
        u8 log_wq_sz: 0x11b, 0x5;
        bool dbr_umem_valid: 0x120, 0x1;
        bool wq_umem_valid: 0x121, 0x1;
        u8 log_hairpin_num_packets: 0x123, 0x5;
        u8 log_hairpin_data_sz: 0x12b, 0x5;
        u8 log_wqe_num_of_strides: 0x134, 0x4;
        bool two_byte_shift_en: 0x138, 0x1;
        u8 log_wqe_stride_size: 0x13d, 0x3;
        u32 dbr_umem_id: 0x140, 0x20;
        u32 wq_umem_id: 0x160, 0x20;
        u64 wq_umem_offset: 0x180, 0x40;
        u32 headers_mkey: 0x1c0, 0x20;
        bool shampo_enable: 0x1e0, 0x1;
        u8 log_reservation_size: 0x1e5, 0x3;
        u8 log_max_num_of_packets_per_reservation: 0x1ed, 0x3;
        u8 log_headers_entry_size: 0x1f6, 0x2;
        u8 log_headers_buffer_entry_num: 0x1fc, 0x4;
        [(CmdPas)] pas: 0x600, 0x40;
    }
}
