//! On-demand paging: a page that a key's translation does not have is asked for, and who needs it waits.
//!
//! The scheme is that of memory (`odp_cap.mem_page_fault`): an event names key, address and a token, and `PAGE_FAULT_RESUME`
//! with that token lets the queue pair go on, or ends it with an error. A sender waits where it is. A receiver answers that
//! it is not ready, as cards do, so that the packet comes again; what it reads for an answer waits too.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use wqe_format::mlx5::firmware::EventType;

use crate::device::Device;
use crate::events;
use crate::memory::Range;

/// Kind of event (Linux include/linux/mlx5/device.h `MLX5_PFAULT_SUBTYPE_MEMORY`).
const MEMORY: u8 = 2;
/// The queue pair waits for this one: the driver resumes it (`MLX5_MEMORY_PAGE_FAULT_FLAGS_LAST` of Linux mlx5/odp.c).
const LAST: u8 = 1 << 7;
/// Unit in which the event counts (`MEMORY_SCHEME_PAGE_FAULT_GRANULARITY` there).
const PAGE: u64 = 4096;

/// Which half of a queue pair waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Side {
    Send,
    Answer,
}

/// What is asked for and what was missed.
#[derive(Debug, Default)]
pub(crate) struct Paging {
    /// The page that the last access of memory missed.
    missed: Cell<Option<Range>>,
    /// By token.
    waiting: BTreeMap<u64, (u32, Side)>,
    /// Who is not given a page; the next miss is an error.
    refused: BTreeSet<(u32, Side)>,
    next: u64,
}

impl Paging {
    /// An access begins.
    pub(crate) fn begin(&self) {
        self.missed.set(None);
    }

    /// It misses a page.
    pub(crate) fn miss(&self, range: Range) {
        self.missed.set(Some(range));
    }

    /// Whether this half waits for a page.
    pub(crate) fn holds(&self, qpn: u32, side: Side) -> bool {
        self.waiting.values().any(|it| *it == (qpn, side))
    }
}

/// An access failed: whether that was for want of a page that the driver may bring, so that it is to be tried again.
pub(crate) fn wait(device: &mut Device, qpn: u32, side: Side) -> bool {
    let Some(missed) = device.paging.missed.take() else {
        return false;
    };
    if device.paging.refused.remove(&(qpn, side)) {
        return false;
    }
    if device.paging.holds(qpn, side) {
        return true;
    }
    if events::taker(device, EventType::PAGE_FAULT).is_none() {
        return false;
    }
    let paging = &mut device.paging;
    // 48 bits, of which 0 is as good as any.
    let token = paging.next & 0xffff_ffff_ffff;
    paging.next = token + 1;
    paging.waiting.insert(token, (qpn, side));
    log::debug!("queue {qpn:#x} waits for {missed:x?}, token {token}");
    events::raise_async(device, EventType::PAGE_FAULT, MEMORY, &event(token, missed));
    true
}

/// `mlx5_eqe_page_fault.memory` of Linux include/linux/mlx5/device.h.
fn event(token: u64, missed: Range) -> [u8; 28] {
    let mut data = [0; 28];
    data[0] = LAST;
    let pages = (missed.va % PAGE).saturating_add(missed.len).div_ceil(PAGE);
    // Bits 31:12 count pages; see there.
    let size = u32::try_from(pages.saturating_mul(PAGE)).unwrap_or(!0xfff);
    data[6..12].copy_from_slice(&token.to_be_bytes()[2..]);
    data[12..16].copy_from_slice(&size.to_be_bytes());
    data[16..20].copy_from_slice(&missed.key.to_be_bytes());
    data[20..28].copy_from_slice(&missed.va.to_be_bytes());
    data
}

/// The driver has an answer to a token; whether there is such a token.
pub(crate) fn resume(device: &mut Device, token: u64, is_error: bool) -> bool {
    let Some(who) = device.paging.waiting.remove(&token) else {
        return false;
    };
    if is_error {
        device.paging.refused.insert(who);
    }
    crate::transport::wake(device, who.0);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_as_the_kernel_reads_it() {
        let missed = Range {
            key: 0x1234_5678,
            va: 0x7f00_0000_0ffe,
            len: 4,
        };
        let data = event(0x1122_3344_5566, missed);
        assert_eq!(data[..6], [0x80, 0, 0, 0, 0, 0]);
        assert_eq!(data[6..12], [0x11, 0x22, 0x33, 0x44, 0x55, 0x66]);
        assert_eq!(data[12..16], 0x2000_u32.to_be_bytes(), "two pages");
        assert_eq!(data[16..20], [0x12, 0x34, 0x56, 0x78]);
        assert_eq!(data[20..], [0, 0, 0x7f, 0, 0, 0, 0x0f, 0xfe]);
        let all = Range {
            va: u64::MAX,
            len: u64::MAX,
            ..missed
        };
        assert_eq!(event(0, all)[12..16], [0xff, 0xff, 0xf0, 0]);
    }
}
