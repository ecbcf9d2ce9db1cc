//! Queue pairs of raw Ethernet packets. Firmware has none: they are a send queue with a TIS and a receive queue with a
//! TIR, or a TIR alone that spreads packets over work queues.

use std::sync::{Arc, Mutex, PoisonError};

use uverbs_abi::handle::Qp;
use uverbs_abi::types::{CreateQpFlags, QpAttrMask, QpCap, QpState, QpType};
use uverbs_abi::udata::mlx5::{
    CreateQp as DriverInput, CreateQpFlags as DriverFlags, CreateQpResp, CreateQpRespMask,
    CreateQpRss, ModifyQp as ModifyInput, ModifyQpResp, RxHashFields, RxHashFunction,
};
use uverbs_abi::write::qp::{ExModifyQp, QueryQpResp};
use wqe_format::mlx5::firmware::Opcode;
use wqe_format::mlx5::firmware::rq::{QueryRqIn, QueryRqOut};
use wqe_format::mlx5::firmware::sq::{QuerySqIn, QuerySqOut};
use wqe_format::mlx5::firmware::tir::{RxHashFieldSelect, Tirc};

use super::Objects;
use super::domain::Pdn;
use super::pacing::Rate;
use super::raw_queue::{Place, QueueState, ReceiveOptions};
use super::ring::Ring;
use super::work_queue::SpreadTable;
use crate::control::kernel::{CreateQp, QpCreated};
use crate::control::qp_state;
use crate::sys::errno::Errno;

/// Handles of these are not those of other queue pairs.
pub(super) const RAW_HANDLES: u32 = 1 << 30;

/// `tirc.disp_type`: to one queue, to one of a table's (`MLX5_TIRC_DISP_TYPE_*`).
const DIRECT: u8 = 0;
const BY_TABLE: u8 = 1;
/// `tirc.rx_hash_fn` (`MLX5_RX_HASH_FN_TOEPLITZ`), and the bytes of its key.
const TOEPLITZ: u8 = 2;
const TOEPLITZ_KEY: usize = 40;
/// `tirc.self_lb_block`: packets of this device for one and for many are heard too (`MLX5_TIRC_SELF_LB_BLOCK_*`).
const HEARS_UNICAST: u8 = 1;
const HEARS_MULTICAST: u8 = 2;

/// One of both kinds.
#[derive(Debug)]
pub(super) enum RawObject {
    Pair(Box<RawPair>),
    Spread(Spread),
}

/// A queue pair with queues of its own.
#[derive(Debug)]
pub(super) struct RawPair {
    cap: QpCap,
    sq_sig_all: bool,
    send: Option<RawSend>,
    receive: Option<RawReceive>,
    state: Mutex<States>,
    _pd: Arc<Pdn>,
}

/// The send queue.
#[derive(Debug)]
struct RawSend {
    number: u32,
    tis: u32,
    _place: Place,
}

/// The receive queue.
#[derive(Debug)]
struct RawReceive {
    number: u32,
    tir: u32,
    _place: Place,
}

/// States of the queue pair and of its queues.
#[derive(Clone, Copy, Debug)]
struct States {
    pair: QpState,
    send: QueueState,
    receive: QueueState,
    /// What the send queue is held to.
    rate: Rate,
}

/// A queue pair that spreads packets over a table.
#[derive(Debug)]
pub(super) struct Spread {
    tir: u32,
    _table: Arc<SpreadTable>,
    _pd: Arc<Pdn>,
}

impl RawObject {
    /// What rules hand packets to; `None` if it receives nothing.
    pub(super) fn tir(&self) -> Option<u32> {
        match self {
            Self::Pair(pair) => pair.receive.as_ref().map(|receive| receive.tir),
            Self::Spread(spread) => Some(spread.tir),
        }
    }
}

/// The device hears packets that it sent itself only where a program wants them.
fn loops(context: &mut Tirc<&mut [u8]>, flags: DriverFlags) {
    let mut hears = 0;
    if flags.contains(DriverFlags::TIR_ALLOW_SELF_LB_UC) {
        hears |= HEARS_UNICAST;
    }
    if flags.contains(DriverFlags::TIR_ALLOW_SELF_LB_MC) {
        hears |= HEARS_MULTICAST;
    }
    context.set_self_lb_block(hears);
    if flags.contains(DriverFlags::TUNNEL_OFFLOADS) {
        context.set_tunneled_offload_en(true);
    }
}

