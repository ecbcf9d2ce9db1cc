//! State and counters of a virtual port.

use super::layout::layouts;

layouts! {
    /// Input of QUERY_VPORT_STATE (0x750).
    QueryVportStateIn = "query_vport_state_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        bool other_vport: 0x40, 0x1;
        u16 vport_number: 0x50, 0x10;
    }

    /// Output of QUERY_VPORT_STATE (0x750).
    QueryVportStateOut = "query_vport_state_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        u8 admin_state: 0x78, 0x4;
        u8 state: 0x7c, 0x4;
    }

    /// Input of MODIFY_VPORT_STATE (0x751).
    ModifyVportStateIn = "modify_vport_state_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        bool other_vport: 0x40, 0x1;
        u16 vport_number: 0x50, 0x10;
        u8 admin_state: 0x78, 0x4;
    }

    /// Output of MODIFY_VPORT_STATE (0x751).
    ModifyVportStateOut = "modify_vport_state_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }

    /// Input of QUERY_VPORT_COUNTER (0x770).
    QueryVportCounterIn = "query_vport_counter_in", 0x20 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        bool other_vport: 0x40, 0x1;
        u8 port_num: 0x4c, 0x4;
        u16 vport_number: 0x50, 0x10;
        bool clear: 0xc0, 0x1;
    }

    /// Output of QUERY_VPORT_COUNTER (0x770).
    QueryVportCounterOut = "query_vport_counter_out", 0x210 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        (TrafficCounter) received_errors: 0x80, 0x80;
        (TrafficCounter) transmit_errors: 0x100, 0x80;
        (TrafficCounter) received_ib_unicast: 0x180, 0x80;
        (TrafficCounter) transmitted_ib_unicast: 0x200, 0x80;
        (TrafficCounter) received_ib_multicast: 0x280, 0x80;
        (TrafficCounter) transmitted_ib_multicast: 0x300, 0x80;
        (TrafficCounter) received_eth_broadcast: 0x380, 0x80;
        (TrafficCounter) transmitted_eth_broadcast: 0x400, 0x80;
        (TrafficCounter) received_eth_unicast: 0x480, 0x80;
        (TrafficCounter) transmitted_eth_unicast: 0x500, 0x80;
        (TrafficCounter) received_eth_multicast: 0x580, 0x80;
        (TrafficCounter) transmitted_eth_multicast: 0x600, 0x80;
        (TrafficCounter) local_loopback: 0x680, 0x80;
    }

    /// Input of QUERY_VNIC_ENV (0x76f).
    QueryVnicEnvIn = "query_vnic_env_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        bool other_vport: 0x40, 0x1;
        u16 vport_number: 0x50, 0x10;
    }

    /// Output of QUERY_VNIC_ENV (0x76f).
    QueryVnicEnvOut = "query_vnic_env_out", 0x210 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        (VnicDiagnosticStatistics) vport_env: 0x80, 0x1000;
    }

    /// Packets and octets.
    TrafficCounter = "traffic_counter", 0x10 {
        u64 packets: 0x0, 0x40;
        u64 octets: 0x40, 0x40;
    }

    /// Counters for diagnosis of a function.
    VnicDiagnosticStatistics = "vnic_diagnostic_statistics", 0x200 {
        u32 counter_error_queues: 0x0, 0x20;
        u32 total_error_queues: 0x20, 0x20;
        u32 send_queue_priority_update_flow: 0x40, 0x20;
        u64 nic_receive_steering_discard: 0x80, 0x40;
        u64 receive_discard_vport_down: 0xc0, 0x40;
        u64 transmit_discard_vport_down: 0x100, 0x40;
        u32 async_eq_overrun: 0x140, 0x20;
        u32 comp_eq_overrun: 0x160, 0x20;
        u32 invalid_command: 0x1a0, 0x20;
        u32 quota_exceeded_command: 0x1c0, 0x20;
        u32 internal_rq_out_of_buffer: 0x1e0, 0x20;
        u32 cq_overrun: 0x200, 0x20;
        u32 eth_wqe_too_small: 0x220, 0x20;
        u64 generated_pkt_steering_fail: 0x300, 0x40;
        u64 handled_pkt_steering_fail: 0x340, 0x40;
    }
}
