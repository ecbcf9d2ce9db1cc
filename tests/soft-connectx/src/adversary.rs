//! The freedoms of a real device, used on purpose.
//!
//! A simple model does everything at once, in order, in the one way that comes to mind; software that only ever met such a
//! model breaks on cards. With a seed the device chooses otherwise wherever it may. Each freedom has a stream of choices of
//! its own, made of the seed: a run that asks for one of them more often makes the same choices in the others.

use std::time::Duration;

/// Where a device may choose. The numbers are part of what a seed means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freedom {
    /// Which card or function it is: its capabilities.
    Card,
    /// When a command is done, and with that the order of those in flight.
    Command,
    /// When the interrupt of an event comes.
    Interrupt,
    /// How many doorbell pages there are, and whether a command needs pages of memory first.
    Pages,
    /// How many receive requests are fetched before their packets are there.
    Prefetch,
    /// In which order the pieces of a payload are written.
    Order,
    /// How completions are compressed, and whether the device can.
    Compression,
}

const FREEDOMS: usize = 7;

/// Who chooses; without a seed, always the first of what there is.
#[derive(Clone, Debug)]
pub(crate) struct Adversary {
    seed: Option<u64>,
    asked: [u64; FREEDOMS],
}

impl Adversary {
    pub(crate) fn new(seed: Option<u64>) -> Adversary {
        Adversary {
            seed,
            asked: [0; FREEDOMS],
        }
    }

    /// Whether there is one.
    pub(crate) fn is_there(&self) -> bool {
        self.seed.is_some()
    }

    /// One of `count` ways; 0, the simple one, without an adversary.
    pub(crate) fn choose(&mut self, freedom: Freedom, count: u64) -> u64 {
        let Some(seed) = self.seed else { return 0 };
        let asked = &mut self.asked[freedom as usize];
        *asked += 1;
        let stream = mix(seed ^ mix(freedom as u64 + 1));
        mix(stream.wrapping_add(*asked)) % count.max(1)
    }

    /// Whether something happens that happens once in `times`; never without an adversary.
    pub(crate) fn happens(&mut self, freedom: Freedom, times: u64) -> bool {
        self.is_there() && self.choose(freedom, times) == 0
    }

    /// One of these; the first without an adversary.
    pub(crate) fn pick<T: Copy, const N: usize>(&mut self, freedom: Freedom, of: [T; N]) -> T {
        const { assert!(N > 0) };
        of[self.choose(freedom, N as u64) as usize]
    }

    /// How long something takes that need not be done at once: up to `most`, often nothing.
    pub(crate) fn delay(&mut self, freedom: Freedom, most: Duration) -> Duration {
        if !self.is_there() || self.choose(freedom, 2) == 0 {
            return Duration::ZERO;
        }
        let nanoseconds = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(self.choose(freedom, nanoseconds))
    }

    /// Puts things into any order, which `salt` and the seed say; leaves them without an adversary.
    pub(crate) fn shuffle_by<T>(&self, freedom: Freedom, salt: u64, things: &mut [T]) {
        let Some(seed) = self.seed else { return };
        let stream = mix(seed ^ mix(freedom as u64 + 1)) ^ mix(salt);
        for last in (1..things.len()).rev() {
            let chosen = mix(stream.wrapping_add(last as u64)) % (last as u64 + 1);
            things.swap(last, chosen as usize);
        }
    }
}

/// SplitMix64's output function (Steele, Lea, Flood 2014).
pub(crate) const fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_seed_everything_is_simple() {
        let mut nobody = Adversary::new(None);
        let mut things = [1, 2, 3];
        nobody.shuffle_by(Freedom::Order, 1, &mut things);
        assert_eq!(things, [1, 2, 3]);
        assert_eq!(nobody.choose(Freedom::Card, 9), 0);
        assert_eq!(nobody.pick(Freedom::Card, ["first", "second"]), "first");
        assert!(!nobody.happens(Freedom::Interrupt, 1));
        let most = Duration::from_secs(1);
        assert_eq!(nobody.delay(Freedom::Command, most), Duration::ZERO);
    }

    #[test]
    fn a_seed_chooses_the_same_whatever_else_was_asked() {
        let choices = |disturbed: bool| {
            let mut adversary = Adversary::new(Some(7));
            let choices: Vec<u64> = (0..50)
                .map(|index| {
                    if disturbed && index % 3 == 0 {
                        adversary.choose(Freedom::Interrupt, 10);
                    }
                    adversary.choose(Freedom::Command, 1000)
                })
                .collect();
            choices
        };
        assert_eq!(choices(false), choices(true));
        let mut other = Adversary::new(Some(8));
        assert_ne!(choices(false)[0], other.choose(Freedom::Command, 1000));
    }

    #[test]
    fn every_order_and_every_way_is_taken_by_some_choice() {
        let mut adversary = Adversary::new(Some(1));
        let mut orders = std::collections::BTreeSet::new();
        let mut delays = (false, false);
        for salt in 0..200 {
            let mut things = [1, 2, 3];
            adversary.shuffle_by(Freedom::Order, salt, &mut things);
            orders.insert(things);
            let delay = adversary.delay(Freedom::Command, Duration::from_millis(5));
            assert!(delay < Duration::from_millis(5));
            delays = (delays.0 | delay.is_zero(), delays.1 | !delay.is_zero());
        }
        assert_eq!(orders.len(), 6);
        assert_eq!(delays, (true, true));
        let picked: std::collections::BTreeSet<u8> = (0..100)
            .map(|_| adversary.pick(Freedom::Card, [1, 2, 3, 4]))
            .collect();
        assert_eq!(picked.len(), 4);
    }
}
