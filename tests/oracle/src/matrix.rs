//! The completion matrix: every kind of entry that a device writes, polled by libmlx5 and by ours, field by field.

use anyhow::Result;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde::Serialize;
use wqe_format::mlx5::{Cqe64, CqeFormat, CqeOpcode, OpOwn, SopDropQpn};

use crate::c::device::QpSpec;
use crate::call::{Api, Bind, Opcode, Piece, Post, Service, Wr, flags};
use crate::compare::Findings;
use crate::direct::More;
use crate::shape::blocks;
use crate::subject::{Completing, Completion};

/// Services that the matrix is about: connected ones share what is done with a completion.
pub const SERVICES: [Service; 3] = [Service::Rc, Service::Ud, Service::Raw];

/// The queue pair that completions are about.
pub const SPEC: QpSpec = QpSpec {
    service: Service::Rc,
    send_wr: 16,
    recv_wr: 16,
    send_sge: 3,
    recv_sge: 3,
    inline: 0,
    tso_header: 0,
    signals_all: false,
    has_builder: false,
};

/// Debian's libmlx5 44 and 56 read the data of a READ or atomic inside a 128-byte entry from the wrong place (fixed upstream
/// by rdma-core 45184d2c8).
pub const WIDE_SCATTER: &str = "data of sends inside 128-byte entries";

/// Syndromes of mlx5dv.h, and some that are none.
const SYNDROMES: [u8; 16] = [
    0x01, 0x02, 0x04, 0x05, 0x06, 0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x22, 0x00, 0x07, 0x7f,
];

/// Bytes of each of the three buffers that data are scattered to.
const BUFFER: usize = 24;

/// One entry and what it is about.
#[derive(Clone, Debug)]
struct Entry {
    name: String,
    /// `None`: a receive.
    send: Option<Opcode>,
    cqe: Cqe64,
    before: [u8; 64],
    /// Data inside the entry.
    data: Vec<u8>,
}

fn entries(rng: &mut StdRng, wide: bool) -> Vec<Entry> {
    let mut all = Vec::new();
    let mut add = |rng: &mut StdRng,
                   name: String,
                   send: Option<Opcode>,
                   kind,
                   format,
                   syndrome: Option<u8>| {
        let room = match format {
            CqeFormat::INLINE_32 => 32,
            CqeFormat::INLINE_64 => 64,
            _ => 0,
        };
        let mut bytes = [0_u8; 64];
        rng.fill(&mut bytes[..]);
        let mut before = [0_u8; 64];
        rng.fill(&mut before[..]);
        let mut cqe: Cqe64 = zerocopy::transmute!(bytes);
        let len = match send {
            Some(Opcode::CompareSwap | Opcode::FetchAdd) => 8,
            _ if room > 0 => rng.random_range(1..=room),
            _ => rng.random_range(0..3 * BUFFER as u32),
        };
        cqe.byte_cnt = len.into();
        // 1 is tag matching.
        cqe.app = 0;
        if let Some(syndrome) = syndrome {
            let mut bytes: [u8; 64] = zerocopy::transmute!(cqe);
            bytes[55] = syndrome;
            cqe = zerocopy::transmute!(bytes);
        }
        cqe.op_own = OpOwn::of(kind, format, rng.random(), false);
        let bytes: [u8; 64] = zerocopy::transmute!(cqe);
        let data = match room {
            32 => bytes[..len as usize].to_vec(),
            64 => before[..len as usize].to_vec(),
            _ => Vec::new(),
        };
        all.push(Entry {
            name,
            send,
            cqe,
            before,
            data,
        });
    };
    for opcode in Service::Rc.opcodes() {
        let name = format!("{opcode:?}");
        add(
            rng,
            name,
            Some(*opcode),
            CqeOpcode::REQ,
            CqeFormat::NONE,
            None,
        );
    }
    let mut formats = vec![CqeFormat::INLINE_32];
    if wide {
        formats.push(CqeFormat::INLINE_64);
    }
    for format in formats {
        for opcode in [Opcode::Read, Opcode::CompareSwap, Opcode::FetchAdd] {
            let name = format!("{opcode:?} with data inside ({})", format.0);
            add(rng, name, Some(opcode), CqeOpcode::REQ, format, None);
        }
        let name = format!("receive with data inside ({})", format.0);
        add(rng, name, None, CqeOpcode::RESP_SEND, format, None);
    }
    for kind in [
        CqeOpcode::RESP_SEND,
        CqeOpcode::RESP_SEND_IMM,
        CqeOpcode::RESP_SEND_INV,
        CqeOpcode::RESP_WR_IMM,
    ] {
        add(
            rng,
            format!("receive of kind {}", kind.0),
            None,
            kind,
            CqeFormat::NONE,
            None,
        );
    }
    for syndrome in SYNDROMES {
        let name = format!("failed send, syndrome {syndrome:#x}");
        let kind = CqeOpcode::REQ_ERR;
        add(
            rng,
            name,
            Some(Opcode::Write),
            kind,
            CqeFormat::NONE,
            Some(syndrome),
        );
        let name = format!("failed receive, syndrome {syndrome:#x}");
        let kind = CqeOpcode::RESP_ERR;
        add(rng, name, None, kind, CqeFormat::NONE, Some(syndrome));
    }
    all
}

