//! A queue pair's way from RESET to sending.

use uverbs_abi::handle;
use uverbs_abi::types::{AccessFlags, QpAttrMask, QpState, QpType};
use uverbs_abi::write::qp::ModifyQp;

use super::QueuePair;
use super::attributes::{Endpoint, Peer, QpAttributes, Timing};
use super::service::{Connected, RawPacket, Rc, Service, Uc, Ud};
use crate::control::qp_state;
use crate::error::{Error, Result};
use crate::sys::Errno;
use crate::verbs::advice;
use crate::verbs::context::Context;

impl<T: Service> QueuePair<T> {
    /// Changes attributes, the state among them.
    ///
    /// # Errors
    ///
    /// Names the attributes that the change of state lacks or does not take; of a path, says whether
    /// nobody answered.
    pub fn modify(&mut self, attributes: &QpAttributes) -> Result<()> {
        let shared = self.shared();
        let change = Change {
            qp_type: T::QP_TYPE,
            number: shared.qp_num,
            handle: shared.handle,
            from: shared.state(),
        };
        let to = change.make(attributes, |modify| shared.modify(modify))?;
        shared.note_state(to);
        Ok(())
    }

    /// Back to RESET, whatever the state: outstanding work requests are forgotten, without completions.
    ///
    /// On mlx5 the completion queues may still hold completions of before. They go when the queues are
    /// polled the next time, and until then nothing can be posted to this queue pair.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn reset(&mut self) -> Result<()> {
        self.modify(&QpAttributes::new().state(QpState::RESET))
    }

    /// To the error state: outstanding work requests are flushed.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn to_error(&mut self) -> Result<()> {
        self.modify(&QpAttributes::new().state(QpState::ERR))
    }

    /// What a peer has to know: this queue pair, a random first packet number, and GID `gid_index` of
    /// `port`.
    ///
    /// # Errors
    ///
    /// There is no such port, or no such GID.
    pub fn endpoint(&self, port: u8, gid_index: u8) -> Result<Endpoint> {
        let context = Context {
            inner: self.shared().pd.context.clone(),
        };
        Endpoint::of(&context, self.qp_num(), port, gid_index)
    }
}

impl<T: Connected> QueuePair<T> {
    /// RESET to INIT, on `port`, with `access` for the peer. Receives can be posted from here on.
    ///
    /// # Errors
    ///
    /// There is no such port.
    pub fn to_init(&mut self, port: u8, access: AccessFlags) -> Result<()> {
        self.modify(&Change::to_init(port, access))
    }
}

impl QueuePair<Rc> {
    /// INIT to RTR: ready to receive from `peer`.
    ///
    /// # Errors
    ///
    /// Says so if nobody answers for the peer's GID.
    pub fn to_rtr(&mut self, peer: &Peer) -> Result<()> {
        self.modify(
            &rtr(peer)
                .max_dest_rd_atomic(peer.max_dest_rd_atomic)
                .min_rnr_timer(peer.min_rnr_timer),
        )
    }

    /// RTR to RTS: ready to send, from packet number `psn` on.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn to_rts(&mut self, psn: u32, timing: Timing) -> Result<()> {
        self.modify(&reliable_rts(psn, timing))
    }

    /// RESET to RTS in one go, with usual values: connects the `local` endpoint of this queue pair to a
    /// `remote` one, which gets `access`.
    ///
    /// # Errors
    ///
    /// Says so if nobody answers for the peer's GID.
    pub fn connect(
        &mut self,
        local: &Endpoint,
        remote: &Endpoint,
        access: AccessFlags,
    ) -> Result<()> {
        self.to_init(local.port, access)?;
        self.to_rtr(&remote.as_peer_of(local))?;
        self.to_rts(local.psn, Timing::default())
    }
}

impl QueuePair<Uc> {
    /// INIT to RTR: ready to receive from `peer`.
    ///
    /// # Errors
    ///
    /// Says so if nobody answers for the peer's GID.
    pub fn to_rtr(&mut self, peer: &Peer) -> Result<()> {
        self.modify(&rtr(peer))
    }

    /// RTR to RTS: ready to send, from packet number `psn` on.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn to_rts(&mut self, psn: u32) -> Result<()> {
        self.modify(&rts(psn))
    }
}

