//! [`Verbs`] by libibverbs.

use super::*;
use crate::counters::Counters;

impl Verbs for Official {
    fn provider(&self) -> &'static str {
        "libibverbs"
    }

    fn device(&self) -> Answer<DeviceAttr> {
        let query: unsafe extern "C" fn(Ptr, *mut CDeviceAttr) -> c_int =
            self.function(c"ibv_query_device")?;
        let mut attr = MaybeUninit::<CDeviceAttr>::zeroed();
        // SAFETY: the context is open and `attr` has the structure's size.
        let code = unsafe { query(self.context.0, attr.as_mut_ptr()) };
        zero(code, c"ibv_query_device")?;
        // SAFETY: all-zero bytes were valid before the call filled them.
        let a = unsafe { attr.assume_init() };
        Ok(DeviceAttr {
            node_guid: u64::from_be(a.node_guid),
            sys_image_guid: u64::from_be(a.sys_image_guid),
            max_mr_size: a.max_mr_size,
            page_size_cap: a.page_size_cap,
            cap_flags: a.device_cap_flags.into(),
            max_qp: a.max_qp,
            max_qp_wr: a.max_qp_wr,
            max_sge: a.max_sge,
            max_cq: a.max_cq,
            max_cqe: a.max_cqe,
            max_mr: a.max_mr,
            max_pd: a.max_pd,
            max_qp_rd_atom: a.max_qp_rd_atom,
            max_qp_init_rd_atom: a.max_qp_init_rd_atom,
            atomic_cap: a.atomic_cap,
            max_mw: a.max_mw,
            max_mcast_grp: a.max_mcast_grp,
            max_mcast_qp_attach: a.max_mcast_qp_attach,
            max_ah: a.max_ah,
            max_srq: a.max_srq,
            max_srq_wr: a.max_srq_wr,
            max_srq_sge: a.max_srq_sge,
            max_pkeys: a.max_pkeys,
            ports: a.phys_port_cnt,
        })
    }

    fn port(&self, port: u8) -> Answer<PortAttr> {
        let query: unsafe extern "C" fn(Ptr, u8, *mut CPortAttr) -> c_int =
            self.function(c"ibv_query_port")?;
        let mut attr = MaybeUninit::<CPortAttr>::zeroed();
        // SAFETY: `attr` is not smaller than what any release of the function fills.
        let code = unsafe { query(self.context.0, port, attr.as_mut_ptr()) };
        zero(code, c"ibv_query_port")?;
        // SAFETY: all-zero bytes were valid before the call filled them.
        let a = unsafe { attr.assume_init() };
        Ok(PortAttr {
            state: a.state,
            max_mtu: a.max_mtu as u8,
            active_mtu: a.active_mtu as u8,
            gid_table_len: a.gid_tbl_len,
            pkey_table_len: a.pkey_tbl_len,
            max_msg_size: a.max_msg_sz,
            link_layer: a.link_layer,
            lid: a.lid,
        })
    }

    fn gid(&self, port: u8, index: u32) -> Answer<[u8; 16]> {
        let query: unsafe extern "C" fn(Ptr, u8, c_int, *mut [u8; 16]) -> c_int =
            self.function(c"ibv_query_gid")?;
        let mut gid = [0; 16];
        // SAFETY: `gid` is a GID's size.
        let code = unsafe { query(self.context.0, port, index as c_int, &raw mut gid) };
        zero(code, c"ibv_query_gid")?;
        Ok(gid)
    }

    fn pkey(&self, port: u8, index: u16) -> Answer<u16> {
        let query: unsafe extern "C" fn(Ptr, u8, c_int, *mut u16) -> c_int =
            self.function(c"ibv_query_pkey")?;
        let mut pkey = 0;
        // SAFETY: `pkey` is two bytes.
        let code = unsafe { query(self.context.0, port, index.into(), &raw mut pkey) };
        zero(code, c"ibv_query_pkey")?;
        Ok(u16::from_be(pkey))
    }

    fn counters(&self, port: u8) -> Answer<Counters> {
        Ok(crate::counters::read(&self.name, port))
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
        let alloc: unsafe extern "C" fn(Ptr) -> Ptr = self.function(c"ibv_alloc_pd")?;
        // SAFETY: the context is open.
        let pd = not_null(unsafe { alloc(self.context.0) }, "ibv_alloc_pd")?;
        Ok(Pd(self.objects.add(pd)))
    }

    fn dealloc_pd(&self, pd: Pd) -> Answer<()> {
        self.end(c"ibv_dealloc_pd", pd.0)
    }

    fn reg_mr(&self, pd: Pd, addr: u64, len: u64, iova: u64, access: u32) -> Answer<Mr> {
        let reg: unsafe extern "C" fn(Ptr, Ptr, usize, u64, u32) -> Ptr =
            self.function(c"ibv_reg_mr_iova2")?;
        let pd = self.objects.get(pd.0)?;
        // SAFETY: the library checks the range; the suite's memory is never freed.
        let mr = unsafe { reg(pd, addr as Ptr, len as usize, iova, access) };
        let mr = not_null(mr, "ibv_reg_mr_iova2")?;
        Ok(Mr {
            id: self.objects.add(mr),
            lkey: field(mr, offset::MR_LKEY),
            rkey: field(mr, offset::MR_RKEY),
        })
    }

    fn rereg_mr(&self, mr: Mr, change: Rereg) -> Answer<Mr> {
        let rereg: unsafe extern "C" fn(Ptr, c_int, Ptr, Ptr, usize, c_int) -> c_int =
            self.function(c"ibv_rereg_mr")?;
        let flags = i32::from(change.range.is_some())
            | i32::from(change.pd.is_some()) << 1
            | i32::from(change.access.is_some()) << 2;
        let object = self.objects.get(mr.id)?;
        let pd = match change.pd {
            Some(pd) => self.objects.get(pd.0)?,
            None => std::ptr::null_mut(),
        };
        let (addr, len) = change.range.unwrap_or_default();
        let access = change.access.unwrap_or_default() as c_int;
        // SAFETY: live objects; the library checks the range.
        let code = unsafe { rereg(object, flags, pd, addr as Ptr, len as usize, access) };
        zero(code, c"ibv_rereg_mr")?;
        Ok(Mr {
            id: mr.id,
            lkey: field(object, offset::MR_LKEY),
            rkey: field(object, offset::MR_RKEY),
        })
    }

    fn dereg_mr(&self, mr: Mr) -> Answer<()> {
        self.end(c"ibv_dereg_mr", mr.id)
    }

    fn create_channel(&self) -> Answer<Channel> {
        let create: unsafe extern "C" fn(Ptr) -> Ptr = self.function(c"ibv_create_comp_channel")?;
        // SAFETY: the context is open.
        let channel = unsafe { create(self.context.0) };
        let channel = not_null(channel, "ibv_create_comp_channel")?;
        Ok(Channel(self.objects.add(channel)))
    }

    fn destroy_channel(&self, channel: Channel) -> Answer<()> {
        self.end(c"ibv_destroy_comp_channel", channel.0)
    }

    fn channel_event(&self, channel: Channel, timeout: Duration) -> Answer<Option<u32>> {
        let channel = self.objects.get(channel.0)?;
        if !readable(field(channel, offset::CHANNEL_FD) as i32, timeout) {
            return Ok(None);
        }
        let get: unsafe extern "C" fn(Ptr, *mut Ptr, *mut Ptr) -> c_int =
            self.function(c"ibv_get_cq_event")?;
        let (mut cq, mut context) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: both results outlive the call.
        let code = unsafe { get(channel, &raw mut cq, &raw mut context) };
        zero(code, c"ibv_get_cq_event")?;
        Ok(Some(self.objects.id(cq)))
    }

    fn ack_cq(&self, cq: Cq, events: u32) -> Answer<()> {
        let ack: unsafe extern "C" fn(Ptr, u32) = self.function(c"ibv_ack_cq_events")?;
        let cq = self.objects.get(cq.id)?;
        // SAFETY: a live queue.
        unsafe { ack(cq, events) };
        Ok(())
    }

    fn create_cq(&self, cqe: u32, channel: Option<Channel>) -> Answer<Cq> {
        let create: unsafe extern "C" fn(Ptr, c_int, Ptr, Ptr, c_int) -> Ptr =
            self.function(c"ibv_create_cq")?;
        let channel = match channel {
            Some(channel) => self.objects.get(channel.0)?,
            None => std::ptr::null_mut(),
        };
        let none = std::ptr::null_mut();
        // SAFETY: live objects.
        let cq = unsafe { create(self.context.0, cqe as c_int, none, channel, 0) };
        let cq = not_null(cq, "ibv_create_cq")?;
        Ok(Cq {
            id: self.objects.add(cq),
            cqe: field(cq, offset::CQ_CQE),
        })
    }

    fn resize_cq(&self, cq: Cq, cqe: u32) -> Answer<Cq> {
        let resize: unsafe extern "C" fn(Ptr, c_int) -> c_int = self.function(c"ibv_resize_cq")?;
        let object = self.objects.get(cq.id)?;
        // SAFETY: a live queue.
        zero(unsafe { resize(object, cqe as c_int) }, c"ibv_resize_cq")?;
        Ok(Cq {
            cqe: field(object, offset::CQ_CQE),
            ..cq
        })
    }

    fn arm(&self, cq: Cq, solicited_only: bool) -> Answer<()> {
        let arm: unsafe extern "C" fn(Ptr, c_int) -> c_int = self.op(slot::REQ_NOTIFY_CQ);
        let cq = self.objects.get(cq.id)?;
        // SAFETY: a live queue.
        zero(
            unsafe { arm(cq, solicited_only.into()) },
            c"ibv_req_notify_cq",
        )
    }

    fn poll(&self, cq: Cq, max: u32) -> Answer<Vec<Wc>> {
        let poll: unsafe extern "C" fn(Ptr, c_int, *mut CWc) -> c_int = self.op(slot::POLL_CQ);
        let cq = self.objects.get(cq.id)?;
        let mut wcs = vec![CWc::default(); max as usize];
        // SAFETY: room for `max` completions.
        let count = unsafe { poll(cq, max as c_int, wcs.as_mut_ptr()) };
        let count = usize::try_from(count).map_err(|_| Fault::errno(-count, "ibv_poll_cq"))?;
        let wcs = wcs.iter().take(count).map(|c| Wc {
            id: c.wr_id,
            status: Status(c.status),
            opcode: c.opcode,
            vendor_err: c.vendor_err,
            byte_len: c.byte_len,
            imm: (c.wc_flags & 2 != 0).then(|| u32::from_be(c.ex)),
            invalidated: (c.wc_flags & 8 != 0).then_some(c.ex),
            qp_num: c.qp_num,
            src_qp: c.src_qp,
            grh: c.wc_flags & 1 != 0,
        });
        Ok(wcs.collect())
    }

    fn destroy_cq(&self, cq: Cq) -> Answer<()> {
        self.end(c"ibv_destroy_cq", cq.id)
    }

    fn create_qp(&self, init: &QpInit) -> Answer<Qp> {
        let create: unsafe extern "C" fn(Ptr, *mut CQpInit) -> Ptr =
            self.function(c"ibv_create_qp")?;
        let srq = match init.srq {
            Some(srq) => self.objects.get(srq.id)?,
            None => std::ptr::null_mut(),
        };
        let mut c = CQpInit {
            qp_context: std::ptr::null_mut(),
            send_cq: self.objects.get(init.send_cq.id)?,
            recv_cq: self.objects.get(init.recv_cq.id)?,
            srq,
            cap: CCap {
                max_send_wr: init.caps.send_wr,
                max_recv_wr: init.caps.recv_wr,
                max_send_sge: init.caps.send_sge,
                max_recv_sge: init.caps.recv_sge,
                max_inline_data: init.caps.inline,
            },
            qp_type: init.transport.number(),
            sq_sig_all: init.signal_all.into(),
        };
        let pd = self.objects.get(init.pd.0)?;
        // SAFETY: live objects, and `c` outlives the call.
        let qp = not_null(unsafe { create(pd, &raw mut c) }, "ibv_create_qp")?;
        Ok(Qp {
            id: self.objects.add(qp),
            num: field(qp, offset::QP_NUM),
            transport: init.transport,
            caps: caps(&c.cap),
        })
    }

    fn modify_qp(&self, qp: Qp, attr: &QpAttr) -> Answer<()> {
        let modify: unsafe extern "C" fn(Ptr, *mut CQpAttr, c_int) -> c_int =
            self.function(c"ibv_modify_qp")?;
        // SAFETY: all-zero bytes are a valid structure of numbers.
        let mut c: CQpAttr = unsafe { mem::zeroed() };
        let mut mask = 0;
        macro_rules! set {
            ($($field:ident => $c:ident, $bit:expr;)*) => {$(
                if let Some(value) = attr.$field {
                    c.$c = value;
                    mask |= 1 << $bit;
                }
            )*};
        }
        set! {
            access => qp_access_flags, 3;
            pkey_index => pkey_index, 4;
            port => port_num, 5;
            qkey => qkey, 6;
            timeout => timeout, 9;
            retry => retry_cnt, 10;
            rnr_retry => rnr_retry, 11;
            rq_psn => rq_psn, 12;
            max_rd_atomic => max_rd_atomic, 13;
            min_rnr_timer => min_rnr_timer, 15;
            sq_psn => sq_psn, 16;
            max_dest_rd_atomic => max_dest_rd_atomic, 17;
            dest => dest_qp_num, 20;
        }
        if let Some(state) = attr.state {
            c.qp_state = state as u32;
            mask |= 1;
        }
        if let Some(mtu) = attr.mtu {
            c.path_mtu = mtu.into();
            mask |= 1 << 8;
        }
        if let Some(route) = &attr.route {
            c.ah_attr = Self::ah_attr(route);
            mask |= 1 << 7;
        }
        let qp = self.objects.get(qp.id)?;
        // SAFETY: a live queue pair, and `c` outlives the call.
        zero(unsafe { modify(qp, &raw mut c, mask) }, c"ibv_modify_qp")
    }

    fn query_qp(&self, qp: Qp) -> Answer<QpReport> {
        let query: unsafe extern "C" fn(Ptr, *mut CQpAttr, c_int, *mut CQpInit) -> c_int =
            self.function(c"ibv_query_qp")?;
        let qp = self.objects.get(qp.id)?;
        let mut attr = MaybeUninit::<CQpAttr>::zeroed();
        let mut init = MaybeUninit::<CQpInit>::zeroed();
        // SAFETY: both results have their structures' sizes.
        let code = unsafe { query(qp, attr.as_mut_ptr(), 0x1f_ffff, init.as_mut_ptr()) };
        zero(code, c"ibv_query_qp")?;
        // SAFETY: all-zero bytes were valid before the call filled them.
        let a = unsafe { attr.assume_init() };
        // SAFETY: as above.
        let init = unsafe { init.assume_init() };
        let mut gid = [0; 16];
        gid[..8].copy_from_slice(&a.ah_attr.dgid[0].to_ne_bytes());
        gid[8..].copy_from_slice(&a.ah_attr.dgid[1].to_ne_bytes());
        Ok(QpReport {
            state: State::from_number(a.qp_state)
                .ok_or_else(|| Fault::errno(libc::EPROTO, "understand a state"))?,
            access: a.qp_access_flags,
            pkey_index: a.pkey_index,
            port: a.port_num,
            qkey: a.qkey,
            mtu: a.path_mtu as u8,
            timeout: a.timeout,
            retry: a.retry_cnt,
            rnr_retry: a.rnr_retry,
            rq_psn: a.rq_psn,
            sq_psn: a.sq_psn,
            max_rd_atomic: a.max_rd_atomic,
            max_dest_rd_atomic: a.max_dest_rd_atomic,
            min_rnr_timer: a.min_rnr_timer,
            dest: a.dest_qp_num,
            route: Route {
                gid,
                lid: a.ah_attr.dlid,
                sgid_index: a.ah_attr.sgid_index,
                port: a.ah_attr.port_num,
                hop_limit: a.ah_attr.hop_limit,
                traffic_class: a.ah_attr.traffic_class,
                flow_label: a.ah_attr.flow_label,
            },
            caps: caps(&init.cap),
        })
    }

    fn destroy_qp(&self, qp: Qp) -> Answer<()> {
        self.end(c"ibv_destroy_qp", qp.id)
    }

    fn post_send(&self, qp: Qp, list: &[SendWr]) -> Posted {
        type Post = unsafe extern "C" fn(Ptr, *mut CSendWr, *mut *mut CSendWr) -> c_int;
        let fail = |index, fault| PostFault { index, fault };
        let mut sges: Vec<Vec<CSge>> = list.iter().map(|wr| c_sges(&wr.sg)).collect();
        let mut wrs = Vec::with_capacity(list.len());
        for (i, (wr, sges)) in list.iter().zip(&mut sges).enumerate() {
            wrs.push(self.send_wr(wr, sges).map_err(|fault| fail(i, fault))?);
        }
        if wrs.is_empty() {
            return Ok(());
        }
        let first = wrs.as_mut_ptr();
        for i in 1..wrs.len() {
            wrs[i - 1].next = first.wrapping_add(i);
        }
        let mut bad = std::ptr::null_mut();
        let post: Post = self.op(slot::POST_SEND);
        let qp = self.objects.get(qp.id).map_err(|fault| fail(0, fault))?;
        // SAFETY: the list, its entries' lists and `bad` outlive the call.
        let code = unsafe { post(qp, first, &raw mut bad) };
        posted(code, (bad as usize).wrapping_sub(first as usize) / 128)
    }

    fn post_recv(&self, qp: Qp, list: &[RecvWr]) -> Posted {
        let fail = |fault| PostFault { index: 0, fault };
        let qp = self.objects.get(qp.id).map_err(fail)?;
        self.post_receives(qp, slot::POST_RECV, list)
    }

    fn create_srq(&self, pd: Pd, max_wr: u32, max_sge: u32, limit: u32) -> Answer<Srq> {
        let create: unsafe extern "C" fn(Ptr, *mut CSrqInit) -> Ptr =
            self.function(c"ibv_create_srq")?;
        let mut init = CSrqInit {
            srq_context: std::ptr::null_mut(),
            attr: CSrqAttr {
                max_wr,
                max_sge,
                srq_limit: limit,
            },
        };
        let pd = self.objects.get(pd.0)?;
        // SAFETY: a live domain, and `init` outlives the call.
        let srq = not_null(unsafe { create(pd, &raw mut init) }, "ibv_create_srq")?;
        Ok(Srq {
            id: self.objects.add(srq),
            max_wr: init.attr.max_wr,
            max_sge: init.attr.max_sge,
        })
    }

    fn modify_srq(&self, srq: Srq, max_wr: Option<u32>, limit: Option<u32>) -> Answer<()> {
        let modify: unsafe extern "C" fn(Ptr, *mut CSrqAttr, c_int) -> c_int =
            self.function(c"ibv_modify_srq")?;
        let mut attr = CSrqAttr {
            max_wr: max_wr.unwrap_or(0),
            max_sge: 0,
            srq_limit: limit.unwrap_or(0),
        };
        let mask = i32::from(max_wr.is_some()) | i32::from(limit.is_some()) << 1;
        let srq = self.objects.get(srq.id)?;
        // SAFETY: a live queue, and `attr` outlives the call.
        zero(
            unsafe { modify(srq, &raw mut attr, mask) },
            c"ibv_modify_srq",
        )
    }

    fn query_srq(&self, srq: Srq) -> Answer<SrqReport> {
        let query: unsafe extern "C" fn(Ptr, *mut CSrqAttr) -> c_int =
            self.function(c"ibv_query_srq")?;
        let mut attr = CSrqAttr {
            max_wr: 0,
            max_sge: 0,
            srq_limit: 0,
        };
        let srq = self.objects.get(srq.id)?;
        // SAFETY: a live queue, and `attr` outlives the call.
        zero(unsafe { query(srq, &raw mut attr) }, c"ibv_query_srq")?;
        Ok(SrqReport {
            max_wr: attr.max_wr,
            max_sge: attr.max_sge,
            limit: attr.srq_limit,
        })
    }

    fn destroy_srq(&self, srq: Srq) -> Answer<()> {
        self.end(c"ibv_destroy_srq", srq.id)
    }

    fn post_srq(&self, srq: Srq, list: &[RecvWr]) -> Posted {
        let fail = |fault| PostFault { index: 0, fault };
        let srq = self.objects.get(srq.id).map_err(fail)?;
        self.post_receives(srq, slot::POST_SRQ_RECV, list)
    }

    fn create_ah(&self, pd: Pd, route: &Route) -> Answer<Ah> {
        let create: unsafe extern "C" fn(Ptr, *mut CAh) -> Ptr = self.function(c"ibv_create_ah")?;
        let mut attr = Self::ah_attr(route);
        let pd = self.objects.get(pd.0)?;
        // SAFETY: a live domain, and `attr` outlives the call.
        let ah = not_null(unsafe { create(pd, &raw mut attr) }, "ibv_create_ah")?;
        Ok(Ah(self.objects.add(ah)))
    }

    fn destroy_ah(&self, ah: Ah) -> Answer<()> {
        self.end(c"ibv_destroy_ah", ah.0)
    }

    fn alloc_mw(&self, pd: Pd, kind: MwType) -> Answer<Mw> {
        let alloc: unsafe extern "C" fn(Ptr, u32) -> Ptr = self.op(slot::ALLOC_MW);
        let number = match kind {
            MwType::One => 1,
            MwType::Two => 2,
        };
        let pd = self.objects.get(pd.0)?;
        // SAFETY: a live domain.
        let mw = not_null(unsafe { alloc(pd, number) }, "ibv_alloc_mw")?;
        // The header's inline wrapper fills this field, which the provider's bind reads.
        let pd_field = mw.wrapping_byte_add(8).cast::<Ptr>();
        // SAFETY: `ibv_mw.pd` is at offset 8 of the object just made.
        unsafe { pd_field.write(pd) };
        Ok(Mw {
            id: self.objects.add(mw),
            rkey: field(mw, offset::MW_RKEY),
        })
    }

    fn bind_mw(&self, qp: Qp, bind: &Bind, id: u64, flags: u32) -> Answer<u32> {
        let call: unsafe extern "C" fn(Ptr, Ptr, *mut CMwBind) -> c_int = self.op(slot::BIND_MW);
        let mut c = CMwBind {
            wr_id: id,
            send_flags: flags,
            info: self.bind_info(bind)?,
        };
        let mw = self.objects.get(bind.mw.id)?;
        let qp = self.objects.get(qp.id)?;
        // SAFETY: live objects, and `c` outlives the call.
        zero(unsafe { call(qp, mw, &raw mut c) }, c"ibv_bind_mw")?;
        Ok(field(mw, offset::MW_RKEY))
    }

    fn dealloc_mw(&self, mw: Mw) -> Answer<()> {
        let dealloc: Fn1 = self.op(slot::DEALLOC_MW);
        let object = self.objects.get(mw.id)?;
        // SAFETY: a live window.
        zero(unsafe { dealloc(object) }, c"ibv_dealloc_mw")?;
        self.objects.remove(mw.id);
        Ok(())
    }

    fn attach_mcast(&self, qp: Qp, gid: [u8; 16], lid: u16) -> Answer<()> {
        self.mcast(c"ibv_attach_mcast", qp, gid, lid)
    }

    fn detach_mcast(&self, qp: Qp, gid: [u8; 16], lid: u16) -> Answer<()> {
        self.mcast(c"ibv_detach_mcast", qp, gid, lid)
    }

    fn async_event(&self, timeout: Duration) -> Answer<Option<Event>> {
        if !readable(
            field(self.context.0, offset::CONTEXT_ASYNC_FD) as i32,
            timeout,
        ) {
            return Ok(None);
        }
        let get: unsafe extern "C" fn(Ptr, *mut CEvent) -> c_int =
            self.function(c"ibv_get_async_event")?;
        let mut event = CEvent {
            element: std::ptr::null_mut(),
            event_type: 0,
        };
        // SAFETY: `event` outlives the call.
        let code = unsafe { get(self.context.0, &raw mut event) };
        zero(code, c"ibv_get_async_event")?;
        let port = (8..=13).contains(&event.event_type) || event.event_type > 16;
        let id = if port {
            0
        } else {
            self.objects.id(event.element)
        };
        let ack: unsafe extern "C" fn(*mut CEvent) = self.function(c"ibv_ack_async_event")?;
        // SAFETY: the event that was just read.
        unsafe { ack(&raw mut event) };
        Ok(Some(Event {
            kind: event.event_type,
            id,
        }))
    }
}

impl Official {
    fn mcast(&self, name: &CStr, qp: Qp, gid: [u8; 16], lid: u16) -> Answer<()> {
        let call: unsafe extern "C" fn(Ptr, *const [u8; 16], u16) -> c_int = self.function(name)?;
        let qp = self.objects.get(qp.id)?;
        // SAFETY: a live queue pair, and `gid` outlives the call.
        zero(unsafe { call(qp, &raw const gid, lid) }, name)
    }
}

fn caps(cap: &CCap) -> Caps {
    Caps {
        send_wr: cap.max_send_wr,
        recv_wr: cap.max_recv_wr,
        send_sge: cap.max_send_sge,
        recv_sge: cap.max_recv_sge,
        inline: cap.max_inline_data,
    }
}
