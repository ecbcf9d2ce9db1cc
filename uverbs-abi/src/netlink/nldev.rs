//! NLDEV, the client of RDMA netlink that describes devices (`uapi rdma/rdma_netlink.h`).

use super::{Attributes, Malformed, NLM_F_ACK, NLM_F_DUMP, Request, attributes};
use crate::types::{DriverId, QpState, QpType};

/// The client's number (`RDMA_NL_NLDEV`).
pub const CLIENT: u16 = 5;

open_enums! {
    /// What a request asks for.
    "rdma_nldev_command" Command(u16) {
        "RDMA_NLDEV_CMD_GET" GET = 1,
        "RDMA_NLDEV_CMD_SET" SET = 2,
        "RDMA_NLDEV_CMD_NEWLINK" NEWLINK = 3,
        "RDMA_NLDEV_CMD_DELLINK" DELLINK = 4,
        "RDMA_NLDEV_CMD_PORT_GET" PORT_GET = 5,
        "RDMA_NLDEV_CMD_SYS_GET" SYS_GET = 6,
        "RDMA_NLDEV_CMD_SYS_SET" SYS_SET = 7,
        "RDMA_NLDEV_CMD_RES_GET" RES_GET = 9,
        "RDMA_NLDEV_CMD_RES_QP_GET" RES_QP_GET = 10,
        "RDMA_NLDEV_CMD_RES_CM_ID_GET" RES_CM_ID_GET = 11,
        "RDMA_NLDEV_CMD_RES_CQ_GET" RES_CQ_GET = 12,
        "RDMA_NLDEV_CMD_RES_MR_GET" RES_MR_GET = 13,
        "RDMA_NLDEV_CMD_RES_PD_GET" RES_PD_GET = 14,
        "RDMA_NLDEV_CMD_GET_CHARDEV" GET_CHARDEV = 15,
        "RDMA_NLDEV_CMD_STAT_SET" STAT_SET = 16,
        "RDMA_NLDEV_CMD_STAT_GET" STAT_GET = 17,
        "RDMA_NLDEV_CMD_STAT_DEL" STAT_DEL = 18,
        "RDMA_NLDEV_CMD_RES_QP_GET_RAW" RES_QP_GET_RAW = 19,
        "RDMA_NLDEV_CMD_RES_CQ_GET_RAW" RES_CQ_GET_RAW = 20,
        "RDMA_NLDEV_CMD_RES_MR_GET_RAW" RES_MR_GET_RAW = 21,
        "RDMA_NLDEV_CMD_RES_CTX_GET" RES_CTX_GET = 22,
        "RDMA_NLDEV_CMD_RES_SRQ_GET" RES_SRQ_GET = 23,
        "RDMA_NLDEV_CMD_STAT_GET_STATUS" STAT_GET_STATUS = 24,
        "RDMA_NLDEV_CMD_RES_SRQ_GET_RAW" RES_SRQ_GET_RAW = 25,
        "RDMA_NLDEV_CMD_NEWDEV" NEWDEV = 26,
        "RDMA_NLDEV_CMD_DELDEV" DELDEV = 27,
        "RDMA_NLDEV_CMD_MONITOR" MONITOR = 28,
    }

    /// What an attribute is.
    "rdma_nldev_attr" Attr(u16) {
        "RDMA_NLDEV_ATTR_DEV_INDEX" DEV_INDEX = 1,
        "RDMA_NLDEV_ATTR_DEV_NAME" DEV_NAME = 2,
        "RDMA_NLDEV_ATTR_PORT_INDEX" PORT_INDEX = 3,
        "RDMA_NLDEV_ATTR_CAP_FLAGS" CAP_FLAGS = 4,
        "RDMA_NLDEV_ATTR_FW_VERSION" FW_VERSION = 5,
        "RDMA_NLDEV_ATTR_NODE_GUID" NODE_GUID = 6,
        "RDMA_NLDEV_ATTR_SYS_IMAGE_GUID" SYS_IMAGE_GUID = 7,
        "RDMA_NLDEV_ATTR_SUBNET_PREFIX" SUBNET_PREFIX = 8,
        "RDMA_NLDEV_ATTR_LID" LID = 9,
        "RDMA_NLDEV_ATTR_SM_LID" SM_LID = 10,
        "RDMA_NLDEV_ATTR_LMC" LMC = 11,
        "RDMA_NLDEV_ATTR_PORT_STATE" PORT_STATE = 12,
        "RDMA_NLDEV_ATTR_PORT_PHYS_STATE" PORT_PHYS_STATE = 13,
        "RDMA_NLDEV_ATTR_DEV_NODE_TYPE" DEV_NODE_TYPE = 14,
        "RDMA_NLDEV_ATTR_RES_SUMMARY" RES_SUMMARY = 15,
        "RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY" RES_SUMMARY_ENTRY = 16,
        "RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_NAME" RES_SUMMARY_ENTRY_NAME = 17,
        "RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_CURR" RES_SUMMARY_ENTRY_CURR = 18,
        "RDMA_NLDEV_ATTR_RES_QP" RES_QP = 19,
        "RDMA_NLDEV_ATTR_RES_QP_ENTRY" RES_QP_ENTRY = 20,
        "RDMA_NLDEV_ATTR_RES_LQPN" RES_LQPN = 21,
        "RDMA_NLDEV_ATTR_RES_RQPN" RES_RQPN = 22,
        "RDMA_NLDEV_ATTR_RES_RQ_PSN" RES_RQ_PSN = 23,
        "RDMA_NLDEV_ATTR_RES_SQ_PSN" RES_SQ_PSN = 24,
        "RDMA_NLDEV_ATTR_RES_PATH_MIG_STATE" RES_PATH_MIG_STATE = 25,
        "RDMA_NLDEV_ATTR_RES_TYPE" RES_TYPE = 26,
        "RDMA_NLDEV_ATTR_RES_STATE" RES_STATE = 27,
        "RDMA_NLDEV_ATTR_RES_PID" RES_PID = 28,
        "RDMA_NLDEV_ATTR_RES_KERN_NAME" RES_KERN_NAME = 29,
        "RDMA_NLDEV_ATTR_RES_CM_ID" RES_CM_ID = 30,
        "RDMA_NLDEV_ATTR_RES_CM_ID_ENTRY" RES_CM_ID_ENTRY = 31,
        "RDMA_NLDEV_ATTR_RES_PS" RES_PS = 32,
        "RDMA_NLDEV_ATTR_RES_SRC_ADDR" RES_SRC_ADDR = 33,
        "RDMA_NLDEV_ATTR_RES_DST_ADDR" RES_DST_ADDR = 34,
        "RDMA_NLDEV_ATTR_RES_CQ" RES_CQ = 35,
        "RDMA_NLDEV_ATTR_RES_CQ_ENTRY" RES_CQ_ENTRY = 36,
        "RDMA_NLDEV_ATTR_RES_CQE" RES_CQE = 37,
        "RDMA_NLDEV_ATTR_RES_USECNT" RES_USECNT = 38,
        "RDMA_NLDEV_ATTR_RES_POLL_CTX" RES_POLL_CTX = 39,
        "RDMA_NLDEV_ATTR_RES_MR" RES_MR = 40,
        "RDMA_NLDEV_ATTR_RES_MR_ENTRY" RES_MR_ENTRY = 41,
        "RDMA_NLDEV_ATTR_RES_RKEY" RES_RKEY = 42,
        "RDMA_NLDEV_ATTR_RES_LKEY" RES_LKEY = 43,
        "RDMA_NLDEV_ATTR_RES_IOVA" RES_IOVA = 44,
        "RDMA_NLDEV_ATTR_RES_MRLEN" RES_MRLEN = 45,
        "RDMA_NLDEV_ATTR_RES_PD" RES_PD = 46,
        "RDMA_NLDEV_ATTR_RES_PD_ENTRY" RES_PD_ENTRY = 47,
        "RDMA_NLDEV_ATTR_RES_LOCAL_DMA_LKEY" RES_LOCAL_DMA_LKEY = 48,
        "RDMA_NLDEV_ATTR_RES_UNSAFE_GLOBAL_RKEY" RES_UNSAFE_GLOBAL_RKEY = 49,
        "RDMA_NLDEV_ATTR_NDEV_INDEX" NDEV_INDEX = 50,
        "RDMA_NLDEV_ATTR_NDEV_NAME" NDEV_NAME = 51,
        "RDMA_NLDEV_ATTR_DRIVER" DRIVER = 52,
        "RDMA_NLDEV_ATTR_DRIVER_ENTRY" DRIVER_ENTRY = 53,
        "RDMA_NLDEV_ATTR_DRIVER_STRING" DRIVER_STRING = 54,
        "RDMA_NLDEV_ATTR_DRIVER_PRINT_TYPE" DRIVER_PRINT_TYPE = 55,
        "RDMA_NLDEV_ATTR_DRIVER_S32" DRIVER_S32 = 56,
        "RDMA_NLDEV_ATTR_DRIVER_U32" DRIVER_U32 = 57,
        "RDMA_NLDEV_ATTR_DRIVER_S64" DRIVER_S64 = 58,
        "RDMA_NLDEV_ATTR_DRIVER_U64" DRIVER_U64 = 59,
        "RDMA_NLDEV_ATTR_RES_PDN" RES_PDN = 60,
        "RDMA_NLDEV_ATTR_RES_CQN" RES_CQN = 61,
        "RDMA_NLDEV_ATTR_RES_MRN" RES_MRN = 62,
        "RDMA_NLDEV_ATTR_RES_CM_IDN" RES_CM_IDN = 63,
        "RDMA_NLDEV_ATTR_RES_CTXN" RES_CTXN = 64,
        "RDMA_NLDEV_ATTR_LINK_TYPE" LINK_TYPE = 65,
        "RDMA_NLDEV_SYS_ATTR_NETNS_MODE" SYS_NETNS_MODE = 66,
        "RDMA_NLDEV_ATTR_DEV_PROTOCOL" DEV_PROTOCOL = 67,
        "RDMA_NLDEV_NET_NS_FD" NET_NS_FD = 68,
        "RDMA_NLDEV_ATTR_CHARDEV_TYPE" CHARDEV_TYPE = 69,
        "RDMA_NLDEV_ATTR_CHARDEV_NAME" CHARDEV_NAME = 70,
        "RDMA_NLDEV_ATTR_CHARDEV_ABI" CHARDEV_ABI = 71,
        "RDMA_NLDEV_ATTR_CHARDEV" CHARDEV = 72,
        "RDMA_NLDEV_ATTR_UVERBS_DRIVER_ID" UVERBS_DRIVER_ID = 73,
        "RDMA_NLDEV_ATTR_STAT_MODE" STAT_MODE = 74,
        "RDMA_NLDEV_ATTR_STAT_RES" STAT_RES = 75,
        "RDMA_NLDEV_ATTR_STAT_AUTO_MODE_MASK" STAT_AUTO_MODE_MASK = 76,
        "RDMA_NLDEV_ATTR_STAT_COUNTER" STAT_COUNTER = 77,
        "RDMA_NLDEV_ATTR_STAT_COUNTER_ENTRY" STAT_COUNTER_ENTRY = 78,
        "RDMA_NLDEV_ATTR_STAT_COUNTER_ID" STAT_COUNTER_ID = 79,
        "RDMA_NLDEV_ATTR_STAT_HWCOUNTERS" STAT_HWCOUNTERS = 80,
        "RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY" STAT_HWCOUNTER_ENTRY = 81,
        "RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_NAME" STAT_HWCOUNTER_ENTRY_NAME = 82,
        "RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_VALUE" STAT_HWCOUNTER_ENTRY_VALUE = 83,
        "RDMA_NLDEV_ATTR_DEV_DIM" DEV_DIM = 84,
        "RDMA_NLDEV_ATTR_RES_RAW" RES_RAW = 85,
        "RDMA_NLDEV_ATTR_RES_CTX" RES_CTX = 86,
        "RDMA_NLDEV_ATTR_RES_CTX_ENTRY" RES_CTX_ENTRY = 87,
        "RDMA_NLDEV_ATTR_RES_SRQ" RES_SRQ = 88,
        "RDMA_NLDEV_ATTR_RES_SRQ_ENTRY" RES_SRQ_ENTRY = 89,
        "RDMA_NLDEV_ATTR_RES_SRQN" RES_SRQN = 90,
        "RDMA_NLDEV_ATTR_MIN_RANGE" MIN_RANGE = 91,
        "RDMA_NLDEV_ATTR_MAX_RANGE" MAX_RANGE = 92,
        "RDMA_NLDEV_SYS_ATTR_COPY_ON_FORK" SYS_COPY_ON_FORK = 93,
        "RDMA_NLDEV_ATTR_STAT_HWCOUNTER_INDEX" STAT_HWCOUNTER_INDEX = 94,
        "RDMA_NLDEV_ATTR_STAT_HWCOUNTER_DYNAMIC" STAT_HWCOUNTER_DYNAMIC = 95,
        "RDMA_NLDEV_SYS_ATTR_PRIVILEGED_QKEY_MODE" SYS_PRIVILEGED_QKEY_MODE = 96,
        "RDMA_NLDEV_ATTR_DRIVER_DETAILS" DRIVER_DETAILS = 97,
        "RDMA_NLDEV_ATTR_RES_SUBTYPE" RES_SUBTYPE = 98,
        "RDMA_NLDEV_ATTR_DEV_TYPE" DEV_TYPE = 99,
        "RDMA_NLDEV_ATTR_PARENT_NAME" PARENT_NAME = 100,
        "RDMA_NLDEV_ATTR_NAME_ASSIGN_TYPE" NAME_ASSIGN_TYPE = 101,
        "RDMA_NLDEV_ATTR_EVENT_TYPE" EVENT_TYPE = 102,
        "RDMA_NLDEV_SYS_ATTR_MONITOR_MODE" SYS_MONITOR_MODE = 103,
    }

    /// Kind of a device (`enum rdma_node_type`).
    "rdma_node_type" NodeType(u8) {
        "RDMA_NODE_IB_CA" IB_CA = 1,
        "RDMA_NODE_IB_SWITCH" IB_SWITCH = 2,
        "RDMA_NODE_IB_ROUTER" IB_ROUTER = 3,
        "RDMA_NODE_RNIC" RNIC = 4,
        "RDMA_NODE_USNIC" USNIC = 5,
        "RDMA_NODE_USNIC_UDP" USNIC_UDP = 6,
        "RDMA_NODE_UNSPECIFIED" UNSPECIFIED = 7,
    }
}

