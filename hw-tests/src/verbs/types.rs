//! Values that cross the suite's boundary with a device: plain data, so that they can be planted
//! with faults, printed, and sent to a peer.
//!
//! Numbers are those of `infiniband/verbs.h`, which are the kernel's (`uapi rdma/ib_user_verbs.h`).

use std::fmt;

use serde::{Deserialize, Serialize};

/// Rights of a memory region, a memory window or a queue pair.
pub(crate) mod access {
    pub(crate) const LOCAL_WRITE: u32 = 1;
    pub(crate) const REMOTE_WRITE: u32 = 1 << 1;
    pub(crate) const REMOTE_READ: u32 = 1 << 2;
    pub(crate) const REMOTE_ATOMIC: u32 = 1 << 3;
    pub(crate) const MW_BIND: u32 = 1 << 4;
    pub(crate) const FLUSH_GLOBAL: u32 = 1 << 8;
    pub(crate) const FLUSH_PERSISTENT: u32 = 1 << 9;
    /// What most cases register with.
    pub(crate) const ALL: u32 = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC;
}

/// Flags of a send work request.
pub(crate) mod send {
    pub(crate) const FENCE: u32 = 1;
    pub(crate) const SIGNALED: u32 = 1 << 1;
    pub(crate) const SOLICITED: u32 = 1 << 2;
    pub(crate) const INLINE: u32 = 1 << 3;
}

/// Bits of `device_cap_flags` that cases ask for.
pub(crate) mod cap {
    pub(crate) const SRQ_RESIZE: u64 = 1 << 13;
    pub(crate) const MEM_WINDOW: u64 = 1 << 17;
    pub(crate) const MEM_MGT_EXTENSIONS: u64 = 1 << 21;
    pub(crate) const MEM_WINDOW_TYPE_2B: u64 = 1 << 24;
    pub(crate) const FLUSH_GLOBAL: u64 = 1 << 38;
    pub(crate) const FLUSH_PERSISTENT: u64 = 1 << 39;
    pub(crate) const ATOMIC_WRITE: u64 = 1 << 40;
}

/// A refused call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fault {
    /// `errno`, absent where the library refused without asking the kernel.
    pub(crate) errno: Option<i32>,
    /// What was tried, and the message.
    pub(crate) what: String,
}

impl Fault {
    pub(crate) fn errno(errno: i32, what: impl Into<String>) -> Self {
        Self {
            errno: Some(errno),
            what: what.into(),
        }
    }

    /// Whether the call was refused with one of `errnos`, or by the library itself.
    pub(crate) fn is(&self, errnos: &[i32]) -> bool {
        self.errno.is_none_or(|errno| errnos.contains(&errno))
    }

    /// Whether the device or the kernel does not have the function at all.
    pub(crate) fn unsupported(&self) -> bool {
        matches!(
            self.errno,
            Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::EPROTONOSUPPORT | libc::ENOTTY)
        )
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.what)?;
        if let Some(errno) = self.errno {
            write!(f, ": {}", std::io::Error::from_raw_os_error(errno))?;
        }
        Ok(())
    }
}

impl std::error::Error for Fault {}

pub(crate) type Answer<T> = std::result::Result<T, Fault>;

/// A work request of a list was refused; those before it were posted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PostFault {
    /// Which one of the list.
    pub(crate) index: usize,
    pub(crate) fault: Fault,
}

impl fmt::Display for PostFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "work request {}: {}", self.index, self.fault)
    }
}

impl std::error::Error for PostFault {}

pub(crate) type Posted = std::result::Result<(), PostFault>;

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub(crate) struct $name(pub(crate) u32);
    )*};
}

handles! {
    /// A protection domain.
    Pd;
    /// A completion channel.
    Channel;
    /// An address handle.
    Ah;
}

/// A shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Srq {
    pub(crate) id: u32,
    /// What creation returned.
    pub(crate) max_wr: u32,
    pub(crate) max_sge: u32,
}

/// Memory that the suite allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Buf {
    pub(crate) id: u32,
    pub(crate) addr: u64,
    pub(crate) len: u64,
}

/// A memory region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mr {
    pub(crate) id: u32,
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
}

/// A memory window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mw {
    pub(crate) id: u32,
    /// The key that it was allocated with; a bind changes it.
    pub(crate) rkey: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum MwType {
    One,
    Two,
}

