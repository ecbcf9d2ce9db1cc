//! Entries against bytes that a C program made with the kernel's headers.
//!
//! `golden/rxe.txt` is that program's output (`witness.c`) with the headers of Linux 6.12. It is
//! compared with what this crate encodes, and made anew with the installed headers, and with those in
//! `OXVERBS_UAPI_HEADERS=dir[:dir]`, to see that they still say the same. Where headers are too old to know
//! flush and atomic write, those lines are skipped by name.

use std::collections::BTreeMap;
use std::mem::offset_of;
use std::path::{Path, PathBuf};

use test_support::c::{compile_and_run, include_dirs};
use test_support::skip::skip_part;
use wqe_format::rxe::{
    Access, AddressVector, BindMw, Cqe, Datagram, DmaInfo, Flush, Operation, Payload, RecvWqe,
    SendEntry, SendFlags, SendWqe, SendWr, Sge, Transport, WcOpcode, queue,
};
use zerocopy::IntoBytes;
use zerocopy::byteorder::big_endian::U32 as Be32;

const GOLDEN: &str = include_str!("golden/rxe.txt");
const WITNESS: &str = include_str!("witness.c");

const WR_ID: u64 = 0x1122_3344_5566_7788;
const REMOTE: u64 = 0xfedc_ba98_7654_3210;
const RKEY: u32 = 0x9a_bc01;

/// A line of the witness: `name hexbytes`, or `offset`, `size`, `value` with a name and a number.
fn lines(text: &str) -> BTreeMap<&str, &str> {
    text.lines()
        .map(|line| line.rsplit_once(' ').expect("a name and a value"))
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap())
        .collect()
}

fn sges(n: u32) -> Vec<Sge> {
    (0..n)
        .map(|i| Sge {
            addr: 0x7f00_0000_1000 + u64::from(i),
            length: 100 * (i + 1),
            lkey: 0x4200 + i,
        })
        .collect()
}

fn v4(last: u8) -> [u8; 16] {
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, last]
}

fn v6(last: u8) -> [u8; 16] {
    [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]
}

