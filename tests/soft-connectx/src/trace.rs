//! Traces of commands, in the format of `mlx5_core`'s own dump.
