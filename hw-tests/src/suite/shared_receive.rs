//! Shared receive queues: sizes, many queue pairs on one, the limit and its event, resizing.

use super::{Need, Suite};
use crate::check::{Check, OrSkip, ensure, equal, fail, post_refused, refused};
use crate::fixture::{Env, LONG, Pair, QUIET, Setup};
use crate::verbs::types::*;

const SRQ: &[Need] = &[Need::Srq];
const RESIZE: &[Need] = &[Need::Srq, Need::SrqResize];

pub(super) fn cases(suite: &mut Suite) {
    for (max_wr, max_sge) in [
        (1, 1),
        (2, 2),
        (3, 4),
        (100, 2),
        (127, 3),
        (128, 1),
        (1000, 4),
    ] {
        suite.case(
            format!("srq/size/{max_wr}x{max_sge}[B58]"),
            SRQ,
            move |env| size(env, max_wr, max_sge),
        );
    }
    suite.case("srq/size/over_max_refused", SRQ, |env| {
        let v = env.v();
        let (device, pd) = (v.device()?, v.alloc_pd()?);
        let errnos = [libc::EINVAL, libc::ENOMEM];
        refused(
            "the queue",
            v.create_srq(pd, device.max_srq_wr + 1, 1, 0),
            &errnos,
        )?;
        refused(
            "the queue",
            v.create_srq(pd, 1, device.max_srq_sge + 1, 0),
            &errnos,
        )
    });
    for transport in Transport::ALL {
        suite.case(format!("srq/{transport}/exchange"), SRQ, move |env| {
            let mut setup = Setup::new(transport);
            setup.srq = Some((8, 2));
            let pair = Pair::connected(env, &setup)?;
            for id in 0..50 {
                pair.exchange(id, 100)?;
            }
            Ok(())
        });
    }
    suite.case("srq/rc/write_imm", SRQ, |env| {
        let mut setup = Setup::new(Transport::Rc);
        setup.srq = Some((8, 2));
        let pair = Pair::connected(env, &setup)?;
        let (a, b) = (&pair.a, &pair.b);
        b.post_recv(&[RecvWr::new(3, [])])?;
        a.post(SendWr::new(
            1,
            Op::WriteImm(b.remote(0), 77),
            [a.sge(0, 64)],
        ))?;
        a.sent(&[(1, Status::SUCCESS)])?;
        let got = b.received(&[(3, Status::SUCCESS)])?;
        equal("immediate data", got[0].imm, Some(77))
    });
    suite.case("srq/full[B58]", SRQ, full);
    suite.case("srq/three_pairs_share", SRQ, three_pairs);
    suite.case("srq/slots_come_back_after_flush[B58]", SRQ, |env| {
        let mut setup = Setup::new(Transport::Rc);
        setup.srq = Some((4, 1));
        for round in 0..6 {
            // A new pair each time on a new queue; the case is that nothing hangs or leaks.
            let pair = Pair::connected(env, &setup)?;
            let b = &pair.b;
            pair.exchange(round, 32)?;
            b.post_recv(&[RecvWr::new(9, [b.sge(0, 32)])])?;
            b.to_error()?;
            b.v.destroy_qp(b.qp)?;
            if let Some(srq) = b.srq {
                b.v.destroy_srq(srq)?;
            }
        }
        Ok(())
    });
    suite.case(
        "srq/receive_of_a_dead_pair_serves_the_next[B37]",
        SRQ,
        survives_its_pair,
    );
    suite.case("srq/recv_caps_are_ignored[B16]", SRQ, |env| {
        let v = env.v();
        let pd = v.alloc_pd()?;
        let cq = v.create_cq(8, None)?;
        let srq = v.create_srq(pd, 8, 1, 0)?;
        let caps = Caps {
            recv_wr: 0x7fff_ffff,
            recv_sge: 1000,
            ..Caps::default()
        };
        // ibv_create_qp(3): the receive capabilities are ignored with an SRQ. Linux 6.12's rxe checks
        // them nevertheless (`rxe_qp.c`, `rxe_qp_chk_cap` with `has_srq`: it does not).
        let qp = v.create_qp(&QpInit {
            pd,
            transport: Transport::Rc,
            send_cq: cq,
            recv_cq: cq,
            srq: Some(srq),
            caps,
            signal_all: false,
        })?;
        Ok(v.destroy_qp(qp)?)
    });
    suite.case("srq/destroy_in_use_refused", SRQ, |env| {
        let mut setup = Setup::new(Transport::Rc);
        setup.srq = Some((8, 2));
        let pair = Pair::connected(env, &setup)?;
        let b = &pair.b;
        let Some(srq) = b.srq else {
            return fail("the fixture made no queue");
        };
        refused("the destruction", b.v.destroy_srq(srq), &[libc::EBUSY])?;
        b.v.destroy_qp(b.qp)?;
        Ok(b.v.destroy_srq(srq)?)
    });
    suite.case("srq/post_to_the_pairs_own_queue_refused", SRQ, |env| {
        let mut setup = Setup::new(Transport::Rc);
        setup.srq = Some((8, 2));
        let pair = Pair::connected(env, &setup)?;
        let b = &pair.b;
        let posted = b.v.post_recv(b.qp, &[RecvWr::new(1, [b.sge(0, 8)])]);
        post_refused(
            "a receive",
            posted,
            0,
            &[libc::EINVAL, libc::ENOMEM, libc::EOPNOTSUPP],
        )
    });
    suite.case("srq/limit/event[B58]", SRQ, limit_event);
    suite.case("srq/limit/armed_again[B58]", SRQ, limit_again);
    suite.case("srq/limit/above_any_size_refused", SRQ, |env| {
        let v = env.v();
        let pd = v.alloc_pd()?;
        let srq = v.create_srq(pd, 8, 1, 0)?;
        // More than any queue holds: the device may have given more room than the provider tells of, as mlx5's keeps entries
        // for pages that come on demand, and it knows that room only.
        let limit = v.device()?.max_srq_wr + 1;
        refused(
            "the limit",
            v.modify_srq(srq, None, Some(limit)),
            &[libc::EINVAL],
        )?;
        equal("limit", v.query_srq(srq)?.limit, 0)
    });
    for (from, to) in [(4, 64), (64, 4), (10, 100)] {
        suite.case(
            format!("srq/resize/{from}_to_{to}[B58]"),
            RESIZE,
            move |env| resize(env, from, to),
        );
    }
    suite.case("srq/resize/below_posted_refused", RESIZE, |env| {
        let v = env.v();
        let pd = v.alloc_pd()?;
        let srq = v.create_srq(pd, 32, 1, 0)?;
        let list: Vec<_> = (0..20).map(|id| RecvWr::new(id, [])).collect();
        v.post_srq(srq, &list)?;
        match v.modify_srq(srq, Some(4), None) {
            Err(fault) if fault.unsupported() => Err(fault).or_skip("SRQ resize"),
            answer => refused("the size", answer, &[libc::EINVAL, libc::ENOMEM]),
        }
    });
}

