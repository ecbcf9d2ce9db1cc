//! Requests and completions of mlx5: what is encoded is read back, in dirty memory and for every kind; any bytes are read
//! without panic.

use proptest::collection::vec;
use proptest::prelude::*;
use wqe_format::mlx5::request::{Segment, SendRequest, Service, scatter_list};
use wqe_format::mlx5::*;
use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Builds a request in memory that was used before.
struct Builder {
    bytes: Vec<u8>,
}

impl Builder {
    fn new() -> Self {
        Self {
            bytes: vec![0; DS_UNIT],
        }
    }

    fn add(mut self, segment: &(impl IntoBytes + Immutable)) -> Self {
        self.bytes.extend_from_slice(segment.as_bytes());
        self
    }

    fn inline(mut self, data: &[u8]) -> Self {
        self.bytes
            .extend_from_slice(InlineHeader::of_length(data.len() as u32).as_bytes());
        self.bytes.extend_from_slice(data);
        // libmlx5 leaves what was there behind the data.
        let end = self.bytes.len().next_multiple_of(DS_UNIT);
        self.bytes.resize(end, 0xee);
        self
    }

    fn raw(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// The request in a dirty slot: other bytes follow it.
    fn finish(mut self, opcode: Opcode, opmod: u8) -> Vec<u8> {
        let ds = self.bytes.len() / DS_UNIT;
        assert_eq!(ds * DS_UNIT, self.bytes.len());
        assert!(ds <= usize::from(CtrlSegment::MAX_DS));
        let ctrl = CtrlSegment::new(opcode, 0x1234, 0x80_0001, ds as u8, CtrlFlags::CQ_UPDATE)
            .with_opmod(opmod);
        self.bytes[..DS_UNIT].copy_from_slice(ctrl.as_bytes());
        self.bytes.extend_from_slice(&[0xee; 100]);
        self.bytes
    }
}

fn segments<'a>(request: &'a [u8], service: Service) -> Vec<Segment<'a>> {
    let request = SendRequest::new(request).expect("a request");
    assert!(!request.is_truncated());
    request.segments(service).collect()
}

const RADDR: RaddrSegment = RaddrSegment::new(0xfedc_ba98_7654_3210, 0x9a_bc01);
const DATA: DataSegment = DataSegment::new(0x7f00_0000_1000, 0x7fff_ffff, 0x4201);

#[test]
fn plain_requests() {
    let send = Builder::new().add(&DATA).add(&DATA).finish(Opcode::SEND, 0);
    assert_eq!(
        segments(&send, Service::Connected),
        [Segment::Data(DATA), Segment::Data(DATA)]
    );
    for opcode in [
        Opcode::RDMA_WRITE,
        Opcode::RDMA_WRITE_IMM,
        Opcode::RDMA_READ,
    ] {
        let rdma = Builder::new().add(&RADDR).add(&DATA).finish(opcode, 0);
        assert_eq!(
            segments(&rdma, Service::Connected),
            [Segment::Raddr(RADDR), Segment::Data(DATA)]
        );
    }
    let empty = Builder::new().finish(Opcode::SEND, 0);
    assert_eq!(segments(&empty, Service::Connected), []);
    assert_eq!(SendRequest::new(&empty).unwrap().ring_len(), 64);
    let nop = Builder::new().finish(Opcode::NOP, 0);
    assert_eq!(segments(&nop, Service::Connected), []);
}

/// B03: inline data of every length up to what 63 units hold.
#[test]
fn inline_data_of_every_length() {
    for length in 1..=956usize {
        let data: Vec<u8> = (0..length).map(|i| i as u8).collect();
        let request = Builder::new()
            .add(&RADDR)
            .inline(&data)
            .finish(Opcode::RDMA_WRITE, 0);
        let units = 2 + InlineHeader::units(length as u32);
        let read = SendRequest::new(&request).unwrap();
        assert_eq!(u32::from(read.ctrl().ds()), units);
        assert_eq!(
            segments(&request, Service::Connected),
            [Segment::Raddr(RADDR), Segment::Inline(&data)]
        );
    }
    // 44 bytes: a header of 0x8000002c, 3 units.
    assert_eq!(
        InlineHeader::of_length(44).into_bits(),
        U32::new(0x8000_002c)
    );
    assert_eq!(InlineHeader::units(44), 3);
    assert_eq!(InlineHeader::units(12), 1);
    assert_eq!(InlineHeader::units(13), 2);
    assert_eq!(InlineHeader::units(u32::MAX), (1 << 28) + 1);
}

