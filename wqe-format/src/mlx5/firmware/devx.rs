//! User contexts and memory of DEVX.

use super::layout::layouts;

layouts! {
    /// User context of DEVX.
    Uctx = "uctx", 0x30 {
        u32 cap: 0x0, 0x20;
    }

    /// Memory of a process, registered for objects of DEVX.
    Umem = "umem", 0x20 {
        bool ats: 0x80, 0x1;
        u8 log_page_size: 0x9b, 0x5;
        u32 page_offset: 0xa0, 0x20;
        u64 num_of_mtt: 0xc0, 0x40;
        [u64] mtt: 0x100, 0x40;
    }

    /// Input of CREATE_UCTX (0xa04).
    CreateUctxIn = "create_uctx_in", 0x40 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        (Uctx) uctx: 0x80, 0x180;
    }

    /// Output of CREATE_UCTX (0xa04).
    CreateUctxOut = "create_uctx_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        u16 uid: 0x50, 0x10;
    }

    /// Input of DESTROY_UCTX (0xa06).
    DestroyUctxIn = "destroy_uctx_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        u16 uid: 0x50, 0x10;
    }

    /// Output of DESTROY_UCTX (0xa06).
    DestroyUctxOut = "destroy_uctx_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }

    /// Input of CREATE_UMEM (0xa08).
    CreateUmemIn = "create_umem_in", 0x30 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
        (Umem) umem: 0x80, 0x100;
    }

    /// Output of CREATE_UMEM (0xa08).
    CreateUmemOut = "create_umem_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        u32 umem_id: 0x48, 0x18;
    }

    /// Input of DESTROY_UMEM (0xa0a).
    DestroyUmemIn = "destroy_umem_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
        u32 umem_id: 0x48, 0x18;
    }

    /// Output of DESTROY_UMEM (0xa0a).
    DestroyUmemOut = "destroy_umem_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }
}
