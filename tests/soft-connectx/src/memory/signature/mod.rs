//! Keys whose data have signatures, in memory or on the wire: what goes out through them, and what comes in.
//!
//! Addresses of such a key count bytes of data, without signatures (mlx5dv_wr_mkey_configure(3)). The data path counts what
//! it sends, so whatever it is told is turned into places of the wire first ([`on_wire`]). Blocks are counted from the
//! key's first byte: each transfer begins with the first tags again.

mod format;
mod kind;

use std::cell::RefCell;
use std::collections::BTreeMap;

use self::format::{Domain, gathered, spread};
use super::{Fault, Range, Right, Who};
use crate::completion::cqe::{Cqe, Mistake};
use crate::device::Device;
use crate::resources::{Mkey, Resources};
pub(crate) use format::Format;

/// What is known of data on their way.
#[derive(Debug, Default)]
pub(crate) struct Signatures {
    /// By key: bytes of a signature whose rest comes with the next packet, and which block it is of.
    begun: RefCell<BTreeMap<u32, (u64, Vec<u8>)>>,
    /// What was wrong, and is not told yet.
    found: RefCell<Vec<Mistake>>,
}

/// Which of a key's two sides (`domain` of `struct mlx5_sigerr_cqe`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Wire = 0,
    Memory = 1,
}

/// The format of a key, if its data have one.
fn format_of(resources: &Resources, key: u32) -> Option<Format> {
    super::find(resources, key).ok()?.signed()
}

/// Says where a range of a key's data is on the wire, and how long it is there. What ends where there are no addresses stays
/// as it is: it is out of the key's bounds in any case.
pub(crate) fn on_wire(resources: &Resources, key: u32, va: &mut u64, len: &mut u64) {
    let Some(format) = format_of(resources, key) else {
        return;
    };
    let place = |data: u64| {
        let place = spread(data, format.wire.as_ref());
        (place < u64::MAX).then_some(place)
    };
    let end = va.checked_add(*len).and_then(place);
    if let (Some(start), Some(end)) = (place(*va), end) {
        (*va, *len) = (start, end - start);
    }
}

/// The bytes of the key that a range of the wire stands for.
pub(super) fn in_memory(format: &Format, range: Range) -> Range {
    let place = |on_wire: u64| {
        let data = gathered(on_wire, format.wire.as_ref());
        spread(data, format.memory.as_ref())
    };
    let start = place(range.va);
    Range {
        va: start,
        len: place(range.va.saturating_add(range.len)) - start,
        ..range
    }
}

/// Parts of a range on a side: of data, by their place among the data, or of a block's signature.
enum Part {
    Data { at: u64, len: u64 },
    Signature { block: u64, from: usize, len: usize },
}

fn parts(
    domain: Option<&Domain>,
    start: u64,
    len: usize,
) -> Result<impl Iterator<Item = Part> + use<>, Fault> {
    let domain = domain.copied();
    let mut at = start;
    let end = start.checked_add(len as u64).ok_or(Fault::Bounds)?;
    Ok(std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let left = end - at;
        let Some(it) = domain else {
            let part = Part::Data { at, len: left };
            at = end;
            return Some(part);
        };
        let (block, inside) = (at / it.whole(), at % it.whole());
        if inside < it.block {
            let len = left.min(it.block - inside);
            at += len;
            let at = block * it.block + inside;
            return Some(Part::Data { at, len });
        }
        let len = left.min(it.whole() - inside);
        at += len;
        Some(Part::Signature {
            block,
            from: (inside - it.block) as usize,
            len: len as usize,
        })
    }))
}

/// A key with a format, in use.
pub(super) struct Key<'a> {
    device: &'a Device,
    who: &'a Who,
    key: u32,
    right: Right,
    format: Format,
}

impl<'a> Key<'a> {
    /// If its data have signatures.
    pub(super) fn signed(device: &'a Device, who: &'a Who, key: u32, right: Right) -> Option<Self> {
        let format = format_of(&device.resources, key)?;
        Some(Self {
            device,
            who,
            key,
            right,
            format,
        })
    }