/// A completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cq {
    pub(crate) id: u32,
    /// Entries that creation returned.
    pub(crate) cqe: u32,
}

/// A queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Qp {
    pub(crate) id: u32,
    pub(crate) num: u32,
    pub(crate) transport: Transport,
    /// What creation returned.
    pub(crate) caps: Caps,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Transport {
    Rc,
    Uc,
    Ud,
    /// Packets as they are.
    Raw,
}

impl Transport {
    /// Those of InfiniBand.
    pub(crate) const ALL: [Self; 3] = [Self::Rc, Self::Uc, Self::Ud];

    /// `enum ibv_qp_type`.
    pub(crate) fn number(self) -> u32 {
        match self {
            Self::Rc => 2,
            Self::Uc => 3,
            Self::Ud => 4,
            Self::Raw => 8,
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rc => "rc",
            Self::Uc => "uc",
            Self::Ud => "ud",
            Self::Raw => "raw",
        })
    }
}

/// Sizes of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Caps {
    pub(crate) send_wr: u32,
    pub(crate) recv_wr: u32,
    pub(crate) send_sge: u32,
    pub(crate) recv_sge: u32,
    pub(crate) inline: u32,
}

impl Default for Caps {
    fn default() -> Self {
        Self {
            send_wr: 16,
            recv_wr: 16,
            send_sge: 4,
            recv_sge: 4,
            inline: 0,
        }
    }
}

/// What a queue pair is made of.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct QpInit {
    pub(crate) pd: Pd,
    pub(crate) transport: Transport,
    pub(crate) send_cq: Cq,
    pub(crate) recv_cq: Cq,
    pub(crate) srq: Option<Srq>,
    pub(crate) caps: Caps,
    pub(crate) signal_all: bool,
}

/// `enum ibv_qp_state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum State {
    Reset,
    Init,
    Rtr,
    Rts,
    Sqd,
    Sqe,
    Err,
}

impl State {
    pub(crate) fn from_number(number: u32) -> Option<Self> {
        const STATES: [State; 7] = [
            State::Reset,
            State::Init,
            State::Rtr,
            State::Rts,
            State::Sqd,
            State::Sqe,
            State::Err,
        ];
        STATES.get(number as usize).copied()
    }
}

/// Where packets go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Route {
    pub(crate) gid: [u8; 16],
    /// The peer's; 0 on Ethernet.
    pub(crate) lid: u16,
    pub(crate) sgid_index: u8,
    pub(crate) port: u8,
    pub(crate) hop_limit: u8,
    pub(crate) traffic_class: u8,
    pub(crate) flow_label: u32,
}

/// Attributes of a queue pair; a call carries those that are present.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct QpAttr {
    pub(crate) state: Option<State>,
    pub(crate) access: Option<u32>,
    pub(crate) pkey_index: Option<u16>,
    pub(crate) port: Option<u8>,
    pub(crate) qkey: Option<u32>,
    pub(crate) route: Option<Route>,
    /// `enum ibv_mtu`: 1 is 256 bytes, 5 is 4096.
    pub(crate) mtu: Option<u8>,
    pub(crate) timeout: Option<u8>,
    pub(crate) retry: Option<u8>,
    pub(crate) rnr_retry: Option<u8>,
    pub(crate) rq_psn: Option<u32>,
    pub(crate) sq_psn: Option<u32>,
    pub(crate) max_rd_atomic: Option<u8>,
    pub(crate) max_dest_rd_atomic: Option<u8>,
    pub(crate) min_rnr_timer: Option<u8>,
    pub(crate) dest: Option<u32>,
}

/// What the kernel says of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct QpReport {
    pub(crate) state: State,
    pub(crate) access: u32,
    pub(crate) pkey_index: u16,
    pub(crate) port: u8,
    pub(crate) qkey: u32,
    pub(crate) mtu: u8,
    pub(crate) timeout: u8,
    pub(crate) retry: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) rq_psn: u32,
    pub(crate) sq_psn: u32,
    pub(crate) max_rd_atomic: u8,
    pub(crate) max_dest_rd_atomic: u8,
    pub(crate) min_rnr_timer: u8,
    pub(crate) dest: u32,
    pub(crate) route: Route,
    pub(crate) caps: Caps,
}

