//! Translation by every kind of key, and what is refused.

use std::sync::{Arc, Mutex};

use super::*;
use crate::{Config, DmaFault, GuestMemory, Interrupts, Ram};
use wqe_format::mlx5::firmware::bits::set;

const PD: u32 = 7;

fn context(mode: u64, start: u64, len: u64) -> [u8; 64] {
    let mut context = [0; 64];
    set(&mut context, 0x16, 2, mode & 3);
    set(&mut context, 0x11, 5, 0x1f);
    set(&mut context, 0x20, 0x18, 0xff_ffff);
    set(&mut context, 0x38, 8, 0x42);
    set(&mut context, 0x68, 0x18, PD.into());
    set(&mut context, 0x80, 0x40, start);
    set(&mut context, 0xc0, 0x40, len);
    set(&mut context, 0x1da, 6, 12);
    context
}

fn resources(keys: Vec<(u32, [u8; 64], Vec<u8>)>) -> Resources {
    let mut resources = Resources::new(&crate::Config::default());
    for (index, context, translation) in keys {
        resources
            .mkeys
            .insert(index, Mkey::new(0, context, translation));
    }
    resources
}

fn who() -> Who {
    Who {
        pd: PD,
        qpn: 9,
        reserved_lkey: false,
    }
}

fn range(index: u32, va: u64, len: u64) -> Range {
    let key = index << 8 | 0x42;
    Range { key, va, len }
}

/// The pieces of a range that lies in the guest's memory.
fn pieces(
    resources: &Resources,
    who: &Who,
    range: Range,
    right: Right,
) -> Result<Vec<(u64, usize)>, Fault> {
    let found = super::pieces(resources, who, range, right)?;
    let on_bus = |(place, len)| match place {
        Place::Bus(iova) => (iova, len),
        Place::Memic(_) | Place::Nowhere => panic!("{place:?}"),
    };
    Ok(found.into_iter().map(on_bus).collect())
}

