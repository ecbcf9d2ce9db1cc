//! Whose resources are whose, and what many commands read alike.

use super::Refusal;
use super::refusal::{bad_parameter, bad_resource};
use crate::device::Device;
use crate::resources::Buffer;

/// The owner of what every user context may use, such as the kernel's counters (`MLX5_SHARED_RESOURCE_UID` of the
/// kernel's `mlx5_ib`).
pub(super) const SHARED: u16 = 0xffff;

/// The user context a command comes from, where all commands have it; 0 is the kernel.
pub(super) fn uid(input: &[u8]) -> u16 {
    match input {
        [_, _, high, low, ..] => u16::from_be_bytes([*high, *low]),
        _ => 0,
    }
}

/// Whether who sent the command may touch what `owner` made; `None` is nothing there.
pub(super) fn check(input: &[u8], owner: Option<u16>) -> Result<(), Refusal> {
    let owner = owner.ok_or(bad_resource("there is no such resource"))?;
    match uid(input) {
        0 => Ok(()),
        uid if uid == owner || owner == SHARED => Ok(()),
        _ => Err(bad_resource("the resource is another user context's")),
    }
}

/// A protection domain that who sent the command may use.
pub(super) fn pd(device: &Device, input: &[u8], number: u32) -> Result<(), Refusal> {
    check(input, device.resources.pds.get(number).map(|pd| pd.uid))
}

/// A doorbell page that who sent the command may use.
pub(super) fn uar(device: &Device, input: &[u8], number: u32) -> Result<(), Refusal> {
    // Pages that the kernel has given to a process stay the kernel's.
    match device.resources.uars.get(number) {
        Some(page) if page.uid == 0 || uid(input) == 0 || page.uid == uid(input) => Ok(()),
        _ => Err(bad_resource("there is no such doorbell page")),
    }
}

/// Addresses of 8 bytes, as commands list them.
pub(super) fn addresses(list: &[u8]) -> impl Iterator<Item = u64> {
    list.chunks_exact(8)
        .map(|a| u64::from_be_bytes([a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7]]))
}

/// A buffer of `len` bytes out of a command's list of pages. `log_page` is counted from 4 KiB;
/// `start` is where in the first page it begins.
pub(super) fn buffer(
    list: impl Iterator<Item = u64>,
    log_page: u8,
    start: u32,
    len: u64,
) -> Result<Buffer, Refusal> {
    let log_page = log_page.saturating_add(12);
    if log_page > 31 {
        return Err(bad_parameter("pages are too large"));
    }
    let count = (u64::from(start) + len).div_ceil(1 << log_page);
    let count = usize::try_from(count).map_err(|_| bad_parameter("the queue is too large"))?;
    let pages: Vec<u64> = list.take(count).collect();
    if pages.len() != count {
        return Err(bad_parameter("the queue needs more pages than are listed"));
    }
    // The low bits of an address are not an address' (`pas` carry flags there).
    let pages = pages.iter().map(|page| page & !0xfff).collect();
    Ok(Buffer {
        pages,
        log_page,
        start,
    })
}

/// Where in its first page a queue begins: `page_offset` counts in 64ths of a page.
pub(super) fn start(page_offset: u8, log_page: u8) -> u32 {
    // Pages of more than 2 GiB are refused by `buffer`.
    u32::from(page_offset) << log_page.saturating_add(6).min(25)
}

/// A completion queue that who sent the command may use.
pub(super) fn cq(device: &Device, input: &[u8], number: u32) -> Result<(), Refusal> {
    check(input, device.resources.cqs.get(number).map(|cq| cq.uid))
}

/// A doorbell record's address.
pub(super) fn record(address: u64, align: u64) -> Result<u64, Refusal> {
    if !address.is_multiple_of(align) {
        return Err(bad_parameter("the doorbell record is not aligned"));
    }
    Ok(address)
}

/// A queue's buffer out of registered user memory.
pub(super) fn umem_buffer(
    device: &Device,
    input: &[u8],
    number: u32,
    offset: u64,
    len: u64,
) -> Result<Buffer, Refusal> {
    let umem = device.resources.umems.get(number);
    check(input, umem.map(|umem| umem.uid))?;
    let mut buffer = umem
        .ok_or(bad_resource("there is no such user memory"))?
        .buffer
        .clone();
    if offset.checked_add(len).is_none_or(|end| end > buffer.len()) {
        return Err(bad_parameter("the queue is outside the user memory"));
    }
    // Whole pages before the queue are left out.
    let start = u64::from(buffer.start) + offset;
    let before = (start >> buffer.log_page) as usize;
    buffer.pages.drain(..before.min(buffer.pages.len()));
    buffer.start = (start & ((1 << buffer.log_page) - 1)) as u32;
    Ok(buffer)
}

/// A doorbell record in registered user memory.
pub(super) fn umem_record(
    device: &Device,
    input: &[u8],
    number: u32,
    offset: u64,
) -> Result<u64, Refusal> {
    let buffer = umem_buffer(device, input, number, offset, 8)?;
    let pieces = buffer.pieces(0, 8);
    match pieces.as_deref() {
        Ok([(address, 8)]) => record(*address, 8),
        _ => Err(bad_parameter("the doorbell record is not aligned")),
    }
}
