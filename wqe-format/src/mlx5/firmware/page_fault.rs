//! Page faults (on-demand paging).

use super::layout::layouts;

layouts! {
    /// Input of PAGE_FAULT_RESUME (0x204).
    PageFaultResumeIn = "page_fault_resume_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        u64 page_fault_info: 0x40, 0x40;
    }

    /// Output of PAGE_FAULT_RESUME (0x204).
    PageFaultResumeOut = "page_fault_resume_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }

    /// A page fault of a memory key.
    MemPageFaultInfo = "mem_page_fault_info", 0x8 {
        bool error: 0x0, 0x1;
        u16 fault_token_47_32: 0x10, 0x10;
        u32 fault_token_31_0: 0x20, 0x20;
    }

    /// A page fault of a queue pair.
    TransPageFaultInfo = "trans_page_fault_info", 0x8 {
        bool error: 0x0, 0x1;
        u8 page_fault_type: 0x5, 0x3;
        u32 wq_number: 0x8, 0x18;
        u32 fault_token: 0x28, 0x18;
    }
}
