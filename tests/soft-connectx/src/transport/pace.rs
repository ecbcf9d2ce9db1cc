//! Send queues that are held to a rate: a request goes out when those before it would have gone at that rate, of which a burst
//! may come early after a pause.

use std::time::Duration;

use wqe_format::mlx5::firmware::sq::Sqc;

use crate::device::Device;
use crate::resources::Rate;

/// How far a queue is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    /// When what was sent would be out at the rate.
    out: Duration,
    /// A request waits until then.
    pub(super) waits: Option<Duration>,
}

impl Pace {
    /// Whether a request may go now, or has to wait; so many bytes are out when it did.
    fn take(&mut self, rate: Rate, bytes: u64, now: Duration) -> bool {
        let early = rate.time(rate.burst.into());
        if self.out > now + early {
            self.waits = Some(self.out.saturating_sub(early));
            return false;
        }
        self.waits = None;
        self.out = self.out.max(now) + rate.time(bytes);
        true
    }
}

impl Rate {
    /// How long so many bytes take.
    fn time(self, bytes: u64) -> Duration {
        Duration::from_nanos(bytes * 8 * 1_000_000 / u64::from(self.kbits.max(1)))
    }
}

/// Whether a send queue may send a request of so many bytes now.
pub(super) fn may_send(device: &mut Device, qpn: u32, bytes: u64) -> bool {
    let now = device.now;
    let Some(qp) = device.resources.qps.get_mut(qpn) else {
        return true;
    };
    let entry = Sqc::new(&qp.context[..]).map_or(0, |sqc| sqc.packet_pacing_rate_limit_index());
    match device.resources.rates.get(&entry) {
        Some(rate) => qp.data.requester.pace.take(*rate, bytes, now),
        None => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 8000 kbit/s are a byte in a microsecond.
    #[test]
    fn a_burst_goes_at_once_and_what_follows_at_the_rate() {
        let rate = Rate {
            kbits: 8_000,
            burst: 2_000,
        };
        let at = Duration::from_micros;
        let mut pace = Pace::default();
        // three: the burst, and that which begins when it is over
        let sent = (0..10)
            .filter(|_| pace.take(rate, 1_000, at(50_000)))
            .count();
        assert_eq!(sent, 3);
        assert_eq!(pace.waits, Some(at(51_000)));
        assert!(!pace.take(rate, 1_000, at(50_999)));
        assert!(pace.take(rate, 1_000, at(51_000)));
        assert!(!pace.take(rate, 1_000, at(51_000)));
        // a pause is worth no more than a burst
        let sent = (0..10)
            .filter(|_| pace.take(rate, 1_000, at(90_000)))
            .count();
        assert_eq!(sent, 3);
    }
}
