//! The numbers of libmlx5, as its users know them.

use proptest::prelude::*;

use super::*;

/// What Linux answers on a ConnectX-5 (`mlx5_ib_alloc_ucontext`).
const LIMITS: Limits = Limits {
    max_sq_desc_sz: 1024,
    max_rq_desc_sz: 512,
    max_send_wqebb: 1 << 15,
    max_recv_wr: 1 << 15,
    max_srq_recv_wr: 1 << 15,
};

const RDMA_OPS: SendOps = SendOps::SEND
    .with(SendOps::RDMA_WRITE)
    .with(SendOps::RDMA_READ);

fn send(transport: Transport, ops: Option<SendOps>, max_wr: u32, max_inline: u32) -> SendRequest {
    SendRequest {
        transport,
        ops,
        device_ops: DeviceOps::default(),
        max_wr,
        max_sge: 1,
        max_inline,
        max_tso_header: 0,
    }
}

fn sized(asked: &SendRequest) -> SendGeometry {
    SendGeometry::new(&LIMITS, asked).unwrap()
}

/// (transport, operations, WRs, inline) to (WQE size, inline, WRs, basic blocks).
type SendRow = ((Transport, Option<SendOps>, u32, u32), (u32, u32, u32, u32));

/// B14: send queues have the sizes that libmlx5 gives them.
#[test]
fn send_queues_of_libmlx5() {
    use Transport::{Dci, Rc, Ud};
    let rows: [SendRow; 8] = [
        ((Rc, None, 16, 0), (256, 60, 16, 64)),
        ((Rc, None, 10, 0), (256, 60, 16, 64)),
        ((Rc, None, 16, 220), (448, 252, 18, 128)),
        ((Rc, None, 16, 828), (1024, 828, 16, 256)),
        ((Rc, Some(RDMA_OPS), 16, 988), (1024, 988, 16, 256)),
        ((Rc, Some(SendOps::SEND), 16, 1004), (1024, 1004, 16, 256)),
        ((Ud, None, 16, 0), (128, 60, 16, 32)),
        // 192 + 48 of overhead, 16 of data
        ((Dci, None, 16, 0), (256, 12, 16, 64)),
    ];
    for ((transport, ops, wr, inline), (wqe_size, max_inline, max_post, wqe_cnt)) in rows {
        let expected = SendGeometry {
            wqe_size,
            wqe_cnt,
            max_post,
            max_gs: 1,
            max_inline,
        };
        assert_eq!(sized(&send(transport, ops, wr, inline)), expected);
    }
}

#[test]
fn overheads_of_libmlx5() {
    let none = DeviceOps::default();
    let overhead = |transport: Transport| send_overhead(transport, transport.default_ops(), none);
    assert_eq!(overhead(Transport::Rc), 192);
    assert_eq!(overhead(Transport::Uc), 192);
    assert_eq!(overhead(Transport::Ud), 64);
    assert_eq!(overhead(Transport::Underlay), 112);
    assert_eq!(overhead(Transport::XrcSend), 208);
    assert_eq!(overhead(Transport::XrcRecv), 208);
    assert_eq!(overhead(Transport::RawPacket), 48);
    assert_eq!(overhead(Transport::Dci), 240);
    let rc = |ops, device| send_overhead(Transport::Rc, ops, device);
    assert_eq!(rc(RDMA_OPS, none), 32);
    assert_eq!(rc(SendOps::SEND, none), 16);
    assert_eq!(rc(SendOps::ATOMIC_FETCH_AND_ADD, none), 48);
    // B14: a send queue made for LOCAL_INV alone has room for it
    assert_eq!(rc(SendOps::LOCAL_INV, none), 192);
    for key in [
        DeviceOps::MR_LIST,
        DeviceOps::MR_INTERLEAVED,
        DeviceOps::MKEY_CONFIGURE,
    ] {
        assert_eq!(rc(SendOps::SEND, key), 192);
    }
    assert_eq!(rc(SendOps::SEND, DeviceOps::MASKED_ATOMIC), 64);
}

/// B15: programs search for the largest inline size: everything below it works, everything above is
/// refused, and what is granted is never less than asked for.
#[test]
fn inline_limits_of_libmlx5() {
    let limits = [
        (Transport::Rc, None, 828),
        (Transport::Rc, Some(RDMA_OPS), 988),
        (Transport::Rc, Some(SendOps::SEND), 1004),
        (Transport::Ud, None, 956),
    ];
    for (transport, ops, most) in limits {
        for inline in 0..=1100 {
            match SendGeometry::new(&LIMITS, &send(transport, ops, 4, inline)) {
                Ok(granted) => assert!(inline <= most && granted.max_inline >= inline),
                Err(error) => {
                    assert!(inline > most, "{transport:?} {ops:?} {inline}");
                    assert_eq!(Errno::from(error), Errno(libc::EINVAL));
                    assert_eq!(error.most, u64::from(most));
                }
            }
        }
    }
    let error = SendGeometry::new(&LIMITS, &send(Transport::Rc, None, 4, u32::MAX)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "4294967295 bytes of inline data asked for, the device can do 828"
    );
}

