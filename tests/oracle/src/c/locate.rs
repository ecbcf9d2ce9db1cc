//! Where a provider put a queue's memory: what it told the kernel when it made the queue.

use std::fs;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use fake_kernel::FakeKernel;
use fake_kernel::hca::{CompletionQueue, Hca};
use oxverbs_ffi::abi::objects::{ibv_cq, ibv_qp};

use super::device::Object;
use crate::ring::{CqWriter, Shared};
use crate::subject::{RecvMemory, SendMemory, mac};

/// The device's side of one device.
#[derive(Clone, Debug)]
pub struct Places {
    hca: Hca,
    device: u8,
}

/// BlueFlame registers of a page: two of 512 bytes from there on (`MLX5_BF_OFFSET`).
const REGISTERS: usize = 0x800;
/// Bytes of both.
const REGISTERS_LEN: usize = 0x400;

/// Memory at an address that the program gave the kernel.
pub(crate) fn shared(address: u64, len: usize) -> Result<Shared> {
    let start = ptr::with_exposed_provenance_mut(address as usize);
    let start = NonNull::new(start).context("no memory")?;
    // SAFETY: the fake kernel checked the range when the program gave it, and it stays while the queue lives.
    Ok(unsafe { Shared::new(start, len) })
}

/// The program's mapping of a page of which `ours` is another mapping.
fn other_mapping(ours: usize) -> Result<usize> {
    let maps = fs::read_to_string("/proc/self/maps")?;
    let mut lines = Vec::new();
    for line in maps.lines() {
        let mut words = line.split_ascii_whitespace();
        let (Some(range), Some(_), Some(offset), Some(_), Some(inode)) = (
            words.next(),
            words.next(),
            words.next(),
            words.next(),
            words.next(),
        ) else {
            continue;
        };
        if inode == "0" {
            continue;
        }
        let (start, end) = range.split_once('-').context("a range")?;
        let start = usize::from_str_radix(start, 16)?;
        let end = usize::from_str_radix(end, 16)?;
        let offset = usize::from_str_radix(offset, 16)?;
        lines.push((start, end, offset, inode));
    }
    let Some(&(start, _, offset, inode)) = lines
        .iter()
        .find(|(start, end, ..)| (*start..*end).contains(&ours))
    else {
        bail!("{ours:x} is not mapped");
    };
    // Neighbouring mappings of neighbouring pages are one line.
    let page = offset + (ours - start);
    lines
        .iter()
        .filter(|line| line.3 == inode)
        .filter(|(start, end, offset, _)| (*offset..offset + (end - start)).contains(&page))
        .map(|(start, _, offset, _)| start + (page - offset))
        .find(|address| *address != ours)
        .context("the program has not mapped its doorbell page")
}

impl Places {
    /// On the device of this index.
    pub fn new(kernel: &FakeKernel, device: u8) -> Self {
        Self {
            hca: kernel.hca(device.into()),
            device,
        }
    }

    /// The send side of a queue pair.
    ///
    /// # Errors
    ///
    /// The kernel does not know it.
    pub fn send(&self, qp: Object<ibv_qp>) -> Result<SendMemory> {
        // SAFETY: a live queue pair.
        let qpn = unsafe { (*qp.pointer()).qp_num };
        let qp = self.hca.qp(qpn).context("no such queue pair")?;
        let ring = qp.send.context("no send ring")?;
        let uar = qp.uar.as_ref().context("no doorbell page")?;
        let page = other_mapping(uar.address())?;
        Ok(SendMemory {
            ring: shared(ring.address, ring.len())?,
            record: shared(qp.dbrec, 8)?,
            register: shared((page + REGISTERS) as u64, REGISTERS_LEN)?,
            qpn,
            user_index: qp.uidx,
            mac: mac(self.device),
            copy_state: None,
        })
    }

