//! How objects come to exist.
