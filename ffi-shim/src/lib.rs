//! oxverbs as a provider plug-in that libibverbs loads.
//!
//! libibverbs opens the shared object by name, and its constructor registers what `provider` offers. From then on
//! libibverbs calls the functions of `ops` for every device that we claimed. Each converts C's arguments, asks
//! the core ([`oxverbs::ffi_core`]) and converts the answer: no verbs logic lives here, and no command goes through
//! libibverbs.
//!
//! What differs between rdma-core releases is in [`abi::release`]; it is chosen once, when the library is loaded.

#[doc(hidden)]
pub mod abi;
mod context;
mod cq;
mod door;
mod library;
mod lock;
mod log;
mod ops;
mod provider;
mod qp;
mod srq;