#[test]
fn atomics_and_masked_atomics() {
    let after =
        |segment: Segment<'static>| vec![Segment::Raddr(RADDR), segment, Segment::Data(DATA)];
    let cas = AtomicSegment::compare_swap(1, 2);
    let cas8 = MaskedAtomic8Segment::new(1, 2, 3, 4);
    let cas4 = MaskedAtomic4Segment::new(1, 2, 3, 4);
    let add8 = MaskedFetchAdd8Segment::new(1, 1 << 31);
    let add4 = MaskedFetchAdd4Segment::new(1, 1 << 15);
    let start = || Builder::new().add(&RADDR);
    for opcode in [Opcode::ATOMIC_CS, Opcode::ATOMIC_FA] {
        let request = start().add(&cas).add(&DATA).finish(opcode, 0);
        assert_eq!(
            segments(&request, Service::Connected),
            after(Segment::Atomic(cas))
        );
    }
    let request = start()
        .add(&cas8)
        .add(&DATA)
        .finish(Opcode::ATOMIC_MASKED_CS, opmod::EXTENDED_ATOMIC_8);
    assert_eq!(
        segments(&request, Service::Connected),
        after(Segment::MaskedAtomic8(cas8))
    );
    let request = start()
        .add(&cas4)
        .add(&DATA)
        .finish(Opcode::ATOMIC_MASKED_CS, opmod::EXTENDED_ATOMIC_4);
    assert_eq!(
        segments(&request, Service::Connected),
        after(Segment::MaskedAtomic4(cas4))
    );
    let request = start()
        .add(&add8)
        .add(&DATA)
        .finish(Opcode::ATOMIC_MASKED_FA, opmod::EXTENDED_ATOMIC_8);
    assert_eq!(
        segments(&request, Service::Connected),
        after(Segment::MaskedFetchAdd8(add8))
    );
    let request = start()
        .add(&add4)
        .add(&DATA)
        .finish(Opcode::ATOMIC_MASKED_FA, opmod::EXTENDED_ATOMIC_4);
    assert_eq!(
        segments(&request, Service::Connected),
        after(Segment::MaskedFetchAdd4(add4))
    );
}

#[test]
fn addresses_and_shared_queues() {
    let address = DatagramSegment::default().to_qp(0x12_3456, 0x1111_1111);
    assert_eq!(address.qkey(), 0x1111_1111);
    let request = Builder::new()
        .add(&address)
        .add(&DATA)
        .finish(Opcode::SEND, 0);
    assert_eq!(Service::guess(&request), Service::Datagram);
    assert_eq!(
        segments(&request, Service::Datagram),
        [Segment::Datagram(address), Segment::Data(DATA)]
    );
    // The short form: Q_Key, destination without the mark, service level, LID (mlx5dv.h `mlx5_wqe_av` up to `rlid`).
    let short: [u8; 16] = [
        0x11, 0x11, 0x11, 0x11, 0, 0, 0, 0, 0, 0x12, 0x34, 0x56, 0x03, 0, 0, 7,
    ];
    let request = Builder::new()
        .add(&short)
        .add(&DATA)
        .finish(Opcode::SEND, 0);
    let [Segment::Datagram(found), Segment::Data(DATA)] = segments(&request, Service::Datagram)[..]
    else {
        panic!("{:?}", segments(&request, Service::Datagram));
    };
    assert_eq!(
        (found.qkey(), found.dqp_dct.qpn()),
        (0x1111_1111, 0x12_3456)
    );
    assert_eq!((found.stat_rate_sl.sl(), found.rlid.get()), (3, 7));
    assert!(!found.grh_gid_fl.grh() && found.rgid == [0; 16]);
    let xrc = XrcSegment::new(0x42);
    let request = Builder::new()
        .add(&xrc)
        .add(&RADDR)
        .add(&DATA)
        .finish(Opcode::RDMA_WRITE, 0);
    assert_eq!(Service::guess(&request), Service::Xrc);
    assert_eq!(
        segments(&request, Service::Xrc),
        [
            Segment::Xrc(xrc),
            Segment::Raddr(RADDR),
            Segment::Data(DATA)
        ]
    );
    let request = Builder::new().add(&DATA).finish(Opcode::SEND, 0);
    assert_eq!(Service::guess(&request), Service::Connected);
}

