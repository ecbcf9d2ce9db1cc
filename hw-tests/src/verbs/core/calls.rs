//! [`Verbs`] by the core.

use oxverbs::control::kernel::{CreateCq, CreateQp, CreateSrq, UserMr};
use oxverbs::data::rxe::{InlinePiece, SendLimits};
use uverbs_abi::event::{AsyncEvent, CompletionEvent};
use uverbs_abi::types::{AccessFlags, MwType as AbiMwType, QpAttrMask, QpType, ReregMrFlags};
use uverbs_abi::udata::mlx5::AllocPdResp;
use uverbs_abi::udata::rxe as udata;

use super::*;
use crate::counters::Counters;
use crate::verbs::extras::Extras;
use crate::verbs::{Rereg, Verbs};

impl Verbs for Core {
    fn provider(&self) -> &'static str {
        "oxverbs' untyped core"
    }

    fn device(&self) -> Answer<DeviceAttr> {
        let answer = self.uctx.query_device_ex::<()>();
        let answer = answer.map_err(|errno| fault("query the device", errno))?;
        Ok(convert::device(&answer.attr))
    }

    fn port(&self, port: u8) -> Answer<PortAttr> {
        let answer = self.uctx.query_port(port);
        let answer = answer.map_err(|errno| fault("query the port", errno))?;
        Ok(convert::port(&answer.legacy_resp))
    }

    fn gid(&self, port: u8, index: u32) -> Answer<[u8; 16]> {
        let entry = self.uctx.query_gid_entry(port.into(), index);
        Ok(entry.map_err(|errno| fault("query a GID", errno))?.gid)
    }

    fn pkey(&self, port: u8, index: u16) -> Answer<u16> {
        if let Some(objects) = self.uctx.objects() {
            let answer = objects.query_pkey(port, index);
            return answer.map_err(|errno| fault("query a partition key", errno));
        }
        // No command of the kernel's answers it.
        let name = &self.name;
        let path = format!("/sys/class/infiniband/{name}/ports/{port}/pkeys/{index}");
        let missing = || Fault::errno(libc::EINVAL, format!("read {path}"));
        let text = std::fs::read_to_string(&path).map_err(|_| missing())?;
        u16::from_str_radix(text.trim().trim_start_matches("0x"), 16).map_err(|_| missing())
    }

    fn counters(&self, port: u8) -> Answer<Counters> {
        let Some(objects) = self.uctx.objects() else {
            return Ok(crate::counters::read(&self.name, port));
        };
        let told = objects.port_counters(port);
        let told = told.map_err(|errno| fault("read the port's counters", errno))?;
        let named = told
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value));
        Ok(named.collect())
    }

    fn buffer(&self, len: u64) -> Answer<Buf> {
        self.memory.allocate(len)
    }

    fn write(&self, buf: Buf, offset: u64, bytes: &[u8]) -> Answer<()> {
        self.memory.write(buf, offset, bytes)
    }

    fn read(&self, buf: Buf, offset: u64, len: u64) -> Answer<Vec<u8>> {
        self.memory.read(buf, offset, len)
    }

    fn alloc_pd(&self) -> Answer<Pd> {
        // The kernel's mlx5 driver refuses who has no room for its number of the domain.
        let answer = match &self.mlx5 {
            Some(_) => (self.uctx.alloc_pd::<AllocPdResp>()).map(|(pd, _)| pd),
            None => self.uctx.alloc_pd::<()>().map(|(pd, ())| pd),
        };
        let pd = answer.map_err(|errno| fault("allocate a domain", errno))?;
        Ok(Pd(self.pds.add(pd)))
    }

    fn dealloc_pd(&self, pd: Pd) -> Answer<()> {
        let answer = self.uctx.dealloc_pd(*self.pds.get(pd.0)?);
        answer.map_err(|errno| fault("free a domain", errno))?;
        self.pds.remove(pd.0);
        Ok(())
    }

    fn reg_mr(&self, pd: Pd, addr: u64, len: u64, iova: u64, rights: u32) -> Answer<Mr> {
        let mr = UserMr {
            pd: *self.pds.get(pd.0)?,
            start: addr,
            length: len,
            hca_va: iova,
            access: AccessFlags(rights),
        };
        // SAFETY: cases register the suite's own memory, which is never freed and only touched by
        // volatile accesses, or ranges that the kernel must refuse.
        let answer = unsafe { self.uctx.reg_mr(&mr) };
        let keys = answer.map_err(|errno| fault("register memory", errno))?;
        Ok(Mr {
            id: self.mrs.add(keys.handle),
            lkey: keys.lkey,
            rkey: keys.rkey,
        })
    }

    fn rereg_mr(&self, mr: Mr, change: Rereg) -> Answer<Mr> {
        let mut flags = ReregMrFlags::NONE;
        let mut new = UserMr::default();
        if let Some((start, len)) = change.range {
            flags |= ReregMrFlags::CHANGE_TRANSLATION;
            (new.start, new.length, new.hca_va) = (start, len, start);
        }
        if let Some(pd) = change.pd {
            flags |= ReregMrFlags::CHANGE_PD;
            new.pd = *self.pds.get(pd.0)?;
        }
        if let Some(rights) = change.access {
            flags |= ReregMrFlags::CHANGE_ACCESS;
            new.access = AccessFlags(rights);
        }
        let handle = *self.mrs.get(mr.id)?;
        // SAFETY: as for `reg_mr`.
        let answer = unsafe { self.uctx.rereg_mr(handle, flags, &new) };
        let (lkey, rkey) = answer.map_err(|errno| fault("reregister memory", errno))?;
        Ok(Mr { lkey, rkey, ..mr })
    }

    fn dereg_mr(&self, mr: Mr) -> Answer<()> {
        let answer = self.uctx.dereg_mr(*self.mrs.get(mr.id)?);
        answer.map_err(|errno| fault("deregister memory", errno))?;
        self.mrs.remove(mr.id);
        Ok(())
    }

    fn create_channel(&self) -> Answer<Channel> {
        let answer = self.uctx.create_comp_channel();
        let file = answer.map_err(|errno| fault("make a channel", errno))?;
        let state = ChannelState {
            file,
            users: Mutex::new(0),
        };
        Ok(Channel(self.channels.add(state)))
    }

    fn destroy_channel(&self, channel: Channel) -> Answer<()> {
        if *lock(&self.channels.get(channel.0)?.users) != 0 {
            return Err(Fault::errno(libc::EBUSY, "close a channel"));
        }
        self.channels.remove(channel.0);
        Ok(())
    }

    fn channel_event(&self, channel: Channel, timeout: Duration) -> Answer<Option<u32>> {
        let channel = self.channels.get(channel.0)?;
        if !readable(&channel.file, timeout) {
            return Ok(None);
        }
        let bytes = read_record::<8>(&channel.file)?;
        let event = CompletionEvent::parse(&bytes).map(|(event, _)| event.cq_handle as u32);
        if let (Some(mlx5), Some(id)) = (&self.mlx5, event) {
            mlx5.event_taken(id);
        }
        Ok(event)
    }

    fn ack_cq(&self, cq: Cq, events: u32) -> Answer<()> {
        if let Some(mlx5) = &self.mlx5 {
            return mlx5.ack_cq(cq, events);
        }
        let cq = self.cqs.get(cq.id)?;
        cq.acks.add(events);
        Ok(())
    }

    fn create_cq(&self, cqe: u32, channel: Option<Channel>) -> Answer<Cq> {
        if let Some(mlx5) = &self.mlx5 {
            return mlx5.create_cq(self, cqe, channel);
        }
        let id = table::new_id();
        let to = match channel {
            Some(channel) => Some(self.channels.get(channel.0)?),
            None => None,
        };
        let answer = self.uctx.create_cq::<udata::CreateCqResp>(&CreateCq {
            cqe,
            user_handle: id.into(),
            comp_channel: to.as_ref().map(|channel| channel.file.as_raw_fd()),
            async_event: Some(self.events.as_raw_fd()),
            ..CreateCq::default()
        });
        let created = answer.map_err(|errno| fault("make a completion queue", errno))?;
        let queue = CompletionQueue::new(self.map(&created.udata.mi)?).map_err(bad_ring)?;
        let cqe = queue.capacity();
        let state = CqState {
            handle: created.handle,
            queue: Mutex::new(queue),
            channel,
            acks: Acks::default(),
        };
        self.cqs.add_as(id, state);
        if let Some(to) = to {
            *lock(&to.users) += 1;
        }
        // What the kernel granted and what the ring holds must agree.
        if created.cqe > cqe {
            let what = format!(
                "use a queue of {cqe} entries where {} were granted",
                created.cqe
            );
            return Err(Fault { errno: None, what });
        }
        Ok(Cq {
            id,
            cqe: created.cqe,
        })
    }

    fn resize_cq(&self, cq: Cq, cqe: u32) -> Answer<Cq> {
        if let Some(mlx5) = &self.mlx5 {
            return mlx5.resize_cq(cq, cqe);
        }
        let state = self.cqs.get(cq.id)?;
        // Nobody polls the old ring while the kernel moves on to the new one.
        let mut queue = lock(&state.queue);
        let answer = self
            .uctx
            .resize_cq::<udata::ResizeCqResp>(state.handle, cqe);
        let resized = answer.map_err(|errno| fault("resize a completion queue", errno))?;
        if resized.udata.mi.is_present() {
            queue
                .replace(self.map(&resized.udata.mi)?)
                .map_err(bad_ring)?;
        }
        Ok(Cq {
            cqe: resized.cqe,
            ..cq
        })
    }

    fn arm(&self, cq: Cq, solicited_only: bool) -> Answer<()> {
        if let Some(mlx5) = &self.mlx5 {
            return mlx5.arm(cq, solicited_only);
        }
        let answer = self
            .uctx
            .req_notify_cq(self.cqs.get(cq.id)?.handle, solicited_only);
        answer.map_err(|errno| fault("arm a completion queue", errno))
    }

    fn poll(&self, cq: Cq, max: u32) -> Answer<Vec<Wc>> {
        if let Some(mlx5) = &self.mlx5 {
            return mlx5.poll(cq, max);
        }
        let cq = self.cqs.get(cq.id)?;
        let mut queue = lock(&cq.queue);
        let cqes = std::iter::from_fn(|| queue.poll()).take(max as usize);
        Ok(cqes
            .map(|cqe| Wc {
                id: cqe.wr_id,
                status: Status(cqe.status().0),
                opcode: cqe.opcode().0,
                vendor_err: cqe.vendor_err,
                byte_len: cqe.byte_len,
                imm: cqe.immediate(),
                invalidated: cqe.invalidated_rkey(),
                qp_num: cqe.qp_num,
                src_qp: cqe.src_qp,
                grh: cqe.flags().contains(rxe::WcFlags::GRH),
            })
            .collect())
    }

    fn destroy_cq(&self, cq: Cq) -> Answer<()> {
        if let Some(mlx5) = &self.mlx5 {
            return mlx5.destroy_cq(self, cq);
        }
        let state = self.cqs.get(cq.id)?;
        let answer = self.uctx.destroy_cq(state.handle);
        let reported = answer.map_err(|errno| fault("destroy a completion queue", errno))?;
        state.acks.wait_for(reported.comp_events_reported);
        if let Some(channel) = state.channel {
            *lock(&self.channels.get(channel.0)?.users) -= 1;
        }
        self.cqs.remove(cq.id);
        Ok(())
    }

    fn create_qp(&self, init: &QpInit) -> Answer<Qp> {
        if let Some(mlx5) = &self.mlx5 {
            return mlx5.create_qp(self, init);
        }
        let id = table::new_id();
        let srq = match init.srq {
            Some(srq) => Some(self.srqs.get(srq.id)?.handle),
            None => None,
        };
        let answer = self.uctx.create_qp::<udata::CreateQpResp>(&CreateQp {
            qp_type: QpType(init.transport.number() as u8),
            pd: *self.pds.get(init.pd.0)?,
            send_cq: self.cqs.get(init.send_cq.id)?.handle,
            recv_cq: self.cqs.get(init.recv_cq.id)?.handle,
            srq,
            user_handle: id.into(),
            cap: convert::cap(&init.caps),
            sq_sig_all: init.signal_all,
            async_event: Some(self.events.as_raw_fd()),
            ..CreateQp::default()
        });
        let created = answer.map_err(|errno| fault("make a queue pair", errno))?;
        let transport = match init.transport {
            Transport::Rc => rxe::Transport::Rc,
            Transport::Uc => rxe::Transport::Uc,
            Transport::Ud => rxe::Transport::Ud,
            Transport::Raw => {
                return Err(Fault::errno(libc::EOPNOTSUPP, "send packets as they are"));
            }
        };
        let limits = SendLimits {
            max_sge: created.cap.max_send_sge,
            max_inline: created.cap.max_inline_data,
        };
        let (sq_info, rq_info) = (created.udata.sq_mi, created.udata.rq_mi);
        let sq = match sq_info.is_present() {
            true => {
                let mapping = self.map(&sq_info)?;
                Some(SendQueue::new(mapping, transport, limits).map_err(bad_ring)?)
            }
            false => None,
        };
        let rq = match rq_info.is_present() {
            true => {
                let mapping = self.map(&rq_info)?;
                let max_sge = created.cap.max_recv_sge;
                Some(RecvQueue::new(mapping, max_sge, false).map_err(bad_ring)?)
            }
            false => None,
        };
        let state = QpState {
            handle: created.handle,
            doorbell: Doorbell::new(created.handle),
            sq: Mutex::new(sq),
            rq: Mutex::new(rq),
        };
        self.qps.add_as(id, state);
        Ok(Qp {
            id,
            num: created.qp_num,
            transport: init.transport,
            caps: convert::caps(&created.cap),
        })
    }

    fn modify_qp(&self, qp: Qp, attr: &QpAttr) -> Answer<()> {
        if let Some(mlx5) = &self.mlx5 {
            return mlx5.modify_qp(qp, attr);
        }
        let state = self.qps.get(qp.id)?;
        let answer = self
            .uctx
            .modify_qp(&convert::modification(state.handle, attr));
        answer.map_err(|errno| fault("modify a queue pair", errno))?;
        if let Some(to) = attr.state {
            state.follow(to);
        }
        Ok(())
    }

    fn query_qp(&self, qp: Qp) -> Answer<QpReport> {
        if let Some(mlx5) = &self.mlx5 {
            return mlx5.query_qp(qp);
        }
        // Every attribute of the old set.
        let all = QpAttrMask(0x1f_ffff);
        let answer = self.uctx.query_qp(self.qps.get(qp.id)?.handle, all);
        let answer = answer.map_err(|errno| fault("query a queue pair", errno))?;
        convert::report(&answer)
    }

    fn destroy_qp(&self, qp: Qp) -> Answer<()> {
        if let Some(mlx5) = &self.mlx5 {
            return mlx5.destroy_qp(qp);
        }
        let answer = self.uctx.destroy_qp(self.qps.get(qp.id)?.handle);
        answer.map_err(|errno| fault("destroy a queue pair", errno))?;
        self.qps.remove(qp.id);
        Ok(())
    }

    fn post_send(&self, qp: Qp, list: &[SendWr]) -> Posted {
        if let Some(mlx5) = &self.mlx5 {
            return mlx5.post_send(qp, list);
        }
        let first = |fault| PostFault { index: 0, fault };
        let state = self.qps.get(qp.id).map_err(first)?;
        let mut sq = lock(&state.sq);
        let Some(sq) = &mut *sq else {
            return Err(post_fault(0, PostError::QueueFull));
        };
        let mut draft = sq.begin();
        let mut posted = Ok(());
        for (index, wr) in list.iter().enumerate() {
            let to = match wr.to {
                Some(to) => {
                    let ah = self.ahs.get(to.ah.0);
                    let ah = ah.map_err(|fault| PostFault { index, fault })?;
                    Some(rxe::Datagram {
                        remote_qpn: to.qpn,
                        remote_qkey: to.qkey,
                        ah_num: ah.number,
                        av: rxe::AddressVector::default(),
                    })
                }
                None => None,
            };
            let flags = rxe::SendFlags(wr.flags & !send::INLINE);
            let op = operation(&wr.op);
            let built = sq
                .open(&mut draft, wr.id, flags, &op, to.as_ref())
                .and_then(|()| {
                    match wr.op {
                        Op::LocalInv(_) | Op::BindMw(_) | Op::Flush { .. } => Ok(()),
                        Op::AtomicWrite(_, value) => {
                            sq.set_atomic_value(&mut draft, value.to_ne_bytes())
                        }
                        _ if wr.flags & send::INLINE != 0 => {
                            let pieces = wr.sg.iter().map(|sge| InlinePiece {
                                addr: sge.addr as *const u8,
                                len: sge.len as usize,
                            });
                            // SAFETY: cases inline the suite's own memory, or sums over the limit.
                            unsafe { sq.set_inline(&mut draft, pieces) }
                        }
                        _ => sq.set_sges(&mut draft, &sges(&wr.sg)),
                    }
                });
            if let Err(error) = built {
                posted = Err(post_fault(index, error));
                break;
            }
            sq.close(&mut draft);
        }
        if sq.commit(&draft) {
            let rung = state.doorbell.ring(self.uctx.fd());
            rung.map_err(|errno| first(fault("ring the doorbell", errno)))?;
        }
        posted
    }

    fn post_recv(&self, qp: Qp, list: &[RecvWr]) -> Posted {
        if let Some(mlx5) = &self.mlx5 {
            return mlx5.post_recv(qp, list);
        }
        let state = self
            .qps
            .get(qp.id)
            .map_err(|fault| PostFault { index: 0, fault })?;
        let mut rq = lock(&state.rq);
        match &mut *rq {
            Some(rq) => post_receives(rq, list),
            None => Err(post_fault(0, PostError::QueueFull)),
        }
    }

    fn create_srq(&self, pd: Pd, max_wr: u32, max_sge: u32, limit: u32) -> Answer<Srq> {
        if let Some(mlx5) = &self.mlx5 {
            return mlx5.create_srq(self, pd, max_wr, max_sge, limit);
        }
        let id = table::new_id();
        let answer = self.uctx.create_srq::<udata::CreateSrqResp>(&CreateSrq {
            pd: *self.pds.get(pd.0)?,
            user_handle: id.into(),
            max_wr,
            max_sge,
            srq_limit: limit,
            async_event: Some(self.events.as_raw_fd()),
            ..CreateSrq::default()
        });
        let created = answer.map_err(|errno| fault("make a shared receive queue", errno))?;
        let mapping = self.map(&created.udata.mi)?;
        let queue = RecvQueue::new(mapping, created.max_sge, true).map_err(bad_ring)?;
        let state = SrqState {
            handle: created.handle,
            queue: Mutex::new(queue),
        };
        self.srqs.add_as(id, state);
        Ok(Srq {
            id,
            max_wr: created.max_wr,
            max_sge: created.max_sge,
        })
    }

    fn modify_srq(&self, srq: Srq, max_wr: Option<u32>, limit: Option<u32>) -> Answer<()> {
        if let Some(mlx5) = &self.mlx5 {
            return mlx5.modify_srq(srq, max_wr, limit);
        }
        let state = self.srqs.get(srq.id)?;
        let mask = convert::srq_mask(max_wr, limit);
        // Nobody posts to the old ring while the kernel moves on to the new one.
        let mut queue = lock(&state.queue);
        let (max_wr, limit) = (max_wr.unwrap_or(0), limit.unwrap_or(0));
        let answer = self.uctx.modify_srq_rxe(state.handle, mask, max_wr, limit);
        let info = answer.map_err(|errno| fault("modify a shared receive queue", errno))?;
        if info.is_present() {
            queue.replace(self.map(&info)?).map_err(bad_ring)?;
        }
        Ok(())
    }

    fn query_srq(&self, srq: Srq) -> Answer<SrqReport> {
        if let Some(mlx5) = &self.mlx5 {
            return mlx5.query_srq(srq);
        }
        let answer = self.uctx.query_srq(self.srqs.get(srq.id)?.handle);
        let attr = answer.map_err(|errno| fault("query a shared receive queue", errno))?;
        Ok(SrqReport {
            max_wr: attr.max_wr,
            max_sge: attr.max_sge,
            limit: attr.srq_limit,
        })
    }

    fn destroy_srq(&self, srq: Srq) -> Answer<()> {
        if let Some(mlx5) = &self.mlx5 {
            return mlx5.destroy_srq(srq);
        }
        let answer = self.uctx.destroy_srq(self.srqs.get(srq.id)?.handle);
        answer.map_err(|errno| fault("destroy a shared receive queue", errno))?;
        self.srqs.remove(srq.id);
        Ok(())
    }

    fn post_srq(&self, srq: Srq, list: &[RecvWr]) -> Posted {
        if let Some(mlx5) = &self.mlx5 {
            return mlx5.post_srq(srq, list);
        }
        let state = self
            .srqs
            .get(srq.id)
            .map_err(|fault| PostFault { index: 0, fault })?;
        let mut queue = lock(&state.queue);
        post_receives(&mut queue, list)
    }

    fn create_ah(&self, pd: Pd, route: &Route) -> Answer<Ah> {
        if let Some(mlx5) = &self.mlx5 {
            return mlx5.create_ah(self, pd, route);
        }
        let pd = *self.pds.get(pd.0)?;
        let answer = self
            .uctx
            .create_ah::<udata::CreateAhResp>(pd, 0, &path(route));
        let (handle, response) = answer.map_err(|errno| fault("make an address handle", errno))?;
        let state = AhState {
            handle,
            number: response.ah_num,
        };
        Ok(Ah(self.ahs.add(state)))
    }

    fn destroy_ah(&self, ah: Ah) -> Answer<()> {
        if let Some(mlx5) = &self.mlx5 {
            return mlx5.destroy_ah(ah);
        }
        let answer = self.uctx.destroy_ah(self.ahs.get(ah.0)?.handle);
        answer.map_err(|errno| fault("destroy an address handle", errno))?;
        self.ahs.remove(ah.0);
        Ok(())
    }

    fn alloc_mw(&self, pd: Pd, kind: MwType) -> Answer<Mw> {
        let kind = match kind {
            MwType::One => AbiMwType::TYPE_1,
            MwType::Two => AbiMwType::TYPE_2,
        };
        let answer = self.uctx.alloc_mw(*self.pds.get(pd.0)?, kind);
        let keys = answer.map_err(|errno| fault("allocate a memory window", errno))?;
        Ok(Mw {
            id: self.mws.add(keys.handle),
            rkey: keys.rkey,
        })
    }

    fn bind_mw(&self, qp: Qp, bind: &Bind, id: u64, flags: u32) -> Answer<u32> {
        // The library chooses the low byte: the next one (`ibv_inc_rkey`).
        let old = self.mws_rkey(bind.mw);
        let rkey = (old & !0xff) | (old.wrapping_add(1) & 0xff);
        let mut bind = *bind;
        (bind.mw.rkey, bind.rkey) = (old, rkey);
        bind.mw.id |= mlx5::TYPE_1;
        let mut wr = SendWr::new(id, Op::BindMw(bind), []);
        wr.flags = flags;
        self.post_send(qp, &[wr]).map_err(|post| post.fault)?;
        lock(&self.bound).insert(bind.mw.id & !mlx5::TYPE_1, rkey);
        Ok(rkey)
    }

    fn dealloc_mw(&self, mw: Mw) -> Answer<()> {
        let answer = self.uctx.dealloc_mw(*self.mws.get(mw.id)?);
        answer.map_err(|errno| fault("free a memory window", errno))?;
        self.mws.remove(mw.id);
        Ok(())
    }

    fn attach_mcast(&self, qp: Qp, gid: [u8; 16], lid: u16) -> Answer<()> {
        let answer = self.uctx.attach_mcast(self.qp_handle(qp)?, gid, lid);
        answer.map_err(|errno| fault("join a group", errno))
    }

    fn detach_mcast(&self, qp: Qp, gid: [u8; 16], lid: u16) -> Answer<()> {
        let answer = self.uctx.detach_mcast(self.qp_handle(qp)?, gid, lid);
        answer.map_err(|errno| fault("leave a group", errno))
    }

    fn async_event(&self, timeout: Duration) -> Answer<Option<Event>> {
        if !readable(&self.events, timeout) {
            return Ok(None);
        }
        let bytes = read_record::<16>(&self.events)?;
        Ok(AsyncEvent::parse(&bytes).map(|(event, _)| Event {
            kind: event.event_type.0,
            id: event.element as u32,
        }))
    }

    fn extras(&self) -> Option<&dyn Extras> {
        Some(self)
    }

    fn sweep(&self) -> Answer<()> {
        let Some(mlx5) = &self.mlx5 else {
            return Err(Fault::errno(libc::EOPNOTSUPP, "sweep up"));
        };
        let failed = |what: &'static str| move |errno| fault(what, errno);
        mlx5.sweep()?;
        for (_, window) in self.mws.take_all() {
            (self.uctx.dealloc_mw(*window)).map_err(failed("free a memory window"))?;
        }
        lock(&self.bound).clear();
        for (_, region) in self.mrs.take_all() {
            (self.uctx.dereg_mr(*region)).map_err(failed("deregister memory"))?;
        }
        for (_, domain) in self.pds.take_all() {
            (self.uctx.dealloc_pd(*domain)).map_err(failed("free a domain"))?;
        }
        self.channels.take_all();
        while self.async_event(Duration::ZERO)?.is_some() {}
        Ok(())
    }
}

