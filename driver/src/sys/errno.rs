//! An errno as a value.

use std::fmt;
use std::io;

/// What a failed system call left in `errno`, positive as in `errno.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

impl Errno {
    /// The calling thread's `errno`.
    pub fn last() -> Self {
        Self::from(io::Error::last_os_error())
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        io::Error::from_raw_os_error(self.0).fmt(f)
    }
}

impl std::error::Error for Errno {}

impl From<io::Error> for Errno {
    /// An error that did not come from a system call becomes `EIO`.
    fn from(error: io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

impl From<Errno> for io::Error {
    fn from(errno: Errno) -> Self {
        Self::from_raw_os_error(errno.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_number_through_io_error() {
        let errno = Errno(libc::ENOSPC);
        assert_eq!(Errno::from(io::Error::from(errno)), errno);
    }

    #[test]
    fn an_error_without_number_is_eio() {
        assert_eq!(Errno::from(io::Error::other("no number")), Errno(libc::EIO));
    }
}
