//! How fast a queue pair of raw packets sends.

use std::sync::PoisonError;

use uverbs_abi::udata::mlx5::BurstInfo;

use super::{Kernel, QueuePair, RawPacket};
use crate::error::{Error, Result};
use crate::sys::errno::Errno;

/// What a queue pair is held to ([`QueuePair::limit_rate`]).
#[doc(alias = "ibv_qp_rate_limit_attr")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateLimit {
    /// In kbit/s; 0 is no limit.
    pub kbits: u32,
    /// Bytes that may be sent at once, faster than that; 0 leaves it to the device.
    pub burst: u32,
    /// Bytes that packets mostly have, which the device plans with; 0 if that is not known.
    pub typical_packet: u16,
}

impl QueuePair<RawPacket> {
    /// Sends no faster than that, from RTR or RTS on. Each queue pair is held to its rate for itself. RESET ends it.
    ///
    /// ```no_run
    /// use oxverbs::{Context, RateLimit, RawPacket};
    ///
    /// # fn main() -> oxverbs::Result<()> {
    /// let context = Context::open("mlx5_0")?;
    /// let pd = context.protection_domain()?;
    /// let cq = context.completion_queue(64)?;
    /// let mut qp = pd.queue_pair::<RawPacket>(&cq).create()?;
    /// qp.to_ready(1)?;
    /// // 100 Mbit/s
    /// qp.limit_rate(RateLimit { kbits: 100_000, ..RateLimit::default() })?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `EINVAL` for a rate out of the device's range, for bursts that it cannot limit, and before RTR; `EOPNOTSUPP` of a device
    /// without packet pacing; `ENOSPC` if it has as many different rates as it can.
    #[doc(alias = "ibv_modify_qp_rate_limit")]
    pub fn limit_rate(&mut self, limit: RateLimit) -> Result<()> {
        let refused = |errno| Error::kernel(format!("send at {limit:?}"), errno);
        let Kernel::Mlx5 { object, .. } = &self.shared().kernel else {
            return Err(refused(Errno(libc::EOPNOTSUPP)));
        };
        let mut object = object.lock().unwrap_or_else(PoisonError::into_inner);
        let object = object.as_mut().ok_or(refused(Errno(libc::EINVAL)))?;
        let burst = BurstInfo {
            max_burst_sz: limit.burst,
            typical_pkt_sz: limit.typical_packet,
            ..BurstInfo::default()
        };
        object.set_rate_limit(limit.kbits, burst).map_err(refused)
    }
}
