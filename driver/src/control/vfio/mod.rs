//! The userspace driver: objects made by firmware commands, with no kernel driver below.
//!
//! | module | what |
//! |---|---|
//! | [`pci`] | the seam to the function: VFIO, or a device in software |
//! | [`linux`] | the one by Linux' VFIO |
//! | [`command`] | the command queue |
//! | [`memory`] | what of the process' memory the device reaches |
//! | [`hca`] | bringing the device up and down |
//! | [`clock`] | the device's time as the system's |
//! | [`events`] | event queues, pages on request, health |
//! | [`objects`] | verbs as firmware commands |
//!
//! # The seam to the nouns
//!
//! Everything above speaks to [`control::kernel::Uctx`](crate::control::kernel::Uctx): one method per verb, plain values in
//! and out, errno as error. A `Uctx` is either a descriptor of the kernel's or the [`Objects`](objects::Objects) of
//! a device that this process drives ([`Uctx::over`](crate::control::kernel::Uctx::over)). A method that a driven device
//! has begins with
//!
//! ```text
//! if let Some(objects) = self.objects() {
//!     return objects.create_cq(attr, driver_input(input)?).map(|made| made.map(driver_answer));
//! }
//! ```
//!
//! where `driver_input` and `driver_answer` turn the generic driver data of the method into mlx5's types of
//! [`uverbs_abi::udata::mlx5`]. Methods without such a line answer `EOPNOTSUPP` for a driven device. So queue
//! geometry, buffers, doorbell records, the state machine and the data path ([`control::mlx5`](crate::control::mlx5),
//! [`data::mlx5`](crate::data::mlx5)) do not know the difference.
//!
//! Doorbell pages come from a [`PageSource`](crate::control::mlx5::uar::PageSource) of the device's own. Completion
//! channels and the file of asynchronous events are pipes; the event thread writes into them the records that the kernel
//! would (`ib_uverbs_comp_event_desc`, `ib_uverbs_async_event_desc`), so who reads or polls them sees no difference either.

pub mod clock;
pub mod command;
mod driven;
mod eq;
pub mod events;
pub mod hca;
mod held;
mod iova;
pub mod linux;
pub mod memory;
pub mod neighbour;
pub mod objects;
mod pages;
pub mod pci;
mod segment;
mod start;
#[cfg(test)]
mod test_device;

pub use driven::open;
pub(crate) use held::Held;