/// Asks for all devices: several messages, each a [`Device`].
pub fn get_devices(seq: u32) -> Request {
    Request::new(Command::GET, NLM_F_DUMP, seq)
}

/// Asks for one device: a [`Device`].
pub fn get_device(index: u32, seq: u32) -> Request {
    Request::new(Command::GET, 0, seq).u32(Attr::DEV_INDEX, index)
}

/// Asks for a port: a [`Port`].
pub fn get_port(index: u32, port: u32, seq: u32) -> Request {
    Request::new(Command::PORT_GET, 0, seq)
        .u32(Attr::DEV_INDEX, index)
        .u32(Attr::PORT_INDEX, port)
}

/// Asks for a device's character device of some kind, such as `uverbs`: a [`Chardev`]. A device that has
/// none is refused.
pub fn get_chardev(index: u32, kind: &str, seq: u32) -> Request {
    Request::new(Command::GET_CHARDEV, 0, seq)
        .u32(Attr::DEV_INDEX, index)
        .string(Attr::CHARDEV_TYPE, kind)
}

/// Asks what holds for all devices: a [`System`].
pub fn get_system(seq: u32) -> Request {
    Request::new(Command::SYS_GET, 0, seq)
}

/// Asks how many objects of each kind a device has: a payload for [`summary`].
pub fn get_summary(index: u32, seq: u32) -> Request {
    Request::new(Command::RES_GET, 0, seq).u32(Attr::DEV_INDEX, index)
}

