//! The nouns a user types: devices, contexts, queue pairs.

mod advice;
mod device;
mod discovery;

pub use device::{Device, Driver, Guid, NodeType, Transport};
pub use discovery::devices;
