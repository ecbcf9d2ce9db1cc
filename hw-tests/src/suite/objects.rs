//! Objects: how they come to be, what sizes they return, in which order they go, and queries.

use super::{Need, Suite};
use crate::check::{Check, OrSkip, ensure, equal, refused};
use crate::fixture::{Env, Pair, Setup, same_bytes};
use crate::verbs::Rereg;
use crate::verbs::types::*;

pub(super) fn cases(suite: &mut Suite) {
    for transport in Transport::ALL {
        for (name, caps) in CAPS {
            let caps = caps.map(|values| Caps {
                send_wr: values[0],
                recv_wr: values[1],
                send_sge: values[2],
                recv_sge: values[3],
                inline: values[4],
            });
            let Some(caps) = caps else {
                continue;
            };
            suite.case(
                format!("qp/{transport}/caps/{name}[B14]"),
                &[],
                move |env| idempotent(env, transport, caps),
            );
        }
        suite.case(format!("qp/{transport}/send_only[B16]"), &[], move |env| {
            one_sided(env, transport, true)
        });
        suite.case(format!("qp/{transport}/recv_only[B16]"), &[], move |env| {
            one_sided(env, transport, false)
        });
        suite.case(format!("qp/{transport}/signal_all"), &[], move |env| {
            let mut setup = Setup::new(transport);
            setup.signal_all = true;
            let pair = Pair::connected(env, &setup)?;
            let (a, b) = (&pair.a, &pair.b);
            b.post_recv(&[RecvWr::new(1, [b.sge(0, 256)])])?;
            a.post(SendWr::new(1, Op::Send, [a.sge(0, 64)]).unsignaled())?;
            a.sent(&[(1, Status::SUCCESS)]).map(drop)
        });
    }
    suite.case("qp/caps/all_at_once[B14]", &[], all_at_once);
    suite.case("qp/caps/send_sge_over_max_refused_or_kept", &[], |env| {
        one_entry_more(env, true)
    });
    suite.case("qp/caps/recv_sge_over_max_refused_or_kept", &[], |env| {
        one_entry_more(env, false)
    });
    suite.case(
        "qp/caps/recv_wr_over_max_refused_or_kept",
        &[],
        one_receive_more,
    );
    for (name, change) in OVER {
        suite.case(
            format!("qp/caps/{name}_over_max_refused"),
            &[],
            move |env| {
                let v = env.v();
                let device = v.device()?;
                let mut caps = Caps::default();
                change(&mut caps, &device);
                let qp = make(env, Transport::Rc, caps);
                refused("the queue pair", qp, &[libc::EINVAL, libc::ENOMEM])
            },
        );
    }
    suite.slow_case(60, "qp/many_made_and_gone", &[], |env| {
        for _ in 0..200 {
            let (qp, cq, pd) = make(env, Transport::Rc, Caps::default())?;
            env.v().destroy_qp(qp)?;
            env.v().destroy_cq(cq)?;
            env.v().dealloc_pd(pd)?;
        }
        Ok(())
    });
    suite.case("qp/numbers_differ", &[], |env| {
        let mut numbers = Vec::new();
        for _ in 0..20 {
            numbers.push(make(env, Transport::Rc, Caps::default())?.0.num);
        }
        let all = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        equal("different numbers", numbers.len(), all)
    });
    suite.case("pd/in_use_refused", &[], |env| {
        let pair = Pair::connected(env, &Setup::new(Transport::Rc))?;
        let a = &pair.a;
        refused("the domain's end", a.v.dealloc_pd(a.pd), &[libc::EBUSY])?;
        a.v.destroy_qp(a.qp)?;
        refused("the domain's end", a.v.dealloc_pd(a.pd), &[libc::EBUSY])?;
        a.v.dereg_mr(a.mr)?;
        Ok(a.v.dealloc_pd(a.pd)?)
    });
    suite.case("pd/hundred", &[], |env| {
        let pds: Vec<_> = (0..100)
            .map(|_| env.v().alloc_pd())
            .collect::<Result<_, _>>()?;
        for pd in pds {
            env.v().dealloc_pd(pd)?;
        }
        Ok(())
    });
    regions(suite);
    queries(suite);
}

