//! Many at once: threads, queue pairs beyond the device's doorbell registers, and beyond what a page of anything holds.

use std::thread;

use super::{Need, Suite};
use crate::check::{Check, OrSkip, equal, fail};
use crate::fixture::{Env, LONG, Pair, Setup};
use crate::verbs::types::*;

pub(super) fn cases(suite: &mut Suite) {
    // mlx5 gives a process 16 doorbell registers unless it asks for more (rdma-core providers/mlx5, MLX5_DEF_TOT_UUARS), so
    // that 32 threads share them.
    suite.slow_case(
        120,
        "scale/32_threads_share_registers",
        &[Need::Loopback, Need::QueuePairs(64)],
        |env| side_by_side(env, 32, 40),
    );
    suite.slow_case(
        120,
        "scale/32_threads_one_completion_queue",
        &[Need::Loopback, Need::QueuePairs(64)],
        |env| one_completion_queue(env, 32, 20),
    );
    // Running out of registers is nothing that a program sees: queue pairs beyond them share one, and work.
    suite.slow_case(
        240,
        "scale/more_pairs_than_registers",
        &[Need::QueuePairs(1100)],
        |env| many(env, 1100, 50),
    );
    suite.long_case(
        1800,
        "scale/10000_pairs",
        &[Need::QueuePairs(10_000)],
        |env| many(env, 10_000, 100),
    );
    suite.long_case(
        600,
        "scale/32_threads_for_long",
        &[Need::Loopback, Need::QueuePairs(64)],
        |env| side_by_side(env, 32, 1000),
    );
}

/// Each thread has a pair of its own and exchanges messages, all at once: short ones inline, which a device may take from
/// its register, and longer ones, which it must fetch.
fn side_by_side(env: &Env, threads: u64, rounds: u64) -> Check {
    let mut setup = Setup::new(Transport::Rc);
    setup.caps.inline = 64;
    let pairs = (0..threads)
        .map(|_| Pair::connected(env, &setup))
        .collect::<Check<Vec<_>>>()?;
    thread::scope(|scope| {
        let running: Vec<_> = (0..)
            .zip(&pairs)
            .map(|(number, pair)| scope.spawn(move || exchanges(pair, number, rounds)))
            .collect();
        ended(running)
    })
}

fn exchanges(pair: &Pair<'_>, number: u64, rounds: u64) -> Check {
    let (a, b) = (&pair.a, &pair.b);
    for round in 0..rounds {
        let seed = number << 32 | round;
        let flags = if round % 2 == 0 { send::INLINE } else { 0 };
        let len = if round % 2 == 0 { 48 } else { 3000 };
        a.fill(0, len.into(), seed)?;
        b.post_recv(&[RecvWr::new(seed, [b.sge(0, 4096)])])?;
        a.post(SendWr::new(seed, Op::Send, [a.sge(0, len)]).with(flags))?;
        a.sent(&[(seed, Status::SUCCESS)])?;
        let got = b.received(&[(seed, Status::SUCCESS)])?;
        equal("byte_len", got[0].byte_len, len)?;
        b.expect(0, len.into(), seed)?;
    }
    Ok(())
}

