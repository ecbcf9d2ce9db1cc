//! What drivers add to core commands and responses (`UHW_IN`, `UHW_OUT`).

pub mod mlx5;
pub mod rxe;
