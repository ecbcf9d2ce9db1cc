//! Memory windows, their keys and rights, and invalidation.

use super::{Need, Suite};
use crate::check::{Check, OrSkip, deviates, ensure, equal, fail};
use crate::fixture::{Env, LONG, Pair, Setup, Side};
use crate::verbs::types::*;

const ONE: &[Need] = &[Need::MemoryWindows];
const TWO: &[Need] = &[Need::MemoryWindows2];

/// What is tried through a window.
#[derive(Clone, Copy)]
enum Try {
    Write,
    Read,
}

pub(super) fn cases(suite: &mut Suite) {
    for (kind, name, needs) in [(MwType::One, "type1", ONE), (MwType::Two, "type2", TWO)] {
        suite.case(format!("window/{name}/alloc_and_free"), needs, move |env| {
            let v = env.v();
            let pd = v.alloc_pd()?;
            let mw = v.alloc_mw(pd, kind).or_skip("memory windows")?;
            v.dealloc_mw(mw)?;
            Ok(v.dealloc_pd(pd)?)
        });
        suite.case(format!("window/{name}/write"), needs, move |env| {
            through(
                env,
                kind,
                access::REMOTE_WRITE,
                Try::Write,
                0,
                Status::SUCCESS,
            )
        });
        suite.case(format!("window/{name}/read"), needs, move |env| {
            through(
                env,
                kind,
                access::REMOTE_READ,
                Try::Read,
                0,
                Status::SUCCESS,
            )
        });
        suite.case(
            format!("window/{name}/write_without_right"),
            needs,
            move |env| {
                through(
                    env,
                    kind,
                    access::REMOTE_READ,
                    Try::Write,
                    0,
                    Status::REM_ACCESS_ERR,
                )
            },
        );
        suite.case(
            format!("window/{name}/read_without_right"),
            needs,
            move |env| {
                through(
                    env,
                    kind,
                    access::REMOTE_WRITE,
                    Try::Read,
                    0,
                    Status::REM_ACCESS_ERR,
                )
            },
        );
        suite.case(format!("window/{name}/past_the_end"), needs, move |env| {
            past_the_end(env, kind)
        });
        suite.case(format!("window/{name}/unbound_key"), needs, move |env| {
            let pair = windows(env)?;
            let b = &pair.b;
            let mw = b.v.alloc_mw(b.pd, kind).or_skip("memory windows")?;
            reach(&pair, mw.rkey, Try::Write, 0, Status::REM_ACCESS_ERR)
        });
        suite.case(format!("window/{name}/freed_key"), needs, move |env| {
            let pair = windows(env)?;
            let b = &pair.b;
            let mw = b.v.alloc_mw(b.pd, kind).or_skip("memory windows")?;
            let rkey = bind(b, kind, mw, access::REMOTE_WRITE, 4096)?;
            b.v.dealloc_mw(mw)?;
            reach(&pair, rkey, Try::Write, 0, Status::REM_ACCESS_ERR)
        });
        suite.case(
            format!("window/{name}/region_without_mw_bind"),
            needs,
            move |env| {
                let pair = Pair::connected(env, &Setup::new(Transport::Rc))?;
                match binding_fails(&pair.b, kind, 4096)? {
                    None => Ok(()),
                    Some(_) => deviates(
                        "any region can be bound to: its key has no bit for that right (Linux \
                         mlx5_ifc.h, mkc)",
                    ),
                }
            },
        );
        suite.case(
            format!("window/{name}/beyond_the_region"),
            needs,
            move |env| beyond_the_region(env, kind),
        );
    }
    suite.case("window/type1/bound_again", ONE, |env| {
        let pair = windows(env)?;
        let b = &pair.b;
        let mw = b.v.alloc_mw(b.pd, MwType::One).or_skip("memory windows")?;
        let old = bind(b, MwType::One, mw, access::REMOTE_WRITE, 4096)?;
        let new = bind(b, MwType::One, mw, access::REMOTE_WRITE, 4096)?;
        ensure("a new key", old != new)?;
        equal("index of the key", old >> 8, new >> 8)?;
        reach(&pair, new, Try::Write, 0, Status::SUCCESS)?;
        reach(&pair, old, Try::Write, 0, Status::REM_ACCESS_ERR)
    });
    suite.case("window/type1/length_0_unbinds[B02]", ONE, |env| {
        let pair = windows(env)?;
        let b = &pair.b;
        let mw = b.v.alloc_mw(b.pd, MwType::One).or_skip("memory windows")?;
        let old = bind(b, MwType::One, mw, access::REMOTE_WRITE, 4096)?;
        reach(&pair, old, Try::Write, 0, Status::SUCCESS)?;
        bind(b, MwType::One, mw, access::REMOTE_WRITE, 0)?;
        reach(&pair, old, Try::Write, 0, Status::REM_ACCESS_ERR)
    });
    suite.case("window/type2/local_invalidate", TWO, |env| {
        let pair = windows(env)?;
        let b = &pair.b;
        let mw = b.v.alloc_mw(b.pd, MwType::Two).or_skip("memory windows")?;
        let rkey = bind(b, MwType::Two, mw, access::REMOTE_WRITE, 4096)?;
        reach(&pair, rkey, Try::Write, 0, Status::SUCCESS)?;
        b.post(SendWr::new(5, Op::LocalInv(rkey), []))?;
        let got = b.sent(&[(5, Status::SUCCESS)])?;
        equal("opcode", got[0].opcode, wc_op::LOCAL_INV)?;
        reach(&pair, rkey, Try::Write, 0, Status::REM_ACCESS_ERR)
    });
    suite.case("window/type2/send_with_invalidate", TWO, |env| {
        let pair = windows(env)?;
        let (a, b) = (&pair.a, &pair.b);
        let mw = b.v.alloc_mw(b.pd, MwType::Two).or_skip("memory windows")?;
        let rkey = bind(b, MwType::Two, mw, access::REMOTE_WRITE, 4096)?;
        b.post_recv(&[RecvWr::new(6, [b.sge(8192, 64)])])?;
        a.post(SendWr::new(6, Op::SendInv(rkey), [a.sge(0, 8)]))?;
        a.sent(&[(6, Status::SUCCESS)])?;
        let got = b.received(&[(6, Status::SUCCESS)])?;
        equal("invalidated key", got[0].invalidated, Some(rkey))?;
        reach(&pair, rkey, Try::Write, 0, Status::REM_ACCESS_ERR)
    });
    suite.case("window/type2/bound_again_after_invalidate", TWO, |env| {
        let pair = windows(env)?;
        let b = &pair.b;
        let mut mw = b.v.alloc_mw(b.pd, MwType::Two).or_skip("memory windows")?;
        for _ in 0..3 {
            let rkey = bind(b, MwType::Two, mw, access::REMOTE_WRITE, 4096)?;
            reach(&pair, rkey, Try::Write, 0, Status::SUCCESS)?;
            b.post(SendWr::new(5, Op::LocalInv(rkey), []))?;
            b.sent(&[(5, Status::SUCCESS)])?;
            mw.rkey = rkey;
        }
        Ok(())
    });
    suite.case(
        "invalidate/rc/local/key_of_nothing",
        &[Need::Invalidate],
        |env| {
            let pair = windows(env)?;
            let a = &pair.a;
            let wr = SendWr::new(1, Op::LocalInv(a.mr.rkey ^ 0x0055_0000), []);
            if a.post(wr).is_ok() {
                let got = a.v.wait(a.send_cq, 1, LONG)?;
                let bad = got.iter().any(|wc| wc.status != Status::SUCCESS);
                ensure("an error completion", bad)?;
            }
            Ok(())
        },
    );
    suite.case(
        "invalidate/rc/remote/key_of_nothing",
        &[Need::Invalidate],
        |env| {
            let pair = windows(env)?;
            let (a, b) = (&pair.a, &pair.b);
            b.post_recv(&[RecvWr::new(6, [b.sge(8192, 64)])])?;
            a.post(SendWr::new(
                6,
                Op::SendInv(b.mr.rkey ^ 0x0055_0000),
                [a.sge(0, 8)],
            ))?;
            // IBTA 9.9.3.1.4: the responder's own error; the requester may have had its answer.
            let got = b.v.wait(b.recv_cq, 1, LONG)?;
            ensure(
                "an error completion",
                got.iter().any(|wc| wc.status != Status::SUCCESS),
            )?;
            // The completion may be seen before the device has left the state that it belongs to.
            let end = std::time::Instant::now() + LONG;
            while b.state()? != State::Err && std::time::Instant::now() < end {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            equal("state of the responder", b.state()?, State::Err)
        },
    );
}

/// A pair whose regions and queue pairs allow binding.
fn windows(env: &Env) -> Check<Pair<'_>> {
    let mut setup = Setup::new(Transport::Rc);
    setup.access |= access::MW_BIND;
    setup.qp_access |= access::MW_BIND;
    Pair::connected(env, &setup)
}

