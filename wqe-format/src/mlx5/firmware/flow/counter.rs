//! Counters of flows.

use crate::mlx5::firmware::layout::layouts;
use crate::mlx5::firmware::vport::TrafficCounter;

layouts! {
    /// Input of ALLOC_FLOW_COUNTER (0x939).
    AllocFlowCounterIn = "alloc_flow_counter_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        u8 flow_counter_bulk_log_size: 0x73, 0x5;
        u8 flow_counter_bulk: 0x78, 0x8;
    }

    /// Output of ALLOC_FLOW_COUNTER (0x939).
    AllocFlowCounterOut = "alloc_flow_counter_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        u32 flow_counter_id: 0x40, 0x20;
    }

    /// Input of DEALLOC_FLOW_COUNTER (0x93a).
    DeallocFlowCounterIn = "dealloc_flow_counter_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        u32 flow_counter_id: 0x40, 0x20;
    }

    /// Output of DEALLOC_FLOW_COUNTER (0x93a).
    DeallocFlowCounterOut = "dealloc_flow_counter_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }

    /// Input of QUERY_FLOW_COUNTER (0x93b).
    QueryFlowCounterIn = "query_flow_counter_in", 0x20 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        bool clear: 0xc0, 0x1;
        u16 num_of_counters: 0xd0, 0x10;
        u32 flow_counter_id: 0xe0, 0x20;
    }

    /// Output of QUERY_FLOW_COUNTER (0x93b).
    QueryFlowCounterOut = "query_flow_counter_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        [(TrafficCounter)] flow_statistics: 0x80, 0x80;
    }
}
