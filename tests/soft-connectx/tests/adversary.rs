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

/// The event queue entries of a ring of 64, by their types.
fn events(driver: &Driver, ring: u64) -> Vec<(u8, u32)> {
    let entries = (0..64).map(|index| driver.read::<64>(ring + 64 * index));
    let types = entries.map(|entry| {
        let pages = u32::from_be_bytes([entry[0x24], entry[0x25], entry[0x26], entry[0x27]]);
        (entry[1], pages)
    });
    types.take_while(|(kind, _)| *kind != 0).collect()
}

#[test]
fn commands_wait_for_pages_that_the_driver_is_asked_for() {
    let mut starved = 0;
    for seed in 0..8 {
        let mut driver = Driver::new(Config {
            adversary: Some(seed),
            ..Config::default()
        });
        driver.again();
        driver.simple(Opcode::ALLOC_UAR);
        let (_, ring) = driver.event_queue(16, 1, &[EventType::PAGE_REQUEST]);
        for _ in 0..40 {
            let before = events(&driver, ring).len();
            let entry = driver.entry(0, &command::<16>(Opcode::ALLOC_PD), 16);
            let delivery = driver.ring(0, &entry);
            if let Some((kind, pages)) = events(&driver, ring).get(before).copied() {
                starved += 1;
                assert_eq!(kind, EventType::PAGE_REQUEST.0);
                assert!((1..=40).contains(&pages), "{pages}");
                assert_eq!(delivery, 0xff, "it did not wait");
                // By a slot of its own, as mlx5_core does.
                driver.give(31, pages as usize);
                driver.wait(Duration::from_millis(4));
            }
            assert_eq!(driver.delivery(0), 0);
            assert_eq!(driver.output(0, 16)[0], 0);
        }
    }
    assert!(starved > 4, "only {starved} commands had to wait");
}

#[test]
fn doorbell_pages_run_out_with_the_right_status() {
    let fewest = (0..12).map(|seed| {
        let mut driver = Driver::up(Config {
            adversary: Some(seed),
            ..Config::default()
        });
        let mut count = 0;
        loop {
            match driver.send(&command::<16>(Opcode::ALLOC_UAR), 16)[0] {
                0 => count += 1,
                status => {
                    assert_eq!(status, wqe_format::mlx5::firmware::Status::NO_RES_ERR.0);
                    return count;
                }
            }
            if count == 200 {
                return count;
            }
        }
    });
    let counts: std::collections::BTreeSet<u32> = fewest.collect();
    assert_eq!(counts.len(), 3, "{counts:?}");
}
