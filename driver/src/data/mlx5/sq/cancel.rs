//! Canceling what is posted and not executed yet (`mlx5dv_qp_cancel_posted_send_wrs`).

use wqe_format::mlx5::{CtrlSegment, Opcode};
use zerocopy::byteorder::big_endian::U32;

use super::super::record::{WorkKind, WorkRecord};
use super::SendQueue;

impl SendQueue {
    /// Makes every work request with this number, from block `next` on, one that does nothing; says how many. They complete
    /// in their turn, with the opcode that they had.
    ///
    /// `next` is the device's counter of blocks (`hw_sq_wqebb_counter` of the queue pair's context).
    ///
    /// # Safety
    ///
    /// The device reads no work request meanwhile: the queue pair is drained (SQD).
    pub unsafe fn cancel(&mut self, next: u16, wr_id: u64) -> u32 {
        let left = (self.blocks as u16).wrapping_sub(next);
        if u32::from(left) > self.ring.wqebbs() {
            return 0;
        }
        let shared = self.shared();
        let mut at = self.blocks.wrapping_sub(left.into());
        let mut canceled = 0;
        let mut head = None;
        while at != self.blocks {
            let record = shared.record(at);
            // Of a block in the midst of a work request, the record is of an earlier lap.
            if head.is_none_or(|head| record.head == head) {
                head = Some(record.head.wrapping_add(1));
                if record.wr_id == wr_id {
                    self.make_nop(at, record);
                    canceled += 1;
                }
            }
            at = at.wrapping_add(1);
        }
        canceled
    }

    fn make_nop(&self, at: u32, record: WorkRecord) {
        let first = self.ring.block(at).cast::<U32>();
        // The index stays.
        let word = CtrlSegment::new(Opcode::NOP, at as u16, 0, 0, Default::default())
            .opmod_idx_opcode
            .into_bits();
        // SAFETY: the first word of a posted work request, which the device does not read now by the caller's promise.
        unsafe { first.write(word) };
        let kind = match record.kind {
            WorkKind::Plain => WorkKind::Canceled,
            kind => kind,
        };
        let record = WorkRecord { kind, ..record };
        self.shared().set_record(at, record);
    }
}
