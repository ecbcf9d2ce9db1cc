//! What a cable does to frames: it delays them, and a bad one loses some and lets others overtake.
//!
//! A [`Lane`] is one way of a cable. It knows no clock and no thread: whoever drives it says the time. What it does to the
//! n-th frame is made of its seed and of n alone.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::adversary::mix;

/// How long a frame that others shall overtake waits for one that does.
const HOLD: Duration = Duration::from_millis(2);

const MILLION: u32 = 1_000_000;

/// A probability, in millionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chance(u32);

/// A text that names no probability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoChance;

impl fmt::Display for NoChance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a probability is a number from 0 to 1, or a percentage such as 1%")
    }
}

impl std::error::Error for NoChance {}

impl FromStr for Chance {
    type Err = NoChance;

    /// Reads `0.01` or `1%`.
    fn from_str(text: &str) -> Result<Chance, NoChance> {
        let (number, whole) = match text.strip_suffix('%') {
            Some(percent) => (percent, 100.0),
            None => (text, 1.0),
        };
        let number: f64 = number.trim().parse().map_err(|_| NoChance)?;
        if !(0.0..=whole).contains(&number) {
            return Err(NoChance);
        }
        Ok(Chance((number / whole * f64::from(MILLION)).round() as u32))
    }
}

impl fmt::Display for Chance {
    /// As a percentage, which reads back as the same.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", f64::from(self.0) * 100.0 / f64::from(MILLION))
    }
}

/// What is wrong with a cable; the default is nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// How likely a frame is lost.
    pub loss: Chance,
    /// How likely a frame is overtaken by the next one.
    pub reorder: Chance,
    /// How long a frame takes.
    pub delay: Duration,
    /// The same seed does the same to the same frames.
    pub seed: u64,
}

/// What became of a lane's frames so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Arrived.
    pub carried: u64,
    /// Lost by chance.
    pub lost: u64,
    /// Overtaken.
    pub reordered: u64,
    /// Sent while the cable was cut, or on their way when it was.
    pub cut: u64,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts {
            carried,
            lost,
            reordered,
            cut,
        } = self;
        write!(
            f,
            "{carried} carried, {lost} lost, {reordered} overtaken, {cut} cut off"
        )
    }
}

/// One way of a cable.
#[derive(Debug, Default)]
pub struct Lane {
    faults: Faults,
    stream: u64,
    asked: u64,
    /// In the order of their arrival, each with its time.
    waiting: VecDeque<(Duration, Vec<u8>)>,
    /// To be overtaken, at this time the latest gone.
    held: Option<(Duration, Vec<u8>)>,
    is_cut: bool,
    counts: Counts,
}

impl Lane {
    /// A lane with nothing on it. Lanes of one seed differ by their number.
    pub fn new(faults: Faults, number: u64) -> Lane {
        Lane {
            stream: mix(faults.seed ^ mix(number)),
            faults,
            ..Lane::default()
        }
    }

    /// What is wrong with it.
    pub fn faults(&self) -> Faults {
        self.faults
    }

    /// Makes it better or worse from the next frame on; the seed stays.
    pub fn set_faults(&mut self, faults: Faults) {
        let seed = self.faults.seed;
        self.faults = Faults { seed, ..faults };
    }

    /// What became of its frames.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Cuts the lane, with all that is on it, or mends it.
    pub fn set_cut(&mut self, is_cut: bool) {
        self.is_cut = is_cut;
        if is_cut {
            self.counts.cut += self.waiting.len() as u64 + u64::from(self.held.is_some());
            self.waiting.clear();
            self.held = None;
        }
    }

    /// One frame of so many millions meets this.
    fn happens(&mut self, chance: Chance) -> bool {
        self.asked += 1;
        mix(self.stream.wrapping_add(self.asked)) % u64::from(MILLION) < u64::from(chance.0)
    }

    /// Takes a frame at one end.
    pub fn send(&mut self, now: Duration, frame: &[u8]) {
        if self.is_cut {
            self.counts.cut += 1;
            return;
        }
        // Both are asked each time, so that the choices for later frames stay what they are.
        let is_lost = self.happens(self.faults.loss);
        let is_late = self.happens(self.faults.reorder);
        if is_lost {
            self.counts.lost += 1;
            return;
        }
        let arrival = now + self.faults.delay;
        if is_late && self.held.is_none() {
            self.held = Some((arrival + HOLD, frame.to_vec()));
            return;
        }
        self.waiting.push_back((arrival, frame.to_vec()));
        if let Some((_, late)) = self.held.take() {
            self.counts.reordered += 1;
            self.waiting.push_back((arrival, late));
        }
    }

