//! Tag matching: the device puts messages into buffers by their tags.
//!
//! A sender writes a header with a 64-bit tag before each message (libibverbs' `struct ibv_tmh`). The device compares it
//! with a list of tagged buffers, in the order in which they were added, and the first that is met gets the message. One that
//! meets none takes a receive of the queue, header and all. InfiniBand only, as with libmlx5.

use std::sync::Arc;

use wqe_format::rxe::WcOpcode;

use super::advice;
use super::completion::Completion;
use super::context::Family;
use super::cq::CompletionQueue;
use super::id::ObjectId;
use super::mr::RegionSlice;
use super::pd::ProtectionDomain;
use super::post::PostError;
use super::qp::{QueuePair, QueuePairBuilder, Rc};
use super::srq::{Named, SharedReceiveQueue, SharedReceiveQueueAttributes, Within};
use super::token::{Token, Tokens};
use crate::control::mlx5::tags::Tags;
use crate::data::mlx5::{self, TagChange, TagRequest};
use crate::error::{Error, Result};

/// Size of a list of tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagListAttributes {
    /// Tags in the list at a time.
    pub max_tags: u32,
    /// Changes of it that are posted and not complete.
    pub max_changes: u32,
}

/// Names a tag that is in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TagHandle {
    number: u32,
    token: Token,
}

impl TagHandle {
    /// Whether the completion is about this tag: that it was added (`TM_ADD`) or removed (`TM_DEL`), or that a message met it
    /// (`TM_RECV`).
    pub fn is_of(self, completion: &Completion) -> bool {
        self.token.is_of(completion)
    }
}

/// A shared receive queue with a list of tagged buffers.
///
/// Queue pairs that are made with its [`receives`](Self::receives) get their messages through the list. Everything completes
/// on the queue that it was made with: changes of the list, messages that met a tag ([`Completion::tags`]), and receives.
#[derive(Debug)]
pub struct TagMatchingQueue {
    /// What changes are posted to. Before the queue that it receives from.
    commands: QueuePair<Rc>,
    receives: SharedReceiveQueue,
    tokens: Tokens,
    /// Messages that met no tag and were looked at.
    handled: u32,
}

impl ProtectionDomain {
    /// Makes a shared receive queue with a list of tags. All of it completes on `cq`.
    ///
    /// # Errors
    ///
    /// The device matches no tags, its port is no InfiniBand port, or more than it has.
    pub fn tag_matching_queue(
        &self,
        cq: &CompletionQueue,
        attributes: SharedReceiveQueueAttributes,
        list: TagListAttributes,
    ) -> Result<TagMatchingQueue> {
        let TagListAttributes {
            max_tags,
            max_changes,
        } = list;
        let action = || format!("make a receive queue with {max_tags} tags");
        if !matches!(self.inner.context.family, Family::Mlx5(_)) {
            return Err(Error::refused(action(), "this device matches no tags"));
        }
        let within = Within {
            kind: Named::Tags(Tags {
                max_num_tags: max_tags,
                max_ops: max_changes,
            }),
            cq: Arc::clone(&cq.inner),
        };
        let receives = SharedReceiveQueue::new(self, attributes, Some(within))?;
        let mut commands = QueuePairBuilder::new(self, cq)
            .shared_receive_queue(&receives)
            .max_send_wr(max_changes)
            .max_send_sge(Tags::MAX_SGE)
            .max_recv_wr(0)
            .max_recv_sge(0)
            .create()?;
        (commands.connect_for_tags()).map_err(|errno| advice::create(action(), errno))?;
        Ok(TagMatchingQueue {
            commands,
            receives,
            tokens: Tokens::new(max_tags),
            handled: 0,
        })
    }
}

impl TagMatchingQueue {
    /// What events call it.
    pub fn id(&self) -> ObjectId {
        self.receives.id()
    }

    /// The receives that messages take which meet no tag; and what queue pairs are made with.
    pub fn receives(&mut self) -> &mut SharedReceiveQueue {
        &mut self.receives
    }

