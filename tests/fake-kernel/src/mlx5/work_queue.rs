//! Receive work queues, indirection tables, and queue pairs over them.

use std::os::fd::RawFd;

use oxverbs::sys::Errno;
use uverbs_abi::types::QpCap;

use super::hca::QueuePair;
use crate::core::create::NewQp;
use crate::core::objects::QpKind;
use crate::request::Uhw;
use crate::state::State;

/// A queue pair that spreads packets over an indirection table.
pub(crate) fn rss_qp(
    _: &mut State,
    _: RawFd,
    _: &NewQp,
    _: QueuePair,
    _: &Uhw<'_>,
) -> Result<(QpCap, QpKind, Vec<u8>), Errno> {
    Err(Errno(libc::EOPNOTSUPP))
}
