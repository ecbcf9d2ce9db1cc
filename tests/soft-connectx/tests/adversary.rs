//! What an adversary does to a driver, and that it does the same again for the same seed.

mod driver;

use std::time::Duration;

use driver::{Driver, command};
use soft_connectx::Config;
use wqe_format::mlx5::firmware::{EventType, Opcode};

/// Slots in the order in which their commands were done, and how many looks that took.
fn order(seed: Option<u64>) -> (Vec<u8>, u32) {
    let mut driver = Driver::new(Config {
        adversary: seed,
        ..Config::default()
    });
    for slot in 0..8 {
        let entry = driver.entry(slot, &command::<16>(Opcode::QUERY_ISSI), 16);
        driver.put(slot, &entry);
    }
    driver.device.bar_write(0x18, &0xff_u32.to_be_bytes());
    let mut done: Vec<u8> = Vec::new();
    for look in 0.. {
        let new = |slot: &u8| !done.contains(slot) && driver.delivery(*slot) != 0xff;
        let mut new: Vec<u8> = (0..8).filter(new).collect();
        done.append(&mut new);
        if done.len() == 8 {
            return (done, look);
        }
        assert!(look < 1000, "commands are never done");
        driver.device.tick(Duration::from_micros(50) * look);
    }
    unreachable!()
}

#[test]
fn commands_are_done_in_any_order_and_later() {
    let simple: Vec<u8> = (0..8).collect();
    assert_eq!(order(None), (simple.clone(), 0));
    let orders: Vec<_> = (0..10).map(|seed| order(Some(seed))).collect();
    for (seed, found) in orders.iter().enumerate() {
        assert_eq!(*found, order(Some(seed as u64)), "seed {seed}");
    }
    let (mixed, late) = (
        orders.iter().filter(|(order, _)| *order != simple).count(),
        orders.iter().filter(|(_, looks)| *looks > 0).count(),
    );
    assert!(mixed > 5 && late > 5, "{orders:?}");
}

#[test]
fn interrupts_come_late_but_come() {
    let mut late = 0;
    for seed in 0..20 {
        let mut driver = Driver::new(Config {
            adversary: Some(seed),
            ..Config::default()
        });
        driver.again();
        let uar = 16;
        driver.simple(Opcode::ALLOC_UAR);
        let (eqn, _) = driver.event_queue(uar, 3, &[EventType::CMD]);
        // Armed, it interrupts for the next command.
        let arm = u32::from(eqn) << 24;
        driver
            .device
            .bar_write(u64::from(uar) << 12 | 0x40, &arm.to_be_bytes());
        driver.simple(Opcode::ALLOC_PD);
        let raised = |driver: &Driver| driver.vectors.0.lock().unwrap().contains(&3);
        if !raised(&driver) {
            late += 1;
            driver.wait(Duration::from_millis(3));
        }
        assert!(raised(&driver), "seed {seed}");
    }
    assert!(late > 3, "only {late} were late");
}
