//! A ConnectX in software, on which Linux's own `mlx5_core` and `mlx5_ib` run.
//!
//! The crate is a device model without input and output of its own: a [`Device`] reads and writes
//! its guest's memory through [`GuestMemory`], raises interrupts through [`Interrupts`], sends
//! through a [`Link`], and is told the time by [`Device::tick`]. Whoever drives it holds it under
//! a lock and calls one method at a time.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use soft_connectx::{Config, Device, Interrupts, Ram};
//!
//! struct Vectors;
//! impl Interrupts for Vectors {
//!     fn raise(&self, _vector: u16) {} // wakes whoever waits for it
//! }
//!
//! let memory = Arc::new(Ram::new(16 << 20));
//! let mut device = Device::new(Config::default(), memory.clone(), Box::new(Vectors));
//! device.bar_write(0x14, &0x1000_u32.to_be_bytes()); // where the command queue is
//! let mut version = [0; 4];
//! device.bar_read(0x4, &mut version);
//! assert_eq!(version[..2], [0, 5]); // of the command interface
//! let _next = device.tick(Duration::from_millis(1));
//! ```
//!
//! `docs/software-connectx.md` says how to test with it, and what it does not model.
//!
//! # Rooms
//!
//! | module | what |
//! |---|---|
//! | `pci` | configuration space: identity, capabilities, function level reset |
//! | `init_segment` | the first page of BAR0: versions, command queue, health, timer |
//! | `uar` | the doorbell pages of BAR0 |
//! | `command` | the command interface, one file for each family of commands |
//! | `port` | the port's names and state |
//! | `pages` | pages given to the device and taken back |
//! | `paging` | pages that are asked for when they are needed |
//! | `resources` | what the commands create: queues, keys, domains |
//! | `events` | event queues |
//! | `memic` | memory on the device, in a window of BAR0 |
//! | `memory` | memory keys and their translation |
//! | `completion` | completion queues |
//! | `transport` | queue pairs at work |
//! | `wire` | packets |
//! | `checks` | what a real device never checks |
//! | `caps` | capabilities |
//! | [`cable`] | what a cable does to frames |
//! | [`trace`] | commands, dumped as the driver dumps them |
//! | `watch` | doorbell pages that are memory |
//! | `in_process` | the device for the userspace driver in the same process (feature `in-process`) |
//! | `server` | the device for QEMU (feature `server`) |

#![allow(
    dead_code,
    reason = "commands set what steering of raw packets and compression of completions will read"
)]
#![deny(unsafe_code)]

mod adversary;
pub mod cable;
mod caps;
mod checks;
mod command;
mod completion;
mod config;
mod device;
mod events;
mod host;
#[cfg(feature = "in-process")]
#[expect(
    unsafe_code,
    reason = "memory of the process stands for that of a guest"
)]
pub mod in_process;
mod init_segment;
mod memic;
mod memory;
mod pages;
mod paging;
mod pci;
mod port;
mod resources;
#[cfg(feature = "server")]
pub mod server;
pub mod trace;
mod transport;
mod uar;
mod watch;
pub mod wire;

pub use config::{Config, LinkLayer};
pub use device::{BAR0_SIZE, Device, MSIX_VECTORS};
pub use host::{DmaFault, GuestMemory, Interrupts, Link, Ram};
pub use pci::CONFIG_SIZE;
