//! What goes wrong, and what follows from it.

use wqe_format::mlx5::{MkeyAccess, MkeyContextSegment, MkeyMask, UmrCtrlSegment, UmrFlags};

use super::*;

const LATER: Duration = Duration::from_millis(5);

#[test]
fn a_receiver_that_is_late_is_waited_for() {
    let mut bench = Bench::pair(QpKind::Rc);
    let sent = bench.fill(0x1000, 600);
    bench.post(0x41, Opcode::SEND, 0, &[data(0x1000, 600).as_bytes()]);
    assert_eq!(bench.poll(0x41), None);
    bench.post_receive(0x42, &[data(0x5000, 600)]);
    // Code 11 is 0.48 ms.
    bench.wait(Duration::from_micros(400));
    assert_eq!(bench.poll(0x41), None);
    bench.wait(Duration::from_micros(100));
    bench.done(0x41, CqeOpcode::REQ);
    bench.done(0x42, CqeOpcode::RESP_SEND);
    assert_eq!(bench.bytes(0x5000, 600), sent);
}

#[test]
fn a_receiver_that_never_comes_is_given_up() {
    let mut bench = Bench::pair(QpKind::Rc);
    bench.post(0x41, Opcode::SEND, 0, &[data(0x1000, 600).as_bytes()]);
    bench.post(0x41, Opcode::SEND, 0, &[data(0x1000, 6).as_bytes()]);
    bench.wait(LATER);
    assert_eq!(bench.poll(0x41), None);
    bench.wait(LATER);
    let cqe = bench.failed(0x41, Syndrome::RNR_RETRY_EXC_ERR);
    assert_eq!(
        (cqe.wqe_counter.get(), cqe.send_opcode()),
        (0, Opcode::SEND)
    );
    bench.failed(0x41, Syndrome::WR_FLUSH_ERR);
    assert_eq!(bench.state(0x41), QpState::Err);
    // What is posted later is flushed too, signaled or not; receives without a doorbell.
    bench.post(0x41, Opcode::NOP, 0, &[]);
    bench.failed(0x41, Syndrome::WR_FLUSH_ERR);
    bench.post_receive(0x41, &[data(0x5000, 600)]);
    bench.wait(LATER);
    bench.failed(0x41, Syndrome::WR_FLUSH_ERR);
    assert_eq!(bench.poll(0x41), None);
    assert_eq!(bench.state(0x42), QpState::Rts);
}

#[test]
fn a_peer_that_does_not_answer_is_given_up() {
    let mut bench = Bench::pair(QpKind::Rc);
    bench.to(0x42, QpState::Rst);
    bench.post(0x41, Opcode::SEND, 0, &[data(0x1000, 600).as_bytes()]);
    // Eight is 1.05 ms; three retries.
    for _ in 0..3 {
        bench.wait(Duration::from_millis(2));
        assert_eq!(bench.poll(0x41), None);
    }
    bench.wait(Duration::from_millis(2));
    bench.failed(0x41, Syndrome::TRANSPORT_RETRY_EXC_ERR);
}

#[test]
fn access_that_is_not_granted_ends_both_sides() {
    let read_only = RaddrSegment::new(0x7000_0000, READ_ONLY);
    let unknown = RaddrSegment::new(0x5000, 0x99 << 8);
    let outside = RaddrSegment::new(0x7000_0fff, READ_ONLY);
    for (opcode, raddr) in [
        (Opcode::RDMA_WRITE, read_only),
        (Opcode::RDMA_WRITE, unknown),
        (Opcode::RDMA_READ, unknown),
        (Opcode::RDMA_READ, outside),
    ] {
        let mut bench = Bench::pair(QpKind::Rc);
        bench.post_receive(0x42, &[data(0x5000, 64)]);
        let body = [raddr.as_bytes(), data(0x1000, 600).as_bytes()].concat();
        bench.post(0x41, opcode, 0, &[&body]);
        bench.failed(0x41, Syndrome::REMOTE_ACCESS_ERR);
        assert_eq!(
            (bench.state(0x41), bench.state(0x42)),
            (QpState::Err, QpState::Err)
        );
        bench.failed(0x42, Syndrome::WR_FLUSH_ERR);
    }
}

#[test]
fn a_message_that_is_too_long_ends_both_sides() {
    let mut bench = Bench::pair(QpKind::Rc);
    bench.post_receive(0x42, &[data(0x5000, 500)]);
    bench.post(0x41, Opcode::SEND, 0, &[data(0x1000, 600).as_bytes()]);
    bench.failed(0x42, Syndrome::LOCAL_LENGTH_ERR);
    bench.failed(0x41, Syndrome::REMOTE_INVAL_REQ_ERR);
}

