//! What goes wrong under the userspace driver, and what is left behind: nothing.

#![cfg(feature = "in-process")]

use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::{Duration, Instant};

use oxverbs::control::vfio::command::Commands;
use oxverbs::control::vfio::events::EventSink;
use oxverbs::control::vfio::hca::{Hca, Options};
use oxverbs::control::vfio::pci::Pci;
use oxverbs::{Context, EventType, Subject, WcOpcode, WcStatus};
use soft_connectx::in_process::{Cable, InProcess};
use soft_connectx::{Config, LinkLayer};
use wqe_format::mlx5::firmware::{EventType as Happened, Opcode};

mod ends;
#[path = "../../../driver/tests/traffic/mod.rs"]
#[expect(dead_code, reason = "for other tests")]
mod traffic;

use ends::{End, connected, open, writes_on_a_channel};

fn device(serial: u16) -> Arc<InProcess> {
    ends::device(LinkLayer::InfiniBand, serial)
}

/// Some writes, with their data checked.
fn traffic(ends: &mut [End; 2]) {
    for turn in 0..4u8 {
        let [from, to] = ends;
        let bytes: Vec<u8> = (0..6000u32).map(|at| (at % 251) as u8 ^ turn).collect();
        from.region.copy_in(0, &bytes);
        let part = from.region.slice(0..6000);
        from.qp
            .send_half()
            .write(part, to.region.remote(8000))
            .unwrap();
        assert_eq!(from.done().opcode(), WcOpcode::RDMA_WRITE);
        assert_eq!(to.region.to_vec(8000..14_000), bytes);
        ends.swap(0, 1);
    }
}

/// Opens both devices, and exchanges data.
fn works(devices: &[Arc<InProcess>; 2]) {
    let [one, other] = open(devices);
    traffic(&mut connected(&one, &other));
}

fn event(context: &Context) -> EventType {
    context.next_event().unwrap().event_type
}

fn nothing_left(devices: &[Arc<InProcess>; 2]) {
    for device in devices {
        assert_eq!((device.mappings(), device.mapped_pages()), (0, 0));
    }
}

/// A device whose firmware stops in mid-traffic says so, refuses everything, closes in no time, and works when it is opened
/// again.
#[test]
fn a_fatal_device_is_noticed_and_opens_again() {
    let devices = [device(1), device(2)];
    let _cable = Cable::new(&devices[0], &devices[1]);
    {
        let [one, other] = open(&devices);
        let mut ends = connected(&one, &other);
        traffic(&mut ends);
        devices[0].with(|device| device.fail(1));
        assert_eq!(one.next_event().unwrap().subject, Subject::Device);
        assert!(one.protection_domain().is_err());
        let start = Instant::now();
        drop((ends, one));
        assert!(start.elapsed() < Duration::from_secs(5));
    }
    nothing_left(&devices);
    works(&devices);
    nothing_left(&devices);
}

/// The same where somebody resets the device under its driver.
#[test]
fn a_reset_by_somebody_else_is_noticed_and_the_device_opens_again() {
    let devices = [device(1), device(2)];
    let _cable = Cable::new(&devices[0], &devices[1]);
    {
        let [one, other] = open(&devices);
        let mut ends = connected(&one, &other);
        traffic(&mut ends);
        devices[0].reset().unwrap();
        let start = Instant::now();
        assert!(one.protection_domain().is_err());
        assert_eq!(event(&one), EventType::DEVICE_FATAL);
        drop((ends, one));
        assert!(start.elapsed() < Duration::from_secs(5));
    }
    nothing_left(&devices);
    works(&devices);
}

/// What a device was told.
#[derive(Clone, Debug, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn has(&self, word: &str) -> bool {
        String::from_utf8_lossy(&self.0.lock().unwrap()).contains(word)
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A device that is stopped instead of taken down is gone with all that was made, and opens again.
#[test]
fn a_fast_close_leaves_nothing_either() {
    for fast_close in [true, false] {
        let devices = [device(1), device(2)];
        let _cable = Cable::new(&devices[0], &devices[1]);
        let log = Log::default();
        {
            let options = Options {
                fast_close,
                ..Options::default()
            };
            let one = Context::over_pci_with(devices[0].clone(), options).unwrap();
            let other = Context::over_pci(devices[1].clone()).unwrap();
            traffic(&mut connected(&one, &other));
            let trace = Box::new(log.clone());
            devices[0].with(|device| device.trace(trace));
        }
        nothing_left(&devices);
        assert!(log.has("TEARDOWN_HCA"), "fast: {fast_close}");
        for command in ["DESTROY_EQ", "MANAGE_PAGES", "DISABLE_HCA"] {
            assert_eq!(log.has(command), !fast_close, "{command}");
        }
        works(&devices);
        nothing_left(&devices);
    }
}

