//! Memory on the device (MEMIC), in a window of BAR0 behind the doorbell pages.
//!
//! The driver chooses a range of the window's pages (`ALLOC_MEMIC`), maps it for a program and makes memory keys of it. A
//! second and third window of the same size lead to the same memory with an operation: a write to the one adds, a read of
//! the other answers the old value and leaves 1 (rdma-core `tests/test_mlx5_dm_ops.py`; the numbers of the operations are
//! theirs).

use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::device::BAR0_SIZE;
use crate::uar::PAGE_SIZE;

/// Bytes that can be allocated, as cards have (`ibv_devinfo -v` of a ConnectX-6 says 131072).
pub(crate) const CAPACITY: u64 = 128 << 10;
/// Bytes of a window; the kernel's bitmap has 256 pages (`MLX5_MAX_MEMIC_PAGES` of its `driver.h`).
pub(crate) const WINDOW: u64 = 2 * CAPACITY;
/// Log of the smallest allocation and of what they are multiples of (`MLX5_MEMIC_BASE_SIZE`).
pub(crate) const LOG_UNIT: u8 = 6;
/// Log of the largest alignment, in units of 64 bytes: a page.
pub(crate) const LOG_ALIGNMENT: u8 = 6;
/// Operations that a program may map, as a mask.
pub(crate) const OPERATIONS: u32 = 1 << ADD | 1 << TEST_AND_SET;
/// Where the first window begins.
pub(crate) const START: u64 = BAR0_SIZE - 3 * WINDOW;

const ADD: u8 = 0;
const TEST_AND_SET: u8 = 1;

/// What an access of BAR0 does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Plain,
    Add,
    TestAndSet,
}

/// One allocation.
#[derive(Debug)]
struct Area {
    bytes: RefCell<Vec<u8>>,
    /// Operations that are mapped, as a mask.
    operations: u32,
}

/// Why nothing is allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Not what can be asked for.
    Malformed,
    /// The range is taken, or the memory.
    Full,
    /// There is nothing at this address.
    Unknown,
}

/// All of it.
#[derive(Debug, Default)]
pub(crate) struct Memic {
    /// By their place in BAR0.
    areas: BTreeMap<u64, Area>,
}

impl Memic {
    /// Whether an offset in BAR0 is in one of the windows.
    pub(crate) fn has(offset: u64) -> bool {
        (START..START + 3 * WINDOW).contains(&offset)
    }

    /// Whether nothing is allocated.
    pub(crate) fn is_empty(&self) -> bool {
        self.areas.is_empty()
    }

    /// Takes `size` bytes at the beginning of a range of the window, whose memory is zero then.
    pub(crate) fn alloc(&mut self, range: (u64, u64), size: u64) -> Result<u64, Refusal> {
        let (start, room) = range;
        let end = start.checked_add(room).ok_or(Refusal::Malformed)?;
        let is_whole = start.is_multiple_of(PAGE_SIZE) && room.is_multiple_of(PAGE_SIZE);
        let is_inside = start >= START && end <= START + WINDOW;
        let fits = size > 0 && size <= room && size.is_multiple_of(1 << LOG_UNIT);
        if !is_whole || !is_inside || !fits {
            return Err(Refusal::Malformed);
        }
        let overlaps = self
            .areas
            .range(..end)
            .next_back()
            .is_some_and(|(at, area)| {
                let pages = (area.bytes.borrow().len() as u64).next_multiple_of(PAGE_SIZE);
                at + pages > start
            });
        let used: usize = self.areas.values().map(|a| a.bytes.borrow().len()).sum();
        if overlaps || used as u64 + size > CAPACITY {
            return Err(Refusal::Full);
        }
        let area = Area {
            bytes: RefCell::new(vec![0; size as usize]),
            operations: 0,
        };
        self.areas.insert(start, area);
        Ok(start)
    }

    /// Gives all of an allocation back.
    pub(crate) fn free(&mut self, start: u64, size: u64) -> Result<(), Refusal> {
        let area = self.areas.get(&start).ok_or(Refusal::Unknown)?;
        if area.bytes.borrow().len() as u64 != size {
            return Err(Refusal::Malformed);
        }
        self.areas.remove(&start);
        Ok(())
    }

