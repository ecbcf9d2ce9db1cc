//! Formats that RDMA devices read and write: work queue entries, completions, doorbells.
//!
//! Encode and decode only: no memory mapping, no kernel struct, no allocation.
#![no_std]
#![forbid(unsafe_code)]
