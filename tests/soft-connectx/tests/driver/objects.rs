//! Commands that make the objects of a loopback connection.

use wqe_format::mlx5::firmware::cq::{CreateCqIn, CreateCqOut};
use wqe_format::mlx5::firmware::domain::{AllocPdOut, AllocXrcdOut};
use wqe_format::mlx5::firmware::eq::{CreateEqIn, CreateEqOut};
use wqe_format::mlx5::firmware::mkey::{CreateMkeyIn, CreateMkeyOut};
use wqe_format::mlx5::firmware::qp::{CreateQpIn, CreateQpOut};
use wqe_format::mlx5::firmware::qp_modify::{Init2rtrQpIn, Rst2initQpIn, Rtr2rtsQpIn};
use wqe_format::mlx5::firmware::uar::AllocUarOut;
use wqe_format::mlx5::firmware::xrc_srq::{CreateXrcSrqIn, CreateXrcSrqOut};
use wqe_format::mlx5::firmware::{EventType, Opcode};

use soft_connectx::GuestMemory as _;

use super::{Driver, command, features};

/// Slots of every queue, as a logarithm; each fits a page.
pub(crate) const LOG_SIZE: u8 = 5;

/// Pages of queues, and a page of doorbell records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pages {
    pub(crate) eq: u64,
    pub(crate) cq: u64,
    pub(crate) qp: u64,
    pub(crate) srq: u64,
    pub(crate) records: u64,
}

impl Pages {
    /// Where the send queue is: behind the receive queue.
    pub(crate) fn send_queue(&self) -> u64 {
        self.qp + (16 << LOG_SIZE)
    }

    /// The send queue's doorbell record.
    pub(crate) fn send_record(&self) -> u64 {
        self.records + 64 + 4
    }
}

/// Numbers that the device gave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Objects {
    pub(crate) pages: Pages,
    pub(crate) uar: u32,
    pub(crate) pd: u32,
    pub(crate) xrcd: u32,
    pub(crate) eqn: u32,
    pub(crate) cqn: u32,
    pub(crate) mkey: u32,
    pub(crate) srqn: u32,
    pub(crate) qpn: u32,
}

/// An input layout with one page behind it.
macro_rules! with_page {
    ($layout:ident, $opcode:ident, $page:expr, |$input:ident| $set:expr) => {{
        let mut bytes = vec![0; $layout::SIZE + 8];
        let mut $input = $layout::new(&mut bytes[..]).unwrap();
        $input.set_opcode(Opcode::$opcode.0).set_pas(0, $page);
        $set;
        bytes
    }};
}

pub(crate) fn eq(pages: Pages, uar: u32) -> Vec<u8> {
    with_page!(CreateEqIn, CREATE_EQ, pages.eq, |input| {
        // Everything but completions, for which no bit is needed, and requests of pages, which nobody would give.
        let without = 1 | 1 << EventType::PAGE_REQUEST.0;
        input.set_event_bitmask(0, !without);
        let mut context = input.eq_context_entry_mut();
        context.set_log_eq_size(LOG_SIZE).set_uar_page(uar);
    })
}

pub(crate) fn cq(pages: Pages, uar: u32, eqn: u32) -> Vec<u8> {
    with_page!(CreateCqIn, CREATE_CQ, pages.cq, |input| {
        let mut context = input.cq_context_mut();
        context
            .set_log_cq_size(LOG_SIZE)
            .set_uar_page(uar)
            .set_c_eqn_or_apu_element(eqn)
            .set_dbr_addr(pages.records);
    })
}

/// A key of all physical memory.
pub(crate) fn mkey(pd: u32) -> Vec<u8> {
    let mut bytes = vec![0; CreateMkeyIn::SIZE];
    let mut input = CreateMkeyIn::new(&mut bytes[..]).unwrap();
    input.set_opcode(Opcode::CREATE_MKEY.0);
    let mut context = input.memory_key_mkey_entry_mut();
    context.set_qpn(0xff_ffff).set_pd(pd).set_length64(true);
    context
        .set_lr(true)
        .set_lw(true)
        .set_rr(true)
        .set_rw(true)
        .set_a(true);
    bytes
}

/// A queue pair of a service, with a receive queue of 16-byte slots before its send queue.
pub(crate) fn qp(pages: Pages, service: u8, pd: u32, uar: u32, cqn: u32) -> Vec<u8> {
    with_page!(CreateQpIn, CREATE_QP, pages.qp, |input| {
        let mut context = input.qpc_mut();
        context
            .set_st(service)
            .set_pd(pd)
            .set_uar_page(uar)
            .set_cqn_snd(cqn)
            .set_cqn_rcv(cqn)
            .set_log_sq_size(LOG_SIZE)
            .set_log_rq_size(LOG_SIZE)
            .set_dbr_addr(pages.records + 64);
    })
}

pub(crate) fn xrc_srq(pages: Pages, pd: u32, xrcd: u32, cqn: u32) -> Vec<u8> {
    with_page!(CreateXrcSrqIn, CREATE_XRC_SRQ, pages.srq, |input| {
        let mut context = input.xrc_srq_context_entry_mut();
        context
            .set_pd(pd)
            .set_xrcd(xrcd)
            .set_cqn(cqn)
            .set_log_xrc_srq_size(LOG_SIZE)
            .set_db_record_addr_h((pages.records >> 32) as u32)
            .set_db_record_addr_l(((pages.records + 128) >> 2) as u32);
    })
}

