//! Kinds of events.

use super::numbers;

/// What happened: [`Eqe::event_type`](super::eqe::Eqe::event_type). Any number is a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct EventType(pub u8);

// Linux include/linux/mlx5/device.h `MLX5_EVENT_TYPE_*`.
numbers! { EventType, "MLX5_EVENT_TYPE_":
    COMP = 0x00, "COMP";
    PATH_MIG = 0x01, "PATH_MIG";
    COMM_EST = 0x02, "COMM_EST";
    SQ_DRAINED = 0x03, "SQ_DRAINED";
    CQ_ERROR = 0x04, "CQ_ERROR";
    WQ_CATAS_ERROR = 0x05, "WQ_CATAS_ERROR";
    PATH_MIG_FAILED = 0x07, "PATH_MIG_FAILED";
    INTERNAL_ERROR = 0x08, "INTERNAL_ERROR";
    PORT_CHANGE = 0x09, "PORT_CHANGE";
    CMD = 0x0a, "CMD";
    PAGE_REQUEST = 0x0b, "PAGE_REQUEST";
    PAGE_FAULT = 0x0c, "PAGE_FAULT";
    NIC_VPORT_CHANGE = 0x0d, "NIC_VPORT_CHANGE";
    ESW_FUNCTIONS_CHANGED = 0x0e, "ESW_FUNCTIONS_CHANGED";
    VHCA_STATE_CHANGE = 0x0f, "VHCA_STATE_CHANGE";
    WQ_INVAL_REQ_ERROR = 0x10, "WQ_INVAL_REQ_ERROR";
    WQ_ACCESS_ERROR = 0x11, "WQ_ACCESS_ERROR";
    SRQ_CATAS_ERROR = 0x12, "SRQ_CATAS_ERROR";
    SRQ_LAST_WQE = 0x13, "SRQ_LAST_WQE";
    SRQ_RQ_LIMIT = 0x14, "SRQ_RQ_LIMIT";
    GPIO_EVENT = 0x15, "GPIO_EVENT";
    PORT_MODULE_EVENT = 0x16, "PORT_MODULE_EVENT";
    TEMP_WARN_EVENT = 0x17, "TEMP_WARN_EVENT";
    XRQ_ERROR = 0x18, "XRQ_ERROR";
    REMOTE_CONFIG = 0x19, "REMOTE_CONFIG";
    DB_BF_CONGESTION = 0x1a, "DB_BF_CONGESTION";
    STALL_EVENT = 0x1b, "STALL_EVENT";
    DCT_DRAINED = 0x1c, "DCT_DRAINED";
    DCT_KEY_VIOLATION = 0x1d, "DCT_KEY_VIOLATION";
    FPGA_ERROR = 0x20, "FPGA_ERROR";
    FPGA_QP_ERROR = 0x21, "FPGA_QP_ERROR";
    GENERAL_EVENT = 0x22, "GENERAL_EVENT";
    MONITOR_COUNTER = 0x24, "MONITOR_COUNTER";
    PPS_EVENT = 0x25, "PPS_EVENT";
    DEVICE_TRACER = 0x26, "DEVICE_TRACER";
    OBJECT_CHANGE = 0x27, "OBJECT_CHANGE";
}

/// What happened to a port: [`Eqe::event_sub_type`](super::eqe::Eqe::event_sub_type) of PORT_CHANGE. Any number is a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct PortChange(pub u8);

// Linux include/linux/mlx5/device.h `MLX5_PORT_CHANGE_SUBTYPE_*`.
numbers! { PortChange, "MLX5_PORT_CHANGE_SUBTYPE_":
    DOWN = 1, "DOWN";
    ACTIVE = 4, "ACTIVE";
    INITIALIZED = 5, "INITIALIZED";
    LID = 6, "LID";
    PKEY = 7, "PKEY";
    GUID = 8, "GUID";
    CLIENT_REREG = 9, "CLIENT_REREG";
}
