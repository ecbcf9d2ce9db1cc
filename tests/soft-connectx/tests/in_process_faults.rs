//! What goes wrong under the userspace driver, and what is left behind: nothing.

#![cfg(feature = "in-process")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use oxverbs::control::vfio::command::Commands;
use oxverbs::control::vfio::hca::{Hca, Options};
use oxverbs::control::vfio::pci::Pci;
use oxverbs::{
    CompletionQueue, Context, EventType, MemoryRegion, QueuePair, Rc, Subject, WcOpcode, WcStatus,
};
use soft_connectx::Config;
use soft_connectx::in_process::{Cable, InProcess};
use wqe_format::mlx5::firmware::Opcode;

#[path = "../../../driver/tests/traffic/mod.rs"]
#[expect(dead_code, reason = "for other tests")]
mod traffic;

use traffic::ALL;

fn device(serial: u16) -> Arc<InProcess> {
    InProcess::new(Config {
        serial,
        ..Config::default()
    })
}

struct End {
    qp: QueuePair<Rc>,
    cq: CompletionQueue,
    region: MemoryRegion,
}

impl End {
    fn new(context: &Context) -> End {
        let pd = context.protection_domain().unwrap();
        let cq = context.completion_queue(64).unwrap();
        let qp = pd.queue_pair::<Rc>(&cq).create().unwrap();
        let region = pd.allocate(1 << 14, ALL).unwrap();
        End { qp, cq, region }
    }

    /// Status and kind of the next completion.
    fn next(&mut self) -> (WcStatus, WcOpcode) {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(completion) = self.cq.poll().next() {
                self.qp.reclaim(&completion);
                return (completion.status(), completion.opcode());
            }
            assert!(Instant::now() < deadline, "no completion in time");
            std::thread::yield_now();
        }
    }
}

fn connected(one: &Context, other: &Context) -> [End; 2] {
    let mut ends = [End::new(one), End::new(other)];
    let [a, b] = [&ends[0], &ends[1]].map(|end| end.qp.endpoint(1, 0).unwrap());
    ends[0].qp.connect(&a, &b, ALL).unwrap();
    ends[1].qp.connect(&b, &a, ALL).unwrap();
    ends
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
        assert_eq!(from.next(), (WcStatus::SUCCESS, WcOpcode::RDMA_WRITE));
        assert_eq!(to.region.to_vec(8000..14_000), bytes);
        ends.swap(0, 1);
    }
}

/// Opens both devices, and exchanges data.
fn works(devices: &[Arc<InProcess>; 2]) {
    let [one, other] = devices
        .each_ref()
        .map(|device| Context::over_pci(device.clone()).unwrap());
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
        let [one, other] = devices
            .each_ref()
            .map(|device| Context::over_pci(device.clone()).unwrap());
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
        let [one, other] = devices
            .each_ref()
            .map(|device| Context::over_pci(device.clone()).unwrap());
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

/// A link that is cut in mid-traffic ends the connection by retries; events tell of it, and it works when it is mended.
#[test]
fn a_cut_link_ends_connections_and_comes_back() {
    let devices = [device(1), device(2)];
    let cable = Cable::new(&devices[0], &devices[1]);
    let [one, other] = devices
        .each_ref()
        .map(|device| Context::over_pci(device.clone()).unwrap());
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
    assert_eq!(from.next().0, WcStatus::RETRY_EXC_ERR);
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
    let pd = context.protection_domain().unwrap();
    let channel = context.completion_channel().unwrap();
    let mut cq = channel.completion_queue(16).unwrap();
    let mut qp = pd.queue_pair::<Rc>(&cq).create().unwrap();
    traffic::connect(&mut qp, 0);
    let region = pd.allocate(4096, ALL).unwrap();
    for turn in 0..40 {
        device.lose_interrupts(turn % 4 != 0);
        cq.request_notify(false).unwrap();
        let part = region.slice(0..8);
        qp.send_half().write(part, region.remote(8)).unwrap();
        assert_eq!(channel.wait().unwrap(), cq.id());
        let completion = cq.poll().next().unwrap();
        assert!(qp.reclaim(&completion).is_some());
        drop(context.completion_queue(16).unwrap());
    }
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
