//! Queue pairs, and what has one of their numbers.

use wqe_format::mlx5::firmware::dct::Dctc;
use wqe_format::mlx5::firmware::qpc::{Ads, Qpc};

use super::Ring;
use crate::transport::QpData;

/// States of a queue pair, as `qpc.state` has them (`MLX5_QP_STATE_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum QpState {
    #[default]
    Rst = 0,
    Init = 1,
    Rtr = 2,
    Rts = 3,
    SqEr = 4,
    Sqd = 5,
    Err = 6,
}

/// Service types (`MLX5_QP_ST_*`), and what else has a number among queue pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QpKind {
    Rc,
    Uc,
    Ud,
    Xrc,
    Dci,
    /// The one of `CREATE_DCT`.
    Dct,
    /// Special queue pair 0.
    Smi,
    /// Special queue pair 1.
    Gsi,
    /// Where the kernel posts UMR (`REG_UMR`).
    RegUmr,
    /// The one of `CREATE_SQ`.
    RawSend,
    /// The one of `CREATE_RQ`.
    RawReceive,
}

impl QpKind {
    /// By `qpc.st`.
    pub(crate) fn from_service(st: u8) -> Option<QpKind> {
        Some(match st {
            0 => QpKind::Rc,
            1 => QpKind::Uc,
            2 => QpKind::Ud,
            3 => QpKind::Xrc,
            5 => QpKind::Dci,
            6 => QpKind::Dct,
            7 => QpKind::Smi,
            8 => QpKind::Gsi,
            0xc => QpKind::RegUmr,
            _ => return None,
        })
    }
}

/// A send queue; a slot is one basic block of 64 bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Send {
    pub(crate) ring: Ring,
    pub(crate) cqn: u32,
}

/// Where a queue pair receives.
#[derive(Clone, Debug, Default)]
pub(crate) enum Receive {
    #[default]
    None,
    /// In its own ring.
    Ring { ring: Ring, cqn: u32 },
    /// In an SRQ, RMP or XRQ; XRC targets take the number from each packet.
    Shared { srqn: u32, cqn: u32 },
}

/// How the requests of a striding receive queue are divided: each takes many packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Strides {
    /// Strides of a request, as a logarithm.
    pub(crate) log_count: u8,
    /// Bytes of a stride, as a logarithm.
    pub(crate) log_size: u8,
    /// Two bytes before each packet stay free, so that its IP header is aligned.
    pub(crate) shifts: bool,
    /// Requests are a linked list, as those of shared queues are.
    pub(crate) linked: bool,
}

/// What a peer may do to a queue pair's memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rights {
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) atomic: bool,
}

/// How often, how long and how many.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RequesterLimits {
    pub(crate) retry_count: u8,
    /// 7 is for ever.
    pub(crate) rnr_retry: u8,
    /// 4.096 us * 2^ack_timeout; 0 is for ever.
    pub(crate) ack_timeout: u8,
    /// Outstanding reads and atomics, as a logarithm.
    pub(crate) log_sra_max: u8,
}

/// The path to the peer (`ads`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Path {
    pub(crate) force_loopback: bool,
    pub(crate) pkey_index: u16,
    pub(crate) grh: bool,
    /// Low bits of the source LID.
    pub(crate) mlid: u8,
    pub(crate) rlid: u16,
    pub(crate) source_index: u8,
    pub(crate) rate: u8,
    pub(crate) hop_limit: u8,
    pub(crate) traffic_class: u8,
    pub(crate) flow_label: u32,
    pub(crate) rgid: [u8; 16],
    pub(crate) udp_sport: u16,
    pub(crate) sl: u8,
    pub(crate) rmac: [u8; 6],
}

