//! Posting: what is refused at once, where in a list, and how many requests a queue holds.

use super::{Need, Suite, deviation};
use crate::check::{Check, ensure, equal, fail, post_refused};
use crate::fixture::{Env, Pair, Setup, Side};
use crate::verbs::types::*;

/// Errors of a request that is wrong in itself. mlx5's send queue says `ENOMEM` of too many entries.
const BAD: [i32; 3] = [libc::EINVAL, libc::ENOMEM, libc::EOPNOTSUPP];
/// Errors of a full queue.
const FULL: [i32; 2] = [libc::ENOMEM, libc::ENOSPC];

pub(super) fn cases(suite: &mut Suite) {
    for transport in Transport::ALL {
        suite.case(format!("post/{transport}/send/max_sge"), &[], move |env| {
            let max = env.v().device()?.max_sge.min(30);
            gather(env, transport, max)
        });
        suite.case(
            format!("post/{transport}/send/max_sge+1[B08]"),
            &[],
            move |env| too_many_send_sges(env, transport),
        );
        suite.case(
            format!("post/{transport}/recv/max_sge+1[B08]"),
            &[],
            move |env| too_many_recv_sges(env, transport),
        );
        suite.case(
            format!("post/{transport}/send/queue_full[B08]"),
            &[],
            move |env| send_queue_full(env, transport),
        );
        suite.case(
            format!("post/{transport}/recv/queue_full[B08]"),
            &[],
            move |env| recv_queue_full(env, transport),
        );
        suite.case(
            format!("post/{transport}/send/list_of_16"),
            &[],
            move |env| list(env, transport, 16),
        );
    }
    suite.case(
        "post/send/third_of_five_is_bad[B08]",
        &[],
        third_of_five_send,
    );
    suite.case(
        "post/recv/third_of_five_is_bad[B08]",
        &[],
        third_of_five_recv,
    );
    suite.case(
        "post/srq/third_of_five_is_bad[B08]",
        &[Need::Srq],
        third_of_five_srq,
    );
    suite.case(
        "post/send/unsignaled_until_full[B09]",
        &[],
        unsignaled_until_full,
    );
    suite.case("post/send/drained_late[B09]", &[], drained_late);
    suite.case(
        "post/send/list_longer_than_queue[B08]",
        &[],
        list_longer_than_queue,
    );
    suite.case("post/send/empty_list", &[], |env| {
        let pair = Pair::connected(env, &Setup::new(Transport::Rc))?;
        pair.a.v.post_send(pair.a.qp, &[])?;
        pair.a.silent()?;
        pair.exchange(1, 100)
    });
    suite.case(
        "post/send/values_do_not_leak_to_the_next[B06]",
        &[],
        values_do_not_leak,
    );
    for (name, lens) in [
        ("2^31", &[0x8000_0000_u32][..]),
        ("2^32-1", &[0xffff_ffff]),
        ("2^30+1_in_two", &[0x4000_0000, 0x4000_0001]),
        ("2^32_in_two", &[0x8000_0000, 0x8000_0000]),
        ("2^32+8_in_three", &[0x8000_0000, 0x8000_0000, 8]),
    ] {
        for transport in [Transport::Rc, Transport::Uc] {
            suite.case(
                format!("post/{transport}/length/{name}[B21]"),
                &[],
                move |env| length_beyond_everything(env, transport, lens),
            );
        }
    }
    type MakeOp = fn(Remote) -> Op;
    let read: MakeOp = Op::Read;
    let write: MakeOp = Op::Write;
    let add: MakeOp = |remote| Op::FetchAdd { remote, add: 1 };
    for (transport, name, op) in [
        (Transport::Uc, "read", read),
        (Transport::Uc, "fetch_add", add),
        (Transport::Ud, "read", read),
        (Transport::Ud, "write", write),
        (Transport::Ud, "fetch_add", add),
    ] {
        suite.case(
            format!("post/{transport}/foreign/{name}"),
            &[],
            move |env| foreign_operation(env, transport, op),
        );
    }
    for len in [0_u32, 1, 100] {
        suite.case(
            format!("post/rc/recv/no_sges/message={len}[B20]"),
            &[],
            move |env| receive_without_memory(env, len),
        );
    }
    suite.case("post/rc/recv/sges=0+100[B19]", &[], |env| {
        scatter(env, None, &[0, 100])
    });
    suite.case("post/rc/recv/sges=1+2+3+4", &[], |env| {
        scatter(env, None, &[1, 2, 3, 4])
    });
    suite.case(
        "post/rc/recv/sges=40+60_then_1[B20]",
        &[],
        fewer_sges_after_many,
    );
    suite.case("post/rc/srq/sges=0+100[B19]", &[Need::Srq], |env| {
        scatter(env, Some((16, 4)), &[0, 100])
    });
}

