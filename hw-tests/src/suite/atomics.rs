//! Atomics: values in the host's order, alignment, length, and that they are atomic.

use super::{Need, Suite};
use crate::check::{Check, OrSkip, deviates, ensure, equal, fail, post_refused};
use crate::fixture::{Env, LONG, Pair, Setup};
use crate::verbs::types::*;

const ATOMICS: &[Need] = &[Need::Atomics];

pub(super) fn cases(suite: &mut Suite) {
    for (name, before, add) in [
        ("1+1", 1, 1),
        ("wraps", 1, u64::MAX),
        ("zero", 7, 0),
        ("high_bytes", 0x0102_0304_0506_0708, 0x1000_0000_0000_0000),
    ] {
        suite.case(
            format!("atomic/fetch_add/{name}[B50]"),
            ATOMICS,
            move |env| {
                one(env, before, before.wrapping_add(add), move |remote| {
                    Op::FetchAdd { remote, add }
                })
            },
        );
    }
    for (name, before, compare, after) in [
        ("equal", 5, 5, 9),
        ("unequal", 5, 6, 5),
        (
            "equal_high_bytes",
            0x8877_6655_4433_2211,
            0x8877_6655_4433_2211,
            9,
        ),
        (
            "unequal_in_one_byte",
            0x8877_6655_4433_2211,
            0x0877_6655_4433_2211,
            0x8877_6655_4433_2211,
        ),
    ] {
        suite.case(
            format!("atomic/compare_swap/{name}[B50]"),
            ATOMICS,
            move |env| {
                one(env, before, after, move |remote| Op::CompareSwap {
                    remote,
                    compare,
                    swap: 9,
                })
            },
        );
    }
    for offset in [1_u64, 2, 4, 7] {
        for (name, swap) in [("fetch_add", false), ("compare_swap", true)] {
            suite.case(
                format!("atomic/{name}/unaligned+{offset}[B50]"),
                ATOMICS,
                move |env| unaligned(env, offset, swap),
            );
        }
    }
    suite.case("atomic/fetch_add/entry_of_16_bytes[B50]", ATOMICS, |env| {
        entry_of(env, 16)
    });
    suite.case("atomic/fetch_add/entry_of_7_bytes[B50]", ATOMICS, |env| {
        let pair = Pair::connected(env, &Setup::new(Transport::Rc))?;
        let (a, b) = (&pair.a, &pair.b);
        b.set_word(0, 1)?;
        let add = Op::FetchAdd {
            remote: b.remote(0),
            add: 1,
        };
        match a.post(SendWr::new(1, add, [a.sge(0, 7)])) {
            Err(post) => post_refused("the request", Err(post), 0, &[libc::EINVAL]),
            Ok(()) => {
                let wc = a.v.wait(a.send_cq, 1, LONG)?;
                ensure("a completion", !wc.is_empty())?;
                match wc.iter().any(|wc| wc.status == Status::SUCCESS) {
                    true => deviates(
                        "an atomic's answer is 8 bytes, whatever the entry says (rdma-core \
                         providers/mlx5/qp.c, set_data_ptr_seg_atomic)",
                    ),
                    false => Ok(()),
                }
            }
        }
    });
    suite.slow_case(60, "atomic/two_pairs_on_one_word", ATOMICS, two_pairs);
    suite.case(
        "atomic/queue_of_reads_and_atomics",
        ATOMICS,
        many_outstanding,
    );
    suite.case("atomic/write/value", &[Need::AtomicWrite], |env| {
        let pair = Pair::connected(env, &Setup::new(Transport::Rc))?;
        let (a, b) = (&pair.a, &pair.b);
        b.set_word(8, 1)?;
        let value = 0x1122_3344_5566_7788;
        let op = Op::AtomicWrite(b.remote(8), value);
        a.post(SendWr::new(1, op, []))
            .or_skip("ATOMIC_WRITE in this API")?;
        let got = a.sent(&[(1, Status::SUCCESS)])?;
        equal("opcode", got[0].opcode, wc_op::ATOMIC_WRITE)?;
        equal("word", b.word(8)?, value)
    });
    suite.case("atomic/write/unaligned", &[Need::AtomicWrite], |env| {
        let pair = Pair::connected(env, &Setup::new(Transport::Rc))?;
        let (a, b) = (&pair.a, &pair.b);
        b.fill(0, 64, 1)?;
        match a.post(SendWr::new(1, Op::AtomicWrite(b.remote(4), 5), [])) {
            Err(post) if post.fault.unsupported() => {
                Err(post).or_skip("ATOMIC_WRITE in this API")?;
            }
            Err(post) => post_refused("the request", Err(post), 0, &[libc::EINVAL])?,
            Ok(()) => {
                a.sent_one(1, &[Status::REM_INV_REQ_ERR, Status::REM_ACCESS_ERR])?;
            }
        }
        b.expect(0, 64, 1)
    });
    for (name, kind, level) in [
        ("range", 1_u8, 0_u8),
        ("region", 1, 1),
        ("persistent", 2, 0),
    ] {
        suite.case(format!("flush_op/{name}"), &[Need::Flush], move |env| {
            flush_operation(env, kind, level)
        });
    }
}

