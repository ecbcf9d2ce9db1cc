//! How objects come to exist.

pub mod kernel;
pub mod qp_state;
