//! mlx5 segments against bytes that a C program made with rdma-core's headers, and completions seen in the field.
//!
//! `golden/mlx5.txt` is the output of `witness_mlx5.c` with the headers of rdma-core 56. It is compared with what this crate
//! encodes, and made anew with the installed `mlx5dv.h` and with the source trees in `OXVERBS_RDMA_CORE_SRC=dir[:dir]`.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::Path;

use test_support::c::{compile_and_run, include_dirs};
use test_support::skip::skip_part;
use wqe_format::mlx5::*;
use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes};

const GOLDEN: &str = include_str!("golden/mlx5.txt");
const WITNESS: &str = include_str!("witness_mlx5.c");

const REMOTE: u64 = 0xfedc_ba98_7654_3210;
const RKEY: u32 = 0x9a_bc01;

fn lines(text: &str) -> BTreeMap<&str, &str> {
    text.lines()
        .map(|line| line.split_once(' ').expect("a name and bytes"))
        .collect()
}

fn hex(value: &(impl IntoBytes + Immutable + ?Sized)) -> String {
    value
        .as_bytes()
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect()
}

fn datagram() -> DatagramSegment {
    let mut rgid = [0; 16];
    (rgid[0], rgid[1], rgid[15]) = (0xfe, 0x80, 1);
    DatagramSegment {
        rmac: [2, 0, 0, 0, 0, 9],
        rgid,
        ..DatagramSegment::default()
    }
}

fn cqe() -> Cqe64 {
    Cqe64 {
        ml_path: 0x83,
        slid: U16::new(0x0102),
        flags_rqpn: FlagsRqpn::new().with_grh(1).with_sl(5).with_rqpn(0xfe_dcba),
        hds_ip_ext: HdsIpExt::new().with_l3_ok(true).with_l4_ok(true),
        l4_hdr_type_etc: HeaderTypes::new().with_l3(L3_IPV4).with_vlan_stripped(true),
        vlan_info: U16::new(0x6123),
        srqn_uidx: U32::new(0xab_cdef),
        imm_inval_pkey: U32::new(0x0102_0304),
        app: 1,
        app_op: 2,
        app_info: U16::new(0x0304),
        byte_cnt: U32::new(0x0102_0304),
        timestamp: U64::new(0x1122_3344_5566_7788),
        sop_drop_qpn: SopDropQpn::new().with_sop(0x10).with_qpn(0x80_0001),
        wqe_counter: U16::new(0xfffe),
        signature: 0x5a,
        op_own: OpOwn::of(CqeOpcode::RESP_SEND_IMM, CqeFormat::INLINE_64, true, true),
        ..Cqe64::default()
    }
}