/// Asks for all objects of one kind of a device: several messages, each a payload for [`resources`].
pub fn get_resources(kind: ResourceKind, index: u32, seq: u32) -> Request {
    Request::new(kind.command(), NLM_F_DUMP, seq).u32(Attr::DEV_INDEX, index)
}

/// Makes a device, such as rxe on a network device; needs privileges. The kernel confirms.
pub fn new_link(name: &str, link_type: &str, netdev: &str, seq: u32) -> Request {
    Request::new(Command::NEWLINK, NLM_F_ACK, seq)
        .string(Attr::DEV_NAME, name)
        .string(Attr::LINK_TYPE, link_type)
        .string(Attr::NDEV_NAME, netdev)
}

/// Unmakes a device that [`new_link`] made. The kernel confirms.
pub fn delete_link(index: u32, seq: u32) -> Request {
    Request::new(Command::DELLINK, NLM_F_ACK, seq).u32(Attr::DEV_INDEX, index)
}

/// A device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device<'b> {
    /// Number by which requests name it.
    pub index: u32,
    /// Name, such as `rxe0`.
    pub name: &'b str,
    /// Number of ports.
    pub ports: u32,
    /// Kind.
    pub node_type: NodeType,
    /// Node GUID, as a number (its first byte on the wire is the highest).
    pub node_guid: u64,
    /// GUID of the system it is part of.
    pub sys_image_guid: u64,
    /// Capability flags.
    pub cap_flags: u64,
    /// Firmware's version; empty if the device has none.
    pub fw_version: &'b str,
    /// `ib`, `roce`, `iw`, `opa` or `usnic`; empty on kernels before 5.1.
    pub protocol: &'b str,
}

