//! The example `decode`: dumps as libraries, kernels and tools print them are found in text and said in words.

#[path = "../examples/decode/dump.rs"]
mod dump;
#[path = "../examples/decode/report.rs"]
mod report;

use std::fmt::Write as _;

use dump::{Words, records};
use proptest::prelude::*;
use report::{Compression, Kind, Options, Queue, report};
use wqe_format::mlx5::*;
use zerocopy::IntoBytes;
use zerocopy::byteorder::big_endian::{U16, U32};

/// An error completion that SPDK users saw (#961).
fn seen() -> [u8; 64] {
    let mut bytes = [0; 64];
    bytes[35] = 0xb3;
    bytes[52..64].copy_from_slice(&[
        0x93, 0, 0x52, 0x04, 0x0a, 0, 0x19, 0xa1, 0xc0, 0x92, 0x1c, 0xd2,
    ]);
    bytes
}

/// Ways to print bytes, and how their words are ordered.
fn prints(bytes: &[u8]) -> Vec<(&'static str, String, Words)> {
    let rows = |row: &dyn Fn(usize, &[u8]) -> String| -> String {
        bytes
            .chunks(16)
            .enumerate()
            .map(|(i, chunk)| row(i * 16, chunk) + "\n")
            .collect()
    };
    let words = |chunk: &[u8], size: usize, prefix: &str, little: bool| -> String {
        let mut out = String::new();
        for word in chunk.chunks(size) {
            let mut word = word.to_vec();
            if little {
                word.reverse();
            }
            let digits: String = word.iter().map(|b| format!("{b:02x}")).collect();
            let _ = write!(out, " {prefix}{digits}");
        }
        out
    };
    let ascii: String = "................".into();
    vec![
        (
            "libmlx5",
            "mlx5: host: got completion with error:\n".to_owned()
                + &rows(&|_, c| words(c, 4, "", false).trim_start().to_owned()),
            Words::Memory,
        ),
        (
            "an old kernel's log",
            rows(&|_, c| {
                "Mar  1 12:00:00 cafe kernel: [   77.123456]".to_owned() + &words(c, 4, "", false)
            }),
            Words::Memory,
        ),
        (
            "a kernel's log",
            rows(&|at, c| format!("[ 1234.567890] {at:08x}:") + &words(c, 1, "", false)),
            Words::Memory,
        ),
        (
            "a kernel's log with a name",
            rows(&|at, c| format!("[ 1234.567890] cqe_dump: {at:08x}:") + &words(c, 1, "", false)),
            Words::Memory,
        ),
        (
            "xxd",
            rows(&|at, c| format!("{at:08x}:{}  {ascii}", words(c, 2, "", false))),
            Words::Memory,
        ),
        (
            "xxd -p",
            rows(&|_, c| words(c, 16, "", false).trim_start().to_owned()),
            Words::Memory,
        ),
        (
            "hexdump -C",
            rows(&|at, c| {
                let (left, right) = c.split_at(8);
                let (left, right) = (words(left, 1, "", false), words(right, 1, "", false));
                format!("{at:08x} {left} {right}  |{ascii}|")
            }) + &format!("{:08x}\n", bytes.len()),
            Words::Memory,
        ),
        (
            "hexdump",
            rows(&|at, c| format!("{at:07x}") + &words(c, 2, "", true))
                + &format!("{:07x}\n", bytes.len()),
            Words::Le16,
        ),
        (
            "od -A x -tx4",
            rows(&|at, c| format!("{at:06x}") + &words(c, 4, "", true))
                + &format!("{:06x}\n", bytes.len()),
            Words::Le32,
        ),
        (
            "gdb x/16xw",
            rows(&|at, c| {
                let tabs = words(c, 4, "0x", true).replace(' ', "\t");
                format!("0x7ffff7fb{at:04x}:{tabs}")
            }),
            Words::Le32,
        ),
        (
            "gdb x/8xg",
            rows(&|at, c| {
                let tabs = words(c, 8, "0x", true).replace(' ', "\t");
                format!("0x7ffff7fb{at:04x} <ring+{at}>:{tabs}")
            }),
            Words::Le64,
        ),
    ]
}

#[test]
fn every_way_of_printing_is_read() {
    let mut bytes: Vec<u8> = (0..64).map(|i: u8| i.wrapping_mul(37)).collect();
    bytes.extend(seen());
    for (name, text, words) in prints(&bytes) {
        let records = records(&text, words).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(records.len(), 1, "{name}: {records:?}");
        assert_eq!(records[0].bytes, bytes, "{name}");
    }
}

