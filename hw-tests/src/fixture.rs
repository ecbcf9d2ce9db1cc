//! What most cases start from: two connected ends with a registered buffer each.

use std::time::Duration;

use crate::check::{Check, equal, fail};
use crate::verbs::Verbs;
use crate::verbs::types::*;

/// Longest wait for something that must come. Generous: an emulated guest under load runs hundreds
/// of times slower than a machine, and only a failing case waits this long.
pub(crate) const LONG: Duration = Duration::from_secs(10);
/// Wait for something that must not come.
pub(crate) const QUIET: Duration = Duration::from_millis(150);

pub(crate) const QKEY: u32 = 0x1111_1111;
/// Bytes before a datagram's payload in a receive buffer (IBTA 11.4.1.2: the GRH).
pub(crate) const GRH: u64 = 40;

/// The device under test as a case sees it.
pub(crate) struct Env {
    pub(crate) near: Box<dyn Verbs>,
    /// The peer's device; without one both ends are on `near`.
    pub(crate) far: Option<Box<dyn Verbs>>,
    pub(crate) port: u8,
    pub(crate) gid_index: u32,
    pub(crate) far_port: u8,
    pub(crate) far_gid_index: u32,
    pub(crate) seed: u64,
    /// The kernel's name of the device.
    pub(crate) name: String,
}

impl Env {
    pub(crate) fn device_name(&self) -> &str {
        &self.name
    }

    pub(crate) fn v(&self) -> &dyn Verbs {
        &*self.near
    }

    fn ends(&self) -> [End<'_>; 2] {
        let near = End {
            v: &*self.near,
            port: self.port,
            gid_index: self.gid_index,
        };
        let far = match &self.far {
            Some(far) => End {
                v: &**far,
                port: self.far_port,
                gid_index: self.far_gid_index,
            },
            None => near,
        };
        [near, far]
    }

    /// The route from this device's port to itself.
    pub(crate) fn loop_route(&self) -> Check<Route> {
        let [near, _] = self.ends();
        Ok(near.route_to(near.v.gid(self.port, self.gid_index)?, near.lid()?))
    }
}

/// A device's port.
#[derive(Clone, Copy)]
struct End<'e> {
    v: &'e dyn Verbs,
    port: u8,
    gid_index: u32,
}

impl End<'_> {
    /// What InfiniBand's switches know the port by; Ethernet has none.
    fn lid(&self) -> Check<u16> {
        let port = self.v.port(self.port)?;
        Ok(if port.is_infiniband() { port.lid } else { 0 })
    }

    fn route_to(&self, gid: [u8; 16], lid: u16) -> Route {
        Route {
            gid,
            lid,
            sgid_index: self.gid_index as u8,
            port: self.port,
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0,
        }
    }
}

/// How a pair is made.
#[derive(Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) transport: Transport,
    pub(crate) caps: Caps,
    pub(crate) cqe: u32,
    pub(crate) len: u64,
    /// Rights of the memory regions.
    pub(crate) access: u32,
    /// Rights of the queue pairs.
    pub(crate) qp_access: u32,
    pub(crate) srq: Option<(u32, u32)>,
    pub(crate) signal_all: bool,
    /// Queues that tell the times of completions.
    pub(crate) timed: bool,
    /// Completion channels for the queues.
    pub(crate) channels: bool,
    pub(crate) timeout: u8,
    pub(crate) retry: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) min_rnr_timer: u8,
    pub(crate) rd_atomic: u8,
}

impl Setup {
    pub(crate) fn new(transport: Transport) -> Self {
        Self {
            transport,
            caps: Caps::default(),
            cqe: 64,
            len: 1 << 16,
            access: access::ALL,
            qp_access: access::ALL,
            srq: None,
            signal_all: false,
            timed: false,
            channels: false,
            timeout: 14,
            retry: 7,
            rnr_retry: 7,
            min_rnr_timer: 1,
            rd_atomic: 8,
        }
    }
}

/// One end of a pair.
pub(crate) struct Side<'e> {
    pub(crate) v: &'e dyn Verbs,
    pub(crate) pd: Pd,
    pub(crate) channel: Option<Channel>,
    pub(crate) send_cq: Cq,
    pub(crate) recv_cq: Cq,
    pub(crate) srq: Option<Srq>,
    pub(crate) qp: Qp,
    pub(crate) buf: Buf,
    pub(crate) mr: Mr,
    pub(crate) gid: [u8; 16],
    pub(crate) lid: u16,
    pub(crate) port: u8,
    pub(crate) gid_index: u32,
    pub(crate) first_psn: u32,
    /// To the other end, once connected (datagrams only).
    pub(crate) datagram: Option<Datagram>,
}

