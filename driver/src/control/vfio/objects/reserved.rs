//! A shared queue that nobody receives from. An initiator of dynamic connections has to name one that is there, though it
//! never uses it: the kernel names one of its own (`mlx5_ib_dev_res`), and so does this.

use std::sync::{Mutex, PoisonError};

use uverbs_abi::types::SrqType;
use uverbs_abi::udata::mlx5::CreateSrq as DriverInput;

use super::Objects;
use crate::control::kernel::CreateSrq;
use crate::sys::errno::Errno;
use crate::sys::pages::Pages;

/// Its number, with its memory, made when it is needed first. It lives as long as the device is up.
#[derive(Debug, Default)]
pub(super) struct ReservedQueue(Mutex<Option<(u32, Pages)>>);

/// Bytes of a page: one for the doorbell record, and one for the ring, which is shorter.
const PAGE: usize = 4096;

impl Objects {
    /// The device's number of the reserved queue.
    pub(super) fn reserved_srq(&self) -> Result<u32, Errno> {
        let place = &self.reserved.0;
        let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((number, _)) = &*place {
            return Ok(*number);
        }
        let memory = Pages::new(2 * PAGE)?;
        let start = memory.start().as_ptr().expose_provenance() as u64;
        let input = DriverInput {
            buf_addr: start + PAGE as u64,
            db_addr: start,
            ..DriverInput::default()
        };
        let request = CreateSrq {
            srq_type: SrqType::BASIC,
            pd: self.alloc_pd()?.0,
            max_wr: 1,
            max_sge: 1,
            ..CreateSrq::default()
        };
        // SAFETY: the memory is kept below as long as the device is up, and nobody else has it (K5).
        let made = unsafe { self.create_srq(&request, &input) }?;
        let number = made.udata.srqn;
        *place = Some((number, memory));
        Ok(number)
    }
}
