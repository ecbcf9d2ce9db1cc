//! Memory keys and their translation: from (key, address, length) to pieces of guest memory.
//!
//! Checks are those of IBTA 10.6.3: the key exists, its low byte and its domain agree, it is in use, the range lies in it, and
//! it grants the access.

mod klm;
pub(crate) mod signature;
pub(crate) mod umr;

use crate::adversary::Freedom;
use crate::command::hca::{DUMP_FILL_MKEY, RESERVED_LKEY};
use crate::device::Device;
use crate::resources::{AccessMode, Mkey, Resources};

/// What is done with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Right {
    LocalRead,
    LocalWrite,
    RemoteRead,
    RemoteWrite,
    RemoteAtomic,
}

impl Right {
    fn is_write(self) -> bool {
        !matches!(self, Right::LocalRead | Right::RemoteRead)
    }

    fn is_local(self) -> bool {
        matches!(self, Right::LocalRead | Right::LocalWrite)
    }

    /// What is needed of the keys to which a key of keys points.
    fn behind(self) -> Right {
        if self.is_write() {
            Right::LocalWrite
        } else {
            Right::LocalRead
        }
    }
}

/// Who uses a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Who {
    pub(crate) pd: u32,
    pub(crate) qpn: u32,
    /// May use the reserved local key, which is the bus' own addresses.
    pub(crate) reserved_lkey: bool,
}

/// A range of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) key: u32,
    pub(crate) va: u64,
    pub(crate) len: u64,
}

/// Why memory can't be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// No such key, or another low byte.
    Key,
    /// It is not in use.
    Free,
    /// Of another domain, or another queue pair's.
    Owner,
    /// Outside.
    Bounds,
    /// The access is not granted.
    Rights,
    /// The translation has no entry for it, or one that leads nowhere.
    Translation,
    /// The translation lacks the page, or the right to write it; it may come.
    Page(Range),
    /// No map of the guest covers what it leads to.
    Dma,
}

/// Where bytes lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the guest's memory.
    Bus(u64),
    /// In memory on the device, by their place in BAR0.
    Memic(u64),
    /// Nowhere: they read as zero, and what is written is lost.
    Nowhere,
}

/// Bytes behind a range, in its order.
pub(crate) type Pieces = Vec<(Place, usize)>;

/// How deep keys of keys may lie.
const DEPTH: u32 = 8;

fn find(resources: &Resources, key: u32) -> Result<&Mkey, Fault> {
    let mkey = resources.mkeys.get(key >> 8).ok_or(Fault::Key)?;
    if mkey.variant == key as u8 {
        Ok(mkey)
    } else {
        Err(Fault::Key)
    }
}

/// The offset of a range in its key, if the key allows the access.
fn grant(mkey: &Mkey, who: &Who, range: &Range, right: Right) -> Result<u64, Fault> {
    if mkey.free {
        return Err(Fault::Free);
    }
    let is_window_of_another = mkey.qpn != 0xff_ffff && mkey.qpn != who.qpn;
    if mkey.pd != who.pd || is_window_of_another {
        return Err(Fault::Owner);
    }
    let is_granted = match right {
        Right::LocalRead => mkey.local_read,
        Right::LocalWrite => mkey.local_write,
        Right::RemoteRead => mkey.remote_read,
        Right::RemoteWrite => mkey.remote_write,
        Right::RemoteAtomic => mkey.atomic,
    };
    if !is_granted {
        return Err(Fault::Rights);
    }
    if mkey.whole {
        range.va.checked_add(range.len).ok_or(Fault::Bounds)?;
        return Ok(range.va.wrapping_sub(mkey.start));
    }
    let offset = match mkey.mode {
        // Addresses count from 0; `start_addr` is where in BAR0 the memory is (`mlx5_ib_get_dm_mr`).
        AccessMode::Memic => range.va,
        _ => range.va.checked_sub(mkey.start).ok_or(Fault::Bounds)?,
    };
    match offset.checked_add(range.len) {
        Some(end) if end <= mkey.len => Ok(offset),
        _ => Err(Fault::Bounds),
    }
}

/// Whether a range can be used, without a look at its translation.
pub(crate) fn check(
    resources: &Resources,
    who: &Who,
    range: Range,
    right: Right,
) -> Result<(), Fault> {
    if is_reserved(who, range.key, right) || is_nowhere(range.key, right) {
        return Ok(());
    }
    let mkey = find(resources, range.key)?;
    let range = match mkey.signed() {
        Some(format) => signature::in_memory(&format, range),
        None => range,
    };
    grant(mkey, who, &range, right).map(drop)
}

