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