impl QueuePair<RawPacket> {
    /// RESET to RTS in one go, on `port`: ready to send, and to receive what its rules let in.
    ///
    /// # Errors
    ///
    /// There is no such port.
    pub fn to_ready(&mut self, port: u8) -> Result<()> {
        self.modify(&QpAttributes::new().state(QpState::INIT).port(port))?;
        self.modify(&QpAttributes::new().state(QpState::RTR))?;
        self.modify(&QpAttributes::new().state(QpState::RTS))
    }
}

impl QueuePair<Ud> {
    /// RESET to INIT, on `port`, for datagrams with the key `qkey`. Receives can be posted from here on.
    ///
    /// # Errors
    ///
    /// There is no such port.
    pub fn to_init(&mut self, port: u8, qkey: u32) -> Result<()> {
        let init = QpAttributes::new().state(QpState::INIT).pkey_index(0);
        self.modify(&init.port(port).qkey(qkey))
    }

    /// INIT to RTR: ready to receive.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn to_rtr(&mut self) -> Result<()> {
        self.modify(&QpAttributes::new().state(QpState::RTR))
    }

    /// RTR to RTS: ready to send.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn to_rts(&mut self, psn: u32) -> Result<()> {
        self.modify(&rts(psn))
    }
}

pub(in crate::verbs) fn rtr(peer: &Peer) -> QpAttributes {
    QpAttributes::new()
        .state(QpState::RTR)
        .address(peer.address)
        .path_mtu(peer.path_mtu)
        .dest_qp_num(peer.qpn)
        .rq_psn(peer.psn)
}

pub(in crate::verbs) fn rts(psn: u32) -> QpAttributes {
    QpAttributes::new().state(QpState::RTS).sq_psn(psn)
}

pub(super) fn reliable_rts(psn: u32, timing: Timing) -> QpAttributes {
    rts(psn)
        .timeout(timing.timeout)
        .retry_count(timing.retry_count)
        .rnr_retry(timing.rnr_retry)
        .max_rd_atomic(timing.max_rd_atomic)
}

/// A change of a queue pair's attributes.
pub(in crate::verbs) struct Change {
    pub(in crate::verbs) qp_type: QpType,
    pub(in crate::verbs) number: u32,
    pub(in crate::verbs) handle: handle::Qp,
    /// The state that it is believed to be in.
    pub(in crate::verbs) from: QpState,
}

impl Change {
    /// RESET to INIT, of a connection.
    pub(in crate::verbs) fn to_init(port: u8, access: AccessFlags) -> QpAttributes {
        let init = QpAttributes::new().state(QpState::INIT).pkey_index(0);
        init.port(port).access(access)
    }

    /// Checks it and lets the kernel make it; answers the state that the queue pair is in then.
    pub(in crate::verbs) fn make(
        &self,
        attributes: &QpAttributes,
        modify_in_kernel: impl FnOnce(&ModifyQp) -> std::result::Result<(), Errno>,
    ) -> Result<QpState> {
        let mut modify = attributes.modify;
        let mask = modify.attr_mask;
        let from = if mask.contains(QpAttrMask::CUR_STATE) {
            modify.cur_qp_state
        } else {
            self.from
        };
        let to = if mask.contains(QpAttrMask::STATE) {
            modify.qp_state
        } else {
            from
        };
        let action = || format!("take queue pair {} from {from:?} to {to:?}", self.number);
        qp_state::check(self.qp_type, from, to, mask)
            .map_err(|bad| Error::refused(action(), bad.to_string()))?;
        modify.qp_handle = self.handle;
        modify_in_kernel(&modify).map_err(|errno| match attributes.address {
            Some(address) => {
                advice::resolve(format!("{} at {}", action(), address.describe()), errno)
            }
            None => Error::kernel(action(), errno),
        })?;
        Ok(to)
    }
}

impl Endpoint {
    /// Of a queue pair with this number.
    pub(in crate::verbs) fn of(
        context: &Context,
        qpn: u32,
        port: u8,
        gid_index: u8,
    ) -> Result<Self> {
        let entry = context.query_gid(port, gid_index.into())?.ok_or_else(|| {
            let action = format!("use GID {gid_index} of port {port}");
            Error::refused(action, "the entry is empty")
        })?;
        Ok(Self {
            qpn,
            psn: random_psn(),
            lid: context.query_port(port)?.lid,
            gid: entry.gid,
            port,
            gid_index,
        })
    }
}

/// 24 bits that differ from one connection to the next, so that late packets of an old one do not fit.
fn random_psn() -> u32 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0u8) as u32 & 0xff_ffff
}
