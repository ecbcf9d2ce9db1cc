//! Values that ioctl methods and write commands share.
//!
//! Source: `uapi rdma/ib_user_ioctl_verbs.h`, `rdma/ib_user_verbs.h`; queue pair states and
//! attribute masks are the numbers of `enum ib_qp_state` and `ib_qp_attr_mask` that
//! `libibverbs/verbs.h` publishes, since no uapi header has them.

use crate::Reserved;
use crate::write::device::PortAttr;

open_enums! {
    /// The driver behind a device; the kernel refuses a command that names another.
    "rdma_driver_id" DriverId(u32) {
        "RDMA_DRIVER_UNKNOWN" UNKNOWN = 0,
        "RDMA_DRIVER_MLX5" MLX5 = 1,
        "RDMA_DRIVER_MLX4" MLX4 = 2,
        "RDMA_DRIVER_CXGB3" CXGB3 = 3,
        "RDMA_DRIVER_CXGB4" CXGB4 = 4,
        "RDMA_DRIVER_MTHCA" MTHCA = 5,
        "RDMA_DRIVER_BNXT_RE" BNXT_RE = 6,
        "RDMA_DRIVER_OCRDMA" OCRDMA = 7,
        "RDMA_DRIVER_NES" NES = 8,
        "RDMA_DRIVER_IRDMA" IRDMA = 9,
        "RDMA_DRIVER_VMW_PVRDMA" VMW_PVRDMA = 10,
        "RDMA_DRIVER_QEDR" QEDR = 11,
        "RDMA_DRIVER_HNS" HNS = 12,
        "RDMA_DRIVER_USNIC" USNIC = 13,
        "RDMA_DRIVER_RXE" RXE = 14,
        "RDMA_DRIVER_HFI1" HFI1 = 15,
        "RDMA_DRIVER_QIB" QIB = 16,
        "RDMA_DRIVER_EFA" EFA = 17,
        "RDMA_DRIVER_SIW" SIW = 18,
        "RDMA_DRIVER_ERDMA" ERDMA = 19,
        /// Not in 6.1.
        "RDMA_DRIVER_MANA" MANA = 20,
    }

    /// Service type of a queue pair.
    "ib_uverbs_qp_type" QpType(u8) {
        "IB_UVERBS_QPT_RC" RC = 2,
        "IB_UVERBS_QPT_UC" UC = 3,
        "IB_UVERBS_QPT_UD" UD = 4,
        "IB_UVERBS_QPT_RAW_PACKET" RAW_PACKET = 8,
        "IB_UVERBS_QPT_XRC_INI" XRC_INI = 9,
        "IB_UVERBS_QPT_XRC_TGT" XRC_TGT = 10,
        "IB_UVERBS_QPT_DRIVER" DRIVER = 0xff,
    }

    /// State of a queue pair.
    "ib_qp_state" QpState(u8) {
        "IBV_QPS_RESET" RESET = 0,
        "IBV_QPS_INIT" INIT = 1,
        "IBV_QPS_RTR" RTR = 2,
        "IBV_QPS_RTS" RTS = 3,
        "IBV_QPS_SQD" SQD = 4,
        "IBV_QPS_SQE" SQE = 5,
        "IBV_QPS_ERR" ERR = 6,
    }

    /// Kind of a shared receive queue.
    "ib_uverbs_srq_type" SrqType(u32) {
        "IB_UVERBS_SRQT_BASIC" BASIC = 0,
        "IB_UVERBS_SRQT_XRC" XRC = 1,
        "IB_UVERBS_SRQT_TM" TM = 2,
    }

    /// Kind of a work queue.
    "ib_uverbs_wq_type" WqType(u32) {
        "IB_UVERBS_WQT_RQ" RQ = 0,
    }

    /// Kind of a memory window.
    "ib_mw_type" MwType(u8) {
        "IBV_MW_TYPE_1" TYPE_1 = 1,
        "IBV_MW_TYPE_2" TYPE_2 = 2,
    }

    /// What the program will do with memory soon.
    "ib_uverbs_advise_mr_advice" AdviseMrAdvice(u32) {
        "IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH" PREFETCH = 0,
        "IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE" PREFETCH_WRITE = 1,
        "IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT" PREFETCH_NO_FAULT = 2,
    }

    /// Operation of a work request.
    "ib_uverbs_wr_opcode" WrOpcode(u32) {
        "IB_UVERBS_WR_RDMA_WRITE" RDMA_WRITE = 0,
        "IB_UVERBS_WR_RDMA_WRITE_WITH_IMM" RDMA_WRITE_WITH_IMM = 1,
        "IB_UVERBS_WR_SEND" SEND = 2,
        "IB_UVERBS_WR_SEND_WITH_IMM" SEND_WITH_IMM = 3,
        "IB_UVERBS_WR_RDMA_READ" RDMA_READ = 4,
        "IB_UVERBS_WR_ATOMIC_CMP_AND_SWP" ATOMIC_CMP_AND_SWP = 5,
        "IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD" ATOMIC_FETCH_AND_ADD = 6,
        "IB_UVERBS_WR_LOCAL_INV" LOCAL_INV = 7,
        "IB_UVERBS_WR_BIND_MW" BIND_MW = 8,
        "IB_UVERBS_WR_SEND_WITH_INV" SEND_WITH_INV = 9,
        "IB_UVERBS_WR_TSO" TSO = 10,
        "IB_UVERBS_WR_RDMA_READ_WITH_INV" RDMA_READ_WITH_INV = 11,
        "IB_UVERBS_WR_MASKED_ATOMIC_CMP_AND_SWP" MASKED_ATOMIC_CMP_AND_SWP = 12,
        "IB_UVERBS_WR_MASKED_ATOMIC_FETCH_AND_ADD" MASKED_ATOMIC_FETCH_AND_ADD = 13,
        /// Not in 6.1.
        "IB_UVERBS_WR_FLUSH" FLUSH = 14,
        /// Not in 6.1.
        "IB_UVERBS_WR_ATOMIC_WRITE" ATOMIC_WRITE = 15,
    }

    /// Operation of a completion; receives have numbers from 128 on, which no uapi header names.
    "ib_uverbs_wc_opcode" WcOpcode(u32) {
        "IB_UVERBS_WC_SEND" SEND = 0,
        "IB_UVERBS_WC_RDMA_WRITE" RDMA_WRITE = 1,
        "IB_UVERBS_WC_RDMA_READ" RDMA_READ = 2,
        "IB_UVERBS_WC_COMP_SWAP" COMP_SWAP = 3,
        "IB_UVERBS_WC_FETCH_ADD" FETCH_ADD = 4,
        "IB_UVERBS_WC_BIND_MW" BIND_MW = 5,
        "IB_UVERBS_WC_LOCAL_INV" LOCAL_INV = 6,
        "IB_UVERBS_WC_TSO" TSO = 7,
        /// Not in 6.1.
        "IB_UVERBS_WC_FLUSH" FLUSH = 8,
        /// Not in 6.1.
        "IB_UVERBS_WC_ATOMIC_WRITE" ATOMIC_WRITE = 9,
    }

    /// Kind of a GID.
    "ib_uverbs_gid_type" GidType(u32) {
        "IB_UVERBS_GID_TYPE_IB" IB = 0,
        "IB_UVERBS_GID_TYPE_ROCE_V1" ROCE_V1 = 1,
        "IB_UVERBS_GID_TYPE_ROCE_V2" ROCE_V2 = 2,
    }

    /// How an ESP flow action holds its key.
    "ib_uverbs_flow_action_esp_keymat" EspKeymat(u8) {
        "IB_UVERBS_FLOW_ACTION_ESP_KEYMAT_AES_GCM" AES_GCM = 0,
    }

    /// How an ESP flow action makes its initialization vectors.
    "ib_uverbs_flow_action_esp_keymat_aes_gcm_iv_algo" EspIvAlgo(u32) {
        "IB_UVERBS_FLOW_ACTION_IV_ALGO_SEQ" SEQ = 0,
    }

    /// How an ESP flow action detects replays.
    "ib_uverbs_flow_action_esp_replay" EspReplay(u8) {
        "IB_UVERBS_FLOW_ACTION_ESP_REPLAY_NONE" NONE = 0,
        "IB_UVERBS_FLOW_ACTION_ESP_REPLAY_BMP" BMP = 1,
    }

    /// What happened to an object, a port or the device.
    "ib_event_type" EventType(u32) {
        "IBV_EVENT_CQ_ERR" CQ_ERR = 0,
        "IBV_EVENT_QP_FATAL" QP_FATAL = 1,
        "IBV_EVENT_QP_REQ_ERR" QP_REQ_ERR = 2,
        "IBV_EVENT_QP_ACCESS_ERR" QP_ACCESS_ERR = 3,
        "IBV_EVENT_COMM_EST" COMM_EST = 4,
        "IBV_EVENT_SQ_DRAINED" SQ_DRAINED = 5,
        "IBV_EVENT_PATH_MIG" PATH_MIG = 6,
        "IBV_EVENT_PATH_MIG_ERR" PATH_MIG_ERR = 7,
        "IBV_EVENT_DEVICE_FATAL" DEVICE_FATAL = 8,
        "IBV_EVENT_PORT_ACTIVE" PORT_ACTIVE = 9,
        "IBV_EVENT_PORT_ERR" PORT_ERR = 10,
        "IBV_EVENT_LID_CHANGE" LID_CHANGE = 11,
        "IBV_EVENT_PKEY_CHANGE" PKEY_CHANGE = 12,
        "IBV_EVENT_SM_CHANGE" SM_CHANGE = 13,
        "IBV_EVENT_SRQ_ERR" SRQ_ERR = 14,
        "IBV_EVENT_SRQ_LIMIT_REACHED" SRQ_LIMIT_REACHED = 15,
        "IBV_EVENT_QP_LAST_WQE_REACHED" QP_LAST_WQE_REACHED = 16,
        "IBV_EVENT_CLIENT_REREGISTER" CLIENT_REREGISTER = 17,
        "IBV_EVENT_GID_CHANGE" GID_CHANGE = 18,
        "IBV_EVENT_WQ_FATAL" WQ_FATAL = 19,
        "IBV_EVENT_DEVICE_SPEED_CHANGE" DEVICE_SPEED_CHANGE = 20,
    }
}