/// B48: an error completion is named, with its status and a likely cause.
#[test]
fn an_error_completion_is_explained() {
    for (name, text, words) in prints(&seen()) {
        let options = Options {
            words,
            ..Options::default()
        };
        let words = report(name, &text, options).unwrap();
        for part in [
            "REQ_ERR: local protection error (syndrome 0x04, ibv_wc_status 4, vendor 0x52",
            "qp 0x19a1, user index 0xb3, request SEND, counter 0xc092, owner 0",
            "meaning: The request's buffer is not covered by its local key.",
            "look at: Key, address and length",
        ] {
            assert!(words.contains(part), "{name}: {words}");
        }
    }
}

#[test]
fn rows_that_are_left_out_are_filled_in() {
    let text = "00000000: 0102 0304 0506 0708 090a 0b0c 0d0e 0f10  ................\n*\n00000040: 1122  .\"\n";
    let records = records(text, Words::Memory).unwrap();
    let row: Vec<u8> = (1..=16).collect();
    let mut expected = row.repeat(4);
    expected.extend([0x11, 0x22]);
    assert_eq!(records[0].bytes, expected);
    for (text, what) in [
        (
            "01020304 05060708 090a0b0c 0d0e0f10\n*\n0x40: 00\n",
            "line 3: rows are left out of a dump that has no offsets",
        ),
        (
            "00000010: 01 02\n*\n00000000: 03\n",
            "line 3: the rows that were left out do not fit the offsets",
        ),
        (
            "00000000: 01 02\n*\nffffffff: 03\n",
            "line 3: the rows that were left out do not fit the offsets",
        ),
    ] {
        let error = dump::records(text, Words::Memory).unwrap_err();
        assert_eq!(error.to_string(), what);
    }
}

#[test]
fn dumps_are_told_apart() {
    let rows = "00000000: 01 02\n00000002: 03 04\n";
    let text = format!("first\n{rows}{rows}\nsecond\n{rows}");
    let records = records(&text, Words::Memory).unwrap();
    let lines: Vec<_> = records
        .iter()
        .map(|r| (r.line, r.context.as_str()))
        .collect();
    assert_eq!(lines, [(2, "first"), (4, "first"), (8, "second")]);
    assert!(records.iter().all(|r| r.bytes == [1, 2, 3, 4]));
}

#[test]
fn prose_is_no_dump() {
    let text = "A bad cafe was added to the facade; dead beef was fed.\n12:00:00 00000000 done\n";
    assert_eq!(records(text, Words::Memory).unwrap(), []);
    let error = report("log", text, Options::default()).unwrap_err();
    assert!(error.starts_with("log: no hex dump in it"), "{error}");
}

fn text(bytes: &[u8]) -> String {
    bytes
        .chunks(16)
        .enumerate()
        .map(|(i, chunk)| {
            let row: String = chunk.iter().map(|b| format!(" {b:02x}")).collect();
            format!("{:08x}:{row}\n", i * 16)
        })
        .collect()
}

/// A ring of two requests, the first of two blocks.
#[test]
fn requests_are_walked() {
    let mut bytes = Vec::new();
    let write = CtrlSegment::new(Opcode::RDMA_WRITE, 5, 0x12, 5, CtrlFlags::CQ_UPDATE);
    bytes.extend_from_slice(write.as_bytes());
    bytes.extend_from_slice(RaddrSegment::new(0x1000, 0x99).as_bytes());
    bytes.extend_from_slice(InlineHeader::of_length(44).as_bytes());
    bytes.extend_from_slice(&[7; 44]);
    bytes.resize(128, 0xee);
    let send = CtrlSegment::new(Opcode::SEND, 7, 0x12, 2, CtrlFlags::FENCE);
    bytes.extend_from_slice(send.as_bytes());
    bytes.extend_from_slice(DataSegment::new(0x2000, 64, 0x88).as_bytes());
    let words = report("ring", &text(&bytes), Options::default()).unwrap();
    let inline = "07".repeat(44);
    assert_eq!(
        words,
        format!(
            "ring:1: 160 bytes, send requests\n\
             \x20 0x0000: RDMA_WRITE qp 0x12, block 0x5, ds 5 (80 bytes), flags signaled\n\
             \x20   remote: 0x1000, key 0x99\n\
             \x20   inline: 44 bytes {inline}\n\
             \x20 0x0080: SEND qp 0x12, block 0x7, ds 2 (32 bytes), flags fence\n\
             \x20   data: 64 bytes at 0x2000, key 0x88\n"
        )
    );
    let cut = report("ring", &text(&bytes[..48]), Options::default()).unwrap();
    assert!(cut.contains("cut short: 48 of 80 bytes"), "{cut}");
}