impl<'b> Device<'b> {
    /// Takes the payload of an answer to [`get_devices`] apart.
    pub fn parse(payload: &'b [u8]) -> Result<Self, Malformed> {
        let mut index = None;
        let mut name = None;
        let mut ports = None;
        let mut node_type = None;
        let mut node_guid = None;
        let mut device = Self {
            index: 0,
            name: "",
            ports: 0,
            node_type: NodeType::UNSPECIFIED,
            node_guid: 0,
            sys_image_guid: 0,
            cap_flags: 0,
            fw_version: "",
            protocol: "",
        };
        for attribute in attributes(payload) {
            let a = attribute?;
            match a.attr {
                Attr::DEV_INDEX => index = Some(a.number()?),
                Attr::DEV_NAME => name = Some(a.string()?),
                Attr::PORT_INDEX => ports = Some(a.number()?),
                Attr::DEV_NODE_TYPE => node_type = Some(a.number()?),
                Attr::NODE_GUID => node_guid = Some(a.number()?),
                Attr::SYS_IMAGE_GUID => device.sys_image_guid = a.number()?,
                Attr::CAP_FLAGS => device.cap_flags = a.number()?,
                Attr::FW_VERSION => device.fw_version = a.string()?,
                Attr::DEV_PROTOCOL => device.protocol = a.string()?,
                _ => {}
            }
        }
        device.index = index.ok_or(Malformed::Missing(Attr::DEV_INDEX))?;
        device.name = name.ok_or(Malformed::Missing(Attr::DEV_NAME))?;
        device.ports = ports.ok_or(Malformed::Missing(Attr::PORT_INDEX))?;
        device.node_type = node_type.ok_or(Malformed::Missing(Attr::DEV_NODE_TYPE))?;
        device.node_guid = node_guid.ok_or(Malformed::Missing(Attr::NODE_GUID))?;
        Ok(device)
    }
}

