//! A work request as a string of bytes, from the positions of fields in the manual.

use super::*;

/// Bytes, and which of them matter: what the device ignores is free.
#[derive(Clone, Debug, Default)]
pub(super) struct Expected {
    pub(super) bytes: Vec<Option<u8>>,
}

impl Expected {
    fn put(&mut self, bytes: impl AsRef<[u8]>) {
        self.bytes.extend(bytes.as_ref().iter().copied().map(Some));
    }

    fn skip(&mut self, count: usize) {
        self.bytes.extend(std::iter::repeat_n(None, count));
    }

    fn pad(&mut self) {
        self.skip(self.bytes.len().next_multiple_of(16) - self.bytes.len());
    }

    pub(super) fn units(&self) -> u32 {
        (self.bytes.len() / 16) as u32
    }

    pub(super) fn blocks(&self) -> u32 {
        self.units().div_ceil(4)
    }

    /// Compares with bytes in memory.
    pub(super) fn check(&self, found: &[u8]) {
        assert_eq!(found.len(), self.bytes.len());
        for (place, (found, expected)) in found.iter().zip(&self.bytes).enumerate() {
            if let Some(expected) = expected {
                assert_eq!(found, expected, "byte {place} of {:02x?}", self.bytes);
            }
        }
    }
}

/// How a work request is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Style {
    pub(super) kind: QueueKind,
    pub(super) index: u16,
    /// Flags in the control segment besides those asked for.
    pub(super) fence: u8,
    /// Bytes of the packet in the Ethernet segment.
    pub(super) header: usize,
}

/// What libmlx5's `ibv_post_send` writes (facts: providers §5.2, oracle §4).
pub(super) fn wqe(wr: &Wr, style: Style) -> Expected {
    let mut it = Expected::default();
    let (opcode, imm) = match wr.opcode.0 {
        0 => (0x08, [0; 4]),
        1 => (0x09, wr.imm),
        2 => (0x0a, [0; 4]),
        3 => (0x0b, wr.imm),
        4 => (0x10, [0; 4]),
        5 => (0x11, [0; 4]),
        6 => (0x12, [0; 4]),
        7 => (0x25, wr.imm),
        8 => (0x25, wr.bind.old_rkey.to_be_bytes()),
        9 => (0x01, wr.imm),
        10 => (0x0e, [0; 4]),
        other => panic!("opcode {other}"),
    };
    let flag = |bit: u32, value: u8| if wr.flags.0 & bit != 0 { value } else { 0 };
    let fence = if wr.flags.0 & 1 != 0 {
        0x80
    } else {
        style.fence
    };
    let [_, a, b, c] = QPN.to_be_bytes();
    let [high, low] = style.index.to_be_bytes();
    it.put([0, high, low, opcode, a, b, c, 0, 0, 0, 0]);
    it.put([flag(2, 8) | flag(4, 2) | fence]);
    it.put(imm);
    let window = matches!(wr.opcode.0, 7 | 8);
    match style.kind {
        QueueKind::XrcSend if !window => {
            it.put(wr.srqn.to_be_bytes());
            it.put([0; 12]);
        }
        QueueKind::Ud => {
            let av: [u8; 48] = zerocopy::transmute!(wr.av);
            it.put(wr.qkey.to_be_bytes());
            it.put([0; 4]);
            it.put((wr.qpn | 1 << 31).to_be_bytes());
            it.put(&av[12..]);
        }
        _ => {}
    }
    if matches!(wr.opcode.0, 0 | 1 | 4 | 5 | 6) {
        it.put(wr.remote.addr.to_be_bytes());
        it.put(wr.remote.rkey.to_be_bytes());
        it.put([0; 4]);
    }
    match wr.opcode.0 {
        5 => {
            it.put(wr.atomic.swap.to_be_bytes());
            it.put(wr.atomic.compare_add.to_be_bytes());
        }
        6 => {
            it.put(wr.atomic.compare_add.to_be_bytes());
            it.skip(8);
        }
        7 => umr(
            &mut it,
            &Bind {
                new_rkey: 0,
                ..Bind::default()
            },
        ),
        8 => umr(&mut it, &wr.bind),
        _ => {}
    }
    // All of inline data; of a packet, the header; of other memory, nothing.
    let mut left = if wr.flags.0 & 8 != 0 {
        usize::MAX
    } else {
        style.header
    };
    let data: Vec<u8> = wr
        .sges
        .iter()
        .flat_map(|sge| {
            let taken = left.min(sge.length as usize);
            left -= taken;
            bytes_of(sge, taken)
        })
        .collect();
    let mut consumed = 0;
    if style.kind == QueueKind::RawPacket {
        let checksums = if wr.flags.0 & 16 != 0 { 0xc0 } else { 0 };
        it.put([0, 0, 0, 0, checksums, 0]);
        if wr.opcode.0 == 10 {
            it.put(wr.mss.to_be_bytes());
            it.put([0; 4]);
            it.put((wr.header.len() as u16).to_be_bytes());
            it.put(&wr.header);
            it.pad();
        } else {
            it.put([0; 6]);
            it.put((style.header as u16).to_be_bytes());
            consumed = style.header;
            it.put(&data[..consumed]);
            it.put(&[0; 2][consumed.min(2)..]);
        }
    }
    if !window {
        if wr.flags.0 & 8 != 0 {
            let data = &data[consumed..];
            if !data.is_empty() {
                it.put((data.len() as u32 | 1 << 31).to_be_bytes());
                it.put(data);
                it.pad();
            }
        } else {
            for sge in &wr.sges {
                let skipped = consumed.min(sge.length as usize) as u32;
                consumed -= skipped as usize;
                let length = sge.length - skipped;
                if length != 0 {
                    let atomic = matches!(wr.opcode.0, 5 | 6);
                    it.put(if atomic { 8 } else { length }.to_be_bytes());
                    it.put(sge.lkey.to_be_bytes());
                    it.put((sge.addr + u64::from(skipped)).to_be_bytes());
                }
            }
        }
    }
    assert!(it.bytes.len().is_multiple_of(16));
    let ds = it.units() as u8;
    it.bytes[7] = Some(ds);
    it
}

