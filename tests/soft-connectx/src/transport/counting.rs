//! What queue pairs count, each in the set that its context names (Linux Documentation/networking/device_drivers/ethernet/
//! mellanox/mlx5/counters.rst and drivers/infiniband/hw/mlx5/counters.c name the counters).

use zerocopy::FromBytes;

use wqe_format::mlx5::{CqeOpcode, ErrorCqe, Syndrome};

use crate::completion::Cqe;
use crate::device::Device;
use crate::resources::Counter;
use crate::wire::op;

/// Counts something of a queue pair.
pub(super) fn count(device: &mut Device, qpn: u32, counter: fn(&mut Counter) -> &mut u32) {
    let Some(qp) = device.resources.qps.get(qpn) else {
        return;
    };
    let number = qp.counter.into();
    if let Some(set) = device.resources.counters.get_mut(number) {
        let value = counter(set);
        *value = value.wrapping_add(1);
    }
}

/// The first packet of a request came and is done.
pub(super) fn requested(device: &mut Device, qpn: u32, code: u8) {
    if !op::begins(code) {
        return;
    }
    if op::is_write(code) {
        count(device, qpn, |set| &mut set.rx_write_requests);
    } else if code == op::READ_REQUEST {
        count(device, qpn, |set| &mut set.rx_read_requests);
    } else if op::is_atomic(code) {
        count(device, qpn, |set| &mut set.rx_atomic_requests);
    }
}

/// A request completes, with an error perhaps.
pub(super) fn completed(device: &mut Device, qpn: u32, cqe: &Cqe) {
    let Ok(cqe) = ErrorCqe::read_from_bytes(&cqe.bytes) else {
        return;
    };
    let flushed = cqe.syndrome == Syndrome::WR_FLUSH_ERR;
    match cqe.op_own.opcode() {
        CqeOpcode::REQ_ERR => {
            count(device, qpn, |set| &mut set.req_cqe_error);
            if flushed {
                count(device, qpn, |set| &mut set.req_cqe_flush_error);
            }
        }
        CqeOpcode::RESP_ERR => {
            count(device, qpn, |set| &mut set.resp_cqe_error);
            if flushed {
                count(device, qpn, |set| &mut set.resp_cqe_flush_error);
            }
        }
        _ => return,
    }
    match cqe.syndrome {
        Syndrome::REMOTE_ACCESS_ERR => {
            count(device, qpn, |set| &mut set.req_remote_access_errors);
        }
        Syndrome::REMOTE_INVAL_REQ_ERR => {
            count(device, qpn, |set| &mut set.req_remote_invalid_request);
        }
        Syndrome::TRANSPORT_RETRY_EXC_ERR => {
            count(device, qpn, |set| &mut set.req_transport_retries_exceeded);
        }
        Syndrome::RNR_RETRY_EXC_ERR => {
            count(device, qpn, |set| &mut set.req_rnr_retries_exceeded);
        }
        Syndrome::LOCAL_LENGTH_ERR if cqe.op_own.opcode() == CqeOpcode::RESP_ERR => {
            count(device, qpn, |set| &mut set.resp_local_length_error);
        }
        _ => {}
    }
}
