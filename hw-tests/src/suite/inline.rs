//! Inline data: copied when posted, from all entries, up to the limit and no further.

use super::Suite;
use crate::check::{Check, ensure, equal, fail, post_refused};
use crate::fixture::{Env, Pair, Setup};
use crate::verbs::types::*;

pub(super) fn cases(suite: &mut Suite) {
    for transport in Transport::ALL {
        for (name, lens) in [
            ("5+0+7+3[B04]", &[5, 0, 7, 3][..]),
            ("30+30[B04]", &[30, 30]),
            ("0", &[0]),
        ] {
            suite.case(
                format!("inline/{transport}/gather/{name}"),
                &[],
                move |env| gather(env, transport, lens),
            );
        }
        suite.case(format!("inline/{transport}/limit"), &[], move |env| {
            limit(env, transport)
        });
        suite.case(
            format!("inline/{transport}/buffer_is_free_at_once"),
            &[],
            move |env| buffer_is_free(env, transport),
        );
        for (name, lens) in [
            ("2^31+2^31+16", &[0x8000_0000_u32, 0x8000_0000, 16][..]),
            ("2^32-16", &[0xffff_fff0]),
            ("2^32-1+17", &[0xffff_ffff, 17]),
        ] {
            suite.case(
                format!("inline/{transport}/sum/{name}[B22]"),
                &[],
                move |env| sum_wraps(env, transport, lens),
            );
        }
    }
    suite.case("inline/rc/search_for_the_limit[B15]", &[], search);
    suite.case("inline/rc/read_not_misplaced", &[], inline_read);
}

/// The flag is "valid only for Send and RDMA Write" (ibv_post_send(3)), which leaves a provider to refuse the request, as
/// rxe's, or to post it, as mlx5's, and a device to fail it or to read as without the flag. The data must not end up
/// anywhere else.
fn inline_read(env: &Env) -> Check {
    let mut setup = Setup::new(Transport::Rc);
    setup.caps.inline = 16;
    let pair = Pair::connected(env, &setup)?;
    let (a, b) = (&pair.a, &pair.b);
    a.fill(0, 256, 7)?;
    b.fill(0, 64, 8)?;
    let mut expected = crate::fixture::pattern(7, 256);
    let wr = SendWr::new(1, Op::Read(b.remote(0)), [a.sge(64, 8)]).with(send::INLINE);
    let posted = a.post(wr);
    if posted.is_err() {
        let errnos = [libc::EINVAL, libc::EOPNOTSUPP];
        post_refused("an inline READ", posted, 0, &errnos)?;
        a.expect_at(0, &expected)?;
        return pair.exchange(2, 64);
    }
    if a.sent_one(1, &[Status::LOC_QP_OP_ERR, Status::SUCCESS])?
        .status
        == Status::SUCCESS
    {
        expected[64..72].copy_from_slice(&crate::fixture::pattern(8, 8));
    }
    a.expect_at(0, &expected)?;
    b.expect(0, 64, 8)
}

/// The key is wrong everywhere: inline data must not look at it.
fn gather(env: &Env, transport: Transport, lens: &'static [u32]) -> Check {
    let mut setup = Setup::new(transport);
    setup.caps.inline = 64;
    let pair = Pair::connected(env, &setup)?;
    let (a, b) = (&pair.a, &pair.b);
    let total: u32 = lens.iter().sum();
    let bytes = crate::fixture::pattern(4, total.into());
    let (mut sges, mut at) = (Vec::new(), 0);
    for (i, len) in (0..).zip(lens) {
        let place = 512 * i;
        a.v.write(a.buf, place, &bytes[at..at + *len as usize])?;
        sges.push(Sge {
            lkey: 0xdead_beef,
            ..a.sge(place, *len)
        });
        at += *len as usize;
    }
    let grh = b.grh();
    b.post_recv(&[RecvWr::new(1, [b.sge(0, grh as u32 + 64)])])?;
    a.post(SendWr::new(1, Op::Send, sges).with(send::INLINE))?;
    a.sent(&[(1, Status::SUCCESS)])?;
    let got = b.received(&[(1, Status::SUCCESS)])?;
    equal("byte_len", got[0].byte_len, grh as u32 + total)?;
    b.expect(grh, total.into(), 4)
}