#[test]
fn send_queues_too_large() {
    let gather = |max_sge| SendRequest {
        max_sge,
        ..send(Transport::Rc, None, 4, 0)
    };
    // (1024 - 192) / 16
    assert_eq!(sized(&gather(52)).wqe_size, 1024);
    assert!(SendGeometry::new(&LIMITS, &gather(53)).is_err());
    assert!(SendGeometry::new(&LIMITS, &gather(u32::MAX)).is_err());
    assert_eq!(
        sized(&send(Transport::Rc, None, 8192, 0)).wqe_cnt,
        LIMITS.max_send_wqebb
    );
    for wr in [8193, 1 << 20, u32::MAX] {
        assert!(SendGeometry::new(&LIMITS, &send(Transport::Rc, None, wr, 0)).is_err());
    }
    let tso = |max_tso_header| SendRequest {
        max_tso_header,
        ..send(Transport::RawPacket, None, 4, 0)
    };
    // 48 + align(54, 16) + 16
    assert_eq!(sized(&tso(54)).wqe_size, 128);
    assert!(SendGeometry::new(&LIMITS, &tso(1024)).is_err());
    assert!(SendGeometry::new(&LIMITS, &tso(u32::MAX)).is_err());
}

/// B16: a queue pair that only receives has no send queue, and the other way round.
#[test]
fn a_missing_half_has_no_size() {
    let dataless = SendRequest {
        max_sge: 0,
        ..send(Transport::Rc, None, 1, 0)
    };
    let sizes = sized(&dataless);
    assert_eq!((sizes.wqe_size, sizes.max_inline), (192, 0));
    let none = sized(&send(Transport::Rc, None, 0, 100));
    assert_eq!((none.wqe_cnt, none.bytes(), none.max_post), (0, 0, 0));
    let none = ReceiveGeometry::new(&LIMITS, &ReceiveRequest::default()).unwrap();
    assert_eq!(none, ReceiveGeometry::default());
    assert_eq!(none.bytes(), 0);
}

fn receive(max_wr: u32, max_sge: u32) -> ReceiveRequest {
    ReceiveRequest {
        max_wr,
        max_sge,
        ..ReceiveRequest::default()
    }
}

/// B14: receive queues have the sizes that libmlx5 gives them.
#[test]
fn receive_queues_of_libmlx5() {
    let sized = |asked: ReceiveRequest| {
        let g = ReceiveGeometry::new(&LIMITS, &asked).unwrap();
        (1 << g.wqe_shift, g.wqe_cnt, g.max_post, g.max_gs, g.bytes())
    };
    assert_eq!(sized(receive(1, 1)), (16, 4, 4, 1, 64));
    assert_eq!(sized(receive(1, 0)), (16, 4, 4, 1, 64));
    assert_eq!(sized(receive(100, 3)), (64, 128, 128, 4, 8192));
    assert_eq!(sized(receive(2, 32)), (512, 2, 2, 32, 1024));
    let signed = ReceiveRequest {
        signature: true,
        ..receive(100, 3)
    };
    assert_eq!(sized(signed), (64, 128, 128, 3, 8192));
    let unordered = ReceiveRequest {
        out_of_order: 1000,
        ..receive(100, 1)
    };
    assert_eq!(sized(unordered), (16, 256, 128, 1, 4096));
    for wrong in [
        receive(1, 33),
        receive((1 << 15) + 1, 1),
        receive(1, u32::MAX),
    ] {
        assert!(ReceiveGeometry::new(&LIMITS, &wrong).is_err());
    }
    let unordered = ReceiveRequest {
        out_of_order: 99,
        ..unordered
    };
    assert!(ReceiveGeometry::new(&LIMITS, &unordered).is_err());
}

#[test]
fn work_queues_of_libmlx5() {
    let sized = |asked: ReceiveRequest| {
        let g = ReceiveGeometry::work_queue(&LIMITS, &asked).unwrap();
        (1 << g.wqe_shift, g.wqe_cnt, g.max_gs)
    };
    assert_eq!(sized(receive(100, 3)), (64, 128, 4));
    let striding = ReceiveRequest {
        striding: true,
        ..receive(8, 1)
    };
    assert_eq!(sized(striding), (32, 8, 1));
    let both = ReceiveRequest {
        signature: true,
        ..striding
    };
    // 16 + 16 + 16
    assert_eq!(sized(both), (64, 8, 2));
    let none = ReceiveGeometry::work_queue(&LIMITS, &receive(0, 1)).unwrap_err();
    assert_eq!(none.to_string(), "receives of a work queue cannot be 0");
}