enum Data {
    Sges(u32),
    Inline(&'static [u8]),
    Value([u8; 8]),
    None,
}

struct Case {
    name: &'static str,
    flags: SendFlags,
    operation: Operation,
    datagram: Option<Datagram>,
    data: Data,
}

fn cases() -> Vec<Case> {
    let imm = Be32::new(0x0102_0304);
    let (remote_addr, rkey) = (REMOTE, RKEY);
    let s = SendFlags::SIGNALED;
    let case = |name, flags, operation, data| Case {
        name,
        flags,
        operation,
        datagram: None,
        data,
    };
    let datagram = |name, ah_num, av| Case {
        name,
        flags: s,
        operation: Operation::Send,
        datagram: Some(Datagram {
            remote_qpn: 0x12_3456,
            remote_qkey: 0x1111_1111,
            ah_num,
            av,
        }),
        data: Data::Sges(1),
    };
    let path = |sgid, index, dgid| AddressVector {
        hop_limit: 64,
        ..AddressVector::new(1, &sgid, index, &dgid, [2, 0, 0, 0, 0, 9])
    };
    let access = Access(Access::REMOTE_WRITE.0 | Access::REMOTE_READ.0);
    let bind = BindMw::type_1(0x7f00_0000_2000, 0x1_2345_6789, 0x51, 0x62, access).unwrap();
    let flush = Flush {
        remote_addr,
        length: 4096,
        rkey,
        placement: 2,
        selectivity: 1,
    };
    let swap = Operation::AtomicCmpAndSwp {
        remote_addr,
        rkey,
        compare: 0x1111_1111_2222_2222,
        swap: 0x3333_3333_4444_4444,
    };
    let add = Operation::AtomicFetchAndAdd {
        remote_addr,
        rkey,
        add: 0x1111_1111_2222_2222,
    };
    let send_inv = Operation::SendWithInv { rkey: 0x0102_0304 };
    let local_inv = Operation::LocalInv { rkey: 0x0102_0304 };
    let write = Operation::RdmaWrite { remote_addr, rkey };
    let write_imm = Operation::RdmaWriteWithImm {
        remote_addr,
        rkey,
        imm,
    };
    let read = Operation::RdmaRead { remote_addr, rkey };
    let value = Operation::AtomicWrite { remote_addr, rkey };
    vec![
        case(
            "send",
            s.with(SendFlags::SOLICITED),
            Operation::Send,
            Data::Sges(3),
        ),
        case(
            "send_inline",
            s.with(SendFlags::INLINE),
            Operation::Send,
            Data::Inline(b"inline data"),
        ),
        case(
            "send_imm",
            SendFlags(0),
            Operation::SendWithImm { imm },
            Data::Sges(1),
        ),
        case("send_inv", SendFlags::FENCE, send_inv, Data::Sges(1)),
        case("write", s, write, Data::Sges(2)),
        case("write_imm", s, write_imm, Data::Sges(2)),
        case("read", s, read, Data::Sges(2)),
        case("cmp_swp", s, swap, Data::Sges(1)),
        case("fetch_add", s, add, Data::Sges(1)),
        case("bind_mw", s, Operation::BindMw(bind), Data::None),
        case("local_inv", s, local_inv, Data::None),
        datagram("ud_handle", 7, AddressVector::default()),
        datagram(
            "ud_vector4",
            0,
            AddressVector {
                flow_label: 0x1_2345,
                traffic_class: 0x20,
                ..path(v4(1), 1, v4(2))
            },
        ),
        datagram("ud_vector6", 0, path(v6(1), 0, v6(2))),
        case("flush", s, Operation::Flush(flush), Data::None),
        case("atomic_write", s, value, Data::Value(*b"8 bytes!")),
    ]
}

/// The case in a zeroed entry of 256 bytes.
fn encode(case: &Case) -> Vec<u8> {
    let mut entry = vec![0; 256];
    let mut wr = SendWr::new(WR_ID, case.flags, &case.operation);
    if let Some(datagram) = &case.datagram {
        wr.set_datagram(datagram);
    }
    let (dma, payload) = match case.data {
        Data::None => match case.operation {
            Operation::Flush(flush) => (DmaInfo::new(flush.length, 0), Vec::new()),
            _ => (DmaInfo::default(), Vec::new()),
        },
        Data::Sges(n) => {
            let sges = sges(n);
            let length = sges.iter().map(|sge| sge.length).sum();
            (DmaInfo::new(length, n), sges.as_bytes().to_vec())
        }
        Data::Inline(data) => (DmaInfo::new(data.len() as u32, 0), data.to_vec()),
        Data::Value(value) => (DmaInfo::new(8, 0), value.to_vec()),
    };
    let wqe = SendWqe::new(wr, case.operation.remote_addr(), 0, dma);
    entry[..SendWqe::PAYLOAD].copy_from_slice(wqe.as_bytes());
    entry[SendWqe::PAYLOAD..][..payload.len()].copy_from_slice(&payload);
    entry
}

/// B29, B30, B50: layouts by bytes that C made.
#[test]
fn entries_equal_those_of_the_c_headers() {
    let golden = lines(GOLDEN);
    for case in cases() {
        assert_eq!(hex(&encode(&case)), golden[case.name], "{}", case.name);
    }
    let sges = sges(3);
    let mut recv = RecvWqe::new(WR_ID, DmaInfo::new(600, 3))
        .as_bytes()
        .to_vec();
    recv.extend_from_slice(sges.as_bytes());
    assert_eq!(hex(&recv), golden["recv"]);
}

#[test]
fn the_c_entries_decode_to_what_was_meant() {
    let golden = lines(GOLDEN);
    for case in cases() {
        let bytes = unhex(golden[case.name]);
        let transport = match case.datagram {
            Some(_) => Transport::Ud,
            None => Transport::Rc,
        };
        let decoded = SendEntry::decode(&bytes, transport).unwrap();
        let wr = decoded.wqe.wr;
        assert_eq!((wr.wr_id, wr.flags()), (WR_ID, case.flags), "{}", case.name);
        assert_eq!(decoded.operation, case.operation);
        assert_eq!(decoded.datagram, case.datagram);
        match (case.data, decoded.payload) {
            (Data::Sges(n), Payload::Sges(list)) => {
                assert_eq!(list.iter().collect::<Vec<_>>(), sges(n));
            }
            (Data::Inline(expected), Payload::Inline(bytes)) => assert_eq!(bytes, expected),
            (Data::Value(expected), Payload::Value(value)) => assert_eq!(value, expected),
            (Data::None, Payload::None) => {}
            (_, other) => panic!("{}: {other:?}", case.name),
        }
    }
}

#[test]
fn told_in_words() {
    let golden = lines(GOLDEN);
    let told = |name, transport| {
        SendEntry::decode(&unhex(golden[name]), transport)
            .unwrap()
            .to_string()
    };
    assert_eq!(
        told("write_imm", Transport::Rc),
        "wr_id 0x1122334455667788 RDMA_WRITE_IMM to 0xfedcba9876543210 rkey 0x9abc01 imm \
         0x1020304 flags signaled ssn 0 300 bytes in 2 sge: 0x7f0000001000+0x64 lkey 0x4200, \
         0x7f0000001001+0xc8 lkey 0x4201"
    );
    assert_eq!(
        told("ud_vector4", Transport::Ud),
        "wr_id 0x1122334455667788 SEND flags signaled ssn 0 100 bytes in 1 sge to qp 0x123456 \
         qkey 0x11111111 port 1 mac 02:00:00:00:00:09 gid ::ffff:10.0.0.2: \
         0x7f0000001000+0x64 lkey 0x4200"
    );
    assert!(told("ud_handle", Transport::Ud).contains("qkey 0x11111111 ah 7: "));
    assert!(told("send_inline", Transport::Uc).ends_with(": 11 inline"));
    assert!(told("atomic_write", Transport::Rc).ends_with(": value 0x2173657479622038"));
}

#[test]
fn numbers_equal_those_of_the_c_headers() {
    let golden = lines(GOLDEN);
    let value = |name: &str| -> u64 { golden[format!("value {name}").as_str()].parse().unwrap() };
    let offset =
        |name: &str| -> usize { golden[format!("offset {name}").as_str()].parse().unwrap() };
    for (name, ours) in [
        ("IB_UVERBS_WC_SEND", WcOpcode::SEND.0),
        ("IB_UVERBS_WC_RDMA_WRITE", WcOpcode::RDMA_WRITE.0),
        ("IB_UVERBS_WC_RDMA_READ", WcOpcode::RDMA_READ.0),
        ("IB_UVERBS_WC_COMP_SWAP", WcOpcode::COMP_SWAP.0),
        ("IB_UVERBS_WC_FETCH_ADD", WcOpcode::FETCH_ADD.0),
        ("IB_UVERBS_WC_BIND_MW", WcOpcode::BIND_MW.0),
        ("IB_UVERBS_WC_LOCAL_INV", WcOpcode::LOCAL_INV.0),
        ("IB_UVERBS_WC_FLUSH", WcOpcode::FLUSH.0),
        ("IB_UVERBS_WC_ATOMIC_WRITE", WcOpcode::ATOMIC_WRITE.0),
        ("IB_UVERBS_ACCESS_LOCAL_WRITE", Access::LOCAL_WRITE.0),
        ("IB_UVERBS_ACCESS_REMOTE_WRITE", Access::REMOTE_WRITE.0),
        ("IB_UVERBS_ACCESS_REMOTE_READ", Access::REMOTE_READ.0),
        ("IB_UVERBS_ACCESS_REMOTE_ATOMIC", Access::REMOTE_ATOMIC.0),
        ("IB_UVERBS_ACCESS_MW_BIND", Access::MW_BIND.0),
        ("IB_UVERBS_ACCESS_ZERO_BASED", Access::ZERO_BASED.0),
        ("IB_UVERBS_ACCESS_FLUSH_GLOBAL", Access::FLUSH_GLOBAL.0),
        (
            "IB_UVERBS_ACCESS_FLUSH_PERSISTENT",
            Access::FLUSH_PERSISTENT.0,
        ),
    ] {
        assert_eq!(u64::from(ours), value(name), "{name}");
    }
    for (name, ours) in [
        ("rxe_queue_buf.log2_elem_size", queue::LOG2_ELEM_SIZE),
        ("rxe_queue_buf.index_mask", queue::INDEX_MASK),
        ("rxe_queue_buf.producer_index", queue::PRODUCER_INDEX),
        ("rxe_queue_buf.consumer_index", queue::CONSUMER_INDEX),
        ("rxe_queue_buf.data", queue::DATA),
        ("rxe_send_wqe.dma", offset_of!(SendWqe, dma)),
        ("rxe_recv_wqe.dma", offset_of!(RecvWqe, dma)),
        ("ib_uverbs_wc.wr_id", offset_of!(Cqe, wr_id)),
        ("ib_uverbs_wc.status", offset_of!(Cqe, raw_status)),
        ("ib_uverbs_wc.opcode", offset_of!(Cqe, raw_opcode)),
        ("ib_uverbs_wc.vendor_err", offset_of!(Cqe, vendor_err)),
        ("ib_uverbs_wc.byte_len", offset_of!(Cqe, byte_len)),
        ("ib_uverbs_wc.ex", offset_of!(Cqe, ex)),
        ("ib_uverbs_wc.qp_num", offset_of!(Cqe, qp_num)),
        ("ib_uverbs_wc.src_qp", offset_of!(Cqe, src_qp)),
        ("ib_uverbs_wc.wc_flags", offset_of!(Cqe, raw_flags)),
        ("ib_uverbs_wc.pkey_index", offset_of!(Cqe, pkey_index)),
        ("ib_uverbs_wc.slid", offset_of!(Cqe, slid)),
        ("ib_uverbs_wc.sl", offset_of!(Cqe, sl)),
        (
            "ib_uverbs_wc.dlid_path_bits",
            offset_of!(Cqe, dlid_path_bits),
        ),
        ("ib_uverbs_wc.port_num", offset_of!(Cqe, port_num)),
    ] {
        assert_eq!(ours, offset(name), "{name}");
    }
    let size = |name: &str| -> usize { golden[format!("size {name}").as_str()].parse().unwrap() };
    for (name, ours) in [
        ("rxe_av", size_of::<AddressVector>()),
        ("rxe_sge", size_of::<Sge>()),
        ("rxe_dma_info", size_of::<DmaInfo>()),
        ("rxe_send_wqe", size_of::<SendWqe>()),
        ("rxe_recv_wqe", size_of::<RecvWqe>()),
        ("ib_uverbs_wc", size_of::<Cqe>()),
    ] {
        assert_eq!(ours, size(name), "{name}");
    }
}

/// Set this to write `golden/rxe.txt` from the first tree of `OXVERBS_UAPI_HEADERS`.
const REGENERATE: &str = "OXVERBS_REGENERATE_GOLDEN";

/// B29: the layouts are those of the headers that are installed.
#[test]
fn installed_headers_still_make_the_golden_bytes() {
    let mut trees = vec![PathBuf::from("/usr/include")];
    trees.extend(include_dirs("OXVERBS_UAPI_HEADERS"));
    for (number, tree) in trees.iter().enumerate() {
        let header = std::fs::read_to_string(tree.join("rdma/rdma_user_rxe.h"))
            .unwrap_or_else(|e| panic!("{}: {e}; install linux-libc-dev", tree.display()));
        let knows_flush = header.contains("atomic_wr");
        let define = if knows_flush {
            "#define HAVE_FLUSH\n"
        } else {
            ""
        };
        let include: &[&Path] = if number == 0 { &[] } else { &[tree] };
        let made = compile_and_run(&format!("{define}{WITNESS}"), include)
            .unwrap_or_else(|e| panic!("{}: {e}", tree.display()));
        if number == 1 && std::env::var_os(REGENERATE).is_some() {
            assert!(knows_flush, "too old to make the golden file from");
            let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/rxe.txt");
            std::fs::write(golden, &made).unwrap();
            continue;
        }
        let (made, golden) = (lines(&made), lines(GOLDEN));
        let mut absent = Vec::new();
        for (name, expected) in &golden {
            match made.get(name) {
                Some(bytes) => assert_eq!(bytes, expected, "{name} in {}", tree.display()),
                None => absent.push(*name),
            }
        }
        if knows_flush {
            assert!(
                absent.is_empty(),
                "{absent:?} not made by {}",
                tree.display()
            );
        } else {
            let release = linux_version(tree);
            skip_part(
                &format!("wqe-format::headers::{release}"),
                &format!("flush and atomic write are not in headers of Linux {release}"),
            );
        }
    }
}

/// `6.1` of a header tree.
fn linux_version(tree: &Path) -> String {
    let text = std::fs::read_to_string(tree.join("linux/version.h")).unwrap_or_default();
    let number = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(&format!("#define {name} ")))
            .unwrap_or("?")
            .to_owned()
    };
    format!(
        "{}.{}",
        number("LINUX_VERSION_MAJOR"),
        number("LINUX_VERSION_PATCHLEVEL")
    )
}