/// One piece of local memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sge {
    pub(crate) addr: u64,
    pub(crate) len: u32,
    pub(crate) lkey: u32,
}

/// Memory of the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Remote {
    pub(crate) addr: u64,
    pub(crate) rkey: u32,
}

/// What a memory window opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Bind {
    pub(crate) mw: Mw,
    /// The window's key after the bind (type 2; the provider chooses that of a type 1 window).
    pub(crate) rkey: u32,
    pub(crate) mr: Mr,
    pub(crate) addr: u64,
    pub(crate) len: u64,
    pub(crate) access: u32,
}

/// What a send work request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Op {
    Send,
    SendImm(u32),
    SendInv(u32),
    Write(Remote),
    WriteImm(Remote, u32),
    Read(Remote),
    CompareSwap {
        remote: Remote,
        compare: u64,
        swap: u64,
    },
    FetchAdd {
        remote: Remote,
        add: u64,
    },
    AtomicWrite(Remote, u64),
    /// Length; bits of type (1 global visibility, 2 persistence) and level (0 range, 1 region).
    Flush {
        remote: Remote,
        len: u32,
        kind: u8,
        level: u8,
    },
    LocalInv(u32),
    BindMw(Bind),
}

/// Where a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Datagram {
    pub(crate) ah: Ah,
    pub(crate) qpn: u32,
    pub(crate) qkey: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SendWr {
    pub(crate) id: u64,
    pub(crate) op: Op,
    pub(crate) sg: Vec<Sge>,
    pub(crate) flags: u32,
    pub(crate) to: Option<Datagram>,
}

impl SendWr {
    /// A signaled request.
    pub(crate) fn new(id: u64, op: Op, sg: impl Into<Vec<Sge>>) -> Self {
        Self {
            id,
            op,
            sg: sg.into(),
            flags: send::SIGNALED,
            to: None,
        }
    }

    /// Adds flags.
    pub(crate) fn with(mut self, flags: u32) -> Self {
        self.flags |= flags;
        self
    }

    pub(crate) fn unsignaled(mut self) -> Self {
        self.flags &= !send::SIGNALED;
        self
    }

    pub(crate) fn to(mut self, to: Option<Datagram>) -> Self {
        self.to = to;
        self
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RecvWr {
    pub(crate) id: u64,
    pub(crate) sg: Vec<Sge>,
}

impl RecvWr {
    pub(crate) fn new(id: u64, sg: impl Into<Vec<Sge>>) -> Self {
        Self { id, sg: sg.into() }
    }
}

/// `enum ibv_wc_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Status(pub(crate) u32);

impl Status {
    pub(crate) const SUCCESS: Self = Self(0);
    pub(crate) const LOC_LEN_ERR: Self = Self(1);
    pub(crate) const LOC_QP_OP_ERR: Self = Self(2);
    pub(crate) const LOC_PROT_ERR: Self = Self(4);
    pub(crate) const WR_FLUSH_ERR: Self = Self(5);
    pub(crate) const REM_INV_REQ_ERR: Self = Self(9);
    pub(crate) const REM_ACCESS_ERR: Self = Self(10);
    pub(crate) const REM_OP_ERR: Self = Self(11);
    pub(crate) const RETRY_EXC_ERR: Self = Self(12);
    pub(crate) const RNR_RETRY_EXC_ERR: Self = Self(13);
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 22] = [
            "SUCCESS",
            "LOC_LEN_ERR",
            "LOC_QP_OP_ERR",
            "LOC_EEC_OP_ERR",
            "LOC_PROT_ERR",
            "WR_FLUSH_ERR",
            "MW_BIND_ERR",
            "BAD_RESP_ERR",
            "LOC_ACCESS_ERR",
            "REM_INV_REQ_ERR",
            "REM_ACCESS_ERR",
            "REM_OP_ERR",
            "RETRY_EXC_ERR",
            "RNR_RETRY_EXC_ERR",
            "LOC_RDD_VIOL_ERR",
            "REM_INV_RD_REQ_ERR",
            "REM_ABORT_ERR",
            "INV_EECN_ERR",
            "INV_EEC_STATE_ERR",
            "FATAL_ERR",
            "RESP_TIMEOUT_ERR",
            "GENERAL_ERR",
        ];
        match NAMES.get(self.0 as usize) {
            Some(name) => f.write_str(name),
            None => write!(f, "status {}", self.0),
        }
    }
}

