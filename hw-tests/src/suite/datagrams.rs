//! Datagrams beyond plain transfers: address handles, keys of the queue, multicast.

use super::{Need, Suite};
use crate::check::{Check, deviates, ensure, equal, refused};
use crate::fixture::{Env, GRH, LONG, Pair, QKEY, QUIET, Setup, Side};
use crate::verbs::types::*;

/// Why a case of address handles cannot see what it looks for.
const UNKNOWN_HANDLES: &str = "address handles of InfiniBand are made in the program, without the device or its driver \
     (rdma-core providers/mlx5/verbs.c, mlx5_create_ah)";
const MULTICAST: &[Need] = &[Need::Multicast, Need::Ethernet];

pub(super) fn cases(suite: &mut Suite) {
    suite.case("ud/wrong_qkey_is_dropped", &[], |env| {
        let pair = datagrams(env)?;
        let (a, b) = (&pair.a, &pair.b);
        b.post_recv(&[RecvWr::new(1, [b.sge(0, 256)])])?;
        let to = a.datagram.map(|to| Datagram {
            qkey: QKEY + 1,
            ..to
        });
        a.v.post_send(a.qp, &[SendWr::new(1, Op::Send, [a.sge(0, 64)]).to(to)])?;
        a.sent(&[(1, Status::SUCCESS)])?;
        equal("completions", b.v.wait(b.recv_cq, 1, QUIET)?, vec![])
    });
    suite.case("ud/queue_that_is_not_there", &[], |env| {
        let pair = datagrams(env)?;
        let a = &pair.a;
        let to = a.datagram.map(|to| Datagram {
            qpn: 0xff_fffe,
            ..to
        });
        a.v.post_send(a.qp, &[SendWr::new(1, Op::Send, [a.sge(0, 64)]).to(to)])?;
        a.sent(&[(1, Status::SUCCESS)])?;
        pair.exchange(2, 64)
    });
    suite.case("ud/longer_than_the_mtu", &[], |env| {
        let pair = datagrams(env)?;
        let (a, b) = (&pair.a, &pair.b);
        let len = a.v.port(a.port)?.mtu_bytes() + 1;
        b.post_recv(&[RecvWr::new(1, [b.sge(0, len + 100)])])?;
        match a.post(SendWr::new(1, Op::Send, [a.sge(0, len)])) {
            Err(post) => refused("the request", Err::<(), _>(post.fault), &[libc::EINVAL]),
            Ok(()) => {
                let wc = a.sent_one(
                    1,
                    &[
                        Status::LOC_LEN_ERR,
                        Status::LOC_QP_OP_ERR,
                        Status::LOC_PROT_ERR,
                        Status::SUCCESS,
                        Status::WR_FLUSH_ERR,
                    ],
                )?;
                // It may be dropped, or fail, but a shorter one must not arrive.
                equal("completions", b.v.wait(b.recv_cq, 1, QUIET)?, vec![])?;
                let sent = wc.status == Status::SUCCESS;
                ensure("sent, or an error", sent || a.v.query_qp(a.qp).is_ok())
            }
        }
    });
    suite.case("ud/receive_shorter_than_the_datagram", &[], |env| {
        let pair = datagrams(env)?;
        let (a, b) = (&pair.a, &pair.b);
        b.fill(0, 512, 4)?;
        b.post_recv(&[RecvWr::new(1, [b.sge(0, GRH as u32 + 63)])])?;
        a.post(SendWr::new(1, Op::Send, [a.sge(0, 64)]))?;
        a.sent(&[(1, Status::SUCCESS)])?;
        let got = b.v.wait(b.recv_cq, 1, QUIET)?;
        // Dropped, or a length error; never a success, and nothing behind the buffer's end.
        ensure(
            "no success",
            got.iter().all(|wc| wc.status != Status::SUCCESS),
        )?;
        let end = GRH + 63;
        let bytes = b.v.read(b.buf, end, 64)?;
        let before = crate::fixture::pattern(4, end + 64);
        crate::fixture::same_bytes(&bytes, &before[end as usize..], end)
    });
    suite.case("ud/grh_names_the_sender", &[], |env| {
        let pair = datagrams(env)?;
        let (a, b) = (&pair.a, &pair.b);
        b.post_recv(&[RecvWr::new(1, [b.sge(0, 256)])])?;
        a.post(SendWr::new(1, Op::Send, [a.sge(0, 64)]))?;
        a.sent(&[(1, Status::SUCCESS)])?;
        let got = b.received(&[(1, Status::SUCCESS)])?;
        equal("GRH flag", got[0].grh, true)?;
        let header = b.v.read(b.buf, 0, GRH)?;
        // RoCE v2 over IPv4 puts the IPv4 header in the last 20 bytes (IBTA annex A17.4.5.1), over
        // IPv6 and InfiniBand the header is the 40 bytes.
        let mapped = a.gid[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
        match mapped {
            true => {
                equal("IP version", header[20] >> 4, 4)?;
                equal("source address", &header[32..36], &a.gid[12..])?;
                equal("destination address", &header[36..40], &b.gid[12..])
            }
            false => {
                equal("IP version", header[0] >> 4, 6)?;
                equal("source address", &header[8..24], &a.gid[..])?;
                equal("destination address", &header[24..40], &b.gid[..])
            }
        }
    });
    suite.case("ud/reply_to_the_completion", &[], |env| {
        let pair = datagrams(env)?;
        let (a, b) = (&pair.a, &pair.b);
        b.post_recv(&[RecvWr::new(1, [b.sge(0, 256)])])?;
        a.post_recv(&[RecvWr::new(2, [a.sge(1024, 256)])])?;
        a.post(SendWr::new(1, Op::SendImm(5), [a.sge(0, 64)]))?;
        let got = b.received(&[(1, Status::SUCCESS)])?;
        let to = b.datagram.map(|to| Datagram {
            qpn: got[0].src_qp,
            ..to
        });
        b.v.post_send(b.qp, &[SendWr::new(2, Op::Send, [b.sge(0, 64)]).to(to)])?;
        let got = a.received(&[(2, Status::SUCCESS)])?;
        equal("src_qp", got[0].src_qp, b.qp.num)
    });
    suite.case("ud/many_address_handles[B30]", &[], many_handles);
    suite.case("ah/bad_sgid_index", &[], |env| {
        let v = env.v();
        let pd = v.alloc_pd()?;
        let route = Route {
            sgid_index: 250,
            ..env.loop_route()?
        };
        let errnos = [libc::EINVAL, libc::ENODATA, libc::ENOENT];
        match v.create_ah(pd, &route) {
            Ok(_) if v.port(env.port)?.is_infiniband() => deviates(UNKNOWN_HANDLES),
            answer => refused("the handle", answer, &errnos),
        }
    });
    suite.case("ah/bad_port", &[], |env| {
        let v = env.v();
        let pd = v.alloc_pd()?;
        let route = Route {
            port: 77,
            ..env.loop_route()?
        };
        refused(
            "the handle",
            v.create_ah(pd, &route),
            &[libc::EINVAL, libc::ENODEV],
        )
    });
    suite.case("ah/hundred_made_and_gone", &[], |env| {
        let v = env.v();
        let pd = v.alloc_pd()?;
        let route = env.loop_route()?;
        for _ in 0..100 {
            let ah = v.create_ah(pd, &route)?;
            v.destroy_ah(ah)?;
        }
        Ok(v.dealloc_pd(pd)?)
    });
    suite.case("ah/domain_in_use_refused", &[], |env| {
        let v = env.v();
        let pd = v.alloc_pd()?;
        let ah = v.create_ah(pd, &env.loop_route()?)?;
        match v.dealloc_pd(pd) {
            Ok(()) if v.port(env.port)?.is_infiniband() => return deviates(UNKNOWN_HANDLES),
            answer => refused("the domain's end", answer, &[libc::EBUSY])?,
        }
        v.destroy_ah(ah)?;
        Ok(v.dealloc_pd(pd)?)
    });
    suite.case("multicast/attach_and_detach", MULTICAST, |env| {
        let pair = datagrams(env)?;
        let b = &pair.b;
        b.v.attach_mcast(b.qp, GROUP, 0)?;
        b.v.detach_mcast(b.qp, GROUP, 0)?;
        let again = b.v.detach_mcast(b.qp, GROUP, 0);
        refused("a second detach", again, &[libc::EINVAL, libc::ENOENT])
    });
    suite.case("multicast/delivery", MULTICAST, delivery);
    suite.case("multicast/unicast_gid_refused", MULTICAST, |env| {
        let pair = datagrams(env)?;
        let b = &pair.b;
        let mut unicast = GROUP;
        unicast[0] = 0xfe;
        refused(
            "the group",
            b.v.attach_mcast(b.qp, unicast, 0),
            &[libc::EINVAL],
        )
    });
    suite.case("multicast/connected_pair_refused", MULTICAST, |env| {
        let pair = Pair::connected(env, &Setup::new(Transport::Rc))?;
        let b = &pair.b;
        refused(
            "the pair",
            b.v.attach_mcast(b.qp, GROUP, 0),
            &[libc::EINVAL],
        )
    });
}

/// A transient IPv6 group of link-local scope.
const GROUP: [u8; 16] = [0xff, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x12, 0x34];

/// 239.9.18.52, of the administratively scoped groups, as a GID.
const GROUP4: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 9, 18, 52];