fn log(count: u32) -> Result<u8, Errno> {
    match count.is_power_of_two() {
        true => Ok(count.trailing_zeros() as u8),
        false => Err(Errno(libc::EINVAL)),
    }
}

impl Objects {
    /// Makes a queue pair with queues of its own, in RESET. `EOPNOTSUPP` on InfiniBand.
    pub(super) fn create_raw(
        &self,
        request: &CreateQp,
        input: &DriverInput,
    ) -> Result<QpCreated<CreateQpResp>, Errno> {
        if !self.caps.general.eth_net_offloads() || request.srq.is_some() {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        let pd = self.pds.get(request.pd.0)?;
        let mut made = Unfinished {
            objects: self,
            done: Vec::new(),
        };
        let send = (input.sq_wqe_count != 0)
            .then(|| self.raw_send(request, input, &pd, &mut made))
            .transpose()?;
        let receive = (input.rq_wqe_count != 0)
            .then(|| self.raw_receive(request, input, &pd, &mut made))
            .transpose()?;
        made.done.clear();
        let mut answer = CreateQpResp::default();
        let number = match (&send, &receive) {
            (Some(send), _) => send.number,
            (None, Some(receive)) => receive.number,
            (None, None) => return Err(Errno(libc::EINVAL)),
        };
        if let Some(send) = &send {
            answer.sqn = send.number;
            answer.tisn = send.tis;
            answer.comp_mask |= CreateQpRespMask::SQN | CreateQpRespMask::TISN;
        }
        if let Some(receive) = &receive {
            answer.rqn = receive.number;
            answer.tirn = receive.tir;
            answer.comp_mask |= CreateQpRespMask::RQN | CreateQpRespMask::TIRN;
        }
        let handle = self.raws.insert(RawObject::Pair(Box::new(RawPair {
            cap: request.cap,
            sq_sig_all: request.sq_sig_all,
            send,
            receive,
            state: Mutex::new(States {
                pair: QpState::RESET,
                send: QueueState::Reset,
                receive: QueueState::Reset,
                rate: Rate::default(),
            }),
            _pd: pd,
        })));
        Ok(QpCreated {
            handle: Qp(handle),
            qp_num: number,
            cap: request.cap,
            udata: answer,
        })
    }

    fn place(
        &self,
        input: &DriverInput,
        (address, bytes): (u64, u64),
        pd: &Pdn,
        cq: u32,
    ) -> Result<Place, Errno> {
        let (record_address, record) = self.record(input.db_addr)?;
        Ok(Place {
            ring: Ring::of_work_queue(&*self.platform, address, bytes)?,
            record_address,
            _record: record,
            pd: pd.0,
            cq: self.cqs.get(cq)?,
            user_index: input.uidx,
        })
    }

    fn raw_send<'a>(
        &'a self,
        request: &CreateQp,
        input: &DriverInput,
        pd: &Pdn,
        made: &mut Unfinished<'a>,
    ) -> Result<RawSend, Errno> {
        if !input.flags.contains(DriverFlags::UAR_PAGE_INDEX) {
            // the context's registers are made on demand, and each queue says its own
            return Err(Errno(libc::EINVAL));
        }
        let bytes = u64::from(input.sq_wqe_count) * 64;
        let place = self.place(input, (input.sq_buf_addr, bytes), pd, request.send_cq.0)?;
        let tis = self.create_tis()?;
        made.done.push((Opcode::DESTROY_TIS, tis));
        let number = self.create_sq(&place, tis, input.bfreg_index, log(input.sq_wqe_count)?)?;
        made.done.push((Opcode::DESTROY_SQ, number));
        Ok(RawSend {
            number,
            tis,
            _place: place,
        })
    }

