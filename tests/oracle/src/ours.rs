//! Our queues over plain memory: no kernel object, no C. The comparison and the clock stand on them.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow};
use oxverbs::data::mlx5::{
    BlueFlame, CompletionQueue, CqParts, CqeVersion, ErrorLog, QueueKind, QueueRecord, ReceiveSide,
    RecvParts, RecvQueue, RecvShared, Register, SendLimits, SendParts, SendQueue, SendShared,
    Sharing, UserIndexTable,
};

use crate::ring::{BLOCK, Shared};

/// Zeroed memory on page boundaries.
#[derive(Debug)]
pub(crate) struct Pages {
    start: NonNull<u8>,
    layout: Layout,
}

impl Pages {
    /// At least `len` bytes.
    ///
    /// # Errors
    ///
    /// No memory.
    pub(crate) fn new(len: usize) -> Result<Self> {
        let layout = Layout::from_size_align(len.next_multiple_of(4096), 4096)?;
        // SAFETY: the size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).context("no memory")?;
        Ok(Self { start, layout })
    }

    /// All of it.
    ///
    /// # Safety
    ///
    /// Not used after the pages are dropped.
    pub(crate) unsafe fn whole(&self) -> Shared {
        // SAFETY: mapped while `self` lives.
        unsafe { Shared::new(self.start, self.layout.size()) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: from `alloc_zeroed` with this layout.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// What the queues are like.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Service of the queue pair.
    pub kind: QueueKind,
    /// Its number.
    pub qpn: u32,
    /// The number that completions name it by.
    pub user_index: u32,
    /// Blocks of the send ring.
    pub blocks: u32,
    /// Limits of a send.
    pub limits: SendLimits,
    /// Whether each send completes.
    pub signal_all: bool,
    /// Entries of the receive ring.
    pub receives: u32,
    /// Bytes of one.
    pub receive_size: u32,
    /// Receives that may be posted.
    pub max_recv_wr: u32,
    /// Elements of one.
    pub max_recv_sge: u32,
    /// Entries of the completion queue.
    pub entries: u32,
    /// Bytes of one.
    pub entry_size: u32,
}

/// The queues' memory, as the device sees it; used while [`Ours`] lives.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Ring of the send queue.
    pub send_ring: Shared,
    /// Ring of the receive queue.
    pub recv_ring: Shared,
    /// Ring of the completion queue.
    pub cq_ring: Shared,
    /// Doorbell record of the queue pair.
    pub record: Shared,
    /// The register: both halves, and as much behind them.
    pub register: Shared,
    /// The page that the register is in.
    pub page: Shared,
}

/// Our queues. They are dropped before their memory.
#[derive(Debug)]
pub struct Ours {
    /// Sends.
    pub send: SendQueue,
    /// Receives.
    pub recv: RecvQueue,
    /// Completions of both.
    pub cq: CompletionQueue,
    /// What they lie in.
    pub memory: Memory,
    _table: Arc<UserIndexTable>,
    _pages: [Pages; 5],
}

impl Ours {
    /// A queue pair that takes work, and its completion queue.
    ///
    /// # Errors
    ///
    /// No memory.
    pub fn new(shape: &Shape) -> Result<Self> {
        let send_size = shape.blocks as usize * BLOCK;
        let recv_size = (shape.receives * shape.receive_size) as usize;
        let cq_size = (shape.entries * shape.entry_size) as usize;
        let send_pages = Pages::new(send_size)?;
        let recv_pages = Pages::new(recv_size)?;
        let cq_pages = Pages::new(cq_size)?;
        let words = Pages::new(4096)?;
        let page = Pages::new(4096)?;
        // SAFETY: used while the pages live, as what follows.
        let send_ring = unsafe { send_pages.whole() };
        // SAFETY: as above.
        let recv_ring = unsafe { recv_pages.whole() };
        // SAFETY: as above.
        let cq_ring = unsafe { cq_pages.whole() };
        // SAFETY: as above.
        let words_all = unsafe { words.whole() };
        // SAFETY: as above.
        let page_all = unsafe { page.whole() };
        let memory = Memory {
            send_ring: send_ring.part(0, send_size),
            recv_ring: recv_ring.part(0, recv_size),
            cq_ring: cq_ring.part(0, cq_size),
            record: words_all.part(0, 8),
            register: page_all.part(0x800, 0x400),
            page: page_all.part(0, 4096),
        };
        let send = SendShared::new(memory.send_ring.pointer(), shape.blocks, 0);
        let stride_shift = shape.receive_size.ilog2();
        let ring = memory.recv_ring.pointer();
        let recv = ReceiveSide::Own(RecvShared::new(
            ring,
            shape.receives,
            stride_shift,
            false,
            0,
        ));
        // SAFETY: the rings live as long as this value, whose queues are dropped first.
        let record = unsafe { QueueRecord::new(shape.kind, shape.qpn, 0, Some(send), recv, None) };
        let record = match shape.kind {
            QueueKind::RawPacket => record.with_checksums(),
            _ => record,
        };
        let record = Arc::new(record);
        let table = UserIndexTable::new();
        table
            .insert(shape.user_index, record.clone())
            .map_err(|_| anyhow!("user index"))?;
        // SAFETY: a page of its own, that nobody else stores to.
        let register = unsafe {
            Register::new(
                memory.register.pointer(),
                256,
                BlueFlame::Always,
                Sharing::Exclusive,
                None,
            )
        };
        let doorbell = memory.record.pointer().cast();
        let parts = RecvParts {
            record: record.clone(),
            doorbell,
            max_wr: shape.max_recv_wr,
            max_sge: shape.max_recv_sge,
        };
        // SAFETY: memory that lives as long as this value, and is nobody else's.
        let mut recv = unsafe { RecvQueue::new(parts) };
        recv.set_accepting(true);
        let parts = SendParts {
            record,
            doorbell,
            register,
            limits: shape.limits,
            signal_all: shape.signal_all,
            signature: false,
        };
        // SAFETY: as above.
        let mut send = unsafe { SendQueue::new(parts) };
        send.set_accepting(true);
        // SAFETY: as above.
        let cq = unsafe {
            completion_queue(
                memory.cq_ring.pointer(),
                (shape.entries, shape.entry_size),
                words_all.part(64, 8).pointer(),
                memory.page.pointer(),
                &table,
            )
        }?;
        Ok(Self {
            send,
            recv,
            cq,
            memory,
            _table: table,
            _pages: [send_pages, recv_pages, cq_pages, words, page],
        })
    }
}

/// A completion queue of `(entries, bytes of one)`, whose entries name queues by `table`.
///
/// # Safety
///
/// As for [`CompletionQueue::new`], for the ring, the doorbell record and the page of registers in this order; they outlive
/// the queue.
pub(crate) unsafe fn completion_queue(
    ring: NonNull<u8>,
    (entries, entry_size): (u32, u32),
    doorbell_record: NonNull<u8>,
    uar: NonNull<u8>,
    table: &Arc<UserIndexTable>,
) -> Result<CompletionQueue> {
    let parts = CqParts {
        ring,
        entries,
        entry_size,
        cqn: 0x77,
        doorbell_record: doorbell_record.cast(),
        uar,
        version: CqeVersion::V1(table.clone()),
        clock: None,
        error_log: Arc::new(ErrorLog::default()),
        signatures: Arc::default(),
        memory: None,
    };
    // SAFETY: passed on.
    let queue = unsafe { CompletionQueue::new(parts) }?;
    Ok(queue)
}
