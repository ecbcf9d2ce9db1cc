//! Changes of a list of tags: the only work requests of the queue pair that serves it.

use wqe_format::mlx5::{CtrlFlags, CtrlSegment, DataSegment, Opcode, TagSegment};

use super::super::error::PostError;
use super::super::record::WorkKind;
use super::super::ring::{Cursor, unit, units};
use super::{BLOCK_UNITS, Position, SendQueue};

/// Changes that are written and not given to the device yet.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Changes {
    position: Position,
    ds: u32,
}

impl SendQueue {
    /// Begins a batch of changes; `done` work requests are complete as their completions said, which name none.
    pub(in super::super) fn begin_changes(&mut self, done: u32) -> Changes {
        let shared = self.shared();
        // An error completion may have said more.
        if done.wrapping_sub(shared.tail()) as i32 > 0 {
            shared.complete(done);
        }
        Changes {
            position: Position {
                fence: CtrlFlags::NONE,
                ..self.position()
            },
            ds: 0,
        }
    }

    /// Whether another change fits.
    pub(in super::super) fn room_for_change(&self, changes: &Changes) -> Result<(), PostError> {
        self.look_for_room(changes.position.head).map(drop)
    }

    /// Writes one, for which there is room: one block each. Says what the queue's tail is once it is complete.
    pub(in super::super) fn put_change(
        &self,
        changes: &mut Changes,
        segment: TagSegment,
        data: Option<DataSegment>,
    ) -> u32 {
        let blocks = changes.position.blocks;
        let ds = 3 + u32::from(data.is_some());
        const { assert!(3 < BLOCK_UNITS) };
        let mut cursor = Cursor::behind_ctrl(blocks);
        let [first, second]: [_; 2] = units(segment);
        for part in [first, second].into_iter().chain(data.map(unit)) {
            // SAFETY: within the block, which is free.
            unsafe { cursor.put(&self.ring, part) };
        }
        let ctrl = CtrlSegment::new(
            Opcode::TAG_MATCHING,
            blocks as u16,
            self.qpn,
            ds as u8,
            CtrlFlags::NONE,
        );
        // SAFETY: the block's first unit.
        unsafe { self.ring.block(blocks).write(unit(ctrl)) };
        let opcode = Opcode::TAG_MATCHING.0;
        self.finish(&mut changes.position, ds, 0, opcode, WorkKind::Plain);
        changes.ds = ds;
        changes.position.head
    }

    /// Gives a batch to the device; says how many changes.
    pub(in super::super) fn end_changes(&mut self, changes: Changes) -> u32 {
        let count = changes.position.head.wrapping_sub(self.head);
        if count != 0 {
            let last = self.last_before(changes.position.blocks, changes.ds, false);
            self.announce(changes.position, last);
        }
        count
    }
}
