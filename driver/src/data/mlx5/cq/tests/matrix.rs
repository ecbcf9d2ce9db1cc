//! What each completion means, field by field and by both ways of polling.

use super::super::super::record::WorkKind;
use super::super::Completion;
use super::rig::*;

const OK: u32 = 0;

/// What lazy polling gives for a completion.
#[derive(Debug, PartialEq)]
struct Lazy {
    wr_id: u64,
    status: u32,
    opcode: u32,
    wc_flags: u32,
    byte_len: u32,
    imm: u32,
    qp_num: u32,
    src_qp: u32,
    vendor_err: u32,
    cookie: usize,
}

impl Rig {
    fn lazy_one(&mut self) -> Lazy {
        assert_eq!(self.cq.start_poll(), Ok(()));
        let cq = &self.cq;
        let lazy = Lazy {
            wr_id: cq.wr_id(),
            status: cq.status(),
            opcode: cq.read_opcode(),
            wc_flags: cq.read_wc_flags(),
            byte_len: cq.read_byte_len(),
            imm: cq.read_imm_or_rkey(),
            qp_num: cq.read_qp_num(),
            src_qp: cq.read_src_qp(),
            vendor_err: cq.read_vendor_err(),
            cookie: cq.cookie(),
        };
        assert!(!self.cq.next_poll());
        self.cq.end_poll();
        self.check_guards();
        lazy
    }
}

/// Every send opcode: `enum ibv_wc_opcode`, `ibv_wc_flags` and length that libmlx5 gives (providers/mlx5/cq.c
/// `handle_good_req`), for batches; lazy polling gives the entry's length, and flags of receives only.
#[test]
fn sends() {
    let plain = WorkKind::Plain;
    let cases = [
        // opcode of the device, kind of the record → opcode, flags, length of 4242
        (0x0a, plain, 0, 0, 0),
        (0x0b, plain, 0, 2, 0),
        (0x01, plain, 0, 0, 0),
        (0x08, plain, 1, 0, 0),
        (0x09, plain, 1, 2, 0),
        (0x10, plain, 2, 0, 4242),
        (0x11, plain, 3, 0, 8),
        (0x12, plain, 4, 0, 8),
        (0x14, plain, 3, 0, 8),
        (0x15, plain, 4, 0, 8),
        (0x0e, plain, 7, 0, 0),
        (0x00, plain, 0, 0, 0),
        (0x25, WorkKind::BindMw, 5, 0, 0),
        (0x25, WorkKind::LocalInv, 6, 0, 0),
        (0x25, WorkKind::Mkey, 135, 0, 0),
        (0x20, WorkKind::Mkey, 135, 0, 0),
        (0x2f, WorkKind::Memcpy, 137, 0, 0),
        (0x0a, WorkKind::Raw, 136, 0, 0),
        (0x10, WorkKind::Raw, 136, 0, 4242),
        (0x25, WorkKind::Raw, 136, 0, 0),
        // A record that does not fit the completion: the completion counts.
        (0x08, WorkKind::BindMw, 1, 0, 0),
    ];
    for size in [64, 128] {
        for (sop, kind, opcode, wc_flags, byte_len) in cases {
            for solicited in [0, 2] {
                let mut rig = Rig::new(4, size);
                rig.set_kind(9, sop, kind);
                let entry = Bytes::new(REQ)
                    .uidx(RC)
                    .imm(0x0102_0304)
                    .byte_count(4242)
                    .sop(sop, RC_QPN)
                    .counter(0x7ff9)
                    .inline(solicited);
                rig.complete(entry);
                let expected = Completion {
                    wr_id: 0x1009,
                    status: OK,
                    opcode,
                    byte_len,
                    qp_num: RC_QPN,
                    wc_flags,
                    ..Completion::default()
                };
                assert_eq!(rig.poll_one(), expected, "opcode {sop:#x} {kind:?}");
                assert_eq!(rig.send_tail(RC), 1009, "all up to it are complete");
                assert_eq!(rig.send_tail(RC_SRQ), 999, "no other queue's are");
                assert_eq!(rig.told(), 1);

                let mut rig = Rig::new(4, size);
                rig.set_kind(9, sop, kind);
                rig.complete(entry);
                let lazy = rig.lazy_one();
                assert_eq!(
                    (
                        lazy.wr_id,
                        lazy.status,
                        lazy.opcode,
                        lazy.byte_len,
                        lazy.wc_flags
                    ),
                    (0x1009, OK, opcode, 4242, 0),
                    "opcode {sop:#x} {kind:?}"
                );
                assert_eq!((lazy.qp_num, lazy.cookie), (RC_QPN, 0x5001));
                assert_eq!(rig.send_tail(RC), 1009);
                assert_eq!(rig.told(), 1);
            }
        }
    }
}

