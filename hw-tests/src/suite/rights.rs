//! Keys, rights and bounds: what must not be reachable is not, and both sides learn why.

use super::{Need, Suite, deviation};
use crate::check::{Check, equal, refused};
use crate::fixture::{Env, Pair, Setup, Side};
use crate::verbs::types::*;

/// Operations on remote memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    Write,
    WriteImm,
    Read,
    CompareSwap,
    FetchAdd,
}

impl Reach {
    const ALL: [Self; 5] = [
        Self::Write,
        Self::WriteImm,
        Self::Read,
        Self::CompareSwap,
        Self::FetchAdd,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::WriteImm => "write_imm",
            Self::Read => "read",
            Self::CompareSwap => "compare_swap",
            Self::FetchAdd => "fetch_add",
        }
    }

    fn right(self) -> (u32, &'static str) {
        match self {
            Self::Write | Self::WriteImm => (access::REMOTE_WRITE, "remote_write"),
            Self::Read => (access::REMOTE_READ, "remote_read"),
            Self::CompareSwap | Self::FetchAdd => (access::REMOTE_ATOMIC, "remote_atomic"),
        }
    }

    fn needs(self) -> Vec<Need> {
        match self {
            Self::CompareSwap | Self::FetchAdd => vec![Need::Atomics],
            _ => vec![],
        }
    }

    fn op(self, remote: Remote) -> Op {
        match self {
            Self::Write => Op::Write(remote),
            Self::WriteImm => Op::WriteImm(remote, 1),
            Self::Read => Op::Read(remote),
            Self::CompareSwap => Op::CompareSwap {
                remote,
                compare: 0,
                swap: 1,
            },
            Self::FetchAdd => Op::FetchAdd { remote, add: 1 },
        }
    }
}