flag_sets! {
    /// Rights of a memory region, a queue pair or a window.
    "ib_uverbs_access_flags" AccessFlags(u32) {
        "IB_UVERBS_ACCESS_LOCAL_WRITE" LOCAL_WRITE = 1 << 0,
        "IB_UVERBS_ACCESS_REMOTE_WRITE" REMOTE_WRITE = 1 << 1,
        "IB_UVERBS_ACCESS_REMOTE_READ" REMOTE_READ = 1 << 2,
        "IB_UVERBS_ACCESS_REMOTE_ATOMIC" REMOTE_ATOMIC = 1 << 3,
        "IB_UVERBS_ACCESS_MW_BIND" MW_BIND = 1 << 4,
        "IB_UVERBS_ACCESS_ZERO_BASED" ZERO_BASED = 1 << 5,
        "IB_UVERBS_ACCESS_ON_DEMAND" ON_DEMAND = 1 << 6,
        "IB_UVERBS_ACCESS_HUGETLB" HUGETLB = 1 << 7,
        /// Not in 6.1.
        "IB_UVERBS_ACCESS_FLUSH_GLOBAL" FLUSH_GLOBAL = 1 << 8,
        /// Not in 6.1.
        "IB_UVERBS_ACCESS_FLUSH_PERSISTENT" FLUSH_PERSISTENT = 1 << 9,
        "IB_UVERBS_ACCESS_RELAXED_ORDERING" RELAXED_ORDERING = 1 << 20,
        /// Flags that a kernel may ignore when it does not know them.
        "IB_UVERBS_ACCESS_OPTIONAL_RANGE" OPTIONAL_RANGE = 0x3ff0_0000,
    }

    /// Capabilities of a device (`device_cap_flags` has the lower half of them).
    "ib_uverbs_device_cap_flags" DeviceCapFlags(u64) {
        "IB_UVERBS_DEVICE_RESIZE_MAX_WR" RESIZE_MAX_WR = 1 << 0,
        "IB_UVERBS_DEVICE_BAD_PKEY_CNTR" BAD_PKEY_CNTR = 1 << 1,
        "IB_UVERBS_DEVICE_BAD_QKEY_CNTR" BAD_QKEY_CNTR = 1 << 2,
        "IB_UVERBS_DEVICE_RAW_MULTI" RAW_MULTI = 1 << 3,
        "IB_UVERBS_DEVICE_AUTO_PATH_MIG" AUTO_PATH_MIG = 1 << 4,
        "IB_UVERBS_DEVICE_CHANGE_PHY_PORT" CHANGE_PHY_PORT = 1 << 5,
        "IB_UVERBS_DEVICE_UD_AV_PORT_ENFORCE" UD_AV_PORT_ENFORCE = 1 << 6,
        "IB_UVERBS_DEVICE_CURR_QP_STATE_MOD" CURR_QP_STATE_MOD = 1 << 7,
        "IB_UVERBS_DEVICE_SHUTDOWN_PORT" SHUTDOWN_PORT = 1 << 8,
        "IB_UVERBS_DEVICE_PORT_ACTIVE_EVENT" PORT_ACTIVE_EVENT = 1 << 10,
        "IB_UVERBS_DEVICE_SYS_IMAGE_GUID" SYS_IMAGE_GUID = 1 << 11,
        "IB_UVERBS_DEVICE_RC_RNR_NAK_GEN" RC_RNR_NAK_GEN = 1 << 12,
        "IB_UVERBS_DEVICE_SRQ_RESIZE" SRQ_RESIZE = 1 << 13,
        "IB_UVERBS_DEVICE_N_NOTIFY_CQ" N_NOTIFY_CQ = 1 << 14,
        "IB_UVERBS_DEVICE_MEM_WINDOW" MEM_WINDOW = 1 << 17,
        "IB_UVERBS_DEVICE_UD_IP_CSUM" UD_IP_CSUM = 1 << 18,
        "IB_UVERBS_DEVICE_XRC" XRC = 1 << 20,
        "IB_UVERBS_DEVICE_MEM_MGT_EXTENSIONS" MEM_MGT_EXTENSIONS = 1 << 21,
        "IB_UVERBS_DEVICE_MEM_WINDOW_TYPE_2A" MEM_WINDOW_TYPE_2A = 1 << 23,
        "IB_UVERBS_DEVICE_MEM_WINDOW_TYPE_2B" MEM_WINDOW_TYPE_2B = 1 << 24,
        "IB_UVERBS_DEVICE_RC_IP_CSUM" RC_IP_CSUM = 1 << 25,
        "IB_UVERBS_DEVICE_RAW_IP_CSUM" RAW_IP_CSUM = 1 << 26,
        "IB_UVERBS_DEVICE_MANAGED_FLOW_STEERING" MANAGED_FLOW_STEERING = 1 << 29,
        "IB_UVERBS_DEVICE_RAW_SCATTER_FCS" RAW_SCATTER_FCS = 1 << 34,
        "IB_UVERBS_DEVICE_PCI_WRITE_END_PADDING" PCI_WRITE_END_PADDING = 1 << 36,
        /// Not in 6.1.
        "IB_UVERBS_DEVICE_FLUSH_GLOBAL" FLUSH_GLOBAL = 1 << 38,
        /// Not in 6.1.
        "IB_UVERBS_DEVICE_FLUSH_PERSISTENT" FLUSH_PERSISTENT = 1 << 39,
        /// Not in 6.1.
        "IB_UVERBS_DEVICE_ATOMIC_WRITE" ATOMIC_WRITE = 1 << 40,
    }

    /// Capabilities of a device for raw packets.
    "ib_uverbs_raw_packet_caps" RawPacketCaps(u32) {
        "IB_UVERBS_RAW_PACKET_CAP_CVLAN_STRIPPING" CVLAN_STRIPPING = 1 << 0,
        "IB_UVERBS_RAW_PACKET_CAP_SCATTER_FCS" SCATTER_FCS = 1 << 1,
        "IB_UVERBS_RAW_PACKET_CAP_IP_CSUM" IP_CSUM = 1 << 2,
        "IB_UVERBS_RAW_PACKET_CAP_DELAY_DROP" DELAY_DROP = 1 << 3,
    }

    /// Capabilities of a port.
    "ib_uverbs_query_port_cap_flags" PortCapFlags(u32) {
        "IB_UVERBS_PCF_SM" SM = 1 << 1,
        "IB_UVERBS_PCF_NOTICE_SUP" NOTICE_SUP = 1 << 2,
        "IB_UVERBS_PCF_TRAP_SUP" TRAP_SUP = 1 << 3,
        "IB_UVERBS_PCF_OPT_IPD_SUP" OPT_IPD_SUP = 1 << 4,
        "IB_UVERBS_PCF_AUTO_MIGR_SUP" AUTO_MIGR_SUP = 1 << 5,
        "IB_UVERBS_PCF_SL_MAP_SUP" SL_MAP_SUP = 1 << 6,
        "IB_UVERBS_PCF_MKEY_NVRAM" MKEY_NVRAM = 1 << 7,
        "IB_UVERBS_PCF_PKEY_NVRAM" PKEY_NVRAM = 1 << 8,
        "IB_UVERBS_PCF_LED_INFO_SUP" LED_INFO_SUP = 1 << 9,
        "IB_UVERBS_PCF_SM_DISABLED" SM_DISABLED = 1 << 10,
        "IB_UVERBS_PCF_SYS_IMAGE_GUID_SUP" SYS_IMAGE_GUID_SUP = 1 << 11,
        "IB_UVERBS_PCF_PKEY_SW_EXT_PORT_TRAP_SUP" PKEY_SW_EXT_PORT_TRAP_SUP = 1 << 12,
        "IB_UVERBS_PCF_EXTENDED_SPEEDS_SUP" EXTENDED_SPEEDS_SUP = 1 << 14,
        "IB_UVERBS_PCF_CM_SUP" CM_SUP = 1 << 16,
        "IB_UVERBS_PCF_SNMP_TUNNEL_SUP" SNMP_TUNNEL_SUP = 1 << 17,
        "IB_UVERBS_PCF_REINIT_SUP" REINIT_SUP = 1 << 18,
        "IB_UVERBS_PCF_DEVICE_MGMT_SUP" DEVICE_MGMT_SUP = 1 << 19,
        "IB_UVERBS_PCF_VENDOR_CLASS_SUP" VENDOR_CLASS_SUP = 1 << 20,
        "IB_UVERBS_PCF_DR_NOTICE_SUP" DR_NOTICE_SUP = 1 << 21,
        "IB_UVERBS_PCF_CAP_MASK_NOTICE_SUP" CAP_MASK_NOTICE_SUP = 1 << 22,
        "IB_UVERBS_PCF_BOOT_MGMT_SUP" BOOT_MGMT_SUP = 1 << 23,
        "IB_UVERBS_PCF_LINK_LATENCY_SUP" LINK_LATENCY_SUP = 1 << 24,
        "IB_UVERBS_PCF_CLIENT_REG_SUP" CLIENT_REG_SUP = 1 << 25,
        /// The kernel's own, not IBTA's.
        "IB_UVERBS_PCF_IP_BASED_GIDS" IP_BASED_GIDS = 1 << 26,
        "IB_UVERBS_PCF_LINK_SPEED_WIDTH_TABLE_SUP" LINK_SPEED_WIDTH_TABLE_SUP = 1 << 27,
        "IB_UVERBS_PCF_VENDOR_SPECIFIC_MADS_TABLE_SUP" VENDOR_SPECIFIC_MADS_TABLE_SUP = 1 << 28,
        "IB_UVERBS_PCF_MCAST_PKEY_TRAP_SUPPRESSION_SUP" MCAST_PKEY_TRAP_SUPPRESSION_SUP = 1 << 29,
        "IB_UVERBS_PCF_MCAST_FDB_TOP_SUP" MCAST_FDB_TOP_SUP = 1 << 30,
        "IB_UVERBS_PCF_HIERARCHY_INFO_SUP" HIERARCHY_INFO_SUP = 1 << 31,
    }

    /// What a kernel answers to `GET_CONTEXT`.
    "ib_uverbs_core_support" CoreSupport(u64) {
        "IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS" OPTIONAL_MR_ACCESS = 1 << 0,
    }

    /// How a completion queue is made.
    "ib_uverbs_ex_create_cq_flags" CreateCqFlags(u32) {
        "IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION" TIMESTAMP_COMPLETION = 1 << 0,
        "IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN" IGNORE_OVERRUN = 1 << 1,
    }

    /// How a queue pair is made.
    "ib_uverbs_qp_create_flags" CreateQpFlags(u32) {
        "IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK" BLOCK_MULTICAST_LOOPBACK = 1 << 1,
        "IB_UVERBS_QP_CREATE_SCATTER_FCS" SCATTER_FCS = 1 << 8,
        "IB_UVERBS_QP_CREATE_CVLAN_STRIPPING" CVLAN_STRIPPING = 1 << 9,
        "IB_UVERBS_QP_CREATE_PCI_WRITE_END_PADDING" PCI_WRITE_END_PADDING = 1 << 11,
        /// Every send makes a completion (the ioctl's own flag; write commands have a field).
        "IB_UVERBS_QP_CREATE_SQ_SIG_ALL" SQ_SIG_ALL = 1 << 12,
    }

    /// How a work queue is made.
    "ib_uverbs_wq_flags" WqFlags(u32) {
        "IB_UVERBS_WQ_FLAGS_CVLAN_STRIPPING" CVLAN_STRIPPING = 1 << 0,
        "IB_UVERBS_WQ_FLAGS_SCATTER_FCS" SCATTER_FCS = 1 << 1,
        "IB_UVERBS_WQ_FLAGS_DELAY_DROP" DELAY_DROP = 1 << 2,
        "IB_UVERBS_WQ_FLAGS_PCI_WRITE_END_PADDING" PCI_WRITE_END_PADDING = 1 << 3,
    }

    /// How `ADVISE_MR` works.
    "ib_uverbs_advise_mr_flag" AdviseMrFlags(u32) {
        "IB_UVERBS_ADVISE_MR_FLAG_FLUSH" FLUSH = 1 << 0,
    }

    /// How counters are read.
    "ib_uverbs_read_counters_flags" ReadCountersFlags(u32) {
        "IB_UVERBS_READ_COUNTERS_PREFER_CACHED" PREFER_CACHED = 1 << 0,
    }

    /// What a port's GRH rule is.
    "ib_uverbs_query_port_flags" QueryPortFlags(u8) {
        "IB_UVERBS_QPF_GRH_REQUIRED" GRH_REQUIRED = 1 << 0,
    }

    /// Which attributes of a queue pair a modify command sets (and a query asks for).
    "ib_qp_attr_mask" QpAttrMask(u32) {
        "IBV_QP_STATE" STATE = 1 << 0,
        "IBV_QP_CUR_STATE" CUR_STATE = 1 << 1,
        "IBV_QP_EN_SQD_ASYNC_NOTIFY" EN_SQD_ASYNC_NOTIFY = 1 << 2,
        "IBV_QP_ACCESS_FLAGS" ACCESS_FLAGS = 1 << 3,
        "IBV_QP_PKEY_INDEX" PKEY_INDEX = 1 << 4,
        "IBV_QP_PORT" PORT = 1 << 5,
        "IBV_QP_QKEY" QKEY = 1 << 6,
        "IBV_QP_AV" AV = 1 << 7,
        "IBV_QP_PATH_MTU" PATH_MTU = 1 << 8,
        "IBV_QP_TIMEOUT" TIMEOUT = 1 << 9,
        "IBV_QP_RETRY_CNT" RETRY_CNT = 1 << 10,
        "IBV_QP_RNR_RETRY" RNR_RETRY = 1 << 11,
        "IBV_QP_RQ_PSN" RQ_PSN = 1 << 12,
        "IBV_QP_MAX_QP_RD_ATOMIC" MAX_QP_RD_ATOMIC = 1 << 13,
        "IBV_QP_ALT_PATH" ALT_PATH = 1 << 14,
        "IBV_QP_MIN_RNR_TIMER" MIN_RNR_TIMER = 1 << 15,
        "IBV_QP_SQ_PSN" SQ_PSN = 1 << 16,
        "IBV_QP_MAX_DEST_RD_ATOMIC" MAX_DEST_RD_ATOMIC = 1 << 17,
        "IBV_QP_PATH_MIG_STATE" PATH_MIG_STATE = 1 << 18,
        "IBV_QP_CAP" CAP = 1 << 19,
        "IBV_QP_DEST_QPN" DEST_QPN = 1 << 20,
        /// Only the extended command takes it.
        "IBV_QP_RATE_LIMIT" RATE_LIMIT = 1 << 25,
    }

    /// Which attributes of a shared receive queue a modify command sets.
    "ib_srq_attr_mask" SrqAttrMask(u32) {
        "IBV_SRQ_MAX_WR" MAX_WR = 1 << 0,
        "IBV_SRQ_LIMIT" LIMIT = 1 << 1,
    }

    /// Which properties of a memory region a reregistration changes.
    "ib_rereg_mr_flags" ReregMrFlags(u32) {
        "IBV_REREG_MR_CHANGE_TRANSLATION" CHANGE_TRANSLATION = 1 << 0,
        "IBV_REREG_MR_CHANGE_PD" CHANGE_PD = 1 << 1,
        "IBV_REREG_MR_CHANGE_ACCESS" CHANGE_ACCESS = 1 << 2,
    }

    /// How an ESP flow action works.
    "ib_uverbs_flow_action_esp_flags" EspFlags(u32) {
        "IB_UVERBS_FLOW_ACTION_ESP_FLAGS_FULL_OFFLOAD" FULL_OFFLOAD = 1 << 0,
        "IB_UVERBS_FLOW_ACTION_ESP_FLAGS_TRANSPORT" TRANSPORT = 1 << 1,
        "IB_UVERBS_FLOW_ACTION_ESP_FLAGS_ENCRYPT" ENCRYPT = 1 << 2,
        "IB_UVERBS_FLOW_ACTION_ESP_FLAGS_ESN_NEW_WINDOW" ESN_NEW_WINDOW = 1 << 3,
    }
}

