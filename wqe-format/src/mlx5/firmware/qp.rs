//! Queue pairs: made, looked at, destroyed.

use super::layout::layouts;
use super::qpc::Qpc;

layouts! {
    /// Input of CREATE_QP (0x500).
    CreateQpIn = "create_qp_in", 0x110 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
        bool qpc_ext: 0x40, 0x1;
        u32 input_qpn: 0x48, 0x18;
        u32 opt_param_mask: 0x80, 0x20;
        u32 ece: 0xa0, 0x20;
        (Qpc) qpc: 0xc0, 0x740;
        u64 wq_umem_offset: 0x800, 0x40;
        u32 wq_umem_id: 0x840, 0x20;
        bool wq_umem_valid: 0x860, 0x1;
        [u64] pas: 0x880, 0x40;
    }

    /// Output of CREATE_QP (0x500).
    CreateQpOut = "create_qp_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        u32 qpn: 0x48, 0x18;
        u32 ece: 0x60, 0x20;
    }

    /// Input of DESTROY_QP (0x501).
    DestroyQpIn = "destroy_qp_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
        u32 qpn: 0x48, 0x18;
    }

    /// Output of DESTROY_QP (0x501).
    DestroyQpOut = "destroy_qp_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }

    /// Input of QUERY_QP (0x50b).
    QueryQpIn = "query_qp_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        bool qpc_ext: 0x40, 0x1;
        u32 qpn: 0x48, 0x18;
    }

    /// Output of QUERY_QP (0x50b).
    QueryQpOut = "query_qp_out", 0x110 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        u32 opt_param_mask: 0x80, 0x20;
        u32 ece: 0xa0, 0x20;
        (Qpc) qpc: 0xc0, 0x740;
        [bytes] qp_pas_or_qpc_ext_and_pas: 0x880, 0x600;
    }
}