/// A port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port<'b> {
    /// Number, from 1.
    pub index: u32,
    /// State, as in `enum ib_port_state`.
    pub state: u8,
    /// Physical state.
    pub phys_state: u8,
    /// Capability flags: 32 bits and 16 of the second set.
    pub cap_flags: u64,
    /// Local identifier; InfiniBand only.
    pub lid: u32,
    /// Number of the network device behind the port; 0 if there is none.
    pub netdev_index: u32,
    /// Name of the network device behind the port; empty if there is none.
    pub netdev_name: &'b str,
}

impl<'b> Port<'b> {
    /// Takes the payload of an answer to [`get_port`] apart.
    pub fn parse(payload: &'b [u8]) -> Result<Self, Malformed> {
        let mut index = None;
        let mut port = Self {
            index: 0,
            state: 0,
            phys_state: 0,
            cap_flags: 0,
            lid: 0,
            netdev_index: 0,
            netdev_name: "",
        };
        for attribute in attributes(payload) {
            let a = attribute?;
            match a.attr {
                Attr::PORT_INDEX => index = Some(a.number()?),
                Attr::PORT_STATE => port.state = a.number()?,
                Attr::PORT_PHYS_STATE => port.phys_state = a.number()?,
                Attr::CAP_FLAGS => port.cap_flags = a.number()?,
                Attr::LID => port.lid = a.number()?,
                Attr::NDEV_INDEX => port.netdev_index = a.number()?,
                Attr::NDEV_NAME => port.netdev_name = a.string()?,
                _ => {}
            }
        }
        port.index = index.ok_or(Malformed::Missing(Attr::PORT_INDEX))?;
        Ok(port)
    }
}

