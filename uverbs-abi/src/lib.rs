//! The Linux uverbs kernel ABI: bytes in, bytes out.
#![no_std]
#![forbid(unsafe_code)]