    /// When the next frame arrives.
    pub fn due(&self) -> Option<Duration> {
        let next = self.waiting.front().or(self.held.as_ref());
        next.map(|(arrival, _)| *arrival)
    }

    /// The next frame at the other end, if one has arrived.
    pub fn arrive(&mut self, now: Duration) -> Option<Vec<u8>> {
        if self.due().is_none_or(|due| due > now) {
            return None;
        }
        let (_, frame) = (self.waiting.pop_front()).or_else(|| self.held.take())?;
        self.counts.carried += 1;
        Some(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chance(text: &str) -> Chance {
        text.parse().unwrap()
    }

    /// Sends numbered frames, one every microsecond, and tells what arrives.
    fn pass(faults: Faults, number: u64, frames: u32) -> (Vec<u32>, Counts) {
        let mut lane = Lane::new(faults, number);
        let mut arrived = Vec::new();
        let mut collect = |lane: &mut Lane, now| {
            while let Some(frame) = lane.arrive(now) {
                arrived.push(u32::from_be_bytes(frame.try_into().unwrap()));
            }
        };
        for frame in 0..frames {
            let now = Duration::from_micros(frame.into());
            lane.send(now, &frame.to_be_bytes());
            collect(&mut lane, now);
        }
        collect(&mut lane, Duration::from_secs(9));
        assert_eq!(lane.due(), None);
        (arrived, lane.counts())
    }

    #[test]
    fn a_good_cable_changes_nothing() {
        let (arrived, counts) = pass(Faults::default(), 0, 100);
        assert!(arrived.into_iter().eq(0..100));
        assert_eq!(counts.carried, 100);
    }

    #[test]
    fn a_lossy_one_loses_its_share_and_the_same_again() {
        let faults = Faults {
            loss: chance("1%"),
            seed: 7,
            ..Faults::default()
        };
        let (arrived, counts) = pass(faults, 0, 100_000);
        assert!((800..1200).contains(&counts.lost), "{counts}");
        assert_eq!(counts.carried + counts.lost, 100_000);
        assert!(arrived.is_sorted());
        assert_eq!(pass(faults, 0, 100_000).0, arrived);
        assert_ne!(pass(faults, 1, 100_000).0, arrived);
        assert_ne!(pass(Faults { seed: 8, ..faults }, 0, 100_000).0, arrived);
    }

    #[test]
    fn frames_overtake_by_one_and_none_is_kept() {
        let faults = Faults {
            reorder: chance("0.5"),
            seed: 1,
            ..Faults::default()
        };
        let (arrived, counts) = pass(faults, 0, 1001);
        assert!(counts.reordered > 200, "{counts}");
        assert!(!arrived.is_sorted());
        for (place, frame) in arrived.iter().enumerate() {
            assert!((*frame as usize).abs_diff(place) <= 1);
        }
        let mut sorted = arrived;
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..1001));
    }

    #[test]
    fn a_frame_that_waits_to_be_overtaken_does_not_wait_for_ever() {
        let faults = Faults {
            reorder: chance("100%"),
            delay: Duration::from_millis(3),
            ..Faults::default()
        };
        let mut lane = Lane::new(faults, 0);
        lane.send(Duration::ZERO, b"x");
        let due = lane.due().unwrap();
        assert_eq!(due, Duration::from_millis(5));
        assert_eq!(lane.arrive(due - Duration::from_nanos(1)), None);
        assert_eq!(lane.arrive(due).as_deref(), Some(&b"x"[..]));
    }

    #[test]
    fn what_is_on_a_cut_cable_is_gone() {
        let mut lane = Lane::new(Faults::default(), 0);
        lane.send(Duration::ZERO, b"x");
        lane.set_cut(true);
        lane.send(Duration::ZERO, b"y");
        assert_eq!(lane.arrive(Duration::from_secs(1)), None);
        lane.set_cut(false);
        lane.send(Duration::ZERO, b"z");
        assert_eq!(lane.arrive(Duration::ZERO).as_deref(), Some(&b"z"[..]));
        assert_eq!((lane.counts().cut, lane.counts().carried), (2, 1));
    }

    #[test]
    fn chances_are_read_and_written() {
        for (text, shown) in [
            ("0", "0%"),
            ("0.01", "1%"),
            ("1%", "1%"),
            ("0.25%", "0.25%"),
            ("1", "100%"),
        ] {
            assert_eq!(chance(text).to_string(), shown);
            assert_eq!(chance(shown), chance(text));
        }
        for text in ["", "%", "-1", "1.5", "101%", "one", "NaN"] {
            assert_eq!(text.parse::<Chance>(), Err(NoChance), "{text}");
        }
    }
}
