//! Mailboxes: the parts of commands and answers that do not fit the queue's entries.
//!
//! `mlx5_ifc.h` `cmd_if_box`: 512 bytes of data, the address of the next box, the number of the box in its chain, the
//! command's token and two signatures, 576 bytes; boxes are aligned to 1024 bytes.

use std::sync::{Arc, Mutex, PoisonError};

use wqe_format::mlx5::firmware::command::CmdIfBox;

use crate::control::vfio::memory::{DmaMemory, Iommu};
use crate::sys::errno::Errno;

/// Bytes of data in a box.
pub(super) const DATA: usize = 512;
/// Distance of boxes.
const STRIDE: usize = 1024;
/// Boxes that are mapped at once.
const CHUNK: usize = 64;
/// Where the control signature begins: behind the data.
const CONTROL: usize = DATA;
/// The signatures themselves.
const CONTROL_SIGNATURE: usize = 0x23e;
const SIGNATURE: usize = 0x23f;

/// All boxes of a device.
#[derive(Debug)]
pub(super) struct Boxes {
    iommu: Arc<Iommu>,
    free: Mutex<Vec<Place>>,
}

/// A box.
#[derive(Clone, Debug)]
struct Place {
    memory: DmaMemory,
    offset: usize,
}

/// The boxes of one command or answer.
#[derive(Debug, Default)]
pub(super) struct Chain(Vec<Place>);

impl Boxes {
    pub(super) fn new(iommu: Arc<Iommu>) -> Self {
        Self {
            iommu,
            free: Mutex::default(),
        }
    }

    /// Boxes for `len` bytes, chained, numbered and signed, with zero data.
    pub(super) fn chain(&self, data: &[u8], len: usize, token: u8) -> Result<Chain, Errno> {
        let count = len.div_ceil(DATA);
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        while free.len() < count {
            let memory = self.iommu.allocate(CHUNK * STRIDE, false)?;
            for index in 0..memory.len() / STRIDE {
                free.push(Place {
                    memory: memory.clone(),
                    offset: index * STRIDE,
                });
            }
        }
        let rest = free.len() - count;
        let chain = Chain(free.drain(rest..).collect());
        drop(free);
        chain.fill(data, token);
        Ok(chain)
    }

    /// Boxes that the device does not use any more.
    pub(super) fn give_back(&self, chain: Chain) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.extend(chain.0);
    }
}

impl Place {
    fn iova(&self) -> u64 {
        self.memory.iova(self.offset)
    }
}

impl Chain {
    /// Address of the first box; 0 if there is none.
    pub(super) fn first(&self) -> u64 {
        self.0.first().map_or(0, Place::iova)
    }

    fn fill(&self, data: &[u8], token: u8) {
        for (number, place) in self.0.iter().enumerate() {
            let next = self.0.get(number + 1).map_or(0, Place::iova);
            let mut view = CmdIfBox::zeroed();
            let part = data.chunks(DATA).nth(number).unwrap_or_default();
            view.mailbox_data_mut()[..part.len()].copy_from_slice(part);
            view.set_next_pointer_63_32((next >> 32) as u32)
                .set_next_pointer_31_10((next >> 10) as u32 & 0x3f_ffff)
                .set_block_number(number as u32)
                .set_token(token);
            let bytes = view.as_bytes();
            let control = signature(&bytes[CONTROL..CONTROL_SIGNATURE]);
            view.set_ctrl_signature(control);
            let whole = signature(&view.as_bytes()[..SIGNATURE]);
            view.set_signature(whole);
            place.memory.write(place.offset, view.as_bytes());
        }
    }

    /// Copies the data out.
    pub(super) fn read(&self, to: &mut [u8]) {
        for (part, place) in to.chunks_mut(DATA).zip(&self.0) {
            place.memory.read(place.offset, part);
        }
    }
}

/// What makes the exclusive or of all bytes, itself included, all ones.
pub(super) fn signature(bytes: &[u8]) -> u8 {
    !bytes.iter().fold(0, |sum, byte| sum ^ byte)
}
