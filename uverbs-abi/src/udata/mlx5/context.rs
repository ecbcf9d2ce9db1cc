//! The context and the page with the clock.

use crate::Reserved;

flag_sets! {
    /// What the program asks of a context.
    "mlx5_ib_alloc_uctx_v2_flags" AllocUcontextFlags(u32) {
        /// Room for DEVX objects; needs a device with that capability, else `EPERM` or `EOPNOTSUPP`.
        "MLX5_IB_ALLOC_UCTX_DEVX" DEVX = 1 << 0,
    }

    /// What the program understands.
    "mlx5_lib_caps" LibCaps(u64) {
        /// UAR pages of 4 KiB on kernels with larger pages.
        "MLX5_LIB_CAP_4K_UAR" UAR_4K = 1 << 0,
        /// UAR objects instead of pages that come with the context.
        "MLX5_LIB_CAP_DYN_UAR" DYN_UAR = 1 << 1,
    }

    /// Fields that are valid and kernel features, of [`AllocUcontextResp::comp_mask`].
    "mlx5_ib_alloc_ucontext_resp_mask" AllocUcontextRespMask(u32) {
        "MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_CORE_CLOCK_OFFSET" CORE_CLOCK_OFFSET = 1 << 0,
        "MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_DUMP_FILL_MKEY" DUMP_FILL_MKEY = 1 << 1,
        /// Enhanced connection establishment in create_qp and modify_qp.
        "MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_ECE" ECE = 1 << 2,
        "MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_SQD2RTS" SQD2RTS = 1 << 3,
        /// Completion queues may have real-time timestamps.
        "MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_REAL_TIME_TS" REAL_TIME_TS = 1 << 4,
        "MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_MKEY_UPDATE_TAG" MKEY_UPDATE_TAG = 1 << 5,
    }

    /// Commands with driver data for which the program must ask by it, of
    /// [`AllocUcontextResp::cmds_supp_uhw`].
    "mlx5_user_cmds_supp_uhw" CmdsSuppUhw(u8) {
        "MLX5_USER_CMDS_SUPP_UHW_QUERY_DEVICE" QUERY_DEVICE = 1 << 0,
        /// create_ah answers the destination's MAC address.
        "MLX5_USER_CMDS_SUPP_UHW_CREATE_AH" CREATE_AH = 1 << 1,
    }
}

flag_sets! {
    /// Encryption in flow rules that the device can do.
    "mlx5_user_alloc_ucontext_flow_action_flags" FlowActionFlags(u16) {
        "MLX5_USER_ALLOC_UCONTEXT_FLOW_ACTION_FLAGS_ESP_AES_GCM" ESP_AES_GCM = 1 << 0,
        "MLX5_USER_ALLOC_UCONTEXT_FLOW_ACTION_FLAGS_ESP_AES_GCM_REQ_METADATA" ESP_AES_GCM_REQ_METADATA = 1 << 1,
        "MLX5_USER_ALLOC_UCONTEXT_FLOW_ACTION_FLAGS_ESP_AES_GCM_SPI_STEERING" ESP_AES_GCM_SPI_STEERING = 1 << 2,
        "MLX5_USER_ALLOC_UCONTEXT_FLOW_ACTION_FLAGS_ESP_AES_GCM_FULL_OFFLOAD" ESP_AES_GCM_FULL_OFFLOAD = 1 << 3,
        "MLX5_USER_ALLOC_UCONTEXT_FLOW_ACTION_FLAGS_ESP_AES_GCM_TX_IV_IS_ESN" ESP_AES_GCM_TX_IV_IS_ESN = 1 << 4,
    }
}

open_enums! {
    /// How many header bytes of an Ethernet frame the device wants inside the WQE, one more than
    /// the firmware says so that 0 is "the kernel did not say".
    "mlx5_user_inline_mode" InlineMode(u8) {
        "MLX5_USER_INLINE_MODE_NA" NA = 0,
        "MLX5_USER_INLINE_MODE_NONE" NONE = 1,
        "MLX5_USER_INLINE_MODE_L2" L2 = 2,
        "MLX5_USER_INLINE_MODE_IP" IP = 3,
        "MLX5_USER_INLINE_MODE_TCP_UDP" TCP_UDP = 4,
    }
}

/// Bit of [`AllocUcontextResp::clock_info_versions`] for [`ClockInfo`]: `1 << CLOCK_INFO_V1`.
#[doc(alias = "MLX5_IB_CLOCK_INFO_V1")]
pub const CLOCK_INFO_V1: u8 = 0;