/// What a device finds in the headers of packets: every combination of the marks for right checksums and of the protocol, of
/// which one alone makes `IBV_WC_IP_CSUM_OK`, and that only where the device checks.
fn packets(rng: &mut StdRng) -> Vec<Entry> {
    let kinds = [CqeOpcode::RESP_SEND, CqeOpcode::RESP_SEND_IMM];
    let marks = (0..8_u8).flat_map(|marks| (0..4_u8).map(move |protocol| (marks, protocol)));
    let marks = kinds
        .into_iter()
        .flat_map(|kind| marks.clone().map(move |marks| (kind, marks)));
    marks
        .map(|(kind, (marks, protocol))| {
            let mut bytes = [0_u8; 64];
            rng.fill(&mut bytes[..]);
            // hds_ip_ext and l4_hdr_type_etc of mlx5dv.h.
            bytes[28] = bytes[28] & !7 | marks;
            bytes[29] = bytes[29] & !0xc | protocol << 2;
            let mut cqe: Cqe64 = zerocopy::transmute!(bytes);
            cqe.byte_cnt = rng.random_range(0..3 * BUFFER as u32).into();
            // 1 is tag matching.
            cqe.app = 0;
            cqe.op_own = OpOwn::of(kind, CqeFormat::NONE, rng.random(), false);
            Entry {
                name: format!(
                    "packet of kind {}, marks {marks:#x}, protocol {protocol}",
                    kind.0
                ),
                send: None,
                cqe,
                before: [0; 64],
                data: Vec::new(),
            }
        })
        .collect()
}

/// One implementation with its own buffers.
struct Side<'a> {
    subject: &'a mut dyn Completing,
    buffers: Vec<u8>,
    position: u32,
    received: u16,
}

impl Side<'_> {
    fn pieces(&mut self) -> Vec<Piece> {
        let start = self.buffers.as_mut_ptr().expose_provenance() as u64;
        // Not in the order of memory, and with a gap between.
        [2, 0, 1]
            .map(|place| Piece {
                address: start + place * (BUFFER as u64 + 8),
                len: BUFFER as u32,
                lkey: 0x77,
            })
            .to_vec()
    }

    /// Posts what the entry is about, writes it, polls it.
    fn complete(&mut self, entry: &Entry, id: u64, poison: u8) -> (Option<Completion>, Vec<u8>) {
        self.buffers.fill(poison);
        let mut pieces = self.pieces();
        let counter = match entry.send {
            None => {
                self.subject.receive(id, &pieces);
                self.received = self.received.wrapping_add(1);
                self.received.wrapping_sub(1)
            }
            Some(opcode) => {
                if opcode.is_atomic() {
                    pieces.truncate(1);
                    pieces[0].len = 8;
                }
                if !opcode.has_data() {
                    pieces.clear();
                }
                let wr = request(id, opcode, pieces);
                let size = blocks(Service::Rc, &wr);
                let post = Post {
                    api: Api::Chain,
                    wrs: vec![wr],
                    aborts: false,
                };
                let outcome = self.subject.post(&post);
                assert_eq!(outcome.errno, 0, "{}: {outcome:?}", entry.name);
                let counter = self.position as u16;
                self.position += size;
                counter
            }
        };
        let memory = self.subject.memory();
        let operation = entry.send.map_or(0, Opcode::device);
        let mut cqe = entry.cqe;
        cqe.srqn_uidx = memory.user_index.into();
        cqe.sop_drop_qpn = SopDropQpn::from_bits((u32::from(operation) << 24 | memory.qpn).into());
        cqe.wqe_counter = counter.into();
        self.subject.write(&entry.before, cqe);
        (self.subject.poll(poison), self.buffers.clone())
    }
}

