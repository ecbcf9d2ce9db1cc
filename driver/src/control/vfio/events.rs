//! The threads that read event queues.
//!
//! One reads everything but requests for pages, and looks after the device's health; the other one reads those, and answers
//! them with commands of its own while all others may wait. Both wait for interrupts, and look without one from time to
//! time: a lost interrupt costs time only.

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use wqe_format::mlx5::firmware::EventType;
use wqe_format::mlx5::firmware::eqe::{CompEvent, Eqe, PagesReqEvent};

use super::clock::Clock;
use super::command::CommandQueue;
use super::eq::EventQueue;
use super::pages::DevicePages;
use super::pci::Pci;
use super::segment::Health;
use crate::sys::errno::Errno;
use crate::sys::eventfd;

/// Between two looks without an interrupt.
const LOOK: Duration = Duration::from_millis(20);
/// The same where there are no interrupts.
const LOOK_OFTEN: Duration = Duration::from_millis(1);
/// Between two looks at the device's health.
const HEALTH: Duration = Duration::from_millis(200);
/// After this time without a beat the device is taken for dead: Linux looks every two seconds and wants three misses
/// (`health.c` `MAX_MISSES`).
const SILENCE: Duration = Duration::from_secs(6);

/// Who is told what the device says. Calls come from one thread.
pub trait EventSink: Send + Sync + fmt::Debug {
    /// A completion queue that was armed has completions.
    fn completion(&self, cqn: u32);

    /// Something else, with an entry's data.
    fn event(&self, kind: EventType, sub_type: u8, data: &[u8]);

    /// The device has failed; said once.
    fn failed(&self);
}

/// What both threads know.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) pci: Arc<dyn Pci>,
    pub(super) commands: CommandQueue,
    pub(super) pages: DevicePages,
    /// By interrupt vector.
    pub(super) interrupts: Vec<OwnedFd>,
    pub(super) sink: Mutex<Option<Weak<dyn EventSink>>>,
    /// Of a device that has a clock.
    pub(super) clock: OnceLock<Arc<Clock>>,
    /// Locked while a thread has a share in the sink, which may be the last.
    pub(super) visits: Arc<Mutex<()>>,
}

impl Shared {
    /// Tells the sink something, if there still is one.
    fn tell(&self, what: impl FnOnce(&dyn EventSink)) {
        // Ends after the share does.
        let _visit = self.visits.lock().unwrap_or_else(PoisonError::into_inner);
        let sink = {
            let sink = self.sink.lock().unwrap_or_else(PoisonError::into_inner);
            sink.as_ref().and_then(Weak::upgrade)
        };
        if let Some(sink) = sink {
            what(&*sink);
        }
    }

    /// The device has failed.
    pub(super) fn fail(&self) {
        self.commands.fail();
        self.tell(|sink| sink.failed());
    }
}

/// What a thread does with its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// Tells the sink, and looks after the health.
    Events,
    /// Gives pages.
    Pages,
}

/// A thread.
#[derive(Debug)]
pub(super) struct Reader {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<Vec<EventQueue>>>,
}

impl Reader {
    /// Starts to read queues, each with the index of its interrupt.
    pub(super) fn start(
        shared: Arc<Shared>,
        task: Task,
        queues: Vec<(EventQueue, Option<usize>)>,
    ) -> Result<Self, Errno> {
        let stop = Arc::new(eventfd::eventfd()?);
        let name = match task {
            Task::Events => "oxverbs-events",
            Task::Pages => "oxverbs-pages",
        };
        let ends = stop.clone();
        let thread = thread::Builder::new().name(name.into()).spawn(move || {
            eventfd::block_signals();
            run(&shared, task, queues, &ends)
        })?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }

    /// Ends the thread; gives its queues back. None where the thread itself asks, which cannot wait for its own end.
    pub(super) fn end(&mut self) -> Vec<EventQueue> {
        eventfd::signal(&*self.stop);
        match self.thread.take() {
            Some(thread) if thread.thread().id() != thread::current().id() => {
                thread.join().unwrap_or_default()
            }
            _ => Vec::new(),
        }
    }
}