/// Every receive opcode on every kind of queue. B52: numbers whose bytes are all different, read as the network has them.
#[test]
fn receives() {
    // opcode of the device → opcode, flags, whether there is immediate data, whether a key
    let cases = [
        (RESP_WR_IMM, 129, 2, true, false),
        (RESP_SEND, 128, 0, false, false),
        (RESP_SEND_IMM, 128, 2, true, false),
        (RESP_SEND_INV, 128, 8, false, true),
    ];
    let imm = 0x0102_0304u32;
    for size in [64, 128] {
        for (cqe, opcode, flags, has_imm, has_key) in cases {
            for (queue, qpn) in [
                (RC, RC_QPN),
                (RC_SRQ, RC_SRQ_QPN),
                (UD, UD_QPN),
                (XRC_SRQ, 7),
                (RWQ, 8),
            ] {
                let shared = queue == RC_SRQ || queue == XRC_SRQ;
                let entry = Bytes::new(cqe)
                    .uidx(queue | 0xab00_0000)
                    .imm(imm)
                    .byte_count(0x0102_0304)
                    .sop(0, qpn)
                    .counter(if shared { 2 } else { 0xfff2 })
                    .put(17, &[0xfd])
                    .put(22, &0x1234u16.to_be_bytes())
                    // GRH 1, sl 5, source 0x800001
                    .put(24, &0x1580_0001u32.to_be_bytes())
                    .put(28, &[0x06, 0x08]);
                let make = || {
                    let mut rig = Rig::new(4, size);
                    let empty: &[wqe_format::rxe::Sge] = &[];
                    rig.srq
                        .post((0..5u64).map(|n| (0x3000 + n, empty)))
                        .unwrap();
                    rig.complete(entry);
                    rig
                };
                let mut rig = make();
                let wr_id = if shared { 0x3002 } else { 0x2002 };
                // Checksums only of the queue pair that has them.
                let wc_flags = flags | 1 | if queue == UD { 4 } else { 0 };
                let expected = Completion {
                    wr_id,
                    status: OK,
                    opcode,
                    vendor_err: 0,
                    byte_len: 0x0102_0304,
                    imm_or_rkey: match (has_imm, has_key) {
                        (true, _) => u32::from_ne_bytes([1, 2, 3, 4]),
                        (_, true) => imm,
                        _ => 0,
                    },
                    qp_num: qpn,
                    src_qp: 0x80_0001,
                    wc_flags,
                    pkey_index: 0x0304,
                    slid: 0x1234,
                    sl: 5,
                    dlid_path_bits: 0x7d,
                    reserved: [0; 2],
                };
                let got = rig.poll_one();
                assert_eq!(got, expected, "opcode {cqe} queue {queue:#x}");
                assert_eq!(got.immediate(), has_imm.then_some(imm));
                assert_eq!(got.invalidated_rkey(), has_key.then_some(imm));
                if !shared {
                    assert_eq!(rig.recv_tail(queue), 1);
                }
                assert_eq!(rig.told(), 1);

                let mut rig = make();
                let lazy = rig.lazy_one();
                let expected = Lazy {
                    wr_id,
                    status: OK,
                    opcode,
                    wc_flags,
                    byte_len: 0x0102_0304,
                    imm: if has_key {
                        imm
                    } else {
                        u32::from_ne_bytes([1, 2, 3, 4])
                    },
                    qp_num: qpn,
                    src_qp: 0x80_0001,
                    vendor_err: 0,
                    cookie: match queue {
                        RC => 0x5001,
                        RC_SRQ => 0x5002,
                        UD => 0x5003,
                        XRC_SRQ => 0x5004,
                        _ => 0x5005,
                    },
                };
                assert_eq!(lazy, expected, "opcode {cqe} queue {queue:#x}");
            }
        }
    }
}

/// Fields that only lazy polling gives. B52: a flow tag of 24 bits.
#[test]
fn fields_of_lazy_polling() {
    let mut rig = Rig::new(4, 64);
    let entry = Bytes::new(RESP_SEND)
        .uidx(UD)
        .put(4, &0x1122_3344u32.to_be_bytes())
        .put(8, &0x0102_0304_0506_0708u64.to_be_bytes())
        .put(17, &[0xff])
        .put(22, &0xabcdu16.to_be_bytes())
        .put(24, &0x0f00_0000u32.to_be_bytes())
        .put(30, &0x8123u16.to_be_bytes())
        .put(48, &0xfedc_ba98_7654_3210u64.to_be_bytes())
        .sop(0, 0xfe_dcba);
    // The tag's bytes also stand where the path bits and the identifier do not.
    rig.complete(entry);
    rig.cq.start_poll().unwrap();
    assert_eq!(rig.cq.read_flow_tag(), 0xfe_dcba);
    assert_eq!(rig.cq.read_completion_ts(), 0xfedc_ba98_7654_3210);
    assert_eq!(rig.cq.read_completion_wallclock_ns(), 0xfedc_ba98_7654_3210);
    assert_eq!(rig.cq.read_cvlan(), 0x8123);
    assert_eq!(rig.cq.read_slid(), 0xabcd);
    assert_eq!(rig.cq.read_sl(), 0xf);
    assert_eq!(rig.cq.read_dlid_path_bits(), 0x7f);
    assert_eq!(rig.cq.read_tm_info(), (0x0102_0304_0506_0708, 0x1122_3344));
    rig.cq.end_poll();
}