fn is_reserved(who: &Who, key: u32, right: Right) -> bool {
    who.reserved_lkey && key == RESERVED_LKEY && right.is_local()
}

/// The key without memory, which everybody may use in lists of his own.
fn is_nowhere(key: u32, right: Right) -> bool {
    key == DUMP_FILL_MKEY && right.is_local()
}

/// The memory behind a range.
pub(crate) fn pieces(
    resources: &Resources,
    who: &Who,
    range: Range,
    right: Right,
) -> Result<Pieces, Fault> {
    let mut pieces = Vec::new();
    if is_reserved(who, range.key, right) {
        pieces.push((Place::Bus(range.va), to_usize(range.len)?));
    } else if is_nowhere(range.key, right) {
        pieces.push((Place::Nowhere, to_usize(range.len)?));
    } else {
        translate(resources, who, range, right, DEPTH, &mut pieces)?;
    }
    Ok(pieces)
}

fn to_usize(len: u64) -> Result<usize, Fault> {
    usize::try_from(len).map_err(|_| Fault::Bounds)
}

fn translate(
    resources: &Resources,
    who: &Who,
    range: Range,
    right: Right,
    depth: u32,
    pieces: &mut Pieces,
) -> Result<(), Fault> {
    let depth = depth.checked_sub(1).ok_or(Fault::Translation)?;
    let mkey = find(resources, range.key)?;
    let offset = grant(mkey, who, &range, right)?;
    match mkey.mode {
        AccessMode::Pa => {
            pieces.push((Place::Bus(range.va), to_usize(range.len)?));
            Ok(())
        }
        AccessMode::Mtt => pages(mkey, offset, range, right, pieces),
        AccessMode::Ksm => {
            let size = page_size(mkey)?;
            for (entry, inside, len) in equal_parts(mkey, size, offset, range.len) {
                let words = mkey.translation.get(entry?..).unwrap_or_default();
                let (key, va) = klm::ksm_entry(words).ok_or(Fault::Translation)?;
                let part = Range {
                    key,
                    va: va.wrapping_add(inside),
                    len,
                };
                translate(resources, who, part, right.behind(), depth, pieces)?;
            }
            Ok(())
        }
        AccessMode::Klms => klm::walk(&mkey.translation, offset, range.len, &mut |part| {
            translate(resources, who, part, right.behind(), depth, pieces)
        }),
        AccessMode::Memic => {
            let at = mkey.start.checked_add(offset).ok_or(Fault::Bounds)?;
            pieces.push((Place::Memic(at), to_usize(range.len)?));
            Ok(())
        }
        AccessMode::Other(_) => Err(Fault::Translation),
    }
}

fn page_size(mkey: &Mkey) -> Result<u64, Fault> {
    1u64.checked_shl(mkey.log_entity.into())
        .ok_or(Fault::Translation)
}

/// Parts of a range by entries of one size: number of the entry, offset in it, length. The key's first byte lies in its first
/// entry where its address says.
fn equal_parts(
    mkey: &Mkey,
    size: u64,
    offset: u64,
    len: u64,
) -> impl Iterator<Item = (Result<usize, Fault>, u64, u64)> {
    let octowords = if mkey.mode == AccessMode::Mtt { 8 } else { 16 };
    let mut at = offset.checked_add(mkey.start & (size - 1));
    let mut left = len;
    std::iter::from_fn(move || {
        if left == 0 {
            return None;
        }
        let Some(here) = at else {
            left = 0;
            return Some((Err(Fault::Translation), 0, 0));
        };
        let inside = here & (size - 1);
        let part = left.min(size - inside);
        left -= part;
        at = here.checked_add(part);
        let entry = (here / size).checked_mul(octowords);
        let entry = entry.and_then(|entry| usize::try_from(entry).ok());
        Some((entry.ok_or(Fault::Translation), inside, part))
    })
}

