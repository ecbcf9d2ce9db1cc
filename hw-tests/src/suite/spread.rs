//! Packets as they are, spread over receive queues by the hash of their connection (RSS). The port hears its own packets.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use super::{Need, Suite};
use crate::check::{Check, Stop, ensure, equal, fail};
use crate::fixture::{Env, LONG};
use crate::verbs::extras::SpreadInit;
use crate::verbs::types::*;

const NEEDS: [Need; 2] = [Need::Spread, Need::Loopback];
const QUEUES: usize = 4;
const RECEIVES: usize = 64;
const SLOT: u32 = 256;
/// Where packets lie that are sent: behind all receives.
const OUTGOING: u64 = (QUEUES * RECEIVES) as u64 * SLOT as u64;
const CONNECTIONS: u16 = 24;
/// Nobody's address (IEEE 802, locally administered).
const FROM: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// A type that nobody has (IEEE 802, local experimental), and that of IPv4.
const EXPERIMENTAL: u16 = 0x88b5;
const IPV4: u16 = 0x0800;

pub(super) fn cases(suite: &mut Suite) {
    suite.case("rss/connections_stay", &NEEDS, |env| {
        let mut ends = Ends::new(env, &[0, 1, 2, 3])?;
        let queues = ends.queues()?;
        for queue in 0..QUEUES {
            let there = queues.values().filter(|at| **at == queue).count();
            ensure(&format!("something comes to queue {queue}"), there > 0)?;
        }
        // what else is in a packet does not matter
        for (number, queue) in queues {
            equal(
                "the queue of more of it",
                ends.queue_of(connection(number, 100))?,
                queue,
            )?;
        }
        Ok(())
    });
    suite.case("rss/the_table_names_the_queue", &NEEDS, |env| {
        let straight = Ends::new(env, &[0, 1, 2, 3])?.queues()?;
        let backwards = Ends::new(env, &[3, 2, 1, 0])?.queues()?;
        let two = Ends::new(env, &[2, 1])?.queues()?;
        for (number, entry) in straight {
            equal("the queue backwards", backwards[&number], 3 - entry)?;
            // the last bit of the hash
            equal("the queue of two", two[&number], [2, 1][entry % 2])?;
        }
        Ok(())
    });
    suite.case("rss/no_connection_no_spreading", &NEEDS, |env| {
        let mut ends = Ends::new(env, &[2, 1, 0, 3])?;
        for number in 0..8 {
            let frame = (EXPERIMENTAL, vec![number; 60]);
            equal("the first queue of the table", ends.queue_of(frame)?, 2)?;
        }
        Ok(())
    });
}

/// UDP over IPv4 of one of many connections: the type of packet, and its data.
fn connection(number: u16, data: u16) -> (u16, Vec<u8>) {
    let (from, to) = (
        Ipv4Addr::new(66, 9, 149, 187 - number as u8),
        Ipv4Addr::new(161, 142, 100, 80),
    );
    let mut ip = vec![0x45, 0];
    ip.extend((28 + data).to_be_bytes());
    ip.extend([0, 0, 0, 0, 64, 17, 0, 0]);
    ip.extend(from.octets());
    ip.extend(to.octets());
    // of the header's 16-bit words (RFC 791 3.1)
    let sum: u32 = (ip.chunks_exact(2))
        .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]))
        .sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    ip.extend((2794 + 7 * number).to_be_bytes());
    ip.extend(1766_u16.to_be_bytes());
    ip.extend((8 + data).to_be_bytes());
    // no sum (RFC 768)
    ip.extend([0, 0]);
    ip.resize(ip.len() + usize::from(data), 0xa5);
    (IPV4, ip)
}

/// The port's address on Ethernet, which its link-local GID is made of (RFC 4291 2.5.1).
fn address(env: &Env) -> Check<[u8; 6]> {
    let gid = env.v().gid(env.port, 0)?;
    match gid {
        [0xfe, 0x80, .., a, b, c, 0xff, 0xfe, d, e, f] => Ok([a ^ 2, b, c, d, e, f]),
        _ => Err(Stop::Skip(format!(
            "GID 0 tells no Ethernet address: {gid:02x?}"
        ))),
    }
}

/// Who sends packets, and who receives them.
struct Ends<'e> {
    env: &'e Env,
    to: [u8; 6],
    qp: Qp,
    sent: Cq,
    received: Cq,
    buf: Buf,
    lkey: u32,
}

impl<'e> Ends<'e> {
    fn new(env: &'e Env, table: &[usize]) -> Check<Self> {
        let v = env.v();
        let pd = v.alloc_pd()?;
        let (sent, received) = (v.create_cq(16, None)?, v.create_cq(512, None)?);
        let buf = v.buffer(OUTGOING + u64::from(SLOT))?;
        let mr = v.reg_mr(pd, buf.addr, buf.len, buf.addr, access::LOCAL_WRITE)?;
        let qp = v.create_qp(&QpInit {
            pd,
            transport: Transport::Raw,
            send_cq: sent,
            recv_cq: sent,
            srq: None,
            caps: Caps::default(),
            signal_all: false,
        })?;
        for state in [State::Init, State::Rtr, State::Rts] {
            let port = (state == State::Init).then_some(env.port);
            v.modify_qp(
                qp,
                &QpAttr {
                    state: Some(state),
                    port,
                    ..QpAttr::default()
                },
            )?;
        }
        let to = address(env)?;
        let init = SpreadInit {
            pd,
            cq: received,
            port: env.port,
            queues: QUEUES,
            table: table.to_vec(),
            receives: RECEIVES,
            slot: Sge {
                addr: buf.addr,
                len: SLOT,
                lkey: mr.lkey,
            },
            from: FROM,
            to,
        };
        let extras = v.extras();
        extras.map(|extras| extras.spread(&init)).transpose()?;
        Ok(Self {
            env,
            to,
            qp,
            sent,
            received,
            buf,
            lkey: mr.lkey,
        })
    }

    /// Sends a packet; the queue that it comes to.
    fn queue_of(&mut self, (kind, data): (u16, Vec<u8>)) -> Check<usize> {
        let v = self.env.v();
        let frame = [&self.to[..], &FROM, &kind.to_be_bytes(), &data].concat();
        v.write(self.buf, OUTGOING, &frame)?;
        let sge = Sge {
            addr: self.buf.addr + OUTGOING,
            len: frame.len() as u32,
            lkey: self.lkey,
        };
        v.post_send(self.qp, &[SendWr::new(1, Op::Send, [sge])])?;
        for wc in v.wait(self.sent, 1, LONG)? {
            equal("status of the send", wc.status, Status::SUCCESS)?;
        }
        let [wc] = v.wait(self.received, 1, LONG)?[..] else {
            return fail("the packet does not come");
        };
        equal("status", wc.status, Status::SUCCESS)?;
        equal("byte_len", wc.byte_len, sge.len)?;
        Ok(wc.id as usize)
    }

    /// Where each connection's packets come to.
    fn queues(&mut self) -> Check<BTreeMap<u16, usize>> {
        (0..CONNECTIONS)
            .map(|number| Ok((number, self.queue_of(connection(number, 60))?)))
            .collect()
    }
}