/// A character device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chardev<'b> {
    /// Name of the node, such as `uverbs0`.
    pub name: &'b str,
    /// Version of the driver's ABI.
    pub abi: u64,
    /// Number of the device, as the kernel encodes it; see [`major`](Self::major).
    pub device: u64,
    /// The driver; unknown to kernels before 5.1.
    pub driver: DriverId,
}

impl<'b> Chardev<'b> {
    /// Takes the payload of an answer to [`get_chardev`] apart.
    pub fn parse(payload: &'b [u8]) -> Result<Self, Malformed> {
        let mut name = None;
        let mut abi = None;
        let mut device = None;
        let mut driver = DriverId::UNKNOWN;
        for attribute in attributes(payload) {
            let a = attribute?;
            match a.attr {
                Attr::CHARDEV_NAME => name = Some(a.string()?),
                Attr::CHARDEV_ABI => abi = Some(a.number()?),
                Attr::CHARDEV => device = Some(a.number()?),
                Attr::UVERBS_DRIVER_ID => {
                    // the header says u64, the kernel sends u32
                    let id = u32::try_from(a.any_number()?);
                    driver = DriverId(id.map_err(|_| Malformed::Value(a.attr))?);
                }
                _ => {}
            }
        }
        Ok(Self {
            name: name.ok_or(Malformed::Missing(Attr::CHARDEV_NAME))?,
            abi: abi.ok_or(Malformed::Missing(Attr::CHARDEV_ABI))?,
            device: device.ok_or(Malformed::Missing(Attr::CHARDEV))?,
            driver,
        })
    }

    /// Major number (`huge_encode_dev`: bits 8 to 19).
    pub fn major(&self) -> u32 {
        ((self.device >> 8) & 0xfff) as u32
    }

    /// Minor number (`huge_encode_dev`: bits 0 to 7 and from 20 on).
    pub fn minor(&self) -> u32 {
        ((self.device & 0xff) | ((self.device >> 12) & 0xf_ff00)) as u32
    }
}

/// What holds for all devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct System {
    /// Whether every network namespace sees every device (1), or only its own (0).
    pub netns_shared: Option<u8>,
    /// Whether fork() copies registered pages, so that the program need not care.
    pub copy_on_fork: bool,
}