/// Sizes in the order of [`Caps`]' fields.
const CAPS: [(&str, Option<[u32; 5]>); 9] = [
    ("1_1_1_1_0", Some([1, 1, 1, 1, 0])),
    ("2_2_2_2_2", Some([2, 2, 2, 2, 2])),
    ("3_5_3_2_7", Some([3, 5, 3, 2, 7])),
    ("16_16_4_4_64", Some([16, 16, 4, 4, 64])),
    ("17_33_5_7_100", Some([17, 33, 5, 7, 100])),
    ("127_128_1_1_0", Some([127, 128, 1, 1, 0])),
    ("1000_1000_2_2_220", Some([1000, 1000, 2, 2, 220])),
    ("16_0_1_0_0", Some([16, 0, 1, 0, 0])),
    ("0_16_0_1_0", Some([0, 16, 0, 1, 0])),
];

type Change = fn(&mut Caps, &DeviceAttr);

const OVER: [(&str, Change); 2] = [
    ("send_wr", |caps, device| {
        caps.send_wr = device.max_qp_wr + 1
    }),
    ("inline", |caps, _| caps.inline = 1 << 20),
];

fn make(env: &Env, transport: Transport, caps: Caps) -> Answer<(Qp, Cq, Pd)> {
    let v = env.v();
    let pd = v.alloc_pd()?;
    let cq = v.create_cq(16, None)?;
    let qp = v.create_qp(&QpInit {
        pd,
        transport,
        send_cq: cq,
        recv_cq: cq,
        srq: None,
        caps,
        signal_all: false,
    })?;
    Ok((qp, cq, pd))
}

/// Whether a provider makes a queue pair with these capacities, which does not stay, or refuses it as one may.
fn is_granted(env: &Env, caps: Caps) -> Check<bool> {
    let v = env.v();
    let asked = make(env, Transport::Rc, caps);
    let Ok((qp, cq, pd)) = asked else {
        return refused("the queue pair", asked, &[libc::EINVAL, libc::ENOMEM]).map(|()| false);
    };
    v.destroy_qp(qp)?;
    v.destroy_cq(cq)?;
    v.dealloc_pd(pd)?;
    Ok(true)
}

/// A queue pair with room for a receive more than the device's `max_qp_wr`, which Linux' mlx5_ib derives from the longest
/// send request: a provider refuses, or keeps what it grants, which is that many receives and not one more.
fn one_receive_more(env: &Env) -> Check {
    let mut setup = Setup::new(Transport::Rc);
    setup.caps.recv_wr = env.v().device()?.max_qp_wr + 1;
    if !is_granted(env, setup.caps)? {
        return Ok(());
    }
    let pair = Pair::connected(env, &setup)?;
    let (a, b) = (&pair.a, &pair.b);
    let room = u64::from(b.qp.caps.recv_wr);
    ensure(
        "room for as many as asked for",
        room >= u64::from(setup.caps.recv_wr),
    )?;
    let all: Vec<_> = (0..room)
        .map(|id| RecvWr::new(id, [b.sge(0, 64)]))
        .collect();
    for some in all.chunks(256) {
        b.post_recv(some)?;
    }
    let full = [libc::ENOMEM, libc::EINVAL, libc::ENOSPC];
    let beyond = b.post_recv(&[RecvWr::new(room, [b.sge(0, 64)])]);
    crate::check::post_refused("a receive more", beyond, 0, &full)?;
    a.fill(0, 64, 5)?;
    for id in 0..3 {
        a.post(SendWr::new(id, Op::Send, [a.sge(0, 64)]))?;
        a.sent(&[(id, Status::SUCCESS)])?;
        b.received(&[(id, Status::SUCCESS)])?;
    }
    b.expect(0, 64, 5)
}

