//! Entries about tags: messages that met one or none, and changes of a list.

use wqe_format::mlx5::{Cqe64, CqeOpcode, tag_operation};

use super::CompletionQueue;
use super::batch::Taken;
use super::completion::{Completion, flag, opcode};
use super::parse::{self, TAG_MATCHING};
use super::ring::Entry;

/// Whether an entry that is no error is about tags.
#[inline]
pub(super) fn is_tagged(cqe: &Cqe64) -> bool {
    let kind = cqe.opcode();
    cqe.app == TAG_MATCHING && (kind == CqeOpcode::NO_PACKET || kind.is_responder())
}

impl CompletionQueue {
    /// Takes an entry about tags for polling into an array, whose elements have no place for a message's tag and private
    /// data: [`start_poll`](Self::start_poll) gives those too. Drops all other entries.
    ///
    /// # Safety
    ///
    /// A visit has begun; the entry is ours and no error. `out` is valid for a write.
    #[cold]
    #[inline(never)]
    pub(super) unsafe fn take_tagged<const V1: bool>(
        &mut self,
        entry: Entry,
        out: *mut Completion,
    ) -> Taken {
        let cqe = entry.get();
        if !is_tagged(&cqe) {
            return self.drop_entry();
        }
        let data = self.inline_data(entry, cqe.byte_cnt.get());
        let finders = self.readers.finders();
        // SAFETY: passed on.
        let Some((_, done)) = (unsafe { parse::complete_tagged::<V1>(finders, entry, data) })
        else {
            return self.drop_entry();
        };
        let kind = parse::receive_kind(entry.op_own());
        let mut flags = kind.flags | tag_flags(&cqe);
        if cqe.has_grh() {
            flags |= flag::GRH;
        }
        if done.wants_sync {
            flags |= flag::TM_SYNC_REQ;
        }
        let completion = Completion {
            wr_id: done.wr_id,
            status: done.status.0,
            opcode: match cqe.opcode() {
                CqeOpcode::RESP_WR_IMM => kind.opcode,
                _ => tag_opcode(&cqe),
            },
            byte_len: cqe.byte_cnt.get(),
            imm_or_rkey: kind.imm_or_rkey(cqe.imm_inval_pkey.get()),
            qp_num: cqe.qpn(),
            wc_flags: flags,
            ..Completion::default()
        };
        // SAFETY: the caller's place.
        unsafe { out.write(completion) };
        Taken::Completion
    }
}

/// `enum ibv_wc_opcode` of an entry about tags (rdma-core providers/mlx5/cq.c `mlx5_cq_read_wc_opcode`).
#[cold]
pub(super) fn tag_opcode(cqe: &Cqe64) -> u32 {
    if cqe.opcode() == CqeOpcode::NO_PACKET {
        return match cqe.app_op {
            tag_operation::REMOVE => opcode::TM_DEL,
            tag_operation::APPEND => opcode::TM_ADD,
            tag_operation::NOOP => opcode::TM_SYNC,
            tag_operation::CONSUMED => opcode::TM_RECV,
            _ => 0,
        };
    }
    match cqe.app_op {
        tag_operation::CONSUMED_MSG_SW_RNDV
        | tag_operation::CONSUMED_MSG
        | tag_operation::CONSUMED_SW_RNDV
        | tag_operation::EXPECTED
        | tag_operation::UNEXPECTED => opcode::TM_RECV,
        tag_operation::NO_TAG => opcode::TM_NO_TAG,
        _ => opcode::RECV,
    }
}

/// `enum ibv_wc_flags` of an entry about tags (`mlx5_cq_read_wc_flags`).
#[cold]
pub(super) fn tag_flags(cqe: &Cqe64) -> u32 {
    match cqe.app_op {
        tag_operation::CONSUMED_MSG_SW_RNDV
        | tag_operation::CONSUMED_MSG
        | tag_operation::MSG_COMPLETION_CANCELED => flag::TM_MATCH | flag::TM_DATA_VALID,
        tag_operation::CONSUMED_SW_RNDV | tag_operation::CONSUMED => flag::TM_MATCH,
        tag_operation::EXPECTED => flag::TM_DATA_VALID,
        _ => 0,
    }
}