#[test]
fn ethernet_with_headers_of_every_length() {
    for length in 0..=200usize {
        let header: Vec<u8> = (0..length).map(|i| i as u8 + 1).collect();
        let mut eth = EthSegment::new(ChecksumFlags::L3_AND_L4, 1460, length as u16)
            .as_bytes()
            .to_vec();
        eth.truncate(EthSegment::INLINE_HEADER_OFFSET);
        eth.extend_from_slice(&header);
        eth.resize(eth.len().next_multiple_of(DS_UNIT), 0);
        let request = Builder::new().raw(&eth).add(&DATA).finish(Opcode::TSO, 0);
        assert_eq!(Service::guess(&request), Service::RawEthernet);
        let read = segments(&request, Service::RawEthernet);
        assert_eq!(read.len(), 2, "{length}");
        let Segment::Eth(eth, bytes) = read[0] else {
            panic!("{length}: {:?}", read[0]);
        };
        assert_eq!(bytes, header, "{length}");
        assert_eq!(eth.mss.get(), 1460);
        assert_eq!(read[1], Segment::Data(DATA));
    }
}

/// Several packets in one request: an Ethernet segment, then a data segment or inline data for each.
#[test]
fn several_packets_in_one_request() {
    let eth = EthSegment::new(ChecksumFlags::NONE, 0, 0);
    let request = Builder::new()
        .raw(&eth.as_bytes()[..16])
        .add(&DATA)
        .inline(&[7; 60])
        .add(&DATA)
        .finish(Opcode::ENHANCED_MPSW, 0);
    let read = segments(&request, Service::guess(&request));
    assert!(matches!(read[0], Segment::Eth(_, [])));
    assert_eq!(
        read[1..],
        [
            Segment::Data(DATA),
            Segment::Inline(&[7; 60]),
            Segment::Data(DATA)
        ]
    );
}

