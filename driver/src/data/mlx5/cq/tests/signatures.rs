//! Errors of keys' signatures: they make no completion, and the key has them. Entries are laid out as Linux
//! include/linux/mlx5/device.h has `struct mlx5_sig_err_cqe`.

use std::sync::Arc;

use wqe_format::mlx5::{
    BlockSignature, BlockSize, CrcKind, Escape, Guard, SignatureDomain, SignatureRule,
};

use super::super::super::protection::{KeyError, KeySignature, UnknownKeyError, WrongPart};
use super::rig::*;

const SIG_ERR: u8 = 12;
const INDEX: u32 = 0x01_0203;

/// A key with a CRC of 64 bits in memory and T10-DIF on the wire.
fn key(rig: &Rig) -> Arc<KeySignature> {
    let key = Arc::new(KeySignature::new(1, 2));
    let domain = |signature| {
        Some(SignatureDomain {
            block: BlockSize::B512,
            signature,
        })
    };
    key.state().rule = Some(SignatureRule {
        memory: domain(BlockSignature::Crc {
            kind: CrcKind::Crc64Xp10,
            ones: false,
        }),
        wire: domain(BlockSignature::T10Dif {
            guard: Guard::Crc,
            ones: false,
            app_tag: 0,
            ref_tag: 0,
            counts: false,
            escape: Escape::Never,
        }),
        check_mask: 0xff,
        copy_mask: None,
    });
    key.state().to_tell = false;
    rig.cq.signatures.insert(INDEX, key.clone());
    key
}

fn wrong(syndrome: u16, domain: u8) -> Bytes {
    Bytes::new(SIG_ERR)
        .put(16, &0x1112_1314_u32.to_be_bytes())
        .put(20, &0x2122_2324_u32.to_be_bytes())
        .put(24, &0x3132_3334_u32.to_be_bytes())
        .put(28, &0x4142_4344_u32.to_be_bytes())
        .put(32, &syndrome.to_be_bytes())
        .put(35, &[domain])
        .put(36, &(INDEX << 8 | 0x77).to_be_bytes())
        .put(40, &0x5152_5354_5556_5758_u64.to_be_bytes())
}

fn found(part: WrongPart, actual: u64, expected: u64) -> KeyError {
    KeyError {
        part,
        actual,
        expected,
        offset: 0x5152_5354_5556_5758,
    }
}

/// Between completions, in both ways of polling and with all sizes: the completions come, the key has the last error once, and
/// tells the device of both.
#[test]
fn keys_have_their_errors() {
    for size in [64, 128] {
        for v1 in [true, false] {
            for lazy in [true, false] {
                let mut rig = Rig::with(8, size, v1, Default::default());
                let key = key(&rig);
                let good = |n| Bytes::new(REQ).uidx(RC).sop(0x0a, RC_QPN).counter(n);
                for entry in [
                    wrong(1 << 11, 0),
                    good(1),
                    wrong(1 << 13, 1),
                    good(2),
                    wrong(1 << 13, 1).put(36, &[0xff; 4]),
                ] {
                    rig.complete(entry);
                }
                let mut got = Vec::new();
                if lazy {
                    rig.cq.start_poll().unwrap();
                    got.push(rig.cq.wr_id());
                    while rig.cq.next_poll() {
                        got.push(rig.cq.wr_id());
                    }
                    rig.cq.end_poll();
                } else {
                    got.extend(rig.poll(8).iter().map(|completion| completion.wr_id));
                }
                assert_eq!(got, [0x1001, 0x1002]);
                assert_eq!(rig.told(), 5);
                assert_eq!(rig.cq.dropped(), 1, "there is no such key");
                let guard = found(
                    WrongPart::Guard,
                    0x2122_2324_4142_4344,
                    0x1112_1314_3132_3334,
                );
                assert_eq!(key.check(), Ok(Some(guard)));
                assert_eq!(key.check(), Ok(None));
                assert!(key.state().to_tell);
                assert_eq!(key.state().count(), 1, "the third, after the first two");
            }
        }
    }
}

/// Which values an error is about: of tags their bits, of a guard those that its kind has.
#[test]
fn parts_of_signatures() {
    let mut rig = Rig::new(8, 64);
    let key = key(&rig);
    let all = 1 << 11 | 1 << 12 | 1 << 13;
    for (syndrome, domain, expected) in [
        (1 << 13, 0, (WrongPart::Guard, 0x2122, 0x1112)),
        (1 << 12 | 1 << 13, 0, (WrongPart::AppTag, 0x2324, 0x1314)),
        (all, 1, (WrongPart::RefTag, 0x4142_4344, 0x3132_3334)),
    ] {
        rig.complete(wrong(syndrome, domain));
        assert_eq!(rig.poll(1), []);
        let (part, actual, expected) = expected;
        assert_eq!(key.check(), Ok(Some(found(part, actual, expected))));
    }
    // Of no part, in no domain, of something else than blocks, and of a domain that has none any more.
    for entry in [
        wrong(1 << 10, 0),
        wrong(1 << 13, 2),
        wrong(1 << 13, 0).put(34, &[1]),
    ] {
        rig.complete(entry);
        assert_eq!(rig.poll(1), []);
        assert_eq!(key.check(), Err(UnknownKeyError));
        assert_eq!(key.check(), Err(UnknownKeyError), "it stays");
    }
    rig.complete(wrong(1 << 13, 0));
    assert_eq!(rig.poll(1), []);
    key.state().rule = None;
    assert_eq!(key.check(), Err(UnknownKeyError));
    rig.cq.signatures.remove(INDEX);
    rig.complete(wrong(1 << 13, 0));
    assert_eq!(rig.poll(1), []);
    assert_eq!(rig.cq.dropped(), 1);
}

/// A dead queue's entries are taken out; an error of a key stays, whatever stands where others name their queue.
#[test]
fn errors_of_keys_outlive_queues() {
    for (v1, number) in [(true, RC), (false, RC_QPN)] {
        let mut rig = Rig::with(8, 64, v1, Default::default());
        let key = key(&rig);
        let entry = wrong(1 << 13, 5).put(56, &RC_QPN.to_be_bytes());
        rig.complete(entry.put(32, &RC.to_be_bytes()));
        rig.complete(Bytes::new(REQ).uidx(RC).sop(0x0a, RC_QPN));
        assert_eq!(rig.cq.clean(number, None), 1);
        assert_eq!(rig.poll(4), []);
        assert_eq!(rig.cq.dropped(), 0);
        assert_eq!(key.check(), Err(UnknownKeyError));
    }
}