fn one(env: &Env, before: u64, after: u64, op: impl Fn(Remote) -> Op) -> Check {
    let pair = Pair::connected(env, &Setup::new(Transport::Rc))?;
    let (a, b) = (&pair.a, &pair.b);
    for (offset, value) in [(0, 0xaaaa), (8, before), (16, 0xbbbb)] {
        b.set_word(offset, value)?;
        a.set_word(offset, !value)?;
    }
    a.post(SendWr::new(1, op(b.remote(8)), [a.sge(8, 8)]))?;
    let got = a.sent(&[(1, Status::SUCCESS)])?;
    let opcode = match op(b.remote(8)) {
        Op::FetchAdd { .. } => wc_op::FETCH_ADD,
        _ => wc_op::COMP_SWAP,
    };
    equal("opcode", got[0].opcode, opcode)?;
    equal("byte_len", got[0].byte_len, 8)?;
    equal("word returned", a.word(8)?, before)?;
    equal("word there", b.word(8)?, after)?;
    for (side, turn) in [(a, !0), (b, 0)] {
        equal("word in front", side.word(0)?, 0xaaaa ^ turn)?;
        equal("word behind", side.word(16)?, 0xbbbb ^ turn)?;
    }
    Ok(())
}

/// Refused when posted (rxe's provider), or REM_INV_REQ/REM_ACCESS in the completion (mlx5).
fn unaligned(env: &Env, offset: u64, swap: bool) -> Check {
    let pair = Pair::connected(env, &Setup::new(Transport::Rc))?;
    let (a, b) = (&pair.a, &pair.b);
    b.fill(0, 64, 1)?;
    let remote = b.remote(offset);
    let op = match swap {
        true => Op::CompareSwap {
            remote,
            compare: 0,
            swap: 1,
        },
        false => Op::FetchAdd { remote, add: 1 },
    };
    match a.post(SendWr::new(1, op, [a.sge(0, 8)])) {
        Err(post) => post_refused("the request", Err(post), 0, &[libc::EINVAL])?,
        Ok(()) => {
            a.sent_one(1, &[Status::REM_INV_REQ_ERR, Status::REM_ACCESS_ERR])?;
        }
    }
    b.expect(0, 64, 1)
}

/// A longer entry: eight bytes are written, or the request is refused.
fn entry_of(env: &Env, len: u32) -> Check {
    let pair = Pair::connected(env, &Setup::new(Transport::Rc))?;
    let (a, b) = (&pair.a, &pair.b);
    b.set_word(0, 41)?;
    a.fill(0, 64, 1)?;
    let add = Op::FetchAdd {
        remote: b.remote(0),
        add: 1,
    };
    match a.post(SendWr::new(1, add, [a.sge(0, len)])) {
        Err(post) => return post_refused("the request", Err(post), 0, &[libc::EINVAL]),
        Ok(()) => a.sent(&[(1, Status::SUCCESS)])?,
    };
    equal("word there", b.word(0)?, 42)?;
    equal("word returned", a.word(0)?, 41)?;
    let rest = a.v.read(a.buf, 8, 56)?;
    crate::fixture::same_bytes(&rest, &crate::fixture::pattern(1, 64)[8..], 8)
}

