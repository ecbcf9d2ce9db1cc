//! Canceling what is posted and not executed yet (`mlx5dv_qp_cancel_posted_send_wrs`).

use wqe_format::mlx5::{CtrlSegment, Opcode};
use zerocopy::byteorder::big_endian::U32;

use super::super::record::{WorkKind, WorkRecord};
use super::{BLOCK_UNITS, SendQueue};

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
        let mut left = u32::from(left);
        let mut canceled = 0;
        while left != 0 {
            let at = self.blocks.wrapping_sub(left);
            let record = shared.record(at);
            if record.wr_id == wr_id {
                self.make_nop(at, record);
                canceled += 1;
            }
            left = left.saturating_sub(self.blocks_of(at));
        }
        canceled
    }

    /// Blocks of the work request that begins at one. It says so itself: records do not, as the blocks in its midst may have
    /// those of a batch that was abandoned, whose numbers are of the same time.
    fn blocks_of(&self, at: u32) -> u32 {
        let first = self.ring.block(at).cast::<CtrlSegment>();
        // SAFETY: a posted work request's control segment, which the device does not write.
        let ctrl = unsafe { first.read() };
        u32::from(ctrl.ds()).div_ceil(BLOCK_UNITS).max(1)
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
