//! Properties of the rxe formats: what was encoded decodes, and any bytes decode without panic.

use proptest::prelude::*;
use wqe_format::rxe::queue::{DATA, Geometry};
use wqe_format::rxe::{
    Access, AddressVector, BindMw, Cqe, Datagram, DmaInfo, Flush, Operation, Payload, RecvWqe,
    SendEntry, SendFlags, SendWqe, SendWr, Sge, Transport,
};
use zerocopy::byteorder::big_endian::U32 as Be32;
use zerocopy::{FromBytes, IntoBytes};

fn operation() -> impl Strategy<Value = Operation> {
    let imm = any::<u32>().prop_map(Be32::new);
    let at = any::<(u64, u32)>();
    prop_oneof![
        Just(Operation::Send),
        imm.clone().prop_map(|imm| Operation::SendWithImm { imm }),
        any::<u32>().prop_map(|rkey| Operation::SendWithInv { rkey }),
        any::<u32>().prop_map(|rkey| Operation::LocalInv { rkey }),
        at.prop_map(|(remote_addr, rkey)| Operation::RdmaWrite { remote_addr, rkey }),
        at.prop_map(|(remote_addr, rkey)| Operation::RdmaRead { remote_addr, rkey }),
        at.prop_map(|(remote_addr, rkey)| Operation::AtomicWrite { remote_addr, rkey }),
        (at, imm).prop_map(|((remote_addr, rkey), imm)| Operation::RdmaWriteWithImm {
            remote_addr,
            rkey,
            imm
        }),
        (at, any::<(u64, u64)>()).prop_map(|((remote_addr, rkey), (compare, swap))| {
            Operation::AtomicCmpAndSwp {
                remote_addr,
                rkey,
                compare,
                swap,
            }
        }),
        (at, any::<u64>()).prop_map(|((remote_addr, rkey), add)| Operation::AtomicFetchAndAdd {
            remote_addr,
            rkey,
            add
        }),
        any::<(u64, u64, u32, u32, u32, u32)>().prop_map(
            |(addr, length, mr_lkey, mw_rkey, rkey, access)| Operation::BindMw(BindMw {
                addr,
                length,
                mr_lkey,
                mw_rkey,
                rkey,
                access: Access(access)
            })
        ),
        (at, any::<(u32, u8, u8)>()).prop_map(
            |((remote_addr, rkey), (length, placement, selectivity))| Operation::Flush(Flush {
                remote_addr,
                length,
                rkey,
                placement,
                selectivity
            })
        ),
    ]
}

fn datagram() -> impl Strategy<Value = Datagram> {
    any::<(u32, u32, u32, [u8; 16], [u8; 16], [u8; 6])>().prop_map(
        |(remote_qpn, remote_qkey, ah_num, sgid, dgid, dmac)| {
            let av = match ah_num {
                0 => AddressVector::new(1, &sgid, 3, &dgid, dmac),
                _ => AddressVector::default(),
            };
            Datagram {
                remote_qpn,
                remote_qkey,
                ah_num,
                av,
            }
        },
    )
}