/// The segments of a bind.
fn umr(it: &mut Expected, bind: &Bind) {
    let bound = bind.length != 0;
    let mut flags = 0x80 | 0x10;
    let mut mask: u64 = 1 << 29 | 1 << 13;
    if bound {
        mask |= 1 | 1 << 6 | 1 << 18 | 1 << 19 | 1 << 20 | 1 << 21;
    }
    if !bind.type_1 {
        mask |= 1 << 14;
        flags |= if bound { 0x20 } else { 0x08 };
    }
    it.put([flags, 0, 0, 0, 0, if bound { 4 } else { 0 }, 0, 0]);
    it.put(mask.to_be_bytes());
    it.put([0; 32]);
    let access = [(1, 8), (2, 0x20), (4, 0x10), (8, 0x40)]
        .map(|(number, access)| if bind.access & number != 0 { access } else { 0 })
        .iter()
        .sum();
    let owner = if bind.type_1 || !bound {
        0xff_ffff
    } else {
        QPN
    };
    let key = owner << 8 | bind.new_rkey & 0xff;
    if bound {
        it.put([0, 0, access, 0]);
        it.put(key.to_be_bytes());
        it.put([0; 8]);
        let start = if bind.access & 0x20 != 0 {
            0
        } else {
            bind.addr
        };
        it.put(start.to_be_bytes());
        it.put(bind.length.to_be_bytes());
        it.put([0; 32]);
        it.put((bind.length as u32).to_be_bytes());
        it.put(bind.lkey.to_be_bytes());
        it.put(bind.addr.to_be_bytes());
        it.put([0; 48]);
    } else {
        it.put([0x40, 0, 0, 0]);
        it.put(key.to_be_bytes());
        it.put([0; 56]);
    }
}

fn bytes_of(sge: &Sge, count: usize) -> Vec<u8> {
    let from = InlinePiece::of_sge(sge).addr;
    let mut bytes = vec![0; count];
    // SAFETY: tests name live memory where it is read.
    unsafe { from.copy_to_nonoverlapping(bytes.as_mut_ptr(), count) };
    bytes
}