/// Two connected ends.
pub(crate) struct Pair<'e> {
    pub(crate) a: Side<'e>,
    pub(crate) b: Side<'e>,
}

impl<'e> Pair<'e> {
    /// Two ends, ready to send.
    pub(crate) fn connected(env: &'e Env, setup: &Setup) -> Check<Self> {
        let mut pair = Self::unconnected(env, setup)?;
        pair.connect(setup)?;
        Ok(pair)
    }

    /// Two ends whose queue pairs are still in RESET.
    pub(crate) fn unconnected(env: &'e Env, setup: &Setup) -> Check<Self> {
        let [near, far] = env.ends();
        let psn = (env.seed as u32) & 0xff_ffff;
        Ok(Self {
            a: Side::new(near, setup, psn)?,
            b: Side::new(
                far,
                setup,
                psn.wrapping_mul(31).wrapping_add(77) & 0xff_ffff,
            )?,
        })
    }

    /// Takes both ends from RESET to RTS.
    pub(crate) fn connect(&mut self, setup: &Setup) -> Check {
        let mtu = |side: &Side<'_>| side.v.port(side.port).map(|port| port.active_mtu);
        let mtu = mtu(&self.a)?.min(mtu(&self.b)?);
        let (a, b) = (self.a.address(), self.b.address());
        self.a.connect(setup, b, mtu)?;
        self.b.connect(setup, a, mtu)
    }

    /// One SEND from a to b of `len` bytes, checked.
    pub(crate) fn exchange(&self, id: u64, len: u32) -> Check {
        let at = self.b.grh();
        self.b.fill(0, at + u64::from(len), 0x5a)?;
        self.a.fill(0, len.into(), id)?;
        self.b
            .post_recv(&[RecvWr::new(id, [self.b.sge(0, at as u32 + len)])])?;
        self.a
            .post(SendWr::new(id, Op::Send, [self.a.sge(0, len)]))?;
        self.a.sent(&[(id, Status::SUCCESS)])?;
        let got = self.b.received(&[(id, Status::SUCCESS)])?;
        equal("byte_len", got[0].byte_len, at as u32 + len)?;
        self.b.expect(at, len.into(), id)
    }
}

/// What the other end must know.
#[derive(Clone, Copy)]
pub(crate) struct Address {
    pub(crate) qpn: u32,
    pub(crate) psn: u32,
    pub(crate) gid: [u8; 16],
    pub(crate) lid: u16,
}

impl<'e> Side<'e> {
    fn new(end: End<'e>, setup: &Setup, first_psn: u32) -> Check<Self> {
        let v = end.v;
        let pd = v.alloc_pd()?;
        let channel = match setup.channels {
            true => Some(v.create_channel()?),
            false => None,
        };
        let make = || match v.extras() {
            Some(extras) if setup.timed => extras.create_timed_cq(setup.cqe),
            _ => v.create_cq(setup.cqe, channel),
        };
        let (send_cq, recv_cq) = (make()?, make()?);
        let srq = match setup.srq {
            Some((max_wr, max_sge)) => Some(v.create_srq(pd, max_wr, max_sge, 0)?),
            None => None,
        };
        let qp = v.create_qp(&QpInit {
            pd,
            transport: setup.transport,
            send_cq,
            recv_cq,
            srq,
            caps: setup.caps,
            signal_all: setup.signal_all,
        })?;
        let buf = v.buffer(setup.len)?;
        let mr = v.reg_mr(pd, buf.addr, buf.len, buf.addr, setup.access)?;
        Ok(Self {
            v,
            pd,
            channel,
            send_cq,
            recv_cq,
            srq,
            qp,
            buf,
            mr,
            gid: v.gid(end.port, end.gid_index)?,
            lid: end.lid()?,
            port: end.port,
            gid_index: end.gid_index,
            first_psn,
            datagram: None,
        })
    }

    pub(crate) fn address(&self) -> Address {
        Address {
            qpn: self.qp.num,
            psn: self.first_psn,
            gid: self.gid,
            lid: self.lid,
        }
    }

    pub(crate) fn route_to(&self, gid: [u8; 16], lid: u16) -> Route {
        End {
            v: self.v,
            port: self.port,
            gid_index: self.gid_index,
        }
        .route_to(gid, lid)
    }

