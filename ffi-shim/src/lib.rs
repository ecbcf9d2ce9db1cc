//! oxverbs as a provider plug-in that libibverbs loads.
//!
//! libibverbs opens the shared object by name, and its constructor registers what `provider` offers. From then on
//! libibverbs calls the functions of a family's room for every device that we claimed: `rxe` or `mlx5`, chosen when the
//! device is opened; what both do alike is in `common`. Each function converts C's arguments, asks the core
//! ([`oxverbs::ffi_core`]) and converts the answer: no verbs logic lives here, and no command goes through libibverbs.
//!
//! What differs between rdma-core releases is in [`abi::release`]; it is chosen once, when the library is loaded.

#[doc(hidden)]
pub mod abi;
mod common;
mod context;
mod door;
mod library;
mod lock;
mod log;
mod mlx5;
mod provider;
mod rxe;
