//! Statuses that a failed request may have: the specification's first, then what a device is known to
//! say instead, with the source. A case that uses one of these accepts any of its statuses on any
//! device, so that the suite need not know on which device it runs.

use crate::verbs::types::Status;

/// A request whose local memory is out of reach (IBTA 10.6.3, table 58).
///
/// rxe flushes the send queue before the completer looks at the failed request (Linux
/// `drivers/infiniband/sw/rxe/rxe_comp.c`, `flush_send_queue` on a queue pair in ERROR), so that the
/// request says WR_FLUSH_ERR: seen on 6.12.117.
pub(super) const LOCAL_PROTECTION: &[Status] = &[Status::LOC_PROT_ERR, Status::WR_FLUSH_ERR];

/// A receive whose memory is out of reach.
///
/// rxe calls every failed copy a malformed request (`rxe_resp.c`, `RESPST_ERR_MALFORMED_WQE`): seen
/// on 6.12.117.
pub(super) const RECEIVE_PROTECTION: &[Status] = &[Status::LOC_PROT_ERR, Status::LOC_QP_OP_ERR];

/// A message longer than its receive, at the sender (IBTA 9.7.5.2.8).
///
/// rxe: as for [`RECEIVE_PROTECTION`]; the length is checked by the copy.
pub(super) const TOO_LONG_AT_SENDER: &[Status] = &[Status::REM_INV_REQ_ERR, Status::REM_OP_ERR];

/// A message longer than its receive, at the receiver.
pub(super) const TOO_LONG_AT_RECEIVER: &[Status] = &[Status::LOC_LEN_ERR, Status::LOC_QP_OP_ERR];
