//! A cable between two devices of one process.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::InProcess;
use crate::Link;

/// Frames that wait for one end.
#[derive(Debug, Default)]
pub(super) struct Arrivals(Mutex<VecDeque<Vec<u8>>>);

/// Frames over which an end that does not take them loses the next.
const ROOM: usize = 4096;

impl Arrivals {
    fn put(&self, frame: &[u8]) {
        let mut frames = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if frames.len() < ROOM {
            frames.push_back(frame.to_vec());
        }
    }

    pub(super) fn take(&self) -> VecDeque<Vec<u8>> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// One direction.
#[derive(Debug)]
struct Lane {
    to: Arc<Arrivals>,
    whole: Arc<AtomicBool>,
}

impl Link for Lane {
    fn send(&mut self, frame: &[u8]) {
        if self.whole.load(Ordering::Relaxed) {
            self.to.put(frame);
        }
    }
}

/// A cable between the ports of two devices.
#[derive(Debug)]
pub struct Cable {
    ends: [Arc<InProcess>; 2],
    whole: Arc<AtomicBool>,
}

impl Cable {
    /// Plugs a cable into both ports.
    pub fn new(one: &Arc<InProcess>, other: &Arc<InProcess>) -> Cable {
        let whole = Arc::new(AtomicBool::new(true));
        for (from, to) in [(one, other), (other, one)] {
            let lane = Lane {
                to: to.arrivals().clone(),
                whole: whole.clone(),
            };
            from.with(|device| device.plug(1, Box::new(lane)));
        }
        Cable {
            ends: [one.clone(), other.clone()],
            whole,
        }
    }

    /// Cuts the cable: both ports go down, and frames are lost.
    pub fn cut(&self) {
        self.set(false);
    }

    /// Mends it.
    pub fn mend(&self) {
        self.set(true);
    }

    fn set(&self, whole: bool) {
        self.whole.store(whole, Ordering::Relaxed);
        for end in &self.ends {
            end.with(|device| device.set_link(whole));
        }
    }
}
