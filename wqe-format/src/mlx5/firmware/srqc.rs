//! Contexts of shared receive queues.

use super::layout::layouts;

layouts! {
    /// Shared receive queue context.
    Srqc = "srqc", 0x40 {
        u8 state: 0x0, 0x4;
        u8 log_srq_size: 0x4, 0x4;
        bool wq_signature: 0x20, 0x1;
        bool cont_srq: 0x21, 0x1;
        bool rlky: 0x23, 0x1;
        u8 log_rq_stride: 0x25, 0x3;
        u32 xrcd: 0x28, 0x18;
        u8 page_offset: 0x40, 0x6;
        u32 cqn: 0x48, 0x18;
        u8 log_page_size: 0x82, 0x6;
        u32 pd: 0xc8, 0x18;
        u16 lwm: 0xe0, 0x10;
        u16 wqe_cnt: 0xf0, 0x10;
        u64 dbr_addr: 0x140, 0x40;
    }

    /// XRC shared receive queue context.
    XrcSrqc = "xrc_srqc", 0x40 {
        u8 state: 0x0, 0x4;
        u8 log_xrc_srq_size: 0x4, 0x4;
        bool wq_signature: 0x20, 0x1;
        bool cont_srq: 0x21, 0x1;
        bool rlky: 0x23, 0x1;
        bool basic_cyclic_rcv_wqe: 0x24, 0x1;
        u8 log_rq_stride: 0x25, 0x3;
        u32 xrcd: 0x28, 0x18;
        u8 page_offset: 0x40, 0x6;
        bool dbr_umem_valid: 0x47, 0x1;
        u32 cqn: 0x48, 0x18;
        bool user_index_equal_xrc_srqn: 0x80, 0x1;
        u8 log_page_size: 0x82, 0x6;
        u32 user_index: 0x88, 0x18;
        u32 pd: 0xc8, 0x18;
        u16 lwm: 0xe0, 0x10;
        u16 wqe_cnt: 0xf0, 0x10;
        u32 db_record_addr_h: 0x140, 0x20;
        u32 db_record_addr_l: 0x160, 0x1e;
    }
}
