//! The cable of the devices that a process serves: between two of its own, or to one of another process.
//!
//! A frame is put on a lane by the device that sends, under that device's lock, and taken off by the lane's thread, which
//! then takes the other device's lock: never two at a time. Between processes a stream socket joins the ends. Each
//! process spoils what it sends; a cut at either end is told to the other.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use super::backend::with;
use crate::cable::{Faults, Lane};
use crate::device::Device;
use crate::host::Link;

/// Longest frame that another process may send; the largest one of a device is a little over 4096.
const LONGEST: u32 = 16 << 10;

/// In the place of a frame's length: the cable is cut, and is whole again.
const CUT: u32 = u32::MAX;
const MENDED: u32 = u32::MAX - 1;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One way, and the bell that wakes its thread.
#[derive(Debug)]
struct Way {
    lane: Mutex<Lane>,
    bell: Condvar,
    start: Instant,
}

impl Way {
    fn new(faults: Faults, number: u64) -> Arc<Way> {
        Arc::new(Way {
            lane: Mutex::new(Lane::new(faults, number)),
            bell: Condvar::new(),
            start: Instant::now(),
        })
    }

    /// Waits for the next frame.
    fn next(&self) -> Vec<u8> {
        let mut lane = locked(&self.lane);
        loop {
            let now = self.start.elapsed();
            if let Some(frame) = lane.arrive(now) {
                return frame;
            }
            lane = match lane.due() {
                None => (self.bell.wait(lane)).unwrap_or_else(PoisonError::into_inner),
                Some(due) => {
                    let wait = due.saturating_sub(now);
                    let woken = self.bell.wait_timeout(lane, wait);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Takes frames to the other end, for as long as the process lives.
    fn carry(self: &Arc<Way>, mut to: impl FnMut(&[u8]) + Send + 'static) {
        let way = Arc::clone(self);
        thread::spawn(move || {
            loop {
                to(&way.next());
            }
        });
    }
}

/// What is plugged into a port.
struct Plug(Arc<Way>);

impl Link for Plug {
    fn send(&mut self, frame: &[u8]) {
        locked(&self.0.lane).send(self.0.start.elapsed(), frame);
        self.0.bell.notify_one();
    }
}

/// The other process' end.
type Remote = Mutex<Option<UnixStream>>;

/// The cable and the devices at its ends.
#[derive(Debug)]
pub(super) struct Cable {
    devices: Vec<Arc<Mutex<Device>>>,
    ways: Vec<Arc<Way>>,
    /// Of a cable to another process.
    remote: Option<Arc<Remote>>,
    is_cut: Mutex<bool>,
}

impl Cable {
    /// No cable: the ports reach themselves.
    pub(super) fn none(devices: Vec<Arc<Mutex<Device>>>) -> Arc<Cable> {
        Arc::new(Cable {
            devices,
            ways: Vec::new(),
            remote: None,
            is_cut: Mutex::new(false),
        })
    }

    /// Joins two devices of this process.
    pub(super) fn between(ends: [Arc<Mutex<Device>>; 2], faults: Faults) -> Arc<Cable> {
        let ways: Vec<Arc<Way>> = (0..2).map(|number| Way::new(faults, number)).collect();
        for (number, way) in ways.iter().enumerate() {
            locked(&ends[number]).plug(1, Box::new(Plug(Arc::clone(way))));
            let other = Arc::clone(&ends[1 - number]);
            way.carry(move |frame| with(&other, |device| device.receive(frame)));
        }
        Arc::new(Cable {
            devices: ends.into(),
            ways,
            remote: None,
            is_cut: Mutex::new(false),
        })
    }

    /// Joins a device with that of another process, which gives the same path: the first one listens there, the second
    /// one connects. Until then, and when the other one has gone, the link is down.
    pub(super) fn to_other_process(
        device: Arc<Mutex<Device>>,
        faults: Faults,
        path: &Path,
    ) -> io::Result<Arc<Cable>> {
        let (listener, stream) = match UnixListener::bind(path) {
            Ok(listener) => (Some(listener), None),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                (None, Some(UnixStream::connect(path)?))
            }
            Err(error) => return Err(error),
        };
        let way = Way::new(faults, u64::from(listener.is_some()));
        let remote: Arc<Remote> = Arc::default();
        {
            let mut device = locked(&device);
            device.plug(1, Box::new(Plug(Arc::clone(&way))));
            device.set_link(false);
        }
        let sink = Arc::clone(&remote);
        way.carry(move |frame| tell(&sink, frame.len() as u32, frame));
        let cable = Arc::new(Cable {
            devices: vec![device],
            ways: vec![way],
            remote: Some(remote),
            is_cut: Mutex::new(false),
        });
        let end = Arc::clone(&cable);
        thread::spawn(move || match (listener, stream) {
            (Some(listener), _) => {
                for stream in listener.incoming() {
                    end.joined(stream);
                }
            }
            (None, Some(stream)) => end.joined(Ok(stream)),
            (None, None) => {}
        });
        Ok(cable)
    }

    /// What is wrong with it, and what became of the frames of each way.
    pub(super) fn lanes(&self) -> impl Iterator<Item = MutexGuard<'_, Lane>> {
        self.ways.iter().map(|way| locked(&way.lane))
    }

    /// The devices at its ends that are this process'.
    pub(super) fn devices(&self) -> &[Arc<Mutex<Device>>] {
        &self.devices
    }

    /// Cuts the cable or mends it, and lets the other process know.
    pub(super) fn set_cut(&self, is_cut: bool) {
        self.apply_cut(is_cut);
        if let Some(remote) = &self.remote {
            tell(remote, if is_cut { CUT } else { MENDED }, &[]);
        }
    }

    fn apply_cut(&self, is_cut: bool) {
        let mut state = locked(&self.is_cut);
        *state = is_cut;
        for mut lane in self.lanes() {
            lane.set_cut(is_cut);
        }
        let someone = self
            .remote
            .as_ref()
            .is_none_or(|remote| locked(remote).is_some());
        for device in &self.devices {
            with(device, |device| device.set_link(someone && !is_cut));
        }
    }

    /// The other process is there: reads what it sends until it is gone.
    fn joined(&self, stream: io::Result<UnixStream>) {
        let (Some(remote), Ok(mut stream)) = (&self.remote, stream) else {
            return;
        };
        let Ok(writer) = stream.try_clone() else {
            return;
        };
        *locked(remote) = Some(writer);
        let is_cut = *locked(&self.is_cut);
        // The other one may not know yet.
        self.set_cut(is_cut);
        log::info!("the cable has another end");
        if let Err(error) = self.read(&mut stream)
            && error.kind() != io::ErrorKind::UnexpectedEof
        {
            log::warn!("the cable's other end: {error}");
        }
        log::info!("the cable's other end is gone");
        *locked(remote) = None;
        let is_cut = *locked(&self.is_cut);
        self.apply_cut(is_cut);
    }

    fn read(&self, stream: &mut UnixStream) -> io::Result<()> {
        loop {
            let mut length = [0; 4];
            stream.read_exact(&mut length)?;
            match u32::from_le_bytes(length) {
                CUT => self.apply_cut(true),
                MENDED => self.apply_cut(false),
                length if length <= LONGEST => {
                    let mut frame = vec![0; length as usize];
                    stream.read_exact(&mut frame)?;
                    for device in &self.devices {
                        with(device, |device| device.receive(&frame));
                    }
                }
                length => {
                    let what = format!("a frame of {length} bytes");
                    return Err(io::Error::new(io::ErrorKind::InvalidData, what));
                }
            }
        }
    }
}

/// Sends a frame or a message; without another end it goes nowhere, as its reader notices.
fn tell(remote: &Remote, length: u32, frame: &[u8]) {
    let bytes = [&length.to_le_bytes()[..], frame].concat();
    if let Some(stream) = &mut *locked(remote) {
        let _ = stream.write_all(&bytes);
    }
}
