//! What is done, in an order that chance chooses and that every implementation can follow.

use std::collections::VecDeque;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Queue pairs that share the completion queue.
pub const QPS: usize = 3;

/// Steps of a script.
const STEPS: usize = 400;

/// Completions that may wait at once: more than the smallest size has room for, so that some sizes are refused.
const WAITING: usize = 58;

/// Work requests of one queue that may be posted and not polled.
const POSTED: usize = 40;

/// Entries that are asked for.
const SIZES: [u32; 6] = [31, 63, 100, 127, 255, 256];

/// One step.
#[allow(missing_docs, reason = "the fields are what the variants say")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A signalled send.
    Send { place: usize },
    /// A receive.
    Receive { place: usize },
    /// The device completes the oldest one of a queue.
    Complete {
        place: usize,
        is_send: bool,
        syndrome: Option<u8>,
        kind: u32,
    },
    /// One completion is polled, or none is there.
    Poll,
    /// Another size is asked for; the kernel may have no memory, or the device no room for what waits.
    Resize {
        entries: u32,
        fails: bool,
        fits: bool,
    },
    /// An event is asked for.
    Arm { solicited: bool },
    /// An event is taken, if there is one.
    Event,
    /// A queue pair starts over: what waits of it is gone.
    Restart { place: usize },
    /// A queue pair is destroyed and another one takes its place.
    Replace { place: usize },
}

impl Step {
    /// Its kind.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Send { .. } => "send",
            Self::Receive { .. } => "receive",
            Self::Complete { .. } => "completion",
            Self::Poll => "poll",
            Self::Resize { fails: true, .. } => "resize that fails",
            Self::Resize { fits: false, .. } => "resize below what waits",
            Self::Resize { .. } => "resize",
            Self::Arm { .. } => "arm",
            Self::Event => "event",
            Self::Restart { .. } => "clean on reset",
            Self::Replace { .. } => "clean on destroy",
        }
    }
}

/// Queues' fill, as the steps so far leave it.
#[derive(Debug)]
struct Fill {
    /// Entries of the completion queue.
    entries: usize,
    /// Resizes since the last poll: libmlx5 has not told the device of their marks, see [`MARK_TOLD`](super::MARK_TOLD).
    marks: usize,
    /// Posted and not completed, by queue pair and side.
    open: [[usize; 2]; QPS],
    /// Completed and not polled, in order.
    waiting: VecDeque<(usize, usize)>,
}

impl Fill {
    fn posted(&self, place: usize, side: usize) -> usize {
        let waits = self.waiting.iter().filter(|at| **at == (place, side));
        self.open[place][side] + waits.count()
    }

    /// Whether what waits fits so many entries; `None` where it hangs on who counts.
    fn fits(&self, entries: usize) -> Option<bool> {
        let waiting = self.waiting.len();
        if waiting > entries {
            Some(false)
        } else if waiting + self.marks + 2 < entries {
            Some(true)
        } else {
            None
        }
    }

    fn forget(&mut self, place: usize) {
        self.open[place] = [0; 2];
        self.waiting.retain(|(of, _)| *of != place);
    }
}

/// Syndromes of mlx5dv.h.
const SYNDROMES: [u8; 8] = [0x01, 0x02, 0x04, 0x05, 0x11, 0x13, 0x15, 0x22];

/// A script.
pub fn script(seed: u64) -> Vec<Step> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut fill = Fill {
        entries: super::ENTRIES as usize + 1,
        marks: 0,
        open: [[0; 2]; QPS],
        waiting: VecDeque::new(),
    };
    let mut steps = Vec::with_capacity(STEPS);
    while steps.len() < STEPS {
        let place = rng.random_range(0..QPS);
        let side = rng.random_range(0..2);
        let step = match rng.random_range(0..100) {
            0..30 if fill.posted(place, side) < POSTED => {
                fill.open[place][side] += 1;
                match side {
                    0 => Step::Send { place },
                    _ => Step::Receive { place },
                }
            }
            30..62
                if fill.open[place][side] > 0
                    && fill.waiting.len() < WAITING
                    && fill.waiting.len() + fill.marks + 4 < fill.entries =>
            {
                fill.open[place][side] -= 1;
                fill.waiting.push_back((place, side));
                Step::Complete {
                    place,
                    is_send: side == 0,
                    syndrome: rng
                        .random_bool(0.1)
                        .then(|| SYNDROMES[rng.random_range(0..SYNDROMES.len())]),
                    kind: rng.random(),
                }
            }
            62..84 => {
                fill.waiting.pop_front();
                fill.marks = 0;
                Step::Poll
            }
            84..89 => {
                let entries = SIZES[rng.random_range(0..SIZES.len())];
                let fails = rng.random_bool(0.2);
                let granted = (entries as usize + 1).next_power_of_two();
                let Some(fits) = fill.fits(granted) else {
                    continue;
                };
                // Ours sees what waits before it asks for memory.
                let fails = fails && fits;
                if fits && !fails && granted != fill.entries {
                    fill.entries = granted;
                    fill.marks += 1;
                }
                Step::Resize {
                    entries,
                    fails,
                    fits,
                }
            }
            89..92 => Step::Arm {
                solicited: rng.random(),
            },
            92..96 => Step::Event,
            96 => {
                fill.forget(place);
                Step::Restart { place }
            }
            97 => {
                fill.forget(place);
                Step::Replace { place }
            }
            _ => continue,
        };
        steps.push(step);
    }
    // What waits is polled, and that nothing is left.
    steps.extend(vec![Step::Poll; WAITING + 1]);
    steps
}
