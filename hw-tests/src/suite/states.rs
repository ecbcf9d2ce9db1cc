//! The queue pair's states: which steps the kernel takes, which attributes each needs, what it
//! remembers, and what may be posted where.

use super::Suite;
use crate::check::{Check, equal, fail, post_refused, refused};
use crate::fixture::{Env, Pair, QKEY, Setup, Side, to_state};
use crate::verbs::types::*;

/// How far a queue pair is taken before a step is tried.
const REACHABLE: [State; 5] = [
    State::Reset,
    State::Init,
    State::Rtr,
    State::Rts,
    State::Err,
];

const REFUSED: [i32; 2] = [libc::EINVAL, libc::EOPNOTSUPP];

pub(super) fn cases(suite: &mut Suite) {
    for transport in Transport::ALL {
        suite.case(
            format!("state/{transport}/fresh_is_reset[B32]"),
            &[],
            move |env| {
                let pair = Pair::unconnected(env, &Setup::new(transport))?;
                equal("state", pair.a.state()?, State::Reset)
            },
        );
        suite.case(format!("state/{transport}/steps_to_rts"), &[], move |env| {
            steps_to_rts(env, transport)
        });
        suite.case(
            format!("state/{transport}/round_trip_of_attributes"),
            &[],
            move |env| round_trip(env, transport),
        );
        for from in REACHABLE {
            for to in [
                State::Reset,
                State::Init,
                State::Rtr,
                State::Rts,
                State::Err,
            ] {
                let name = format!("state/{transport}/{from:?}_to_{to:?}").to_lowercase();
                suite.case(name, &[], move |env| step(env, transport, from, to));
            }
        }
        suite.case(
            format!("state/{transport}/post/gates[B32]"),
            &[],
            move |env| gates(env, transport),
        );
        suite.case(
            format!("state/{transport}/post/refused_again_after_reset[B32]"),
            &[],
            move |env| refused_again(env, transport),
        );
    }
    for missing in [
        "init.port",
        "init.pkey_index",
        "init.access",
        "rtr.route",
        "rtr.mtu",
        "rtr.dest",
        "rtr.rq_psn",
        "rtr.max_dest_rd_atomic",
        "rtr.min_rnr_timer",
        "rts.sq_psn",
        "rts.timeout",
        "rts.retry",
        "rts.rnr_retry",
        "rts.max_rd_atomic",
    ] {
        suite.case(format!("state/rc/without_{missing}"), &[], move |env| {
            without(env, Transport::Rc, missing)
        });
    }
    suite.case("state/ud/without_init.qkey", &[], |env| {
        without(env, Transport::Ud, "init.qkey")
    });
    for transport in Transport::ALL {
        suite.case(
            format!("state/{transport}/superfluous_attribute"),
            &[],
            move |env| superfluous(env, transport),
        );
    }
    suite.case("state/rc/bad_port", &[], |env| {
        bad_value(env, |init, _| init.port = Some(77))
    });
    suite.case("state/rc/bad_sgid_index", &[], |env| {
        bad_value(env, |_, rtr| {
            if let Some(route) = &mut rtr.route {
                route.sgid_index = 250;
            }
        })
    });
    suite.case("state/rc/mtu_too_big", &[], |env| {
        bad_value(env, |_, rtr| rtr.mtu = Some(6))
    });
    suite.case("state/rc/access_changes_in_rts", &[], |env| {
        let pair = Pair::connected(env, &Setup::new(Transport::Rc))?;
        let b = &pair.b;
        b.v.modify_qp(
            b.qp,
            &QpAttr {
                access: Some(access::REMOTE_READ),
                ..QpAttr::default()
            },
        )?;
        equal(
            "access",
            b.v.query_qp(b.qp)?.access & 0xf,
            access::REMOTE_READ,
        )?;
        pair.a
            .post(SendWr::new(1, Op::Read(b.remote(0)), [pair.a.sge(0, 8)]))?;
        pair.a.sent(&[(1, Status::SUCCESS)])?;
        pair.a
            .post(SendWr::new(2, Op::Write(b.remote(0)), [pair.a.sge(0, 8)]))?;
        pair.a
            .sent_one(2, &[Status::REM_ACCESS_ERR, Status::REM_INV_REQ_ERR])
            .map(drop)
    });
    suite.case(
        "state/rc/first_message_in_rtr_arrives",
        &[],
        first_message_in_rtr,
    );
}

