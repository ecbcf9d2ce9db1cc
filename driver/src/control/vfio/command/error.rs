//! What becomes of a command that was not done.

use std::fmt;

use wqe_format::mlx5::firmware::{Delivery, Opcode, Status};

use crate::control::refusal::errno_of;
use crate::sys::errno::Errno;

/// A firmware command that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandError {
    /// The command.
    pub opcode: Opcode,
    /// What the firmware says; [`Status::OK`] if it did not come to that.
    pub status: Status,
    /// The firmware's own number for the reason.
    pub syndrome: u32,
    /// How far the command came.
    pub cause: CommandCause,
}

/// How far a failed command came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandCause {
    /// To the firmware, which refused: see the status.
    Refused,
    /// Not to the firmware: the command interface did not take it.
    NotDelivered(Delivery),
    /// To the device, which did not answer in time. The slot is not used again.
    TimedOut,
    /// Nowhere: the device has failed, or is gone.
    DeviceFailed,
    /// Nowhere: the process could not.
    Process(Errno),
}

impl CommandError {
    /// The firmware refused.
    pub fn refused(opcode: Opcode, status: Status, syndrome: u32) -> Self {
        Self {
            opcode,
            status,
            syndrome,
            cause: CommandCause::Refused,
        }
    }

    /// Something else than a refusal.
    pub fn other(opcode: Opcode, cause: CommandCause) -> Self {
        Self {
            opcode,
            status: Status::OK,
            syndrome: 0,
            cause,
        }
    }

    /// The errno that the kernel's verbs give for the same failure.
    pub fn errno(&self) -> Errno {
        match self.cause {
            CommandCause::Refused => errno_of(self.status),
            CommandCause::NotDelivered(_) | CommandCause::DeviceFailed => Errno(libc::EIO),
            CommandCause::TimedOut => Errno(libc::ETIMEDOUT),
            CommandCause::Process(errno) => errno,
        }
    }

    /// The errno for who sent the command himself and looks at its output: `EREMOTEIO` for a refusal, as from the kernel.
    pub fn raw_errno(&self) -> Errno {
        match self.cause {
            CommandCause::Refused => Errno(libc::EREMOTEIO),
            _ => self.errno(),
        }
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.opcode.name() {
            Some(name) => f.write_str(name)?,
            None => write!(f, "command {:#x}", self.opcode.0)?,
        }
        match self.cause {
            CommandCause::Refused => {
                let Status(number) = self.status;
                match self.status.name() {
                    Some(name) => write!(f, " refused: {name}")?,
                    None => write!(f, " refused: status {number:#x}")?,
                }
                write!(f, ", syndrome {:#x}", self.syndrome)
            }
            CommandCause::NotDelivered(delivery) => match delivery.name() {
                Some(name) => write!(f, " not taken: {name}"),
                None => write!(f, " not taken: {:#x}", delivery.0),
            },
            CommandCause::TimedOut => f.write_str(" not answered in time"),
            CommandCause::DeviceFailed => f.write_str(" not sent: the device has failed"),
            CommandCause::Process(errno) => write!(f, " not sent: {errno}"),
        }
    }
}

impl std::error::Error for CommandError {}

impl From<CommandError> for Errno {
    fn from(error: CommandError) -> Self {
        error.errno()
    }
}
