use core::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// `N` bytes that are zero in every request: their value cannot be named, so it cannot be set.
///
/// A decoded message may hold anything here; [`is_zero`](Self::is_zero) tells.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct Reserved<const N: usize>([u8; N]);

impl<const N: usize> Reserved<N> {
    /// The only value that a program may send.
    pub const ZERO: Self = Self([0; N]);

    /// Whether the bytes are zero, as they should be.
    pub fn is_zero(&self) -> bool {
        self.0 == [0; N]
    }
}

impl<const N: usize> Default for Reserved<N> {
    fn default() -> Self {
        Self::ZERO
    }
}

impl<const N: usize> fmt::Debug for Reserved<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_zero() {
            f.write_str("0")
        } else {
            write!(f, "{:02x?}", self.0)
        }
    }
}