impl Path {
    /// Of an `ads`.
    pub(crate) fn parse(ads: &Ads<&[u8]>) -> Path {
        let mut path = Path {
            force_loopback: ads.fl(),
            pkey_index: ads.pkey_index(),
            grh: ads.grh(),
            mlid: ads.mlid(),
            rlid: ads.rlid(),
            source_index: ads.src_addr_index(),
            rate: ads.stat_rate(),
            hop_limit: ads.hop_limit(),
            traffic_class: ads.tclass(),
            flow_label: ads.flow_label(),
            rgid: [0; 16],
            udp_sport: ads.udp_sport(),
            sl: ads.sl(),
            rmac: [0; 6],
        };
        path.rgid.copy_from_slice(ads.rgid_rip());
        path.rmac[..2].copy_from_slice(&ads.rmac_47_32().to_be_bytes());
        path.rmac[2..].copy_from_slice(&ads.rmac_31_0().to_be_bytes());
        path
    }
}

#[derive(Debug)]
pub(crate) struct Qp {
    pub(crate) number: u32,
    pub(crate) uid: u16,
    pub(crate) kind: QpKind,
    pub(crate) state: QpState,
    /// `qpc` (of DC targets `dctc`, of raw queues `sqc` or `rqc`) as the commands set it: the
    /// truth, of which what follows (but the queues and their record) is read by [`Qp::load`].
    pub(crate) context: Vec<u8>,
    /// `None` where it has no send queue.
    pub(crate) send: Option<Send>,
    pub(crate) receive: Receive,
    /// `None` where each packet takes a request.
    pub(crate) strides: Option<Strides>,
    /// Address of the doorbell record: receive counter, then send counter. The command that makes the queues sets it, for
    /// the context may have a place in registered memory instead.
    pub(crate) dbr: u64,
    pub(crate) uar: u32,
    pub(crate) pd: u32,
    pub(crate) xrcd: u32,
    pub(crate) user_index: u32,
    /// Bytes of payload in one packet.
    pub(crate) mtu: u32,
    /// Longest message, as a logarithm.
    pub(crate) log_msg_max: u8,
    pub(crate) remote_qpn: u32,
    pub(crate) path: Path,
    pub(crate) rights: Rights,
    /// `atomic_mode`, 0 where atomics are off.
    pub(crate) atomic_mode: u8,
    pub(crate) limits: RequesterLimits,
    /// The code that a not-ready answer carries.
    pub(crate) min_rnr_nak: u8,
    /// Incoming reads and atomics, as a logarithm.
    pub(crate) log_rra_max: u8,
    /// As the driver set it; where the queue pair is is the data path's.
    pub(crate) next_send_psn: u32,
    /// As the driver set it.
    pub(crate) next_rcv_psn: u32,
    pub(crate) q_key: u32,
    /// The source number that datagrams of a queue pair with `set_deth_sqpn` carry; 0 is its own.
    pub(crate) deth_sqpn: u32,
    pub(crate) counter: u8,
    /// May use the reserved local key (`rlky`).
    pub(crate) reserved_lkey: bool,
    /// It stops sending where a signature is wrong (`drain_sigerr`).
    pub(crate) drains_mistakes: bool,
    /// May register memory by UMR (`fre`).
    pub(crate) fast_register: bool,
    pub(crate) signature: bool,
    /// Data of requests it sends goes into CQEs (`cs_req`: 0x11 up to 32 bytes, 0x22 up to 64).
    pub(crate) scatter_request: u8,
    /// Data it receives goes into CQEs (`cs_res`).
    pub(crate) scatter_response: u8,
    pub(crate) dc_access_key: u64,
    /// Own multicasts are not received (`block_lb_mc`).
    pub(crate) blocks_own_multicast: bool,
    /// Multicast groups it is attached to.
    pub(crate) groups: Vec<[u8; 16]>,
    /// What the data path keeps.
    pub(crate) data: QpData,
}

