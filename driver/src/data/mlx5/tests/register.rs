//! The register: when a work request is copied into it, how much of it, and which half is next.

use std::iter::once;

use super::*;

const ALL: [Sharing; 3] = [Sharing::Exclusive, Sharing::Locked, Sharing::OneThread];

fn post(bed: &mut Bed, sges: usize, flags: SendFlags) {
    bed.uar.fill(FILL);
    let data = [0x5a; 64];
    let each = if flags == SendFlags::INLINE {
        of(&data[..4])
    } else {
        sge(4)
    };
    bed.queue
        .post(once(&Wr::new(WrOpcode::SEND, vec![each; sges]).with(flags)))
        .unwrap();
    bed.complete();
}

/// One work request of two to sixteen units is copied, in whole blocks with whatever stands behind it; longer and
/// shorter ones are a doorbell of eight bytes. Either way the other half is next.
#[test]
fn one_request_is_copied_if_it_fits() {
    for sharing in ALL {
        let mut make = Make::new(QueueKind::Rc);
        make.limits.max_sge = 60;
        make.limits.max_wr = 4;
        make.sharing = sharing;
        let mut bed = make.bed();
        bed.ring.fill(0x77);
        let mut half = 0;
        for sges in 0..=20 {
            let block = bed.queue.posted_blocks() as usize;
            post(&mut bed, sges, SendFlags::NONE);
            let ds = sges + 1;
            let length = if (2..=16).contains(&ds) {
                ds.next_multiple_of(4) * 16
            } else {
                8
            };
            let uar = bed.uar.bytes();
            assert_eq!(uar[half..half + length], bed.wqe(block, length));
            assert!(
                uar[half + length..half + 256]
                    .iter()
                    .all(|&byte| byte == FILL)
            );
            half ^= 256;
            assert!(uar[half..half + 256].iter().all(|&byte| byte == FILL));
        }
    }
}

/// A copy goes on at the ring's start, as the ring does.
#[test]
fn a_copy_wraps() {
    let mut bed = Bed::new(QueueKind::Rc);
    bed.queue.start_at(63, 63);
    post(&mut bed, 7, SendFlags::NONE);
    let ring = bed.ring.bytes();
    assert_eq!(
        bed.uar.bytes()[..128],
        [&ring[63 * 64..], &ring[..64]].concat()
    );
}

/// Several work requests in one call are a doorbell with the last one's first eight bytes, whatever their length.
#[test]
fn a_list_is_a_doorbell() {
    let mut make = Make::new(QueueKind::Rc);
    make.limits.max_wr = 16;
    let mut bed = make.bed();
    let wr = Wr::new(WrOpcode::SEND, vec![sge(1)]);
    bed.queue.post([&wr, &wr]).unwrap();
    let uar = bed.uar.bytes();
    assert_eq!(uar[..8], [0, 0, 1, 0x0a, 0xab, 0xcd, 0xef, 2]);
    assert!(uar[8..].iter().all(|&byte| byte == FILL));
    // The next one is in the other half.
    bed.queue.post(once(&wr)).unwrap();
    let uar = bed.uar.bytes();
    assert_eq!(uar[256..320], bed.wqe(2, 64));
}

/// Without BlueFlame nothing is copied; preferring it for inline data only, just that is.
#[test]
fn policies() {
    for (blue_flame, flags, copied) in [
        (BlueFlame::Off, SendFlags::NONE, false),
        (BlueFlame::Off, SendFlags::INLINE, false),
        (BlueFlame::Inline, SendFlags::NONE, false),
        (BlueFlame::Inline, SendFlags::INLINE, true),
        (BlueFlame::Always, SendFlags::NONE, true),
        (BlueFlame::Always, SendFlags::INLINE, true),
    ] {
        for sharing in ALL {
            let mut make = Make::new(QueueKind::Rc);
            make.blue_flame = blue_flame;
            make.sharing = sharing;
            let mut bed = make.bed();
            post(&mut bed, 2, flags);
            let uar = bed.uar.bytes();
            let length = if copied { 64 } else { 8 };
            assert_eq!(uar[..length], bed.wqe(0, length));
            assert!(uar[length..].iter().all(|&byte| byte == FILL));
        }
    }
}

/// B53: queues that share a register alternate its halves between them; an exclusive one cannot be shared.
#[test]
fn a_shared_register_alternates_for_all() {
    let make = Make::new(QueueKind::Rc);
    assert!(make.bed().queue.register().share().is_none());
    let uar = Memory::new(512);
    let keep: KeepAlive = Box::new(uar.clone());
    // SAFETY: two halves of 256 bytes, kept by the register.
    let register = unsafe {
        Register::new(
            uar.at(0),
            256,
            BlueFlame::Always,
            Sharing::Locked,
            Some(keep),
        )
    };
    let other = register.share().unwrap();
    assert!(register.shares(&other));
    let mut beds = [register, other].map(|register| {
        let bed = make.bed();
        let parts = SendParts {
            record: bed.record.clone(),
            doorbell: bed.doorbell.at(0).cast(),
            register,
            limits: make.limits,
            signal_all: false,
            signature: false,
        };
        // SAFETY: the bed keeps the doorbell record; its own queue is not used.
        let mut queue = unsafe { SendQueue::new(parts) };
        queue.set_accepting(true);
        Bed { queue, ..bed }
    });
    let wr = Wr::new(WrOpcode::SEND, vec![sge(1)]);
    for (turn, which) in [0, 0, 1, 0, 1, 1].into_iter().enumerate() {
        uar.fill(FILL);
        let bed = &mut beds[which];
        let block = bed.queue.posted_blocks() as usize;
        bed.queue.post(once(&wr)).unwrap();
        bed.complete();
        let half = turn % 2 * 256;
        assert_eq!(uar.bytes()[half..half + 64], bed.wqe(block, 64));
        assert_eq!(uar.bytes()[half ^ 256..][..8], [FILL; 8]);
    }
}

/// B53: threads that post through one register never mix their work requests in it: each work request's bytes name its
/// queue's, and what stands in a half when the other is written belongs together.
#[test]
fn threads_do_not_mix_in_a_shared_register() {
    let uar = Memory::new(512);
    let keep: KeepAlive = Box::new(uar.clone());
    // SAFETY: two halves of 256 bytes, kept by the register.
    let register = unsafe {
        Register::new(
            uar.at(0),
            256,
            BlueFlame::Always,
            Sharing::Locked,
            Some(keep),
        )
    };
    std::thread::scope(|scope| {
        for id in 0..3_u8 {
            let register = register.share().unwrap();
            scope.spawn(move || {
                let make = Make::new(QueueKind::Rc);
                let bed = make.bed();
                let parts = SendParts {
                    record: bed.record.clone(),
                    doorbell: bed.doorbell.at(0).cast(),
                    register,
                    limits: make.limits,
                    signal_all: false,
                    signature: false,
                };
                // SAFETY: the bed keeps the doorbell record; its own queue is not used.
                let mut queue = unsafe { SendQueue::new(parts) };
                queue.set_accepting(true);
                let data = [id; 100];
                let wr = Wr::new(WrOpcode::SEND, vec![of(&data)]).with(SendFlags::INLINE);
                for _ in 0..5000 {
                    queue.post(once(&wr)).unwrap();
                    bed.record.send().unwrap().complete(queue.head());
                }
            });
        }
    });
    // Each half holds one work request whole.
    let uar = uar.bytes();
    for half in [&uar[..256], &uar[256..]] {
        assert_eq!(half[16..20], [0x80, 0, 0, 100]);
        assert!(half[20..120].iter().all(|&byte| byte == half[20]));
    }
}
