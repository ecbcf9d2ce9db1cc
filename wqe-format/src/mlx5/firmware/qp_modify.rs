//! State transitions of queue pairs.

use super::layout::layouts;
use super::qpc::Qpc;

layouts! {
    /// Input of RST2INIT_QP (0x502).
    Rst2initQpIn = "rst2init_qp_in", 0x110 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
        u32 qpn: 0x48, 0x18;
        u32 opt_param_mask: 0x80, 0x20;
        u32 ece: 0xa0, 0x20;
        (Qpc) qpc: 0xc0, 0x740;
    }

    /// Output of RST2INIT_QP (0x502).
    Rst2initQpOut = "rst2init_qp_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        u32 ece: 0x60, 0x20;
    }

    /// Input of INIT2INIT_QP (0x50e).
    Init2initQpIn = "init2init_qp_in", 0x110 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
        u32 qpn: 0x48, 0x18;
        u32 opt_param_mask: 0x80, 0x20;
        u32 ece: 0xa0, 0x20;
        (Qpc) qpc: 0xc0, 0x740;
    }

    /// Output of INIT2INIT_QP (0x50e).
    Init2initQpOut = "init2init_qp_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        u32 ece: 0x60, 0x20;
    }

    /// Input of INIT2RTR_QP (0x503).
    Init2rtrQpIn = "init2rtr_qp_in", 0x110 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
        u32 qpn: 0x48, 0x18;
        u32 opt_param_mask: 0x80, 0x20;
        u32 ece: 0xa0, 0x20;
        (Qpc) qpc: 0xc0, 0x740;
    }

    /// Output of INIT2RTR_QP (0x503).
    Init2rtrQpOut = "init2rtr_qp_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        u32 ece: 0x60, 0x20;
    }

    /// Input of RTR2RTS_QP (0x504).
    Rtr2rtsQpIn = "rtr2rts_qp_in", 0x110 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
        u32 qpn: 0x48, 0x18;
        u32 opt_param_mask: 0x80, 0x20;
        u32 ece: 0xa0, 0x20;
        (Qpc) qpc: 0xc0, 0x740;
    }

    /// Output of RTR2RTS_QP (0x504).
    Rtr2rtsQpOut = "rtr2rts_qp_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        u32 ece: 0x60, 0x20;
    }

    /// Input of RTS2RTS_QP (0x505).
    Rts2rtsQpIn = "rts2rts_qp_in", 0x110 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
        u32 qpn: 0x48, 0x18;
        u32 opt_param_mask: 0x80, 0x20;
        u32 ece: 0xa0, 0x20;
        (Qpc) qpc: 0xc0, 0x740;
    }

    /// Output of RTS2RTS_QP (0x505).
    Rts2rtsQpOut = "rts2rts_qp_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        u32 ece: 0x60, 0x20;
    }

    /// Input of SQERR2RTS_QP (0x506).
    Sqerr2rtsQpIn = "sqerr2rts_qp_in", 0x110 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
        u32 qpn: 0x48, 0x18;
        u32 opt_param_mask: 0x80, 0x20;
        (Qpc) qpc: 0xc0, 0x740;
    }

    /// Output of SQERR2RTS_QP (0x506).
    Sqerr2rtsQpOut = "sqerr2rts_qp_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }

    /// Input of SQD_RTS_QP (0x50c).
    Sqd2rtsQpIn = "sqd2rts_qp_in", 0x110 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
        u32 qpn: 0x48, 0x18;
        u32 opt_param_mask: 0x80, 0x20;
        (Qpc) qpc: 0xc0, 0x740;
    }

    /// Output of SQD_RTS_QP (0x50c).
    Sqd2rtsQpOut = "sqd2rts_qp_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }

    /// Input of 2ERR_QP (0x507).
    Qp2errIn = "qp_2err_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
        u32 qpn: 0x48, 0x18;
    }

    /// Output of 2ERR_QP (0x507).
    Qp2errOut = "qp_2err_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }

    /// Input of 2RST_QP (0x50a).
    Qp2rstIn = "qp_2rst_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
        u32 qpn: 0x48, 0x18;
    }

    /// Output of 2RST_QP (0x50a).
    Qp2rstOut = "qp_2rst_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }
}