/// What this crate says, under the witness' names.
fn ours() -> BTreeMap<&'static str, String> {
    let send = CtrlSegment::new(Opcode::SEND, 0xfffe, 0x80_0001, 3, CtrlFlags::CQ_UPDATE);
    let all_flags = CtrlFlags::CQ_UPDATE
        .with(CtrlFlags::SOLICITED)
        .with(CtrlFlags::FENCE);
    let cqe = cqe();
    BTreeMap::from([
        ("ctrl_send", hex(&send)),
        ("doorbell_send", hex(&send.doorbell().to_ne_bytes())),
        (
            "ctrl_write_imm",
            hex(
                &CtrlSegment::new(Opcode::RDMA_WRITE_IMM, 0x0102, 0xab_cdef, 63, all_flags)
                    .with_signature(0x5a)
                    .with_imm(U32::new(0x0102_0304)),
            ),
        ),
        (
            "ctrl_mmo",
            hex(
                &CtrlSegment::new(Opcode::MMO, 7, 0x12, 4, CtrlFlags::SMALL_FENCE)
                    .with_opmod(opmod::MMO_DMA),
            ),
        ),
        (
            "ctrl_send_inv_stream",
            hex(
                &CtrlSegment::new(Opcode::SEND_INVAL, 1, 0x34, 1, CtrlFlags::NONE)
                    .with_dci_stream(0x1234)
                    .with_imm(U32::new(RKEY)),
            ),
        ),
        ("raddr", hex(&RaddrSegment::new(REMOTE, RKEY))),
        (
            "atomic_cas",
            hex(&AtomicSegment::compare_swap(
                0x1111_1111_2222_2222,
                0x3333_3333_4444_4444,
            )),
        ),
        ("atomic_add", hex(&AtomicSegment::fetch_add(u64::MAX))),
        (
            "datagram_dc",
            hex(&DatagramSegment {
                stat_rate_sl: StatRateSl::new().with_stat_rate(5).with_sl(0xa),
                fl_mlid: 0x81,
                rlid: U16::new(0xc123),
                tclass: 0x20,
                hop_limit: 64,
                grh_gid_fl: GrhGidFl::new()
                    .with_grh(true)
                    .with_sgid_index(3)
                    .with_flow_label(0x1_2345),
                ..datagram()
            }
            .to_dct(0xfe_dcba, 0x1122_3344_5566_7788)),
        ),
        (
            "datagram_ud",
            hex(&DatagramSegment {
                stat_rate_sl: StatRateSl::new().with_sl(5 << 1),
                rlid: U16::new(0xf0b5),
                hop_limit: 255,
                grh_gid_fl: GrhGidFl::new().with_sgid_index(1).with_flow_label(0xf_ffff),
                ..datagram()
            }
            .to_qp(0x12_3456, 0x8001_0000)),
        ),
        (
            "eth",
            hex(&EthSegment {
                inline_hdr_start: [1, 2],
                inline_hdr: std::array::from_fn(|i| i as u8 + 3),
                ..EthSegment::new(ChecksumFlags::L3_AND_L4, 1460, EthSegment::L2_HEADER)
            }),
        ),
        (
            "data",
            hex(&DataSegment::new(0x7f00_0000_1000, 0x4000_0000, 0x4201)),
        ),
        ("data_terminator", hex(&DataSegment::TERMINATOR)),
        ("inline", hex(&InlineHeader::of_length(44))),
        ("srq_next", hex(&SrqNextSegment::new(0x0102))),
        (
            "umr_ctrl",
            hex(&UmrCtrlSegment::new(
                UmrFlags::INLINE.with(UmrFlags::CHECK_QPN),
                4,
                MkeyMask::LEN
                    .with(MkeyMask::START_ADDR)
                    .with(MkeyMask::MKEY)
                    .with(MkeyMask::FREE),
            )),
        ),
        (
            "mkey_context",
            hex(&MkeyContextSegment::new(
                MkeyAccess::REMOTE_WRITE.with(MkeyAccess::LOCAL_READ),
                0xab_cdef,
                0x1234_567f,
                0x7f00_0000_2000,
                0x1_2345_6789,
            )),
        ),
        ("mkey_context_free", hex(&MkeyContextSegment::FREED)),
        ("klm", hex(&KlmSegment::new(0x7f00_0000_2000, 4096, 0x51))),
        ("repeat_block", hex(&RepeatBlockSegment::new(12, 100, 2))),
        (
            "repeat_entry",
            hex(&RepeatEntrySegment::new(0x7f00_0000_3000, 8, 64, 0x62)),
        ),
        ("cqe", hex(&cqe)),
        ("cqe_opcode", hex(&cqe.opcode().0)),
        ("cqe_format", hex(&cqe.format().0)),
        ("cqe_se", hex(&u8::from(cqe.op_own.solicited()))),
        ("cqe_owner", hex(&u8::from(cqe.op_own.owner()))),
        ("private_xrc", hex(&XrcSegment::new(0x12_3456))),
        (
            "private_masked_cas",
            hex(&MaskedAtomic8Segment::new(2, 4, 1, 3)),
        ),
        ("private_mmo", hex(&MmoSegment::new(0x7f00_0000_2000, 0x51))),
        (
            "private_set_psv",
            hex(&SetPsvSegment {
                psv_index: U32::new(0x12_3456),
                syndrome: U16::new(0x0102),
                transient_signature: U64::new(0x1122_3344_5566_7788),
                ..SetPsvSegment::default()
            }),
        ),
    ])
}

