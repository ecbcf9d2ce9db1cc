//! What tests of several packages share: named skips, and C programs as witnesses of layouts.

pub mod c;
pub mod skip;

pub use skip::skip;