fn pages(
    mkey: &Mkey,
    offset: u64,
    range: Range,
    right: Right,
    pieces: &mut Pieces,
) -> Result<(), Fault> {
    let len = range.len;
    let size = page_size(mkey)?;
    for (entry, inside, len) in equal_parts(mkey, size, offset, len) {
        let entry = mkey.translation.get(entry?..).unwrap_or_default();
        let page = entry.first_chunk::<8>().ok_or(Fault::Translation)?;
        let page = u64::from_be_bytes(*page);
        // The lowest bits say whether it may be read and written (`MLX5_EN_RD`, `MLX5_EN_WR` of Linux mlx5/device.h).
        let is_there = page & 1 != 0 && (page & 2 != 0 || !right.is_write());
        if mkey.may_miss_pages && !is_there {
            return Err(Fault::Page(range));
        }
        let page = page & !7;
        let iova = page.checked_add(inside).ok_or(Fault::Translation)?;
        let len = to_usize(len)?;
        match pieces.last_mut() {
            Some((Place::Bus(last), length)) if last.checked_add(*length as u64) == Some(iova) => {
                *length += len;
            }
            _ => pieces.push((Place::Bus(iova), len)),
        }
    }
    Ok(())
}

/// The memory behind a range. If a page is missing that may come, that is remembered (see [`paging`](crate::paging)).
fn reach(device: &Device, who: &Who, range: Range, right: Right) -> Result<Pieces, Fault> {
    device.paging.begin();
    let found = pieces(&device.resources, who, range, right);
    if let Err(Fault::Page(missed)) = found
        && device.caps.pages_on_demand()
    {
        device.paging.miss(missed);
    }
    found
}

/// Reads from a range into `to`, which is as long as it: what goes out on the wire, with the signatures that it has there.
pub(crate) fn read(
    device: &Device,
    who: &Who,
    (key, va): (u32, u64),
    right: Right,
    to: &mut [u8],
) -> Result<(), Fault> {
    match signature::Key::signed(device, who, key, right) {
        Some(signed) => signed.read(va, to),
        None => read_plain(device, who, (key, va), right, to),
    }
}

fn read_plain(
    device: &Device,
    who: &Who,
    (key, va): (u32, u64),
    right: Right,
    to: &mut [u8],
) -> Result<(), Fault> {
    let len = to.len() as u64;
    let mut rest = to;
    for (place, len) in reach(device, who, Range { key, va, len }, right)? {
        let (part, after) = rest.split_at_mut_checked(len).ok_or(Fault::Translation)?;
        match place {
            Place::Bus(iova) => device.memory.read(iova, part).map_err(|_| Fault::Dma)?,
            Place::Memic(at) => device.memic.read(at, part).ok_or(Fault::Translation)?,
            Place::Nowhere => part.fill(0),
        }
        rest = after;
    }
    Ok(())
}

/// Writes `from` to a range: what came by the wire, with the signatures that it has there.
pub(crate) fn write(
    device: &Device,
    who: &Who,
    (key, va): (u32, u64),
    right: Right,
    from: &[u8],
) -> Result<(), Fault> {
    match signature::Key::signed(device, who, key, right) {
        Some(signed) => signed.write(va, from),
        None => write_plain(device, who, (key, va), right, from),
    }
}

fn write_plain(
    device: &Device,
    who: &Who,
    (key, va): (u32, u64),
    right: Right,
    from: &[u8],
) -> Result<(), Fault> {
    let len = from.len() as u64;
    let mut rest = from;
    let mut parts = Vec::new();
    for (place, len) in reach(device, who, Range { key, va, len }, right)? {
        let (part, after) = rest.split_at_checked(len).ok_or(Fault::Translation)?;
        parts.push((place, part));
        rest = after;
    }
    if device.adversary.is_there() {
        parts = parts.into_iter().flat_map(lines).collect();
        device.adversary.shuffle_by(Freedom::Order, va, &mut parts);
    }
    for (place, part) in parts {
        match place {
            Place::Bus(iova) => device.memory.write(iova, part).map_err(|_| Fault::Dma)?,
            Place::Memic(at) => device.memic.write(at, part).ok_or(Fault::Translation)?,
            Place::Nowhere => {}
        }
    }
    Ok(())
}

/// The cache lines of a piece, of which each is written as a whole, in any order.
fn lines((place, mut rest): (Place, &[u8])) -> Vec<(Place, &[u8])> {
    const LINE: u64 = 64;
    let Place::Bus(mut at) = place else {
        return vec![(place, rest)];
    };
    let mut lines = Vec::new();
    while !rest.is_empty() {
        let room = (LINE - at % LINE) as usize;
        let (line, after) = rest.split_at(room.min(rest.len()));
        lines.push((Place::Bus(at), line));
        at = at.wrapping_add(line.len() as u64);
        rest = after;
    }
    lines
}

#[cfg(test)]
mod tests;