impl System {
    /// Takes the payload of an answer to [`get_system`] apart.
    pub fn parse(payload: &[u8]) -> Result<Self, Malformed> {
        let mut system = Self::default();
        for attribute in attributes(payload) {
            let a = attribute?;
            match a.attr {
                Attr::SYS_NETNS_MODE => system.netns_shared = Some(a.number()?),
                Attr::SYS_COPY_ON_FORK => system.copy_on_fork = a.number::<u8>()? != 0,
                _ => {}
            }
        }
        Ok(system)
    }
}

/// Names of objects and how many there are, from the payload of an answer to [`get_summary`].
pub fn summary(payload: &[u8]) -> impl Iterator<Item = Result<(&str, u64), Malformed>> {
    entries(payload, Attr::RES_SUMMARY).map(|entry| {
        let mut name = None;
        let mut count = None;
        for attribute in entry? {
            let a = attribute?;
            match a.attr {
                Attr::RES_SUMMARY_ENTRY_NAME => name = Some(a.string()?),
                Attr::RES_SUMMARY_ENTRY_CURR => count = Some(a.number()?),
                _ => {}
            }
        }
        Ok((
            name.ok_or(Malformed::Missing(Attr::RES_SUMMARY_ENTRY_NAME))?,
            count.ok_or(Malformed::Missing(Attr::RES_SUMMARY_ENTRY_CURR))?,
        ))
    })
}

/// Kinds of objects that a device can list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceKind {
    /// Queue pairs.
    Qp,
    /// Identifiers of the connection manager.
    CmId,
    /// Completion queues.
    Cq,
    /// Memory regions.
    Mr,
    /// Protection domains.
    Pd,
    /// Contexts.
    Ctx,
    /// Shared receive queues.
    Srq,
}

impl ResourceKind {
    /// Every kind.
    pub const ALL: [Self; 7] = [
        Self::Qp,
        Self::CmId,
        Self::Cq,
        Self::Mr,
        Self::Pd,
        Self::Ctx,
        Self::Srq,
    ];

    /// The command that lists them.
    pub const fn command(self) -> Command {
        match self {
            Self::Qp => Command::RES_QP_GET,
            Self::CmId => Command::RES_CM_ID_GET,
            Self::Cq => Command::RES_CQ_GET,
            Self::Mr => Command::RES_MR_GET,
            Self::Pd => Command::RES_PD_GET,
            Self::Ctx => Command::RES_CTX_GET,
            Self::Srq => Command::RES_SRQ_GET,
        }
    }

    const fn table(self) -> Attr {
        match self {
            Self::Qp => Attr::RES_QP,
            Self::CmId => Attr::RES_CM_ID,
            Self::Cq => Attr::RES_CQ,
            Self::Mr => Attr::RES_MR,
            Self::Pd => Attr::RES_PD,
            Self::Ctx => Attr::RES_CTX,
            Self::Srq => Attr::RES_SRQ,
        }
    }
}

/// An object, as far as the kernel tells; what does not apply is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resource<'b> {
    /// Thread that made it (the process, if that has one thread); `None` for one of the kernel's.
    pub pid: Option<u32>,
    /// Module that made it; only for one of the kernel's.
    pub kernel_name: Option<&'b str>,
    /// Queue pair number.
    pub lqpn: Option<u32>,
    /// Queue pair number of the peer.
    pub rqpn: Option<u32>,
    /// Service type of a queue pair.
    pub qp_type: Option<QpType>,
    /// State of a queue pair.
    pub qp_state: Option<QpState>,
    /// Entries of a completion queue.
    pub cqe: Option<u32>,
    /// How many objects use it.
    pub users: Option<u64>,
    /// Bytes of a memory region.
    pub mr_len: Option<u64>,
    /// Number of the protection domain that it is, or is in.
    pub pdn: Option<u32>,
    /// Number of a completion queue.
    pub cqn: Option<u32>,
    /// Number of a memory region.
    pub mrn: Option<u32>,
    /// Number of the context that it is, or is in.
    pub ctxn: Option<u32>,
    /// Number of a shared receive queue.
    pub srqn: Option<u32>,
}

