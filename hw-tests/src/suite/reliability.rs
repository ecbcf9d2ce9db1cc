//! Receivers that are not ready, peers that are gone, flushes: what errors look like and what is left.

use std::time::Duration;

use super::{Need, Suite};
use crate::check::{Check, ensure, equal, fail};
use crate::fixture::{Env, Pair, QUIET, Setup, Side};
use crate::verbs::types::*;

pub(super) fn cases(suite: &mut Suite) {
    for (name, op) in [("send", Op::Send), ("send_imm", Op::SendImm(1))] {
        for retry in [0, 1] {
            suite.case(
                format!("rnr/rc/{name}/retry={retry}_gives_up"),
                &[],
                move |env| rnr_gives_up(env, retry, |_| op),
            );
        }
        suite.case(
            format!("rnr/rc/{name}/waits_for_a_receive"),
            &[],
            move |env| rnr_waits(env, |_| op),
        );
    }
    suite.case("rnr/rc/write_imm/retry=0_gives_up", &[], |env| {
        rnr_gives_up(env, 0, |b| Op::WriteImm(b.remote(0), 1))
    });
    suite.case("rnr/rc/write_imm/waits_for_a_receive", &[], |env| {
        rnr_waits(env, |b| Op::WriteImm(b.remote(0), 1))
    });
    suite.case("rnr/rc/srq/waits_for_a_receive", &[Need::Srq], |env| {
        let mut setup = Setup::new(Transport::Rc);
        setup.srq = Some((16, 4));
        waits(env, &setup, |_| Op::Send)
    });
    for transport in [Transport::Uc, Transport::Ud] {
        suite.case(format!("rnr/{transport}/send/dropped"), &[], move |env| {
            let pair = Pair::connected(env, &Setup::new(transport))?;
            pair.a.post(SendWr::new(1, Op::Send, [pair.a.sge(0, 8)]))?;
            pair.a.sent(&[(1, Status::SUCCESS)])?;
            pair.b.silent()?;
            pair.exchange(2, 64)
        });
    }
    for (name, op) in [("send", 0), ("write", 1), ("read", 2)] {
        suite.case(format!("retry/rc/{name}/peer_in_reset"), &[], move |env| {
            let mut setup = Setup::new(Transport::Rc);
            (setup.timeout, setup.retry) = (8, 2);
            let pair = Pair::connected(env, &setup)?;
            pair.b
                .v
                .modify_qp(pair.b.qp, &crate::fixture::to_state(State::Reset))?;
            gives_up(&pair, op)
        });
        suite.case(format!("retry/rc/{name}/peer_destroyed"), &[], move |env| {
            let mut setup = Setup::new(Transport::Rc);
            (setup.timeout, setup.retry) = (8, 2);
            let pair = Pair::connected(env, &setup)?;
            pair.b.v.destroy_qp(pair.b.qp)?;
            gives_up(&pair, op)
        });
    }
    for transport in Transport::ALL {
        suite.case(
            format!("flush/{transport}/recv/in_order[B48]"),
            &[],
            move |env| flush_receives(env, &Setup::new(transport)),
        );
        suite.case(
            format!("flush/{transport}/posted_in_error[B32]"),
            &[],
            move |env| posted_in_error(env, transport),
        );
        suite.case(
            format!("flush/{transport}/works_after_reset"),
            &[],
            move |env| works_after_reset(env, transport),
        );
    }
    suite.case("flush/rc/send/in_order[B48]", &[], |env| {
        flush_sends(env, false)
    });
    suite.case("flush/rc/send/unsignaled_too[B48]", &[], |env| {
        flush_sends(env, true)
    });
    suite.case(
        "flush/rc/after_remote_access_error[B48]",
        &[],
        flush_after_error,
    );
    suite.case("flush/rc/other_pair_goes_on", &[], other_pair_goes_on);
    suite.case(
        "flush/rc/post_races_with_error[B32]",
        &[Need::Loopback],
        post_races_with_error,
    );
}

