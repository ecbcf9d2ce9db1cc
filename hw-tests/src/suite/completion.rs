//! Completion queues: sizes, overflow, resizing with completions inside, and order of destruction.

use super::Suite;
use crate::check::{Check, OrSkip, ensure, equal, fail, refused};
use crate::fixture::{Env, LONG, Pair, QUIET, Setup};
use crate::verbs::types::*;

pub(super) fn cases(suite: &mut Suite) {
    for cqe in [1_u32, 2, 3, 7, 8, 100, 127, 128, 1000] {
        suite.case(format!("cq/size/{cqe}"), &[], move |env| {
            let cq = env.v().create_cq(cqe, None)?;
            ensure("room for as many as asked for", cq.cqe >= cqe)?;
            Ok(env.v().destroy_cq(cq)?)
        });
    }
    suite.case("cq/size/zero_refused", &[], |env| {
        refused("the queue", env.v().create_cq(0, None), &[libc::EINVAL])
    });
    suite.case("cq/size/over_max_refused", &[], |env| {
        let max = env.v().device()?.max_cqe;
        let errnos = [libc::EINVAL, libc::ENOMEM];
        refused("the queue", env.v().create_cq(max + 1, None), &errnos)
    });
    suite.case("cq/size/max", &[], |env| {
        let max = env.v().device()?.max_cqe;
        let cq = env.v().create_cq(max, None)?;
        ensure("room for as many as asked for", cq.cqe >= max)?;
        Ok(env.v().destroy_cq(cq)?)
    });
    for batch in [1_u32, 2, 5, 64] {
        suite.case(format!("cq/poll/batch={batch}[B27]"), &[], move |env| {
            poll_in_batches(env, batch)
        });
    }
    suite.case("cq/poll/empty", &[], |env| {
        let cq = env.v().create_cq(8, None)?;
        for _ in 0..20 {
            equal("completions", env.v().poll(cq, 4)?, vec![])?;
        }
        Ok(())
    });
    suite.case("cq/poll/nothing_twice[B27]", &[], nothing_twice);
    suite.case(
        "cq/shared/send_and_recv_of_many_pairs",
        &[],
        many_pairs_one_queue,
    );
    suite.case("cq/overflow/event_and_no_garbage[B09]", &[], overflow);
    for (from, to) in [(8, 64), (64, 8), (7, 7), (16, 300), (300, 16)] {
        suite.case(
            format!("cq/resize/{from}_to_{to}/empty[B40]"),
            &[],
            move |env| {
                let v = env.v();
                let cq = v.create_cq(from, None)?;
                let new = v.resize_cq(cq, to).or_skip("CQ resize")?;
                ensure("room for as many as asked for", new.cqe >= to)?;
                equal("completions", v.poll(new, 4)?, vec![])
            },
        );
        suite.case(
            format!("cq/resize/{from}_to_{to}/with_pending[B40]"),
            &[],
            move |env| resize_with_pending(env, from, to),
        );
    }
    suite.case(
        "cq/resize/below_pending_refused[B40]",
        &[],
        resize_below_pending,
    );
    suite.case("cq/resize/zero_refused[B40]", &[], |env| {
        let v = env.v();
        let cq = v.create_cq(8, None)?;
        v.resize_cq(cq, 16).or_skip("CQ resize")?;
        refused("the size", v.resize_cq(cq, 0), &[libc::EINVAL])
    });
    suite.slow_case(120, "cq/resize/with_traffic[B40]", &[], resize_with_traffic);
    suite.case("cq/destroy/in_use_refused", &[], |env| {
        let pair = Pair::connected(env, &Setup::new(Transport::Rc))?;
        let a = &pair.a;
        refused("the destruction", a.v.destroy_cq(a.send_cq), &[libc::EBUSY])?;
        pair.exchange(1, 64)?;
        a.v.destroy_qp(a.qp)?;
        Ok(a.v.destroy_cq(a.send_cq)?)
    });
    suite.case("cq/destroy/completions_of_a_dead_pair[B37]", &[], dead_pair);
    suite.slow_case(90, "cq/destroy/two_queues_crosswise[B38]", &[], crosswise);
}

/// `count` completed WRITEs whose completions wait in a's send queue.
fn pending(pair: &Pair<'_>, first: u64, count: u64) -> Check {
    let (a, b) = (&pair.a, &pair.b);
    for id in first..first + count {
        a.post(SendWr::new(id, Op::Write(b.remote(0)), [a.sge(0, 8)]))?;
    }
    Ok(())
}