/// The way of a queue pair from reset to sending to itself.
pub(crate) fn to_rts(qpn: u32) -> [Vec<u8>; 3] {
    let mut init = Rst2initQpIn::zeroed();
    init.set_opcode(Opcode::RST2INIT_QP.0).set_qpn(qpn);
    let mut context = init.qpc_mut();
    context.set_rre(true).set_rwe(true).set_pm_state(3);
    context.primary_address_path_mut().set_vhca_port_num(1);

    let mut rtr = Init2rtrQpIn::zeroed();
    rtr.set_opcode(Opcode::INIT2RTR_QP.0).set_qpn(qpn);
    let mut context = rtr.qpc_mut();
    context.set_mtu(3).set_log_msg_max(30).set_remote_qpn(qpn);
    context.primary_address_path_mut().set_rlid(1);

    let mut rts = Rtr2rtsQpIn::zeroed();
    rts.set_opcode(Opcode::RTR2RTS_QP.0).set_qpn(qpn);
    rts.qpc_mut().set_retry_count(7).set_rnr_retry(7);

    [
        init.as_bytes().to_vec(),
        rtr.as_bytes().to_vec(),
        rts.as_bytes().to_vec(),
    ]
}

/// Good commands about objects that are there.
pub(crate) fn good(made: &Objects) -> Vec<Vec<u8>> {
    let pages = made.pages;
    let mut all = vec![
        eq(pages, made.uar),
        cq(pages, made.uar, made.eqn),
        mkey(made.pd),
        xrc_srq(pages, made.pd, made.xrcd, made.cqn),
    ];
    // RC, UC, UD, XRC, DCI, QP1, UMR's.
    for service in [0, 1, 2, 3, 5, 8, 12] {
        all.push(qp(pages, service, made.pd, made.uar, made.cqn));
    }
    let mut named = |opcode: Opcode, number: u32| {
        let mut input = command::<16>(opcode);
        input[8..12].copy_from_slice(&number.to_be_bytes());
        all.push(input.to_vec());
    };
    for qpn in made.qpn..made.qpn + 3 {
        for opcode in [
            Opcode::QP_2RST,
            Opcode::QP_2ERR,
            Opcode::QUERY_QP,
            Opcode::DESTROY_QP,
        ] {
            named(opcode, qpn);
        }
    }
    named(Opcode::DESTROY_MKEY, made.mkey);
    named(Opcode::DESTROY_XRC_SRQ, made.srqn);
    named(Opcode::QUERY_CQ, made.cqn);
    for qpn in made.qpn..made.qpn + 3 {
        all.extend(to_rts(qpn));
    }
    all.extend(features::good(made.pd));
    all
}

impl Driver {
    /// Lays a work request into the first slot of the send queue, and rings for it.
    pub(crate) fn post(&mut self, made: &Objects, opcode: u8, units: u8, words: &[u32]) {
        let control = [u32::from(opcode), made.qpn << 8 | u32::from(units), 0xc, 0];
        let words = control.iter().chain(words);
        let request: Vec<u8> = words.flat_map(|word| word.to_be_bytes()).collect();
        let blocks = u32::from(units).div_ceil(4).to_be_bytes();
        let pages = made.pages;
        self.memory.write(pages.send_queue(), &request).unwrap();
        self.memory.write(pages.send_record(), &blocks).unwrap();
        let doorbell = u64::from(made.uar) << 12 | 0x800;
        self.device.bar_write(doorbell, &request[..8]);
    }

    /// Makes one of each.
    pub(crate) fn objects(&mut self) -> Objects {
        let [eq_page, cq_page, qp_page, srq_page, records] = self.pages(5)[..] else {
            unreachable!("five were asked for");
        };
        let pages = Pages {
            eq: eq_page,
            cq: cq_page,
            qp: qp_page,
            srq: srq_page,
            records,
        };
        let uar = AllocUarOut::new(self.simple(Opcode::ALLOC_UAR))
            .unwrap()
            .uar();
        let pd = AllocPdOut::new(self.simple(Opcode::ALLOC_PD)).unwrap().pd();
        let xrcd = AllocXrcdOut::new(self.simple(Opcode::ALLOC_XRCD))
            .unwrap()
            .xrcd();
        let eqn = CreateEqOut::new(self.ok(&eq(pages, uar), 16)).unwrap();
        let eqn = eqn.eq_number().into();
        let cqn = CreateCqOut::new(self.ok(&cq(pages, uar, eqn), 16))
            .unwrap()
            .cqn();
        let mkey = CreateMkeyOut::new(self.ok(&mkey(pd), 16))
            .unwrap()
            .mkey_index();
        let srq = CreateXrcSrqOut::new(self.ok(&xrc_srq(pages, pd, xrcd, cqn), 16)).unwrap();
        let qpn = CreateQpOut::new(self.ok(&qp(pages, 0, pd, uar, cqn), 16))
            .unwrap()
            .qpn();
        for step in to_rts(qpn) {
            self.ok(&step, 16);
        }
        Objects {
            pages,
            uar,
            pd,
            xrcd,
            eqn,
            cqn,
            mkey,
            srqn: srq.xrc_srqn(),
            qpn,
        }
    }
}
