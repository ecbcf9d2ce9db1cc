//! Kinds of capabilities.

use crate::mlx5::firmware::numbers;

/// Which capabilities QUERY_HCA_CAP and SET_HCA_CAP mean: bits 15 to 1 of their `op_mod`. Any number is a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct CapType(pub u16);

// Linux include/linux/mlx5/device.h `enum mlx5_cap_type`.
numbers! { CapType, "MLX5_CAP_":
    GENERAL = 0x00, "GENERAL";
    ETHERNET_OFFLOADS = 0x01, "ETHERNET_OFFLOADS";
    ODP = 0x02, "ODP";
    ATOMIC = 0x03, "ATOMIC";
    ROCE = 0x04, "ROCE";
    IPOIB_OFFLOADS = 0x05, "IPOIB_OFFLOADS";
    IPOIB_ENHANCED_OFFLOADS = 0x06, "IPOIB_ENHANCED_OFFLOADS";
    FLOW_TABLE = 0x07, "FLOW_TABLE";
    ESWITCH_FLOW_TABLE = 0x08, "ESWITCH_FLOW_TABLE";
    ESWITCH = 0x09, "ESWITCH";
    QOS = 0x0c, "QOS";
    DEBUG = 0x0d, "DEBUG";
    DEV_MEM = 0x0f, "DEV_MEM";
    TLS = 0x11, "TLS";
    VDPA_EMULATION = 0x13, "VDPA_EMULATION";
    DEV_EVENT = 0x14, "DEV_EVENT";
    IPSEC = 0x15, "IPSEC";
    CRYPTO = 0x1a, "CRYPTO";
    MACSEC = 0x1f, "MACSEC";
    GENERAL_2 = 0x20, "GENERAL_2";
    PORT_SELECTION = 0x25, "PORT_SELECTION";
    ADV_VIRTUALIZATION = 0x26, "ADV_VIRTUALIZATION";
}

impl CapType {
    /// The `op_mod` that asks for what is in force.
    pub const fn current(self) -> u16 {
        self.0 << 1 | 1
    }

    /// The `op_mod` that asks for what is possible.
    pub const fn maximum(self) -> u16 {
        self.0 << 1
    }

    /// The kind that an `op_mod` names, and whether it asks for what is in force.
    pub const fn of_op_mod(op_mod: u16) -> (Self, bool) {
        (Self(op_mod >> 1), op_mod & 1 != 0)
    }
}