fn size(env: &Env, max_wr: u32, max_sge: u32) -> Check {
    let v = env.v();
    let pd = v.alloc_pd()?;
    let srq = v.create_srq(pd, max_wr, max_sge, 0)?;
    ensure("as many requests as asked for", srq.max_wr >= max_wr)?;
    ensure("as many entries as asked for", srq.max_sge >= max_sge)?;
    let got = v.query_srq(srq)?;
    equal("max_wr", got.max_wr, srq.max_wr)?;
    equal("max_sge", got.max_sge, srq.max_sge)?;
    equal("limit", got.limit, 0)?;
    let again = v.create_srq(pd, srq.max_wr, srq.max_sge, 0)?;
    equal(
        "sizes of one made with the returned sizes",
        again.max_wr,
        srq.max_wr,
    )?;
    v.destroy_srq(again)?;
    v.destroy_srq(srq)?;
    Ok(v.dealloc_pd(pd)?)
}

fn full(env: &Env) -> Check {
    let mut setup = Setup::new(Transport::Rc);
    setup.srq = Some((8, 2));
    let pair = Pair::connected(env, &setup)?;
    let (a, b) = (&pair.a, &pair.b);
    let room = b.srq.map_or(0, |srq| srq.max_wr);
    let errnos = [libc::ENOMEM, libc::ENOSPC];
    let mut next = 0;
    for _ in 0..3 {
        let list: Vec<_> = (0..u64::from(room) + 1)
            .map(|i| RecvWr::new(next + i, [b.sge(0, 32)]))
            .collect();
        post_refused("one too many", b.post_recv(&list), room as usize, &errnos)?;
        for i in 0..u64::from(room) {
            a.post(SendWr::new(i, Op::Send, [a.sge(0, 32)]))?;
            a.sent(&[(i, Status::SUCCESS)])?;
            b.received(&[(next + i, Status::SUCCESS)])?;
        }
        next += 1000;
    }
    Ok(())
}

