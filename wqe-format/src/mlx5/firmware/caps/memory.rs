//! Capabilities of memory on the device.

use crate::mlx5::firmware::layout::layouts;

layouts! {
    /// Capabilities of memory on the device (type 0xf).
    DeviceMemCap = "device_mem_cap", 0x100 {
        bool memic: 0x0, 0x1;
        u8 log_min_memic_alloc_size: 0x2b, 0x5;
        u8 log_max_memic_addr_alignment: 0x38, 0x8;
        u64 memic_bar_start_addr: 0x40, 0x40;
        u32 memic_bar_size: 0x80, 0x20;
        u32 max_memic_size: 0xa0, 0x20;
        u64 steering_sw_icm_start_address: 0xc0, 0x40;
        u8 log_header_modify_sw_icm_size: 0x108, 0x8;
        u8 log_sw_icm_alloc_granularity: 0x112, 0x6;
        u8 log_steering_sw_icm_size: 0x118, 0x8;
        u8 log_indirect_encap_sw_icm_size: 0x120, 0x8;
        u8 log_header_modify_pattern_sw_icm_size: 0x138, 0x8;
        u64 header_modify_sw_icm_start_address: 0x140, 0x40;
        u64 header_modify_pattern_sw_icm_start_address: 0x1c0, 0x40;
        u32 memic_operations: 0x200, 0x20;
        u64 indirect_encap_sw_icm_start_address: 0x240, 0x40;
    }
}