#[test]
fn keys_and_their_layouts() {
    let klm = KlmSegment::new(0x1000, 4096, 0x51);
    let mask = MkeyMask::LEN.with(MkeyMask::FREE);
    let inline = UmrCtrlSegment::new(UmrFlags::INLINE, 4, mask);
    let context = MkeyContextSegment::new(MkeyAccess::REMOTE_READ, 7, 0x55, 0x1000, 4096);
    // A window: one entry, three of padding.
    let request = Builder::new()
        .add(&inline)
        .add(&context)
        .add(&klm)
        .raw(&[0; 48])
        .finish(Opcode::UMR, 0);
    let bind = [
        Segment::UmrCtrl(inline),
        Segment::MkeyContext(context),
        Segment::Klm(klm),
        Segment::Padding(48),
    ];
    assert_eq!(segments(&request, Service::guess(&request)), bind);
    // An invalidation: no layout at all.
    let free = UmrCtrlSegment::new(UmrFlags::CHECK_QPN, 0, MkeyMask::FREE);
    let request = Builder::new()
        .add(&free)
        .add(&MkeyContextSegment::FREED)
        .finish(Opcode::UMR, 0);
    assert_eq!(
        segments(&request, Service::Connected),
        [
            Segment::UmrCtrl(free),
            Segment::MkeyContext(MkeyContextSegment::FREED)
        ]
    );
    // A layout in memory: a pointer to it.
    let pointer = UmrCtrlSegment::new(UmrFlags::NONE, 100, mask);
    let request = Builder::new()
        .add(&pointer)
        .add(&context)
        .add(&DATA)
        .finish(Opcode::UMR, 0);
    assert_eq!(
        segments(&request, Service::Connected),
        [
            Segment::UmrCtrl(pointer),
            Segment::MkeyContext(context),
            Segment::Data(DATA)
        ]
    );
    // A repeating layout with a signature and encryption behind it.
    let mut signed = UmrCtrlSegment::new(UmrFlags::INLINE, 4, mask);
    signed.bsf_octowords = 8.into();
    let head = RepeatBlockSegment::new(12, 100, 2);
    let entry = RepeatEntrySegment::new(0x3000, 8, 64, 0x62);
    let bsf = BsfSegment {
        bsf_size_sbs: 2 << 6 | 1 << 4,
        ..BsfSegment::default()
    };
    let crypto = CryptoBsfSegment {
        bsf_size_type: 2 << 6 | 1,
        rsvd_dek_ptr: U32::new(0x77),
        ..CryptoBsfSegment::default()
    };
    let request = Builder::new()
        .add(&signed)
        .add(&context)
        .add(&head)
        .add(&entry)
        .add(&entry)
        .raw(&[0; 16])
        .add(&bsf)
        .add(&crypto)
        .finish(Opcode::UMR, 0);
    assert_eq!(
        segments(&request, Service::Connected),
        [
            Segment::UmrCtrl(signed),
            Segment::MkeyContext(context),
            Segment::RepeatBlock(head),
            Segment::RepeatEntry(entry),
            Segment::RepeatEntry(entry),
            Segment::Padding(16),
            Segment::Bsf(bsf),
            Segment::CryptoBsf(crypto),
        ]
    );
}

#[test]
fn requests_that_are_only_read() {
    let psv = SetPsvSegment {
        psv_index: U32::new(5),
        ..SetPsvSegment::default()
    };
    let request = Builder::new().add(&psv).finish(Opcode::SET_PSV, 0);
    assert_eq!(
        segments(&request, Service::Connected),
        [Segment::SetPsv(psv)]
    );
    let request = Builder::new().add(&DATA).finish(Opcode::DUMP, 0);
    assert_eq!(
        segments(&request, Service::Connected),
        [Segment::Data(DATA)]
    );
    let mmo = MmoSegment::new(0x2000, 0x51);
    let request = Builder::new()
        .add(&mmo)
        .add(&DATA)
        .add(&DATA)
        .finish(Opcode::MMO, opmod::MMO_DMA);
    assert_eq!(
        segments(&request, Service::Connected),
        [Segment::Mmo(mmo), Segment::Data(DATA), Segment::Data(DATA)]
    );
    let tag = TagSegment {
        opcode: TagSegment::APPEND,
        append_tag: U64::new(0x1234),
        ..TagSegment::default()
    };
    let request = Builder::new()
        .add(&tag)
        .add(&DATA)
        .finish(Opcode::TAG_MATCHING, 0);
    assert_eq!(
        segments(&request, Service::Connected),
        [Segment::Tag(tag), Segment::Data(DATA)]
    );
    let request = Builder::new().raw(&[1; 32]).finish(Opcode(0x77), 0);
    assert_eq!(
        segments(&request, Service::Connected),
        [Segment::Unknown(&[1; 32])]
    );
}

/// B20: a scatter list ends at its terminator or with the slot.
#[test]
fn scatter_lists() {
    let one = DataSegment::new(0x1000, 100, 7);
    let mut slot = [0xff; 64];
    slot[..16].copy_from_slice(one.as_bytes());
    slot[16..32].copy_from_slice(one.as_bytes());
    slot[32..48].copy_from_slice(DataSegment::TERMINATOR.as_bytes());
    assert_eq!(scatter_list(&slot).collect::<Vec<_>>(), [one, one]);
    let full: Vec<u8> = one.as_bytes().repeat(4);
    assert_eq!(scatter_list(&full).count(), 4);
    slot[..16].copy_from_slice(DataSegment::TERMINATOR.as_bytes());
    assert_eq!(scatter_list(&slot).count(), 0);
}