/// A queue pair with an entry more than the device's `max_sge`. That number is the least over all kinds of requests and
/// queues, so one kind may have more: a provider refuses, or keeps what it grants.
fn one_entry_more(env: &Env, sends: bool) -> Check {
    let max = env.v().device()?.max_sge;
    let mut setup = Setup::new(Transport::Rc);
    match sends {
        true => setup.caps.send_sge = max + 1,
        false => setup.caps.recv_sge = max + 1,
    }
    if !is_granted(env, setup.caps)? {
        return Ok(());
    }
    let pair = Pair::connected(env, &setup)?;
    let (a, b) = (&pair.a, &pair.b);
    // Pieces of different places, so that each entry shows in the data.
    let count = u64::from(max + 1);
    let bytes = crate::fixture::pattern(3, 8 * count);
    let scattered = |side: &crate::fixture::Side<'_>| -> Vec<Sge> {
        (0..count).map(|i| side.sge(64 * i, 8)).collect()
    };
    let (from, to) = match sends {
        true => (scattered(a), vec![b.sge(0, bytes.len() as u32)]),
        false => (vec![a.sge(0, bytes.len() as u32)], scattered(b)),
    };
    let mut at = 0;
    for piece in &from {
        let end = at + piece.len as usize;
        a.v.write(a.buf, piece.addr - a.buf.addr, &bytes[at..end])?;
        at = end;
    }
    b.post_recv(&[RecvWr::new(1, to.clone())])?;
    a.post(SendWr::new(1, Op::Send, from))?;
    a.sent(&[(1, Status::SUCCESS)])?;
    b.received(&[(1, Status::SUCCESS)])?;
    let mut got = Vec::new();
    for piece in &to {
        got.extend(b.v.read(b.buf, piece.addr - b.buf.addr, piece.len.into())?);
    }
    same_bytes(&got, &bytes, 0)
}

fn idempotent(env: &Env, transport: Transport, caps: Caps) -> Check {
    let v = env.v();
    let (first, ..) = make(env, transport, caps)?;
    let got = first.caps;
    let pairs = [
        (caps.send_wr, got.send_wr),
        (caps.recv_wr, got.recv_wr),
        (caps.send_sge, got.send_sge),
        (caps.recv_sge, got.recv_sge),
        (caps.inline, got.inline),
    ];
    ensure(
        "no size smaller than asked for",
        pairs.iter().all(|(ask, got)| got >= ask),
    )?;
    let (second, ..) = make(env, transport, got)?;
    equal(
        "sizes of one made with the returned sizes",
        second.caps,
        got,
    )?;
    equal("sizes by query", v.query_qp(first)?.caps, got)
}

fn one_sided(env: &Env, transport: Transport, sends: bool) -> Check {
    let mut setup = Setup::new(transport);
    setup.caps = match sends {
        true => Caps {
            recv_wr: 0,
            recv_sge: 0,
            ..Caps::default()
        },
        false => Caps {
            send_wr: 0,
            send_sge: 0,
            ..Caps::default()
        },
    };
    let full = Setup::new(transport);
    // The other end has both halves, so that something can move.
    let half = Pair::unconnected(env, &setup)?;
    let whole = Pair::unconnected(env, &full)?;
    let (mut half, mut whole) = (half.a, whole.b);
    let mtu = half.v.port(half.port)?.active_mtu;
    let (half_at, whole_at) = (half.address(), whole.address());
    half.connect(&setup, whole_at, mtu)?;
    whole.connect(&full, half_at, mtu)?;
    let (from, to) = match sends {
        true => (&half, &whole),
        false => (&whole, &half),
    };
    from.fill(0, 64, 5)?;
    to.post_recv(&[RecvWr::new(1, [to.sge(0, 64 + to.grh() as u32)])])?;
    from.post(SendWr::new(1, Op::Send, [from.sge(0, 64)]))?;
    from.sent(&[(1, Status::SUCCESS)])?;
    to.received(&[(1, Status::SUCCESS)])?;
    to.expect(to.grh(), 64, 5)?;
    // The missing half refuses, and stays up.
    let missing = match sends {
        true => from.post_recv(&[RecvWr::new(2, [])]),
        false => to.post(SendWr::new(2, Op::Send, [])),
    };
    let full = [libc::ENOMEM, libc::EINVAL, libc::ENOSPC];
    crate::check::post_refused("a request to the missing half", missing, 0, &full)?;
    half.v.destroy_qp(half.qp)?;
    Ok(whole.v.destroy_qp(whole.qp)?)
}

