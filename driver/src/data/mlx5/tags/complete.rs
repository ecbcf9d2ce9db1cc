//! What completions about tags mean for the list.

use std::ptr::NonNull;

use wqe_format::mlx5::{Cqe64, tag_operation};
use wqe_format::rxe::WcStatus;

use super::{MAX_LAG, State, TagList};

/// What a completion about tags comes to.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct TagCompletion {
    pub(in super::super) wr_id: u64,
    pub(in super::super) status: WcStatus,
    /// Whether the device is to be told of messages that met no tag (`IBV_WC_TM_SYNC_REQ`).
    pub(in super::super) wants_sync: bool,
}

impl TagCompletion {
    const fn of(wr_id: u64, status: WcStatus) -> Self {
        Self {
            wr_id,
            status,
            wants_sync: false,
        }
    }

    /// The device speaks of what is not there.
    const UNKNOWN: Self = Self::of(0, WcStatus::GENERAL_ERR);
}

/// A message's data that came in the completion, and how many there are as it says.
#[derive(Clone, Copy)]
pub(in super::super) struct InCompletion {
    pub(in super::super) at: NonNull<u8>,
    pub(in super::super) room: u32,
    pub(in super::super) length: u32,
}

impl TagList {
    /// Whether a completion about tags used up an entry of the shared receive queue.
    pub(in super::super) fn is_of_receive(cqe: &Cqe64) -> bool {
        matches!(
            cqe.app_op,
            tag_operation::UNEXPECTED | tag_operation::NO_TAG
        )
    }

    /// A message met no tag, and is in an entry of the shared receive queue.
    pub(in super::super) fn took_unexpected(&self, cqe: &Cqe64) -> bool {
        if cqe.app_op != tag_operation::UNEXPECTED {
            return false;
        }
        self.with(|state| {
            state.unexpected = state.unexpected.wrapping_add(1);
            state.unexpected.wrapping_sub(state.told) as i32 > MAX_LAG
        })
    }

    /// All other completions about tags; `None` if there is no such operation.
    ///
    /// # Safety
    ///
    /// The data are readable for `room` bytes. The buffer of a tag is the program's to write to, as posting it promised.
    pub(in super::super) unsafe fn complete(
        &self,
        cqe: &Cqe64,
        data: Option<InCompletion>,
    ) -> Option<TagCompletion> {
        use tag_operation as operation;
        let incomplete = matches!(
            cqe.app_op,
            operation::CONSUMED_MSG_SW_RNDV
                | operation::CONSUMED_SW_RNDV
                | operation::MSG_COMPLETION_CANCELED
        );
        match cqe.app_op {
            operation::CONSUMED
            | operation::CONSUMED_MSG
            | operation::EXPECTED
            | operation::CONSUMED_MSG_SW_RNDV
            | operation::CONSUMED_SW_RNDV
            | operation::MSG_COMPLETION_CANCELED => Some(self.with(|state| {
                let mut done = state.met(cqe);
                let status = done.status;
                if status == WcStatus::SUCCESS && incomplete {
                    done.status = WcStatus::TM_RNDV_INCOMPLETE;
                }
                if status == WcStatus::SUCCESS
                    && let Some(data) = data
                {
                    let tag = state.tags[usize::from(cqe.app_info.get())];
                    if data.length > tag.length || data.length > data.room {
                        done.status = WcStatus::LOC_LEN_ERR;
                    } else {
                        let to = std::ptr::with_exposed_provenance_mut::<u8>(tag.addr as usize);
                        // SAFETY: as many readable bytes by the caller's promise; the buffer has room and is the program's to
                        // write to.
                        unsafe { data.at.as_ptr().copy_to(to, data.length as usize) };
                    }
                }
                done
            })),
            operation::APPEND | operation::REMOVE | operation::NOOP => {
                Some(self.with(|state| state.changed(cqe)))
            }
            _ => None,
        }
    }
}

impl State {
    /// A message met a tag, or all of its data came.
    fn met(&mut self, cqe: &Cqe64) -> TagCompletion {
        let place = cqe.app_info.get();
        let Some(tag) = self.tags.get(usize::from(place)) else {
            return TagCompletion::UNKNOWN;
        };
        if tag.expected == 0 {
            return TagCompletion::UNKNOWN;
        }
        let wr_id = tag.wr_id;
        // With larger messages and those that are read, the tag is met first, and another completion tells of the data.
        let more = matches!(
            cqe.app_op,
            tag_operation::CONSUMED | tag_operation::CONSUMED_SW_RNDV
        );
        if !more {
            self.release(place);
        }
        TagCompletion::of(wr_id, WcStatus::SUCCESS)
    }

    /// A change is made, or could not be.
    fn changed(&mut self, cqe: &Cqe64) -> TagCompletion {
        if self.completed == self.posted {
            return TagCompletion::UNKNOWN;
        }
        let number = self.completed;
        self.completed = number.wrapping_add(1);
        let change = *self.change(number);
        self.done = change.head;
        let list = cqe.tag_state();
        let is_removal = cqe.app_op == tag_operation::REMOVE;
        // A tag that a message met meanwhile cannot be taken out.
        let status = if is_removal && !list.success {
            WcStatus::TM_ERR
        } else {
            WcStatus::SUCCESS
        };
        let mut done = TagCompletion::of(change.wr_id, status);
        if let Some(place) = change.tag {
            // Of 16 bits as the device counts. (libmlx5 compares the program's whole number, and asks for ever after 65,535
            // messages.)
            done.wants_sync = self.tags[usize::from(place)].phase != list.hw_phase_cnt;
            self.release(place);
            if is_removal && list.success {
                // No message will meet it.
                self.release(place);
            }
        }
        done
    }
}