fn bind_wr(side: &Side<'_>, mw: Mw, mr: Mr, rights: u32, len: u64) -> Bind {
    Bind {
        mw,
        // The low byte is the binder's to choose (IBTA 10.6.7.2.6).
        rkey: (mw.rkey & !0xff) | (mw.rkey.wrapping_add(1) & 0xff),
        mr,
        addr: side.buf.addr,
        len,
        access: rights,
    }
}

fn bind(side: &Side<'_>, kind: MwType, mw: Mw, rights: u32, len: u64) -> Check<u32> {
    let bind = bind_wr(side, mw, side.mr, rights, len);
    let rkey = match kind {
        MwType::One => side.v.bind_mw(side.qp, &bind, 50, send::SIGNALED)?,
        MwType::Two => {
            side.post(SendWr::new(50, Op::BindMw(bind), []))?;
            bind.rkey
        }
    };
    let got = side.sent(&[(50, Status::SUCCESS)])?;
    equal("opcode", got[0].opcode, wc_op::BIND_MW)?;
    Ok(rkey)
}

/// Binds a window of `len` bytes, which should not be possible; the key if it was.
fn binding_fails(side: &Side<'_>, kind: MwType, len: u64) -> Check<Option<u32>> {
    let mw = side.v.alloc_mw(side.pd, kind).or_skip("memory windows")?;
    let bind = bind_wr(side, mw, side.mr, access::REMOTE_WRITE, len);
    let posted = match kind {
        MwType::One => side.v.bind_mw(side.qp, &bind, 50, send::SIGNALED),
        MwType::Two => (side.post(SendWr::new(50, Op::BindMw(bind), [])))
            .map(|()| bind.rkey)
            .map_err(|post| post.fault),
    };
    match posted {
        Err(fault) if fault.is(&[libc::EINVAL, libc::EPERM, libc::EOPNOTSUPP]) => Ok(None),
        Err(fault) => fail(format!("refused with the wrong error: {fault}")),
        Ok(rkey) => {
            let got = side.v.wait(side.send_cq, 1, LONG)?;
            ensure("a completion", !got.is_empty())?;
            Ok((got.iter().all(|wc| wc.status == Status::SUCCESS)).then_some(rkey))
        }
    }
}