fn rnr_gives_up(env: &Env, retry: u8, op: impl Fn(&Side<'_>) -> Op) -> Check {
    let mut setup = Setup::new(Transport::Rc);
    setup.rnr_retry = retry;
    let pair = Pair::connected(env, &setup)?;
    let (a, b) = (&pair.a, &pair.b);
    a.post(SendWr::new(1, op(b), [a.sge(0, 8)]))?;
    a.post(SendWr::new(2, Op::Write(b.remote(0)), [a.sge(0, 8)]))?;
    a.sent(&[(1, Status::RNR_RETRY_EXC_ERR), (2, Status::WR_FLUSH_ERR)])?;
    equal("state of the sender", a.state()?, State::Err)?;
    b.silent()
}

fn rnr_waits(env: &Env, op: impl Fn(&Side<'_>) -> Op) -> Check {
    waits(env, &Setup::new(Transport::Rc), op)
}

/// With seven retries, which is without end, a late receive still gets the message.
fn waits(env: &Env, setup: &Setup, op: impl Fn(&Side<'_>) -> Op) -> Check {
    let pair = Pair::connected(env, setup)?;
    let (a, b) = (&pair.a, &pair.b);
    a.fill(0, 64, 3)?;
    a.post(SendWr::new(1, op(b), [a.sge(0, 64)]))?;
    equal(
        "completions before the receive",
        a.v.wait(a.send_cq, 1, QUIET)?,
        vec![],
    )?;
    b.post_recv(&[RecvWr::new(2, [b.sge(0, 64)])])?;
    a.sent(&[(1, Status::SUCCESS)])?;
    b.received(&[(2, Status::SUCCESS)])?;
    b.expect(0, 64, 3)
}

fn gives_up(pair: &Pair<'_>, op: u32) -> Check {
    let (a, b) = (&pair.a, &pair.b);
    let op = match op {
        0 => Op::Send,
        1 => Op::Write(b.remote(0)),
        _ => Op::Read(b.remote(0)),
    };
    a.post(SendWr::new(1, op, [a.sge(0, 8)]))?;
    a.sent(&[(1, Status::RETRY_EXC_ERR)])?;
    equal("state of the sender", a.state()?, State::Err)
}

fn flush_receives(env: &Env, setup: &Setup) -> Check {
    let pair = Pair::connected(env, setup)?;
    let b = &pair.b;
    let list: Vec<_> = (10..15).map(|id| RecvWr::new(id, [b.sge(0, 64)])).collect();
    b.post_recv(&list)?;
    b.to_error()?;
    let flushed: Vec<_> = (10..15).map(|id| (id, Status::WR_FLUSH_ERR)).collect();
    for wc in b.received(&flushed)? {
        // Formally undefined. rxe writes zeroes (Linux `rxe_resp.c`, `flush_recv_wqe`; 6.12, 7.3), and
        // the completion alone does not tell which queue it is of.
        let sane = wc.opcode & wc_op::RECV != 0 || wc.opcode == 0;
        ensure("a flushed receive's opcode is a receive's or zero", sane)?;
    }
    b.silent()
}

/// Requests wait for a receiver that is not ready, then the sender goes to ERROR.
fn flush_sends(env: &Env, unsignaled: bool) -> Check {
    let mut setup = Setup::new(Transport::Rc);
    setup.min_rnr_timer = 0;
    let pair = Pair::connected(env, &setup)?;
    let (a, _b) = (&pair.a, &pair.b);
    for id in 1..=5 {
        let mut wr = SendWr::new(id, Op::Send, [a.sge(0, 8)]);
        if unsignaled && id % 2 == 0 {
            wr = wr.unsignaled();
        }
        a.post(wr)?;
    }
    a.to_error()?;
    let flushed: Vec<_> = (1..=5).map(|id| (id, Status::WR_FLUSH_ERR)).collect();
    for wc in a.sent(&flushed)? {
        ensure(
            "a flushed send has a send's opcode",
            wc.opcode & wc_op::RECV == 0,
        )?;
    }
    a.silent()
}

fn posted_in_error(env: &Env, transport: Transport) -> Check {
    let pair = Pair::connected(env, &Setup::new(transport))?;
    let (a, b) = (&pair.a, &pair.b);
    a.to_error()?;
    b.to_error()?;
    for id in 1..4 {
        a.post(SendWr::new(id, Op::Send, [a.sge(0, 8)]))?;
        a.sent(&[(id, Status::WR_FLUSH_ERR)])?;
        b.post_recv(&[RecvWr::new(id, [b.sge(0, 64)])])?;
    }
    // rxe has no doorbell for receives: its responder looks at them when it runs next (Linux
    // `rxe_verbs.c`, `rxe_post_recv` is for kernel users only), so another step to ERROR wakes it.
    b.to_error()?;
    b.received(&[
        (1, Status::WR_FLUSH_ERR),
        (2, Status::WR_FLUSH_ERR),
        (3, Status::WR_FLUSH_ERR),
    ])?;
    Ok(())
}

fn works_after_reset(env: &Env, transport: Transport) -> Check {
    let setup = Setup::new(transport);
    let mut pair = Pair::connected(env, &setup)?;
    pair.exchange(1, 100)?;
    for side in [&pair.a, &pair.b] {
        side.post_recv(&[RecvWr::new(9, [side.sge(0, 64)])])?;
        side.to_error()?;
        side.received(&[(9, Status::WR_FLUSH_ERR)])?;
        side.v
            .modify_qp(side.qp, &crate::fixture::to_state(State::Reset))?;
        equal("state", side.state()?, State::Reset)?;
    }
    pair.connect(&setup)?;
    for id in 0..40 {
        pair.exchange(id, 200)?;
    }
    Ok(())
}

fn flush_after_error(env: &Env) -> Check {
    let pair = Pair::connected(env, &Setup::new(Transport::Rc))?;
    let (a, b) = (&pair.a, &pair.b);
    let nowhere = Remote {
        addr: b.buf.addr,
        rkey: b.mr.rkey ^ 0x55,
    };
    let list = [
        SendWr::new(1, Op::Write(b.remote(0)), [a.sge(0, 8)]),
        SendWr::new(2, Op::Write(nowhere), [a.sge(0, 8)]),
        SendWr::new(3, Op::Write(b.remote(0)), [a.sge(0, 8)]),
        SendWr::new(4, Op::Write(b.remote(0)), [a.sge(0, 8)]).unsignaled(),
        SendWr::new(5, Op::Read(b.remote(0)), [a.sge(0, 8)]),
    ];
    a.v.post_send(a.qp, &list)?;
    a.sent(&[
        (1, Status::SUCCESS),
        (2, Status::REM_ACCESS_ERR),
        (3, Status::WR_FLUSH_ERR),
        (4, Status::WR_FLUSH_ERR),
        (5, Status::WR_FLUSH_ERR),
    ])?;
    a.silent()
}

fn other_pair_goes_on(env: &Env) -> Check {
    let setup = Setup::new(Transport::Rc);
    let bad = Pair::connected(env, &setup)?;
    let good = Pair::connected(env, &setup)?;
    good.exchange(1, 5000)?;
    bad.a.to_error()?;
    bad.b.to_error()?;
    good.exchange(2, 5000)?;
    bad.a.v.destroy_qp(bad.a.qp)?;
    bad.b.v.destroy_qp(bad.b.qp)?;
    good.exchange(3, 5000)
}

/// One thread posts while another moves the queue pair to ERROR: every accepted request completes
/// exactly once, in order.
fn post_races_with_error(env: &Env) -> Check {
    for round in 0..10 {
        let mut setup = Setup::new(Transport::Rc);
        setup.caps.send_wr = 64;
        setup.cqe = 256;
        let pair = Pair::connected(env, &setup)?;
        let (a, b) = (&pair.a, &pair.b);
        let accepted = std::thread::scope(|scope| {
            let poster = scope.spawn(|| {
                let wr = |id| SendWr::new(id, Op::Write(b.remote(0)), [a.sge(0, 8)]);
                (0..60_u64).take_while(|id| a.post(wr(*id)).is_ok()).count()
            });
            std::thread::sleep(Duration::from_micros(300 * round));
            let moved = a.to_error();
            (poster.join(), moved)
        });
        let (Ok(accepted), moved) = accepted else {
            return fail("the posting thread panicked");
        };
        moved?;
        let got = a.v.wait(a.send_cq, accepted, crate::fixture::LONG)?;
        let ids: Vec<_> = got.iter().map(|wc| wc.id).collect();
        equal("completed requests", ids, (0..accepted as u64).collect())?;
        a.silent()?;
        a.v.destroy_qp(a.qp)?;
        b.v.destroy_qp(b.qp)?;
    }
    Ok(())
}