impl Core {
    /// What the kernel, or the driver, calls a queue pair.
    fn qp_handle(&self, qp: Qp) -> Answer<handle::Qp> {
        match &self.mlx5 {
            Some(mlx5) => mlx5.qp_handle(qp),
            None => Ok(self.qps.get(qp.id)?.handle),
        }
    }

    /// A type 1 window's key now.
    fn mws_rkey(&self, mw: Mw) -> u32 {
        lock(&self.bound).get(&mw.id).copied().unwrap_or(mw.rkey)
    }
}

impl QpState {
    /// What may be posted after the kernel took a step.
    fn follow(&self, to: State) {
        let sends = matches!(to, State::Rts | State::Sqd | State::Sqe | State::Err);
        if let Some(sq) = &mut *lock(&self.sq) {
            match to {
                State::Reset => sq.reset(),
                _ => sq.set_accepting(sends),
            }
        }
        if let Some(rq) = &mut *lock(&self.rq) {
            match to {
                State::Reset => rq.reset(),
                _ => rq.set_accepting(true),
            }
        }
    }
}

fn post_receives(queue: &mut RecvQueue, list: &[RecvWr]) -> Posted {
    for (index, wr) in list.iter().enumerate() {
        let posted = queue.post(wr.id, &sges(&wr.sg));
        posted.map_err(|error| post_fault(index, error))?;
    }
    Ok(())
}
