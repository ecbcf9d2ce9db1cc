//! Changing the list.

use wqe_format::mlx5::{DataSegment, TagSegment};
use wqe_format::rxe::Sge;

use super::super::error::{PostError, Refused};
use super::super::sq::SendQueue;
use super::{State, TagList};

/// A change of the list.
#[derive(Clone, Copy, Debug)]
pub enum TagChange {
    /// Puts a buffer behind the others of the list.
    Add {
        /// The program's number of the message that will meet it.
        recv_wr_id: u64,
        /// Where the message goes; without one, it has no data.
        sge: Option<Sge>,
        /// A message's tag under the mask.
        tag: u64,
        /// The bits that count.
        mask: u64,
    },
    /// Takes out what was added under this [handle](TagRequest::added).
    Remove {
        /// The handle.
        handle: u32,
    },
    /// Tells the device of messages that met no tag.
    Sync,
}

/// A change as it is posted (`struct ibv_ops_wr`).
pub trait TagRequest {
    /// The program's number.
    fn wr_id(&self) -> u64;
    /// Whether it makes a completion.
    fn is_signaled(&self) -> bool;
    /// How many messages met no tag and were looked at, if the device is to be told.
    fn unexpected(&self) -> Option<u32>;
    /// What changes; or why that cannot be.
    fn change(&self) -> Result<TagChange, PostError>;
    /// Hears the handle of what was added, before the device does.
    fn added(&mut self, handle: u32);
}

impl TagList {
    /// Posts changes to the list's queue pair until one is refused or there is none, and gives them to the device at once. Says
    /// how many.
    ///
    /// # Errors
    ///
    /// The one that was refused, and why; those before it are posted.
    pub fn post<R: TagRequest>(
        &self,
        queue: &mut SendQueue,
        requests: impl IntoIterator<Item = R>,
    ) -> Result<u32, Refused<R>> {
        self.with(|state| {
            let mut batch = queue.begin_changes(state.done);
            let mut result = Ok(());
            for mut request in requests {
                if let Err(error) = state.post_one(queue, &mut batch, &mut request) {
                    result = Err(Refused { error, request });
                    break;
                }
            }
            let count = queue.end_changes(batch);
            result.map(|()| count)
        })
    }
}

impl State {
    fn post_one(
        &mut self,
        queue: &SendQueue,
        batch: &mut super::super::sq::Changes,
        request: &mut impl TagRequest,
    ) -> Result<(), PostError> {
        queue.room_for_change(batch)?;
        let change = request.change()?;
        let mut segment = TagSegment {
            opcode: TagSegment::NOP,
            ..TagSegment::default()
        };
        if request.is_signaled() {
            segment.flags |= TagSegment::CQE_REQ;
        }
        let told = request.unexpected();
        if let Some(count) = told {
            segment.flags |= TagSegment::SW_CNT;
            segment.sw_cnt = (count as u16).into();
        }
        let mut data = None;
        let mut place = None;
        match change {
            TagChange::Add {
                recv_wr_id,
                sge,
                tag,
                mask,
            } => {
                if self.free_head == self.free_tail {
                    return Err(PostError::QueueFull);
                }
                let sge = sge.filter(|sge| sge.length != 0);
                if sge.is_some_and(|sge| sge.length >> 31 != 0) {
                    return Err(PostError::TooLong);
                }
                let at = self.free_head;
                if let Some(count) = told {
                    self.told = count;
                }
                let phase = self.told as u16;
                let added = &mut self.tags[usize::from(at)];
                self.free_head = added.next;
                added.wr_id = recv_wr_id;
                (added.addr, added.length) = sge.map_or((0, 0), |sge| (sge.addr, sge.length));
                added.phase = phase;
                added.expected = 1;
                segment.opcode = TagSegment::APPEND;
                // The device puts the tag where the one before said that the next would be.
                segment.index = self.free_head.into();
                segment.append_tag = tag.into();
                segment.append_mask = mask.into();
                data = Some(match sge {
                    Some(sge) => DataSegment::new(sge.addr, sge.length, sge.lkey),
                    None => DataSegment::TERMINATOR,
                });
                place = Some(at);
                request.added(at.into());
            }
            TagChange::Remove { handle } => {
                let at = u16::try_from(handle).ok();
                let tag = at.and_then(|at| self.tags.get(usize::from(at)));
                if tag.is_none_or(|tag| tag.expected == 0) {
                    return Err(PostError::UnknownTag);
                }
                segment.opcode = TagSegment::REMOVE;
                segment.index = (handle as u16).into();
                place = at;
            }
            TagChange::Sync => {}
        }
        let head = queue.put_change(batch, segment, data);
        if request.is_signaled() {
            let number = self.posted;
            self.posted = number.wrapping_add(1);
            *self.change(number) = super::Change {
                wr_id: request.wr_id(),
                head,
                tag: place,
            };
            if let Some(place) = place {
                let tag = &mut self.tags[usize::from(place)];
                tag.expected = tag.expected.saturating_add(1);
            }
        } else if let (TagChange::Remove { .. }, Some(place)) = (change, place) {
            self.release(place);
        }
        Ok(())
    }
}
