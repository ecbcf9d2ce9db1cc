//! The initialization segment at the start of BAR 0, and the health buffer in it.

use super::layout::layouts;

layouts! {
    /// What stands at the start of BAR 0.
    InitialSeg = "initial_seg", 0x400c {
        u16 fw_rev_minor: 0x0, 0x10;
        u16 fw_rev_major: 0x10, 0x10;
        u16 cmd_interface_rev: 0x20, 0x10;
        u16 fw_rev_subminor: 0x30, 0x10;
        u32 cmdq_phy_addr_63_32: 0x80, 0x20;
        u32 cmdq_phy_addr_31_12: 0xa0, 0x14;
        u8 nic_interface: 0xb6, 0x2;
        u8 log_cmdq_size: 0xb8, 0x4;
        u8 log_cmdq_stride: 0xbc, 0x4;
        u32 command_doorbell_vector: 0xc0, 0x20;
        bool initializing: 0xfe0, 0x1;
        u8 nic_interface_supported: 0xfe5, 0x3;
        bool embedded_cpu: 0xfe8, 0x1;
        (HealthBuffer) health_buffer: 0x1000, 0x200;
        u32 no_dram_nic_offset: 0x1200, 0x20;
        bool clear_int: 0x807f, 0x1;
        u8 health_syndrome: 0x8080, 0x8;
        u32 health_counter: 0x8088, 0x18;
    }

    /// What the firmware says about its own health.
    HealthBuffer = "health_buffer", 0x40 {
        u32 assert_existptr: 0x100, 0x20;
        u32 assert_callra: 0x120, 0x20;
        u32 time: 0x160, 0x20;
        u32 fw_version: 0x180, 0x20;
        u32 hw_id: 0x1a0, 0x20;
        bool rfr: 0x1c0, 0x1;
        bool valid: 0x1c4, 0x1;
        u8 severity: 0x1c5, 0x3;
        u8 irisc_index: 0x1e0, 0x8;
        u8 synd: 0x1e8, 0x8;
        u16 ext_synd: 0x1f0, 0x10;
    }
}
