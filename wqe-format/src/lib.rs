//! Formats that RDMA devices read and write: work queue entries, completions, doorbells.
//!
//! Encode and decode only: no memory mapping, no kernel struct, no allocation.
//!
//! * [`mlx5`]: ConnectX work requests, completions and doorbells (rdma-core `mlx5dv.h`, the manual).
//! * [`rxe`]: soft-RoCE's queues in memory shared with the kernel (uapi `rdma/rdma_user_rxe.h`).
//!
//! A write of 64 bytes as a ConnectX reads it, and back:
//!
//! ```
//! use wqe_format::mlx5::request::{Segment, SendRequest, Service};
//! use wqe_format::mlx5::{CtrlFlags, CtrlSegment, DataSegment, Opcode, RaddrSegment, doorbell};
//! use zerocopy::IntoBytes;
//!
//! let (qpn, first_block, units) = (0x12, 7, 3);
//! let ctrl = CtrlSegment::new(Opcode::RDMA_WRITE, first_block, qpn, units, CtrlFlags::CQ_UPDATE);
//! let remote = RaddrSegment::new(0x7f00_1000, 0x9abc);
//! let data = DataSegment::new(0x7f00_2000, 64, 0x4201);
//! let wqe = [ctrl.as_bytes(), remote.as_bytes(), data.as_bytes()].concat();
//!
//! // What tells the device: the record in memory, then 8 bytes into its register.
//! assert_eq!(doorbell::queue_record(8).to_ne_bytes(), [0, 0, 0, 8]);
//! assert_eq!(ctrl.doorbell().to_ne_bytes(), wqe[..8]);
//!
//! let request = SendRequest::new(&wqe).unwrap();
//! let segments: Vec<_> = request.segments(Service::Connected).collect();
//! assert_eq!(segments, [Segment::Raddr(remote), Segment::Data(data)]);
//! ```
//!
//! The example `decode` turns hex dumps of requests and completions into words and says what probably led to an error:
//! `dmesg | cargo run -p wqe-format --example decode`.
#![no_std]
#![forbid(unsafe_code)]

pub mod mlx5;
pub mod rxe;
