//! mlx5's data path: rings in memory that the device reads, registers that it listens to.
//!
//! The untyped core: which operations a queue pair has is known at run time. The typed native API and the libibverbs
//! plug-in both stand on it. A queue is built from plain parts (a ring, numbers, a doorbell record, a register) and owns no
//! kernel object; whoever made those keeps them alive.
//!
//! | file | idea |
//! |---|---|
//! | `record` | what a poster and a poller share |
//! | `table` | from the user index in a completion to that |
//! | `ring` | a send queue's memory, and what wraps in it |
//! | `register` | the register that tells the device of sends, and BlueFlame |
//! | `sq` | posting sends |
//! | `rq` | receive queues: scatter lists and their terminator |
//! | `srq` | shared receive queues: a linked list with many returners |
//! | `tags` | a list of tagged buffers beside one |
//! | `protection` | keys with signatures |
//! | `lock` | the lock for what is shared |
//! | `protocol` | what threads say to each other by shared words, and models of it |
//! | `cq` | completion queues |

pub mod cq;
mod error;
mod lock;
mod protection;
mod protocol;
mod record;
mod register;
mod ring;
mod rq;
mod sq;
mod srq;
mod table;
mod tags;

#[cfg(test)]
mod tests;

pub use cq::{Completion, CompletionQueue, CqParts, CqeVersion, ErrorLog};
pub use error::{PostError, Refused, Verb};
pub use protection::{KeyError, KeySignature, SignatureKeys, UnknownKeyError, WrongPart};
pub use record::{
    KeepAlive, QueueKind, QueueRecord, ReceiveSide, RecvShared, SendShared, WorkKind, WorkRecord,
};
pub use register::{BlueFlame, Register, Sharing};
pub use rq::{RecvParts, RecvQueue};
pub use sq::{
    AtomicOperands, Bind, Destination, Draft, InlinePiece, KeyLayout, KeyUpdate, Operation,
    PatternPiece, Remote, Segmentation, SendFlags, SendLimits, SendParts, SendQueue, SendRequest,
    SignatureUpdate, WrOpcode,
};
pub use srq::{RecvRequest, SharedReceiveQueue, SrqParts, SrqShared};
pub use table::{BadUserIndex, Reader, USER_INDICES, UserIndexTable, Visit};
pub use tags::{MAX_TAGS, TagChange, TagList, TagRequest};
