//! Compressed completions: what a model device writes into a ring is read back, by our expander and by two models of public
//! parsers (the way DPDK steps from one array to the next, and the way UCX does). UCX itself, from Debian's packages in
//! `OXVERBS_UCX=dir[:dir]`, expands the same rings.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use proptest::prelude::*;
use test_support::c::{compile, include_dirs};
use test_support::skip::skip;
use wqe_format::mlx5::compressed::{BadBlock, Block, Layout, Title, is_valid_enhanced};
use wqe_format::mlx5::*;
use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, IntoBytes};

const FORMATS: [MiniFormat; 5] = [
    MiniFormat::HASH,
    MiniFormat::CSUM,
    MiniFormat::FTAG_STRIDX,
    MiniFormat::CSUM_STRIDX,
    MiniFormat::L34H_STRIDX,
];

/// A ring of entries in memory.
struct Ring {
    entries: Vec<[u8; 64]>,
    log_size: u32,
}

impl Ring {
    fn new(log_size: u32) -> Self {
        let mut fresh = [0xee; 64];
        fresh[63] = OpOwn::INVALID.into_bits();
        Self {
            entries: vec![fresh; 1 << log_size],
            log_size,
        }
    }

    fn slot(&mut self, index: u32) -> &mut [u8; 64] {
        let mask = (1 << self.log_size) - 1;
        &mut self.entries[(index & mask) as usize]
    }

    fn read<T: FromBytes>(&mut self, index: u32) -> T {
        T::read_from_bytes(self.slot(index).as_slice()).unwrap()
    }

    fn turn(&self, index: u32) -> u32 {
        index >> self.log_size
    }

    /// Writes a block of basic compression, as the manual draws it: title, then arrays behind it at 1, 8, 16, ….
    fn write_basic(&mut self, index: u32, completions: &[Completion]) {
        let mut title = completions[0].template;
        title.byte_cnt = U32::new(completions.len() as u32);
        title.wqe_counter = U16::new(completions[0].counter);
        title.op_own = OpOwn::of(
            title.opcode(),
            CqeFormat::COMPRESSED,
            title.op_own.solicited(),
            self.turn(index) & 1 != 0,
        );
        *self.slot(index) = title.as_bytes().try_into().unwrap();
        for (nth, chunk) in completions.chunks(8).enumerate() {
            let at = if nth == 0 { 1 } else { nth as u32 * 8 };
            let slot = self.slot(index.wrapping_add(at));
            for (i, completion) in chunk.iter().enumerate() {
                slot[i * 8..][..8].copy_from_slice(completion.mini().as_bytes());
            }
        }
    }

    /// Writes a block of enhanced compression.
    fn write_enhanced(&mut self, index: u32, completions: &[Completion]) {
        let turn = self.turn(index);
        let slot = self.slot(index);
        for (i, completion) in completions.iter().enumerate() {
            slot[i * 8..][..8].copy_from_slice(completion.mini().as_bytes());
        }
        slot[62] = turn as u8;
        slot[63] = (completions.len() as u8 - 1) << 4 | 3 << 2 | (turn & 1) as u8;
    }
}

/// What one completion of a block says.
#[derive(Clone, Debug)]
struct Completion {
    /// What all of the block share.
    template: Cqe64,
    format: MiniFormat,
    counter: u16,
    bytes: u32,
    opcode: u8,
    value: u32,
}

impl Completion {
    fn mini(&self) -> MiniCqe {
        if self.template.opcode() == CqeOpcode::REQ {
            return MiniCqe::send(self.counter, self.opcode, self.bytes);
        }
        match self.format {
            MiniFormat::HASH => MiniCqe::hash(self.value, self.bytes),
            MiniFormat::CSUM => MiniCqe::checksum(self.value as u16, 0, self.bytes),
            MiniFormat::CSUM_STRIDX => {
                MiniCqe::checksum(self.value as u16, self.counter, self.bytes)
            }
            MiniFormat::FTAG_STRIDX => MiniCqe::flow_tag(self.value, self.counter, self.bytes),
            _ => MiniCqe::header_types(self.value as u8, self.counter, self.bytes),
        }
    }