fn gather(env: &Env, transport: Transport, count: u32) -> Check {
    let mut setup = Setup::new(transport);
    setup.caps.send_sge = count;
    let pair = Pair::connected(env, &setup)?;
    let (a, b) = (&pair.a, &pair.b);
    ensure("as many entries as asked for", a.qp.caps.send_sge >= count)?;
    let len = count * 8;
    a.fill(0, len.into(), 3)?;
    let sges: Vec<_> = (0..count).map(|i| a.sge(u64::from(i) * 8, 8)).collect();
    let grh = b.grh();
    b.post_recv(&[RecvWr::new(1, [b.sge(0, grh as u32 + len)])])?;
    a.post(SendWr::new(1, Op::Send, sges))?;
    a.sent(&[(1, Status::SUCCESS)])?;
    b.received(&[(1, Status::SUCCESS)])?;
    b.expect(grh, len.into(), 3)
}

fn too_many_send_sges(env: &Env, transport: Transport) -> Check {
    let pair = Pair::connected(env, &Setup::new(transport))?;
    let a = &pair.a;
    let sges = vec![a.sge(0, 1); a.qp.caps.send_sge as usize + 1];
    post_refused(
        "one entry too many",
        a.post(SendWr::new(1, Op::Send, sges)),
        0,
        &BAD,
    )?;
    a.silent()?;
    pair.exchange(2, 64)
}

fn too_many_recv_sges(env: &Env, transport: Transport) -> Check {
    let pair = Pair::connected(env, &Setup::new(transport))?;
    let b = &pair.b;
    let sges = vec![b.sge(0, 1); b.qp.caps.recv_sge as usize + 1];
    let posted = b.post_recv(&[RecvWr::new(1, sges)]);
    post_refused("one entry too many", posted, 0, &BAD)?;
    pair.exchange(2, 64)
}

/// A receiver that is not ready keeps an RC sender's queue full; for others the queue is filled
/// with one list.
fn send_queue_full(env: &Env, transport: Transport) -> Check {
    let mut setup = Setup::new(transport);
    setup.caps.send_wr = 8;
    setup.cqe = 1024;
    // The longest pause, so that nothing is retired while the queue fills (IBTA table 45: 1 is
    // 0.01 ms, 0 is 655 ms).
    setup.min_rnr_timer = 0;
    let pair = Pair::connected(env, &setup)?;
    let (a, b) = (&pair.a, &pair.b);
    let room = a.qp.caps.send_wr;
    let list: Vec<_> = (0..u64::from(room) + 8)
        .map(|id| SendWr::new(id, Op::Send, [a.sge(0, 8)]).to(a.datagram))
        .collect();
    let Err(full) = a.v.post_send(a.qp, &list) else {
        return fail(format!("{} requests fit a queue of {room}", list.len()));
    };
    // Retired ones may leave room for as many again, never less than was promised.
    ensure(
        "as many requests as promised fit",
        full.index >= room as usize,
    )?;
    post_refused(
        "a request to a full queue",
        Err(full.clone()),
        full.index,
        &FULL,
    )?;
    if transport == Transport::Rc {
        let receives = |id| RecvWr::new(id, [b.sge(0, 8)]);
        for id in 0..full.index as u64 {
            // The receive queue has 16 places and more than that may be under way.
            while b.post_recv(&[receives(id)]).is_err() {
                std::thread::yield_now();
            }
        }
    }
    let expected: Vec<_> = (0..full.index as u64)
        .map(|id| (id, Status::SUCCESS))
        .collect();
    a.sent(&expected)?;
    Ok(())
}

fn recv_queue_full(env: &Env, transport: Transport) -> Check {
    let pair = Pair::connected(env, &Setup::new(transport))?;
    let b = &pair.b;
    let room = b.qp.caps.recv_wr;
    let list: Vec<_> = (0..u64::from(room) + 1)
        .map(|id| RecvWr::new(id, [b.sge(0, 64)]))
        .collect();
    let Err(full) = b.post_recv(&list) else {
        return fail(format!("{} requests fit a queue of {room}", list.len()));
    };
    equal("requests before the refused one", full.index, room as usize)?;
    post_refused("a request to a full queue", Err(full), room as usize, &FULL)?;
    // The ones before it are there and in order.
    let a = &pair.a;
    for id in 0..3 {
        a.post(SendWr::new(id, Op::Send, [a.sge(0, 8)]))?;
        a.sent(&[(id, Status::SUCCESS)])?;
        b.received(&[(id, Status::SUCCESS)])?;
    }
    Ok(())
}

