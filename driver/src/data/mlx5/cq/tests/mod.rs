//! The completion queue on ordinary memory, with a device that the tests play.
//!
//! Expected values stand here as numbers of the C headers (infiniband/verbs.h, mlx5dv.h) and of what libmlx5 does, not as
//! the code's own constants.

mod compressed;
mod hostile;
mod inline;
mod matrix;
mod moved;
mod order;
mod rig;
mod signatures;