    /// Puts a buffer behind the others of the list, for the message whose tag is `tag` in the bits of `mask`. Completes with
    /// `TM_ADD`, and with `TM_RECV` when a message met it. The queue keeps the buffer until [`reclaim`](Self::reclaim) gets
    /// the completion that says that its data are there, or that it was removed.
    ///
    /// # Errors
    ///
    /// The list is full, there are as many changes as were asked for, or the buffer is a dma-buf.
    pub fn add(
        &mut self,
        buffer: RegionSlice,
        tag: u64,
        mask: u64,
    ) -> std::result::Result<TagHandle, PostError> {
        buffer.check_polling_can_write()?;
        let token = (self.tokens.next()).ok_or(mlx5::PostError::QueueFull)?;
        let mut number = 0;
        self.change(Change {
            wr_id: token.wr_id(),
            handled: self.handled,
            change: TagChange::Add {
                recv_wr_id: token.wr_id(),
                sge: Some(buffer.sge()),
                // Whether the device masks both or the message's only is said nowhere.
                tag: tag & mask,
                mask,
            },
            number: &mut number,
        })?;
        self.tokens.keep(buffer);
        Ok(TagHandle { number, token })
    }

    /// Takes a tag out of the list. Completes with `TM_DEL`: with success, or with `TM_ERR` if a message had met it.
    ///
    /// # Errors
    ///
    /// It is not in the list, or there are as many changes as were asked for.
    pub fn remove(&mut self, tag: TagHandle) -> std::result::Result<(), PostError> {
        self.change(Change {
            wr_id: tag.token.wr_id(),
            handled: self.handled,
            change: TagChange::Remove { handle: tag.number },
            number: &mut 0,
        })
    }

    /// Counts messages that met no tag, which the program has taken from the receives and looked at. The device hears of it
    /// with the next change; until then it matches no tags that were added since such a message came.
    pub fn handled(&mut self, messages: u32) {
        self.handled = self.handled.wrapping_add(messages);
    }

    /// Tells the device now what [`handled`](Self::handled) counted. Completes with `TM_SYNC` and this number.
    ///
    /// # Errors
    ///
    /// There are as many changes as were asked for.
    pub fn sync(&mut self, wr_id: u64) -> std::result::Result<(), PostError> {
        self.change(Change {
            wr_id,
            handled: self.handled,
            change: TagChange::Sync,
            number: &mut 0,
        })
    }

    /// Gives back the buffer of a tag that was met and has its data, whose data the program has to read itself
    /// (`TM_RNDV_INCOMPLETE`), or that was removed; else of a completed receive. `None` if the completion is none of these, or
    /// not about this queue.
    pub fn reclaim(&mut self, completion: &Completion) -> Option<RegionSlice> {
        let over = match completion.opcode() {
            WcOpcode::TM_RECV => completion.tags().has_data || !completion.is_success(),
            WcOpcode::TM_DEL => completion.is_success(),
            WcOpcode::TM_ADD | WcOpcode::TM_SYNC => return None,
            _ => false,
        };
        let tagged = over.then(|| self.tokens.reclaim(completion.wr_id()));
        tagged
            .flatten()
            .or_else(|| self.receives.reclaim(completion))
    }

    fn change(&mut self, change: Change<'_>) -> std::result::Result<(), PostError> {
        if !self.receives.is_ours() {
            return Err(PostError::ForkedChild);
        }
        let list = self.receives.mlx5().and_then(|shared| shared.tags());
        let list = list.ok_or(mlx5::PostError::WrongState)?;
        Ok(self.commands.post_change(list, change)?)
    }
}

/// A change that completes.
struct Change<'a> {
    wr_id: u64,
    handled: u32,
    change: TagChange,
    /// Where the device's number of an added tag goes.
    number: &'a mut u32,
}

impl TagRequest for Change<'_> {
    fn wr_id(&self) -> u64 {
        self.wr_id
    }

    fn is_signaled(&self) -> bool {
        true
    }

    fn unexpected(&self) -> Option<u32> {
        Some(self.handled)
    }

    fn change(&self) -> std::result::Result<TagChange, mlx5::PostError> {
        Ok(self.change)
    }

    fn added(&mut self, handle: u32) {
        *self.number = handle;
    }
}
