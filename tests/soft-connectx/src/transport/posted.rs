//! What a strict device remembers of a send ring.

use std::collections::VecDeque;

use wqe_format::mlx5::SEND_WQE_BB;

use crate::resources::Ring;

/// Requests that are remembered as a whole.
const RECENT: usize = 64;

/// Requests that were fetched.
#[derive(Debug, Default)]
pub(crate) struct Posted {
    /// The last ones: index and bytes. Writes to registers are posted, so a request's copy may arrive when the request is long
    /// completed and its place in memory taken by another.
    recent: VecDeque<(u16, Vec<u8>)>,
    /// What stood in each place of the ring when it was fetched last.
    ring: Vec<u8>,
}

impl Posted {
    /// Remembers a request at a basic block.
    pub(super) fn keep(&mut self, ring: &Ring, index: u16, bytes: &[u8]) {
        self.recent.truncate(RECENT - 1);
        self.recent.push_front((index, bytes.to_vec()));
        self.ring.resize(ring.len() as usize, 0);
        for (nth, block) in bytes.chunks(SEND_WQE_BB).enumerate() {
            let start = place(ring, index, nth * SEND_WQE_BB);
            if let Some(place) = self.ring.get_mut(start..start + block.len()) {
                place.copy_from_slice(block);
            }
        }
    }

    /// The queue pair was reset: requests are counted anew, and the ring keeps what is in it.
    pub(super) fn restarted(&mut self) -> Self {
        Self {
            recent: VecDeque::new(),
            ring: std::mem::take(&mut self.ring),
        }
    }

    /// A request, if it is one of the last.
    pub(super) fn find(&self, index: u16) -> Option<&[u8]> {
        let mut recent = self.recent.iter();
        let found = recent.find(|(number, _)| *number == index);
        found.map(|(_, bytes)| &bytes[..])
    }

    /// Whether bytes `at` of a request are what an earlier one left in their place. They don't reach over a basic block.
    pub(super) fn is_left_over(&self, ring: &Ring, index: u16, at: usize, bytes: &[u8]) -> bool {
        let start = place(ring, index, at);
        self.ring.get(start..start + bytes.len()) == Some(bytes)
    }
}

/// Where in the ring a byte of a request stands.
fn place(ring: &Ring, index: u16, at: usize) -> usize {
    (usize::from(index) * SEND_WQE_BB + at) & (ring.len() as usize - 1)
}
