//! What becomes of a command.

use super::numbers;

/// How the firmware took a command: the first 8 bits of its output. Any number is a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Status(pub u8);

// Linux include/linux/mlx5/device.h `MLX5_CMD_STAT_*`.
numbers! { Status, "MLX5_CMD_STAT_":
    OK = 0x00, "OK";
    INT_ERR = 0x01, "INT_ERR";
    BAD_OP_ERR = 0x02, "BAD_OP_ERR";
    BAD_PARAM_ERR = 0x03, "BAD_PARAM_ERR";
    BAD_SYS_STATE_ERR = 0x04, "BAD_SYS_STATE_ERR";
    BAD_RES_ERR = 0x05, "BAD_RES_ERR";
    RES_BUSY = 0x06, "RES_BUSY";
    NOT_READY = 0x07, "NOT_READY";
    LIM_ERR = 0x08, "LIM_ERR";
    BAD_RES_STATE_ERR = 0x09, "BAD_RES_STATE_ERR";
    IX_ERR = 0x0a, "IX_ERR";
    NO_RES_ERR = 0x0f, "NO_RES_ERR";
    BAD_QP_STATE_ERR = 0x10, "BAD_QP_STATE_ERR";
    BAD_PKT_ERR = 0x30, "BAD_PKT_ERR";
    BAD_SIZE_OUTS_CQES_ERR = 0x40, "BAD_SIZE_OUTS_CQES_ERR";
    BAD_INP_LEN_ERR = 0x50, "BAD_INP_LEN_ERR";
    BAD_OUTP_LEN_ERR = 0x51, "BAD_OUTP_LEN_ERR";
}

impl Status {
    /// Whether the command was done.
    pub const fn is_ok(self) -> bool {
        self.0 == Self::OK.0
    }
}

/// How the command interface itself took a command: the seven bits beside the ownership bit of its queue entry. Any
/// number is a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Delivery(pub u8);

// Linux drivers/net/ethernet/mellanox/mlx5/core/cmd.c `MLX5_CMD_DELIVERY_STAT_*`.
numbers! { Delivery, "MLX5_CMD_DELIVERY_STAT_":
    OK = 0x00, "OK";
    SIGNAT_ERR = 0x01, "SIGNAT_ERR";
    TOK_ERR = 0x02, "TOK_ERR";
    BAD_BLK_NUM_ERR = 0x03, "BAD_BLK_NUM_ERR";
    OUT_PTR_ALIGN_ERR = 0x04, "OUT_PTR_ALIGN_ERR";
    IN_PTR_ALIGN_ERR = 0x05, "IN_PTR_ALIGN_ERR";
    FW_ERR = 0x06, "FW_ERR";
    IN_LENGTH_ERR = 0x07, "IN_LENGTH_ERR";
    OUT_LENGTH_ERR = 0x08, "OUT_LENGTH_ERR";
    RES_FLD_NOT_CLR_ERR = 0x09, "RES_FLD_NOT_CLR_ERR";
    CMD_DESCR_ERR = 0x10, "CMD_DESCR_ERR";
}
