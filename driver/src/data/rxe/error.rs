//! Why a work request was not posted.

use std::fmt;

use crate::sys::errno::Errno;

/// Why a work request was not posted. Nothing of it is in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PostError {
    /// All entries are in use; poll completions first.
    QueueFull,
    /// The queue pair's state does not take work requests (sends before RTS, receives in RESET).
    WrongState,
    /// The queue pair's transport does not have the operation.
    Opcode,
    /// More scatter/gather elements than the queue was created for.
    TooManySges,
    /// More inline bytes than the queue was created for.
    InlineTooLong,
    /// The elements' lengths sum to 2 GiB or more, the most that one message may have.
    TooLong,
    /// An atomic's remote address is not a multiple of 8, or its local memory is shorter than 8 bytes.
    Atomic,
    /// A zero-based memory window of type 1, which there is not (IBTA o10-36.2.2).
    ZeroBasedWindow,
    /// Local memory for an operation that takes none.
    NoLocalMemory,
    /// Inline data for an operation that sends none.
    NoInline,
    /// No work request was begun, or it got no destination or payload that its operation needs.
    Incomplete,
}

impl PostError {
    /// The number that libibverbs' posting functions return.
    pub const fn errno(self) -> Errno {
        Errno(match self {
            Self::QueueFull => libc::ENOMEM,
            _ => libc::EINVAL,
        })
    }
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::QueueFull => "the queue is full; poll completions first",
            Self::WrongState => "the queue pair's state does not take this work request",
            Self::Opcode => "the queue pair's transport does not have this operation",
            Self::TooManySges => "more scatter/gather elements than the queue was created for",
            Self::InlineTooLong => "more inline bytes than the queue was created for",
            Self::TooLong => "a message of 2 GiB or more",
            Self::Atomic => {
                "an atomic needs a remote address that is a multiple of 8 and 8 local bytes"
            }
            Self::ZeroBasedWindow => "memory windows of type 1 cannot be zero-based",
            Self::NoLocalMemory => "this operation takes no local memory",
            Self::NoInline => "this operation sends no inline data",
            Self::Incomplete => "the work request is not complete",
        })
    }
}

impl std::error::Error for PostError {}