/// B52: the bytes are those of the C headers, whatever the host's byte order.
#[test]
fn segments_equal_those_of_the_c_headers() {
    let (ours, golden) = (ours(), lines(GOLDEN));
    assert_eq!(
        ours.keys().collect::<Vec<_>>(),
        golden.keys().collect::<Vec<_>>()
    );
    for (name, bytes) in golden {
        assert_eq!(ours[name], bytes, "{name}");
    }
}

/// Set this to write `golden/mlx5.txt` from the first tree of `OXVERBS_RDMA_CORE_SRC`.
const REGENERATE: &str = "OXVERBS_REGENERATE_GOLDEN";

#[test]
fn headers_still_make_the_golden_bytes() {
    let golden = lines(GOLDEN);
    if Path::new("/usr/include/infiniband/mlx5dv.h").exists() {
        let made = compile_and_run(WITNESS, &[]).unwrap_or_else(|e| panic!("{e}"));
        let made = lines(&made);
        for (name, bytes) in golden
            .iter()
            .filter(|(name, _)| !name.starts_with("private_"))
        {
            assert_eq!(made.get(name), Some(bytes), "{name}");
        }
    } else {
        skip_part(
            "wqe-format::mlx5dv::golden",
            "libibverbs-dev is not installed",
        );
    }
    let trees = include_dirs("OXVERBS_RDMA_CORE_SRC");
    if trees.is_empty() {
        skip_part(
            "wqe-format::mlx5_golden::wqe.h",
            "OXVERBS_RDMA_CORE_SRC names no source tree of rdma-core (cargo xtask test downloads them)",
        );
    }
    for (number, tree) in trees.iter().enumerate() {
        let include = tempfile::tempdir().unwrap();
        symlink(tree.join("libibverbs"), include.path().join("infiniband")).unwrap();
        let made = compile_and_run(
            &format!("#define WITH_WQE_H\n{WITNESS}"),
            &[&tree.join("providers/mlx5"), include.path()],
        )
        .unwrap_or_else(|e| panic!("{}: {e}", tree.display()));
        if number == 0 && std::env::var_os(REGENERATE).is_some() {
            let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/mlx5.txt");
            std::fs::write(golden, &made).unwrap();
            continue;
        }
        assert_eq!(lines(&made), golden, "{}", tree.display());
    }
}

/// An error completion seen in the field: zero but for these fields.
struct Seen {
    from: &'static str,
    uidx: u32,
    hw: u8,
    vendor: u8,
    syndrome: u8,
    opcode: u8,
    qpn: u32,
    counter: u16,
    signature: u8,
    op_own: u8,
    status: u32,
}

const SEEN: [Seen; 6] = [
    seen(
        "SPDK #961",
        0xb3,
        0x93,
        0x52,
        0x04,
        0x0a,
        0x19a1,
        0xc092,
        0x1c,
        0xd2,
        4,
    ),
    seen(
        "Open MPI #1241",
        0,
        0,
        0x88,
        0x13,
        0x11,
        0x8_18b2,
        0,
        0x01,
        0xd0,
        10,
    ),
    seen(
        "libfabric #4283",
        2,
        0,
        0x88,
        0x13,
        0x10,
        0x1_2abe,
        0x0dd0,
        0xc1,
        0xd3,
        10,
    ),
    seen(
        "an MPI cluster",
        0xb9,
        0,
        0x88,
        0x13,
        0x10,
        0x76ab,
        0x8a,
        0xe4,
        0xd3,
        10,
    ),
    seen(
        "a RoCE laboratory",
        0,
        0,
        0x87,
        0x16,
        0x0a,
        0x1f8e,
        0,
        0x27,
        0xd2,
        13,
    ),
    seen(
        "warp17 #81",
        0x13,
        0x9d,
        0x53,
        0x04,
        0x0a,
        0x1542,
        0x19,
        0xb0,
        0xd2,
        4,
    ),
];

#[allow(clippy::too_many_arguments)]
const fn seen(
    from: &'static str,
    uidx: u32,
    hw: u8,
    vendor: u8,
    syndrome: u8,
    opcode: u8,
    qpn: u32,
    counter: u16,
    signature: u8,
    op_own: u8,
    status: u32,
) -> Seen {
    Seen {
        from,
        uidx,
        hw,
        vendor,
        syndrome,
        opcode,
        qpn,
        counter,
        signature,
        op_own,
        status,
    }
}

