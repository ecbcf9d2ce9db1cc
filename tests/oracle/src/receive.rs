//! Receive work requests: bytes of the ring and the doorbell record, beside libmlx5's.

use anyhow::Result;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use wqe_format::mlx5::{Cqe64, CqeFormat, CqeOpcode, OpOwn, SopDropQpn};

use crate::call::{Outcome, Piece};
use crate::campaign::POISONS;
use crate::compare::Findings;
use crate::subject::Completing;

/// One receive: the caller's number and its scatter list.
pub type Receive = (u64, Vec<Piece>);

/// What a call left: what it returned, the entries, the receive word of the doorbell record, stray entries.
type Left = (Outcome, Vec<u8>, u32, Vec<usize>);

/// Calls of one run.
fn script(rng: &mut StdRng, room: u32, max_sge: u32, wanted: u64) -> Vec<Vec<Receive>> {
    let mut calls = Vec::new();
    let mut made = 0;
    while made < wanted {
        let most = room.min(20);
        let n = match rng.random_range(0..4) {
            0 | 1 => 1,
            2 => rng.random_range(1..=most),
            _ => most,
        };
        let mut list: Vec<Receive> = (0..n)
            .map(|_| {
                let pieces = match rng.random_range(0..4) {
                    0 => max_sge,
                    1 => 0,
                    _ => rng.random_range(0..=max_sge),
                };
                let pieces = (0..pieces)
                    .map(|_| Piece {
                        address: rng.random(),
                        len: if rng.random_ratio(1, 6) {
                            0
                        } else {
                            rng.random::<u32>() >> 1
                        },
                        lkey: rng.random(),
                    })
                    .collect();
                (rng.random(), pieces)
            })
            .collect();
        if rng.random_ratio(1, 20) {
            // Refused: one piece too many.
            let piece = Piece {
                address: 0,
                len: 1,
                lkey: 0,
            };
            let at = rng.random_range(0..list.len());
            list[at].1 = vec![piece; max_sge as usize + 1];
        }
        made += u64::from(n);
        calls.push(list);
    }
    calls
}

/// Posts all, completing everything after each call.
fn pass(subject: &mut dyn Completing, calls: &[Vec<Receive>], poison: u8) -> Result<Vec<Left>> {
    subject.restart()?;
    let memory = subject.recv_memory()?;
    let entries = memory.ring.len() / memory.entry;
    let numbers = subject.memory();
    let mut head = 0;
    let mut lefts = Vec::new();
    for call in calls {
        memory.ring.fill(poison);
        let outcome = subject.post_receives(call);
        let posted = outcome.refused.unwrap_or(call.len());
        let ring = memory.ring.copy();
        let mut bytes = Vec::new();
        let mut is_ours = vec![false; entries];
        for index in head..head + posted {
            let place = index % entries;
            is_ours[place] = true;
            bytes.extend_from_slice(&ring[place * memory.entry..][..memory.entry]);
        }
        let strays = match outcome.refused {
            Some(_) => Vec::new(),
            None => (0..entries)
                .filter(|place| !is_ours[*place])
                .filter(|place| {
                    let entry = &ring[place * memory.entry..][..memory.entry];
                    entry.iter().any(|byte| *byte != poison)
                })
                .collect(),
        };
        lefts.push((outcome, bytes, memory.record.word(0), strays));
        for index in head..head + posted {
            let cqe = Cqe64 {
                srqn_uidx: numbers.user_index.into(),
                byte_cnt: 0.into(),
                sop_drop_qpn: SopDropQpn::from_bits(numbers.qpn.into()),
                wqe_counter: (index as u16).into(),
                op_own: OpOwn::of(CqeOpcode::RESP_SEND, CqeFormat::NONE, false, false),
                ..Cqe64::default()
            };
            subject.write(&[], cqe);
            subject.poll(0);
        }
        head += posted;
    }
    Ok(lefts)
}

/// Compares a run of about `wanted` receives.
///
/// # Errors
///
/// A queue pair cannot be brought to its first state.
pub fn run(
    witness: &mut dyn Completing,
    subject: &mut dyn Completing,
    wanted: u64,
    seed: u64,
) -> Result<Findings> {
    let mut rng = StdRng::seed_from_u64(seed);
    let spec = witness.spec();
    let calls = script(&mut rng, spec.recv_wr, spec.recv_sge, wanted);
    let mut findings = Findings::default();
    let theirs = [
        pass(witness, &calls, POISONS[0])?,
        pass(witness, &calls, POISONS[1])?,
    ];
    let ours = [
        pass(subject, &calls, POISONS[0])?,
        pass(subject, &calls, POISONS[1])?,
    ];
    for (number, call) in calls.iter().enumerate() {
        let ((one, other), (our, our_other)) = (
            (&theirs[0][number], &theirs[1][number]),
            (&ours[0][number], &ours[1][number]),
        );
        findings.calls += 1;
        findings.wqes += one.0.refused.unwrap_or(call.len()) as u64;
        if one.0 != our.0 || one.2 != our.2 {
            findings.differ(
                "receive: what the call returns, or doorbell record".into(),
                || format!("libmlx5 {:?} {}, ours {:?} {}", one.0, one.2, our.0, our.2),
            );
            break;
        }
        let wrong = (0..one.1.len()).any(|at| {
            one.1[at] == other.1[at] && (our.1[at] != one.1[at] || our_other.1[at] != one.1[at])
        });
        findings.written += one.1.iter().zip(&other.1).filter(|(a, b)| a == b).count() as u64;
        if wrong || our.3 != one.3 {
            findings.differ("receive: entries".into(), || {
                format!(
                    "{call:?}\n    libmlx5 {:02x?}\n    ours {:02x?}",
                    one.1, our.1
                )
            });
        }
    }
    Ok(findings)
}
