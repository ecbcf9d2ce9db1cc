//! Why a work request was not posted.

use std::fmt;

use crate::sys::errno::Errno;

/// Why a work request was not posted. Nothing of it was given to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PostError {
    /// All entries are in use; poll completions first.
    QueueFull,
    /// The queue pair's state does not take work requests (sends before RTS, receives in RESET).
    WrongState,
    /// The queue pair's transport does not have the operation.
    Opcode,
    /// The device does not do atomics for this context.
    AtomicsOff,
    /// More scatter/gather elements than the queue was created for.
    TooManySges,
    /// More inline bytes than the queue was created for.
    InlineTooLong,
    /// The same, of a packet given as a list of buffers; libmlx5 returns another number for it.
    PacketInlineTooLong,
    /// An element of 2 GiB or more. Bit 31 of its length would make it another kind of segment.
    TooLong,
    /// A memory window of more than 2 GiB.
    WindowTooLong,
    /// Shorter than the headers that the device wants inline, or none of them.
    HeadersTooShort,
    /// A segmentation header shorter than 14 bytes or longer than the queue was created for, or a payload longer than
    /// the device segments.
    Segmentation,
    /// The device does not compute checksums for this queue.
    ChecksumsOff,
    /// A work request is longer than those that the queue was created for, or one that the program built is empty.
    Length,
    /// A key's layout that is not in the work request.
    KeyElsewhere,
    /// Access that a key cannot grant.
    KeyAccess,
    /// A rule of signatures for a key without such, for more than 4 GiB, twice, or one that no device has.
    KeySignature,
    /// A configuration of a key with options that there are not.
    KeyOption,
    /// Nothing to copy, or more than the device copies at once.
    CopyLength,
    /// A change of a tag that is not in the list.
    UnknownTag,
    /// No work request was begun, or it got no destination or payload that its operation needs.
    Incomplete,
}

/// The libibverbs function that an error is returned from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// `ibv_post_send`, `ibv_bind_mw`.
    PostSend,
    /// `ibv_wr_complete`.
    WrComplete,
    /// `ibv_post_recv`, `ibv_post_srq_recv`, `ibv_post_wq_recv`.
    PostRecv,
    /// `ibv_post_srq_ops`.
    PostSrqOps,
}

impl PostError {
    /// The number that libmlx5 returns from a function.
    pub const fn errno(self, from: Verb) -> Errno {
        Errno(match (self, from) {
            (Self::QueueFull, _) => libc::ENOMEM,
            (Self::TooManySges | Self::InlineTooLong, Verb::PostSend | Verb::WrComplete) => {
                libc::ENOMEM
            }
            // To libmlx5, a queue that does not send is one that takes no scatter/gather elements, not even none.
            (Self::WrongState, Verb::PostSend) => libc::ENOMEM,
            (Self::AtomicsOff | Self::WindowTooLong | Self::KeyElsewhere | Self::KeyOption, _) => {
                libc::EOPNOTSUPP
            }
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
            Self::AtomicsOff => "the device does not do atomics for this context",
            Self::TooManySges => "more scatter/gather elements than the queue was created for",
            Self::InlineTooLong | Self::PacketInlineTooLong => {
                "more inline bytes than the queue was created for"
            }
            Self::TooLong => "a scatter/gather element of 2 GiB or more",
            Self::WindowTooLong => "a memory window of more than 2 GiB",
            Self::HeadersTooShort => "a packet shorter than its Ethernet headers",
            Self::Segmentation => "a segmentation header or payload that the device does not take",
            Self::ChecksumsOff => "the device does not compute checksums for this queue",
            Self::Length => "a work request of a length that the queue was not created for",
            Self::KeyElsewhere => "a key's layout goes into the work request (IBV_SEND_INLINE)",
            Self::KeyAccess => "access that a key cannot grant by a work request",
            Self::KeySignature => "a rule of signatures that the key cannot have",
            Self::KeyOption => "a key is not configured with such options",
            Self::CopyLength => "nothing to copy, or more than the device copies at once",
            Self::UnknownTag => "a tag that is not in the list",
            Self::Incomplete => "the work request is not complete",
        })
    }
}

impl std::error::Error for PostError {}

/// The work request at which posting a list stopped; those before it are posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused<R> {
    /// Why.
    pub error: PostError,
    /// The one that was refused, as the list gave it.
    pub request: R,
}
