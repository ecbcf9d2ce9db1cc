//! When packets are sent again: after silence, and to receivers that were not ready (IBTA 9.9.2).

use std::time::Duration;

use crate::resources::RequesterLimits;

/// Timers and counters of a requester.
#[derive(Debug, Default)]
pub(super) struct State {
    /// When silence has lasted too long.
    silence: Option<Duration>,
    /// Until when nothing is sent.
    pause: Option<Duration>,
    retries: u8,
    not_ready: u8,
    /// The loss of an answer was noticed; those behind it say the same.
    noticed: bool,
}

/// Whether a timer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expired {
    No,
    /// Everything without an answer is to be sent again.
    Again,
    /// That has been done often enough.
    Exhausted,
}

/// Hundredths of milliseconds that a code stands for (IBTA table 45).
const NOT_READY: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

fn patience(limits: &RequesterLimits) -> Option<Duration> {
    match limits.ack_timeout {
        // No timer.
        0 => None,
        exponent => Some(Duration::from_nanos(4096 << exponent.min(31))),
    }
}

impl State {
    pub(super) fn due(&self) -> Option<Duration> {
        self.pause.or(self.silence)
    }

    pub(super) fn is_paused(&self) -> bool {
        self.pause.is_some()
    }

    /// A packet went out.
    pub(super) fn sent(&mut self, now: Duration, limits: &RequesterLimits) {
        if self.silence.is_none() {
            self.silence = patience(limits).map(|patience| now + patience);
        }
    }

    /// An answer came; `waiting` says whether there is more to come.
    pub(super) fn progress(&mut self, now: Duration, limits: &RequesterLimits, waiting: bool) {
        self.retries = 0;
        self.not_ready = 0;
        self.noticed = false;
        self.silence = patience(limits)
            .filter(|_| waiting)
            .map(|patience| now + patience);
    }

    /// An answer is known to be lost, because one behind it came; whether that is new.
    pub(super) fn implied(&mut self, now: Duration) -> bool {
        if self.noticed {
            return false;
        }
        self.noticed = true;
        self.silence = Some(now);
        true
    }

    /// Whether it was noticed that an answer is lost, so that the timer's end is not its doing.
    pub(super) fn is_noticed(&self) -> bool {
        self.noticed
    }

    /// Looks at the timers.
    pub(super) fn expire(&mut self, now: Duration, limits: &RequesterLimits) -> Expired {
        if self.pause.is_some_and(|until| until <= now) {
            self.pause = None;
        }
        if self.pause.is_some() || self.silence.is_none_or(|until| until > now) {
            return Expired::No;
        }
        if self.again(now, limits) {
            Expired::Again
        } else {
            Expired::Exhausted
        }
    }

    /// Counts a retry; whether it may be made.
    pub(super) fn again(&mut self, now: Duration, limits: &RequesterLimits) -> bool {
        self.silence = patience(limits).map(|patience| now + patience);
        let may = self.retries < limits.retry_count;
        self.retries = self.retries.saturating_add(1);
        may
    }

    /// The receiver was not ready; whether it may be tried again after the time it named. 7 is for ever.
    pub(super) fn not_ready(&mut self, now: Duration, code: u8, limits: &RequesterLimits) -> bool {
        let may = limits.rnr_retry == 7 || self.not_ready < limits.rnr_retry;
        self.not_ready = self.not_ready.saturating_add(1);
        self.silence = None;
        let hundredths = NOT_READY[usize::from(code & 31)];
        self.pause = Some(now + Duration::from_micros(10) * hundredths);
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_table() {
        // 0.01 ms, 0.48 ms, 491.52 ms, and 655.36 ms for code 0.
        for (code, micros) in [(1, 10), (11, 480), (31, 491_520), (0, 655_360)] {
            let mut state = State::default();
            let limits = RequesterLimits {
                rnr_retry: 1,
                ..RequesterLimits::default()
            };
            assert!(state.not_ready(Duration::ZERO, code, &limits));
            assert_eq!(state.due(), Some(Duration::from_micros(micros)));
            assert!(!state.not_ready(Duration::ZERO, code, &limits));
        }
    }

    #[test]
    fn retries_are_counted() {
        let limits = RequesterLimits {
            retry_count: 2,
            ack_timeout: 1,
            ..RequesterLimits::default()
        };
        let mut state = State::default();
        let mut now = Duration::ZERO;
        state.sent(now, &limits);
        assert_eq!(state.expire(now, &limits), Expired::No);
        for expected in [Expired::Again, Expired::Again, Expired::Exhausted] {
            now += Duration::from_nanos(8192);
            assert_eq!(state.expire(now, &limits), expected);
        }
        state.progress(now, &limits, false);
        assert_eq!(state.due(), None);
    }
}