/// A link that is cut in mid-traffic ends the connection by retries; events tell of it, and it works when it is mended.
#[test]
fn a_cut_link_ends_connections_and_comes_back() {
    let devices = [device(1), device(2)];
    let cable = Cable::new(&devices[0], &devices[1]);
    let [one, other] = open(&devices);
    let mut ends = connected(&one, &other);
    traffic(&mut ends);
    cable.cut();
    assert_eq!(event(&one), EventType::PORT_ERR);
    let [from, to] = &mut ends;
    let part = from.region.slice(0..6000);
    from.qp
        .send_half()
        .write(part, to.region.remote(0))
        .unwrap();
    assert_eq!(from.next().status(), WcStatus::RETRY_EXC_ERR);
    cable.mend();
    assert_eq!(event(&one), EventType::PORT_ACTIVE);
    traffic(&mut connected(&one, &other));
    drop((ends, one, other));
    works(&devices);
}

/// B66: interrupts that never come cost time only: commands end, and who waits for completions is woken.
#[test]
fn lost_interrupts_cost_time_only() {
    let device = device(1);
    let context = Context::over_pci(device.clone()).unwrap();
    writes_on_a_channel(
        &context,
        40,
        |turn| device.lose_interrupts(turn % 4 != 0),
        || drop(context.completion_queue(16).unwrap()),
    );
}

/// An adversary delays commands and interrupts, and asks for pages in the middle of commands that wait for them.
#[test]
fn pages_are_given_while_commands_wait_for_them() {
    let device = InProcess::new(Config {
        adversary: Some(7),
        ..Config::default()
    });
    let hca = Hca::open(device.clone(), Options::default()).unwrap();
    let before = hca.device_pages();
    let mut input = [0; 16];
    input[..2].copy_from_slice(&Opcode::ALLOC_PD.0.to_be_bytes());
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..40 {
                    hca.execute(&input, &mut [0; 16]).unwrap();
                }
            });
        }
    });
    assert!(hca.device_pages() > before, "nothing was asked for");
    drop(hca);
    assert_eq!(device.mappings(), 0);
    let context = Context::over_pci(device.clone()).unwrap();
    let mut ends = Vec::new();
    for _ in 0..60 {
        ends.push(End::new(&context));
    }
    drop((ends, context));
    assert_eq!(device.mappings(), 0);
}

/// Hears of ports, and lets the thread that tells it wait meanwhile.
#[derive(Debug, Default)]
struct Slow {
    heard: Mutex<usize>,
    changed: Condvar,
    /// Who tells waits for it.
    gate: Mutex<()>,
}

impl Slow {
    fn wait_for(&self, count: usize) {
        let heard = self.heard.lock().unwrap();
        let waited = (self.changed)
            .wait_timeout_while(heard, Duration::from_secs(60), |heard| *heard < count);
        assert!(
            !waited.unwrap().1.timed_out(),
            "{count} events were never told"
        );
    }
}

impl EventSink for Slow {
    fn completion(&self, _: u32) {}

    fn event(&self, kind: Happened, _: u8, _: &[u8]) {
        if kind == Happened::PORT_CHANGE {
            *self.heard.lock().unwrap() += 1;
            self.changed.notify_all();
            drop(self.gate.lock().unwrap());
        }
    }

    fn failed(&self) {}
}

/// While the thread that reads events gets no time, commands go on until the queue of events could overrun, and then
/// wait for it. A queue that overran would never tell of anything again.
#[test]
fn commands_wait_for_who_reads_that_they_ended() {
    let device = device(1);
    let hca = Hca::open(device.clone(), Options::default()).unwrap();
    let slow = Arc::new(Slow::default());
    hca.set_sink(Arc::downgrade(&slow) as Weak<dyn EventSink>);
    let gate = slow.gate.lock().unwrap();
    device.with(|device| device.set_link(false));
    slow.wait_for(1);
    let mut input = [0; 16];
    input[..2].copy_from_slice(&Opcode::QUERY_ADAPTER.0.to_be_bytes());
    let ran = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // a queue of events has 4096 entries
            for _ in 0..6000 {
                hca.execute(&input, &mut [0; 272]).unwrap();
                ran.fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut last = usize::MAX;
        while last != ran.load(Ordering::Relaxed) {
            last = ran.load(Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(500));
        }
        assert!((500..4000).contains(&last), "{last} commands ran");
        drop(gate);
    });
    device.with(|device| device.set_link(true));
    slow.wait_for(2);
}