/// As UCX resets an initiator (`uct_dc_mlx5_iface_reset_dci`): the ring is cleared, the doorbell record is not.
#[test]
fn a_record_from_before_a_reset_is_not_looked_at() {
    let mut bench = Bench::pair(QpKind::Rc);
    bench.device.config.strict = true;
    let write = [remote(0x5000).as_bytes(), data(0x1000, 8).as_bytes()].concat();
    for _ in 0..5 {
        bench.post(0x41, Opcode::RDMA_WRITE, 0, &[&write]);
        bench.done(0x41, CqeOpcode::REQ);
    }
    for qpn in [0x41, 0x42] {
        bench.to(qpn, QpState::Rst);
    }
    let ring = vec![0; 64 << LOG_SQ];
    bench.ram.write(Bench::place(0x41) + 0x8000, &ring).unwrap();
    bench.sent.remove(&0x41);
    bench.up(0x41);
    bench.up(0x42);
    bench.wait(LATER);
    assert_eq!((bench.state(0x41), bench.poll(0x41)), (QpState::Rts, None));
    bench.post(0x41, Opcode::RDMA_WRITE, 0, &[&write]);
    assert_eq!(bench.done(0x41, CqeOpcode::REQ).wqe_counter.get(), 0);
    assert_eq!(bench.device.checks.faults(), []);
}

#[test]
fn own_mistakes_are_local() {
    let mut bench = Bench::pair(QpKind::Rc);
    bench.post_receive(0x42, &[data(0x5000, 500)]);
    let good = data(0x1000, 10);
    bench.post(0x41, Opcode::SEND, 0, &[good.as_bytes()]);
    let bad = DataSegment::new(0x1000, 10, 0x99 << 8);
    bench.post(0x41, Opcode::SEND, 0, &[bad.as_bytes()]);
    bench.done(0x41, CqeOpcode::REQ);
    bench.failed(0x41, Syndrome::LOCAL_PROT_ERR);
    let mut bench = Bench::pair(QpKind::Rc);
    bench.post(0x41, Opcode::TSO, 0, &[good.as_bytes()]);
    bench.failed(0x41, Syndrome::LOCAL_QP_OP_ERR);
}

/// A key is bound, used and freed by work requests.
#[test]
fn keys_change_by_requests() {
    let mut bench = Bench::pair(QpKind::Rc);
    bench.qp(0x44, QpKind::RegUmr, 1, 0);
    bench.up(0x44);
    // It has no domain of its own, as the kernel makes it.
    bench.device.resources.qps.get_mut(0x44).unwrap().pd = 0;
    let mut free = key(1, 0, (0, 1), Vec::new());
    set(&mut free.context, 1, 1, 1);
    free.load();
    bench.device.resources.mkeys.insert(0x30, free);
    let pages: Vec<u8> = [0x20_0003u64, 0x30_0003]
        .iter()
        .flat_map(|page| page.to_be_bytes())
        .collect();
    bench.ram.write(0x1000, &pages).unwrap();
    // As the kernel registers: offset in octowords, list in memory, padded to 64 bytes.
    let parts = (1 << 0) | (1 << 1) | (1 << 6) | (1 << 7) | (1 << 13) | (1 << 29) | (0x1f << 17);
    let mut ctrl = UmrCtrlSegment::new(UmrFlags::CHECK_FREE, 4, MkeyMask::NONE);
    ctrl.mkey_mask.0.set(parts);
    let access = MkeyAccess(0x7c);
    let mut context = MkeyContextSegment::new(access, 0xff_ffff, 0x30 << 8 | 5, 0x10_0800, 0x1000);
    context.flags_pd.set(PD);
    context.log_page_size = 12;
    let list = data(0x1000, 64);
    let body = [ctrl.as_bytes(), context.as_bytes(), list.as_bytes()].concat();
    bench.post(0x44, Opcode::UMR, 0x30 << 8, &[&body]);
    bench.done(0x44, CqeOpcode::REQ);
    let sent = bench.fill(0x5000, 0x1000);
    let to = RaddrSegment::new(0x10_0800, 0x30 << 8 | 5);
    let write = [to.as_bytes(), data(0x5000, 0x1000).as_bytes()].concat();
    bench.post(0x41, Opcode::RDMA_WRITE, 0, &[&write]);
    bench.done(0x41, CqeOpcode::REQ);
    assert_eq!(bench.bytes(0x20_0800, 0x800), sent[..0x800]);
    assert_eq!(bench.bytes(0x30_0000, 0x800), sent[0x800..]);
    // Once more, though it is in use: refused, and the queue pair with it.
    bench.post(0x44, Opcode::UMR, 0x30 << 8, &[&body]);
    bench.failed(0x44, Syndrome::MW_BIND_ERR);
}
