//! rxe's data path: queues in memory shared with the kernel.
//!
//! The untyped core: which operations a queue pair has is known at run time. The typed native API and the
//! libibverbs plug-in both stand on it. Each queue belongs to whoever has `&mut` to it; a queue pair's send
//! queue, its receive queue and a completion queue may be used by different threads at the same time.
//! Queues can be sent to another thread, but two threads cannot share one without a lock:
//!
//! ```
//! fn can_be_sent<T: Send>() {}
//! can_be_sent::<oxverbs::data::rxe::SendQueue>();
//! ```
//!
//! ```compile_fail,E0277
//! fn can_be_shared<T: Sync>() {}
//! can_be_shared::<oxverbs::data::rxe::SendQueue>();
//! ```

mod cq;
mod doorbell;
mod error;
mod index;
mod ring;
mod rq;
mod sq;

#[cfg(test)]
mod resize_tests;
#[cfg(test)]
mod tests;

pub use cq::CompletionQueue;
pub use doorbell::Doorbell;
pub use error::PostError;
pub use ring::Ring;
pub use rq::RecvQueue;
pub use sq::{Draft, InlinePiece, SendLimits, SendQueue};
