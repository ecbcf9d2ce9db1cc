//! Doorbell registers: the first 8 bytes say which queue has new work; with BlueFlame the request itself follows.

use std::collections::BTreeMap;

use wqe_format::mlx5::{CtrlFlags, CtrlSegment, Opcode, SEND_WQE_BB};
use zerocopy::FromBytes;

/// Bytes of one register.
const REGISTER: u32 = 0x100;

/// Requests that are being copied into registers, by page and register: two processors' copies to different registers mix.
#[derive(Debug, Default)]
pub(crate) struct Copies(BTreeMap<(u32, u32), Copy>);

#[derive(Debug, Default)]
struct Copy {
    bytes: Vec<u8>,
}

/// Number of the basic block behind a request.
pub(super) type Behind = u16;

/// What a write to a register brought.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Rung {
    /// The first 8 bytes are there: this queue has work, up to and with the request of which they are the first.
    pub(super) queue: Option<(u32, Behind)>,
    /// So much of a request has been copied: whole basic blocks.
    pub(super) copy: Option<Vec<u8>>,
}

impl Copies {
    /// Takes bytes that were written.
    pub(super) fn write(&mut self, uar: u32, register: u32, bytes: &[u8]) -> Rung {
        let (name, at) = ((uar, register / REGISTER), (register % REGISTER) as usize);
        let mut copy = self.0.remove(&name).unwrap_or_default();
        if at == 0 {
            copy.bytes.clear();
        } else if copy.bytes.len() != at {
            // A copy goes up without gaps; anything else is none.
            return Rung::default();
        }
        copy.bytes.extend(bytes);
        let (before, now) = (at, copy.bytes.len());
        let mut rung = Rung::default();
        if let (true, Some(first)) = (before < 8, copy.bytes.first_chunk::<8>()) {
            let [_, i, j, _, a, b, c, ds] = *first;
            let blocks = u16::from(ds & 0x3f).div_ceil(SEND_WQE_BB as u16 / 16);
            let behind = u16::from_be_bytes([i, j]).wrapping_add(blocks);
            rung.queue = Some((u32::from_be_bytes([0, a, b, c]), behind));
        }
        if now / SEND_WQE_BB > before / SEND_WQE_BB {
            rung.copy = Some(copy.bytes[..now - now % SEND_WQE_BB].to_vec());
        }
        if now < REGISTER as usize {
            self.0.insert(name, copy);
        }
        rung
    }
}

/// Whether a NOP in memory asks for a completion only in the register: the kernel finds out in this way whether its copies
/// arrive whole (drivers/net/ethernet/mellanox/mlx5/core/wc.c). A copy that comes so late that another request has its place
/// asks for nothing: it was done long ago.
pub(crate) fn asks_only_here(copy: &[u8], memory: &[u8]) -> Option<CtrlSegment> {
    let (here, _) = CtrlSegment::read_from_prefix(copy).ok()?;
    let (there, _) = CtrlSegment::read_from_prefix(memory).ok()?;
    let asks = |ctrl: &CtrlSegment| ctrl.fm_ce_se.contains(CtrlFlags::CQ_UPDATE);
    let name = |ctrl: &CtrlSegment| (ctrl.opcode(), ctrl.index(), ctrl.qpn(), ctrl.ds());
    let is_same = here.opcode() == Opcode::NOP && name(&here) == name(&there);
    (is_same && asks(&here) && !asks(&there)).then_some(here)
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes as _;

    use super::*;

    /// Copies to two registers whose words come in turn.
    #[test]
    fn registers_do_not_mix() {
        let mut copies = Copies::default();
        for at in (0..128).step_by(8) {
            for (register, byte) in [(0x800, 1), (0x900, 2)] {
                let rung = copies.write(16, register + at, &[byte; 8]);
                let behind = u16::from(byte) * 0x101 + 1;
                let queue = (at == 0).then_some((u32::from(byte) * 0x1_0101, behind));
                let whole = at as usize + 8;
                let copy = whole.is_multiple_of(64).then(|| vec![byte; whole]);
                assert_eq!(rung, Rung { queue, copy });
            }
        }
    }

    /// The kernel's NOP asks in its copy; a NOP whose place another request has taken since does not.
    #[test]
    fn a_late_copy_asks_for_nothing() {
        let request = |opcode, index, flags| {
            let ctrl = CtrlSegment::new(opcode, index, 0x41, 1, flags);
            ctrl.as_bytes().to_vec()
        };
        let nop = |index, flags| request(Opcode::NOP, index, flags);
        let (asks, silent) = (CtrlFlags::CQ_UPDATE, CtrlFlags::NONE);
        let copy = nop(5, asks);
        assert!(asks_only_here(&copy, &nop(5, silent)).is_some());
        assert!(asks_only_here(&copy, &nop(5, asks)).is_none());
        assert!(asks_only_here(&copy, &nop(5 + 16, silent)).is_none());
        assert!(asks_only_here(&copy, &request(Opcode::SEND, 5 + 16, silent)).is_none());
        assert!(asks_only_here(&nop(5, silent), &nop(5, silent)).is_none());
    }

    /// Two words of 4 bytes ring once; words in the wrong order never.
    #[test]
    fn halves_ring_once() {
        let mut copies = Copies::default();
        let five = Rung {
            queue: Some((5, 0x0103)),
            copy: None,
        };
        assert_eq!(copies.write(1, 0x800, &[0, 1, 2, 10]), Rung::default());
        assert_eq!(copies.write(1, 0x804, &[0, 0, 5, 4]), five);
        assert_eq!(copies.write(1, 0x810, &[0; 8]), Rung::default());
        assert_eq!(copies.write(1, 0x808, &[0; 8]), Rung::default());
        let all = copies.write(1, 0x900, &[7; 64]);
        assert_eq!(all.queue, Some((0x7_0707, 0x0709)));
        assert_eq!(all.copy, Some(vec![7; 64]));
    }
}
