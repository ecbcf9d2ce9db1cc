//! The device for QEMU's `vfio-user-pci`: a server on a Unix socket.

mod backend;
mod dma;
mod interrupts;

use std::fmt;
use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use vfio_user::Server;

use self::backend::{Backend, with};
use self::dma::Dma;
use self::interrupts::EventDescriptors;
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

/// Serves a device on a new socket until the QEMU that connects to it is gone. Its commands are written into the file
/// `trace`, if there is one to be made.
///
/// # Errors
/// The file or the socket cannot be made (another server's may be there), or the connection breaks in the middle of a
/// message.
pub fn serve(config: Config, socket: &Path, trace: Option<&Path>) -> Result<(), ServeError> {
    let failed = |what: String| ServeError { what };
    let dma = Arc::new(Dma::default());
    let events = EventDescriptors::default();
    let mut device = Device::new(config, Arc::clone(&dma) as _, Box::new(events.clone()));
    if let Some(path) = trace {
        let file =
            File::create(path).map_err(|error| failed(format!("{}: {error}", path.display())))?;
        device.trace(Box::new(file));
    }
    let device = Arc::new(Mutex::new(device));
    let at = |error: vfio_user::Error| failed(format!("{}: {error}", socket.display()));
    // A socket that is there may be another server's, and to ask would take its only connection.
    let server =
        Server::new(socket, true, backend::interrupts(), backend::regions()).map_err(at)?;
    let ticking = Arc::clone(&device);
    // It ends with the process: nothing in it is left half done that anybody could see.
    thread::spawn(move || tick(&ticking));
    let mut backend = Backend {
        device,
        dma,
        events,
    };
    server.run(&mut backend).map_err(at)
}

/// Lets the device do what is due.
fn tick(device: &Mutex<Device>) {
    let start = Instant::now();
    loop {
        let now = start.elapsed();
        let next = with(device, |device| device.tick(now));
        let wait = next.map_or(TICK, |next| next.saturating_sub(now).min(TICK));
        // A turn for everybody else, even when something is due at once.
        thread::sleep(wait.max(TICK / 20));
    }
}
