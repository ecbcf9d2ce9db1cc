//! Firmware commands of ConnectX: what a driver writes into mailboxes and what the firmware answers.
//!
//! Each structure is a type over bytes, with a function for each field that reads it, and one that writes it. The same
//! types build and read commands, replies, contexts and registers, on the driver's side and on the device's:
//!
//! ```
//! use wqe_format::mlx5::firmware::cq::{CreateCqIn, CreateCqOut, Cqc};
//! use wqe_format::mlx5::firmware::{Opcode, Status};
//!
//! // The driver asks for a completion queue of 2^7 entries in one page ...
//! let mut bytes = [0; CreateCqIn::SIZE + 8];
//! let mut input = CreateCqIn::new(&mut bytes)?;
//! input.set_opcode(Opcode::CREATE_CQ.0).set_pas(0, 0x1234_5000);
//! input.cq_context_mut().set_log_cq_size(7).set_uar_page(16);
//!
//! // ... and the device reads that, and answers.
//! let input = CreateCqIn::new(&bytes)?;
//! assert_eq!(input.cq_context().log_cq_size(), 7);
//! assert_eq!(input.pas().collect::<Vec<_>>(), [0x1234_5000]);
//! let mut reply = CreateCqOut::zeroed();
//! reply.set_status(Status::OK.0).set_cqn(0x40);
//! # Ok::<(), wqe_format::mlx5::firmware::Short>(())
//! ```
//!
//! Nothing here panics: a view is refused when there are fewer bytes than the layout has, and a number that does not fit
//! its field is cut off. [`layouts`] lists every layout with the place of every field; a test compares that with Linux'
//! `mlx5_ifc.h`.

pub mod bits;
pub mod caps;
pub mod command;
pub mod congestion;
pub mod cq;
pub mod dct;
pub mod devx;
pub mod domain;
pub mod eq;
pub mod eqe;
mod event;
pub mod flow;
pub mod hca;
pub mod hca_vport;
pub mod l2_table;
pub mod lag;
mod layout;
pub mod mad;
pub mod memic;
pub mod mkey;
pub mod multicast;
pub mod nic_vport;
pub mod object;
mod opcode;
pub mod pacing;
pub mod page_fault;
pub mod pages;
pub mod psv;
pub mod q_counter;
pub mod qp;
pub mod qp_modify;
pub mod qpc;
pub mod register;
pub mod rmp;
pub mod roce;
pub mod rq;
pub mod rqt;
pub mod segment;
pub mod sq;
pub mod srq;
pub mod srqc;
mod status;
pub mod tir;
pub mod tis;
pub mod uar;
pub mod vport;
pub mod vxlan;
pub mod wq;
pub mod xrc_srq;
pub mod xrq;

pub use event::{EventType, PortChange};
pub use layout::{Count, Field, Layout, Short};
pub use opcode::Opcode;
pub use status::{Delivery, Status};

/// Every layout of this module and those in it.
pub fn layouts() -> impl Iterator<Item = &'static Layout> {
    let groups: [&[&[&[&Layout]]]; 2] = [ROOT, NESTED];
    groups
        .into_iter()
        .flatten()
        .copied()
        .flatten()
        .copied()
        .flatten()
        .copied()
}

const NESTED: &[&[&[&Layout]]] = &[caps::LAYOUTS, flow::LAYOUTS, register::LAYOUTS];
const ROOT: &[&[&[&Layout]]] = &[
    &[command::LAYOUTS],
    &[congestion::LAYOUTS],
    &[cq::LAYOUTS],
    &[dct::LAYOUTS],
    &[devx::LAYOUTS],
    &[domain::LAYOUTS],
    &[eq::LAYOUTS],
    &[eqe::LAYOUTS],
    &[hca::LAYOUTS],
    &[hca_vport::LAYOUTS],
    &[l2_table::LAYOUTS],
    &[lag::LAYOUTS],
    &[mad::LAYOUTS],
    &[memic::LAYOUTS],
    &[mkey::LAYOUTS],
    &[multicast::LAYOUTS],
    &[nic_vport::LAYOUTS],
    &[object::LAYOUTS],
    &[pacing::LAYOUTS],
    &[page_fault::LAYOUTS],
    &[pages::LAYOUTS],
    &[psv::LAYOUTS],
    &[q_counter::LAYOUTS],
    &[qp::LAYOUTS],
    &[qp_modify::LAYOUTS],
    &[qpc::LAYOUTS],
    &[rmp::LAYOUTS],
    &[roce::LAYOUTS],
    &[rq::LAYOUTS],
    &[rqt::LAYOUTS],
    &[segment::LAYOUTS],
    &[sq::LAYOUTS],
    &[srq::LAYOUTS],
    &[srqc::LAYOUTS],
    &[tir::LAYOUTS],
    &[tis::LAYOUTS],
    &[uar::LAYOUTS],
    &[vport::LAYOUTS],
    &[vxlan::LAYOUTS],
    &[wq::LAYOUTS],
    &[xrc_srq::LAYOUTS],
    &[xrq::LAYOUTS],
];

/// Constants of a number's type, and their names: `NAME = number, "name in the kernel, behind the prefix";`.
macro_rules! numbers {
    ($type:ident, $prefix:literal: $($name:ident = $value:literal, $text:literal;)*) => {
        impl $type {
            $(
                #[doc = concat!("`", $prefix, $text, "`.")]
                pub const $name: Self = Self($value);
            )*

            /// Every number that this crate knows.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The name, if the number has one.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}
use numbers;