/// Threads post to queue pairs of their own, whose completions all come to one queue that another thread polls.
fn one_completion_queue(env: &Env, threads: u64, rounds: u64) -> Check {
    let v = env.v();
    let total = (threads * rounds) as usize;
    let cq = v.create_cq(total as u32, None)?;
    let template = Pair::connected(env, &Setup::new(Transport::Rc))?;
    let qps = (0..threads)
        .map(|_| to_itself(env, &template, cq))
        .collect::<Check<Vec<_>>>()?;
    let (a, b) = (&template.a, &template.b);
    let mr = v.reg_mr(a.pd, b.buf.addr, b.buf.len, b.buf.addr, access::ALL)?;
    let got = thread::scope(|scope| {
        let running: Vec<_> = (0..)
            .zip(&qps)
            .map(|(number, qp)| {
                scope.spawn(move || -> Check {
                    for round in 0..rounds {
                        let to = Remote {
                            addr: b.buf.addr + number * 8,
                            rkey: mr.rkey,
                        };
                        let id = number << 32 | round;
                        let wr = SendWr::new(id, Op::Write(to), [a.sge(number * 8, 8)]);
                        // A full queue empties when its completions are polled.
                        while let Err(post) = v.post_send(*qp, std::slice::from_ref(&wr)) {
                            if !post.fault.is(&[libc::ENOMEM]) {
                                return Err(post.into());
                            }
                            thread::yield_now();
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        let got = v.wait(cq, total, LONG * 4);
        ended(running)?;
        Ok::<_, crate::check::Stop>(got?)
    })?;
    equal("completions", got.len(), total)?;
    // Each queue pair's own in order, and all of them good.
    let mut next = vec![0; qps.len()];
    for wc in got {
        equal("status", wc.status, Status::SUCCESS)?;
        let number = (wc.id >> 32) as usize;
        equal("queue pair", wc.qp_num, qps[number].num)?;
        equal("round", wc.id & 0xffff_ffff, next[number])?;
        next[number] += 1;
    }
    Ok(())
}

/// `count` queue pairs at once, all with numbers of their own; every `step`th one, counted from the last, sends to itself;
/// then none is left.
fn many(env: &Env, count: usize, step: usize) -> Check {
    let v = env.v();
    let template = Pair::connected(env, &Setup::new(Transport::Rc))?;
    let cq = v.create_cq(64, None)?;
    let init = of_one_queue(&template, cq);
    let qps = (0..count)
        .map(|_| v.create_qp(&init).or_skip("room for so many queue pairs"))
        .collect::<Check<Vec<_>>>()?;
    let mut numbers: Vec<_> = qps.iter().map(|qp| qp.num).collect();
    numbers.sort_unstable();
    numbers.dedup();
    equal("different numbers", numbers.len(), count)?;
    let a = &template.a;
    for (id, qp) in (0..).zip(qps.iter().rev().step_by(step)) {
        let seed = 70 + id;
        up(&template, *qp)?;
        a.fill(0, 512, seed)?;
        v.post_recv(*qp, &[RecvWr::new(id, [a.sge(4096, 512)])])?;
        v.post_send(*qp, &[SendWr::new(id, Op::Send, [a.sge(0, 512)])])?;
        let got = v.wait(cq, 2, LONG)?;
        equal("completions", got.len(), 2)?;
        for wc in got {
            equal(
                "completion",
                (wc.status, wc.qp_num),
                (Status::SUCCESS, qp.num),
            )?;
        }
        a.expect(4096, 512, seed)?;
    }
    for qp in qps {
        v.destroy_qp(qp)?;
    }
    Ok(v.destroy_cq(cq)?)
}

fn of_one_queue(template: &Pair<'_>, cq: Cq) -> QpInit {
    QpInit {
        pd: template.a.pd,
        transport: Transport::Rc,
        send_cq: cq,
        recv_cq: cq,
        srq: None,
        caps: Caps::default(),
        signal_all: false,
    }
}

/// A queue pair that is connected with itself.
fn to_itself(env: &Env, template: &Pair<'_>, cq: Cq) -> Check<Qp> {
    let qp = env.v().create_qp(&of_one_queue(template, cq))?;
    up(template, qp)?;
    Ok(qp)
}

fn up(template: &Pair<'_>, qp: Qp) -> Check {
    template.a.connect_to_itself(&Setup::new(Transport::Rc), qp)
}

fn ended(running: Vec<thread::ScopedJoinHandle<'_, Check>>) -> Check {
    for thread in running {
        match thread.join() {
            Ok(answer) => answer?,
            Err(_) => return fail("a thread panicked"),
        }
    }
    Ok(())
}
