//! Event queue entries and what they carry.

use super::layout::layouts;

layouts! {
    /// Event queue entry.
    Eqe = "eqe", 0x40 {
        u8 event_type: 0x8, 0x8;
        u8 event_sub_type: 0x18, 0x8;
        bytes event_data: 0x100, 0xe0;
        u8 signature: 0x1f0, 0x8;
        bool owner: 0x1ff, 0x1;
    }

    /// Data of a completion event (0x0).
    CompEvent = "comp_event", 0x1c {
        u32 cq_number: 0xc8, 0x18;
    }

    /// Data of a completion queue's error (0x4).
    CqError = "cq_error", 0x1c {
        u32 cqn: 0x8, 0x18;
        u8 syndrome: 0x58, 0x8;
    }

    /// Data of events of queue pairs and shared receive queues.
    QpEvents = "qp_events", 0x1c {
        u8 type_: 0xa0, 0x8;
        u32 qpn_rqn_sqn: 0xc8, 0x18;
    }

    /// Data of events of DC targets (0x1c, 0x1d).
    DctEvents = "dct_events", 0x1c {
        u32 dct_number: 0xc8, 0x18;
    }

    /// Data of a port's change (0x9).
    PortStateChangeEvent = "port_state_change_event", 0x1c {
        u8 port_num: 0x40, 0x4;
    }

    /// Data of a command's completion (0xa).
    CmdInterCompEvent = "cmd_inter_comp_event", 0x1c {
        u32 command_completion_vector: 0x0, 0x20;
    }

    /// Data of the firmware's request for pages (0xb).
    PagesReqEvent = "pages_req_event", 0x1c {
        u16 function_id: 0x10, 0x10;
        u32 num_pages: 0x20, 0x20;
    }

    /// Data of a page fault (0xc) of a responder.
    RdmaPageFaultEvent = "rdma_page_fault_event", 0x1c {
        u32 bytes_committed: 0x0, 0x20;
        u32 r_key: 0x20, 0x20;
        u16 packet_len: 0x50, 0x10;
        u32 rdma_op_len: 0x60, 0x20;
        u64 rdma_va: 0x80, 0x40;
        bool rdma: 0xc5, 0x1;
        bool write: 0xc6, 0x1;
        bool requestor: 0xc7, 0x1;
        u32 qp_number: 0xc8, 0x18;
    }

    /// Data of a page fault (0xc) of a work request.
    WqeAssociatedPageFaultEvent = "wqe_associated_page_fault_event", 0x1c {
        u32 bytes_committed: 0x0, 0x20;
        u16 wqe_index: 0x30, 0x10;
        u16 len: 0x50, 0x10;
        bool rdma: 0xc5, 0x1;
        bool write_read: 0xc6, 0x1;
        bool requestor: 0xc7, 0x1;
        u32 qpn: 0xc8, 0x18;
    }

    /// Data of a stalled virtual lane (0x1b).
    StallVlEvent = "stall_vl_event", 0x18 {
        bool port_num: 0x18, 0x1;
        u8 vl: 0x1c, 0x4;
    }

    /// Data of congested doorbells (0x1a).
    DbBfCongestionEvent = "db_bf_congestion_event", 0x18 {
        u8 event_subtype: 0x0, 0x8;
        u8 congestion_level: 0x10, 0x8;
    }

    /// Data of a pin's change (0x15).
    GpioEvent = "gpio_event", 0x1c {
        u32 gpio_event_hi: 0x60, 0x20;
        u32 gpio_event_lo: 0x80, 0x20;
    }
}