/// Objects, from the payload of an answer to [`get_resources`] for the same kind.
pub fn resources(
    kind: ResourceKind,
    payload: &[u8],
) -> impl Iterator<Item = Result<Resource<'_>, Malformed>> {
    entries(payload, kind.table()).map(|entry| {
        let mut resource = Resource::default();
        for attribute in entry? {
            let a = attribute?;
            match a.attr {
                Attr::RES_PID => resource.pid = Some(a.number()?),
                Attr::RES_KERN_NAME => resource.kernel_name = Some(a.string()?),
                Attr::RES_LQPN => resource.lqpn = Some(a.number()?),
                Attr::RES_RQPN => resource.rqpn = Some(a.number()?),
                Attr::RES_TYPE => resource.qp_type = Some(a.number()?),
                Attr::RES_STATE => resource.qp_state = Some(a.number()?),
                Attr::RES_CQE => resource.cqe = Some(a.number()?),
                Attr::RES_USECNT => resource.users = Some(a.any_number()?),
                Attr::RES_MRLEN => resource.mr_len = Some(a.number()?),
                Attr::RES_PDN => resource.pdn = Some(a.number()?),
                Attr::RES_CQN => resource.cqn = Some(a.number()?),
                Attr::RES_MRN => resource.mrn = Some(a.number()?),
                Attr::RES_CTXN => resource.ctxn = Some(a.number()?),
                Attr::RES_SRQN => resource.srqn = Some(a.number()?),
                _ => {}
            }
        }
        Ok(resource)
    })
}

/// The entries of a table: the attributes of each attribute inside those of number `table`.
fn entries(payload: &[u8], table: Attr) -> impl Iterator<Item = Result<Attributes<'_>, Malformed>> {
    attributes(payload)
        .filter(move |attribute| !matches!(attribute, Ok(a) if a.attr != table))
        .flat_map(|table| {
            let (entries, error) = match table {
                Ok(table) => (table.nested(), None),
                Err(error) => (attributes(&[]), Some(Err(error))),
            };
            entries
                .map(|entry| entry.map(|entry| entry.nested()))
                .chain(error)
        })
}

#[cfg(test)]
mod tests {
    use super::super::{Body, messages};
    use super::*;

    #[test]
    fn request_for_a_chardev() {
        let request = get_chardev(7, "uverbs", 9);
        #[rustfmt::skip]
        let expected = [
            36, 0, 0, 0,  15, 5 << 2,  1, 0,  9, 0, 0, 0,  0, 0, 0, 0,
            8, 0,  1, 0,  7, 0, 0, 0,
            11, 0, 69, 0,  b'u', b'v', b'e', b'r', b'b', b's', 0, 0,
        ];
        if cfg!(target_endian = "little") {
            assert_eq!(request.bytes(), expected);
        }
    }

    #[test]
    fn device_numbers_wider_than_8_bits() {
        // huge_encode_dev of major 231, minor 0x12345
        let chardev = Chardev {
            name: "",
            abi: 1,
            device: 0x45 | (231 << 8) | (0x12300 << 12),
            driver: DriverId::RXE,
        };
        assert_eq!((chardev.major(), chardev.minor()), (231, 0x12345));
    }

    #[test]
    fn a_string_that_does_not_fit_is_reported() {
        let request = get_chardev(0, core::str::from_utf8(&[b'x'; 600]).unwrap(), 0);
        assert!(!request.fits());
    }

    #[test]
    fn error_and_end() {
        let mut bytes = [0; 36];
        bytes[..4].copy_from_slice(&20u32.to_ne_bytes());
        bytes[4..6].copy_from_slice(&2u16.to_ne_bytes());
        bytes[16..20].copy_from_slice(&(-2i32).to_ne_bytes());
        bytes[20..24].copy_from_slice(&16u32.to_ne_bytes());
        bytes[24..26].copy_from_slice(&3u16.to_ne_bytes());
        let mut all = messages(&bytes);
        assert_eq!(all.next().unwrap().unwrap().body(), Body::Error(2));
        assert_eq!(all.next().unwrap().unwrap().body(), Body::Done);
        assert_eq!(all.next(), None);
    }
}