/// A window that is longer than its region: it is not bound, or leads no further than the region.
fn beyond_the_region(env: &Env, kind: MwType) -> Check {
    const REGION: u64 = 8192;
    let mut pair = windows(env)?;
    let b = &mut pair.b;
    b.v.dereg_mr(b.mr)?;
    let rights = access::ALL | access::MW_BIND;
    b.mr = b.v.reg_mr(b.pd, b.buf.addr, REGION, b.buf.addr, rights)?;
    let Some(rkey) = binding_fails(&pair.b, kind, REGION + 4096)? else {
        return Ok(());
    };
    let (a, b) = (&pair.a, &pair.b);
    b.fill(0, 2 * REGION, 9)?;
    a.fill(0, 64, 10)?;
    let inside = Remote {
        addr: b.buf.addr + REGION - 64,
        rkey,
    };
    a.post(SendWr::new(1, Op::Write(inside), [a.sge(0, 64)]))?;
    a.sent(&[(1, Status::SUCCESS)])?;
    let beyond = Remote {
        addr: b.buf.addr + REGION,
        rkey,
    };
    a.post(SendWr::new(2, Op::Write(beyond), [a.sge(0, 64)]))?;
    a.sent(&[(2, Status::REM_ACCESS_ERR)])?;
    let whole = crate::fixture::pattern(9, 2 * REGION);
    b.expect_at(REGION, &whole[REGION as usize..])?;
    deviates(
        "a window is compared with its region when it is used, not when it is bound (a bind of \
         mlx5's writes a list of keys; rdma-core providers/mlx5/qp.c, set_umr_data_seg)",
    )
}