    fn raw_receive<'a>(
        &'a self,
        request: &CreateQp,
        input: &DriverInput,
        pd: &Pdn,
        made: &mut Unfinished<'a>,
    ) -> Result<RawReceive, Errno> {
        let (entries, bytes) = ReceiveOptions::ring(input.rq_wqe_count, input.rq_wqe_shift)?;
        let place = self.place(input, (input.buf_addr, bytes), pd, request.recv_cq.0)?;
        let has = |flag| request.flags.contains(flag);
        let options = ReceiveOptions {
            signature: input.flags.contains(DriverFlags::SIGNATURE),
            strip_tags: has(CreateQpFlags::CVLAN_STRIPPING),
            with_check: has(CreateQpFlags::SCATTER_FCS),
            padded: has(CreateQpFlags::PCI_WRITE_END_PADDING),
            ..entries
        };
        self.can_receive(options)?;
        let number = self.create_rq(&place, options)?;
        made.done.push((Opcode::DESTROY_RQ, number));
        let tir = self.create_tir(|context| {
            loops(context, input.flags);
            context.set_disp_type(DIRECT).set_inline_rqn(number);
        })?;
        made.done.push((Opcode::DESTROY_TIR, tir));
        Ok(RawReceive {
            number,
            tir,
            _place: place,
        })
    }

    /// `EOPNOTSUPP` for what the device does not do to received packets.
    pub(super) fn can_receive(&self, options: ReceiveOptions) -> Result<(), Errno> {
        let caps = &self.caps.ethernet;
        if options.strip_tags && !caps.vlan_cap() || options.with_check && !caps.scatter_fcs() {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        Ok(())
    }

    /// Makes a queue pair that spreads packets over a table. `EOPNOTSUPP` for hashes that the device has not.
    pub fn create_rss(
        &self,
        request: &CreateQp,
        input: &CreateQpRss,
    ) -> Result<QpCreated<CreateQpResp>, Errno> {
        if request.qp_type != QpType::RAW_PACKET || !self.caps.general.eth_net_offloads() {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        let pd = self.pds.get(request.pd.0)?;
        let table = request.ind_table.ok_or(Errno(libc::EINVAL))?;
        let table = self.spreads.get(table.0)?;
        let selects = selected(input, table.len())?;
        let tir = self.create_tir(|context| {
            loops(context, input.flags);
            context
                .set_disp_type(BY_TABLE)
                .set_indirect_table(table.number());
            if let Some(selects) = selects {
                context.set_rx_hash_fn(TOEPLITZ).set_rx_hash_symmetric(true);
                let words = input.rx_hash_key.0[..TOEPLITZ_KEY].chunks_exact(4);
                for (index, word) in words.enumerate() {
                    let word = u32::from_be_bytes([word[0], word[1], word[2], word[3]]);
                    context.set_rx_hash_toeplitz_key(index, word);
                }
                let inner = input.rx_hash_fields_mask.contains(RxHashFields::INNER);
                selects.write(&mut match inner {
                    true => context.rx_hash_field_selector_inner_mut(),
                    false => context.rx_hash_field_selector_outer_mut(),
                });
            }
        })?;
        let handle = self.raws.insert(RawObject::Spread(Spread {
            tir,
            _table: table,
            _pd: pd,
        }));
        Ok(QpCreated {
            handle: Qp(handle),
            qp_num: 0,
            cap: request.cap,
            udata: CreateQpResp {
                tirn: tir,
                comp_mask: CreateQpRespMask::TIRN,
                ..CreateQpResp::default()
            },
        })
    }

    /// Changes a queue pair of raw packets; `None` if the handle is another one's.
    pub(super) fn modify_raw(
        &self,
        attr: &ExModifyQp,
        input: &ModifyInput,
    ) -> Result<Option<ModifyQpResp>, Errno> {
        let (kbits, attr) = (attr.rate_limit, &attr.base);
        let Ok(object) = self.raws.get(attr.qp_handle.0) else {
            return Ok(None);
        };
        let RawObject::Pair(pair) = &*object else {
            return Err(Errno(libc::EINVAL));
        };
        let mut states = pair.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mask = attr.attr_mask;
        let from = match mask.contains(QpAttrMask::CUR_STATE) {
            true => attr.cur_qp_state,
            false => states.pair,
        };
        let to = match mask.contains(QpAttrMask::STATE) {
            true => attr.qp_state,
            false => from,
        };
        let port = !mask.contains(QpAttrMask::PORT)
            || (1..=self.caps.general.num_ports()).contains(&attr.port_num);
        if !port || qp_state::check(QpType::RAW_PACKET, from, to, mask).is_err() {
            return Err(Errno(libc::EINVAL));
        }
        let limits = mask.contains(QpAttrMask::RATE_LIMIT);
        let sends = matches!((from, to), (QpState::RTR | QpState::RTS, QpState::RTS));
        let sends = sends && pair.send.is_some();
        let rate = match limits {
            true if !sends => return Err(Errno(libc::EINVAL)),
            true => self.rate(kbits, input.burst_info)?,
            // a queue that starts over has no limit
            false if to == QpState::RTS => states.rate,
            false => Rate::default(),
        };
        let (receive, send) = match (from, to) {
            (_, QpState::RESET) => (QueueState::Reset, QueueState::Reset),
            (_, QpState::ERR) => (QueueState::Error, QueueState::Error),
            // packets arrive from here on, as the kernel has it
            (QpState::RESET, QpState::INIT) => (QueueState::Ready, QueueState::Reset),
            (_, QpState::RTS) => (states.receive, QueueState::Ready),
            _ => (states.receive, states.send),
        };
        if let Some(queue) = &pair.receive
            && receive != states.receive
        {
            self.modify_rq(queue.number, states.receive, receive)?;
            states.receive = receive;
        }
        if let Some(queue) = &pair.send
            && (send != states.send || rate != states.rate)
        {
            let entry = match rate != states.rate {
                true => Some(self.take_rate(rate)?),
                false => None,
            };
            let done = self.modify_sq(queue.number, states.send, send, entry);
            if entry.is_some() {
                // the one that the queue does not have
                self.leave_rate(if done.is_ok() { states.rate } else { rate });
            }
            done?;
            (states.send, states.rate) = (send, rate);
        }
        states.pair = to;
        Ok(Some(ModifyQpResp::default()))
    }

    /// Attributes of a queue pair of raw packets; `None` if the handle is another one's.
    pub(super) fn query_raw(&self, handle: Qp) -> Result<Option<QueryQpResp>, Errno> {
        let Ok(object) = self.raws.get(handle.0) else {
            return Ok(None);
        };
        let RawObject::Pair(pair) = &*object else {
            // as the kernel answers for one without queues
            return Err(Errno(libc::EOPNOTSUPP));
        };
        let mut states = pair.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(queue) = &pair.send {
            let mut input = QuerySqIn::zeroed();
            input.set_opcode(Opcode::QUERY_SQ.0).set_sqn(queue.number);
            let mut output = QuerySqOut::zeroed();
            self.platform
                .execute(input.as_bytes(), output.as_bytes_mut())?;
            states.send = queue_state(output.sq_context().state())?;
        }
        if let Some(queue) = &pair.receive {
            let mut input = QueryRqIn::zeroed();
            input.set_opcode(Opcode::QUERY_RQ.0).set_rqn(queue.number);
            let mut output = QueryRqOut::zeroed();
            self.platform
                .execute(input.as_bytes(), output.as_bytes_mut())?;
            states.receive = queue_state(output.rq_context().state())?;
        }
        states.pair = pair.state_of(&states);
        Ok(Some(QueryQpResp {
            qp_state: states.pair,
            cur_qp_state: states.pair,
            max_send_wr: pair.cap.max_send_wr,
            max_recv_wr: pair.cap.max_recv_wr,
            max_send_sge: pair.cap.max_send_sge,
            max_recv_sge: pair.cap.max_recv_sge,
            max_inline_data: pair.cap.max_inline_data,
            sq_sig_all: pair.sq_sig_all.into(),
            port_num: 1,
            ..QueryQpResp::default()
        }))
    }

    /// Destroys a queue pair of raw packets, `EBUSY` while rules hand packets to it; `None` if the handle is another one's.
    pub(super) fn destroy_raw(&self, handle: Qp) -> Result<Option<u32>, Errno> {
        if self.raws.look(handle.0, |_| ()).is_none() {
            return Ok(None);
        }
        self.raws.remove(handle.0, |object| match object {
            RawObject::Spread(spread) => self.run_on(Opcode::DESTROY_TIR, spread.tir),
            RawObject::Pair(pair) => self.destroy_pair(pair),
        })?;
        Ok(Some(0))
    }

    fn destroy_pair(&self, pair: &RawPair) -> Result<(), Errno> {
        let states = *pair.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(queue) = &pair.receive {
            if states.receive != QueueState::Reset {
                // one in error goes on being destroyed
                let _ = self.modify_rq(queue.number, states.receive, QueueState::Reset);
            }
            self.run_on(Opcode::DESTROY_TIR, queue.tir)?;
            self.run_on(Opcode::DESTROY_RQ, queue.number)?;
        }
        if let Some(queue) = &pair.send {
            if states.send != QueueState::Reset {
                let _ = self.modify_sq(queue.number, states.send, QueueState::Reset, None);
            }
            self.run_on(Opcode::DESTROY_SQ, queue.number)?;
            self.leave_rate(states.rate);
            self.run_on(Opcode::DESTROY_TIS, queue.tis)?;
        }
        Ok(())
    }
}

impl RawPair {
    /// The state of both queues as one: that of the pair, unless the device says that one of them failed.
    fn state_of(&self, states: &States) -> QpState {
        let failed = |has: bool, state| has && state == QueueState::Error;
        let send = failed(self.send.is_some(), states.send);
        let receive = failed(self.receive.is_some(), states.receive);
        match (receive, send) {
            (true, _) => QpState::ERR,
            (false, true) if self.receive.is_some() => QpState::SQE,
            (false, true) => QpState::ERR,
            (false, false) => states.pair,
        }
    }
}

fn queue_state(number: u8) -> Result<QueueState, Errno> {
    Ok(match number {
        0 => QueueState::Reset,
        1 => QueueState::Ready,
        3 => QueueState::Error,
        _ => return Err(Errno(libc::EIO)),
    })
}

/// What a hash covers, as `rx_hash_field_select` says it (`mlx5_ifc.h` `MLX5_L3_PROT_TYPE_*`, `MLX5_HASH_FIELD_SEL_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Selected {
    is_ipv6: bool,
    is_udp: bool,
    fields: u32,
}