/// Bit of [`ClockInfo::sign`] while the kernel writes the page.
#[doc(alias = "MLX5_IB_CLOCK_INFO_KERNEL_UPDATING")]
pub const CLOCK_INFO_KERNEL_UPDATING: u32 = 1;

abi_structs! {
    /// Request of get_context. A kernel refuses a longer one than it knows (`EOPNOTSUPP`) if what it
    /// does not know is not zero; see [`AllocUcontextReqV2::LENGTHS`].
    "mlx5_ib_alloc_ucontext_req_v2" AllocUcontextReqV2 [32] {
        /// Doorbell registers that come with the context; ignored with [`LibCaps::DYN_UAR`].
        0 total_num_bfregs: u32,
        /// How many of them are for one queue each.
        4 num_low_latency_bfregs: u32,
        8 flags: AllocUcontextFlags,
        12 comp_mask: u32,
        /// 1 if the program understands CQEs that name queues by user index.
        16 max_cqe_version: u8,
        17 reserved0: Reserved<1>,
        18 reserved1: Reserved<2>,
        20 reserved2: Reserved<4>,
        24 lib_caps: LibCaps,
    }

    /// Response of get_context.
    "mlx5_ib_alloc_ucontext_resp" AllocUcontextResp [72] {
        /// Queue pairs the device can have.
        0 qp_tab_size: u32,
        /// Bytes of a BlueFlame register, both halves; 0 without BlueFlame.
        4 bf_reg_size: u32,
        /// Registers that came with the context; 0 where UAR objects take their place.
        8 tot_bfregs: u32,
        12 cache_line_size: u32,
        /// Bytes of the longest send WQE.
        16 max_sq_desc_sz: u16,
        /// Bytes of the longest receive WQE.
        18 max_rq_desc_sz: u16,
        /// Basic blocks of the longest send queue.
        20 max_send_wqebb: u32,
        24 max_recv_wr: u32,
        28 max_srq_recv_wr: u32,
        32 num_ports: u16,
        34 flow_action_flags: FlowActionFlags,
        36 comp_mask: AllocUcontextRespMask,
        /// Bytes that the kernel filled, counted from the start.
        40 response_length: u32,
        /// How CQEs name their queue: 0 by its number, 1 by the user index.
        44 cqe_version: u8,
        45 cmds_supp_uhw: CmdsSuppUhw,
        46 eth_min_inline: InlineMode,
        47 clock_info_versions: u8,
        /// Offset of the clock's register in its page.
        48 hca_core_clock_offset: u64,
        /// Logarithm of the bytes of a UAR; 0 from kernels that know 4 KiB only.
        56 log_uar_size: u32,
        /// UARs in one page of the kernel's; 0 from the same.
        60 num_uars_per_page: u32,
        /// Registers that [`MmapCommand::ALLOC_WC`](super::mmap::MmapCommand::ALLOC_WC) may add.
        64 num_dyn_bfregs: u32,
        /// Local key of a region that reads as a fill pattern and swallows writes.
        68 dump_fill_mkey: u32,
    }

    /// The shared page for turning device timestamps into nanoseconds; see
    /// [`MmapCommand::CLOCK_INFO`](super::mmap::MmapCommand::CLOCK_INFO).
    "mlx5_ib_clock_info" ClockInfo [56] {
        /// Changes with each update; odd meanwhile ([`CLOCK_INFO_KERNEL_UPDATING`]).
        0 sign: u32,
        4 resv: u32,
        8 nsec: u64,
        16 cycles: u64,
        24 frac: u64,
        32 mult: u32,
        36 shift: u32,
        40 mask: u64,
        48 overflow_period: u64,
    }
}

impl AllocUcontextReqV2 {
    /// How much of the request to send, in the order to try: all of it, without
    /// [`lib_caps`](Self::lib_caps), without [`max_cqe_version`](Self::max_cqe_version) and what
    /// follows it.
    pub const LENGTHS: [usize; 3] = [
        size_of::<Self>(),
        core::mem::offset_of!(Self, lib_caps),
        core::mem::offset_of!(Self, max_cqe_version),
    ];
}

impl AllocUcontextResp {
    /// Whether the kernel filled the field that ends at byte `end`.
    pub const fn reaches(&self, end: usize) -> bool {
        self.response_length as usize >= end
    }
}