    /// The entry that the device would have written without compression.
    fn plain(&self, turn: u32, layout: Layout) -> Cqe64 {
        let mut cqe = self.template;
        cqe.byte_cnt = U32::new(self.bytes);
        cqe.wqe_counter = U16::new(self.counter);
        if cqe.opcode() == CqeOpcode::REQ {
            cqe.sop_drop_qpn = cqe.sop_drop_qpn.with_sop(self.opcode);
        } else {
            match self.format {
                MiniFormat::HASH => cqe.rx_hash_result = U32::new(self.value),
                MiniFormat::CSUM | MiniFormat::CSUM_STRIDX => {
                    cqe.check_sum = U16::new(self.value as u16);
                }
                MiniFormat::FTAG_STRIDX => {
                    cqe.byte_cnt = U32::new(self.bytes & 0xff_ffff);
                    cqe.sop_drop_qpn = cqe.sop_drop_qpn.with_qpn(self.value & 0xff_ffff);
                }
                _ => cqe.l4_hdr_type_etc = HeaderTypes::from_bits(self.value as u8),
            }
        }
        cqe.op_own = cqe.op_own.with_raw_format(0).with_owner(turn & 1 != 0);
        if layout == Layout::Enhanced {
            cqe.signature = turn as u8;
        }
        cqe
    }
}

/// `n` completions, numbered from `counter`; `seed` varies the rest.
fn completions(
    opcode: CqeOpcode,
    format: MiniFormat,
    counter: u16,
    n: u32,
    seed: u32,
) -> Vec<Completion> {
    let template = Cqe64 {
        flags_rqpn: FlagsRqpn::new().with_rqpn(0xab_cdef),
        srqn_uidx: U32::new(0x12_3456),
        timestamp: U64::new(0x1122_3344_5566_7788),
        sop_drop_qpn: SopDropQpn::new().with_sop(0xa).with_qpn(0x80_0001),
        op_own: OpOwn::of(opcode, CqeFormat::NONE, seed & 1 != 0, false),
        ..Cqe64::default()
    };
    (0..n)
        .map(|i| {
            let mixed = (seed ^ i).wrapping_mul(0x9e37_79b9);
            Completion {
                template,
                format,
                // Sends may skip: only one in so many is signaled. Receives without stride index follow each other.
                counter: if opcode == CqeOpcode::REQ || format.has_stride_index() {
                    counter.wrapping_add((i * 3) as u16)
                } else {
                    counter.wrapping_add(i as u16)
                },
                bytes: mixed,
                opcode: [0x0a, 0x08, 0x10][i as usize % 3],
                value: mixed.rotate_left(7),
            }
        })
        .collect()
}

fn plain(completions: &[Completion], ring: &Ring, index: u32, layout: Layout) -> Vec<Cqe64> {
    completions
        .iter()
        .zip(index..)
        .map(|(completion, index)| completion.plain(ring.turn(index), layout))
        .collect()
}

const OPCODES: [CqeOpcode; 5] = [
    CqeOpcode::REQ,
    CqeOpcode::RESP_WR_IMM,
    CqeOpcode::RESP_SEND,
    CqeOpcode::RESP_SEND_IMM,
    CqeOpcode::RESP_SEND_INV,
];

/// B42: blocks of every length, format and kind, across the ring's end.
#[test]
fn basic_blocks_expand_to_what_was_compressed() {
    for n in [1, 2, 7, 8, 9, 15, 16, 17, 63, 64] {
        for format in FORMATS {
            for opcode in OPCODES {
                for index in [0, 1, 60, 63, 64, 127, 0xff_ffff] {
                    let mut ring = Ring::new(6);
                    let sent = completions(opcode, format, 0xfffe, n, index);
                    ring.write_basic(index, &sent);
                    let title: Cqe64 = ring.read(index);
                    assert!(title.op_own.is_software_owned(index, 6));
                    assert_eq!(title.format(), CqeFormat::COMPRESSED);
                    let block = Block::basic(&title, index, 6, format).unwrap();
                    assert_eq!(block.count(), n);
                    let expected = plain(&sent, &ring, index, Layout::Basic);
                    let got: Vec<Cqe64> = block.expand(|at| ring.read(at)).collect();
                    assert_eq!(got, expected, "{n} {format:?} {opcode:?} at {index}");
                }
            }
        }
    }
}