/// One request that uses every returned limit.
fn all_at_once(env: &Env) -> Check {
    let mut setup = Setup::new(Transport::Rc);
    setup.caps = Caps {
        send_wr: 3,
        recv_wr: 3,
        send_sge: 3,
        recv_sge: 3,
        inline: 50,
    };
    let pair = Pair::connected(env, &setup)?;
    let (a, b) = (&pair.a, &pair.b);
    let caps = a.qp.caps;
    let pieces = |side: &crate::fixture::Side<'_>, count: u32, total: u32| -> Vec<Sge> {
        let each = total / count;
        (0..count)
            .map(|i| {
                let len = if i + 1 == count {
                    total - each * i
                } else {
                    each
                };
                side.sge(u64::from(each * i), len)
            })
            .collect()
    };
    for round in 0..3 {
        a.fill(0, caps.inline.into(), round)?;
        let receives: Vec<_> = (0..u64::from(b.qp.caps.recv_wr))
            .map(|id| RecvWr::new(id, pieces(b, b.qp.caps.recv_sge, caps.inline)))
            .collect();
        b.post_recv(&receives)?;
        let count = caps.send_wr.min(b.qp.caps.recv_wr);
        for id in 0..u64::from(count) {
            let wr = SendWr::new(id, Op::Send, pieces(a, caps.send_sge, caps.inline));
            a.post(wr.with(send::INLINE))?;
        }
        let ids: Vec<_> = (0..u64::from(count))
            .map(|id| (id, Status::SUCCESS))
            .collect();
        a.sent(&ids)?;
        b.received(&ids)?;
        b.expect(0, caps.inline.into(), round)?;
        // Leave no receive of this round behind.
        for id in u64::from(count)..receives.len() as u64 {
            a.post(SendWr::new(id, Op::Send, [a.sge(0, 1)]))?;
            a.sent(&[(id, Status::SUCCESS)])?;
            b.received(&[(id, Status::SUCCESS)])?;
        }
    }
    Ok(())
}