fn two_pairs(env: &Env) -> Check {
    let setup = Setup::new(Transport::Rc);
    let (x, y) = (Pair::connected(env, &setup)?, Pair::connected(env, &setup)?);
    let target = &x.b;
    target.set_word(0, 0)?;
    // The second pair reaches the same word through a region of its own.
    let mr =
        y.b.v
            .reg_mr(y.b.pd, target.buf.addr, 4096, target.buf.addr, access::ALL)?;
    let rounds = 100;
    let work = |a: &crate::fixture::Side<'_>, rkey: u32| -> Check<Vec<u64>> {
        let mut seen = Vec::new();
        for id in 0..rounds {
            let remote = Remote {
                addr: target.buf.addr,
                rkey,
            };
            a.post(SendWr::new(
                id,
                Op::FetchAdd { remote, add: 1 },
                [a.sge(0, 8)],
            ))?;
            a.sent(&[(id, Status::SUCCESS)])?;
            seen.push(a.word(0)?);
        }
        Ok(seen)
    };
    let joined = std::thread::scope(|scope| {
        let other = scope.spawn(|| work(&y.a, mr.rkey));
        (work(&x.a, target.mr.rkey), other.join())
    });
    let (mine, Ok(theirs)) = joined else {
        return fail("the second thread panicked");
    };
    let mut all = mine?;
    all.extend(theirs?);
    all.sort_unstable();
    equal("values returned", all, (0..2 * rounds).collect())?;
    equal("sum", target.word(0)?, 2 * rounds)
}

/// More at once than max_rd_atomic: the device holds them back, and order is kept.
fn many_outstanding(env: &Env) -> Check {
    let mut setup = Setup::new(Transport::Rc);
    setup.rd_atomic = 2;
    setup.caps.send_wr = 32;
    let pair = Pair::connected(env, &setup)?;
    let (a, b) = (&pair.a, &pair.b);
    b.set_word(0, 0)?;
    let list: Vec<_> = (0..24_u64)
        .map(|id| {
            let op = match id % 2 {
                0 => Op::FetchAdd {
                    remote: b.remote(0),
                    add: 1,
                },
                _ => Op::Read(b.remote(0)),
            };
            SendWr::new(id, op, [a.sge(id * 8, 8)])
        })
        .collect();
    a.v.post_send(a.qp, &list)?;
    let ids: Vec<_> = (0..24).map(|id| (id, Status::SUCCESS)).collect();
    a.sent(&ids)?;
    for id in 0..24 {
        equal("word returned", a.word(id * 8)?, id.div_ceil(2))?;
    }
    Ok(())
}

fn flush_operation(env: &Env, kind: u8, level: u8) -> Check {
    let mut setup = Setup::new(Transport::Rc);
    let right = match kind {
        1 => access::FLUSH_GLOBAL,
        _ => access::FLUSH_PERSISTENT,
    };
    if kind == 2 {
        let flags = env.v().device()?.cap_flags;
        if flags & cap::FLUSH_PERSISTENT == 0 {
            return Err(crate::check::Stop::Skip(
                "device capability FLUSH_PERSISTENT is off".to_owned(),
            ));
        }
    }
    setup.access |= right;
    setup.qp_access |= right;
    let pair = match Pair::connected(env, &setup) {
        // Ordinary memory is not persistent, and rxe refuses the right on it (`rxe_mr.c`).
        Err(crate::check::Stop::Fail(reason)) if kind == 2 => {
            return Err(crate::check::Stop::Skip(format!(
                "ordinary memory cannot be registered for persistence: {reason}"
            )));
        }
        other => other?,
    };
    let (a, b) = (&pair.a, &pair.b);
    a.fill(0, 256, 3)?;
    a.post(SendWr::new(1, Op::Write(b.remote(0)), [a.sge(0, 256)]))?;
    let op = Op::Flush {
        remote: b.remote(0),
        len: 256,
        kind,
        level,
    };
    a.post(SendWr::new(2, op, []))
        .or_skip("FLUSH in this API")?;
    let got = a.sent(&[(1, Status::SUCCESS), (2, Status::SUCCESS)])?;
    equal("opcode", got[1].opcode, wc_op::FLUSH)?;
    b.expect(0, 256, 3)
}