/// B42: one title, several enhanced blocks; counters go on.
#[test]
fn enhanced_blocks_expand_to_what_was_compressed() {
    for lengths in [&[1][..], &[7], &[7, 7, 3], &[2, 1, 7]] {
        for format in FORMATS {
            for opcode in OPCODES {
                for index in [0u32, 61, 64 * 255 + 60, 64 * 256] {
                    let mut ring = Ring::new(6);
                    let total: u32 = 1 + lengths.iter().sum::<u32>();
                    let sent = completions(opcode, format, 0xfffd, total, index);
                    let expected = plain(&sent, &ring, index, Layout::Enhanced);
                    *ring.slot(index) = expected[0].as_bytes().try_into().unwrap();
                    let (mut at, mut rest) = (index + 1, &sent[1..]);
                    for n in lengths {
                        let (block, tail) = rest.split_at(*n as usize);
                        ring.write_enhanced(at, block);
                        (at, rest) = (at + n, tail);
                    }
                    let mut got = vec![ring.read::<Cqe64>(index)];
                    let mut title = Title::new(&got[0], Layout::Enhanced, format).unwrap();
                    let mut at = index + 1;
                    for n in lengths {
                        let entry: Cqe64 = ring.read(at);
                        assert!(is_valid_enhanced(entry.signature, entry.op_own, at, 6));
                        assert!(!is_valid_enhanced(
                            entry.signature,
                            entry.op_own,
                            at + 64,
                            6
                        ));
                        let mut block = Block::enhanced(Some(title), entry.op_own, at, 6).unwrap();
                        assert_eq!(block.count(), *n);
                        while let Some(array) = block.array_index() {
                            assert_eq!(array, at);
                            let array = ring.read(array);
                            got.push(block.next(&array).unwrap());
                        }
                        title = block.title();
                        at = block.consumer_index();
                    }
                    assert_eq!(
                        got, expected,
                        "{lengths:?} {format:?} {opcode:?} at {index}"
                    );
                }
            }
        }
    }
}

/// B42: polling one at a time, and a copy of the state in mid-block (as a resize or clean takes it), give the same.
#[test]
fn a_block_can_be_left_and_taken_up() {
    let mut ring = Ring::new(5);
    let sent = completions(CqeOpcode::RESP_SEND, MiniFormat::CSUM, 0xfff0, 19, 5);
    ring.write_basic(30, &sent);
    let expected = plain(&sent, &ring, 30, Layout::Basic);
    let mut block = Block::basic(&ring.read(30), 30, 5, MiniFormat::CSUM).unwrap();
    for i in 0..19 {
        assert_eq!(block.remaining(), 19 - i as u32);
        assert_eq!(block.consumer_index(), 30 + i as u32);
        let rest: Vec<Cqe64> = block.expand(|at| ring.read(at)).collect();
        assert_eq!(rest, expected[i..]);
        let array = ring.read(block.array_index().unwrap());
        assert_eq!(block.next(&array), Some(expected[i]));
    }
    assert_eq!(block.array_index(), None);
    assert_eq!(block.next(&MiniArray::default()), None);
    assert_eq!(block.consumer_index(), 49);
}

/// B42: the ring entry of the mini entries, against the steps of DPDK (7 after the first array, 8 after the others) and of
/// UCX (a new array where the index modulo 8 becomes 0, at the entry of that index).
#[test]
fn arrays_stand_where_public_parsers_look() {
    for count in 1..=200u32 {
        let title = Cqe64 {
            byte_cnt: U32::new(count),
            op_own: OpOwn::of(CqeOpcode::RESP_SEND, CqeFormat::COMPRESSED, false, false),
            ..Cqe64::default()
        };
        let start = 1000;
        let mut block = Block::basic(&title, start, 8, MiniFormat::HASH).unwrap();
        let (mut dpdk, mut dpdk_next) = (start + 1, start + 1 + 7);
        let mut ucx = start + 1;
        for i in 0..count {
            if i > 0 && i % 8 == 0 {
                (dpdk, dpdk_next) = (dpdk_next, dpdk_next + 8);
                ucx = start + i;
            }
            assert_eq!(block.array_index(), Some(dpdk), "{i} of {count}");
            assert_eq!(block.array_index(), Some(ucx), "{i} of {count}");
            block.next(&MiniArray::default()).unwrap();
        }
    }
}