    /// RESET → INIT attributes.
    pub(crate) fn init_attr(&self, setup: &Setup) -> QpAttr {
        let datagram = setup.transport == Transport::Ud;
        QpAttr {
            state: Some(State::Init),
            pkey_index: Some(0),
            port: Some(self.port),
            qkey: datagram.then_some(QKEY),
            access: (!datagram).then_some(match setup.transport {
                Transport::Uc => setup.qp_access & access::REMOTE_WRITE,
                _ => setup.qp_access & !access::LOCAL_WRITE,
            }),
            ..QpAttr::default()
        }
    }

    /// INIT → RTR attributes.
    pub(crate) fn rtr_attr(&self, setup: &Setup, peer: Address, mtu: u8) -> QpAttr {
        let state = Some(State::Rtr);
        if setup.transport == Transport::Ud {
            return QpAttr {
                state,
                ..QpAttr::default()
            };
        }
        let reliable = setup.transport == Transport::Rc;
        QpAttr {
            state,
            route: Some(self.route_to(peer.gid, peer.lid)),
            mtu: Some(mtu),
            dest: Some(peer.qpn),
            rq_psn: Some(peer.psn),
            max_dest_rd_atomic: reliable.then_some(setup.rd_atomic),
            min_rnr_timer: reliable.then_some(setup.min_rnr_timer),
            ..QpAttr::default()
        }
    }

    /// RTR → RTS attributes.
    pub(crate) fn rts_attr(&self, setup: &Setup) -> QpAttr {
        let reliable = setup.transport == Transport::Rc;
        QpAttr {
            state: Some(State::Rts),
            sq_psn: Some(self.first_psn),
            timeout: reliable.then_some(setup.timeout),
            retry: reliable.then_some(setup.retry),
            rnr_retry: reliable.then_some(setup.rnr_retry),
            max_rd_atomic: reliable.then_some(setup.rd_atomic),
            ..QpAttr::default()
        }
    }

    /// Takes another queue pair from RESET to RTS, with this end's attributes and connected with itself.
    pub(crate) fn connect_to_itself(&self, setup: &Setup, qp: Qp) -> Check {
        let own = Address {
            qpn: qp.num,
            ..self.address()
        };
        let mtu = self.v.port(self.port)?.active_mtu;
        for attr in [
            self.init_attr(setup),
            self.rtr_attr(setup, own, mtu),
            self.rts_attr(setup),
        ] {
            self.v.modify_qp(qp, &attr)?;
        }
        Ok(())
    }

    /// RESET to RTS, towards `peer`.
    pub(crate) fn connect(&mut self, setup: &Setup, peer: Address, mtu: u8) -> Check {
        self.v.modify_qp(self.qp, &self.init_attr(setup))?;
        self.v
            .modify_qp(self.qp, &self.rtr_attr(setup, peer, mtu))?;
        self.v.modify_qp(self.qp, &self.rts_attr(setup))?;
        if setup.transport == Transport::Ud {
            self.datagram = Some(Datagram {
                ah: self
                    .v
                    .create_ah(self.pd, &self.route_to(peer.gid, peer.lid))?,
                qpn: peer.qpn,
                qkey: QKEY,
            });
        }
        Ok(())
    }

    /// Bytes in front of a received payload.
    pub(crate) fn grh(&self) -> u64 {
        match self.qp.transport {
            Transport::Ud => GRH,
            _ => 0,
        }
    }

    pub(crate) fn sge(&self, offset: u64, len: u32) -> Sge {
        Sge {
            addr: self.buf.addr + offset,
            len,
            lkey: self.mr.lkey,
        }
    }

    pub(crate) fn remote(&self, offset: u64) -> Remote {
        Remote {
            addr: self.buf.addr + offset,
            rkey: self.mr.rkey,
        }
    }

    pub(crate) fn fill(&self, offset: u64, len: u64, seed: u64) -> Check {
        Ok(self.v.write(self.buf, offset, &pattern(seed, len))?)
    }

    /// Fails with the first difference unless the bytes are those of `fill`.
    pub(crate) fn expect(&self, offset: u64, len: u64, seed: u64) -> Check {
        let got = self.v.read(self.buf, offset, len)?;
        same_bytes(&got, &pattern(seed, len), offset)
    }

    pub(crate) fn expect_at(&self, offset: u64, bytes: &[u8]) -> Check {
        let got = self.v.read(self.buf, offset, bytes.len() as u64)?;
        same_bytes(&got, bytes, offset)
    }

    pub(crate) fn word(&self, offset: u64) -> Check<u64> {
        let bytes = self.v.read(self.buf, offset, 8)?;
        Ok(u64::from_ne_bytes(
            bytes.try_into().expect("eight bytes were asked for"),
        ))
    }

