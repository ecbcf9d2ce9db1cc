//! The only place with system calls and memory mappings.

pub mod kernel;
