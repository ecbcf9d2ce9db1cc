//! From user indices to records, and when those are dropped.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::*;

/// Counts when it is dropped, as the memory of a queue is freed.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn record(number: u32, dropped: &Arc<AtomicUsize>) -> Arc<QueueRecord> {
    let memory: KeepAlive = Box::new(Counted(dropped.clone()));
    // SAFETY: it has no rings.
    Arc::new(unsafe {
        QueueRecord::new(
            QueueKind::Rc,
            number,
            0,
            None,
            ReceiveSide::None,
            Some(memory),
        )
    })
}

/// B55: all 24 bits of an index are looked up, and none beyond; an index in use is not given twice.
#[test]
fn indices_of_24_bits() {
    let dropped = Arc::default();
    let table = UserIndexTable::new();
    let mut reader = table.reader();
    for index in [0, 1, 0xfff, 0x1000, 0xff_ffff] {
        table.insert(index, record(index + 7, &dropped)).unwrap();
        assert_eq!(table.insert(index, record(0, &dropped)), Err(BadUserIndex));
    }
    assert_eq!(
        table.insert(USER_INDICES, record(0, &dropped)),
        Err(BadUserIndex)
    );
    assert_eq!(dropped.swap(0, Ordering::Relaxed), 6, "what was not taken");
    let visit = reader.visit();
    for index in [0, 1, 0xfff, 0x1000, 0xff_ffff] {
        assert_eq!(visit.find(index).unwrap().number(), index + 7);
        // The poller cuts off what is not of the index.
        assert_eq!(visit.find(index | 0xab00_0000).unwrap().number(), index + 7);
    }
    assert!(visit.find(2).is_none());
    assert!(visit.find(0x2000).is_none());
    drop(visit);
    assert!(!table.remove(2), "there is none");
    assert!(!table.remove(USER_INDICES));
    drop(reader);
    drop(table);
    assert_eq!(dropped.load(Ordering::Relaxed), 5);
}

/// B38: a removed record is found no more, and dropped at once if nobody visits, else when the last visit has ended that
/// could have found it; visits that began later do not hold it.
#[test]
fn removed_records_are_dropped_late() {
    let dropped = Arc::default();
    let count = || Arc::<AtomicUsize>::as_ref(&dropped).load(Ordering::Relaxed);
    let table = UserIndexTable::new();
    let (mut one, mut other) = (table.reader(), table.reader());
    table.insert(5, record(1, &dropped)).unwrap();
    assert!(table.remove(5));
    assert_eq!(count(), 1);
    // The number is free at once, also while its record is still visited.
    table.insert(5, record(2, &dropped)).unwrap();
    one.begin();
    // SAFETY: until the end of the visit.
    let found = unsafe { one.find(5) }.unwrap();
    assert!(!table.remove(5));
    table.insert(5, record(3, &dropped)).unwrap();
    assert_eq!((found.number(), count()), (2, 1));
    other.begin();
    // SAFETY: until the end of the visit.
    assert_eq!(unsafe { other.find(5) }.unwrap().number(), 3);
    assert!(!table.collect());
    one.end();
    assert!(table.collect(), "the other's visit began later");
    assert_eq!(count(), 2);
    // A visit that goes on from poll to poll is seen to end by its number.
    one.begin();
    assert!(!table.remove(5));
    one.end();
    one.begin();
    other.end();
    assert!(table.collect());
    assert_eq!(count(), 3);
    // A completion queue that is destroyed in a visit holds nothing.
    table.insert(5, record(4, &dropped)).unwrap();
    assert!(!table.remove(5));
    drop(one);
    assert!(table.collect());
    assert_eq!(count(), 4);
}

/// B38: queues come and go under one number, while a poller looks it up: it always finds one that is whole, or none.
#[test]
fn numbers_are_used_again_under_a_poller() {
    let dropped = Arc::<AtomicUsize>::default();
    let table = UserIndexTable::new();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut reader = table.reader();
            while !stop.load(Ordering::Relaxed) {
                let visit = reader.visit();
                if let Some(found) = visit.find(9) {
                    assert_eq!(found.number(), 0x1234);
                }
            }
        });
        for _ in 0..2000 {
            table.insert(9, record(0x1234, &dropped)).unwrap();
            table.remove(9);
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(table.collect());
    assert_eq!(dropped.load(Ordering::Relaxed), 2000);
}