fn three_pairs(env: &Env) -> Check {
    let v = env.v();
    let setup = Setup::new(Transport::Rc);
    let template = Pair::connected(env, &setup)?;
    let b = &template.b;
    let srq = b.v.create_srq(b.pd, 64, 1, 0)?;
    let mtu = v.port(env.port)?.active_mtu;
    let mut senders = Vec::new();
    for _ in 0..3 {
        let sender = Pair::unconnected(env, &setup)?.a;
        let receiver = b.v.create_qp(&QpInit {
            pd: b.pd,
            transport: Transport::Rc,
            send_cq: b.send_cq,
            recv_cq: b.recv_cq,
            srq: Some(srq),
            caps: Caps::default(),
            signal_all: false,
        })?;
        let there = crate::fixture::Address {
            qpn: receiver.num,
            ..b.address()
        };
        for attr in [
            b.init_attr(&setup),
            b.rtr_attr(&setup, sender.address(), mtu),
            b.rts_attr(&setup),
        ] {
            b.v.modify_qp(receiver, &attr)?;
        }
        let mut sender = sender;
        sender.connect(&setup, there, mtu)?;
        senders.push((sender, receiver));
    }
    for round in 0..20_u64 {
        let (sender, receiver) = &senders[round as usize % 3];
        b.v.post_srq(srq, &[RecvWr::new(round, [b.sge(0, 64)])])?;
        sender.fill(0, 64, round)?;
        sender.post(SendWr::new(round, Op::Send, [sender.sge(0, 64)]))?;
        sender.sent(&[(round, Status::SUCCESS)])?;
        let got = b.v.wait(b.recv_cq, 1, LONG)?;
        let Some(wc) = got.first() else {
            return fail("no receive completion");
        };
        equal("wr_id", wc.id, round)?;
        equal("qp_num", wc.qp_num, receiver.num)?;
        b.expect(0, 64, round)?;
    }
    Ok(())
}

/// Receives that a destroyed queue pair did not use are there for the next one.
fn survives_its_pair(env: &Env) -> Check {
    let mut setup = Setup::new(Transport::Rc);
    setup.srq = Some((8, 1));
    let first = Pair::connected(env, &setup)?;
    let b = &first.b;
    let list: Vec<_> = (10..13).map(|id| RecvWr::new(id, [b.sge(0, 64)])).collect();
    b.post_recv(&list)?;
    first
        .a
        .post(SendWr::new(1, Op::Send, [first.a.sge(0, 8)]))?;
    b.received(&[(10, Status::SUCCESS)])?;
    b.v.destroy_qp(b.qp)?;
    let qp = b.v.create_qp(&QpInit {
        pd: b.pd,
        transport: Transport::Rc,
        send_cq: b.send_cq,
        recv_cq: b.recv_cq,
        srq: b.srq,
        caps: Caps::default(),
        signal_all: false,
    })?;
    let plain = Setup::new(Transport::Rc);
    let mut sender = Pair::unconnected(env, &plain)?.a;
    let mtu = sender.v.port(sender.port)?.active_mtu;
    for attr in [
        b.init_attr(&plain),
        b.rtr_attr(&plain, sender.address(), mtu),
        b.rts_attr(&plain),
    ] {
        b.v.modify_qp(qp, &attr)?;
    }
    let there = crate::fixture::Address {
        qpn: qp.num,
        ..b.address()
    };
    sender.connect(&plain, there, mtu)?;
    for id in [11, 12] {
        sender.post(SendWr::new(id, Op::Send, [sender.sge(0, 8)]))?;
        sender.sent(&[(id, Status::SUCCESS)])?;
        let got = b.v.wait(b.recv_cq, 1, LONG)?;
        let seen: Vec<_> = got.iter().map(|wc| (wc.id, wc.qp_num)).collect();
        equal("receive", seen, vec![(id, qp.num)])?;
    }
    Ok(())
}