/// B21: no length makes a pointer read as inline data.
#[test]
fn lengths_keep_out_of_the_mark() {
    for length in [0x4000_0000, 0x7fff_ffff, 0x8000_0000, 0x8000_0001, u32::MAX] {
        let segment = DataSegment::new(1, length, 2);
        assert!(!segment.is_inline());
        assert_eq!(segment.byte_count.get(), length & MAX_BYTE_COUNT);
    }
}

/// The words of a segment are its bytes.
fn check_unit<T: IntoBytes + Immutable + Into<Unit> + Copy>(segment: T) {
    let unit: Unit = segment.into();
    assert_eq!(unit.as_bytes(), segment.as_bytes());
}

proptest! {
    #[test]
    fn units_are_the_bytes(bytes: [u8; 16]) {
        check_unit(CtrlSegment::read_from_bytes(&bytes).unwrap());
        check_unit(RaddrSegment::read_from_bytes(&bytes).unwrap());
        check_unit(DataSegment::read_from_bytes(&bytes).unwrap());
        check_unit(AtomicSegment::read_from_bytes(&bytes).unwrap());
        check_unit(KlmSegment::read_from_bytes(&bytes).unwrap());
        check_unit(MmoSegment::read_from_bytes(&bytes).unwrap());
        check_unit(MaskedAtomic4Segment::read_from_bytes(&bytes).unwrap());
        check_unit(RepeatEntrySegment::read_from_bytes(&bytes).unwrap());
        let [a, b, c, d, e, ..] = bytes;
        check_unit(XrcSegment::new(u32::from_be_bytes([a, b, c, d])));
        check_unit(SrqNextSegment { signature: e, ..SrqNextSegment::new(u16::from_be_bytes([a, b])) });
    }

    /// B52: fields of the control segment, masked and never mixed.
    #[test]
    fn control_segments_keep_their_fields(
        opcode: u8, opmod: u8, index: u16, qpn: u32, ds: u8, flags: u8, imm: u32, stream: u16, signature: u8,
    ) {
        let ctrl = CtrlSegment::new(Opcode(opcode), index, qpn, ds, CtrlFlags(flags))
            .with_opmod(opmod)
            .with_imm(U32::new(imm))
            .with_dci_stream(stream)
            .with_signature(signature);
        let ctrl = CtrlSegment::read_from_bytes(ctrl.as_bytes()).unwrap();
        prop_assert_eq!(ctrl.opcode(), Opcode(opcode));
        prop_assert_eq!(ctrl.opmod(), opmod);
        prop_assert_eq!(ctrl.index(), index);
        prop_assert_eq!(ctrl.qpn(), qpn & 0xff_ffff);
        prop_assert_eq!(ctrl.ds(), ds & 63);
        prop_assert_eq!(ctrl.fm_ce_se, CtrlFlags(flags));
        prop_assert_eq!(ctrl.imm.get(), imm);
        prop_assert_eq!(ctrl.signature, signature);
        prop_assert_eq!(ctrl.opmod_idx_opcode.opcode(), opcode);
        prop_assert_eq!(ctrl.opmod_idx_opcode.index(), index);
        prop_assert_eq!(ctrl.opmod_idx_opcode.opmod(), opmod);
        prop_assert_eq!(ctrl.qpn_ds.qpn(), qpn & 0xff_ffff);
        prop_assert_eq!(ctrl.qpn_ds.ds(), ds & 63);
        prop_assert_eq!(&ctrl.doorbell().to_ne_bytes()[..], &ctrl.as_bytes()[..8]);
    }

    /// Fields of an address, masked and never mixed.
    #[test]
    fn addresses_keep_their_fields(qpn: u32, qkey: u32, key: u64, label: u32) {
        let ud = DatagramSegment::default().to_qp(qpn, qkey);
        prop_assert_eq!(ud.dqp_dct.qpn(), qpn & 0xff_ffff);
        prop_assert!(ud.dqp_dct.extended());
        prop_assert_eq!(ud.qkey(), qkey);
        prop_assert_eq!(&ud.as_bytes()[4..8], &[0; 4]);
        let dc = DatagramSegment::default().to_dct(qpn, key);
        prop_assert_eq!(dc.key.get(), key);
        let port = udp_source_port(label);
        prop_assert!(port >= 0xc000);
        let folded = (label & 0x3fff) ^ ((label & 0xf_c000) >> 14);
        prop_assert_eq!(u32::from(port), 0xc000 | folded);
    }

    /// The owner bit, at every size and index.
    #[test]
    fn ownership_follows_the_turn(index: u32, log_size in 0u32..=31, bits: u8) {
        let op_own = OpOwn::from_bits(bits);
        let expected = bits >> 4 != 15 && u32::from(bits & 1) == (index >> log_size) & 1;
        prop_assert_eq!(op_own.is_software_owned(index, log_size), expected);
    }

    /// Any bytes are a completion: every accessor and its words, without panic.
    #[test]
    fn any_completion_is_read(bytes in vec(any::<u8>(), 64)) {
        let cqe = Cqe64::read_from_bytes(&bytes).unwrap();
        prop_assert_eq!(cqe.as_bytes(), &bytes[..]);
        prop_assert!(!cqe.to_string().is_empty());
        prop_assert_eq!(cqe.user_index(), u32::from_be_bytes(bytes[32..36].try_into().unwrap()) & 0xff_ffff);
        prop_assert_eq!(cqe.qpn(), u32::from_be_bytes(bytes[56..60].try_into().unwrap()) & 0xff_ffff);
        prop_assert_eq!(cqe.send_opcode().0, bytes[56]);
        prop_assert_eq!(cqe.src_qp(), cqe.flags_rqpn.rqpn());
        prop_assert_eq!(cqe.sl(), cqe.flags_rqpn.sl());
        prop_assert_eq!(cqe.has_grh(), cqe.flags_rqpn.grh() != 0);
        prop_assert!(cqe.inline_32() == bytes[..32]);
        prop_assert_eq!(cqe.is_ip_checksum_ok(), cqe.hds_ip_ext.l3_ok() && cqe.hds_ip_ext.l4_ok() && cqe.l4_hdr_type_etc.l3() == L3_IPV4);
        let (_, _, error) = (cqe.wc_status(), cqe.tag_state(), cqe.as_error());
        prop_assert_eq!(error.as_bytes(), &bytes[..]);
        prop_assert!(!error.likely_cause().meaning.is_empty());
        prop_assert_eq!(error.syndrome.0, bytes[55]);
    }

    /// Any bytes are read as a request of any service: no panic, no endless loop, not a byte twice or left out.
    #[test]
    fn any_request_is_read(mut bytes in vec(any::<u8>(), 0..1100), known in prop::option::of(0usize..Opcode::ALL.len()), ds in 0u8..=63) {
        if let (Some(known), true) = (known, bytes.len() >= 16) {
            bytes[3] = Opcode::ALL[known].0;
            bytes[7] = ds;
        }
        let guess = Service::guess(&bytes);
        let Some(request) = SendRequest::new(&bytes) else { return Ok(()) };
        prop_assert!(request.body().len() + 16 <= request.len());
        for service in [guess, Service::Connected, Service::Datagram, Service::Xrc, Service::RawEthernet] {
            let mut seen = 0;
            for segment in request.segments(service) {
                prop_assert!(!segment.to_string().is_empty());
                seen += 1;
                prop_assert!(seen <= 64);
            }
        }
        prop_assert!(!request.ctrl().to_string().is_empty());
    }
}
