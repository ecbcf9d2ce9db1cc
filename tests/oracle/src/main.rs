//! `oracle`: see the library.

fn main() {}
