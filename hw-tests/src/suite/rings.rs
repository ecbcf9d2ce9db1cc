//! Rings go round: many more messages than places, at every small depth.

use super::{Need, Suite};
use crate::check::{Check, equal};
use crate::fixture::{Env, LONG, Pair, Setup};
use crate::verbs::types::*;

pub(super) fn cases(suite: &mut Suite) {
    for transport in Transport::ALL {
        for depth in [1_u32, 2, 3, 4, 7, 8] {
            suite.slow_case(
                60,
                format!("ring/{transport}/depth={depth}/one_at_a_time[B26]"),
                &[],
                move |env| one_at_a_time(env, transport, depth, None),
            );
        }
        suite.slow_case(
            60,
            format!("ring/{transport}/full_windows[B26]"),
            &[],
            move |env| full_windows(env, transport),
        );
    }
    for depth in [1_u32, 2, 3, 8] {
        suite.slow_case(
            60,
            format!("ring/srq/depth={depth}/one_at_a_time[B26]"),
            &[Need::Srq],
            move |env| one_at_a_time(env, Transport::Rc, 8, Some(depth)),
        );
    }
    suite.slow_case(60, "ring/rc/mixed_operations[B06]", &[], mixed);
    suite.slow_case(
        60,
        "ring/rc/inline_sizes_round_and_round[B03]",
        &[],
        inline_sizes,
    );
    suite.slow_case(90, "ring/rc/psn_wraps", &[], psn_wraps);
    suite.slow_case(
        60,
        "ring/rc/fence_orders_read_before_send[B17]",
        &[],
        fenced,
    );
}

fn one_at_a_time(env: &Env, transport: Transport, depth: u32, srq: Option<u32>) -> Check {
    let mut setup = Setup::new(transport);
    setup.caps.send_wr = depth;
    setup.caps.recv_wr = depth;
    setup.srq = srq.map(|max_wr| (max_wr, 2));
    setup.cqe = depth;
    let pair = Pair::connected(env, &setup)?;
    for id in 0..u64::from(pair.a.qp.caps.send_wr) * 5 + 7 {
        pair.exchange(id, 20 + (id % 50) as u32)?;
    }
    pair.a.silent()?;
    pair.b.silent()
}

fn full_windows(env: &Env, transport: Transport) -> Check {
    let mut setup = Setup::new(transport);
    setup.caps.send_wr = 7;
    setup.caps.recv_wr = 7;
    let pair = Pair::connected(env, &setup)?;
    let (a, b) = (&pair.a, &pair.b);
    let window = u64::from(a.qp.caps.send_wr.min(b.qp.caps.recv_wr).min(64));
    let grh = b.grh();
    for round in 0..30 {
        let ids: Vec<_> = (round * 100..round * 100 + window).collect();
        let place = |id: u64| (id % 100) * 256;
        let receives: Vec<_> = ids
            .iter()
            .map(|id| RecvWr::new(*id, [b.sge(place(*id), 200)]))
            .collect();
        b.post_recv(&receives)?;
        for id in &ids {
            a.fill(place(*id), 100, *id)?;
            a.post(SendWr::new(*id, Op::Send, [a.sge(place(*id), 100)]))?;
        }
        let done: Vec<_> = ids.iter().map(|id| (*id, Status::SUCCESS)).collect();
        a.sent(&done)?;
        b.received(&done)?;
        for id in ids {
            b.expect(place(id) + grh, 100, id)?;
        }
    }
    Ok(())
}