    pub(crate) fn set_word(&self, offset: u64, value: u64) -> Check {
        Ok(self.v.write(self.buf, offset, &value.to_ne_bytes())?)
    }

    /// Posts one request, to the other end if this is a datagram queue pair.
    pub(crate) fn post(&self, wr: SendWr) -> Posted {
        self.v.post_send(self.qp, &[wr.to(self.datagram)])
    }

    /// Posts to the receive queue, or to the shared one.
    pub(crate) fn post_recv(&self, list: &[RecvWr]) -> Posted {
        match self.srq {
            Some(srq) => self.v.post_srq(srq, list),
            None => self.v.post_recv(self.qp, list),
        }
    }

    /// The next send completions must be these, in order, and of this queue pair.
    pub(crate) fn sent(&self, expected: &[(u64, Status)]) -> Check<Vec<Wc>> {
        self.completions("send", self.send_cq, expected)
    }

    /// As `sent`, of the receive queue.
    pub(crate) fn received(&self, expected: &[(u64, Status)]) -> Check<Vec<Wc>> {
        self.completions("receive", self.recv_cq, expected)
    }

    /// The next send completion must be request `id`'s, with one of `statuses`.
    pub(crate) fn sent_one(&self, id: u64, statuses: &[Status]) -> Check<Wc> {
        self.one("send", self.send_cq, id, statuses)
    }

    /// As `sent_one`, of the receive queue.
    pub(crate) fn received_one(&self, id: u64, statuses: &[Status]) -> Check<Wc> {
        self.one("receive", self.recv_cq, id, statuses)
    }

    fn one(&self, what: &str, cq: Cq, id: u64, statuses: &[Status]) -> Check<Wc> {
        let Some(wc) = self.v.wait(cq, 1, LONG)?.pop() else {
            return fail(format!(
                "no {what} completion, request {id} should have one"
            ));
        };
        equal("wr_id", wc.id, id)?;
        equal("qp_num of a completion", wc.qp_num, self.qp.num)?;
        if !statuses.contains(&wc.status) {
            let status = wc.status;
            return fail(format!("{what} completion of request {id} says {status}"));
        }
        Ok(wc)
    }

    fn completions(&self, what: &str, cq: Cq, expected: &[(u64, Status)]) -> Check<Vec<Wc>> {
        let got = self.v.wait(cq, expected.len(), LONG)?;
        let seen: Vec<_> = got.iter().map(|wc| (wc.id, wc.status)).collect();
        if seen != expected {
            let show = |list: &[(u64, Status)]| {
                let texts = list.iter().map(|(id, status)| format!("{id}: {status}"));
                texts.collect::<Vec<_>>().join(", ")
            };
            return fail(format!(
                "{what} completions: got [{}], expected [{}]",
                show(&seen),
                show(expected)
            ));
        }
        for wc in &got {
            equal("qp_num of a completion", wc.qp_num, self.qp.num)?;
        }
        Ok(got)
    }

    /// Neither queue has a completion for a while.
    pub(crate) fn silent(&self) -> Check {
        for cq in [self.send_cq, self.recv_cq] {
            let got = self.v.wait(cq, 1, QUIET)?;
            equal("completions of a queue that should be silent", got, vec![])?;
        }
        Ok(())
    }

    /// The send queue has no completion for a while.
    pub(crate) fn silent_send(&self) -> Check {
        let got = self.v.wait(self.send_cq, 1, QUIET)?;
        equal("send completions where none should be", got, vec![])
    }

    pub(crate) fn state(&self) -> Check<State> {
        Ok(self.v.query_qp(self.qp)?.state)
    }

    pub(crate) fn to_error(&self) -> Check {
        Ok(self.v.modify_qp(self.qp, &to_state(State::Err))?)
    }
}

pub(crate) fn to_state(state: State) -> QpAttr {
    QpAttr {
        state: Some(state),
        ..QpAttr::default()
    }
}

/// Bytes that differ between seeds and between offsets, without a short period.
pub(crate) fn pattern(seed: u64, len: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x2545_f491_4f6c_dd1d;
    let step = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..len).map(step).collect()
}

pub(crate) fn same_bytes(got: &[u8], expected: &[u8], offset: u64) -> Check {
    equal("length of bytes", got.len(), expected.len())?;
    match got.iter().zip(expected).position(|(a, b)| a != b) {
        None => Ok(()),
        Some(i) => fail(format!(
            "byte {} of {}: got {:#04x}, expected {:#04x}",
            offset + i as u64,
            got.len(),
            got[i],
            expected[i]
        )),
    }
}
