//! The command interface.

use std::fmt;

mod error;
mod mailbox;
mod queue;
mod slots;
#[cfg(test)]
mod tests;
mod unread;

pub use error::{CommandCause, CommandError};
pub use queue::CommandQueue;

/// Who runs firmware commands: the device's command queue, or a test.
pub trait Commands: Send + Sync + fmt::Debug {
    /// Runs a command and waits for its answer. Threads may do so at the same time.
    ///
    /// `input` begins as [`MboxIn`](wqe_format::mlx5::firmware::command::MboxIn) does. `output` is filled with the
    /// whole answer, of a refused command too.
    fn execute(&self, input: &[u8], output: &mut [u8]) -> Result<(), CommandError>;
}
