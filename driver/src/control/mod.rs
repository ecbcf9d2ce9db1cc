//! How objects come to exist.

pub mod kernel;
pub mod mlx5;
pub mod qp_state;
pub mod refusal;
pub mod vfio;