/// B42: what is no block is refused.
#[test]
fn impossible_blocks_are_refused() {
    let title = |opcode, count| Cqe64 {
        byte_cnt: U32::new(count),
        op_own: OpOwn::of(opcode, CqeFormat::COMPRESSED, false, false),
        ..Cqe64::default()
    };
    let basic = |opcode, count| {
        Block::basic(&title(opcode, count), 3, 4, MiniFormat::HASH).map(|block| block.count())
    };
    assert_eq!(basic(CqeOpcode::RESP_SEND, 16), Ok(16));
    assert_eq!(basic(CqeOpcode::RESP_SEND, 17), Err(BadBlock::Count(17)));
    assert_eq!(basic(CqeOpcode::RESP_SEND, 0), Err(BadBlock::Count(0)));
    assert_eq!(
        basic(CqeOpcode::REQ, u32::MAX),
        Err(BadBlock::Count(u32::MAX))
    );
    for opcode in [5, 6, 12, 13, 14, 15].map(CqeOpcode) {
        assert_eq!(basic(opcode, 2), Err(BadBlock::Title(opcode)));
    }
    let enhanced = |title, bits| {
        Block::enhanced(title, OpOwn::from_bits(bits), 3, 4).map(|block| block.count())
    };
    let good = Title::new(
        &title(CqeOpcode::REQ, 0),
        Layout::Enhanced,
        MiniFormat::HASH,
    )
    .unwrap();
    assert_eq!(enhanced(Some(good), 0x6c), Ok(7));
    assert_eq!(enhanced(Some(good), 0x7c), Err(BadBlock::Count(8)));
    assert_eq!(enhanced(None, 0x0c), Err(BadBlock::NoTitle));
    assert_eq!(
        BadBlock::Count(17).to_string(),
        "a compressed block of 17 completions"
    );
}

/// The formats that mlx5dv can ask for.
#[test]
fn formats_of_mlx5dv() {
    assert_eq!(MiniFormat::from_mlx5dv(1), Some(MiniFormat::HASH));
    assert_eq!(MiniFormat::from_mlx5dv(2), Some(MiniFormat::CSUM));
    assert_eq!(MiniFormat::from_mlx5dv(4), Some(MiniFormat::CSUM_STRIDX));
    for bad in [0, 3, 5, 8, u32::MAX] {
        assert_eq!(MiniFormat::from_mlx5dv(bad), None);
    }
}

proptest! {
    /// Any bytes: no panic, no more completions than the ring has entries, and only indices that a ring can have.
    #[test]
    fn any_bytes_expand_within_bounds(
        title in prop::array::uniform32(any::<[u8; 2]>()),
        array in prop::array::uniform32(any::<[u8; 2]>()),
        index: u32,
        log_size in 0u32..=24,
        format: u8,
        small in prop::option::of(0u32..100),
    ) {
        let mut title = Cqe64::read_from_bytes(title.as_bytes()).unwrap();
        if let Some(count) = small {
            title.byte_cnt = U32::new(count);
        }
        let array = MiniArray::read_from_bytes(array.as_bytes()).unwrap();
        let format = MiniFormat(format);
        if let Ok(block) = Block::basic(&title, index, log_size, format) {
            prop_assert!(block.count() >= 1 && block.count() <= 1 << log_size);
            let mut reads = 0;
            let seen = block
                .expand(|at| {
                    assert!(at.wrapping_sub(index) <= block.count().max(1));
                    reads += 1;
                    array
                })
                .take(1000)
                .count() as u32;
            prop_assert_eq!(seen, block.count().min(1000));
            prop_assert_eq!(reads, seen.div_ceil(8));
        }
        let base = Title::new(&title, Layout::Enhanced, format).ok();
        if let Ok(block) = Block::enhanced(base, title.op_own, index, log_size) {
            let seen = block.expand(|at| { assert_eq!(at, index); array }).count() as u32;
            prop_assert_eq!(seen, block.count());
            prop_assert!(seen <= Block::ENHANCED_MAX);
        }
    }
}

/// A case for UCX: a ring, where its title is, how many blocks follow, and what our expander makes of it.
struct Case {
    ring: Ring,
    index: u32,
    blocks: usize,
    ours: Vec<Cqe64>,
}

/// What UCX makes of each case. `library` is the name of its transport in the tree.
fn ucx(tree: &Path, library: &str, cases: &[Case]) -> Vec<Vec<Cqe64>> {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("witness");
    compile(include_str!("witness_ucx.c"), &program).unwrap_or_else(|e| panic!("{e}"));
    let input = dir.path().join("input");
    let mut text = String::new();
    for case in cases {
        writeln!(
            text,
            "{} {} {}",
            case.ring.log_size, case.index, case.blocks
        )
        .unwrap();
        for entry in &case.ring.entries {
            let line: String = entry.iter().map(|b| format!("{b:02x}")).collect();
            writeln!(text, "{line}").unwrap();
        }
    }
    std::fs::write(&input, text).unwrap();
    let libraries = tree.join("usr/lib/x86_64-linux-gnu");
    let path = format!("{0}:{0}/ucx", libraries.display());
    let output = Command::new(libraries.join("ld-linux-x86-64.so.2"))
        .args(["--library-path", &path])
        .arg(&program)
        .arg(library)
        .stdin(std::fs::File::open(&input).unwrap())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}: {output:?}", tree.display());
    let output = String::from_utf8(output.stdout).unwrap();
    let entry = |line: &str| {
        let bytes: Vec<u8> = (0..64)
            .map(|i| u8::from_str_radix(&line[i * 2..][..2], 16).unwrap())
            .collect();
        Cqe64::read_from_bytes(&bytes).unwrap()
    };
    let mut all: Vec<Vec<Cqe64>> = output
        .split("\n\n")
        .map(|case| case.lines().map(entry).collect())
        .collect();
    all.pop();
    all
}