impl Seen {
    fn bytes(&self) -> [u8; 64] {
        let mut bytes = [0; 64];
        if self.from.starts_with("warp17") {
            bytes[1..5].copy_from_slice(b"text");
        }
        bytes[32..36].copy_from_slice(&self.uidx.to_be_bytes());
        bytes[52] = self.hw;
        bytes[54] = self.vendor;
        bytes[55] = self.syndrome;
        bytes[56..60].copy_from_slice(&(u32::from(self.opcode) << 24 | self.qpn).to_be_bytes());
        bytes[60..62].copy_from_slice(&self.counter.to_be_bytes());
        bytes[62] = self.signature;
        bytes[63] = self.op_own;
        bytes
    }
}

/// B33, B48: error completions that users printed.
#[test]
fn error_completions_seen_in_the_field() {
    for seen in &SEEN {
        let cqe = Cqe64::read_from_bytes(&seen.bytes()).unwrap();
        let from = seen.from;
        let error = cqe
            .error()
            .unwrap_or_else(|| panic!("{from}: not an error"));
        assert_eq!(cqe.opcode(), CqeOpcode::REQ_ERR, "{from}");
        assert_eq!(cqe.wc_status(), Some(seen.status), "{from}");
        assert_eq!(error.syndrome, Syndrome(seen.syndrome), "{from}");
        assert_eq!(error.vendor_err_synd, seen.vendor, "{from}");
        assert_eq!(error.hw_error_syndrome, seen.hw, "{from}");
        assert_eq!(cqe.user_index(), seen.uidx, "{from}");
        assert_eq!(cqe.qpn(), seen.qpn, "{from}");
        assert_eq!(cqe.send_opcode(), Opcode(seen.opcode), "{from}");
        assert_eq!(cqe.wqe_counter.get(), seen.counter, "{from}");
        // Bits 3 to 1 are format and solicited: 0xd2 is owner 0, 0xd3 owner 1.
        let owner = seen.op_own & 1 != 0;
        for (index, log_size) in [(0, 0), (5, 2), (5, 3), (8, 3), (u32::MAX, 16)] {
            let turn = index >> log_size & 1 != 0;
            assert_eq!(
                cqe.op_own.is_software_owned(index, log_size),
                turn == owner,
                "{from} at {index} of 2^{log_size}"
            );
        }
    }
}

/// B48: every syndrome has the status of libmlx5's table; what it does not know is a general error.
#[test]
fn syndromes_have_their_status() {
    let known = [
        (0x01, 1),
        (0x02, 2),
        (0x04, 4),
        (0x05, 5),
        (0x06, 6),
        (0x10, 7),
        (0x11, 8),
        (0x12, 9),
        (0x13, 10),
        (0x14, 11),
        (0x15, 12),
        (0x16, 13),
        (0x22, 16),
    ];
    for byte in 0..=u8::MAX {
        let status = known
            .iter()
            .find(|(syndrome, _)| *syndrome == byte)
            .map_or(21, |(_, status)| *status);
        assert_eq!(Syndrome(byte).wc_status(), status, "{byte:#x}");
        assert_eq!(Syndrome(byte).name().is_some(), status != 21, "{byte:#x}");
    }
}

/// B33: a fresh ring is nobody's completion, whatever the turn.
#[test]
fn fresh_rings_hold_nothing() {
    for log_size in [1, 2, 16] {
        for index in [
            0,
            1,
            (1 << log_size) - 1,
            1 << log_size,
            2 << log_size,
            u32::MAX,
        ] {
            for low in 0..16 {
                let op_own = OpOwn::from_bits(0xf0 | low);
                assert!(!op_own.is_software_owned(index, log_size));
            }
            let op_own = OpOwn::of(
                CqeOpcode::REQ,
                CqeFormat::NONE,
                false,
                index >> log_size & 1 != 0,
            );
            assert!(op_own.is_software_owned(index, log_size));
        }
    }
}

