//! Capabilities of quality of service.

use crate::mlx5::firmware::layout::layouts;

layouts! {
    /// Capabilities of quality of service (type 0xc).
    QosCap = "qos_cap", 0x100 {
        bool packet_pacing: 0x0, 0x1;
        bool esw_scheduling: 0x1, 0x1;
        bool esw_bw_share: 0x2, 0x1;
        bool esw_rate_limit: 0x3, 0x1;
        bool packet_pacing_burst_bound: 0x5, 0x1;
        bool packet_pacing_typical_size: 0x6, 0x1;
        bool nic_sq_scheduling: 0x8, 0x1;
        bool nic_bw_share: 0x9, 0x1;
        bool nic_rate_limit: 0xa, 0x1;
        bool packet_pacing_uid: 0xb, 0x1;
        u8 log_esw_max_sched_depth: 0xc, 0x4;
        u8 log_max_qos_nic_queue_group: 0x2b, 0x5;
        u32 packet_pacing_max_rate: 0x40, 0x20;
        u32 packet_pacing_min_rate: 0x60, 0x20;
        u16 packet_pacing_rate_table_size: 0x90, 0x10;
        u16 esw_element_type: 0xa0, 0x10;
        u16 esw_tsar_type: 0xb0, 0x10;
        u16 max_qos_para_vport: 0xd0, 0x10;
        u32 max_tsar_bw_share: 0xe0, 0x20;
        u16 nic_element_type: 0x100, 0x10;
        u16 nic_tsar_type: 0x110, 0x10;
        u8 log_meter_aso_granularity: 0x123, 0x5;
        u8 log_meter_aso_max_alloc: 0x12b, 0x5;
        u8 log_max_num_meter_aso: 0x133, 0x5;
    }
}