    fn memory(&self, place: u64, to: &mut [u8]) -> Result<(), Fault> {
        super::read_plain(self.device, self.who, (self.key, place), self.right, to)
    }

    /// The data of a block of a side.
    fn block(&self, number: u64, domain: &Domain) -> Result<Vec<u8>, Fault> {
        let mut data = vec![0; domain.block as usize];
        self.data(number * domain.block, &mut data)?;
        Ok(data)
    }

    /// Parts of a range of data that lie in one piece each: those of one block, where memory has signatures.
    fn in_blocks(&self, at: u64, len: usize) -> impl Iterator<Item = (u64, usize)> + use<> {
        let memory = self.format.memory;
        let (mut at, mut left) = (at, len);
        std::iter::from_fn(move || {
            let room = memory.map_or(u64::MAX, |it| it.block - at % it.block);
            let part = left.min(usize::try_from(room).unwrap_or(usize::MAX));
            let this = (part > 0).then_some((at, part));
            at += part as u64;
            left -= part;
            this
        })
    }

    /// Data as memory has them, without a look at signatures.
    fn data(&self, at: u64, to: &mut [u8]) -> Result<(), Fault> {
        let mut rest = to;
        for (at, len) in self.in_blocks(at, rest.len()) {
            let (part, after) = rest.split_at_mut(len);
            self.memory(spread(at, self.format.memory.as_ref()), part)?;
            rest = after;
        }
        Ok(())
    }

    /// The signature that memory has of a block.
    fn stored(&self, number: u64, domain: &Domain) -> Result<[u8; 8], Fault> {
        let mut stored = [0; 8];
        let len = domain.kind.len();
        self.memory(domain.signature(number), &mut stored[..len])?;
        Ok(stored)
    }

    /// Looks at a signature.
    fn check(&self, side: Side, number: u64, domain: &Domain, found: [u8; 8]) -> Result<(), Fault> {
        let computed = domain.kind.of(number, &self.block(number, domain)?);
        if let Some(syndrome) = domain.kind.compare(computed, found, self.format.check) {
            let mistake = Mistake {
                key: self.key,
                syndrome,
                domain: side as u8,
                expected: u64::from_be_bytes(found),
                actual: u64::from_be_bytes(computed),
                offset: number * domain.block,
            };
            self.device.signatures.found.borrow_mut().push(mistake);
        }
        Ok(())
    }

    /// The signature that a side gets: made anew, or partly that of the other side.
    fn made(&self, number: u64, domain: &Domain, other: Option<[u8; 8]>) -> Result<[u8; 8], Fault> {
        let mut made = domain.kind.of(number, &self.block(number, domain)?);
        if let Some(other) = other {
            for (at, (to, from)) in made.iter_mut().zip(other).enumerate() {
                if self.format.copy << at & 0x80 != 0 {
                    *to = from;
                }
            }
        }
        Ok(made)
    }

    /// Data on their way out: what memory has of signatures is checked where they pass.
    fn take(&self, at: u64, to: &mut [u8]) -> Result<(), Fault> {
        self.data(at, to)?;
        if let Some(domain) = &self.format.memory {
            let (first, end) = (at / domain.block, (at + to.len() as u64) / domain.block);
            for number in first..end {
                self.check(Side::Memory, number, domain, self.stored(number, domain)?)?;
            }
        }
        Ok(())
    }