impl Selected {
    fn write(self, select: &mut RxHashFieldSelect<&mut [u8]>) {
        select
            .set_l3_prot_type(self.is_ipv6)
            .set_l4_prot_type(self.is_udp)
            .set_selected_fields(self.fields);
    }
}

/// Checks a hash; `None` without one, which a table of one queue can do with. `EINVAL` for one of two protocols at once.
fn selected(input: &CreateQpRss, queues: usize) -> Result<Option<Selected>, Errno> {
    use RxHashFields as F;
    const ADDRESSES: [F; 2] = [
        F(F::SRC_IPV4.0 | F::DST_IPV4.0),
        F(F::SRC_IPV6.0 | F::DST_IPV6.0),
    ];
    const PORTS: [F; 2] = [
        F(F::SRC_PORT_TCP.0 | F::DST_PORT_TCP.0),
        F(F::SRC_PORT_UDP.0 | F::DST_PORT_UDP.0),
    ];
    /// Source and destination address, source and destination port, security parameters.
    const BITS: [(u64, u32); 5] = [
        (F::SRC_IPV4.0 | F::SRC_IPV6.0, 1 << 0),
        (F::DST_IPV4.0 | F::DST_IPV6.0, 1 << 1),
        (F::SRC_PORT_TCP.0 | F::SRC_PORT_UDP.0, 1 << 2),
        (F::DST_PORT_TCP.0 | F::DST_PORT_UDP.0, 1 << 3),
        (F::IPSEC_SPI.0, 1 << 4),
    ];
    let asked = input.rx_hash_fields_mask;
    let bits = asked.0 & !F::INNER.0;
    if input.rx_hash_function != RxHashFunction::TOEPLITZ {
        return Err(Errno(libc::EOPNOTSUPP));
    }
    if usize::from(input.rx_key_len) != TOEPLITZ_KEY {
        return Err(Errno(libc::EINVAL));
    }
    if bits == 0 {
        return match queues {
            1 => Ok(None),
            _ => Err(Errno(libc::EINVAL)),
        };
    }
    let any = |set: F| bits & set.0 != 0;
    let known = BITS.iter().fold(0, |all, (bit, _)| all | bit);
    let fours = [any(PORTS[0]), any(PORTS[1]), any(F::IPSEC_SPI)];
    let both = any(ADDRESSES[0]) && any(ADDRESSES[1]);
    if bits & !known != 0 || both || fours.iter().filter(|has| **has).count() > 1 {
        return Err(Errno(libc::EINVAL));
    }
    let fields = BITS.iter().filter(|(bit, _)| bits & bit != 0);
    Ok(Some(Selected {
        is_ipv6: any(ADDRESSES[1]),
        is_udp: any(PORTS[1]),
        fields: fields.fold(0, |fields, (_, bit)| fields | bit),
    }))
}

/// Parts of a queue pair that is being made; they are destroyed, the last one first, if that fails.
struct Unfinished<'a> {
    objects: &'a Objects,
    done: Vec<(Opcode, u32)>,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        for (opcode, number) in self.done.drain(..).rev() {
            // Nobody is left to tell.
            let _ = self.objects.run_on(opcode, number);
        }
    }
}