#[test]
fn receives_are_summed() {
    let mut bytes = SrqNextSegment::new(3).as_bytes().to_vec();
    bytes.extend_from_slice(DataSegment::new(0x1000, 100, 7).as_bytes());
    bytes.extend_from_slice(DataSegment::TERMINATOR.as_bytes());
    let options = |kind| Options {
        kind,
        ..Options::default()
    };
    let srq = report("srq", &text(&bytes), options(Kind::Srq)).unwrap();
    assert!(srq.contains("next slot 0x3\n"), "{srq}");
    assert!(srq.ends_with("1 buffers, 100 bytes\n"), "{srq}");
    let recv = report("rq", &text(&bytes[16..]), options(Kind::Recv)).unwrap();
    assert!(recv.ends_with("1 buffers, 100 bytes\n"), "{recv}");
}

fn cqe(opcode: CqeOpcode, format: CqeFormat, bytes: u32) -> Cqe64 {
    Cqe64 {
        byte_cnt: U32::new(bytes),
        wqe_counter: U16::new(9),
        op_own: OpOwn::of(opcode, format, false, true),
        ..Cqe64::default()
    }
}

#[test]
fn compressed_completions_are_expanded() {
    let minis = MiniArray(std::array::from_fn(|i| MiniCqe::hash(0, 100 + i as u32)));
    let mut ring = cqe(CqeOpcode::RESP_SEND, CqeFormat::COMPRESSED, 3)
        .as_bytes()
        .to_vec();
    ring.extend_from_slice(minis.as_bytes());
    ring.extend_from_slice(&[0; 64]);
    ring.extend_from_slice(cqe(CqeOpcode::REQ, CqeFormat::NONE, 5).as_bytes());
    let basic = Options {
        kind: Kind::Cqe,
        ..Options::default()
    };
    let words = report("cq", &text(&ring), basic).unwrap();
    assert!(
        words.contains("[0] compressed block of 3 completions"),
        "{words}"
    );
    for i in 0..3 {
        let line = format!(
            "[{i}] RESP_SEND, qp 0x0, user index 0x0, counter {:#x}, {} bytes",
            9 + i,
            100 + i
        );
        assert!(words.contains(&line), "{words}");
    }
    assert!(words.contains("[3] REQ, request NOP"), "{words}");
    let cut = report("cq", &text(&ring[..64]), basic).unwrap();
    assert!(cut.contains("the dump ends before the other 3"), "{cut}");
    // Enhanced: an ordinary entry, then two mini entries in one.
    let mut ring = cqe(CqeOpcode::RESP_SEND, CqeFormat::NONE, 7)
        .as_bytes()
        .to_vec();
    let mut block = minis.as_bytes().to_vec();
    block[63] = 1 << 4 | 3 << 2;
    ring.extend_from_slice(&block);
    let enhanced = Options {
        compression: Compression::Enhanced,
        ..basic
    };
    let words = report("cq", &text(&ring), enhanced).unwrap();
    assert!(
        words.contains("[1] compressed block of 2 completions"),
        "{words}"
    );
    assert!(
        words.contains("[2] RESP_SEND, qp 0x0, user index 0x0, counter 0xb, 101 bytes"),
        "{words}"
    );
}

#[test]
fn what_is_unknown_is_said_to_be() {
    let words = report("x", &text(&[0xab; 40]), Options::default()).unwrap();
    assert!(words.contains("say what it is with --as"), "{words}");
}

proptest! {
    /// Any text is read without panic; any bytes printed as a dump are said in words of some kind.
    #[test]
    fn any_text_is_read(text in "(([0-9a-f]{1,9}[ :|*x\t]{0,3}){0,8}\n){0,12}", kind in 0usize..6) {
        let kind = [Kind::Auto, Kind::Cqe, Kind::Cqe128, Kind::Wqe, Kind::Recv, Kind::Srq][kind];
        let _ = report("any", &text, Options { kind, ..Options::default() });
    }

    /// Any bytes, of every kind and queue.
    #[test]
    fn any_dump_is_read(bytes in proptest::collection::vec(any::<u8>(), 1..600), kind in 0usize..6, queue in 0usize..5, enhanced: bool) {
        let options = Options {
            kind: [Kind::Auto, Kind::Cqe, Kind::Cqe128, Kind::Wqe, Kind::Recv, Kind::Srq][kind],
            queue: [Queue::Auto, Queue::Rc, Queue::Ud, Queue::Xrc, Queue::Raw][queue],
            compression: if enhanced { Compression::Enhanced } else { Compression::Basic },
            ..Options::default()
        };
        prop_assert!(report("any", &text(&bytes), options).is_ok());
    }
}