fn limit(env: &Env, transport: Transport) -> Check {
    let mut setup = Setup::new(transport);
    setup.caps.inline = 100;
    let pair = Pair::connected(env, &setup)?;
    let (a, b) = (&pair.a, &pair.b);
    let limit = a.qp.caps.inline;
    ensure(
        "the returned limit is the one asked for or more",
        limit >= 100,
    )?;
    a.fill(0, u64::from(limit) + 1, 6)?;
    let grh = b.grh();
    b.post_recv(&[RecvWr::new(1, [b.sge(0, grh as u32 + limit)])])?;
    a.post(SendWr::new(1, Op::Send, [a.sge(0, limit)]).with(send::INLINE))?;
    a.sent(&[(1, Status::SUCCESS)])?;
    b.received(&[(1, Status::SUCCESS)])?;
    b.expect(grh, limit.into(), 6)?;
    let over = SendWr::new(2, Op::Send, [a.sge(0, limit + 1)]).with(send::INLINE);
    post_refused(
        "one byte over the limit",
        a.post(over),
        0,
        &[libc::EINVAL, libc::ENOMEM],
    )?;
    pair.exchange(3, 64)
}

fn buffer_is_free(env: &Env, transport: Transport) -> Check {
    let mut setup = Setup::new(transport);
    setup.caps.inline = 64;
    let pair = Pair::connected(env, &setup)?;
    let (a, b) = (&pair.a, &pair.b);
    let grh = b.grh();
    for round in 0..8 {
        b.post_recv(&[RecvWr::new(round, [b.sge(round * 256, grh as u32 + 64)])])?;
        a.fill(0, 64, round)?;
        a.post(SendWr::new(round, Op::Send, [a.sge(0, 64)]).with(send::INLINE))?;
    }
    a.fill(0, 64, 99)?;
    let ids: Vec<_> = (0..8).map(|id| (id, Status::SUCCESS)).collect();
    a.sent(&ids)?;
    b.received(&ids)?;
    for round in 0..8 {
        b.expect(round * 256 + grh, 64, round)?;
    }
    Ok(())
}

/// The sum's low 32 bits pass the limit, and the memory is not there: refused before any copy.
fn sum_wraps(env: &Env, transport: Transport, lens: &[u32]) -> Check {
    let mut setup = Setup::new(transport);
    setup.caps.inline = 64;
    let pair = Pair::connected(env, &setup)?;
    let a = &pair.a;
    let sges: Vec<_> = lens
        .iter()
        .map(|len| Sge {
            addr: 0x1000,
            len: *len,
            lkey: 0,
        })
        .collect();
    let wr = SendWr::new(1, Op::Send, sges).with(send::INLINE);
    post_refused("4 GiB inline", a.post(wr), 0, &[libc::EINVAL, libc::ENOMEM])?;
    pair.exchange(2, 64)
}

/// What libfabric and perftest do: a binary search. Success below the limit, errors above it, and
/// never a smaller limit than asked for.
fn search(env: &Env) -> Check {
    let v = env.v();
    let pd = v.alloc_pd()?;
    let cq = v.create_cq(16, None)?;
    let try_inline = |inline| {
        v.create_qp(&QpInit {
            pd,
            transport: Transport::Rc,
            send_cq: cq,
            recv_cq: cq,
            srq: None,
            caps: Caps {
                inline,
                send_sge: 1,
                ..Caps::default()
            },
            signal_all: false,
        })
    };
    let (mut good, mut bad) = (0, 1 << 16);
    while bad - good > 1 {
        let middle = (good + bad) / 2;
        match try_inline(middle) {
            Ok(qp) => {
                let got = qp.caps.inline;
                if got < middle {
                    return fail(format!("asked for {middle}, got {got} and no error"));
                }
                v.destroy_qp(qp)?;
                good = middle;
            }
            Err(fault) if fault.is(&[libc::EINVAL, libc::ENOMEM]) => bad = middle,
            Err(fault) => return Err(fault.into()),
        }
    }
    // Below the limit everything works, and failures leave nothing behind.
    for inline in [0, 1, good / 2, good] {
        let qp = try_inline(inline)?;
        v.destroy_qp(qp)?;
    }
    for _ in 0..200 {
        if let Ok(qp) = try_inline(bad) {
            return fail(format!("{bad} was refused before, now {:?}", qp.caps));
        }
    }
    v.destroy_cq(cq)?;
    Ok(v.dealloc_pd(pd)?)
}