/// `enum ibv_wc_opcode`.
pub(crate) mod wc_op {
    pub(crate) const SEND: u32 = 0;
    pub(crate) const RDMA_WRITE: u32 = 1;
    pub(crate) const RDMA_READ: u32 = 2;
    pub(crate) const COMP_SWAP: u32 = 3;
    pub(crate) const FETCH_ADD: u32 = 4;
    pub(crate) const BIND_MW: u32 = 5;
    pub(crate) const LOCAL_INV: u32 = 6;
    pub(crate) const FLUSH: u32 = 8;
    pub(crate) const ATOMIC_WRITE: u32 = 9;
    pub(crate) const RECV: u32 = 1 << 7;
    pub(crate) const RECV_RDMA_WITH_IMM: u32 = RECV + 1;
}

/// A work completion. Fields that the verbs leave undefined for a status are not compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Wc {
    pub(crate) id: u64,
    pub(crate) status: Status,
    pub(crate) opcode: u32,
    pub(crate) vendor_err: u32,
    pub(crate) byte_len: u32,
    pub(crate) imm: Option<u32>,
    pub(crate) invalidated: Option<u32>,
    pub(crate) qp_num: u32,
    pub(crate) src_qp: u32,
    /// Whether a GRH (or the IPv4 header in its place) leads the received bytes.
    pub(crate) grh: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SrqReport {
    pub(crate) max_wr: u32,
    pub(crate) max_sge: u32,
    pub(crate) limit: u32,
}

/// An asynchronous event: which object, by the handle's `id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Event {
    /// `enum ibv_event_type`.
    pub(crate) kind: u32,
    /// `id` of the queue pair, completion queue or shared receive queue; 0 for a port.
    pub(crate) id: u32,
}

/// `enum ibv_event_type`.
pub(crate) mod event {
    pub(crate) const CQ_ERR: u32 = 0;
    pub(crate) const QP_FATAL: u32 = 1;
    pub(crate) const QP_REQ_ERR: u32 = 2;
    pub(crate) const QP_ACCESS_ERR: u32 = 3;
    pub(crate) const COMM_EST: u32 = 4;
    pub(crate) const SRQ_LIMIT_REACHED: u32 = 15;
    pub(crate) const QP_LAST_WQE_REACHED: u32 = 16;
}

/// What a device offers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeviceAttr {
    pub(crate) node_guid: u64,
    pub(crate) sys_image_guid: u64,
    pub(crate) max_mr_size: u64,
    pub(crate) page_size_cap: u64,
    pub(crate) cap_flags: u64,
    pub(crate) max_qp: u32,
    pub(crate) max_qp_wr: u32,
    pub(crate) max_sge: u32,
    pub(crate) max_cq: u32,
    pub(crate) max_cqe: u32,
    pub(crate) max_mr: u32,
    pub(crate) max_pd: u32,
    pub(crate) max_qp_rd_atom: u32,
    pub(crate) max_qp_init_rd_atom: u32,
    /// 0 none, 1 within this adapter, 2 with the host's processors too.
    pub(crate) atomic_cap: u32,
    pub(crate) max_mw: u32,
    pub(crate) max_mcast_grp: u32,
    pub(crate) max_mcast_qp_attach: u32,
    pub(crate) max_ah: u32,
    pub(crate) max_srq: u32,
    pub(crate) max_srq_wr: u32,
    pub(crate) max_srq_sge: u32,
    pub(crate) max_pkeys: u16,
    pub(crate) ports: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PortAttr {
    /// `enum ibv_port_state`; 4 is active.
    pub(crate) state: u32,
    pub(crate) max_mtu: u8,
    pub(crate) active_mtu: u8,
    pub(crate) gid_table_len: u32,
    pub(crate) pkey_table_len: u16,
    pub(crate) max_msg_size: u32,
    /// 1 InfiniBand, 2 Ethernet.
    pub(crate) link_layer: u8,
    /// 0 on Ethernet.
    pub(crate) lid: u16,
}

impl PortAttr {
    pub(crate) fn is_infiniband(&self) -> bool {
        self.link_layer == 1
    }

    /// Bytes of a packet's payload at most.
    pub(crate) fn mtu_bytes(&self) -> u32 {
        128 << self.active_mtu
    }
}