/// UCX leaves hash, checksum, turn and owner as the title has them.
fn as_ucx_sees_it(cqe: &Cqe64) -> Cqe64 {
    Cqe64 {
        rx_hash_result: U32::ZERO,
        check_sum: U16::ZERO,
        signature: 0,
        op_own: cqe.op_own.with_owner(false),
        ..*cqe
    }
}

fn compare_with_ucx(tree: &Path, library: &str, cases: &[Case]) {
    let theirs = ucx(tree, library, cases);
    assert_eq!(theirs.len(), cases.len());
    for (theirs, case) in theirs.iter().zip(cases) {
        let theirs: Vec<_> = theirs.iter().map(as_ucx_sees_it).collect();
        let ours: Vec<_> = case.ours.iter().map(as_ucx_sees_it).collect();
        assert_eq!(theirs, ours, "{library}, title at {}", case.index);
    }
}

/// Indices at the start, at the ring's end and where the turn's number wraps, of a ring of 64.
const INDICES: [u32; 5] = [0, 1, 61, 63, 64 * 256 - 3];

fn basic_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (opcode, format, index) in variants() {
        for n in 1..=64 {
            let mut ring = Ring::new(6);
            ring.write_basic(index, &completions(opcode, format, 0xfff0, n, index ^ n));
            let block = Block::basic(&ring.read(index), index, 6, format).unwrap();
            let ours = block.expand(|at| ring.read(at)).collect();
            cases.push(Case {
                ring,
                index,
                blocks: 1,
                ours,
            });
        }
    }
    cases
}

fn enhanced_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (opcode, format, index) in variants() {
        for lengths in [&[1u32][..], &[7], &[2, 5], &[7, 7, 7], &[1, 1, 6, 7]] {
            let mut ring = Ring::new(6);
            let n = 1 + lengths.iter().sum::<u32>();
            let sent = completions(opcode, format, 0xfff0, n, index);
            let first = plain(&sent[..1], &ring, index, Layout::Enhanced)[0];
            *ring.slot(index) = first.as_bytes().try_into().unwrap();
            let mut title = Title::new(&first, Layout::Enhanced, format).unwrap();
            let (mut at, mut rest) = (index + 1, &sent[1..]);
            let mut ours = Vec::new();
            for n in lengths {
                let (block, tail) = rest.split_at(*n as usize);
                ring.write_enhanced(at, block);
                let entry: Cqe64 = ring.read(at);
                let block = Block::enhanced(Some(title), entry.op_own, at, 6).unwrap();
                ours.extend(block.expand(|at| ring.read(at)));
                let mut after = block;
                while after.next(&ring.read(at)).is_some() {}
                title = after.title();
                (at, rest) = (at + n, tail);
            }
            cases.push(Case {
                ring,
                index,
                blocks: lengths.len(),
                ours,
            });
        }
    }
    cases
}

/// Kinds and formats that UCX reads: it does not know strides.
fn variants() -> impl Iterator<Item = (CqeOpcode, MiniFormat, u32)> {
    let formats = [MiniFormat::HASH, MiniFormat::CSUM];
    OPCODES.into_iter().flat_map(move |opcode| {
        formats
            .into_iter()
            .flat_map(move |format| INDICES.map(|index| (opcode, format, index)))
    })
}

/// B42: UCX, which reads compressed completions on real devices, expands our rings as we do: 1.13 the basic layout, later
/// releases the enhanced one.
#[test]
fn ucx_expands_the_same() {
    let trees = include_dirs("OXVERBS_UCX");
    if trees.is_empty() {
        return skip(
            "wqe-format::ucx",
            "OXVERBS_UCX names no tree with UCX in it (cargo xtask test downloads them)",
        );
    }
    for tree in trees {
        let ucx = tree.join("usr/lib/x86_64-linux-gnu/ucx");
        if ucx.join("libuct_ib_mlx5.so.0").exists() {
            compare_with_ucx(&tree, "libuct_ib_mlx5.so.0", &enhanced_cases());
        } else {
            compare_with_ucx(&tree, "libuct_ib.so.0", &basic_cases());
        }
    }
}