    /// Maps an operation on an allocation; the answer is where it is in BAR0.
    pub(crate) fn map(&mut self, start: u64, operation: u8) -> Result<u64, Refusal> {
        let area = self.areas.get_mut(&start).ok_or(Refusal::Unknown)?;
        let bit = bit(operation).ok_or(Refusal::Malformed)?;
        area.operations |= bit;
        Ok(start + WINDOW * (1 + u64::from(operation)))
    }

    /// Ends such a mapping.
    pub(crate) fn unmap(&mut self, start: u64, operation: u8) -> Result<(), Refusal> {
        let area = self.areas.get_mut(&start).ok_or(Refusal::Unknown)?;
        let bit = bit(operation).filter(|bit| area.operations & bit != 0);
        area.operations &= !bit.ok_or(Refusal::Malformed)?;
        Ok(())
    }

    /// The allocation that has all of a range, and where in it that begins.
    fn find(&self, at: u64, len: usize) -> Option<(&Area, usize)> {
        let (start, area) = self.areas.range(..=at).next_back()?;
        let inside = usize::try_from(at - start).ok()?;
        let end = inside.checked_add(len)?;
        (end <= area.bytes.borrow().len()).then_some((area, inside))
    }

    /// Whether a range is allocated, all of it in one piece.
    pub(crate) fn is_allocated(&self, at: u64, len: u64) -> bool {
        usize::try_from(len).is_ok_and(|len| self.find(at, len).is_some())
    }

    /// Reads; nothing if the range is not allocated.
    pub(crate) fn read(&self, at: u64, to: &mut [u8]) -> Option<()> {
        let (area, inside) = self.find(at, to.len())?;
        to.copy_from_slice(area.bytes.borrow().get(inside..inside + to.len())?);
        Some(())
    }

    /// Writes; nothing if the range is not allocated.
    pub(crate) fn write(&self, at: u64, from: &[u8]) -> Option<()> {
        let (area, inside) = self.find(at, from.len())?;
        let mut bytes = area.bytes.borrow_mut();
        bytes
            .get_mut(inside..inside + from.len())?
            .copy_from_slice(from);
        Some(())
    }

    /// A processor reads BAR0. What is not there reads as ones.
    pub(crate) fn bar_read(&self, offset: u64, to: &mut [u8]) {
        let (at, operation) = place(offset);
        if self.lacks(at, operation) || self.read(at, to).is_none() {
            to.fill(0xff);
        } else if operation == Operation::TestAndSet {
            let mut one = [0; 8];
            one[0] = 1;
            self.write(at, &one[..to.len().min(8)]);
        }
    }

    /// A processor writes BAR0. What is not there swallows it.
    pub(crate) fn bar_write(&self, offset: u64, from: &[u8]) {
        let (at, operation) = place(offset);
        if self.lacks(at, operation) || operation == Operation::TestAndSet {
            return;
        }
        let mut old = [0; 8];
        match (operation, old.get_mut(..from.len())) {
            (Operation::Add, Some(bytes)) => {
                if self.read(at, bytes).is_some() {
                    let mut add = [0; 8];
                    add[..from.len()].copy_from_slice(from);
                    // Carries end where the access does.
                    let new = u64::from_le_bytes(old).wrapping_add(u64::from_le_bytes(add));
                    self.write(at, &new.to_le_bytes()[..from.len()]);
                }
            }
            (Operation::Add, None) => {}
            _ => _ = self.write(at, from),
        }
    }

    fn lacks(&self, at: u64, operation: Operation) -> bool {
        let bit = match operation {
            Operation::Plain => return false,
            Operation::Add => 1 << ADD,
            Operation::TestAndSet => 1 << TEST_AND_SET,
        };
        let area = self.find(at, 0);
        area.is_none_or(|(area, _)| area.operations & bit == 0)
    }
}

fn bit(operation: u8) -> Option<u32> {
    1u32.checked_shl(operation.into())
        .filter(|bit| OPERATIONS & bit != 0)
}