/// B58: shared receive queues have the sizes that libmlx5 gives them.
#[test]
fn shared_receive_queues_of_libmlx5() {
    let sized = |wr, sge| {
        let g = SrqGeometry::new(&LIMITS, wr, sge).unwrap();
        (1 << g.wqe_shift, g.max_post, g.max_gs, g.wqe_cnt)
    };
    assert_eq!(sized(1, 1), (32, 1, 1, 4));
    assert_eq!(sized(100, 2), (64, 127, 3, 256));
    assert_eq!(sized(100, 4), (128, 127, 7, 256));
    assert_eq!(sized(0, 0), (32, 0, 1, 1));
    // no room for waiting entries
    let full = SrqGeometry::new(&LIMITS, 20_000, 1).unwrap();
    assert!(!full.wait_queue);
    assert_eq!(
        (full.wqe_cnt, full.nwqes, full.max_post),
        (32768, 32768, 32767)
    );
    assert!(SrqGeometry::new(&LIMITS, (1 << 15) + 1, 1).is_err());
    assert!(SrqGeometry::new(&LIMITS, 1, 33).is_err());
    assert!(SrqGeometry::new(&LIMITS, u32::MAX, u32::MAX).is_err());
}

/// B14: completion queues have the sizes that libmlx5 gives them.
#[test]
fn completion_queues_of_libmlx5() {
    for (asked, granted) in [(1, 1), (2, 3), (100, 127), (127, 127), (128, 255)] {
        assert_eq!(cq_entries(asked).unwrap() - 1, granted);
    }
    assert_eq!(cq_entries((1 << 24) - 1), Ok(1 << 24));
    assert!(cq_entries(1 << 24).is_err());
    assert!(cq_entries(u32::MAX).is_err());
    assert!(cq_entries(0).is_err());
}

fn transports() -> impl Strategy<Value = Transport> {
    use Transport::*;
    prop::sample::select(vec![Rc, Uc, Ud, Underlay, XrcSend, XrcRecv, RawPacket, Dci])
}

proptest! {
    /// B14: asking for what was granted grants the same again.
    #[test]
    fn sizes_are_idempotent(
        transport in transports(),
        ops in prop::option::of(0_u64..1 << 11),
        cap in (0_u32..40_000, 0_u32..80, 0_u32..1100),
        recv in (0_u32..40_000, 0_u32..40, any::<bool>()),
        srq in (0_u32..1 << 15, 0_u32..40),
    ) {
        let asked = SendRequest {
            max_sge: cap.1,
            ..send(transport, ops.map(SendOps), cap.0, cap.2)
        };
        if let Ok(first) = SendGeometry::new(&LIMITS, &asked) {
            prop_assert!(first.max_post >= cap.0 && first.max_inline >= cap.2);
            prop_assert!(first.max_post * first.wqe_size <= first.wqe_cnt * WQEBB);
            prop_assert!(first.wqe_size <= LIMITS.max_sq_desc_sz);
            let again = SendRequest {
                max_wr: first.max_post,
                max_inline: first.max_inline,
                max_sge: first.max_gs,
                ..asked
            };
            prop_assert_eq!(SendGeometry::new(&LIMITS, &again), Ok(first));
        }
        let asked = ReceiveRequest { signature: recv.2, ..receive(recv.0, recv.1) };
        if let Ok(first) = ReceiveGeometry::new(&LIMITS, &asked) {
            prop_assert!(first.max_post >= recv.0 && (recv.0 == 0 || first.max_gs >= recv.1));
            let again = ReceiveRequest { max_wr: first.max_post, max_sge: first.max_gs, ..asked };
            prop_assert_eq!(ReceiveGeometry::new(&LIMITS, &again), Ok(first));
        }
        if let Ok(first) = SrqGeometry::new(&LIMITS, srq.0, srq.1) {
            prop_assert!(first.max_post >= srq.0 && first.max_gs >= srq.1);
            let again = SrqGeometry::new(&LIMITS, first.max_post, first.max_gs.min(32)).unwrap();
            prop_assert_eq!(again.nwqes, first.nwqes);
            prop_assert_eq!(again.wqe_shift, first.wqe_shift);
        }
    }

    /// No numbers of a program or of a kernel make sizes overflow.
    #[test]
    fn nothing_overflows(
        limits in any::<[u32; 5]>(),
        transport in transports(),
        ops in prop::option::of(any::<u64>()),
        a in any::<[u32; 5]>(),
        flags in any::<[bool; 2]>(),
    ) {
        let limits = Limits {
            max_sq_desc_sz: limits[0],
            max_rq_desc_sz: limits[1] % (1 << 28),
            max_send_wqebb: limits[2],
            max_recv_wr: limits[3],
            max_srq_recv_wr: limits[4],
        };
        let asked = SendRequest {
            max_sge: a[1],
            max_tso_header: a[3],
            device_ops: DeviceOps(u64::from(a[4])),
            ..send(transport, ops.map(SendOps), a[0], a[2])
        };
        let _ = SendGeometry::new(&limits, &asked).map(|g| g.bytes());
        let asked = ReceiveRequest {
            max_wr: a[0],
            max_sge: a[1],
            signature: flags[0],
            striding: flags[1],
            out_of_order: a[2],
        };
        let _ = ReceiveGeometry::new(&limits, &asked).map(|g| g.bytes());
        let _ = ReceiveGeometry::work_queue(&limits, &asked).map(|g| g.bytes());
        let _ = SrqGeometry::new(&limits, a[0], a[1]).map(|g| g.bytes());
        let _ = cq_entries(a[0]);
    }
}