impl Qp {
    /// A queue pair in reset, without queues.
    pub(crate) fn new(number: u32, uid: u16, kind: QpKind, context: Vec<u8>) -> Qp {
        let mut qp = Qp {
            number,
            uid,
            kind,
            state: QpState::Rst,
            context,
            send: None,
            receive: Receive::None,
            strides: None,
            dbr: 0,
            uar: 0,
            pd: 0,
            xrcd: 0,
            user_index: 0,
            mtu: 0,
            log_msg_max: 0,
            remote_qpn: 0,
            path: Path::default(),
            rights: Rights::default(),
            atomic_mode: 0,
            limits: RequesterLimits::default(),
            min_rnr_nak: 0,
            log_rra_max: 0,
            next_send_psn: 0,
            next_rcv_psn: 0,
            q_key: 0,
            deth_sqpn: 0,
            counter: 0,
            reserved_lkey: false,
            drains_mistakes: false,
            fast_register: false,
            signature: false,
            scatter_request: 0,
            scatter_response: 0,
            dc_access_key: 0,
            blocks_own_multicast: false,
            groups: Vec::new(),
            data: QpData::default(),
        };
        if !matches!(kind, QpKind::Dct | QpKind::RawSend | QpKind::RawReceive) {
            qp.load();
        }
        qp
    }

    /// A DC target of a context (`dctc`), whose queues the caller sets.
    pub(crate) fn target(number: u32, uid: u16, context: &Dctc<&[u8]>) -> Qp {
        let bytes = context.as_bytes().to_vec();
        let mut qp = Qp::new(number, uid, QpKind::Dct, bytes);
        qp.state = QpState::Rtr;
        qp.pd = context.pd();
        qp.user_index = context.user_index();
        qp.counter = context.counter_set_id();
        qp.mtu = 128 << context.mtu().clamp(1, 5);
        qp.log_msg_max = 30;
        qp.atomic_mode = context.atomic_mode();
        qp.rights = Rights {
            read: context.rre(),
            write: context.rwe(),
            atomic: context.rae(),
        };
        qp.reserved_lkey = context.rlky();
        qp.scatter_response = context.cs_res();
        qp.min_rnr_nak = context.min_rnr_nak();
        qp.log_rra_max = 4;
        qp.dc_access_key = context.dc_access_key();
        qp.path = Path {
            pkey_index: context.pkey_index(),
            source_index: context.my_addr_index(),
            hop_limit: context.hop_limit(),
            traffic_class: context.tclass(),
            flow_label: context.flow_label(),
            ..Path::default()
        };
        qp
    }

    /// Reads the fields from `qpc` again.
    pub(crate) fn load(&mut self) {
        self.context.resize(Qpc::SIZE, 0);
        let Ok(c) = Qpc::new(&self.context[..]) else {
            return;
        };
        self.signature = c.wq_signature();
        self.drains_mistakes = c.drain_sigerr();
        self.blocks_own_multicast = c.block_lb_mc();
        self.pd = c.pd();
        self.mtu = match c.mtu() {
            code @ 1..=5 => 128 << code,
            _ => 4096, // raw and datagram queue pairs leave what the port can do
        };
        self.log_msg_max = c.log_msg_max();
        self.reserved_lkey = c.rlky();
        self.counter = c.counter_set_id();
        self.uar = c.uar_page();
        self.user_index = c.user_index();
        self.remote_qpn = c.remote_qpn();
        self.path = Path::parse(&c.primary_address_path());
        self.limits = RequesterLimits {
            retry_count: c.retry_count(),
            rnr_retry: c.rnr_retry(),
            ack_timeout: c.primary_address_path().ack_timeout(),
            log_sra_max: c.log_sra_max(),
        };
        self.fast_register = c.fre();
        self.next_send_psn = c.next_send_psn();
        self.deth_sqpn = c.deth_sqpn();
        self.log_rra_max = c.log_rra_max();
        self.atomic_mode = c.atomic_mode();
        self.rights = Rights {
            read: c.rre(),
            write: c.rwe(),
            atomic: c.rae(),
        };
        self.min_rnr_nak = c.min_rnr_nak();
        self.next_rcv_psn = c.next_rcv_psn();
        self.xrcd = c.xrcd();
        self.q_key = c.q_key();
        self.scatter_request = c.cs_req();
        self.scatter_response = c.cs_res();
        self.dc_access_key = c.dc_access_key();
    }
}