/// B34: where data stand in an entry of 128 bytes.
#[test]
fn scattered_data_of_long_entries() {
    let with = |format| {
        let mut bytes: [u8; 128] = std::array::from_fn(|i| i as u8);
        bytes[127] = OpOwn::of(CqeOpcode::REQ, format, false, false).into_bits();
        Cqe128::read_from_bytes(&bytes).unwrap()
    };
    let range = |from: u8, to: u8| (from..to).collect::<Vec<u8>>();
    assert_eq!(with(CqeFormat::NONE).inline(), None);
    assert_eq!(with(CqeFormat::COMPRESSED).inline(), None);
    assert_eq!(
        with(CqeFormat::INLINE_32).inline(),
        Some(&range(64, 96)[..])
    );
    assert_eq!(
        with(CqeFormat::INLINE_32).cqe.inline_32()[..],
        range(64, 96)
    );
    assert_eq!(with(CqeFormat::INLINE_64).inline(), Some(&range(0, 64)[..]));
}

/// B58: an aborted receive whose memory was not there is told from other aborts.
#[test]
fn page_faults_are_told_from_aborts() {
    let error = |syndrome, vendor_err_synd| ErrorCqe {
        syndrome,
        vendor_err_synd,
        ..ErrorCqe::default()
    };
    assert!(error(Syndrome::REMOTE_ABORTED_ERR, 0x93).is_odp_page_fault());
    assert!(!error(Syndrome::REMOTE_ABORTED_ERR, 0x92).is_odp_page_fault());
    assert!(!error(Syndrome::WR_FLUSH_ERR, 0x93).is_odp_page_fault());
}

/// B13: the signature covers `ds` units and not a byte more.
#[test]
fn signatures_cover_the_request() {
    let mut wqe = [0u8; 64];
    let ctrl = CtrlSegment::new(Opcode::RDMA_WRITE, 1, 0x00_abcd, 3, CtrlFlags::CQ_UPDATE);
    wqe[..16].copy_from_slice(ctrl.as_bytes());
    wqe[16..32].copy_from_slice(RaddrSegment::new(REMOTE, RKEY).as_bytes());
    wqe[32..48].copy_from_slice(DataSegment::new(0x1000, 100, 0x51).as_bytes());
    let signature = signature::of_wqe(&wqe);
    wqe[48] ^= 0xff;
    assert_eq!(signature::of_wqe(&wqe), signature, "a byte behind it");
    wqe[47] ^= 1;
    assert_ne!(signature::of_wqe(&wqe), signature, "its last byte");
    wqe[47] ^= 1;
    wqe[8] = signature;
    let xor = wqe[..48].iter().fold(0, |xor, byte| xor ^ byte);
    assert_eq!(xor, 0xff);
    // A receive: segment, number and slot.
    let recv = [1u8, 2, 3];
    let parts = [1u8 ^ 2 ^ 3, 0xab ^ 0xcd, 0x01 ^ 0x02].map(|xor| !xor);
    assert_eq!(
        signature::of_recv(&recv, 0xabcd, 0x0102),
        parts[0] ^ parts[1] ^ parts[2]
    );
}

/// B43: words of arming, and B10: counts wrap.
#[test]
fn doorbell_words() {
    let arm =
        |sequence, solicited, index| u32::from_be(doorbell::arm_word(sequence, solicited, index));
    assert_eq!(arm(0, false, 0), 0);
    assert_eq!(arm(1, true, 0x1234), 0x1100_1234);
    assert_eq!(arm(7, false, 0xff12_3456), 0x3012_3456);
    assert_eq!(
        doorbell::cq_doorbell(2, true, 0x1_0000, 0x42).to_ne_bytes(),
        [0x21, 1, 0, 0, 0, 0, 0, 0x42]
    );
    assert_eq!(
        doorbell::queue_record(0x1_fffe).to_ne_bytes(),
        [0, 0, 0xff, 0xfe]
    );
    assert_eq!(
        doorbell::cq_consumer(0xff00_0001).to_ne_bytes(),
        [0, 0, 0, 1]
    );
}
