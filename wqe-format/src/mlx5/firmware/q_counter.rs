//! Counters of queue pairs.

use super::layout::layouts;

layouts! {
    /// Input of ALLOC_Q_COUNTER (0x771).
    AllocQCounterIn = "alloc_q_counter_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
    }

    /// Output of ALLOC_Q_COUNTER (0x771).
    AllocQCounterOut = "alloc_q_counter_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        u8 counter_set_id: 0x58, 0x8;
    }

    /// Input of DEALLOC_Q_COUNTER (0x772).
    DeallocQCounterIn = "dealloc_q_counter_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        u8 counter_set_id: 0x58, 0x8;
    }

    /// Output of DEALLOC_Q_COUNTER (0x772).
    DeallocQCounterOut = "dealloc_q_counter_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }

    /// Input of QUERY_Q_COUNTER (0x773).
    QueryQCounterIn = "query_q_counter_in", 0x20 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        bool other_vport: 0x40, 0x1;
        u16 vport_number: 0x50, 0x10;
        bool clear: 0xc0, 0x1;
        bool aggregate: 0xc1, 0x1;
        u8 counter_set_id: 0xf8, 0x8;
    }

    /// Output of QUERY_Q_COUNTER (0x773).
    QueryQCounterOut = "query_q_counter_out", 0x100 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        u32 rx_write_requests: 0x80, 0x20;
        u32 rx_read_requests: 0xc0, 0x20;
        u32 rx_atomic_requests: 0x100, 0x20;
        u32 rx_dct_connect: 0x140, 0x20;
        u32 out_of_buffer: 0x180, 0x20;
        u32 out_of_sequence: 0x1c0, 0x20;
        u32 duplicate_request: 0x200, 0x20;
        u32 rnr_nak_retry_err: 0x240, 0x20;
        u32 packet_seq_err: 0x280, 0x20;
        u32 implied_nak_seq_err: 0x2c0, 0x20;
        u32 local_ack_timeout_err: 0x300, 0x20;
        u32 req_rnr_retries_exceeded: 0x380, 0x20;
        u32 resp_local_length_error: 0x3c0, 0x20;
        u32 req_local_length_error: 0x3e0, 0x20;
        u32 resp_local_qp_error: 0x400, 0x20;
        u32 local_operation_error: 0x420, 0x20;
        u32 resp_local_protection: 0x440, 0x20;
        u32 req_local_protection: 0x460, 0x20;
        u32 resp_cqe_error: 0x480, 0x20;
        u32 req_cqe_error: 0x4a0, 0x20;
        u32 req_mw_binding: 0x4c0, 0x20;
        u32 req_bad_response: 0x4e0, 0x20;
        u32 req_remote_invalid_request: 0x500, 0x20;
        u32 resp_remote_invalid_request: 0x520, 0x20;
        u32 req_remote_access_errors: 0x540, 0x20;
        u32 resp_remote_access_errors: 0x560, 0x20;
        u32 req_remote_operation_errors: 0x580, 0x20;
        u32 req_transport_retries_exceeded: 0x5a0, 0x20;
        u32 cq_overflow: 0x5c0, 0x20;
        u32 resp_cqe_flush_error: 0x5e0, 0x20;
        u32 req_cqe_flush_error: 0x600, 0x20;
        u32 roce_adp_retrans: 0x640, 0x20;
        u32 roce_adp_retrans_to: 0x660, 0x20;
        u32 roce_slow_restart: 0x680, 0x20;
        u32 roce_slow_restart_cnps: 0x6a0, 0x20;
        u32 roce_slow_restart_trans: 0x6c0, 0x20;
    }
}