    /// Reads a range of the wire.
    pub(super) fn read(&self, va: u64, to: &mut [u8]) -> Result<(), Fault> {
        let wire = self.format.wire.as_ref();
        let mut rest = to;
        for part in parts(wire, va, rest.len())? {
            match (part, wire) {
                (Part::Signature { block, from, len }, Some(domain)) => {
                    let other = match &self.format.memory {
                        Some(memory) if self.format.passes_on() => {
                            Some(self.stored(block, memory)?)
                        }
                        _ => None,
                    };
                    let made = self.made(block, domain, other)?;
                    let (now, after) = rest.split_at_mut(len);
                    now.copy_from_slice(made.get(from..from + len).ok_or(Fault::Bounds)?);
                    rest = after;
                }
                (Part::Data { at, len }, _) => {
                    let (now, after) = rest.split_at_mut(len as usize);
                    self.take(at, now)?;
                    rest = after;
                }
                (Part::Signature { .. }, None) => return Err(Fault::Translation),
            }
        }
        Ok(())
    }

    /// Data on their way in; memory gets its signatures, but for those that wait for the wire's.
    fn put(&self, at: u64, from: &[u8]) -> Result<(), Fault> {
        let memory = self.format.memory.as_ref();
        let mut rest = from;
        for (at, len) in self.in_blocks(at, rest.len()) {
            let (part, after) = rest.split_at(len);
            self.store(spread(at, memory), part)?;
            rest = after;
            if let Some(domain) = memory
                && (at + len as u64).is_multiple_of(domain.block)
                && !self.format.passes_on()
            {
                self.sign(at / domain.block, domain, None)?;
            }
        }
        Ok(())
    }

    fn store(&self, place: u64, from: &[u8]) -> Result<(), Fault> {
        super::write_plain(self.device, self.who, (self.key, place), self.right, from)
    }

    fn sign(&self, number: u64, domain: &Domain, other: Option<[u8; 8]>) -> Result<(), Fault> {
        let made = self.made(number, domain, other)?;
        self.store(domain.signature(number), &made[..domain.kind.len()])
    }

    /// Writes a range of the wire.
    pub(super) fn write(&self, va: u64, from: &[u8]) -> Result<(), Fault> {
        let wire = self.format.wire.as_ref();
        let mut rest = from;
        for part in parts(wire, va, rest.len())? {
            match (part, wire) {
                (Part::Signature { block, from, len }, Some(domain)) => {
                    let (now, after) = rest.split_at(len);
                    if let Some(found) = self.collected(block, from, now, domain.kind.len()) {
                        self.check(Side::Wire, block, domain, found)?;
                        if let (Some(memory), true) = (&self.format.memory, self.format.passes_on())
                        {
                            self.sign(block, memory, Some(found))?;
                        }
                    }
                    rest = after;
                }
                (Part::Data { at, len }, _) => {
                    let (now, after) = rest.split_at(len as usize);
                    self.put(at, now)?;
                    rest = after;
                }
                (Part::Signature { .. }, None) => return Err(Fault::Translation),
            }
        }
        Ok(())
    }

    /// Bytes of a block's signature from `from` on: the whole, once it is there.
    fn collected(&self, block: u64, from: usize, bytes: &[u8], whole: usize) -> Option<[u8; 8]> {
        let mut begun = self.device.signatures.begun.borrow_mut();
        let mut so_far = match begun.remove(&self.key) {
            Some((of, so_far)) if of == block && so_far.len() >= from => so_far,
            _ => Vec::new(),
        };
        so_far.truncate(from);
        if so_far.len() < from {
            return None;
        }
        so_far.extend(bytes);
        if so_far.len() < whole {
            begun.insert(self.key, (block, so_far));
            return None;
        }
        let mut found = [0; 8];
        found[..whole].copy_from_slice(&so_far[..whole]);
        Some(found)
    }
}

/// What was wrong with signatures, as entries for the completion queue of who used their keys. A key tells of one mistake, and
/// of the next after its owner has said that he knows of that one.
pub(crate) fn mistakes(device: &mut Device) -> Vec<Cqe> {
    let found = device.signatures.found.take();
    let mut told = Vec::new();
    for mistake in found {
        let mkey = device.resources.mkeys.get_mut(mistake.key >> 8);
        if mkey.is_some_and(Mkey::tells_of_mistake) {
            told.push(Cqe::mistaken(&mistake));
        }
    }
    told
}