fn delivery(env: &Env) -> Check {
    let pair = datagrams(env)?;
    let (a, b) = (&pair.a, &pair.b);
    // The group is of the source address's family.
    let group = match b.gid[..12] == GROUP4[..12] {
        true => GROUP4,
        false => GROUP,
    };
    b.v.attach_mcast(b.qp, group, 0)?;
    b.post_recv(&[RecvWr::new(1, [b.sge(0, 256)])])?;
    a.fill(0, 64, 9)?;
    to_group(a, group)?;
    let got = b.v.wait(b.recv_cq, 1, LONG / 5)?;
    if got.is_empty() && env.far.is_none() {
        return deviates(
            "a datagram to a group does not come back to its own device (Linux rxe_net.c, \
             rxe_prepare: only the device's own unicast address is looped back; 6.12, 7.3)",
        );
    }
    let seen: Vec<_> = got.iter().map(|wc| (wc.id, wc.status)).collect();
    equal("receive completions", seen, vec![(1, Status::SUCCESS)])?;
    b.expect(GRH, 64, 9)?;
    b.v.detach_mcast(b.qp, group, 0)?;
    b.post_recv(&[RecvWr::new(2, [b.sge(0, 256)])])?;
    to_group(a, group)?;
    equal(
        "completions after detach",
        b.v.wait(b.recv_cq, 1, QUIET)?,
        vec![],
    )
}

