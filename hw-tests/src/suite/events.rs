//! Completion channels, arming, acknowledging; asynchronous events.

use std::time::Duration;

use super::Suite;
use crate::check::{Check, deviates, ensure, equal, fail, refused};
use crate::fixture::{Env, LONG, Pair, QUIET, Setup, Side};
use crate::verbs::types::*;

pub(super) fn cases(suite: &mut Suite) {
    suite.case("event/arm/then_complete[B43]", &[], |env| {
        let pair = channels(env)?;
        let b = &pair.b;
        b.v.arm(b.recv_cq, false)?;
        pair.exchange(1, 64)?;
        event(b)?;
        no_event(b)
    });
    suite.case("event/arm/not_armed_no_event[B43]", &[], |env| {
        let pair = channels(env)?;
        pair.exchange(1, 64)?;
        no_event(&pair.b)
    });
    suite.case("event/arm/one_event_per_arm[B43]", &[], |env| {
        let pair = channels(env)?;
        let b = &pair.b;
        b.v.arm(b.recv_cq, false)?;
        for id in 0..5 {
            pair.exchange(id, 64)?;
        }
        event(b)?;
        no_event(b)
    });
    suite.case("event/arm/twice_is_once[B43]", &[], |env| {
        let pair = channels(env)?;
        let b = &pair.b;
        b.v.arm(b.recv_cq, false)?;
        b.v.arm(b.recv_cq, false)?;
        pair.exchange(1, 64)?;
        event(b)?;
        pair.exchange(2, 64)?;
        no_event(b)
    });
    suite.case(
        "event/arm/again_without_polling[B43]",
        &[],
        arm_without_polling,
    );
    suite.case("event/arm/idle_again_and_again[B43]", &[], |env| {
        let pair = channels(env)?;
        let b = &pair.b;
        for id in 0..20 {
            b.v.arm(b.recv_cq, false)?;
            pair.exchange(id, 64)?;
            event(b)?;
        }
        no_event(b)
    });
    suite.case("event/arm/send_queue[B43]", &[], |env| {
        let pair = channels(env)?;
        let a = &pair.a;
        a.v.arm(a.send_cq, false)?;
        a.post(SendWr::new(1, Op::Write(pair.b.remote(0)), [a.sge(0, 8)]))?;
        let got = a.v.channel_event(channel(a)?, LONG)?;
        equal("queue of the event", got, Some(a.send_cq.id))?;
        a.sent(&[(1, Status::SUCCESS)])?;
        Ok(a.v.ack_cq(a.send_cq, 1)?)
    });
    suite.case("event/arm/unsignaled_makes_none[B43]", &[], |env| {
        let pair = channels(env)?;
        let a = &pair.a;
        a.v.arm(a.send_cq, false)?;
        a.post(SendWr::new(1, Op::Write(pair.b.remote(0)), [a.sge(0, 8)]).unsignaled())?;
        no_event(a)
    });
    suite.case("event/solicited/plain_sends_make_none[B43]", &[], |env| {
        let pair = channels(env)?;
        let b = &pair.b;
        b.v.arm(b.recv_cq, true)?;
        for id in 0..10 {
            pair.exchange(id, 64)?;
        }
        no_event(b)?;
        solicited(&pair, 100)?;
        event(b)
    });
    suite.case("event/solicited/write_imm[B43]", &[], |env| {
        let pair = channels(env)?;
        let (a, b) = (&pair.a, &pair.b);
        b.v.arm(b.recv_cq, true)?;
        b.post_recv(&[RecvWr::new(1, [])])?;
        let wr = SendWr::new(1, Op::WriteImm(b.remote(0), 5), [a.sge(0, 8)]);
        a.post(wr.with(send::SOLICITED))?;
        b.received(&[(1, Status::SUCCESS)])?;
        event(b)
    });
    suite.case("event/solicited/error_completion[B43]", &[], |env| {
        let pair = channels(env)?;
        let b = &pair.b;
        b.post_recv(&[RecvWr::new(1, [b.sge(0, 64)])])?;
        b.v.arm(b.recv_cq, true)?;
        b.to_error()?;
        b.received(&[(1, Status::WR_FLUSH_ERR)])?;
        if b.v.channel_event(channel(b)?, LONG / 5)?.is_none() {
            // IBTA 11.4.2.2 wants one.
            return deviates(
                "an error completion does not count as solicited (Linux rxe_resp.c, \
                 flush_recv_wqe; 6.12, 7.3)",
            );
        }
        Ok(b.v.ack_cq(b.recv_cq, 1)?)
    });
    suite.case("event/solicited/then_any_is_any[B43]", &[], |env| {
        let pair = channels(env)?;
        let b = &pair.b;
        b.v.arm(b.recv_cq, true)?;
        b.v.arm(b.recv_cq, false)?;
        pair.exchange(1, 64)?;
        event(b)
    });
    suite.slow_case(90, "event/ping_pong_asleep[B43]", &[], ping_pong_asleep);
    suite.case("event/channel/two_queues", &[], two_queues);
    suite.case("event/channel/busy[B45]", &[], |env| {
        let v = env.v();
        let channel = v.create_channel()?;
        let cq = v.create_cq(8, Some(channel))?;
        refused(
            "the destruction",
            v.destroy_channel(channel),
            &[libc::EBUSY],
        )?;
        v.destroy_cq(cq)?;
        Ok(v.destroy_channel(channel)?)
    });
    suite.case("event/ack/destroy_waits[B45]", &[], destroy_waits);
    suite.case("event/ack/many_at_once[B45]", &[], |env| {
        let pair = channels(env)?;
        let b = &pair.b;
        for id in 0..7 {
            b.v.arm(b.recv_cq, false)?;
            pair.exchange(id, 64)?;
            let got = b.v.channel_event(channel(b)?, LONG)?;
            equal("queue of the event", got, Some(b.recv_cq.id))?;
        }
        b.v.ack_cq(b.recv_cq, 7)?;
        b.v.destroy_qp(b.qp)?;
        Ok(b.v.destroy_cq(b.recv_cq)?)
    });
    suite.case("event/ack/unread_event_of_a_dead_queue[B45]", &[], |env| {
        let pair = channels(env)?;
        let b = &pair.b;
        b.v.arm(b.recv_cq, false)?;
        pair.exchange(1, 64)?;
        std::thread::sleep(QUIET);
        b.v.destroy_qp(b.qp)?;
        // Nobody took the event, so nothing is to be waited for, and it goes with the queue.
        b.v.destroy_cq(b.recv_cq)?;
        let got = b.v.channel_event(channel(b)?, QUIET)?;
        equal("event of a queue that is gone", got, None)
    });
    suite.case("event/async/none_without_cause", &[], |env| {
        let pair = Pair::connected(env, &Setup::new(Transport::Rc))?;
        pair.exchange(1, 64)?;
        let got = pair.a.v.async_event(QUIET)?;
        // The first message to a queue pair in RTR may have told COMM_EST.
        ensure(
            "no event, or COMM_EST",
            got.is_none_or(|event| event.kind == event::COMM_EST),
        )
    });
    suite.case(
        "event/async/access_error_tells_responder[B45]",
        &[],
        access_error,
    );
}

