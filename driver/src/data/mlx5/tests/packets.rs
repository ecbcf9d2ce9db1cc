//! Raw packets.

use std::iter::once;

use super::model::{Style, wqe};
use super::*;

fn style(header: usize) -> Style {
    Style {
        kind: QueueKind::RawPacket,
        index: 0,
        fence: 0,
        header,
    }
}

fn make(header: u32) -> Make {
    let mut make = Make::new(QueueKind::RawPacket);
    make.limits.min_inline_header = header;
    make
}

/// The first 18 bytes of a packet are in the Ethernet segment, from as many pieces as it takes.
#[test]
fn headers_are_gathered() {
    let packet: Vec<u8> = (0..100).collect();
    for lengths in [
        &[100][..],
        &[18, 50],
        &[18],
        &[17, 1, 9],
        &[10, 20, 0, 5],
        &[0, 18, 3],
        &[1, 1, 1, 14, 1, 20],
    ] {
        for flags in [SendFlags::NONE, SendFlags::INLINE, SendFlags::IP_CSUM] {
            let mut at = 0;
            let sges = lengths
                .iter()
                .map(|&length| {
                    at += length;
                    of(&packet[at - length..at])
                })
                .collect();
            let mut bed = make(18).bed();
            let wr = Wr::new(WrOpcode::SEND, sges).with(flags);
            bed.queue.post(once(&wr)).unwrap();
            let expected = wqe(&wr, style(18));
            expected.check(&bed.wqe(0, expected.bytes.len()));
            assert_eq!(bed.wqe(0, 48)[30..48], packet[..18]);
        }
    }
}

/// A device that wants no header: the segment has 16 bytes; libmlx5 clears 16 more, which the next segment is written over.
#[test]
fn packets_without_inline_header() {
    let data = [9; 4];
    let mut bed = make(0).bed();
    let wr = Wr::new(WrOpcode::SEND, vec![sge(64)]);
    bed.queue.post(once(&wr)).unwrap();
    let expected = wqe(&wr, style(0));
    assert_eq!(expected.units(), 3);
    expected.check(&bed.wqe(0, 48));
    let wr = Wr::new(WrOpcode::SEND, vec![of(&data[..0])]);
    bed.queue.post(once(&wr)).unwrap();
    assert_eq!(bed.wqe(1, 64)[7], 2);
    assert_eq!(bed.wqe(1, 64)[16..48], [0; 32]);
    assert_eq!(bed.wqe(1, 64)[48..], [FILL; 16]);
}

/// Packets that are too short, or ask for what the device does not do.
#[test]
fn packets_that_are_refused() {
    let packet = [7; 18];
    let refuse = |make: Make, wr: Wr| {
        let error = make.bed().queue.post(once(&wr)).unwrap_err().error;
        (error, error.errno(Verb::PostSend).0)
    };
    for sges in [
        vec![],
        vec![of(&packet[..17])],
        vec![of(&packet[..9]), of(&packet[..8])],
    ] {
        let refused = refuse(make(18), Wr::new(WrOpcode::SEND, sges));
        assert_eq!(refused, (PostError::HeadersTooShort, libc::EINVAL));
    }
    let refused = refuse(make(0), Wr::new(WrOpcode::SEND, Vec::new()));
    assert_eq!(refused, (PostError::HeadersTooShort, libc::EINVAL));
    let mut without = make(18);
    without.limits.checksums = false;
    let wr = Wr::new(WrOpcode::SEND, vec![of(&packet)]).with(SendFlags::IP_CSUM);
    assert_eq!(refuse(without, wr), (PostError::ChecksumsOff, libc::EINVAL));
    for length in [13, 193] {
        let mut wr = Wr::new(WrOpcode::TSO, vec![sge(1)]);
        wr.header = vec![1; length];
        assert_eq!(
            refuse(make(18), wr),
            (PostError::Segmentation, libc::EINVAL)
        );
    }
    let mut wr = Wr::new(WrOpcode::TSO, vec![sge(1 << 17), sge((1 << 17) + 1)]);
    wr.header = vec![1; 54];
    assert_eq!(
        refuse(make(18), wr),
        (PostError::Segmentation, libc::EINVAL)
    );
}

/// Headers of segmented packets of every length, at every place of the ring: what follows them follows them over the ring's
/// end too (libmlx5 leaves 32 bytes there and puts the payload's pointers behind its own count of units).
#[test]
fn segmented_packets_wrap() {
    let header: Vec<u8> = (0..192).collect();
    for length in 14..=192 {
        for start in 56..64 {
            let mut bed = make(18).bed();
            bed.queue.start_at(start, start);
            let mut wr = Wr::new(WrOpcode::TSO, vec![sge(1000), sge(2000)]);
            wr.header = header[..length].to_vec();
            bed.queue.post(once(&wr)).unwrap();
            let mut style = style(0);
            style.index = start as u16;
            let expected = wqe(&wr, style);
            expected.check(&bed.wqe(start as usize, expected.bytes.len()));
            assert_eq!(bed.queue.posted_blocks(), start + expected.blocks());
        }
    }
}