/// Where on the other side an operation reaches.
type Place = fn(&Side<'_>) -> Remote;

pub(super) fn cases(suite: &mut Suite) {
    for reach in Reach::ALL {
        let name = reach.name();
        let (right, right_name) = reach.right();
        let needs = reach.needs();
        let rc = |text: &str| format!("rights/rc/{name}/{text}");
        suite.case(
            rc(&format!("mr_without_{right_name}")),
            &needs,
            move |env| {
                let mut setup = Setup::new(Transport::Rc);
                setup.access &= !right;
                denied(env, &setup, reach, |b| b.remote(0), Status::REM_ACCESS_ERR)
            },
        );
        suite.case(
            rc(&format!("qp_without_{right_name}")),
            &needs,
            move |env| {
                let mut setup = Setup::new(Transport::Rc);
                setup.qp_access &= !right;
                // IBTA 9.7.5.2.8 lets the responder answer either NAK.
                denied_with(
                    env,
                    &setup,
                    reach,
                    |b| b.remote(0),
                    &[Status::REM_ACCESS_ERR, Status::REM_INV_REQ_ERR],
                )
            },
        );
        let plain = Setup::new(Transport::Rc);
        let bounds: [(&str, Place); 6] = [
            ("past_the_end", |b| b.remote(b.buf.len)),
            ("across_the_end", |b| b.remote(b.buf.len - 4)),
            ("before_the_start", |b| Remote {
                addr: b.buf.addr - 8,
                rkey: b.mr.rkey,
            }),
            ("address_wraps", |b| Remote {
                addr: u64::MAX - 7,
                rkey: b.mr.rkey,
            }),
            ("wrong_rkey", |b| Remote {
                rkey: b.mr.rkey ^ 0x0000_0055,
                ..b.remote(0)
            }),
            ("rkey_of_nothing", |b| Remote {
                rkey: b.mr.rkey ^ 0x0055_0000,
                ..b.remote(0)
            }),
        ];
        for (what, remote) in bounds {
            if what == "across_the_end" && right == access::REMOTE_ATOMIC {
                // Not aligned, which is refused before it could be out of bounds.
                continue;
            }
            suite.case(rc(what), &needs, move |env| {
                denied(env, &plain, reach, remote, Status::REM_ACCESS_ERR)
            });
        }
        suite.case(rc("deregistered"), &needs, move |env| {
            deregistered(env, reach)
        });
        suite.case(rc("other_protection_domain"), &needs, move |env| {
            other_pd(env, reach)
        });
    }
    for (name, op) in [("send", Op::Send), ("send_imm", Op::SendImm(1))] {
        for (what, lkey) in [("wrong_lkey", 0x55), ("lkey_of_nothing", 0x0055_0000)] {
            suite.case(format!("rights/rc/{name}/{what}"), &[], move |env| {
                local(env, op, |a| Sge {
                    lkey: a.mr.lkey ^ lkey,
                    ..a.sge(0, 8)
                })
            });
        }
        suite.case(
            format!("rights/rc/{name}/gather_past_the_end"),
            &[],
            move |env| local(env, op, |a| a.sge(a.buf.len - 4, 8)),
        );
        suite.case(
            format!("rights/rc/{name}/gather_before_the_start"),
            &[],
            move |env| {
                local(env, op, |a| Sge {
                    addr: a.buf.addr - 4,
                    ..a.sge(0, 8)
                })
            },
        );
    }
    suite.case(
        "rights/rc/send/second_gather_entry_bad",
        &[],
        second_entry_bad,
    );
    suite.case(
        "rights/rc/read/into_read_only_region",
        &[],
        read_into_read_only,
    );
    suite.case(
        "rights/rc/recv/into_read_only_region",
        &[],
        recv_into_read_only,
    );
    suite.case("rights/rc/recv/wrong_lkey", &[], |env| {
        recv_fails(env, |b| Sge {
            lkey: b.mr.lkey ^ 0x55,
            ..b.sge(0, 64)
        })
    });
    suite.case("rights/rc/recv/scatter_past_the_end", &[], |env| {
        recv_fails(env, |b| b.sge(b.buf.len - 4, 64))
    });
    for len in [2_u32, 100, 5000] {
        suite.case(
            format!("rights/rc/recv/message_{len}_one_byte_too_long"),
            &[],
            move |env| too_long(env, len),
        );
    }
    suite.case("rights/uc/write/wrong_rkey_is_dropped", &[], |env| {
        uc_dropped(env, |b| Remote {
            rkey: b.mr.rkey ^ 0x55,
            ..b.remote(0)
        })
    });
    suite.case("rights/uc/write/past_the_end_is_dropped", &[], |env| {
        uc_dropped(env, |b| b.remote(b.buf.len))
    });
    suite.case("rights/mr/remote_write_without_local_write", &[], |env| {
        // IBTA 10.6.3.1 and ibv_reg_mr(3): remote write or atomic needs local write.
        let v = env.v();
        let pd = v.alloc_pd()?;
        let buf = v.buffer(4096)?;
        for rights in [access::REMOTE_WRITE, access::REMOTE_ATOMIC] {
            let mr = v.reg_mr(pd, buf.addr, buf.len, buf.addr, rights);
            refused("the region", mr, &[libc::EINVAL, libc::EOPNOTSUPP])?;
        }
        Ok(())
    });
}

fn denied(env: &Env, setup: &Setup, reach: Reach, remote: Place, status: Status) -> Check {
    denied_with(env, setup, reach, remote, &[status])
}

/// The requester's completion has one of `statuses`, the memory is as before, and the queue pair is
/// in ERROR.
fn denied_with(
    env: &Env,
    setup: &Setup,
    reach: Reach,
    remote: Place,
    statuses: &[Status],
) -> Check {
    let pair = Pair::connected(env, setup)?;
    denied_on(&pair, reach, remote(&pair.b), statuses)
}

fn denied_on(pair: &Pair<'_>, reach: Reach, remote: Remote, statuses: &[Status]) -> Check {
    let (a, b) = (&pair.a, &pair.b);
    b.fill(0, b.buf.len, 21)?;
    a.fill(0, 64, 22)?;
    if reach == Reach::WriteImm {
        b.post_recv(&[RecvWr::new(2, [])])?;
    }
    a.post(SendWr::new(1, reach.op(remote), [a.sge(0, 8)]))?;
    a.sent_one(1, statuses)?;
    equal("state of the requester", a.state()?, State::Err)?;
    b.expect(0, b.buf.len, 21)?;
    a.expect(0, 64, 22)
}

fn deregistered(env: &Env, reach: Reach) -> Check {
    let pair = Pair::connected(env, &Setup::new(Transport::Rc))?;
    let b = &pair.b;
    let remote = b.remote(0);
    b.v.dereg_mr(b.mr)?;
    denied_on(&pair, reach, remote, &[Status::REM_ACCESS_ERR])
}

fn other_pd(env: &Env, reach: Reach) -> Check {
    let pair = Pair::connected(env, &Setup::new(Transport::Rc))?;
    let b = &pair.b;
    let pd = b.v.alloc_pd()?;
    let mr =
        b.v.reg_mr(pd, b.buf.addr, b.buf.len, b.buf.addr, access::ALL)?;
    let remote = Remote {
        addr: b.buf.addr,
        rkey: mr.rkey,
    };
    denied_on(&pair, reach, remote, &[Status::REM_ACCESS_ERR])
}

/// The sender's own memory is out of reach: its completion says so, and nothing arrives.
fn local(env: &Env, op: Op, sge: impl Fn(&Side<'_>) -> Sge) -> Check {
    let pair = Pair::connected(env, &Setup::new(Transport::Rc))?;
    let (a, b) = (&pair.a, &pair.b);
    b.post_recv(&[RecvWr::new(2, [b.sge(0, 64)])])?;
    a.post(SendWr::new(1, op, [sge(a)]))?;
    a.sent_one(1, deviation::LOCAL_PROTECTION)?;
    equal("state of the sender", a.state()?, State::Err)?;
    b.silent()
}

fn second_entry_bad(env: &Env) -> Check {
    let pair = Pair::connected(env, &Setup::new(Transport::Rc))?;
    let (a, b) = (&pair.a, &pair.b);
    b.post_recv(&[RecvWr::new(2, [b.sge(0, 64)])])?;
    let bad = Sge {
        lkey: a.mr.lkey ^ 0x55,
        ..a.sge(8, 8)
    };
    a.post(SendWr::new(1, Op::Send, [a.sge(0, 8), bad]))?;
    a.sent_one(1, deviation::LOCAL_PROTECTION)?;
    b.silent()
}

fn read_only_region(side: &Side<'_>) -> Check<Mr> {
    let (pd, buf) = (side.pd, side.buf);
    Ok(side
        .v
        .reg_mr(pd, buf.addr, buf.len, buf.addr, access::REMOTE_READ)?)
}

fn read_into_read_only(env: &Env) -> Check {
    let pair = Pair::connected(env, &Setup::new(Transport::Rc))?;
    let (a, b) = (&pair.a, &pair.b);
    a.fill(0, 64, 3)?;
    b.fill(0, 64, 4)?;
    let sge = Sge {
        lkey: read_only_region(a)?.lkey,
        ..a.sge(0, 64)
    };
    a.post(SendWr::new(1, Op::Read(b.remote(0)), [sge]))?;
    a.sent_one(1, deviation::LOCAL_PROTECTION)?;
    a.expect(0, 64, 3)
}

fn recv_into_read_only(env: &Env) -> Check {
    recv_fails(env, |b| Sge {
        lkey: read_only_region(b).map_or(0, |mr| mr.lkey),
        ..b.sge(0, 64)
    })
}

/// The receiver's memory is out of reach: its completion says LOC_PROT_ERR, the sender's REM_OP_ERR
/// (IBTA 9.7.5.2.8).
fn recv_fails(env: &Env, sge: impl Fn(&Side<'_>) -> Sge) -> Check {
    let pair = Pair::connected(env, &Setup::new(Transport::Rc))?;
    let (a, b) = (&pair.a, &pair.b);
    b.fill(0, b.buf.len, 5)?;
    b.post_recv(&[RecvWr::new(2, [sge(b)])])?;
    a.post(SendWr::new(1, Op::Send, [a.sge(0, 64)]))?;
    a.sent(&[(1, Status::REM_OP_ERR)])?;
    b.received_one(2, deviation::RECEIVE_PROTECTION)?;
    equal("state of the receiver", b.state()?, State::Err)?;
    b.expect(0, b.buf.len, 5)
}

fn too_long(env: &Env, len: u32) -> Check {
    let pair = Pair::connected(env, &Setup::new(Transport::Rc))?;
    let (a, b) = (&pair.a, &pair.b);
    b.fill(0, 8192, 5)?;
    b.post_recv(&[RecvWr::new(2, [b.sge(0, len - 1)])])?;
    a.post(SendWr::new(1, Op::Send, [a.sge(0, len)]))?;
    a.sent_one(1, deviation::TOO_LONG_AT_SENDER)?;
    b.received_one(2, deviation::TOO_LONG_AT_RECEIVER)?;
    // Bytes that fit may have been written, not those beyond.
    let end = u64::from(len) - 1;
    let beyond = b.v.read(b.buf, end, 64)?;
    let before = crate::fixture::pattern(5, end + 64);
    crate::fixture::same_bytes(&beyond, &before[end as usize..], end)
}

/// An unreliable sender hears of nothing; the receiver keeps its memory and goes on.
fn uc_dropped(env: &Env, remote: Place) -> Check {
    let pair = Pair::connected(env, &Setup::new(Transport::Uc))?;
    let (a, b) = (&pair.a, &pair.b);
    b.fill(0, b.buf.len, 5)?;
    a.post(SendWr::new(1, Op::Write(remote(b)), [a.sge(0, 8)]))?;
    a.sent(&[(1, Status::SUCCESS)])?;
    std::thread::sleep(crate::fixture::QUIET);
    b.expect(0, b.buf.len, 5)
}
