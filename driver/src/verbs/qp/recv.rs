//! The half of a queue pair that receives.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use uverbs_abi::types::{QpState, QpType};
use wqe_format::rxe::Sge;

use super::{Marker, QpInner, Service};
use crate::data::{mlx5, rxe};
use crate::verbs::completion::Completion;
use crate::verbs::mr::RegionSlice;
use crate::verbs::post::PostError;
use crate::verbs::token::{Token, Tokens};

/// The receiving half of a queue pair; posts nothing if the queue pair has a shared receive queue.
#[derive(Debug)]
pub struct RecvHalf<T> {
    pub(super) shared: Arc<QpInner>,
    data: Data,
    tokens: Tokens,
    resets: u32,
    _service: Marker<T>,
}

#[derive(Debug)]
pub(super) enum Data {
    /// `None`: receives come from a shared queue.
    Rxe(Option<rxe::RecvQueue>),
    /// The same, and how often the state had changed when it was looked at.
    Mlx5(Option<mlx5::RecvQueue>, u32),
}

impl<T: Service> RecvHalf<T> {
    pub(super) fn new(shared: Arc<QpInner>, data: Data, tokens: Tokens) -> Self {
        Self {
            shared,
            data,
            tokens,
            resets: 0,
            _service: PhantomData,
        }
    }

    /// Posts a receive. The queue keeps the buffer until [`reclaim`](Self::reclaim) gets its completion.
    ///
    /// # Errors
    ///
    /// The queue is full, the queue pair is in RESET, or the buffer is a dma-buf and completions may carry data.
    pub fn post(&mut self, buffer: RegionSlice) -> Result<Token, PostError> {
        self.shared.check_takes_data(&buffer)?;
        let full = PostError::Refused(rxe::PostError::QueueFull);
        let token = self.tokens.next().ok_or(full)?;
        // SAFETY: `tokens` keeps the region registered, and it is never lent as a slice.
        unsafe { self.post_sges(token.wr_id(), &[buffer.sge()]) }?;
        self.tokens.keep(buffer);
        Ok(token)
    }

    /// Gives back the buffer of a completed receive; `None` if it was not posted here, or not safely.
    pub fn reclaim(&mut self, completion: &Completion) -> Option<RegionSlice> {
        // completions of raw packets have their rule's tag in the number's place; the token tells whose it is as well
        let ours = completion.queue == self.shared.recv_cq.id
            && (T::QP_TYPE == QpType::RAW_PACKET || completion.qp_num() == self.shared.qp_num);
        if ours {
            self.tokens.reclaim(completion.wr_id())
        } else {
            None
        }
    }

    /// Posts a receive into memory of the caller's.
    ///
    /// # Errors
    ///
    /// The queue is full, there are more elements than it was made for, or the queue pair is in RESET.
    ///
    /// # Safety
    ///
    /// The elements' memory stays valid and is not used by anybody else until the receive completes. Unless the queue pair was
    /// made without [data in completions](super::QueuePairBuilder::data_in_completions), elements name it by its address in
    /// this process.
    /// `wr_id` is below 2^63, unless nothing is posted safely.
    #[inline]
    pub unsafe fn post_sges(&mut self, wr_id: u64, sges: &[Sge]) -> Result<(), PostError> {
        if !self.shared.pd.context.is_ours() {
            return Err(PostError::ForkedChild);
        }
        match &mut self.data {
            Data::Rxe(None) => Err(PostError::Refused(rxe::PostError::QueueFull)),
            Data::Rxe(Some(queue)) => {
                let resets = self.shared.resets.load(Ordering::Acquire);
                if self.resets != resets {
                    self.resets = resets;
                    queue.reset();
                }
                queue.set_accepting(self.shared.state() != QpState::RESET);
                Ok(queue.post(wr_id, sges)?)
            }
            Data::Mlx5(None, _) => Err(mlx5::PostError::QueueFull.into()),
            Data::Mlx5(Some(queue), seen) => {
                if *seen != self.shared.changes.load(Ordering::Acquire) {
                    take_up(&self.shared, queue, seen, &mut self.resets);
                }
                match queue.post([(wr_id, sges)]) {
                    Ok(_) => Ok(()),
                    Err(refused) => Err(refused.error.into()),
                }
            }
        }
    }

    /// The queue itself, in its present state.
    pub(super) fn mlx5(&mut self) -> Option<&mut mlx5::RecvQueue> {
        match &mut self.data {
            Data::Mlx5(Some(queue), seen) => {
                take_up(&self.shared, queue, seen, &mut self.resets);
                Some(queue)
            }
            _ => None,
        }
    }
}

/// Tells a queue what became of its queue pair.
#[cold]
fn take_up(shared: &QpInner, queue: &mut mlx5::RecvQueue, seen: &mut u32, resets: &mut u32) {
    let changes = shared.changes.load(Ordering::Acquire);
    if !shared.is_clean() {
        queue.set_accepting(false);
        return;
    }
    let now = shared.resets.load(Ordering::Acquire);
    if *resets != now {
        *resets = now;
        queue.reset();
    }
    queue.set_accepting(shared.state() != QpState::RESET);
    *seen = changes;
}