abi_structs! {
    /// Capacity of a queue pair: asked for, and granted.
    "ib_uverbs_qp_cap" QpCap [20] {
        0 max_send_wr: u32,
        4 max_recv_wr: u32,
        8 max_send_sge: u32,
        12 max_recv_sge: u32,
        16 max_inline_data: u32,
    }

    /// One entry of a GID table.
    "ib_uverbs_gid_entry" GidEntry [32] {
        /// The 16 bytes of the GID in network order (C: `__u64[2]`).
        0 gid: [u8; 16],
        16 gid_index: u32,
        20 port_num: u32,
        24 gid_type: GidType,
        /// 0 if no network device belongs to it.
        28 netdev_ifindex: u32,
    }

    /// A port's attributes as `QUERY_PORT` answers them.
    "ib_uverbs_query_port_resp_ex" PortAttrEx [48] {
        0 legacy_resp: PortAttr,
        40 port_cap_flags2: u16,
        42 reserved: Reserved<2>,
        /// Not in the headers of 6.1, where these bytes are reserved and zero.
        44 active_speed_ex: u32,
    }

    /// One element of `ADVISE_MR`'s list.
    "ib_uverbs_sge" Sge [16] {
        0 addr: u64,
        8 length: u32,
        12 lkey: u32,
    }

    /// The fixed part of an ESP flow action.
    "ib_uverbs_flow_action_esp" FlowActionEsp [24] {
        0 spi: u32,
        4 seq: u32,
        8 tfc_pad: u32,
        12 flags: EspFlags,
        16 hard_limit_pkts: u64,
    }

    /// An AES-GCM key.
    "ib_uverbs_flow_action_esp_keymat_aes_gcm" EspKeymatAesGcm [56] {
        0 iv: u64,
        8 iv_algo: EspIvAlgo,
        12 salt: u32,
        16 icv_len: u32,
        20 key_len: u32,
        24 aes_key: [u32; 8],
    }

    /// A replay window.
    "ib_uverbs_flow_action_esp_replay_bmp" EspReplayBmp [4] {
        0 size: u32,
    }

    /// One header that an ESP action puts around a packet; a list in the caller's memory.
    "ib_uverbs_flow_action_esp_encap" EspEncap [24] {
        /// Address of a flow filter.
        0 val_ptr: u64,
        /// Address of the next element, or 0.
        8 next_ptr: u64,
        16 len: u16,
        18 r#type: u16,
        20 padding: Reserved<4>,
    }
}
