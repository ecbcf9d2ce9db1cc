//! No bytes make the device panic, nor read what isn't mapped.

use proptest::prelude::*;

use super::*;

fn kinds() -> impl Strategy<Value = QpKind> {
    prop_oneof![
        Just(QpKind::Rc),
        Just(QpKind::Uc),
        Just(QpKind::Ud),
        Just(QpKind::Xrc),
        Just(QpKind::Dci),
        Just(QpKind::RegUmr),
        Just(QpKind::RawSend),
        Just(QpKind::Gsi),
    ]
}

fn opcodes() -> impl Strategy<Value = u8> {
    prop::sample::select(Opcode::ALL).prop_map(|opcode| opcode.0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn requests(
        kind in kinds(),
        opcode in opcodes(),
        opmod in 0..16u8,
        ds in 1..40u8,
        mut body in prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(0x20), any::<u8>()], 640),
        receive in any::<[u8; 32]>(),
    ) {
        let mut bench = Bench::pair(kind);
        bench.ram.write(Bench::place(0x42) + 0x4000, &receive).unwrap();
        bench.ram.write(Bench::place(0x42) + 0x1_1000, &1u32.to_be_bytes()).unwrap();
        body[..8].copy_from_slice(&[opmod, 0, 0, opcode, 0, 0, 0x41, ds]);
        body.truncate(usize::from(ds) * 16);
        bench.post_bytes(0x41, &body);
        for _ in 0..4 {
            bench.wait(Duration::from_millis(3));
        }
    }

    #[test]
    fn doorbells(writes in prop::collection::vec((0x800..0xc00u64, prop::collection::vec(any::<u8>(), 1..9)), 1..40)) {
        let mut bench = Bench::pair(QpKind::Rc);
        for (register, bytes) in writes {
            bench.device.bar_write(u64::from(UAR) * 4096 + register, &bytes);
        }
    }

    #[test]
    fn frames(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut bench = Bench::pair(QpKind::Rc);
        bench.device.receive(&bytes);
    }

    /// Records that say anything.
    #[test]
    fn records(send in prop_oneof![0..300u32, any::<u32>().prop_map(|n| n & !0xff00)], receive in 0..300u32, consumer in any::<u32>()) {
        let mut bench = Bench::pair(QpKind::Rc);
        let at = Bench::place(0x41);
        bench.ram.write(at + 0x1_1000, &receive.to_be_bytes()).unwrap();
        bench.ram.write(at + 0x1_1004, &send.to_be_bytes()).unwrap();
        bench.ram.write(at + 0x1_0000, &consumer.to_be_bytes()).unwrap();
        bench.device.bar_write(u64::from(UAR) * 4096 + 0x800, &[0, 0, 0, 0, 0, 0, 0x41, 1]);
        bench.wait(Duration::from_millis(3));
        bench.to(0x41, QpState::Err);
        bench.wait(Duration::from_millis(3));
    }
}