fn channels(env: &Env) -> Check<Pair<'_>> {
    let mut setup = Setup::new(Transport::Rc);
    setup.channels = true;
    Pair::connected(env, &setup)
}

fn channel(side: &Side<'_>) -> Check<Channel> {
    match side.channel {
        Some(channel) => Ok(channel),
        None => fail("the fixture made no channel"),
    }
}

/// One event of the receive queue, acknowledged.
fn event(side: &Side<'_>) -> Check {
    let got = side.v.channel_event(channel(side)?, LONG)?;
    equal("queue of the event", got, Some(side.recv_cq.id))?;
    Ok(side.v.ack_cq(side.recv_cq, 1)?)
}

fn no_event(side: &Side<'_>) -> Check {
    equal(
        "an event that should not be",
        side.v.channel_event(channel(side)?, QUIET)?,
        None,
    )
}

fn solicited(pair: &Pair<'_>, id: u64) -> Check {
    let (a, b) = (&pair.a, &pair.b);
    b.post_recv(&[RecvWr::new(id, [b.sge(0, 64)])])?;
    a.post(SendWr::new(id, Op::Send, [a.sge(0, 8)]).with(send::SOLICITED))?;
    a.sent(&[(id, Status::SUCCESS)])?;
    b.received(&[(id, Status::SUCCESS)]).map(drop)
}