fn through(env: &Env, kind: MwType, rights: u32, what: Try, offset: u64, status: Status) -> Check {
    let pair = windows(env)?;
    let b = &pair.b;
    let mw = b.v.alloc_mw(b.pd, kind).or_skip("memory windows")?;
    let rkey = bind(b, kind, mw, rights, 4096)?;
    reach(&pair, rkey, what, offset, status)
}

/// A window of 4096 bytes of a larger region, and the 64 bytes behind it.
fn past_the_end(env: &Env, kind: MwType) -> Check {
    let pair = windows(env)?;
    let (a, b) = (&pair.a, &pair.b);
    let mw = b.v.alloc_mw(b.pd, kind).or_skip("memory windows")?;
    let rkey = bind(b, kind, mw, access::REMOTE_WRITE, 4096)?;
    let remote = Remote {
        addr: b.buf.addr + 4096,
        rkey,
    };
    a.post(SendWr::new(60, Op::Write(remote), [a.sge(0, 64)]))?;
    match a
        .sent_one(60, &[Status::REM_ACCESS_ERR, Status::SUCCESS])?
        .status
    {
        Status::SUCCESS => deviates(
            "a window reaches all of its region (Linux rxe_resp.c, check_rkey: the range is \
             checked against the region only; 6.12, 7.3)",
        ),
        _ => Ok(()),
    }
}

/// a reaches through the window into b's memory.
fn reach(pair: &Pair<'_>, rkey: u32, what: Try, offset: u64, status: Status) -> Check {
    let (a, b) = (&pair.a, &pair.b);
    a.fill(0, 64, 31)?;
    b.fill(0, 8192, 32)?;
    let remote = Remote {
        addr: b.buf.addr + offset,
        rkey,
    };
    let op = match what {
        Try::Write => Op::Write(remote),
        Try::Read => Op::Read(remote),
    };
    a.post(SendWr::new(60, op, [a.sge(0, 64)]))?;
    a.sent(&[(60, status)])?;
    let moved = status == Status::SUCCESS;
    let expect = |side: &Side<'_>, changed: bool, other: u64, own: u64| match changed {
        true => side.expect(0, 64, other),
        false => side.expect(0, 64, own),
    };
    match what {
        Try::Write => expect(b, moved, 31, 32),
        Try::Read if moved => {
            let bytes = a.v.read(a.buf, 0, 64)?;
            crate::fixture::same_bytes(&bytes, &crate::fixture::pattern(32, 8192)[..64], 0)
        }
        Try::Read => expect(a, false, 32, 31),
    }
}