/// The attributes of the step to `to`, towards the side itself.
fn attr_of(side: &Side<'_>, setup: &Setup, to: State) -> Check<QpAttr> {
    let mtu = side.v.port(side.port)?.active_mtu;
    Ok(match to {
        State::Init => side.init_attr(setup),
        State::Rtr => side.rtr_attr(setup, side.address(), mtu),
        State::Rts => side.rts_attr(setup),
        other => to_state(other),
    })
}

fn take_to(side: &Side<'_>, setup: &Setup, state: State) -> Check {
    let path: &[State] = match state {
        State::Reset => &[],
        State::Init => &[State::Init],
        State::Rtr => &[State::Init, State::Rtr],
        State::Rts => &[State::Init, State::Rtr, State::Rts],
        _ => &[State::Init, State::Err],
    };
    for to in path {
        side.v.modify_qp(side.qp, &attr_of(side, setup, *to)?)?;
    }
    Ok(())
}

fn steps_to_rts(env: &Env, transport: Transport) -> Check {
    let setup = Setup::new(transport);
    let pair = Pair::unconnected(env, &setup)?;
    let a = &pair.a;
    for to in [
        State::Init,
        State::Rtr,
        State::Rts,
        State::Err,
        State::Reset,
    ] {
        a.v.modify_qp(a.qp, &attr_of(a, &setup, to)?)?;
        equal("state", a.state()?, to)?;
    }
    Ok(())
}

/// IBTA 10.3.1, figure 124: any state may go to RESET or ERROR, and on along RESET, INIT, RTR, RTS;
/// INIT and RTS may be set again. Linux has no step from RESET to ERROR for any device
/// (`drivers/infiniband/core/verbs.c`, `qp_state_table`; 6.12 and 7.3).
fn allowed(from: State, to: State) -> bool {
    use State::*;
    matches!(
        (from, to),
        (_, Reset)
            | (Init | Rtr | Rts | Err, Err)
            | (Reset | Init, Init)
            | (Init, Rtr)
            | (Rtr | Rts, Rts)
    )
}

fn step(env: &Env, transport: Transport, from: State, to: State) -> Check {
    let setup = Setup::new(transport);
    let pair = Pair::unconnected(env, &setup)?;
    let a = &pair.a;
    take_to(a, &setup, from)?;
    let mut attr = attr_of(a, &setup, to)?;
    if (from, to) == (State::Rts, State::Rts) {
        // Staying in RTS takes optional attributes only.
        attr = to_state(State::Rts);
    }
    let answer = a.v.modify_qp(a.qp, &attr);
    if allowed(from, to) {
        answer?;
        return equal("state", a.state()?, to);
    }
    refused("the step", answer, &REFUSED)?;
    equal("state after a refused step", a.state()?, from)
}

fn round_trip(env: &Env, transport: Transport) -> Check {
    let mut setup = Setup::new(transport);
    (setup.timeout, setup.retry, setup.rnr_retry) = (11, 5, 3);
    (setup.min_rnr_timer, setup.rd_atomic) = (9, 4);
    let pair = Pair::connected(env, &setup)?;
    let (a, b) = (&pair.a, &pair.b);
    let got = a.v.query_qp(a.qp)?;
    equal("state", got.state, State::Rts)?;
    equal("port", got.port, a.port)?;
    equal("pkey_index", got.pkey_index, 0)?;
    equal("caps", got.caps, a.qp.caps)?;
    if transport == Transport::Ud {
        return equal("qkey", got.qkey, QKEY);
    }
    equal("dest", got.dest, b.qp.num)?;
    equal("rq_psn", got.rq_psn, b.first_psn)?;
    equal("sq_psn", got.sq_psn, a.first_psn)?;
    equal("route", got.route, a.route_to(b.gid, b.lid))?;
    equal("mtu", got.mtu, a.v.port(a.port)?.active_mtu)?;
    if transport == Transport::Rc {
        equal("timeout", got.timeout, 11)?;
        equal("retry", got.retry, 5)?;
        equal("rnr_retry", got.rnr_retry, 3)?;
        equal("min_rnr_timer", got.min_rnr_timer, 9)?;
        equal("max_rd_atomic", got.max_rd_atomic, 4)?;
        equal("max_dest_rd_atomic", got.max_dest_rd_atomic, 4)?;
        let rights = access::ALL & !access::LOCAL_WRITE;
        equal("access", got.access & rights, rights)?;
    }
    Ok(())
}