/// Arm, completion, event, acknowledge, arm, and no poll in between: the next completion tells.
fn arm_without_polling(env: &Env) -> Check {
    let pair = channels(env)?;
    let (a, b) = (&pair.a, &pair.b);
    for id in 0..4 {
        b.post_recv(&[RecvWr::new(id, [b.sge(0, 64)])])?;
    }
    for id in 0..4 {
        b.v.arm(b.recv_cq, false)?;
        a.post(SendWr::new(id, Op::Send, [a.sge(0, 8)]))?;
        a.sent(&[(id, Status::SUCCESS)])?;
        event(b)?;
    }
    let all: Vec<_> = (0..4).map(|id| (id, Status::SUCCESS)).collect();
    b.received(&all)?;
    no_event(b)
}

/// Both ends sleep for each message: arm, drain, and only then sleep.
fn ping_pong_asleep(env: &Env) -> Check {
    let pair = channels(env)?;
    let (a, b) = (&pair.a, &pair.b);
    for side in [a, b] {
        side.v.arm(side.recv_cq, false)?;
    }
    for round in 0..500_u64 {
        for (from, to) in [(a, b), (b, a)] {
            to.post_recv(&[RecvWr::new(round, [to.sge(0, 64)])])?;
            from.post(SendWr::new(round, Op::Send, [from.sge(0, 8)]))?;
            event(to)?;
            to.v.arm(to.recv_cq, false)?;
            to.received(&[(round, Status::SUCCESS)])?;
            from.sent(&[(round, Status::SUCCESS)])?;
        }
    }
    Ok(())
}

fn two_queues(env: &Env) -> Check {
    let pair = channels(env)?;
    let (a, b) = (&pair.a, &pair.b);
    b.v.arm(b.recv_cq, false)?;
    b.v.arm(b.send_cq, false)?;
    pair.exchange(1, 64)?;
    b.post(SendWr::new(2, Op::Write(a.remote(0)), [b.sge(0, 8)]))?;
    b.sent(&[(2, Status::SUCCESS)])?;
    let mut seen = Vec::new();
    for _ in 0..2 {
        seen.extend(b.v.channel_event(channel(b)?, LONG)?);
    }
    seen.sort_unstable();
    let mut expected = vec![b.send_cq.id, b.recv_cq.id];
    expected.sort_unstable();
    equal("queues of the events", seen, expected)?;
    b.v.ack_cq(b.send_cq, 1)?;
    Ok(b.v.ack_cq(b.recv_cq, 1)?)
}

/// Destruction waits until the event that was taken is acknowledged.
fn destroy_waits(env: &Env) -> Check {
    let pair = channels(env)?;
    let b = &pair.b;
    b.v.arm(b.recv_cq, false)?;
    pair.exchange(1, 64)?;
    let got = b.v.channel_event(channel(b)?, LONG)?;
    equal("queue of the event", got, Some(b.recv_cq.id))?;
    b.v.destroy_qp(b.qp)?;
    let outcome = std::thread::scope(|scope| {
        let destroyer = scope.spawn(|| b.v.destroy_cq(b.recv_cq));
        std::thread::sleep(Duration::from_millis(300));
        let early = destroyer.is_finished();
        let acked = b.v.ack_cq(b.recv_cq, 1);
        (early, acked, destroyer.join())
    });
    // A provider may also refuse at once, but not free the queue under the event.
    let (early, acked, joined) = outcome;
    acked?;
    match joined {
        Err(_) => fail("the destroying thread panicked"),
        Ok(Err(fault)) => {
            ensure("refused as busy", early && fault.is(&[libc::EBUSY]))?;
            Ok(b.v.destroy_cq(b.recv_cq)?)
        }
        Ok(Ok(())) => ensure("destruction waits for the acknowledgement", !early),
    }
}

/// IBTA 11.6.3.2: the responder whose memory was reached for in vain may be told.
fn access_error(env: &Env) -> Check {
    let pair = Pair::connected(env, &Setup::new(Transport::Rc))?;
    let (a, b) = (&pair.a, &pair.b);
    let nowhere = Remote {
        rkey: b.mr.rkey ^ 0x55,
        ..b.remote(0)
    };
    a.post(SendWr::new(1, Op::Write(nowhere), [a.sge(0, 8)]))?;
    a.sent(&[(1, Status::REM_ACCESS_ERR)])?;
    while let Some(event) = b.v.async_event(QUIET)? {
        let known = [
            event::QP_ACCESS_ERR,
            event::QP_REQ_ERR,
            event::QP_FATAL,
            event::COMM_EST,
            event::QP_LAST_WQE_REACHED,
        ];
        ensure("an event of a queue pair", known.contains(&event.kind))?;
        ensure("of one of the two", [a.qp.id, b.qp.id].contains(&event.id))?;
    }
    Ok(())
}
