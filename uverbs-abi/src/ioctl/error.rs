use core::fmt;

/// A command that cannot be sent, or an answer that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// More attributes than a command holds ([`wire::MAX_ATTRS`](super::wire::MAX_ATTRS)).
    TooManyAttributes,
    /// The command's own memory for inputs over 8 bytes is full; pass a slice instead.
    InputFull,
    /// The command's own memory for outputs is full; pass a slice instead.
    OutputFull,
    /// A payload is longer than an attribute's 16-bit length can say.
    TooLong,
    /// The attribute is in the command already; the kernel would refuse that.
    Duplicate(u16),
    /// The answer was asked from an attribute that is not in the command.
    Absent(u16),
    /// The kernel answered a number that no handle or file descriptor has.
    BadNumber(u16),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyAttributes => f.write_str("too many attributes in a uverbs command"),
            Self::InputFull => f.write_str("inputs do not fit into the command's own memory"),
            Self::OutputFull => f.write_str("outputs do not fit into the command's own memory"),
            Self::TooLong => f.write_str("an attribute is longer than 65535 bytes"),
            Self::Duplicate(id) => write!(f, "attribute {id:#x} is in the command twice"),
            Self::Absent(id) => write!(f, "attribute {id:#x} is not in the command"),
            Self::BadNumber(id) => {
                write!(
                    f,
                    "the kernel answered an impossible number in attribute {id:#x}"
                )
            }
        }
    }
}

impl core::error::Error for Error {}
