//! Opcodes of send work requests.

/// What a send work request does: the low byte of its first word, and the top byte of
/// [`sop_drop_qpn`](super::Cqe64::sop_drop_qpn) in its completion. Any number is a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Opcode(pub u8);

macro_rules! opcodes {
    ($($name:ident = $value:literal, $text:literal, $doc:literal;)*) => {
        impl Opcode {
            $(#[doc = $doc] pub const $name: Self = Self($value);)*

            /// Every opcode that this crate knows, in ascending order.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The manual's name, if the number has one.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

// mlx5dv.h `MLX5_OPCODE_*`; what that lacks: Linux include/linux/mlx5/device.h (GET_PSV, CHECK_PSV, DUMP, ENHANCED_MPSW),
// DPDK mlx5_prm.h (WAIT, SEND_EN, ENHANCED_MPSW, ACCESS_ASO), the vendor's libmlx5 (RECV_EN).
opcodes! {
    NOP = 0x00, "NOP", "No operation; completes in order.";
    SEND_INVAL = 0x01, "SEND_INVAL", "Send, and invalidate a key of the receiver.";
    RDMA_WRITE = 0x08, "RDMA_WRITE", "Write.";
    RDMA_WRITE_IMM = 0x09, "RDMA_WRITE_IMM", "Write that consumes a receive and brings immediate data.";
    SEND = 0x0a, "SEND", "Send.";
    SEND_IMM = 0x0b, "SEND_IMM", "Send with immediate data.";
    TSO = 0x0e, "TSO", "Large send of raw Ethernet: the device cuts it into segments.";
    WAIT = 0x0f, "WAIT", "Wait for a completion queue (cross-channel).";
    RDMA_READ = 0x10, "RDMA_READ", "Read.";
    ATOMIC_CS = 0x11, "ATOMIC_CS", "Compare and swap of 8 bytes.";
    ATOMIC_FA = 0x12, "ATOMIC_FA", "Fetch and add of 8 bytes.";
    ATOMIC_MASKED_CS = 0x14, "ATOMIC_MASKED_CS", "Compare and swap under masks.";
    ATOMIC_MASKED_FA = 0x15, "ATOMIC_MASKED_FA", "Fetch and add with field boundaries.";
    RECV_EN = 0x16, "RECV_EN", "Enable receives (cross-channel).";
    SEND_EN = 0x17, "SEND_EN", "Enable sends (cross-channel).";
    FMR = 0x19, "FMR", "Fast memory registration (old devices).";
    LOCAL_INVAL = 0x1b, "LOCAL_INVAL", "Invalidate a key (libmlx5 uses `UMR` for that).";
    CONFIG_CMD = 0x1f, "CONFIG_CMD", "Configuration.";
    SET_PSV = 0x20, "SET_PSV", "Set a protection signature.";
    GET_PSV = 0x21, "GET_PSV", "Read a protection signature.";
    CHECK_PSV = 0x22, "CHECK_PSV", "Check a protection signature.";
    DUMP = 0x23, "DUMP", "Send bytes as they are in the TCP stream of a kernel TLS offload.";
    UMR = 0x25, "UMR", "Change a memory key: registration, window bind, invalidation.";
    TAG_MATCHING = 0x28, "TAG_MATCHING", "Change a list of tags.";
    ENHANCED_MPSW = 0x29, "ENHANCED_MPSW", "Several Ethernet packets in one request.";
    FLOW_TBL_ACCESS = 0x2c, "FLOW_TBL_ACCESS", "Access to a steering table.";
    ACCESS_ASO = 0x2d, "ACCESS_ASO", "Access to an advanced steering object (meters, connection tracking).";
    MMO = 0x2f, "MMO", "Memory-to-memory operation.";
}

/// Opcode modifiers: the top byte of a work request's first word.
pub mod opmod {
    /// [`MMO`](super::Opcode::MMO): copy memory (rdma-core `MLX5_OPC_MOD_MMO_DMA`).
    pub const MMO_DMA: u8 = 1;
    /// [`ATOMIC_MASKED_CS`](super::Opcode::ATOMIC_MASKED_CS) and
    /// [`ATOMIC_MASKED_FA`](super::Opcode::ATOMIC_MASKED_FA) of 4 bytes: 8 | (log2(4) - 2) (UCX `UCT_IB_MLX5_OPMOD_EXT_ATOMIC`).
    pub const EXTENDED_ATOMIC_4: u8 = 8;
    /// The same of 8 bytes.
    pub const EXTENDED_ATOMIC_8: u8 = 9;
}
