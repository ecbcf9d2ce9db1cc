//! Errors that say what failed and what to do about it.

use std::borrow::Cow;
use std::fmt;

use crate::sys::Errno;

/// A failed operation: what was asked for, what the kernel said, and what to do.
///
/// `Display` prints all of it in one line, for instance `cannot register 1048576 bytes: Cannot
/// allocate memory (os error 12); locked memory is limited to 64 KiB ...`.
#[derive(Clone)]
pub struct Error {
    action: Cow<'static, str>,
    errno: Option<Errno>,
    advice: Option<Cow<'static, str>>,
}

/// `std::result::Result` with [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// `action` failed in the kernel; `action` follows "cannot".
    pub(crate) fn kernel(action: impl Into<Cow<'static, str>>, errno: Errno) -> Self {
        Self {
            action: action.into(),
            errno: Some(errno),
            advice: None,
        }
    }

    /// `action` is refused by this library.
    pub(crate) fn refused(
        action: impl Into<Cow<'static, str>>,
        advice: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            action: action.into(),
            errno: None,
            advice: Some(advice.into()),
        }
    }

    /// Adds what to do.
    pub(crate) fn advise(mut self, advice: impl Into<Cow<'static, str>>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    /// The kernel's error number, absent if this library refused.
    pub fn errno(&self) -> Option<i32> {
        self.errno.map(|errno| errno.0)
    }

    /// What to do about it, where that is known.
    pub fn advice(&self) -> Option<&str> {
        self.advice.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}", self.action)?;
        if let Some(errno) = self.errno {
            write!(f, ": {errno}")?;
        }
        if let Some(advice) = &self.advice {
            write!(f, "; {advice}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    /// As [`Display`](fmt::Display), so that a `main` that returns it prints what to do.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.errno.as_ref().map(|errno| errno as _)
    }
}

impl From<Error> for std::io::Error {
    fn from(error: Error) -> Self {
        let kind = match error.errno {
            Some(errno) => std::io::Error::from(errno).kind(),
            None => std::io::ErrorKind::InvalidInput,
        };
        Self::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_action_cause_and_advice() {
        let error = Error::kernel("open /dev/infiniband/uverbs0", Errno(libc::EACCES))
            .advise("run as root");
        assert_eq!(
            error.to_string(),
            "cannot open /dev/infiniband/uverbs0: Permission denied (os error 13); run as root"
        );
        assert_eq!(error.errno(), Some(libc::EACCES));
        assert_eq!(
            Error::refused("post", "the queue is full").to_string(),
            "cannot post; the queue is full"
        );
    }

    #[test]
    fn keeps_the_kind_as_io_error() {
        let error = std::io::Error::from(Error::kernel("open", Errno(libc::EACCES)));
        assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
    }
}