fn list(env: &Env, transport: Transport, count: u64) -> Check {
    let mut setup = Setup::new(transport);
    setup.caps.send_wr = count as u32;
    setup.caps.recv_wr = count as u32;
    let pair = Pair::connected(env, &setup)?;
    let (a, b) = (&pair.a, &pair.b);
    let grh = b.grh();
    let slot = |id: u64| id * 256;
    let receives: Vec<_> = (0..count)
        .map(|id| RecvWr::new(100 + id, [b.sge(slot(id), grh as u32 + 64)]))
        .collect();
    b.post_recv(&receives)?;
    let mut sends = Vec::new();
    for id in 0..count {
        a.fill(slot(id), 64, id)?;
        sends.push(SendWr::new(id, Op::Send, [a.sge(slot(id), 64)]).to(a.datagram));
    }
    a.v.post_send(a.qp, &sends)?;
    let ids = |base| -> Vec<_> { (0..count).map(|id| (base + id, Status::SUCCESS)).collect() };
    a.sent(&ids(0))?;
    b.received(&ids(100))?;
    for id in 0..count {
        b.expect(slot(id) + grh, 64, id)?;
    }
    Ok(())
}

fn bad_third(wrs: impl Fn(u64, bool) -> RecvWr) -> Vec<RecvWr> {
    (0..5).map(|id| wrs(id, id == 2)).collect()
}

fn too_many(side: &Side<'_>, max: u32) -> Vec<Sge> {
    vec![side.sge(0, 8); max as usize + 1]
}

fn third_of_five_send(env: &Env) -> Check {
    let pair = Pair::connected(env, &Setup::new(Transport::Rc))?;
    let (a, b) = (&pair.a, &pair.b);
    for id in 0..2 {
        b.post_recv(&[RecvWr::new(id, [b.sge(0, 8)])])?;
    }
    let list: Vec<_> = (0..5)
        .map(|id| {
            let sges = match id {
                2 => too_many(a, a.qp.caps.send_sge),
                _ => vec![a.sge(0, 8)],
            };
            SendWr::new(id, Op::Send, sges)
        })
        .collect();
    post_refused("the third request", a.v.post_send(a.qp, &list), 2, &BAD)?;
    // The two before it were posted and rung for.
    let two = [(0, Status::SUCCESS), (1, Status::SUCCESS)];
    a.sent(&two)?;
    b.received(&two)?;
    a.silent()
}

fn third_of_five_recv(env: &Env) -> Check {
    let pair = Pair::connected(env, &Setup::new(Transport::Rc))?;
    let (a, b) = (&pair.a, &pair.b);
    let list = bad_third(|id, bad| match bad {
        true => RecvWr::new(id, too_many(b, b.qp.caps.recv_sge)),
        false => RecvWr::new(id, [b.sge(0, 8)]),
    });
    post_refused("the third request", b.post_recv(&list), 2, &BAD)?;
    first_two_arrive(a, b)
}

fn third_of_five_srq(env: &Env) -> Check {
    let mut setup = Setup::new(Transport::Rc);
    setup.srq = Some((16, 4));
    let pair = Pair::connected(env, &setup)?;
    let (a, b) = (&pair.a, &pair.b);
    let max = b.srq.map_or(0, |srq| srq.max_sge);
    let list = bad_third(|id, bad| match bad {
        true => RecvWr::new(id, too_many(b, max)),
        false => RecvWr::new(id, [b.sge(0, 8)]),
    });
    post_refused("the third request", b.post_recv(&list), 2, &BAD)?;
    first_two_arrive(a, b)
}

fn first_two_arrive(a: &Side<'_>, b: &Side<'_>) -> Check {
    for id in 0..2 {
        a.post(SendWr::new(id, Op::Send, [a.sge(0, 8)]))?;
        a.sent(&[(id, Status::SUCCESS)])?;
        b.received(&[(id, Status::SUCCESS)])?;
    }
    b.silent()
}

fn unsignaled_until_full(env: &Env) -> Check {
    let mut setup = Setup::new(Transport::Rc);
    setup.caps.send_wr = 16;
    let pair = Pair::connected(env, &setup)?;
    let (a, b) = (&pair.a, &pair.b);
    let room = a.qp.caps.send_wr as usize;
    for round in 0..5 {
        let mut list: Vec<_> = (0..room as u64)
            .map(|id| SendWr::new(id, Op::Write(b.remote(0)), [a.sge(0, 8)]).unsignaled())
            .collect();
        // One completion at the end frees all places.
        let last = list.len() - 1;
        list[last].flags = send::SIGNALED;
        if let Err(fault) = a.v.post_send(a.qp, &list) {
            return fail(format!("round {round}: {fault}"));
        }
        a.sent(&[(last as u64, Status::SUCCESS)])?;
    }
    a.silent()
}