/// B48, B58: every syndrome on both sides, with its status, vendor byte, number and queue; each gives its work request back.
#[test]
fn syndromes() {
    let known = [
        (0x01, 1),
        (0x02, 2),
        (0x04, 4),
        (0x05, 5),
        (0x06, 6),
        (0x10, 7),
        (0x11, 8),
        (0x12, 9),
        (0x13, 10),
        (0x14, 11),
        (0x15, 12),
        (0x16, 13),
        (0x22, 16),
    ];
    for syndrome in 0..=0xffu8 {
        let status = known
            .iter()
            .find(|known| known.0 == syndrome)
            .map_or(21, |known| known.1);
        for (opcode, queue) in [
            (REQ_ERR, RC),
            (RESP_ERR, RC),
            (RESP_ERR, RC_SRQ),
            (RESP_ERR, RWQ),
        ] {
            for lazy in [false, true] {
                let mut rig = Rig::new(4, 64);
                let empty: &[wqe_format::rxe::Sge] = &[];
                rig.srq
                    .post((0..7u64).map(|n| (0x3000 + n, empty)))
                    .unwrap();
                assert!(rig.srq.post([(0u64, empty)]).is_err(), "full");
                let entry = Bytes::new(opcode)
                    .uidx(queue)
                    // A packet's fields mean nothing here.
                    .put(0, &[0xff; 32])
                    .sop(0x10, RC_QPN)
                    .counter(3)
                    .error(0x88, syndrome);
                rig.complete(entry);
                let wr_id = match (opcode, queue) {
                    (REQ_ERR, _) => 0x1003,
                    (_, RC_SRQ) => 0x3003,
                    _ => 0x2003,
                };
                // READ on the sending side, RECV on the other.
                let direction = if opcode == REQ_ERR { 2 } else { 128 };
                if lazy {
                    let got = rig.lazy_one();
                    assert_eq!(
                        (
                            got.wr_id,
                            got.status,
                            got.vendor_err,
                            got.qp_num,
                            got.opcode
                        ),
                        (wr_id, status, 0x88, RC_QPN, direction),
                        "{syndrome:#x}"
                    );
                } else {
                    let expected = Completion {
                        wr_id,
                        status,
                        opcode: direction,
                        vendor_err: 0x88,
                        qp_num: RC_QPN,
                        ..Completion::default()
                    };
                    assert_eq!(rig.poll_one(), expected, "{syndrome:#x}");
                }
                match (opcode, queue) {
                    (REQ_ERR, _) => assert_eq!(rig.send_tail(RC), 1003),
                    // B58: an error returns its slot too.
                    (_, RC_SRQ) => assert_eq!(rig.srq.post([(0u64, empty)]).unwrap(), 1),
                    _ => assert_eq!(rig.recv_tail(queue), 1),
                }
            }
        }
    }
}

/// B33: the error completions that people met in the field (facts Appendix B), bytes as they printed them.
#[test]
fn errors_from_the_field() {
    // uidx, hw syndrome, vendor, syndrome, opcode, qpn, counter, signature, op_own → status
    let vectors = [
        (
            0xb3, 0x93, 0x52, 0x04, 0x0a, 0x0019a1, 0xc092, 0x1c, 0xd2, 4,
        ),
        (0, 0, 0x88, 0x13, 0x11, 0x0818b2, 0, 0x01, 0xd0, 10),
        (2, 0, 0x88, 0x13, 0x10, 0x012abe, 0x0dd0, 0xc1, 0xd3, 10),
        (0xb9, 0, 0x88, 0x13, 0x10, 0x0076ab, 0x008a, 0xe4, 0xd3, 10),
        (0, 0, 0x87, 0x16, 0x0a, 0x001f8e, 0, 0x27, 0xd2, 13),
        (
            0x13, 0x9d, 0x53, 0x04, 0x0a, 0x001542, 0x0019, 0xb0, 0xd2, 4,
        ),
    ];
    for (uidx, hw, vendor, syndrome, sop, qpn, counter, signature, op_own, status) in vectors {
        let mut rig = Rig::new(2, 64);
        if uidx != RC {
            let queue = rig.queue(RC).clone();
            rig.table.insert(uidx, queue).unwrap();
        }
        let entry = Bytes([0; 64])
            .put(1, b"text")
            .uidx(uidx)
            .put(52, &[hw])
            .error(vendor, syndrome)
            .sop(sop, qpn)
            .counter(counter)
            .put(62, &[signature, op_own]);
        // The lap in which the bytes are valid as they are.
        if op_own & 1 != 0 {
            rig.start_at(2);
        }
        assert_eq!(rig.poll(2), [], "nothing yet");
        rig.complete(entry);
        assert_eq!(rig.ring.read(rig.offset(0) + 63, 1), [op_own]);
        let got = rig.poll_one();
        assert_eq!(
            (got.status, got.vendor_err, got.qp_num, got.wr_id),
            (
                status,
                u32::from(vendor),
                qpn,
                0x1000 + u64::from(counter % 16)
            ),
        );
    }
}
