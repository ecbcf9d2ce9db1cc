//! How work is posted and completed.
//!
//! A data path is built from what a control path made (numbers, keys, queues in memory) and never asks where
//! that came from. Nothing here allocates, locks or formats.

pub mod mlx5;
pub mod rxe;