fn regions(suite: &mut Suite) {
    for len in [1_u64, 4095, 4096, 4097, 65_537, 1 << 20] {
        for offset in [0_u64, 1, 4095] {
            suite.case(format!("mr/len={len}/offset={offset}"), &[], move |env| {
                region(env, len, offset)
            });
        }
    }
    suite.case("mr/zero_length", &[], |env| {
        let v = env.v();
        let pd = v.alloc_pd()?;
        let buf = v.buffer(4096)?;
        match v.reg_mr(pd, buf.addr, 0, buf.addr, access::ALL) {
            Ok(mr) => Ok(v.dereg_mr(mr)?),
            Err(fault) => refused("the region", Err::<(), _>(fault), &[libc::EINVAL]),
        }
    });
    suite.case("mr/memory_that_is_not_there", &[], |env| {
        let v = env.v();
        let pd = v.alloc_pd()?;
        let errnos = [libc::EFAULT, libc::ENOMEM, libc::EINVAL];
        refused(
            "the region",
            v.reg_mr(pd, 0x1000, 4096, 0x1000, access::ALL),
            &errnos,
        )
    });
    suite.case("mr/range_wraps", &[], |env| {
        let v = env.v();
        let pd = v.alloc_pd()?;
        let errnos = [libc::EFAULT, libc::ENOMEM, libc::EINVAL, libc::EOVERFLOW];
        let mr = v.reg_mr(pd, u64::MAX - 4095, 8192, u64::MAX - 4095, access::ALL);
        refused("the region", mr, &errnos)
    });
    suite.case("mr/unknown_access_bits", &[], |env| {
        let v = env.v();
        let pd = v.alloc_pd()?;
        let buf = v.buffer(4096)?;
        let mr = v.reg_mr(pd, buf.addr, 4096, buf.addr, 1 | 1 << 15);
        refused("the region", mr, &[libc::EINVAL, libc::EOPNOTSUPP])
    });
    suite.case("mr/other_iova", &[], |env| {
        let pair = Pair::connected(env, &Setup::new(Transport::Rc))?;
        let (a, b) = (&pair.a, &pair.b);
        let iova = 0x1234_5678_9000 | (b.buf.addr & 0xfff);
        let mr = b.v.reg_mr(b.pd, b.buf.addr, 8192, iova, access::ALL)?;
        a.fill(0, 100, 8)?;
        let remote = Remote {
            addr: iova + 4000,
            rkey: mr.rkey,
        };
        a.post(SendWr::new(1, Op::Write(remote), [a.sge(0, 100)]))?;
        a.sent(&[(1, Status::SUCCESS)])?;
        b.expect(4000, 100, 8)
    });
    suite.case("mr/overlapping_regions", &[], |env| {
        let pair = Pair::connected(env, &Setup::new(Transport::Rc))?;
        let (a, b) = (&pair.a, &pair.b);
        let second =
            b.v.reg_mr(b.pd, b.buf.addr + 100, 200, b.buf.addr + 100, access::ALL)?;
        b.v.dereg_mr(b.mr)?;
        a.fill(0, 200, 8)?;
        let remote = Remote {
            addr: b.buf.addr + 100,
            rkey: second.rkey,
        };
        a.post(SendWr::new(1, Op::Write(remote), [a.sge(0, 200)]))?;
        a.sent(&[(1, Status::SUCCESS)])?;
        b.expect(100, 200, 8)
    });
    suite.case("mr/hundred_keys_differ", &[], |env| {
        let v = env.v();
        let pd = v.alloc_pd()?;
        let buf = v.buffer(4096)?;
        let mut keys = Vec::new();
        for _ in 0..100 {
            keys.push(v.reg_mr(pd, buf.addr, 4096, buf.addr, access::ALL)?.rkey);
        }
        keys.sort_unstable();
        keys.dedup();
        equal("different keys", keys.len(), 100)
    });
    suite.case("mr/double_dereg_refused", &[], |env| {
        let v = env.v();
        let pd = v.alloc_pd()?;
        let buf = v.buffer(4096)?;
        let mr = v.reg_mr(pd, buf.addr, 4096, buf.addr, access::ALL)?;
        v.dereg_mr(mr)?;
        refused(
            "the second",
            v.dereg_mr(mr),
            &[libc::EBADF, libc::EINVAL, libc::ENOENT],
        )
    });
    suite.slow_case(
        120,
        "mr/more_than_4_gib[B21]",
        &[Need::Loopback],
        more_than_4_gib,
    );
    suite.case("mr/rereg/access", &[], |env| {
        let pair = Pair::connected(env, &Setup::new(Transport::Rc))?;
        let (a, b) = (&pair.a, &pair.b);
        let change = Rereg {
            access: Some(access::LOCAL_WRITE | access::REMOTE_READ),
            ..Rereg::default()
        };
        let mr = b.v.rereg_mr(b.mr, change).or_skip("rereg_mr")?;
        let remote = Remote {
            addr: b.buf.addr,
            rkey: mr.rkey,
        };
        a.post(SendWr::new(1, Op::Read(remote), [a.sge(0, 8)]))?;
        a.sent(&[(1, Status::SUCCESS)])?;
        a.post(SendWr::new(2, Op::Write(remote), [a.sge(0, 8)]))?;
        a.sent(&[(2, Status::REM_ACCESS_ERR)]).map(drop)
    });
    suite.case("mr/rereg/domain", &[], |env| {
        let v = env.v();
        let (old, new) = (v.alloc_pd()?, v.alloc_pd()?);
        let buf = v.buffer(4096)?;
        let mr = v.reg_mr(old, buf.addr, 4096, buf.addr, access::ALL)?;
        let change = Rereg {
            pd: Some(new),
            ..Rereg::default()
        };
        let mr = v.rereg_mr(mr, change).or_skip("rereg_mr")?;
        v.dealloc_pd(old)?;
        refused("the domain's end", v.dealloc_pd(new), &[libc::EBUSY])?;
        v.dereg_mr(mr)?;
        Ok(v.dealloc_pd(new)?)
    });
    suite.case("mr/rereg/range", &[], |env| {
        let pair = Pair::connected(env, &Setup::new(Transport::Rc))?;
        let b = &pair.b;
        let other = b.v.buffer(8192)?;
        let change = Rereg {
            range: Some((other.addr, other.len)),
            ..Rereg::default()
        };
        let mr =
            b.v.rereg_mr(b.mr, change)
                .or_skip("rereg_mr of the range")?;
        pair.a.fill(0, 100, 4)?;
        let remote = Remote {
            addr: other.addr,
            rkey: mr.rkey,
        };
        pair.a
            .post(SendWr::new(1, Op::Write(remote), [pair.a.sge(0, 100)]))?;
        pair.a.sent(&[(1, Status::SUCCESS)])?;
        let bytes = b.v.read(other, 0, 100)?;
        same_bytes(&bytes, &crate::fixture::pattern(4, 100), 0)
    });
}