    /// A queue pair's number, and the number by which completions name it.
    ///
    /// # Errors
    ///
    /// The kernel does not know it.
    pub fn numbers(&self, qp: Object<ibv_qp>) -> Result<(u32, u32)> {
        // SAFETY: a live queue pair.
        let qpn = unsafe { (*qp.pointer()).qp_num };
        let qp = self.hca.qp(qpn).context("no such queue pair")?;
        Ok((qpn, qp.uidx))
    }

    /// The device says that a queue pair is drained before a block, or says no more.
    pub fn drain(&self, qpn: u32, next: Option<u16>) {
        if let Some(qp) = self.hca.qp(qpn) {
            qp.drain(next);
        }
    }

    /// The receive side of a queue pair.
    ///
    /// # Errors
    ///
    /// The kernel does not know it, or it has none.
    pub fn recv(&self, qp: Object<ibv_qp>) -> Result<RecvMemory> {
        // SAFETY: a live queue pair.
        let qpn = unsafe { (*qp.pointer()).qp_num };
        let qp = self.hca.qp(qpn).context("no such queue pair")?;
        let ring = qp.recv.context("no receive ring")?;
        Ok(RecvMemory {
            ring: shared(ring.address, ring.len())?,
            entry: 1 << ring.shift,
            record: shared(qp.dbrec, 8)?,
        })
    }

    /// A shared receive queue's ring, and the index by which completions name it (if it is not basic).
    ///
    /// # Errors
    ///
    /// The kernel does not know it.
    pub fn srq(&self, fd: i32, handle: u32) -> Result<(RecvMemory, u32)> {
        let number = self.hca.number_of_handle(fd, handle);
        let srq = number.and_then(|number| self.hca.srq(number));
        let srq = srq.context("no such shared receive queue")?;
        Ok((
            RecvMemory {
                ring: shared(srq.ring.address, srq.ring.len())?,
                entry: 1 << srq.ring.shift,
                record: shared(srq.dbrec, 4)?,
            },
            srq.uidx,
        ))
    }

    /// A receive work queue's ring, and the index by which completions name it.
    ///
    /// # Errors
    ///
    /// The kernel does not know it.
    pub fn wq(&self, fd: i32, handle: u32) -> Result<(RecvMemory, u32)> {
        let number = self.hca.number_of_handle(fd, handle);
        let wq = number.and_then(|number| self.hca.wq(number));
        let wq = wq.context("no such receive work queue")?;
        let ring = wq.recv.context("no receive ring")?;
        Ok((
            RecvMemory {
                ring: shared(ring.address, ring.len())?,
                entry: 1 << ring.shift,
                record: shared(wq.dbrec, 4)?,
            },
            wq.uidx,
        ))
    }

    /// The device's end of a completion queue.
    ///
    /// # Errors
    ///
    /// The kernel does not know it.
    pub fn cq(&self, cq: Object<ibv_cq>) -> Result<CqWriter> {
        let queue = self.queue(cq)?;
        writer_of(&queue)
    }

    /// The device's view of a completion queue.
    ///
    /// # Errors
    ///
    /// The kernel does not know it.
    pub fn queue(&self, cq: Object<ibv_cq>) -> Result<Arc<CompletionQueue>> {
        // SAFETY: a live completion queue.
        let context = unsafe { (*cq.pointer()).context };
        // SAFETY: its open device.
        let fd = unsafe { (*context).cmd_fd };
        // SAFETY: a live completion queue.
        let handle = unsafe { (*cq.pointer()).handle };
        let cqn = self
            .hca
            .number_of_handle(fd, handle)
            .context("no such completion queue")?;
        self.hca.cq(cqn).context("no such completion queue")
    }
}

/// The device's end of a completion queue.
///
/// # Errors
///
/// It has no memory.
pub fn writer_of(cq: &CompletionQueue) -> Result<CqWriter> {
    let buffer = cq.buffer();
    let ring = shared(buffer.address, buffer.len())?;
    Ok(CqWriter::new(ring, buffer.count, buffer.entry as usize))
}