proptest! {
    /// B11: entries are whole values, so nothing of an earlier lap is seen in a slot full of ones.
    #[test]
    fn send_entries_round_trip_in_dirty_slots(
        wr_id: u64,
        flags in 0_u32..8,
        operation in operation(),
        to in datagram(),
        lengths in prop::collection::vec(0_u32..1000, 0..5),
        value: [u8; 8],
        on_ud: bool,
    ) {
        let opcode = operation.opcode();
        let transport = if on_ud && opcode.may_be_posted_on(Transport::Ud) {
            Transport::Ud
        } else {
            Transport::Rc
        };
        let mut wr = SendWr::new(wr_id, SendFlags(flags), &operation);
        if transport == Transport::Ud {
            wr.set_datagram(&to);
        }
        let sges: Vec<Sge> = lengths
            .iter()
            .map(|&length| Sge { addr: 1, length, lkey: 2 })
            .collect();
        let mut slot = vec![0xff; SendWqe::PAYLOAD + 5 * size_of::<Sge>()];
        let dma = if opcode.has_local_memory() {
            slot[SendWqe::PAYLOAD..][..sges.as_bytes().len()].copy_from_slice(sges.as_bytes());
            DmaInfo::new(lengths.iter().sum(), sges.len() as u32)
        } else {
            slot[SendWqe::PAYLOAD..][..8].copy_from_slice(&value);
            DmaInfo::new(8, 0)
        };
        let wqe = SendWqe::new(wr, operation.remote_addr(), 0, dma);
        slot[..SendWqe::PAYLOAD].copy_from_slice(wqe.as_bytes());

        let entry = SendEntry::decode(&slot, transport).unwrap();
        prop_assert_eq!(entry.wqe, wqe);
        prop_assert_eq!(entry.wqe.wr.wr_id, wr_id);
        prop_assert_eq!(entry.wqe.wr.flags(), SendFlags(flags));
        prop_assert_eq!(entry.operation, operation);
        prop_assert_eq!(entry.datagram, (transport == Transport::Ud).then_some(to));
        match entry.payload {
            Payload::Sges(list) => prop_assert_eq!(list.iter().collect::<Vec<_>>(), sges),
            Payload::Value(read) => prop_assert_eq!(read, value),
            Payload::None => prop_assert!(!opcode.has_local_memory()),
            Payload::Inline(_) => prop_assert!(false, "nothing was inline"),
        }
        prop_assert_eq!((wqe.status, wqe.state, wqe.mask, wqe.has_rd_atomic), (0, 0, 0, 0));
        prop_assert_eq!((wqe.first_psn, wqe.last_psn, wqe.ack_length), (0, 0, 0));
        prop_assert_eq!((dma.cur_sge, dma.sge_offset, dma.reserved), (0, 0, 0));
        prop_assert_eq!(dma.resid, dma.length);
    }

    #[test]
    fn any_bytes_decode_or_say_why(
        mut bytes in prop::collection::vec(any::<u8>(), 0..400),
        opcode in 0_u32..20,
    ) {
        if bytes.len() >= 16 {
            bytes[12..16].copy_from_slice(&opcode.to_ne_bytes());
        }
        for transport in [Transport::Rc, Transport::Uc, Transport::Ud] {
            match SendEntry::decode(&bytes, transport) {
                Ok(entry) => prop_assert!(!entry.to_string().is_empty()),
                Err(bad) => prop_assert!(!bad.to_string().is_empty()),
            }
        }
        if let Ok((cqe, _)) = Cqe::read_from_prefix(&bytes) {
            prop_assert!(!cqe.to_string().is_empty());
        }
        if let Ok((recv, _)) = RecvWqe::read_from_prefix(&bytes) {
            prop_assert!(!recv.to_string().is_empty());
        }
    }

    /// B29: with any header that is accepted, and any index, an entry is inside of the mapping.
    #[test]
    fn every_entry_of_an_accepted_header_is_inside(
        log2: u32,
        mask: u32,
        len in 0_usize..1 << 24,
        least in 0_usize..512,
        index: u32,
    ) {
        // The second pair is near the values that occur.
        for (log2, mask) in [(log2, mask), (log2 % 12, (1 << (mask % 16)) - 1)] {
            if let Ok(ring) = Geometry::check(log2, mask, len, least) {
                let offset = ring.offset(index);
                prop_assert!(offset >= DATA && offset + ring.elem_size() <= len);
                prop_assert!(ring.elem_size() >= least);
                prop_assert!(ring.next(index) <= mask);
            }
        }
    }

    #[test]
    fn the_next_key_keeps_the_window(rkey: u32) {
        let next = BindMw::next_rkey(rkey);
        prop_assert_eq!(next >> 8, rkey >> 8);
        prop_assert_eq!(next as u8, (rkey as u8).wrapping_add(1));
    }
}

/// B26: full ⇔ the successor of the producer is the consumer, for every pair of indices.
#[test]
fn full_and_used_for_every_pair_of_indices() {
    for mask in [0, 1, 3, 7, 63] {
        let ring = Geometry::check(6, mask, DATA + ((mask as usize + 1) << 6), 48).unwrap();
        for producer in 0..=mask {
            for consumer in 0..=mask {
                let used = (producer + mask + 1 - consumer) % (mask + 1);
                assert_eq!(ring.used(producer, consumer), used);
                assert_eq!(ring.is_full(producer, consumer), used == mask);
            }
        }
    }
}
