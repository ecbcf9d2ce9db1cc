//! The device for QEMU's `vfio-user-pci`: a server on a Unix socket.

mod backend;
mod cable;
mod dma;
mod interrupts;
mod orders;

use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use vfio_user::Server;

use self::backend::{Backend, with};
use self::cable::Cable;
use self::dma::Dma;
use self::interrupts::EventDescriptors;
use crate::cable::Faults;
use crate::config::Config;
use crate::device::Device;

/// Exit status after a failure of the model itself (`EX_SOFTWARE`).
const MODEL_FAILED: i32 = 70;

/// Exit status after a mistake that a strict device found.
const MISTAKE: i32 = 3;

/// The longest time between two looks at receive queues, which have no doorbell, and at timers.
const TICK: Duration = Duration::from_millis(1);

/// A server that could not serve.
#[derive(Debug)]
pub struct ServeError {
    what: String,
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for ServeError {}

/// A device to be served.
#[derive(Clone, Debug)]
pub struct Served {
    /// What it is like.
    pub config: Config,
    /// The socket to make for it.
    pub socket: PathBuf,
    /// A file to be made, for its commands.
    pub trace: Option<PathBuf>,
}

/// What a process serves.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// One device, or two that a cable joins.
    pub devices: Vec<Served>,
    /// Where the cable of a single device meets that of another process.
    pub cable: Option<PathBuf>,
    /// What is wrong with the cable.
    pub faults: Faults,
    /// A file through which orders are given: see the program's help.
    pub control: Option<PathBuf>,
}

/// Serves devices until the QEMUs that connect to them are gone.
///
/// # Errors
/// A file or a socket cannot be made (another server's may be there), or a connection breaks in the middle of a message.
pub fn serve(options: &Options) -> Result<(), ServeError> {
    let failed = |path: &Path, error: &dyn fmt::Display| ServeError {
        what: format!("{}: {error}", path.display()),
    };
    let mut ends = Vec::new();
    for served in &options.devices {
        let end = End::new(served).map_err(|(path, error)| failed(&path, &error))?;
        ends.push((end, served.socket.as_path()));
    }
    let mut devices: Vec<_> = ends
        .iter()
        .map(|(end, _)| Arc::clone(&end.backend.device))
        .collect();
    let cable = match (&mut devices[..], &options.cable) {
        ([device], Some(path)) => Cable::to_other_process(Arc::clone(device), options.faults, path)
            .map_err(|error| failed(path, &error))?,
        ([one, other], None) => {
            Cable::between([Arc::clone(one), Arc::clone(other)], options.faults)
        }
        ([_], None) => Cable::none(devices),
        _ => {
            let what = "a cable has two ends: one device and another process, or two devices";
            return Err(ServeError { what: what.into() });
        }
    };
    if let Some(file) = &options.control {
        let interrupts = ends.iter().map(|(end, _)| end.backend.events.clone());
        orders::watch(cable, interrupts.collect(), file);
    }
    let served = thread::scope(|scope| {
        let threads: Vec<_> = ends
            .into_iter()
            .map(|(end, socket)| (socket, scope.spawn(move || end.serve())))
            .collect();
        threads
            .into_iter()
            .map(|(socket, thread)| match thread.join() {
                Ok(served) => served.map_err(|error| failed(socket, &error)),
                Err(panic) => std::panic::resume_unwind(panic),
            })
            .fold(Ok(()), Result::and)
    });
    if let Some(path) = &options.cable {
        // The other process may have done so.
        let _ = std::fs::remove_file(path);
    }
    served
}

/// A device and its socket.
struct End {
    server: Server,
    backend: Backend,
}

impl End {
    fn new(served: &Served) -> Result<End, (PathBuf, Box<dyn std::error::Error>)> {
        let dma = Arc::new(Dma::default());
        let events = EventDescriptors::default();
        let config = served.config.clone();
        let mut device = Device::new(config, Arc::clone(&dma) as _, Box::new(events.clone()));
        if let Some(path) = &served.trace {
            let file = File::create(path).map_err(|error| (path.clone(), error.into()))?;
            device.trace(Box::new(file));
        }
        let device = Arc::new(Mutex::new(device));
        // A socket that is there may be another server's, and to ask would take its only connection.
        let server = Server::new(
            &served.socket,
            true,
            backend::interrupts(),
            backend::regions(),
        )
        .map_err(|error| (served.socket.clone(), error.into()))?;
        let backend = Backend {
            device,
            start: Instant::now(),
            dma,
            events,
        };
        Ok(End { server, backend })
    }

    fn serve(mut self) -> Result<(), vfio_user::Error> {
        let (ticking, start) = (Arc::clone(&self.backend.device), self.backend.start);
        // It ends with the process: nothing in it is left half done that anybody could see.
        thread::spawn(move || tick(&ticking, start));
        self.server.run(&mut self.backend)
    }
}

/// Lets the device do what is due.
fn tick(device: &Mutex<Device>, start: Instant) {
    loop {
        let now = start.elapsed();
        let next = with(device, |device| device.tick(now));
        let wait = next.map_or(TICK, |next| next.saturating_sub(now).min(TICK));
        // A turn for everybody else, even when something is due at once.
        thread::sleep(wait.max(TICK / 20));
    }
}