/// Returns when the completions of all that a posted are in its queue, polling none of them: requests without a completion
/// of their own read a word back. The first one's word may come before the completions of what its answer acknowledges;
/// the second is asked for after that, and answers are dealt with in order (IBTA 9.7.5.1), so with its word the first
/// answer is done with.
fn completed_so_far(pair: &Pair<'_>) -> Check {
    let (a, b) = (&pair.a, &pair.b);
    let (from, to) = (1024, 2048);
    for round in 1..=2 {
        let mark = round * 0x5eed_f00d;
        b.set_word(from, mark)?;
        a.set_word(to, !mark)?;
        a.post(SendWr::new(u64::MAX, Op::Read(b.remote(from)), [a.sge(to, 8)]).unsignaled())?;
        let end = std::time::Instant::now() + LONG;
        while a.word(to)? != mark {
            if std::time::Instant::now() > end {
                return fail("a READ's data never came");
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
    Ok(())
}

fn drain(pair: &Pair<'_>, cq: Cq, first: u64, count: u64) -> Check {
    let got = pair.a.v.wait(cq, count as usize, LONG)?;
    let ids: Vec<_> = got.iter().map(|wc| wc.id).collect();
    equal("completed requests", ids, (first..first + count).collect())?;
    for wc in got {
        equal("status", wc.status, Status::SUCCESS)?;
    }
    equal("completions beyond", pair.a.v.wait(cq, 1, QUIET)?, vec![])
}

fn setup(cqe: u32, send_wr: u32) -> Setup {
    let mut setup = Setup::new(Transport::Rc);
    setup.cqe = cqe;
    setup.caps.send_wr = send_wr;
    setup
}

fn poll_in_batches(env: &Env, batch: u32) -> Check {
    let pair = Pair::connected(env, &setup(64, 64))?;
    let mut next = 0;
    for _ in 0..4 {
        pending(&pair, next, 33)?;
        let mut left = 33;
        let end = std::time::Instant::now() + LONG;
        while left > 0 {
            let got = pair.a.v.poll(pair.a.send_cq, batch)?;
            ensure(
                "no more completions than asked for",
                got.len() <= batch as usize,
            )?;
            for wc in &got {
                equal("wr_id", wc.id, next)?;
                next += 1;
                left -= 1;
            }
            if got.is_empty() {
                if std::time::Instant::now() > end {
                    return fail(format!("{left} completions never came"));
                }
                std::thread::yield_now();
            }
        }
    }
    pair.a.silent()
}

fn nothing_twice(env: &Env) -> Check {
    let pair = Pair::connected(env, &setup(1, 1))?;
    for id in 0..6 {
        pending(&pair, id, 1)?;
        pair.a.sent(&[(id, Status::SUCCESS)])?;
        for _ in 0..3 {
            equal("completions", pair.a.v.poll(pair.a.send_cq, 4)?, vec![])?;
        }
    }
    Ok(())
}

fn many_pairs_one_queue(env: &Env) -> Check {
    let v = env.v();
    let pd = v.alloc_pd()?;
    let cq = v.create_cq(256, None)?;
    let pairs: Vec<_> = (0..4)
        .map(|_| Pair::connected(env, &Setup::new(Transport::Rc)))
        .collect::<Check<_>>()?;
    // A queue pair more on one shared queue, towards itself.
    let qp = v.create_qp(&QpInit {
        pd,
        transport: Transport::Rc,
        send_cq: cq,
        recv_cq: cq,
        srq: None,
        caps: Caps::default(),
        signal_all: false,
    })?;
    let template = &pairs[0].a;
    template.connect_to_itself(&Setup::new(Transport::Rc), qp)?;
    let buf = v.buffer(4096)?;
    let mr = v.reg_mr(pd, buf.addr, buf.len, buf.addr, access::ALL)?;
    let sge = |offset| Sge {
        addr: buf.addr + offset,
        len: 64,
        lkey: mr.lkey,
    };
    for id in 0..20 {
        v.post_recv(qp, &[RecvWr::new(1000 + id, [sge(1024)])])?;
        v.post_send(qp, &[SendWr::new(id, Op::Send, [sge(0)])])?;
        let mut got = v.wait(cq, 2, LONG)?;
        got.sort_by_key(|wc| wc.id);
        let seen: Vec<_> = got.iter().map(|wc| (wc.id, wc.status, wc.qp_num)).collect();
        let expected = [id, 1000 + id].map(|id| (id, Status::SUCCESS, qp.num));
        equal("completions", seen, expected.to_vec())?;
        pairs[id as usize % 4].exchange(id, 32)?;
    }
    Ok(())
}

/// More completions than the queue holds: the program hears of it, and what it polls is genuine.
fn overflow(env: &Env) -> Check {
    let pair = Pair::connected(env, &setup(4, 64))?;
    let a = &pair.a;
    let count = (u64::from(a.send_cq.cqe) + 20).min(u64::from(a.qp.caps.send_wr));
    pending(&pair, 0, count)?;
    let Some(event) = a.v.async_event(LONG)? else {
        return fail("no event tells of the overflow");
    };
    equal(
        "event",
        (event.kind, event.id),
        (event::CQ_ERR, a.send_cq.id),
    )?;
    // Polling makes room again while the device may still have requests to complete, so more may
    // come than the queue holds; what may not is a gap in what it held, or anything not posted.
    let got = a.v.poll(a.send_cq, 128)?;
    let held = a.send_cq.cqe as usize;
    ensure("as many completions as the queue holds", got.len() >= held)?;
    for (id, wc) in (0..).zip(&got[..held]) {
        equal("wr_id", wc.id, id)?;
    }
    ensure(
        "each later one once, in order, and posted",
        got.windows(2).all(|pair| pair[0].id < pair[1].id) && got.iter().all(|wc| wc.id < count),
    )?;
    Ok(())
}

fn resize_with_pending(env: &Env, from: u32, to: u32) -> Check {
    let count = u64::from(from.min(to)).min(6);
    let pair = Pair::connected(env, &setup(from, 64))?;
    let a = &pair.a;
    // Not at the ring's start: the copy must wrap.
    for id in 0..u64::from(from.min(32)) - 1 {
        pending(&pair, id, 1)?;
        a.sent(&[(id, Status::SUCCESS)])?;
    }
    pending(&pair, 1000, count)?;
    completed_so_far(&pair)?;
    let cq = a.v.resize_cq(a.send_cq, to).or_skip("CQ resize")?;
    ensure("room for as many as asked for", cq.cqe >= to)?;
    drain(&pair, cq, 1000, count)?;
    let many = u64::from(cq.cqe.min(40));
    pending(&pair, 2000, many)?;
    drain(&pair, cq, 2000, many)
}

fn resize_below_pending(env: &Env) -> Check {
    let pair = Pair::connected(env, &setup(64, 64))?;
    let a = &pair.a;
    pending(&pair, 0, 40)?;
    completed_so_far(&pair)?;
    match a.v.resize_cq(a.send_cq, 8) {
        Err(fault) if fault.unsupported() => Err(fault).or_skip("CQ resize"),
        answer => {
            refused(
                "fewer entries than completions",
                answer.map(drop),
                &[libc::EINVAL],
            )?;
            drain(&pair, a.send_cq, 0, 40)
        }
    }
}

fn resize_with_traffic(env: &Env) -> Check {
    let pair = Pair::connected(env, &setup(64, 16))?;
    let a = &pair.a;
    let (mut posted, mut done, mut cq) = (0_u64, 0_u64, a.send_cq);
    for round in 0..200_u64 {
        while posted - done < 16 {
            pending(&pair, posted, 1)?;
            posted += 1;
        }
        if round % 2 == 0 {
            cq =
                a.v.resize_cq(cq, [17, 200, 33, 64][(round / 2 % 4) as usize])
                    .or_skip("CQ resize")?;
        }
        for wc in a.v.wait(cq, 5, LONG)? {
            equal("wr_id", wc.id, done)?;
            equal("status", wc.status, Status::SUCCESS)?;
            done += 1;
        }
    }
    drain(&pair, cq, done, posted - done)
}

/// After a queue pair is destroyed its completions may stay in the queue or go, as the provider
/// likes; those of others stay, and nothing of the dead pair comes later.
fn dead_pair(env: &Env) -> Check {
    let v = env.v();
    let dead = Pair::connected(env, &setup(64, 16))?;
    let live = Pair::connected(env, &setup(64, 16))?;
    pending(&dead, 0, 3)?;
    completed_so_far(&dead)?;
    live.exchange(1, 64)?;
    v.destroy_qp(dead.a.qp)?;
    for wc in v.poll(dead.a.send_cq, 16)? {
        ensure(
            "a completion of the dead pair",
            wc.qp_num == dead.a.qp.num && wc.id < 3,
        )?;
    }
    equal(
        "completions later",
        v.wait(dead.a.send_cq, 1, QUIET)?,
        vec![],
    )?;
    v.destroy_cq(dead.a.send_cq)?;
    live.exchange(2, 64)
}

/// Two queue pairs with the same two queues in opposite roles, destroyed by two threads.
fn crosswise(env: &Env) -> Check {
    let v = env.v();
    let pd = v.alloc_pd()?;
    let (one, two) = (v.create_cq(16, None)?, v.create_cq(16, None)?);
    let make = |send_cq, recv_cq| {
        v.create_qp(&QpInit {
            pd,
            transport: Transport::Rc,
            send_cq,
            recv_cq,
            srq: None,
            caps: Caps::default(),
            signal_all: false,
        })
    };
    for _ in 0..100 {
        let (x, y) = (make(one, two)?, make(two, one)?);
        ensure("two queue pairs have two numbers", x.num != y.num)?;
        let answers = std::thread::scope(|scope| {
            let first = scope.spawn(|| v.destroy_qp(x));
            (v.destroy_qp(y), first.join())
        });
        answers.0?;
        match answers.1 {
            Ok(answer) => answer?,
            Err(_) => return fail("the destroying thread panicked"),
        }
    }
    v.destroy_cq(one)?;
    Ok(v.destroy_cq(two)?)
}