fn request(id: u64, opcode: Opcode, pieces: Vec<Piece>) -> Wr {
    Wr {
        id,
        opcode,
        flags: flags::SIGNALED,
        is_inline: false,
        pieces,
        uses_list: true,
        address_first: true,
        remote: 0x1000,
        rkey: 0x55,
        imm: 0,
        compare_add: 1,
        swap: 2,
        handle: 0,
        remote_qpn: 0,
        remote_qkey: 0,
        srqn: 0,
        bind: Bind {
            is_type_2: true,
            window_rkey: 0x11,
            mr_lkey: 0x22,
            address: 0x3000,
            len: 0x1000,
            access: 2,
        },
        header: Piece {
            address: 0,
            len: 0,
            lkey: 0,
        },
        mss: 0,
        more: More::default(),
    }
}

/// The fields that both polls of libmlx5, into different poisons, agree on.
pub fn differs<T: Serialize>(theirs: &[T; 2], ours: &T) -> Option<String> {
    let [one, other] = theirs
        .each_ref()
        .map(|seen| serde_json::to_value(seen).ok());
    let ours_value = serde_json::to_value(ours).ok()?;
    let (one, other) = (one?, other?);
    let fields = one.as_object()?.keys();
    let wrong: Vec<String> = fields
        .filter(|field| one[*field] == other[*field] && one[*field] != ours_value[*field])
        .map(|field| {
            format!(
                "{field}: libmlx5 {}, ours {}",
                one[field], ours_value[field]
            )
        })
        .collect();
    (!wrong.is_empty()).then(|| wrong.join("; "))
}

/// Runs the matrix `rounds` times with different numbers in the fields.
///
/// # Errors
///
/// A queue pair cannot be brought to its first state.
pub fn run(
    witness: &mut dyn Completing,
    subject: &mut dyn Completing,
    wide: bool,
    rounds: u64,
    seed: u64,
) -> Result<Findings> {
    let mut findings = Findings::default();
    let service = witness.spec().service;
    let is_libmlx5 = subject.name() == witness.name();
    witness.restart()?;
    subject.restart()?;
    let side = |subject| Side {
        subject,
        buffers: vec![0; 3 * (BUFFER + 8)],
        position: 0,
        received: 0,
    };
    let (mut theirs, mut ours) = (side(witness), side(subject));
    let mut rng = StdRng::seed_from_u64(seed);
    for round in 0..rounds {
        let entries = match service {
            Service::Rc => entries(&mut rng, wide),
            _ => packets(&mut rng),
        };
        for entry in entries {
            let id = rng.random();
            let one = theirs.complete(&entry, id, 0xee);
            let other = theirs.complete(&entry, id, 0x11);
            let mine = ours.complete(&entry, id, 0xee);
            let mine_other = ours.complete(&entry, id, 0x11);
            findings.completions += 2;
            let (Some(one_wc), Some(other_wc), Some(our_wc), Some(_)) =
                (one.0, other.0, mine.0, mine_other.0)
            else {
                findings.differ(format!("no completion: {}", entry.name), || {
                    format!(
                        "round {round}: libmlx5 {:?} {:?}, ours {:?} {:?}; {:?}",
                        one.0.is_some(),
                        other.0.is_some(),
                        mine.0.is_some(),
                        mine_other.0.is_some(),
                        entry.cqe
                    )
                });
                continue;
            };
            if let Some(text) = differs(&[one_wc, other_wc], &our_wc) {
                findings.differ(format!("completion: {}", entry.name), || {
                    format!("round {round}: {text}")
                });
            }
            // Where the data must be, worked out apart from both.
            let mut expected = vec![0xee; mine.1.len()];
            let mut left = &entry.data[..];
            for place in [2, 0, 1] {
                let n = left.len().min(BUFFER);
                expected[place * (BUFFER + 8)..][..n].copy_from_slice(&left[..n]);
                left = &left[n..];
            }
            if !is_libmlx5 && mine.1 != expected {
                findings.differ(format!("data: {}", entry.name), || {
                    format!("expected {expected:02x?}\n    ours {:02x?}", mine.1)
                });
            }
            if one.1 != expected {
                if wide && entry.send.is_some() {
                    *findings.divergences.entry(WIDE_SCATTER).or_default() += 1;
                } else {
                    findings.differ(format!("data by libmlx5: {}", entry.name), || {
                        format!("expected {expected:02x?}\n    libmlx5 {:02x?}", one.1)
                    });
                }
            }
        }
    }
    Ok(findings)
}
