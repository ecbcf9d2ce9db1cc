//! The receiving end of extended reliable connections.

use std::sync::{Arc, Mutex, PoisonError};

use uverbs_abi::handle;
use uverbs_abi::types::{AccessFlags, QpAttrMask, QpCap, QpState, QpType};
use uverbs_abi::write::qp::{ExModifyQp, QueryQpResp};

use super::{XrcDomain, XrcdInner};
use crate::control::mlx5::geometry::Transport;
use crate::control::mlx5::qp::{QpObject, QpRequest};
use crate::control::mlx5::special::BareQp;
use crate::error::{Error, Result};
use crate::verbs::advice;
use crate::verbs::context::Context;
use crate::verbs::id::ObjectId;
use crate::verbs::qp::{Change, Endpoint, Peer, QpAttributes, rtr, rts};

/// The end of a connection that receives into the shared queues of its domain. It has no queues itself.
///
/// The connection outlives the process that made it while others have it open.
#[derive(Debug)]
pub struct XrcTarget {
    // Before the domain, in which it is.
    kernel: Kernel,
    domain: Arc<XrcdInner>,
    id: ObjectId,
    state: Mutex<QpState>,
}

/// The kernel's queue pair.
#[derive(Debug)]
enum Kernel {
    Made(QpObject),
    Opened(BareQp),
}

impl Kernel {
    fn handle(&self) -> handle::Qp {
        match self {
            Self::Made(object) => object.handle(),
            Self::Opened(object) => object.handle(),
        }
    }
}

impl XrcDomain {
    /// Makes a target, in state RESET.
    ///
    /// # Errors
    ///
    /// The device has no more.
    pub fn target(&self) -> Result<XrcTarget> {
        let id = ObjectId::next();
        let request = QpRequest {
            xrcd: self.inner.handle,
            user_handle: id.0,
            cap: QpCap::default(),
            async_event: Some(self.inner.context.events_fd()),
            ..QpRequest::new(Transport::XrcRecv)
        };
        let made = self.inner.mlx5()?.create_qp(&request);
        let made = made.map_err(|errno| advice::create("make an XRC target".to_owned(), errno))?;
        Ok(XrcTarget {
            kernel: Kernel::Made(made.object),
            domain: Arc::clone(&self.inner),
            id,
            state: Mutex::new(QpState::RESET),
        })
    }

    /// Opens the target `qpn` that another process has made in this domain, so that it stays when that process ends.
    ///
    /// # Errors
    ///
    /// There is no such target in the domain; or the device is driven by this process, and shared with nobody.
    pub fn open_target(&self, qpn: u32) -> Result<XrcTarget> {
        let id = ObjectId::next();
        let opened = self.inner.mlx5()?.open_qp(self.inner.handle, qpn, id.0);
        let opened = opened
            .map_err(|errno| Error::kernel(format!("open the XRC target 0x{qpn:06x}"), errno))?;
        let target = XrcTarget {
            kernel: Kernel::Opened(opened),
            domain: Arc::clone(&self.inner),
            id,
            state: Mutex::new(QpState::RESET),
        };
        target.query()?;
        Ok(target)
    }
}

impl XrcTarget {
    /// Its number, for peers.
    pub fn qp_num(&self) -> u32 {
        match &self.kernel {
            Kernel::Made(object) => object.number(),
            Kernel::Opened(object) => object.number(),
        }
    }

    /// What events call it.
    pub fn id(&self) -> ObjectId {
        self.id
    }

    /// The state that it was last put in or queried to be in.
    pub fn state(&self) -> QpState {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Attributes as the kernel has them.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn query(&self) -> Result<QueryQpResp> {
        let uctx = self.domain.context.uctx();
        let answer = uctx
            .query_qp(self.kernel.handle(), QpAttrMask::STATE)
            .map_err(|errno| Error::kernel("query an XRC target", errno))?;
        self.note(answer.qp_state);
        Ok(answer)
    }

    fn note(&self, state: QpState) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }

    /// Changes attributes, the state among them.
    ///
    /// # Errors
    ///
    /// The kernel's; of a path, says whether nobody answered.
    pub fn modify(&mut self, attributes: &QpAttributes) -> Result<()> {
        let change = Change {
            qp_type: QpType::XRC_TGT,
            number: self.qp_num(),
            handle: self.kernel.handle(),
            from: self.state(),
        };
        let uctx = self.domain.context.uctx();
        let kernel = &mut self.kernel;
        let state = change.make(attributes, |modify| match kernel {
            Kernel::Opened(_) => uctx.modify_qp(modify),
            Kernel::Made(object) => object
                .modify(&ExModifyQp {
                    base: *modify,
                    ..ExModifyQp::default()
                })
                .map(drop),
        })?;
        self.note(state);
        Ok(())
    }

    /// What a peer has to know: this target, a random first packet number, and GID `gid_index` of `port`.
    ///
    /// # Errors
    ///
    /// There is no such port, or no such GID.
    pub fn endpoint(&self, port: u8, gid_index: u8) -> Result<Endpoint> {
        let context = Context {
            inner: Arc::clone(&self.domain.context),
        };
        Endpoint::of(&context, self.qp_num(), port, gid_index)
    }

    /// RESET to INIT, on `port`, with `access` for the peer.
    ///
    /// # Errors
    ///
    /// There is no such port.
    pub fn to_init(&mut self, port: u8, access: AccessFlags) -> Result<()> {
        self.modify(&Change::to_init(port, access))
    }

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

    /// RTR to RTS, which lets the path's attributes be changed; receiving needs RTR only.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn to_rts(&mut self, psn: u32, timeout: u8) -> Result<()> {
        self.modify(&rts(psn).timeout(timeout))
    }

    /// RESET to RTR in one go, with usual values: connects the `local` endpoint, which is this target's, to an initiator's
    /// `remote` one, which gets `access`.
    ///
    /// # Errors
    ///
    /// Says so if nobody answers for the peer's GID.
    pub fn accept(
        &mut self,
        local: &Endpoint,
        remote: &Endpoint,
        access: AccessFlags,
    ) -> Result<()> {
        self.to_init(local.port, access)?;
        self.to_rtr(&remote.as_peer_of(local))
    }
}