/// Completions that wait in the queue do not take up places of the send queue for ever.
fn drained_late(env: &Env) -> Check {
    let mut setup = Setup::new(Transport::Rc);
    setup.caps.send_wr = 4;
    setup.cqe = 256;
    let pair = Pair::connected(env, &setup)?;
    let (a, b) = (&pair.a, &pair.b);
    let mut posted = 0_u64;
    let mut done = 0;
    while posted < 100 {
        let wr = SendWr::new(posted, Op::Write(b.remote(0)), [a.sge(0, 8)]);
        match a.post(wr) {
            Ok(()) => posted += 1,
            Err(full) => {
                post_refused("a request to a full queue", Err(full), 0, &FULL)?;
                ensure("a full queue has a request under way", done < posted)?;
                a.sent(&[(done, Status::SUCCESS)])?;
                done += 1;
            }
        }
    }
    let rest: Vec<_> = (done..posted).map(|id| (id, Status::SUCCESS)).collect();
    a.sent(&rest)?;
    a.silent()
}

fn list_longer_than_queue(env: &Env) -> Check {
    let mut setup = Setup::new(Transport::Rc);
    setup.caps.send_wr = 4;
    setup.min_rnr_timer = 0;
    setup.cqe = 256;
    let pair = Pair::connected(env, &setup)?;
    let (a, b) = (&pair.a, &pair.b);
    let count = u64::from(a.qp.caps.send_wr) + 1;
    let list: Vec<_> = (0..count).map(|id| SendWr::new(id, Op::Send, [])).collect();
    post_refused(
        "the last of the list",
        a.v.post_send(a.qp, &list),
        count as usize - 1,
        &FULL,
    )?;
    let done: Vec<_> = (0..count - 1).map(|id| (id, Status::SUCCESS)).collect();
    let receives: Vec<_> = (0..count - 1).map(|id| RecvWr::new(id, [])).collect();
    b.post_recv(&receives)?;
    a.sent(&done)?;
    b.received(&done)?;
    pair.exchange(9, 16)
}

fn values_do_not_leak(env: &Env) -> Check {
    let mut setup = Setup::new(Transport::Rc);
    setup.caps.inline = 60;
    let pair = Pair::connected(env, &setup)?;
    let (a, b) = (&pair.a, &pair.b);
    let limit = a.qp.caps.inline;
    a.fill(0, 100, 1)?;
    // Ten inline requests of 40 bytes each stay below the limit each.
    ensure("the limit is the one asked for or more", limit >= 60)?;
    let receives: Vec<_> = (0..12)
        .map(|id| RecvWr::new(id, [b.sge(id * 128, 100)]))
        .collect();
    b.post_recv(&receives)?;
    let mut list: Vec<_> = (0..10)
        .map(|id| SendWr::new(id, Op::Send, [a.sge(0, 40)]).with(send::INLINE))
        .collect();
    list.push(SendWr::new(10, Op::Send, [a.sge(0, 100)]).with(send::FENCE | send::SOLICITED));
    list.push(SendWr::new(11, Op::Send, []));
    a.v.post_send(a.qp, &list)?;
    let ids: Vec<_> = (0..12).map(|id| (id, Status::SUCCESS)).collect();
    a.sent(&ids)?;
    let got = b.received(&ids)?;
    let lens: Vec<_> = got.iter().map(|wc| wc.byte_len).collect();
    equal(
        "lengths",
        lens,
        vec![40, 40, 40, 40, 40, 40, 40, 40, 40, 40, 100, 0],
    )
}

/// Longer than any message: refused at once, or an error completion, never a short success.
fn length_beyond_everything(env: &Env, transport: Transport, lens: &[u32]) -> Check {
    let mut setup = Setup::new(transport);
    setup.retry = 1;
    let pair = Pair::connected(env, &setup)?;
    let (a, b) = (&pair.a, &pair.b);
    let sges: Vec<_> = lens.iter().map(|len| a.sge(0, *len)).collect();
    let wr = SendWr::new(1, Op::Write(b.remote(0)), sges);
    match a.post(wr) {
        Err(post) => post_refused("the length", Err(post), 0, &BAD),
        Ok(()) => {
            let got = a.v.wait(a.send_cq, 1, crate::fixture::LONG)?;
            let Some(wc) = got.first() else {
                return fail("accepted, and never completed");
            };
            ensure(
                "an error completion, not a success",
                wc.status != Status::SUCCESS,
            )
        }
    }
}