fn gates(env: &Env, transport: Transport) -> Check {
    let setup = Setup::new(transport);
    let mut pair = Pair::unconnected(env, &setup)?;
    pair.a.datagram = Some(Datagram {
        ah: pair
            .a
            .v
            .create_ah(pair.a.pd, &pair.a.route_to(pair.a.gid, pair.a.lid))?,
        qpn: pair.a.qp.num,
        qkey: QKEY,
    })
    .filter(|_| transport == Transport::Ud);
    let a = &pair.a;
    let send = |id| a.post(SendWr::new(id, Op::Send, [a.sge(0, 8)]));
    let recv = |id| a.post_recv(&[RecvWr::new(id, [a.sge(1024, 64)])]);
    post_refused("a receive in RESET", recv(1), 0, &REFUSED)?;
    post_refused("a send in RESET", send(1), 0, &REFUSED)?;
    a.v.modify_qp(a.qp, &attr_of(a, &setup, State::Init)?)?;
    recv(2)?;
    post_refused("a send in INIT", send(2), 0, &REFUSED)?;
    a.v.modify_qp(a.qp, &attr_of(a, &setup, State::Rtr)?)?;
    recv(3)?;
    post_refused("a send in RTR", send(3), 0, &REFUSED)?;
    a.v.modify_qp(a.qp, &attr_of(a, &setup, State::Rts)?)?;
    send(4)?;
    a.sent_one(4, &[Status::SUCCESS, Status::RETRY_EXC_ERR])?;
    a.to_error()?;
    send(5)?;
    a.sent(&[(5, Status::WR_FLUSH_ERR)])?;
    a.silent_send()
}

fn refused_again(env: &Env, transport: Transport) -> Check {
    let pair = Pair::connected(env, &Setup::new(transport))?;
    pair.exchange(1, 64)?;
    let a = &pair.a;
    a.v.modify_qp(a.qp, &to_state(State::Reset))?;
    let wr = || SendWr::new(2, Op::Send, [a.sge(0, 8)]);
    post_refused("a send after RESET", a.post(wr()), 0, &REFUSED)?;
    let recv = a.post_recv(&[RecvWr::new(2, [a.sge(0, 64)])]);
    post_refused("a receive after RESET", recv, 0, &REFUSED)?;
    a.v.modify_qp(a.qp, &a.init_attr(&Setup::new(transport)))?;
    post_refused("a send in INIT", a.post(wr()), 0, &REFUSED)?;
    a.silent()
}

fn without(env: &Env, transport: Transport, missing: &str) -> Check {
    let setup = Setup::new(transport);
    let pair = Pair::unconnected(env, &setup)?;
    let a = &pair.a;
    let mut init = attr_of(a, &setup, State::Init)?;
    let mut rtr = attr_of(a, &setup, State::Rtr)?;
    let mut rts = attr_of(a, &setup, State::Rts)?;
    match missing {
        "init.port" => init.port = None,
        "init.pkey_index" => init.pkey_index = None,
        "init.access" => init.access = None,
        "init.qkey" => init.qkey = None,
        "rtr.route" => rtr.route = None,
        "rtr.mtu" => rtr.mtu = None,
        "rtr.dest" => rtr.dest = None,
        "rtr.rq_psn" => rtr.rq_psn = None,
        "rtr.max_dest_rd_atomic" => rtr.max_dest_rd_atomic = None,
        "rtr.min_rnr_timer" => rtr.min_rnr_timer = None,
        "rts.sq_psn" => rts.sq_psn = None,
        "rts.timeout" => rts.timeout = None,
        "rts.retry" => rts.retry = None,
        "rts.rnr_retry" => rts.rnr_retry = None,
        "rts.max_rd_atomic" => rts.max_rd_atomic = None,
        other => return fail(format!("the case table names {other}")),
    }
    let step = missing.split('.').next().unwrap_or_default();
    for (name, attr) in [("init", init), ("rtr", rtr), ("rts", rts)] {
        let before = a.state()?;
        let answer = a.v.modify_qp(a.qp, &attr);
        if name == step {
            refused("the step", answer, &REFUSED)?;
            return equal("state after a refused step", a.state()?, before);
        }
        answer?;
    }
    fail("no step was refused")
}

