//! Why posting failed.

use std::fmt;

use crate::data::{mlx5, rxe};
use crate::error::Error;
use crate::sys::Errno;

/// Why work requests were not posted. No allocation, no formatting until it is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PostError {
    /// A work request is not valid, or the queue has no room. Nothing of the batch is posted.
    Refused(rxe::PostError),
    /// The same on mlx5.
    RefusedByMlx5(mlx5::PostError),
    /// The kernel did not take the doorbell. The batch is in the queue; the next one announces it too.
    Doorbell(Errno),
    /// This process is a forked child of the one that the queue belongs to.
    ForkedChild,
    /// What is received or read is to go to a dma-buf, but the queue's completions may carry small messages themselves
    /// ([`data_in_completions`](crate::QueuePairBuilder::data_in_completions)).
    DataInCompletions,
}

impl PostError {
    /// Whether polling completions makes room for it.
    pub fn is_queue_full(self) -> bool {
        matches!(
            self,
            Self::Refused(rxe::PostError::QueueFull)
                | Self::RefusedByMlx5(mlx5::PostError::QueueFull)
        )
    }
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(reason) => reason.fmt(f),
            Self::RefusedByMlx5(reason) => reason.fmt(f),
            Self::Doorbell(errno) => write!(f, "the doorbell failed: {errno}"),
            Self::ForkedChild => f.write_str(
                "the queue belongs to the parent process; open the device again after fork",
            ),
            Self::DataInCompletions => f.write_str(
                "a dma-buf cannot take what completions carry; make the queue pair without data in completions",
            ),
        }
    }
}

impl std::error::Error for PostError {}

impl From<rxe::PostError> for PostError {
    fn from(reason: rxe::PostError) -> Self {
        Self::Refused(reason)
    }
}

impl From<mlx5::PostError> for PostError {
    fn from(reason: mlx5::PostError) -> Self {
        Self::RefusedByMlx5(reason)
    }
}

impl From<PostError> for Error {
    fn from(error: PostError) -> Self {
        Self::refused("post a work request", error.to_string())
    }
}