/// Operations that the transport does not have (IBTA 9.4, C9-8): refused, or completed in error, and
/// the other side's memory is as before.
fn foreign_operation(env: &Env, transport: Transport, op: fn(Remote) -> Op) -> Check {
    let pair = Pair::connected(env, &Setup::new(transport))?;
    let (a, b) = (&pair.a, &pair.b);
    b.fill(0, 64, 1)?;
    a.fill(0, 64, 2)?;
    let wr = SendWr::new(1, op(b.remote(0)), [a.sge(0, 8)]);
    match a.post(wr) {
        Err(post) => post_refused("the operation", Err(post), 0, &BAD)?,
        Ok(()) => {
            let got = a.v.wait(a.send_cq, 1, crate::fixture::LONG)?;
            let bad = got.first().is_some_and(|wc| wc.status != Status::SUCCESS);
            ensure("an error completion", bad)?;
        }
    }
    b.expect(0, 64, 1)?;
    a.expect(0, 64, 2)
}

fn receive_without_memory(env: &Env, len: u32) -> Check {
    let pair = Pair::connected(env, &Setup::new(Transport::Rc))?;
    let (a, b) = (&pair.a, &pair.b);
    b.post_recv(&[RecvWr::new(1, [])])?;
    a.post(SendWr::new(1, Op::Send, [a.sge(0, len)]))?;
    if len == 0 {
        a.sent(&[(1, Status::SUCCESS)])?;
        return b.received(&[(1, Status::SUCCESS)]).map(drop);
    }
    a.sent_one(1, deviation::TOO_LONG_AT_SENDER)?;
    b.received_one(1, deviation::TOO_LONG_AT_RECEIVER).map(drop)
}

fn scatter(env: &Env, srq: Option<(u32, u32)>, lens: &'static [u32]) -> Check {
    let mut setup = Setup::new(Transport::Rc);
    setup.srq = srq;
    let pair = Pair::connected(env, &setup)?;
    let (a, b) = (&pair.a, &pair.b);
    let total: u32 = lens.iter().sum();
    a.fill(0, total.into(), 8)?;
    b.fill(0, 8192, 9)?;
    // Each piece on its own, far from the others.
    let sges: Vec<_> = (0..)
        .zip(lens)
        .map(|(i, len)| b.sge(i * 1024, *len))
        .collect();
    b.post_recv(&[RecvWr::new(1, sges)])?;
    a.post(SendWr::new(1, Op::Send, [a.sge(0, total)]))?;
    a.sent(&[(1, Status::SUCCESS)])?;
    let got = b.received(&[(1, Status::SUCCESS)])?;
    equal("byte_len", got[0].byte_len, total)?;
    let sent = crate::fixture::pattern(8, total.into());
    let before = crate::fixture::pattern(9, 8192);
    let mut at = 0;
    for (i, len) in lens.iter().enumerate() {
        let len = *len as usize;
        let place = i * 1024;
        let piece = b.v.read(b.buf, place as u64, 1024)?;
        crate::fixture::same_bytes(&piece[..len], &sent[at..at + len], place as u64)?;
        let rest = &before[place + len..place + 1024];
        crate::fixture::same_bytes(&piece[len..], rest, (place + len) as u64)?;
        at += len;
    }
    Ok(())
}

/// A slot that held four entries is used again for one.
fn fewer_sges_after_many(env: &Env) -> Check {
    let mut setup = Setup::new(Transport::Rc);
    setup.caps.recv_wr = 1;
    let pair = Pair::connected(env, &setup)?;
    let (a, b) = (&pair.a, &pair.b);
    for round in 0..u64::from(b.qp.caps.recv_wr) + 2 {
        let many = [
            b.sge(0, 40),
            b.sge(1024, 60),
            b.sge(2048, 8),
            b.sge(3072, 8),
        ];
        b.post_recv(&[RecvWr::new(round, many)])?;
        a.post(SendWr::new(round, Op::Send, [a.sge(0, 100)]))?;
        a.sent(&[(round, Status::SUCCESS)])?;
        b.received(&[(round, Status::SUCCESS)])?;
    }
    b.post_recv(&[RecvWr::new(50, [b.sge(0, 8)])])?;
    a.post(SendWr::new(50, Op::Send, [a.sge(0, 100)]))?;
    a.sent_one(50, deviation::TOO_LONG_AT_SENDER)?;
    b.received_one(50, deviation::TOO_LONG_AT_RECEIVER)
        .map(drop)
}
