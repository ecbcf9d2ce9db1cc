//! The one entrance to the tasks of this repository: `cargo xtask`.

fn main() {}