/// A region that starts and ends inside pages: all of it can be written, nothing around it.
fn region(env: &Env, len: u64, offset: u64) -> Check {
    let mut setup = Setup::new(Transport::Rc);
    setup.len = len + 16_384;
    let pair = Pair::connected(env, &setup)?;
    let (a, b) = (&pair.a, &pair.b);
    let start = b.buf.addr + offset;
    let mr = b.v.reg_mr(b.pd, start, len, start, access::ALL)?;
    b.fill(0, len + 8192, 1)?;
    a.fill(0, len, 2)?;
    let whole = Remote {
        addr: start,
        rkey: mr.rkey,
    };
    a.post(SendWr::new(1, Op::Write(whole), [a.sge(0, len as u32)]))?;
    a.sent(&[(1, Status::SUCCESS)])?;
    b.expect(offset, len, 2)?;
    let before = crate::fixture::pattern(1, len + 8192);
    let end = offset + len;
    same_bytes(&b.v.read(b.buf, 0, offset)?, &before[..offset as usize], 0)?;
    let rest = b.v.read(b.buf, end, len + 8192 - end)?;
    same_bytes(&rest, &before[end as usize..], end)?;
    let beyond = Remote {
        addr: start + len,
        rkey: mr.rkey,
    };
    a.post(SendWr::new(2, Op::Write(beyond), [a.sge(0, 1)]))?;
    a.sent(&[(2, Status::REM_ACCESS_ERR)])?;
    same_bytes(
        &b.v.read(b.buf, end, 64)?,
        &before[end as usize..end as usize + 64],
        end,
    )
}

/// The region's length needs more than 32 bits; bytes are read behind 4 GiB. The memory is one page
/// mapped again and again, so that the case does not need the memory it speaks of.
fn more_than_4_gib(env: &Env) -> Check {
    let pair = Pair::connected(env, &Setup::new(Transport::Rc))?;
    let (a, b) = (&pair.a, &pair.b);
    let (len, far) = ((4_u64 << 30) + (2 << 20), (4_u64 << 30) + 4096);
    let Some(window) = crate::verbs::memory::repeated(len) else {
        return crate::check::fail("cannot map the same memory many times");
    };
    let mr = match b.v.reg_mr(b.pd, window, len, window, access::ALL) {
        Ok(mr) => mr,
        // Linux counts each page, however often it is mapped.
        Err(fault) if fault.errno == Some(libc::ENOMEM) => {
            return Err(crate::check::Stop::Skip(format!(
                "not enough lockable memory for 4 GiB: {fault}"
            )));
        }
        Err(fault) => return Err(fault.into()),
    };
    a.fill(0, 64, 12)?;
    let remote = Remote {
        addr: window + far,
        rkey: mr.rkey,
    };
    a.post(SendWr::new(1, Op::Write(remote), [a.sge(0, 64)]))?;
    a.sent(&[(1, Status::SUCCESS)])?;
    a.post(SendWr::new(2, Op::Read(remote), [a.sge(4096, 64)]))?;
    a.sent(&[(2, Status::SUCCESS)])?;
    a.expect_at(4096, &crate::fixture::pattern(12, 64))?;
    let beyond = Remote {
        addr: window + len,
        rkey: mr.rkey,
    };
    a.post(SendWr::new(3, Op::Read(beyond), [a.sge(4096, 1)]))?;
    a.sent(&[(3, Status::REM_ACCESS_ERR)]).map(drop)
}