fn datagrams(env: &Env) -> Check<Pair<'_>> {
    Pair::connected(env, &Setup::new(Transport::Ud))
}

fn to_group(a: &Side<'_>, group: [u8; 16]) -> Check {
    let ah = a.v.create_ah(a.pd, &a.route_to(group, 0))?;
    let to = Datagram {
        ah,
        // All of a group's members (IBTA 10.5.3.1).
        qpn: 0xff_ffff,
        qkey: QKEY,
    };
    let wr = SendWr::new(1, Op::Send, [a.sge(0, 64)]).to(Some(to));
    a.v.post_send(a.qp, &[wr])?;
    a.sent(&[(1, Status::SUCCESS)]).map(drop)
}

/// Each datagram goes by its own handle, all posted before any completes.
fn many_handles(env: &Env) -> Check {
    let pair = datagrams(env)?;
    let (a, b) = (&pair.a, &pair.b);
    let handles: Vec<_> = (0..12)
        .map(|_| a.v.create_ah(a.pd, &a.route_to(b.gid, b.lid)))
        .collect::<Result<_, _>>()?;
    let list: Vec<_> = (0..12)
        .map(|id| RecvWr::new(id, [b.sge(id * 256, 256)]))
        .collect();
    b.post_recv(&list)?;
    for (id, ah) in (0..).zip(&handles) {
        a.fill(id * 256, 64, id)?;
        let to = a.datagram.map(|to| Datagram { ah: *ah, ..to });
        let wr = SendWr::new(id, Op::Send, [a.sge(id * 256, 64)]).to(to);
        a.v.post_send(a.qp, &[wr])?;
    }
    let ids: Vec<_> = (0..12).map(|id| (id, Status::SUCCESS)).collect();
    a.sent(&ids)?;
    let got = b.v.wait(b.recv_cq, 12, LONG)?;
    equal("datagrams", got.len(), 12)?;
    for id in 0..12 {
        b.expect(id * 256 + GRH, 64, id)?;
    }
    for ah in handles {
        a.v.destroy_ah(ah)?;
    }
    Ok(())
}