/// The place in the first window, and what an access there does.
fn place(offset: u64) -> (u64, Operation) {
    let inside = offset.saturating_sub(START);
    let operation = match inside / WINDOW {
        0 => Operation::Plain,
        1 => Operation::Add,
        _ => Operation::TestAndSet,
    };
    (START + inside % WINDOW, operation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_taken_and_given_back() {
        let mut memic = Memic::default();
        let page = |n: u64| START + n * PAGE_SIZE;
        assert_eq!(memic.alloc((page(0), 2 * PAGE_SIZE), 4160), Ok(page(0)));
        for (start, room, size) in [
            (page(2) + 64, PAGE_SIZE, 64),
            (page(2), 64, 64),
            (page(2), PAGE_SIZE, 0),
            (page(2), PAGE_SIZE, 65),
            (page(2), PAGE_SIZE, PAGE_SIZE + 64),
            (START - PAGE_SIZE, PAGE_SIZE, 64),
            (page(63), 2 * PAGE_SIZE, 64),
            (u64::MAX - 4095, PAGE_SIZE, 64),
        ] {
            let refused = Err(Refusal::Malformed);
            assert_eq!(memic.alloc((start, room), size), refused, "{start:#x}");
        }
        let full = Err(Refusal::Full);
        assert_eq!(memic.alloc((page(1), PAGE_SIZE), 64), full, "it is taken");
        let rest = CAPACITY - 4160;
        let more = (rest + 64).next_multiple_of(PAGE_SIZE);
        assert_eq!(memic.alloc((page(4), more), rest + 64), full);
        assert_eq!(memic.alloc((page(4), more), rest), Ok(page(4)));
        assert_eq!(memic.free(page(0), 64), Err(Refusal::Malformed));
        assert_eq!(memic.free(page(0), 4160), Ok(()));
        assert_eq!(memic.free(page(0), 4160), Err(Refusal::Unknown));
    }

    #[test]
    fn memory_is_read_and_written_and_ends() {
        let mut memic = Memic::default();
        memic.alloc((START, PAGE_SIZE), 128).unwrap();
        memic.bar_write(START + 124, &[1, 2, 3, 4]);
        memic.bar_write(START + 126, &[9; 4]); // over the end
        let mut bytes = [7; 4];
        memic.bar_read(START + 124, &mut bytes);
        assert_eq!(bytes, [1, 2, 3, 4]);
        memic.bar_read(START + 128, &mut bytes);
        assert_eq!(bytes, [0xff; 4]);
        assert!(memic.is_allocated(START + 64, 64) && !memic.is_allocated(START + 64, 65));
        memic.free(START, 128).unwrap();
        memic.alloc((START, PAGE_SIZE), 128).unwrap();
        memic.bar_read(START + 124, &mut bytes);
        assert_eq!(bytes, [0; 4], "what another program left is not seen");
    }

    #[test]
    fn operations_add_and_test_once_they_are_mapped() {
        let mut memic = Memic::default();
        memic.alloc((START, PAGE_SIZE), 64).unwrap();
        memic.bar_write(START + WINDOW, &[1]);
        assert_eq!(memic.map(START + 64, ADD), Err(Refusal::Unknown));
        assert_eq!(memic.map(START, 2), Err(Refusal::Malformed));
        assert_eq!(memic.map(START, 200), Err(Refusal::Malformed));
        assert_eq!(memic.map(START, ADD), Ok(START + WINDOW));
        assert_eq!(memic.map(START, TEST_AND_SET), Ok(START + 2 * WINDOW));
        for _ in 0..2 {
            memic.bar_write(START + WINDOW, &[1]);
        }
        let mut byte = [0];
        for expected in [2, 1, 1] {
            memic.bar_read(START + 2 * WINDOW, &mut byte);
            assert_eq!(byte, [expected]);
        }
        memic.bar_write(START + WINDOW, &[0xff]);
        let mut bytes = [0; 2];
        memic.bar_read(START, &mut bytes);
        assert_eq!(bytes, [0, 0], "nothing is carried out of one byte");
        memic.unmap(START, ADD).unwrap();
        assert_eq!(memic.unmap(START, ADD), Err(Refusal::Malformed));
        memic.bar_write(START + WINDOW, &[5]);
        memic.bar_read(START, &mut bytes);
        assert_eq!(bytes, [0, 0]);
        memic.bar_write(START + 2 * WINDOW - 1, &[0; 16]);
    }
}
