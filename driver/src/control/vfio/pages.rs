//! Memory that the firmware borrows.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use wqe_format::mlx5::firmware::Opcode;
use wqe_format::mlx5::firmware::pages::{
    ManagePagesIn, ManagePagesOut, QueryPagesIn, QueryPagesOut,
};

use super::command::{CommandCause, CommandError};
use super::memory::{DmaMemory, Iommu};
use crate::sys::errno::Errno;

/// Bytes of the firmware's pages, whatever the system's own are (`MLX5_ADAPTER_PAGE_SIZE`).
const PAGE: usize = 4096;
/// Pages that are mapped at once, and that one command names: 2 MiB.
const CHUNK: usize = 512;

/// `op_mod` of MANAGE_PAGES (Linux `pagealloc.c` `MLX5_PAGES_*`).
const CANNOT_GIVE: u16 = 0;
const GIVE: u16 = 1;
const TAKE: u16 = 2;

/// When QUERY_PAGES is asked (its `op_mod`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(super) enum When {
    /// Before capabilities are set.
    Boot = 1,
    /// Before INIT_HCA.
    Init = 2,
}

/// Runs MANAGE_PAGES and its kin.
type Run<'a> = &'a dyn Fn(&[u8], &mut [u8]) -> Result<(), CommandError>;

/// What the firmware has.
#[derive(Debug)]
pub(super) struct DevicePages {
    iommu: Arc<Iommu>,
    given: Mutex<Given>,
}

#[derive(Debug, Default)]
struct Given {
    /// By the address of the first page.
    chunks: BTreeMap<u64, Chunk>,
    /// How many the firmware has for each function that it asked for.
    counts: BTreeMap<u16, u32>,
}

#[derive(Debug)]
struct Chunk {
    memory: DmaMemory,
    /// Pages of it that the firmware does not have.
    free: Vec<u64>,
}

impl Chunk {
    fn pages(&self) -> usize {
        self.memory.len() / PAGE
    }
}

impl Given {
    /// `count` pages that are then the firmware's.
    fn take(&mut self, iommu: &Arc<Iommu>, count: usize) -> Result<Vec<u64>, Errno> {
        let mut pages = Vec::new();
        while pages.len() < count {
            let missing = count - pages.len();
            if let Some(chunk) = self
                .chunks
                .values_mut()
                .find(|chunk| !chunk.free.is_empty())
            {
                let rest = chunk.free.len().saturating_sub(missing);
                pages.extend(chunk.free.drain(rest..));
                continue;
            }
            match iommu.allocate(missing.min(CHUNK) * PAGE, true) {
                Ok(memory) => {
                    let free = (0..memory.len() / PAGE).map(|index| memory.iova(index * PAGE));
                    let free = free.rev().collect();
                    self.chunks.insert(memory.iova(0), Chunk { memory, free });
                }
                Err(errno) => {
                    self.put_back(&pages);
                    return Err(errno);
                }
            }
        }
        Ok(pages)
    }

    /// Pages are the process' again. What the firmware does not have is unmapped. Answers whether all of them were given.
    fn put_back(&mut self, pages: &[u64]) -> bool {
        let mut good = true;
        for page in pages {
            let chunk = self.chunks.range_mut(..=page).next_back();
            let Some((start, chunk)) = chunk else {
                good = false;
                continue;
            };
            let inside = (page - start) as usize / PAGE < chunk.pages();
            if !inside || !page.is_multiple_of(PAGE as u64) || chunk.free.contains(page) {
                good = false;
                continue;
            }
            chunk.free.push(*page);
            if chunk.free.len() == chunk.pages() {
                let start = *start;
                self.chunks.remove(&start);
            }
        }
        good
    }
}

impl DevicePages {
    pub(super) fn new(iommu: Arc<Iommu>) -> Self {
        Self {
            iommu,
            given: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Given> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pages that the firmware has.
    pub(super) fn count(&self) -> u32 {
        self.lock().counts.values().sum()
    }

    /// How many pages the firmware wants.
    pub(super) fn wanted(run: Run<'_>, when: When) -> Result<(u16, i32), CommandError> {
        let mut input = QueryPagesIn::zeroed();
        input
            .set_opcode(Opcode::QUERY_PAGES.0)
            .set_op_mod(when as u16);
        let mut output = QueryPagesOut::zeroed();
        run(input.as_bytes(), output.as_bytes_mut())?;
        Ok((output.function_id(), output.num_pages().cast_signed()))
    }

    /// Gives `count` pages. Where there are none, the firmware is told.
    pub(super) fn give(&self, run: Run<'_>, function: u16, count: u32) -> Result<(), CommandError> {
        let mut left = count as usize;
        while left > 0 {
            let now = left.min(CHUNK);
            let mut given = self.lock();
            let pages = match given.take(&self.iommu, now) {
                Ok(pages) => pages,
                Err(errno) => {
                    drop(given);
                    // Where that fails too there is nothing left to say.
                    let _ = run(&input(CANNOT_GIVE, function, 0, &[]), &mut [0; 16]);
                    let cause = CommandCause::Process(errno);
                    return Err(CommandError::other(Opcode::MANAGE_PAGES, cause));
                }
            };
            let done = run(&input(GIVE, function, now as u32, &pages), &mut [0; 16]);
            if let Err(error) = done {
                // Pages of a command without an answer may be the firmware's.
                if error.cause == CommandCause::Refused {
                    given.put_back(&pages);
                }
                return Err(error);
            }
            *given.counts.entry(function).or_default() += now as u32;
            left -= now;
        }
        Ok(())
    }

    /// Takes back at most `count` pages; answers how many came.
    pub(super) fn reclaim(
        &self,
        run: Run<'_>,
        function: u16,
        count: u32,
    ) -> Result<u32, CommandError> {
        let mut back = 0;
        while back < count {
            let now = (count - back).min(CHUNK as u32);
            let mut output = vec![0; ManagePagesOut::SIZE + 8 * now as usize];
            run(&input(TAKE, function, now, &[]), &mut output)?;
            let Ok(answer) = ManagePagesOut::new(&output[..]) else {
                break;
            };
            let came = answer.output_num_entries().min(now);
            let pages: Vec<u64> = answer.pas().take(came as usize).collect();
            let mut given = self.lock();
            if !given.put_back(&pages) {
                let cause = CommandCause::Process(Errno(libc::EPROTO));
                return Err(CommandError::other(Opcode::MANAGE_PAGES, cause));
            }
            let count = given.counts.entry(function).or_default();
            *count = count.saturating_sub(came);
            back += came;
            if came == 0 {
                break;
            }
        }
        Ok(back)
    }

    /// Takes back all pages that the firmware gives.
    pub(super) fn reclaim_all(&self, run: Run<'_>) -> Result<(), CommandError> {
        let counts = self.lock().counts.clone();
        for (function, count) in counts {
            self.reclaim(run, function, count)?;
        }
        Ok(())
    }

    /// The device was reset: it has no pages any more.
    pub(super) fn forget(&self) {
        *self.lock() = Given::default();
    }
}

fn input(op_mod: u16, function: u16, entries: u32, pages: &[u64]) -> Vec<u8> {
    let mut bytes = vec![0; ManagePagesIn::SIZE + 8 * pages.len()];
    if let Ok(mut input) = ManagePagesIn::new(&mut bytes[..]) {
        input
            .set_opcode(Opcode::MANAGE_PAGES.0)
            .set_op_mod(op_mod)
            .set_function_id(function)
            .set_input_num_entries(entries);
        for (index, page) in pages.iter().enumerate() {
            input.set_pas(index, *page);
        }
    }
    bytes
}