/// All kinds of requests after one another through few places: a slot shows nothing of what it held.
fn mixed(env: &Env) -> Check {
    let mut setup = Setup::new(Transport::Rc);
    setup.caps.send_wr = 3;
    setup.caps.inline = 64;
    let pair = Pair::connected(env, &setup)?;
    let (a, b) = (&pair.a, &pair.b);
    for id in 0..120_u64 {
        let len = 1 + (id * 7 % 60) as u32;
        a.fill(0, len.into(), id)?;
        b.fill(0, 256, !id)?;
        let sg = vec![a.sge(0, len)];
        let receive = id % 5 < 3;
        let wr = match id % 5 {
            0 => SendWr::new(id, Op::Send, sg).with(send::INLINE),
            1 => SendWr::new(id, Op::SendImm(id as u32), sg),
            2 => SendWr::new(id, Op::WriteImm(b.remote(0), id as u32), sg),
            3 => SendWr::new(id, Op::Write(b.remote(0)), sg).with(send::INLINE),
            _ => SendWr::new(id, Op::Read(b.remote(0)), sg),
        };
        if receive {
            b.post_recv(&[RecvWr::new(id, [b.sge(0, 64)])])?;
        }
        a.post(wr)?;
        a.sent(&[(id, Status::SUCCESS)])?;
        if receive {
            let got = b.received(&[(id, Status::SUCCESS)])?;
            equal("byte_len", got[0].byte_len, len)?;
            equal(
                "immediate data",
                got[0].imm,
                (id % 5 != 0).then_some(id as u32),
            )?;
        }
        match id % 5 {
            4 => a.expect(0, len.into(), !id)?,
            _ => b.expect(0, len.into(), id)?,
        }
    }
    Ok(())
}

fn inline_sizes(env: &Env) -> Check {
    let mut setup = Setup::new(Transport::Rc);
    setup.caps.send_wr = 4;
    setup.caps.inline = 100;
    let pair = Pair::connected(env, &setup)?;
    let (a, b) = (&pair.a, &pair.b);
    for id in 0..150_u64 {
        let len = (id % 101) as u32;
        a.fill(0, 128, id)?;
        b.fill(0, 256, !id)?;
        let wr = SendWr::new(id, Op::Write(b.remote(8)), [a.sge(0, len)]);
        a.post(wr.with(send::INLINE))?;
        a.sent(&[(id, Status::SUCCESS)])?;
        b.expect(8, len.into(), id)?;
        let before = crate::fixture::pattern(!id, 256);
        let end = 8 + len as usize;
        b.expect_at(0, &before[..8])?;
        b.expect_at(end as u64, &before[end..])?;
    }
    Ok(())
}

/// The packet sequence number is 24 bits: start short of its end.
fn psn_wraps(env: &Env) -> Check {
    let setup = Setup::new(Transport::Rc);
    let mut pair = Pair::unconnected(env, &setup)?;
    pair.a.first_psn = 0xff_fff0;
    pair.b.first_psn = 0xff_fffe;
    pair.connect(&setup)?;
    for id in 0..40 {
        pair.exchange(id, 5000)?;
        let (a, b) = (&pair.a, &pair.b);
        a.post_recv(&[RecvWr::new(id, [a.sge(0, 64)])])?;
        b.post(SendWr::new(id, Op::Send, [b.sge(0, 64)]))?;
        b.sent(&[(id, Status::SUCCESS)])?;
        a.received(&[(id, Status::SUCCESS)])?;
    }
    Ok(())
}

/// A SEND behind a fence carries what the READ before it brought.
fn fenced(env: &Env) -> Check {
    let pair = Pair::connected(env, &Setup::new(Transport::Rc))?;
    let (a, b) = (&pair.a, &pair.b);
    for id in 0..100 {
        b.fill(0, 4096, id)?;
        a.fill(0, 4096, !id)?;
        b.post_recv(&[RecvWr::new(id, [b.sge(8192, 4096)])])?;
        let list = [
            SendWr::new(2 * id, Op::Read(b.remote(0)), [a.sge(0, 4096)]),
            SendWr::new(2 * id + 1, Op::Send, [a.sge(0, 4096)]).with(send::FENCE),
        ];
        a.v.post_send(a.qp, &list)?;
        a.sent(&[(2 * id, Status::SUCCESS), (2 * id + 1, Status::SUCCESS)])?;
        let got = b.v.wait(b.recv_cq, 1, LONG)?;
        equal("messages", got.len(), 1)?;
        b.expect(8192, 4096, id)?;
    }
    Ok(())
}
