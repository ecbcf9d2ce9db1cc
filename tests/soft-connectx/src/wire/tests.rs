//! Packets there and back, and against bytes from elsewhere.

use super::*;

fn packet(route: Route, opcode: u8, extended: Extended, payload: &[u8]) -> Packet {
    Packet {
        route,
        bth: Bth {
            opcode,
            solicited: true,
            pkey: 0xffff,
            dest_qp: 0x12_3456,
            ack_request: true,
            psn: 0xab_cdef,
            pad: 0,
        },
        extended,
        payload: payload.to_vec(),
    }
}

fn routes() -> Vec<Route> {
    let mut global = Global {
        source: [1; 16],
        destination: [2; 16],
        tclass: 3,
        flow_label: 0x4_5678,
        hop_limit: 9,
    };
    let ethernet = |global, udp, vlan| Route::Ethernet {
        destination: [6; 6],
        source: [8; 6],
        vlan,
        global,
        udp,
    };
    let local = |global| Route::InfiniBand {
        slid: 1,
        dlid: 0x102,
        sl: 5,
        global,
    };
    let mut all = vec![
        local(None),
        local(Some(global)),
        ethernet(global, None, None),
        ethernet(global, Some(0xc123), Some(7)),
    ];
    global.flow_label = 0;
    global.source = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1];
    global.destination = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2];
    all.push(ethernet(global, Some(0xc123), None));
    all
}

fn parse(route: &Route, bytes: &[u8]) -> Result<Packet, Malformed> {
    match route {
        Route::InfiniBand { .. } => Packet::parse_infiniband(bytes),
        Route::Ethernet { .. } => match Frame::parse_ethernet(bytes)? {
            Frame::Packet(packet) => Ok(*packet),
            Frame::Other(_) => Err(Malformed::Header),
        },
    }
}

/// Every opcode with the headers it has, on every route.
#[test]
fn packets_come_back() {
    let reth = Some(Reth {
        va: 0x1122_3344_5566_7788,
        rkey: 0x99aa_bbcc,
        length: 5,
    });
    let aeth = Some(Aeth {
        answer: Answer::Nak(NakCode::RemoteAccess),
        msn: 77,
    });
    let none = Extended::default();
    let kinds = [
        (op::SEND_FIRST, none),
        (
            op::SEND_ONLY_IMM,
            Extended {
                imm: Some(9),
                ..none
            },
        ),
        (
            op::SEND_ONLY_INV,
            Extended {
                ieth: Some(9),
                ..none
            },
        ),
        (
            op::WRITE_ONLY_IMM,
            Extended {
                reth,
                imm: Some(4),
                ..none
            },
        ),
        (op::READ_REQUEST, Extended { reth, ..none }),
        (op::READ_RESPONSE_LAST, Extended { aeth, ..none }),
        (op::READ_RESPONSE_MIDDLE, none),
        (
            op::ATOMIC_ACKNOWLEDGE,
            Extended {
                aeth,
                atomic_ack: Some(3),
                ..none
            },
        ),
        (
            op::FETCH_ADD,
            Extended {
                atomic: Some(AtomicEth {
                    va: 8,
                    rkey: 7,
                    swap_add: 6,
                    compare: 5,
                    ..AtomicEth::default()
                }),
                ..none
            },
        ),
        (
            op::MASKED_FETCH_ADD,
            Extended {
                atomic: Some(AtomicEth {
                    width: 4,
                    compare_mask: 2,
                    ..AtomicEth::default()
                }),
                ..none
            },
        ),
    ];
    for route in routes() {
        for (op, extended) in kinds {
            for length in 0..5 {
                let sent = packet(route, op, extended, &vec![0x5a; length]);
                assert_eq!(parse(&route, &sent.emit()).as_ref(), Ok(&sent));
                // The variant check sum of InfiniBand is not counted.
                let variant = 2 * usize::from(matches!(route, Route::InfiniBand { .. }));
                assert_eq!(sent.octets() + variant, sent.emit().len());
            }
        }
        let deth = Some(Deth {
            qkey: 0x8000_0001,
            source_qp: 5,
        });
        let sent = packet(
            route,
            3 << 5 | op::SEND_ONLY,
            Extended { deth, ..none },
            b"datagram",
        );
        assert_eq!(parse(&route, &sent.emit()).as_ref(), Ok(&sent));
        let sent = packet(
            route,
            5 << 5 | op::SEND_ONLY,
            Extended {
                xrc_srq: Some(9),
                ..none
            },
            b"xrc",
        );
        assert_eq!(parse(&route, &sent.emit()).as_ref(), Ok(&sent));
        let dceth = Some(Dceth {
            key: 1 << 63,
            source_qp: 4,
            life: 3,
        });
        let sent = packet(
            route,
            6 << 5 | op::SEND_ONLY,
            Extended { dceth, ..none },
            b"dc",
        );
        assert_eq!(parse(&route, &sent.emit()).as_ref(), Ok(&sent));
        assert_eq!(
            route.reversed().reversed().global().map(|it| it.source),
            route.global().map(|it| it.source)
        );
    }
}

/// Any byte that changes is noticed, or is one that may change on the way.
#[test]
fn changed_packets_are_refused() {
    for route in routes() {
        let bytes = packet(route, op::SEND_ONLY, Extended::default(), b"payload").emit();
        for cut in 0..bytes.len() {
            assert!(parse(&route, &bytes[..cut]).is_err());
        }
        let last = bytes.len() - 8;
        let mut changed = bytes;
        changed[last] ^= 0x10;
        assert_eq!(parse(&route, &changed), Err(Malformed::CheckSum));
    }
}

/// The check sum of the kernel's rxe: it starts with the register that eight bytes of ones leave behind
/// (`RXE_ICRC_SEED`, drivers/infiniband/sw/rxe/rxe_icrc.c: 0xdebb20e3, not complemented).
#[test]
fn the_invariant_check_starts_as_rxe_does() {
    assert_eq!(!check::invariant(&[0xff; 8]), 0xdebb_20e3);
}