/// RESET → INIT with an attribute of a later step.
fn superfluous(env: &Env, transport: Transport) -> Check {
    let setup = Setup::new(transport);
    let pair = Pair::unconnected(env, &setup)?;
    let a = &pair.a;
    let init = attr_of(a, &setup, State::Init)?;
    let bad = [
        QpAttr {
            dest: Some(1),
            ..init
        },
        QpAttr {
            sq_psn: Some(1),
            ..init
        },
        QpAttr {
            timeout: Some(1),
            ..init
        },
    ];
    for attr in bad {
        refused("the step", a.v.modify_qp(a.qp, &attr), &REFUSED)?;
        equal("state after a refused step", a.state()?, State::Reset)?;
    }
    a.v.modify_qp(a.qp, &init).map_err(Into::into)
}

fn bad_value(env: &Env, change: fn(&mut QpAttr, &mut QpAttr)) -> Check {
    let setup = Setup::new(Transport::Rc);
    let pair = Pair::unconnected(env, &setup)?;
    let a = &pair.a;
    let mut init = attr_of(a, &setup, State::Init)?;
    let mut rtr = attr_of(a, &setup, State::Rtr)?;
    change(&mut init, &mut rtr);
    // ENODATA: the GID table has no entry there.
    let errnos = [libc::EINVAL, libc::EOPNOTSUPP, libc::ENODATA, libc::ENOENT];
    match a.v.modify_qp(a.qp, &init) {
        Ok(()) => refused("the step", a.v.modify_qp(a.qp, &rtr), &errnos),
        answer => refused("the step", answer, &errnos),
    }
}

/// b is in RTR only: a message from a arrives, and b can answer once it is in RTS.
fn first_message_in_rtr(env: &Env) -> Check {
    let setup = Setup::new(Transport::Rc);
    let pair = Pair::unconnected(env, &setup)?;
    let (a, b) = (&pair.a, &pair.b);
    let mtu =
        a.v.port(a.port)?
            .active_mtu
            .min(b.v.port(b.port)?.active_mtu);
    a.v.modify_qp(a.qp, &a.init_attr(&setup))?;
    b.v.modify_qp(b.qp, &b.init_attr(&setup))?;
    b.post_recv(&[RecvWr::new(1, [b.sge(0, 64)])])?;
    b.v.modify_qp(b.qp, &b.rtr_attr(&setup, a.address(), mtu))?;
    a.v.modify_qp(a.qp, &a.rtr_attr(&setup, b.address(), mtu))?;
    a.v.modify_qp(a.qp, &a.rts_attr(&setup))?;
    a.post(SendWr::new(1, Op::Send, [a.sge(0, 8)]))?;
    a.sent(&[(1, Status::SUCCESS)])?;
    b.received(&[(1, Status::SUCCESS)])?;
    b.v.modify_qp(b.qp, &b.rts_attr(&setup))?;
    a.post_recv(&[RecvWr::new(2, [a.sge(0, 64)])])?;
    b.post(SendWr::new(2, Op::Send, [b.sge(0, 8)]))?;
    b.sent(&[(2, Status::SUCCESS)])?;
    a.received(&[(2, Status::SUCCESS)]).map(drop)
}
