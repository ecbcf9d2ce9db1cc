//! Attributes that queue pairs are given.

use std::fmt;

use uverbs_abi::types::{AccessFlags, QpAttrMask, QpState};
use uverbs_abi::write::qp::ModifyQp;

use crate::verbs::address::Address;
use crate::verbs::attributes::Mtu;
use crate::verbs::gid::Gid;

/// Attributes for [`QueuePair::modify`](super::QueuePair::modify): those that are set, and no others.
#[derive(Clone, Copy, Debug, Default)]
pub struct QpAttributes {
    pub(super) modify: ModifyQp,
    pub(super) address: Option<Address>,
}

macro_rules! setters {
    ($($(#[$meta:meta])* $name:ident($value:ident: $type:ty) = $mask:ident: $field:ident = $set:expr;)*) => {
        impl QpAttributes {$(
            $(#[$meta])*
            #[must_use]
            pub fn $name(mut self, $value: $type) -> Self {
                self.modify.$field = $set;
                self.modify.attr_mask |= QpAttrMask::$mask;
                self
            }
        )*}
    };
}

setters! {
    /// The state to go to.
    state(state: QpState) = STATE: qp_state = state;
    /// The state that the queue pair is assumed to be in.
    current_state(state: QpState) = CUR_STATE: cur_qp_state = state;
    /// The local port.
    port(port: u8) = PORT: port_num = port;
    /// Index of the partition key.
    pkey_index(index: u16) = PKEY_INDEX: pkey_index = index;
    /// Rights of the peer.
    access(access: AccessFlags) = ACCESS_FLAGS: qp_access_flags = access;
    /// Key of datagrams.
    qkey(qkey: u32) = QKEY: qkey = qkey;
    /// Bytes in a packet.
    path_mtu(mtu: Mtu) = PATH_MTU: path_mtu = mtu as u8;
    /// Number of the peer's queue pair.
    dest_qp_num(qpn: u32) = DEST_QPN: dest_qp_num = qpn;
    /// Number of the first packet that comes.
    rq_psn(psn: u32) = RQ_PSN: rq_psn = psn;
    /// Number of the first packet that goes.
    sq_psn(psn: u32) = SQ_PSN: sq_psn = psn;
    /// Reads and atomics that the peer may have outstanding.
    max_dest_rd_atomic(max: u8) = MAX_DEST_RD_ATOMIC: max_dest_rd_atomic = max;
    /// Reads and atomics that may be outstanding at the peer.
    max_rd_atomic(max: u8) = MAX_QP_RD_ATOMIC: max_rd_atomic = max;
    /// How long a peer waits that found no receive (code of IBTA 9.7.5.2.8).
    min_rnr_timer(timer: u8) = MIN_RNR_TIMER: min_rnr_timer = timer;
    /// How long to wait for an acknowledgement: 4.096 µs × 2^timeout; 0 is for ever.
    timeout(timeout: u8) = TIMEOUT: timeout = timeout;
    /// How often to repeat what was not acknowledged.
    retry_count(count: u8) = RETRY_CNT: retry_cnt = count;
    /// How often to repeat what found no receive; 7 is for ever.
    rnr_retry(count: u8) = RNR_RETRY: rnr_retry = count;
    /// Whether an event comes when the send queue is drained.
    sqd_event(enabled: bool) = EN_SQD_ASYNC_NOTIFY: en_sqd_async_notify = enabled.into();
}

impl QpAttributes {
    /// No attribute.
    pub fn new() -> Self {
        Self::default()
    }

    /// The path to the peer.
    #[must_use]
    pub fn address(mut self, address: Address) -> Self {
        self.modify.dest = address.to_qp_dest();
        self.modify.attr_mask |= QpAttrMask::AV;
        self.address = Some(address);
        self
    }

    /// Which are set.
    pub fn mask(&self) -> QpAttrMask {
        self.modify.attr_mask
    }
}

/// What a peer has to know of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Number of the queue pair.
    pub qpn: u32,
    /// Number of the first packet that it sends.
    pub psn: u32,
    /// LID of its port, on InfiniBand.
    pub lid: u16,
    /// GID of its port; `::` for none.
    pub gid: Gid,
    /// Port.
    pub port: u8,
    /// Index of the GID.
    pub gid_index: u8,
}

impl Endpoint {
    /// The way to this endpoint, from the local `port` and the GID at `gid_index` of its table.
    pub fn address(&self, port: u8, gid_index: u8) -> Address {
        Address {
            // InfiniBand finds ports by it within a subnet, whether or not there is a GID; RoCE has none.
            lid: self.lid,
            ..Address::global(port, gid_index, self.gid)
        }
    }

    /// This endpoint as the other end of a connection of the `local` one.
    pub(in crate::verbs) fn as_peer_of(&self, local: &Endpoint) -> Peer {
        Peer::new(
            self.qpn,
            self.psn,
            self.address(local.port, local.gid_index),
        )
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            qpn, psn, lid, gid, ..
        } = self;
        write!(
            f,
            "LID 0x{lid:04x}, QPN 0x{qpn:06x}, PSN 0x{psn:06x}, GID {gid}"
        )
    }
}

/// The other end of a connection. Defaults: MTU 1024, one read or atomic, receiver-not-ready timer 12.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// Number of its queue pair.
    pub qpn: u32,
    /// Number of its first packet.
    pub psn: u32,
    /// The path to it.
    pub address: Address,
    /// Bytes in a packet.
    pub path_mtu: Mtu,
    /// Reads and atomics that it may have outstanding here (RC).
    pub max_dest_rd_atomic: u8,
    /// How long it waits when it found no receive (RC).
    pub min_rnr_timer: u8,
}

impl Peer {
    /// A peer at `address`.
    pub fn new(qpn: u32, psn: u32, address: Address) -> Self {
        Self {
            qpn,
            psn,
            address,
            path_mtu: Mtu::Bytes1024,
            max_dest_rd_atomic: 1,
            min_rnr_timer: 12,
        }
    }
}

/// How a reliable connection repeats.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// See [`QpAttributes::timeout`].
    pub timeout: u8,
    /// See [`QpAttributes::retry_count`].
    pub retry_count: u8,
    /// See [`QpAttributes::rnr_retry`].
    pub rnr_retry: u8,
    /// See [`QpAttributes::max_rd_atomic`].
    pub max_rd_atomic: u8,
}

impl Default for Timing {
    /// 67 ms, 7 repetitions, receivers are waited for, one read or atomic.
    fn default() -> Self {
        Self {
            timeout: 14,
            retry_count: 7,
            rnr_retry: 7,
            max_rd_atomic: 1,
        }
    }
}
