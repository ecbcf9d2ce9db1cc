//! Changing and asking a queue pair.

use uverbs_abi::types::{QpAttrMask, QpState};
use uverbs_abi::udata::mlx5::{
    BurstInfo, ModifyQp as DriverInput, ModifyQpResp, PacketPacingCapFlags,
};
use uverbs_abi::write::qp::{ExModifyQp, ModifyQp, QueryQpResp};

use super::geometry::Transport;
use super::qp::QpObject;
use crate::data::mlx5::{RecvQueue, SendQueue};
use crate::sys::errno::Errno;

/// What a change of state means for the queues. The kernel has made it already.
///
/// Completions of a queue pair that went to RESET are cleaned first; then both queues are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the queues have to be told"]
pub struct StateChange {
    to: Option<QpState>,
    /// Raw packets arrive as soon as the device is told of receives, in INIT already.
    raw: bool,
}

impl StateChange {
    /// Whether its completions are to be cleaned: it is in RESET now.
    pub fn resets(&self) -> bool {
        self.to == Some(QpState::RESET)
    }

    /// The new state, if there is one.
    pub fn to(&self) -> Option<QpState> {
        self.to
    }

    /// Tells the send queue: it takes requests from RTS on, until RESET.
    pub fn apply_to_send(&self, queue: &mut SendQueue) {
        match self.to {
            Some(QpState::RESET) => queue.reset(),
            Some(QpState::RTS) => queue.set_accepting(true),
            _ => {}
        }
    }

    /// Tells the receive queue: it takes requests from INIT on, until RESET. Of raw packets, the device
    /// hears of them from RTR on.
    pub fn apply_to_receive(&self, queue: &mut RecvQueue) {
        match self.to {
            Some(QpState::RESET) => queue.reset(),
            Some(QpState::INIT) => {
                queue.set_accepting(true);
                queue.hold_back(self.raw);
            }
            Some(_) => queue.hold_back(false),
            None => {}
        }
    }
}

impl QpObject {
    /// Changes attributes, as far as `attr.base.attr_mask` goes; whose handle is set here.
    pub fn modify(&mut self, attr: &ExModifyQp) -> Result<StateChange, Errno> {
        let mask = attr.base.attr_mask;
        let mut request = *attr;
        request.base.qp_handle = self.handle;
        if mask.contains(QpAttrMask::RATE_LIMIT) || self.ece.set != 0 {
            let input = DriverInput {
                ece_options: self.ece.set,
                ..DriverInput::default()
            };
            let answer: ModifyQpResp = self.context.uctx().modify_qp_ex_with(&request, &input)?;
            if self.ece.set != 0 {
                self.ece.set = 0;
                self.ece.get = answer.ece_options;
            }
        } else {
            self.context.uctx().modify_qp(&request.base)?;
        }
        let to = mask
            .contains(QpAttrMask::STATE)
            .then_some(attr.base.qp_state);
        self.state = to.unwrap_or(self.state);
        Ok(StateChange {
            to,
            raw: self.transport == Transport::RawPacket,
        })
    }

    /// Limits the rate, in kbit/s, and how much is sent at once; 0 is no limit. `EINVAL` for a burst
    /// without rate or that the device cannot limit.
    pub fn set_rate_limit(&mut self, rate: u32, burst: BurstInfo) -> Result<(), Errno> {
        let caps = &self.context.device().packet_pacing_caps;
        let bursts = burst.max_burst_sz != 0 || burst.typical_pkt_sz != 0;
        if bursts && (rate == 0 || !caps.cap_flags.contains(PacketPacingCapFlags::BURST)) {
            return Err(Errno(libc::EINVAL));
        }
        let request = ExModifyQp {
            base: ModifyQp {
                qp_handle: self.handle,
                attr_mask: QpAttrMask::RATE_LIMIT,
                ..ModifyQp::default()
            },
            rate_limit: rate,
            ..ExModifyQp::default()
        };
        let input = DriverInput {
            burst_info: burst,
            ..DriverInput::default()
        };
        self.context
            .uctx()
            .modify_qp_ex_with::<_, ModifyQpResp>(&request, &input)
            .map(drop)
    }

    /// Options of enhanced connection establishment that the device offers or has accepted.
    pub fn ece(&self) -> u32 {
        self.ece.get
    }

    /// Options that the next [`modify`](Self::modify) asks for. `EOPNOTSUPP` if the kernel has none.
    pub fn set_ece(&mut self, options: u32) -> Result<(), Errno> {
        if !self.context.limits().ece {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        self.ece.set = options;
        self.ece.get = 0;
        Ok(())
    }

    /// Attributes; the capacity as it was granted.
    pub fn query(&self, mask: QpAttrMask) -> Result<QueryQpResp, Errno> {
        let mut answer = self.context.uctx().query_qp(self.handle, mask)?;
        answer.max_send_wr = self.cap.max_send_wr;
        answer.max_send_sge = self.cap.max_send_sge;
        answer.max_inline_data = self.cap.max_inline_data;
        answer.max_recv_wr = self.cap.max_recv_wr;
        answer.max_recv_sge = self.cap.max_recv_sge;
        Ok(answer)
    }
}