fn limit_event(env: &Env) -> Check {
    let mut setup = Setup::new(Transport::Rc);
    setup.srq = Some((32, 1));
    let pair = Pair::connected(env, &setup)?;
    consume_to_limit(&pair, 0)
}

fn limit_again(env: &Env) -> Check {
    let mut setup = Setup::new(Transport::Rc);
    setup.srq = Some((64, 1));
    let pair = Pair::connected(env, &setup)?;
    consume_to_limit(&pair, 0)?;
    consume_to_limit(&pair, 100)
}

/// 20 posted, limit 10: eleven messages take it below, one event tells, and the limit reads 0.
fn consume_to_limit(pair: &Pair<'_>, base: u64) -> Check {
    let (a, b) = (&pair.a, &pair.b);
    let Some(srq) = b.srq else {
        return fail("the fixture made no queue");
    };
    let list: Vec<_> = (0..20)
        .map(|id| RecvWr::new(base + id, [b.sge(0, 64)]))
        .collect();
    b.post_recv(&list)?;
    b.v.modify_srq(srq, None, Some(10))?;
    equal("limit", b.v.query_srq(srq)?.limit, 10)?;
    let mut next = 0;
    let send = |id: u64| -> Check {
        a.post(SendWr::new(id, Op::Send, [a.sge(0, 8)]))?;
        a.sent(&[(id, Status::SUCCESS)])?;
        b.received(&[(base + id, Status::SUCCESS)]).map(drop)
    };
    while next < 9 {
        send(next)?;
        next += 1;
    }
    no_limit_event(pair, srq)?;
    while next < 11 {
        send(next)?;
        next += 1;
    }
    let event = loop {
        match b.v.async_event(LONG)? {
            Some(event) if event.kind == event::COMM_EST => {}
            other => break other,
        }
    };
    let expected = Event {
        kind: event::SRQ_LIMIT_REACHED,
        id: srq.id,
    };
    equal("event", event, Some(expected))?;
    equal("limit afterwards", b.v.query_srq(srq)?.limit, 0)?;
    while next < 20 {
        send(next)?;
        next += 1;
    }
    no_limit_event(pair, srq)
}

fn no_limit_event(pair: &Pair<'_>, srq: Srq) -> Check {
    while let Some(event) = pair.b.v.async_event(QUIET)? {
        ensure("no event of the queue", event.id != srq.id)?;
    }
    Ok(())
}

fn resize(env: &Env, from: u32, to: u32) -> Check {
    let mut setup = Setup::new(Transport::Rc);
    setup.srq = Some((from, 1));
    let pair = Pair::connected(env, &setup)?;
    let (a, b) = (&pair.a, &pair.b);
    let Some(srq) = b.srq else {
        return fail("the fixture made no queue");
    };
    for id in 0..3 {
        pair.exchange(id, 32)?;
    }
    let list: Vec<_> = (10..13).map(|id| RecvWr::new(id, [b.sge(0, 64)])).collect();
    b.post_recv(&list)?;
    b.v.modify_srq(srq, Some(to), None).or_skip("SRQ resize")?;
    let got = b.v.query_srq(srq)?;
    ensure("room for as many as asked for", got.max_wr >= to)?;
    // The three posted before are still there and first.
    for id in 10..13 {
        a.post(SendWr::new(id, Op::Send, [a.sge(0, 8)]))?;
        a.sent(&[(id, Status::SUCCESS)])?;
        b.received(&[(id, Status::SUCCESS)])?;
    }
    let list: Vec<_> = (0..u64::from(got.max_wr.min(100)))
        .map(|id| RecvWr::new(100 + id, [b.sge(0, 64)]))
        .collect();
    b.post_recv(&list)?;
    for wr in &list {
        a.post(SendWr::new(wr.id, Op::Send, [a.sge(0, 8)]))?;
        a.sent(&[(wr.id, Status::SUCCESS)])?;
        b.received(&[(wr.id, Status::SUCCESS)])?;
    }
    Ok(())
}
