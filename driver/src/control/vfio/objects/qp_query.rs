//! Asking a queue pair.

use std::sync::PoisonError;

use uverbs_abi::handle::Qp;
use uverbs_abi::types::{AccessFlags, QpAttrMask, QpState};
use uverbs_abi::write::qp::QueryQpResp;
use wqe_format::mlx5::firmware::Opcode;
use wqe_format::mlx5::firmware::qp::{QueryQpIn, QueryQpOut};

use super::Objects;
use super::qp_create::Service;
use crate::sys::errno::Errno;

/// `qpc.state` (Linux `mlx5/qp.h` `enum mlx5_qp_state`) as verbs have it, and whether sends are still being
/// completed.
fn state(number: u8) -> Result<(QpState, bool), Errno> {
    Ok(match number {
        0 => (QpState::RESET, false),
        1 => (QpState::INIT, false),
        2 => (QpState::RTR, false),
        3 => (QpState::RTS, false),
        4 => (QpState::SQE, false),
        5 => (QpState::SQD, false),
        6 => (QpState::ERR, false),
        7 => (QpState::SQD, true),
        _ => return Err(Errno(libc::EINVAL)),
    })
}

impl Objects {
    /// Attributes of a queue pair, all of them.
    pub fn query_qp(&self, handle: Qp, _mask: QpAttrMask) -> Result<QueryQpResp, Errno> {
        if let Some(answer) = self.query_dct(handle)? {
            return Ok(answer);
        }
        if let Some(answer) = self.query_raw(handle)? {
            return Ok(answer);
        }
        let qp = self.qps.get(handle.0)?;
        let mut input = QueryQpIn::zeroed();
        input.set_opcode(Opcode::QUERY_QP.0).set_qpn(qp.number);
        // as the kernel keeps room for: the context, and no list of pages
        let mut output = QueryQpOut::zeroed();
        self.platform
            .execute(input.as_bytes(), output.as_bytes_mut())?;
        let context = output.qpc();
        let (state, draining) = state(context.state())?;
        qp.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .state = state;
        let mut access = AccessFlags::NONE;
        for (is, right) in [
            (context.rre(), AccessFlags::REMOTE_READ),
            (context.rwe(), AccessFlags::REMOTE_WRITE),
            (context.rae(), AccessFlags::REMOTE_ATOMIC),
        ] {
            if is {
                access |= right;
            }
        }
        let path = context.primary_address_path();
        let mut answer = QueryQpResp {
            max_send_wr: qp.cap.max_send_wr,
            max_recv_wr: qp.cap.max_recv_wr,
            max_send_sge: qp.cap.max_send_sge,
            max_recv_sge: qp.cap.max_recv_sge,
            max_inline_data: qp.cap.max_inline_data,
            qkey: context.q_key(),
            rq_psn: context.next_rcv_psn(),
            sq_psn: context.next_send_psn(),
            dest_qp_num: context.remote_qpn(),
            qp_access_flags: access,
            pkey_index: path.pkey_index(),
            port_num: path.vhca_port_num(),
            timeout: path.ack_timeout(),
            qp_state: state,
            cur_qp_state: state,
            path_mtu: context.mtu(),
            path_mig_state: migration(context.pm_state()),
            sq_draining: draining.into(),
            max_rd_atomic: 1 << context.log_sra_max(),
            max_dest_rd_atomic: 1 << context.log_rra_max(),
            min_rnr_timer: context.min_rnr_nak(),
            retry_cnt: context.retry_count(),
            rnr_retry: context.rnr_retry(),
            sq_sig_all: qp.sq_sig_all.into(),
            ..QueryQpResp::default()
        };
        if matches!(qp.service, Service::Rc | Service::Uc | Service::Xrc) {
            let other = context.secondary_address_path();
            answer.dest = self.path(&path);
            answer.alt_dest = self.path(&other);
            answer.alt_pkey_index = other.pkey_index();
            answer.alt_port_num = answer.alt_dest.port_num;
            answer.alt_timeout = other.ack_timeout();
        }
        Ok(answer)
    }
}

/// `enum ibv_mig_state` of `qpc.pm_state`.
fn migration(state: u8) -> u8 {
    match state {
        0 => 2,
        1 => 1,
        _ => 0,
    }
}