fn run(
    shared: &Shared,
    task: Task,
    mut queues: Vec<(EventQueue, Option<usize>)>,
    stop: &OwnedFd,
) -> Vec<EventQueue> {
    let mut pulse = Pulse::new();
    let entries = queues.iter().map(|(queue, _)| queue.entries()).min();
    if let (Task::Events, Some(entries)) = (task, entries) {
        shared.commands.start_reading(entries);
    }
    for (queue, _) in &queues {
        queue.arm();
    }
    loop {
        let mine = queues.iter().filter_map(|(_, interrupt)| *interrupt);
        let mut fds: Vec<_> = mine.map(|index| shared.interrupts[index].as_fd()).collect();
        let look = if fds.is_empty() { LOOK_OFTEN } else { LOOK };
        fds.push(stop.as_fd());
        eventfd::wait(&fds, look);
        if eventfd::take(stop) {
            if task == Task::Events {
                shared.commands.end_reading();
            }
            return queues.into_iter().map(|(queue, _)| queue).collect();
        }
        match task {
            Task::Events => shared.commands.reading(|| read(shared, task, &mut queues)),
            Task::Pages => read(shared, task, &mut queues),
        }
        if task == Task::Events {
            match pulse.look(shared) {
                Some(true) => shared.fail(),
                Some(false) => {
                    if let Some(clock) = shared.clock.get() {
                        clock.refresh(&*shared.pci);
                    }
                }
                None => {}
            }
        }
    }
}

/// Reads queues until they are empty.
fn read(shared: &Shared, task: Task, queues: &mut [(EventQueue, Option<usize>)]) {
    for (queue, interrupt) in queues {
        if let Some(index) = *interrupt {
            eventfd::take(&shared.interrupts[index]);
        }
        let mut some = false;
        while let Some(entry) = queue.take() {
            some = true;
            handle(shared, task, &entry);
        }
        // Arming again what is armed is harmless; after a lost interrupt it is needed.
        if some || interrupt.is_some() {
            queue.arm();
        }
    }
}

fn handle(shared: &Shared, task: Task, entry: &[u8]) {
    let Ok(entry) = Eqe::new(entry) else {
        return;
    };
    let (kind, data) = (EventType(entry.event_type()), entry.event_data());
    match kind {
        EventType::PAGE_REQUEST => {
            if let (Task::Pages, Ok(request)) = (task, PagesReqEvent::new(data)) {
                answer(
                    shared,
                    request.function_id(),
                    request.num_pages().cast_signed(),
                );
            }
        }
        EventType::CMD => shared.commands.look(),
        EventType::COMP => {
            if let Ok(data) = CompEvent::new(data) {
                shared.tell(|sink| sink.completion(data.cq_number()));
            }
        }
        _ => shared.tell(|sink| sink.event(kind, entry.event_sub_type(), data)),
    }
}

/// Gives pages, or takes some back if there are fewer than none. What fails is the firmware's to ask for again.
fn answer(shared: &Shared, function: u16, count: i32) {
    let run = |input: &[u8], output: &mut [u8]| shared.commands.execute_for_pages(input, output);
    let _ = match u32::try_from(count) {
        Ok(count) => shared.pages.give(&run, function, count),
        Err(_) => (shared.pages)
            .reclaim(&run, function, count.unsigned_abs())
            .map(drop),
    };
}

/// How the device was when it was looked at last.
#[derive(Debug)]
struct Pulse {
    looked: Instant,
    beat: Instant,
    counter: Option<u32>,
    dead: bool,
}

impl Pulse {
    fn new() -> Self {
        Self {
            looked: Instant::now(),
            beat: Instant::now(),
            counter: None,
            dead: false,
        }
    }

    /// Whether the device has failed since it was looked at last, if it is time to look.
    fn look(&mut self, shared: &Shared) -> Option<bool> {
        let now = Instant::now();
        if self.dead || now - self.looked < HEALTH {
            return None;
        }
        self.looked = now;
        self.dead = match shared.commands.health() {
            Health::Good(counter) if self.counter != Some(counter) => {
                self.counter = Some(counter);
                self.beat = now;
                false
            }
            Health::Good(_) => now - self.beat > SILENCE,
            Health::Failed(_) | Health::Gone => true,
        };
        Some(self.dead)
    }
}