fn entries(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

#[test]
fn pages_start_where_the_address_says() {
    let list = entries(&[0x10_0003, 0x10_1003, 0x20_0003]);
    let resources = resources(vec![(1, context(1, 0x7f00_0000_0123, 0x2000), list)]);
    let found = pieces(
        &resources,
        &who(),
        range(1, 0x7f00_0000_0123, 0x2000),
        Right::LocalRead,
    );
    assert_eq!(
        found,
        Ok(vec![(0x10_0123, 0x2000 - 0x123), (0x20_0000, 0x123)])
    );
    let end = range(1, 0x7f00_0000_2122, 1);
    assert_eq!(
        pieces(&resources, &who(), end, Right::RemoteWrite),
        Ok(vec![(0x20_0122, 1)])
    );
}

#[test]
fn what_is_not_granted_is_refused() {
    let key = context(1, 0x1000, 0x1000);
    let mut read_only = key;
    set(&mut read_only, 0x11, 5, 0b00101);
    let mut free = key;
    set(&mut free, 1, 1, 1);
    let mut window = key;
    set(&mut window, 0x20, 0x18, 10);
    let page = || entries(&[0x10_0000]);
    let resources = resources(vec![
        (1, key, page()),
        (2, read_only, page()),
        (3, free, page()),
        (4, window, page()),
        (5, key, Vec::new()),
    ]);
    let ask = |range, right| pieces(&resources, &who(), range, right).map(drop);
    assert_eq!(ask(range(1, 0x1000, 0x1000), Right::RemoteAtomic), Ok(()));
    assert_eq!(
        ask(range(1, 0xfff, 1), Right::LocalRead),
        Err(Fault::Bounds)
    );
    assert_eq!(
        ask(range(1, 0x1fff, 2), Right::LocalRead),
        Err(Fault::Bounds)
    );
    assert_eq!(
        ask(range(1, 0x1000, u64::MAX), Right::LocalRead),
        Err(Fault::Bounds)
    );
    assert_eq!(ask(range(9, 0x1000, 1), Right::LocalRead), Err(Fault::Key));
    let other = Range {
        key: 1 << 8 | 0x43,
        va: 0x1000,
        len: 1,
    };
    assert_eq!(ask(other, Right::LocalRead), Err(Fault::Key));
    assert_eq!(ask(range(2, 0x1000, 1), Right::LocalRead), Ok(()));
    assert_eq!(
        ask(range(2, 0x1000, 1), Right::LocalWrite),
        Err(Fault::Rights)
    );
    assert_eq!(
        ask(range(2, 0x1000, 1), Right::RemoteWrite),
        Err(Fault::Rights)
    );
    assert_eq!(ask(range(3, 0x1000, 1), Right::LocalRead), Err(Fault::Free));
    assert_eq!(
        ask(range(4, 0x1000, 1), Right::LocalRead),
        Err(Fault::Owner)
    );
    assert_eq!(
        ask(range(5, 0x1000, 1), Right::LocalRead),
        Err(Fault::Translation)
    );
    let stranger = Who { pd: 8, ..who() };
    let found = pieces(&resources, &stranger, range(1, 0x1000, 1), Right::LocalRead);
    assert_eq!(found, Err(Fault::Owner));
}

#[test]
fn keys_of_keys_lead_on() {
    let mut list = Vec::new();
    for (len, index, va) in [(0x100u32, 1u32, 0x1f00u64), (0x80, 2, 0x9000)] {
        list.extend(len.to_be_bytes());
        list.extend((index << 8 | 0x42).to_be_bytes());
        list.extend(va.to_be_bytes());
    }
    let mut whole = context(0, 0, 0);
    set(&mut whole, 0x60, 1, 1);
    let mut around = Vec::new();
    around.extend(16u32.to_be_bytes());
    around.extend((4u32 << 8 | 0x42).to_be_bytes());
    around.extend(0u64.to_be_bytes());
    let resources = resources(vec![
        (1, context(1, 0x1000, 0x1000), entries(&[0x10_0000])),
        (2, whole, Vec::new()),
        (3, context(2, 0x5000, 0x180), list),
        (4, context(2, 0, 16), around),
    ]);
    let found = pieces(
        &resources,
        &who(),
        range(3, 0x50f0, 0x20),
        Right::RemoteWrite,
    );
    assert_eq!(found, Ok(vec![(0x10_0ff0, 0x10), (0x9000, 0x10)]));
    let found = pieces(
        &resources,
        &who(),
        range(3, 0x5000, 0x180),
        Right::RemoteRead,
    );
    assert_eq!(found, Ok(vec![(0x10_0f00, 0x100), (0x9000, 0x80)]));
    // One that leads to itself ends.
    let found = pieces(&resources, &who(), range(4, 0, 8), Right::LocalRead);
    assert_eq!(found, Err(Fault::Translation));
}

#[test]
fn patterns_repeat() {
    // Three turns of 4 bytes with a stride of 16, and 2 bytes with one of 8.
    let mut list = Vec::new();
    for word in [6u32, 0x400, 3, 2] {
        list.extend(word.to_be_bytes());
    }
    for (stride, len, va) in [(16u16, 4u16, 0x1000u64), (8, 2, 0x1800)] {
        list.extend(stride.to_be_bytes());
        list.extend(len.to_be_bytes());
        list.extend((1u32 << 8 | 0x42).to_be_bytes());
        list.extend(va.to_be_bytes());
    }
    let resources = resources(vec![
        (1, context(1, 0x1000, 0x1000), entries(&[0x10_0000])),
        (2, context(2, 0, 18), list),
    ]);
    let found = pieces(&resources, &who(), range(2, 5, 10), Right::LocalRead);
    let expected = vec![
        (0x10_0801, 1),
        (0x10_0010, 4),
        (0x10_0808, 2),
        (0x10_0020, 3),
    ];
    assert_eq!(found, Ok(expected));
    let beyond = pieces(&resources, &who(), range(2, 0, 19), Right::LocalRead);
    assert_eq!(beyond, Err(Fault::Bounds));
}

/// Memory that remembers in which order it was written.
struct Watched {
    ram: Ram,
    writes: Mutex<Vec<(u64, usize)>>,
}

impl GuestMemory for Watched {
    fn read(&self, iova: u64, to: &mut [u8]) -> Result<(), DmaFault> {
        self.ram.read(iova, to)
    }

    fn write(&self, iova: u64, from: &[u8]) -> Result<(), DmaFault> {
        self.writes.lock().unwrap().push((iova, from.len()));
        self.ram.write(iova, from)
    }
}

/// An adversary's payload comes line by line in any order, and is whole all the same.
#[test]
fn payload_in_any_order_is_whole() {
    struct Silent;
    impl Interrupts for Silent {
        fn raise(&self, _: u16) {}
    }
    let sent: Vec<u8> = (0..1000).map(|index| (index % 251) as u8).collect();
    for adversary in [None, Some(5)] {
        let memory = Arc::new(Watched {
            ram: Ram::new(1 << 16),
            writes: Mutex::default(),
        });
        let config = Config {
            adversary,
            ..Config::default()
        };
        let mut device = Device::new(config, memory.clone(), Box::new(Silent));
        let list = entries(&[0x3003, 0x1003]);
        let key = Mkey::new(0, context(1, 0x7000_0f00, 0x1000), list);
        device.resources.mkeys.insert(1, key);
        let place = (0x142, 0x7000_0f00);
        write(&device, &who(), place, Right::RemoteWrite, &sent).unwrap();

        let mut found = vec![0; 1000];
        read(&device, &who(), place, Right::LocalRead, &mut found).unwrap();
        assert_eq!(found, sent);
        let writes = memory.writes.lock().unwrap().clone();
        match adversary {
            None => assert_eq!(writes, [(0x3f00, 0x100), (0x1000, 1000 - 0x100)]),
            Some(_) => {
                assert_eq!(writes.len(), 16);
                assert!(writes.iter().all(|(at, len)| at % 64 + *len as u64 <= 64));
                assert!(!writes.is_sorted(), "{writes:x?}");
            }
        }
    }
}

#[test]
fn a_key_of_memory_on_the_device_counts_from_zero() {
    struct Silent;
    impl Interrupts for Silent {
        fn raise(&self, _: u16) {}
    }
    let ram = Arc::new(Ram::new(0));
    let mut device = Device::new(Config::default(), ram, Box::new(Silent));
    let start = device
        .memic
        .alloc((crate::memic::START, 4096), 256)
        .unwrap();
    // `MLX5_MKC_ACCESS_MODE_MEMIC` is 5: its upper three bits lie elsewhere.
    let mut key = context(1, start + 64, 128);
    set(&mut key, 0x3, 3, 1);
    device.resources.mkeys.insert(1, Mkey::new(0, key, vec![]));
    let at = |va| (0x142, va);
    write(&device, &who(), at(4), Right::RemoteWrite, &[1, 2]).unwrap();
    let mut found = [0; 4];
    device.bar_read(start + 64 + 3, &mut found);
    assert_eq!(found, [0, 1, 2, 0]);
    read(&device, &who(), at(3), Right::LocalRead, &mut found).unwrap();
    assert_eq!(found, [0, 1, 2, 0]);
    let beyond = read(&device, &who(), at(125), Right::LocalRead, &mut found);
    assert_eq!(beyond, Err(Fault::Bounds));
    let address = read(&device, &who(), at(start + 64), Right::LocalRead, &mut [0]);
    assert_eq!(address, Err(Fault::Bounds));
    device.memic.free(start, 256).unwrap();
    let gone = read(&device, &who(), at(0), Right::LocalRead, &mut found);
    assert_eq!(gone, Err(Fault::Translation));
}

#[test]
fn a_page_may_be_missing_or_not_writable() {
    let list = entries(&[0x10_0003, 0x20_0001, 0]);
    let mut key = Mkey::new(0, context(1, 0x1000, 0x3000), list);
    key.may_miss_pages = true;
    let mut resources = Resources::new(&crate::Config::default());
    resources.mkeys.insert(1, key);
    let ask = |range, right| pieces(&resources, &who(), range, right);
    let first = range(1, 0x1ff8, 8);
    assert_eq!(ask(first, Right::RemoteWrite), Ok(vec![(0x10_0ff8, 8)]));
    let both = range(1, 0x1ff8, 16);
    let found = vec![(0x10_0ff8, 8), (0x20_0000, 8)];
    assert_eq!(ask(both, Right::LocalRead), Ok(found));
    assert_eq!(ask(both, Right::LocalWrite), Err(Fault::Page(both)));
    let last = range(1, 0x3000, 1);
    assert_eq!(ask(last, Right::LocalRead), Err(Fault::Page(last)));
}