fn queries(suite: &mut Suite) {
    suite.case("query/device/sane_limits", &[], |env| {
        let device = env.v().device()?;
        ensure("a node GUID", device.node_guid != 0)?;
        ensure("at least one port", device.ports >= 1)?;
        for (what, value) in [
            ("max_qp", device.max_qp),
            ("max_qp_wr", device.max_qp_wr),
            ("max_sge", device.max_sge),
            ("max_cq", device.max_cq),
            ("max_cqe", device.max_cqe),
            ("max_mr", device.max_mr),
            ("max_pd", device.max_pd),
            ("max_qp_rd_atom", device.max_qp_rd_atom),
            ("max_qp_init_rd_atom", device.max_qp_init_rd_atom),
            ("max_pkeys", device.max_pkeys.into()),
        ] {
            ensure(&format!("{what} is not zero"), value != 0)?;
        }
        ensure("a region of a GiB", device.max_mr_size >= 1 << 30)?;
        ensure("pages of 4 KiB", device.page_size_cap & 4096 != 0)
    });
    suite.case("query/device/limits_of_linux_are_consistent", &[], |env| {
        let device = env.v().device()?;
        let with = |least: u32, other: u32| (least == 0) == (other == 0);
        ensure(
            "SRQs and their sizes",
            with(device.max_srq, device.max_srq_wr),
        )?;
        ensure(
            "groups and their members",
            with(device.max_mcast_grp, device.max_mcast_qp_attach),
        )?;
        ensure("address handles", device.max_ah != 0)?;
        ensure("windows and their bit", {
            let bit = cap::MEM_WINDOW | cap::MEM_WINDOW_TYPE_2B;
            device.cap_flags & bit == 0 || device.max_mw != 0
        })
    });
    suite.case("query/device/twice_the_same", &[], |env| {
        equal("the device", env.v().device()?, env.v().device()?)
    });
    suite.case("query/port/active", &[], |env| {
        let port = env.v().port(env.port)?;
        equal("state", port.state, 4)?;
        ensure(
            "active_mtu within max_mtu",
            (1..=port.max_mtu).contains(&port.active_mtu),
        )?;
        ensure("a GID table", port.gid_table_len >= 1)?;
        ensure("a pkey table", port.pkey_table_len >= 1)?;
        ensure("messages of a MiB", port.max_msg_size >= 1 << 20)
    });
    suite.case("query/port/zero_and_beyond_refused", &[], |env| {
        let v = env.v();
        let ports = v.device()?.ports;
        refused("port 0", v.port(0), &[libc::EINVAL])?;
        refused("a port too many", v.port(ports + 1), &[libc::EINVAL])
    });
    let sysfs = &[Need::Loopback, Need::Sysfs];
    suite.case("query/gid/table_against_sysfs", sysfs, |env| {
        let name = env.device_name();
        let port = env.v().port(env.port)?;
        let mut seen = 0;
        for index in 0..port.gid_table_len.min(8) {
            let path = format!(
                "/sys/class/infiniband/{name}/ports/{}/gids/{index}",
                env.port
            );
            let Ok(text) = std::fs::read_to_string(&path) else {
                continue;
            };
            let digits: String = text.trim().chars().filter(|c| *c != ':').collect();
            let expected = u128::from_str_radix(&digits, 16)
                .unwrap_or_default()
                .to_be_bytes();
            match env.v().gid(env.port, index) {
                Ok(gid) => equal(&format!("GID {index}"), gid, expected)?,
                // An empty entry may be an error or zeroes.
                Err(_) => equal(&format!("GID {index}"), [0; 16], expected)?,
            }
            seen += 1;
        }
        ensure("sysfs has a GID table", seen > 0)
    });
    suite.case("query/gid/beyond_the_table", &[], |env| {
        let len = env.v().port(env.port)?.gid_table_len;
        let errnos = [libc::EINVAL, libc::ENODATA, libc::ENOENT];
        refused("the entry", env.v().gid(env.port, len), &errnos)
    });
    suite.case("query/pkey/table", &[], |env| {
        let len = env.v().port(env.port)?.pkey_table_len;
        let keys: Vec<_> = (0..len.min(16))
            .map(|index| env.v().pkey(env.port, index))
            .collect::<Result<_, _>>()?;
        // IBTA 10.9.1: the default partition, full (0xffff) or limited (0x7fff) member.
        ensure(
            "the default partition",
            keys.iter().any(|key| key & 0x7fff == 0x7fff),
        )
    });
    suite.case("query/pkey/beyond_the_table", &[], |env| {
        let len = env.v().port(env.port)?.pkey_table_len;
        let errnos = [libc::EINVAL, libc::ENOENT];
        refused("the entry", env.v().pkey(env.port, len), &errnos)
    });
}
