//! The send queue.

use wqe_format::rxe::queue::BadGeometry;
use wqe_format::rxe::{
    Datagram, DmaInfo, Operation, SendFlags, SendWqe, SendWr, Sge, Transport, WrOpcode,
};

use super::error::PostError;
use super::ring::Ring;
use crate::sys::mapping::SharedMapping;

/// The most bytes that one message may have. The InfiniBand limit is 2^31; one less keeps every length clear of bit 31,
/// which other devices give a meaning of its own.
const MAX_MESSAGE: u64 = (1 << 31) - 1;

/// What one work request of a send queue may hold, as the kernel granted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendLimits {
    /// Scatter/gather elements.
    pub max_sge: u32,
    /// Inline bytes.
    pub max_inline: u32,
}

/// A piece of inline data.
#[derive(Clone, Copy, Debug)]
pub struct InlinePiece {
    /// Its start; need not be registered.
    pub addr: *const u8,
    /// Its length in bytes.
    pub len: usize,
}

/// A send queue: work requests are written into free entries, and given to the kernel when the batch that they belong to
/// is committed. Then the doorbell is to be rung.
#[derive(Debug)]
pub struct SendQueue {
    ring: Ring,
    transport: Transport,
    limits: SendLimits,
    /// Entry after the last that was given to the kernel.
    producer: u32,
    /// Send sequence number of that entry.
    ssn: u32,
    accepting: bool,
}

/// A batch in the making. It holds no borrow of its queue, since between libibverbs' `ibv_wr_start` and
/// `ibv_wr_complete` the program calls as it likes; use it with the queue that began it.
#[derive(Clone, Copy, Debug)]
pub struct Draft {
    next: u32,
    ssn: u32,
    /// The work request being described, if one is.
    open: Option<Open>,
    error: Option<PostError>,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    wr: SendWr,
    opcode: WrOpcode,
    iova: u64,
    /// Zero until a payload is given, as it stays for operations without one.
    dma: DmaInfo,
    /// Whether a payload was given.
    filled: bool,
    /// Whether it has a destination, or needs none.
    destined: bool,
}

impl SendQueue {
    /// A queue over the kernel's mapping.
    ///
    /// # Errors
    ///
    /// The header does not fit the mapping, or entries are too short for the limits.
    pub fn new(
        mapping: SharedMapping,
        transport: Transport,
        limits: SendLimits,
    ) -> Result<Self, BadGeometry> {
        let sges = limits.max_sge as usize * size_of::<Sge>();
        let payload = sges.max(limits.max_inline as usize);
        let ring = Ring::new(mapping, SendWqe::PAYLOAD.saturating_add(payload))?;
        let producer = ring.producer();
        Ok(Self {
            ring,
            transport,
            limits,
            producer,
            ssn: 0,
            accepting: false,
        })
    }

    /// The limits of one work request.
    #[inline]
    pub fn limits(&self) -> SendLimits {
        self.limits
    }

    /// Work requests that the queue holds when it is full.
    pub fn capacity(&self) -> u32 {
        self.ring.geometry().mask()
    }

    /// Entries that are free now.
    #[inline]
    pub fn free(&self) -> u32 {
        let used = self
            .ring
            .geometry()
            .used(self.producer, self.ring.consumer());
        self.capacity() - used
    }

    /// Whether the queue pair's state lets work requests in: from RTS on, also in SQD, SQE and ERR.
    pub fn set_accepting(&mut self, accepting: bool) {
        self.accepting = accepting;
    }

    /// Takes up the indices that the kernel left after the queue pair went to RESET.
    pub fn reset(&mut self) {
        self.accepting = false;
        self.producer = self.ring.producer();
    }

    /// Begins a batch.
    #[inline]
    pub fn begin(&self) -> Draft {
        Draft {
            next: self.producer,
            ssn: self.ssn,
            open: None,
            error: if self.accepting {
                None
            } else {
                Some(PostError::WrongState)
            },
        }
    }

    /// Begins a work request; the `set_` functions complete it, in any order, and [`close`](Self::close) ends it. An
    /// error is also kept in the draft.
    ///
    /// `to` is where a datagram goes; it may be given later by [`set_datagram`](Self::set_datagram).
    #[inline]
    pub fn open(
        &self,
        draft: &mut Draft,
        wr_id: u64,
        flags: SendFlags,
        operation: &Operation,
        to: Option<&Datagram>,
    ) -> Result<(), PostError> {
        if let Some(error) = draft.error {
            return Err(error);
        }
        draft.open = None;
        let checked = self.check_operation(operation).and_then(|()| {
            let full = self
                .ring
                .geometry()
                .is_full(draft.next, self.ring.consumer());
            if full {
                Err(PostError::QueueFull)
            } else {
                Ok(())
            }
        });
        if let Err(error) = checked {
            return Err(draft.fail(error));
        }
        let mut wr = SendWr::new(wr_id, flags, operation);
        if let Some(to) = to {
            wr.set_datagram(to);
        }
        let open = Open {
            wr,
            opcode: operation.opcode(),
            iova: operation.remote_addr(),
            // The kernel takes a flush's length from here, not from the request.
            dma: match operation {
                Operation::Flush(flush) => DmaInfo::new(flush.length, 0),
                _ => DmaInfo::default(),
            },
            filled: false,
            destined: to.is_some() || !matches!(self.transport, Transport::Ud),
        };
        draft.open = Some(open);
        Ok(())
    }

    #[inline]
    fn check_operation(&self, operation: &Operation) -> Result<(), PostError> {
        if !operation.opcode().may_be_posted_on(self.transport) {
            return Err(PostError::Opcode);
        }
        match operation {
            Operation::AtomicCmpAndSwp { remote_addr, .. }
            | Operation::AtomicFetchAndAdd { remote_addr, .. }
            | Operation::AtomicWrite { remote_addr, .. }
                if remote_addr & 7 != 0 =>
            {
                Err(PostError::Atomic)
            }
            _ => Ok(()),
        }
    }

    /// Gives the open work request its destination.
    #[inline]
    pub fn set_datagram(&self, draft: &mut Draft, to: &Datagram) {
        if let Some(open) = &mut draft.open {
            open.wr.set_datagram(to);
            open.destined = true;
        } else {
            draft.fail(PostError::Incomplete);
        }
    }

    /// Gives the open work request its scatter/gather list, which takes the place of a payload given before.
    ///
    /// Operations without local memory take an empty list only.
    #[inline]
    pub fn set_sges(&self, draft: &mut Draft, sges: &[Sge]) -> Result<(), PostError> {
        let Some(open) = &mut draft.open else {
            return Err(draft.fail(PostError::Incomplete));
        };
        let opcode = open.opcode;
        if !opcode.has_local_memory() {
            if sges.is_empty() {
                return Ok(());
            }
            return Err(draft.fail(PostError::NoLocalMemory));
        }
        // With the flag, the kernel would send the list itself.
        open.wr.raw_flags &= !SendFlags::INLINE.0;
        let checked = if sges.len() > self.limits.max_sge as usize {
            Err(PostError::TooManySges)
        } else {
            total(sges.iter().map(|sge| sge.length as usize))
        };
        let length = match (checked, opcode) {
            (Err(error), _) => return Err(draft.fail(error)),
            (Ok(..8), WrOpcode::AtomicCmpAndSwp | WrOpcode::AtomicFetchAndAdd) => {
                return Err(draft.fail(PostError::Atomic));
            }
            (Ok(length), _) => length,
        };
        for (place, sge) in sges.iter().enumerate() {
            let at = SendWqe::PAYLOAD + place * size_of::<Sge>();
            // SAFETY: the entry is ours, see `close`.
            unsafe { self.ring.write(draft.next, at, *sge) };
        }
        draft.set_dma(DmaInfo::new(length, sges.len() as u32));
        Ok(())
    }

    /// Copies inline data into the open work request, where it takes the place of a payload given before.
    ///
    /// # Safety
    ///
    /// Every piece is readable, if their sum is within the limit; a sum that is not is refused before anything is read.
    #[inline]
    pub unsafe fn set_inline<I>(&self, draft: &mut Draft, pieces: I) -> Result<(), PostError>
    where
        I: Iterator<Item = InlinePiece> + Clone,
    {
        let Some(open) = &mut draft.open else {
            return Err(draft.fail(PostError::Incomplete));
        };
        if !open.opcode.can_be_inline() {
            return Err(draft.fail(PostError::NoInline));
        }
        open.wr.raw_flags |= SendFlags::INLINE.0;
        let mut count = 0;
        let lengths = pieces.clone().map(|piece| {
            count += 1;
            piece.len
        });
        let length = match total(lengths) {
            Ok(length) if length <= self.limits.max_inline => length,
            _ => return Err(draft.fail(PostError::InlineTooLong)),
        };
        let mut at = SendWqe::PAYLOAD;
        for piece in pieces {
            if piece.len != 0 {
                // SAFETY: the entry is ours, see `close`; the piece is readable by the caller's promise.
                unsafe { self.ring.copy_in(draft.next, at, piece.addr, piece.len) };
            }
            at += piece.len;
        }
        draft.set_dma(DmaInfo::new(length, count));
        Ok(())
    }

    /// Gives the open atomic write its value.
    #[inline]
    pub fn set_atomic_value(&self, draft: &mut Draft, value: [u8; 8]) -> Result<(), PostError> {
        let Some(Open {
            opcode: WrOpcode::AtomicWrite,
            ..
        }) = draft.open
        else {
            return Err(draft.fail(PostError::Incomplete));
        };
        // SAFETY: the entry is ours, see `close`.
        unsafe { self.ring.write(draft.next, SendWqe::PAYLOAD, value) };
        draft.set_dma(DmaInfo::new(8, 0));
        Ok(())
    }

    /// Ends the open work request; the next one takes the entry after it. One that lacks what its operation needs
    /// (a datagram's destination, an atomic's memory) is not taken, and the draft keeps the error.
    #[inline]
    pub fn close(&self, draft: &mut Draft) {
        if let Some(open) = draft.open.take() {
            if !open.destined || (!open.filled && open.opcode.needs_payload()) {
                draft.fail(PostError::Incomplete);
                return;
            }
            let wqe = SendWqe::new(open.wr, open.iova, draft.ssn, open.dma);
            // SAFETY: the entry lies between what was published and the consumer (`open` saw room for it), so it is
            // ours, and no other queue writes to this ring.
            unsafe { self.ring.write(draft.next, 0, wqe) };
            draft.next = self.ring.geometry().next(draft.next);
            draft.ssn = draft.ssn.wrapping_add(1);
        }
    }

    /// Gives the work requests that were closed to the kernel, also those before an error. Says whether there were any;
    /// the doorbell is to be rung then.
    #[inline]
    pub fn commit(&mut self, draft: &Draft) -> bool {
        if draft.next == self.producer {
            return false;
        }
        self.producer = draft.next;
        self.ssn = draft.ssn;
        self.ring.publish_producer(self.producer);
        true
    }
}

impl Draft {
    /// The first error of the batch; work requests begun after it are refused with the same.
    #[inline]
    pub fn error(&self) -> Option<PostError> {
        self.error
    }

    #[inline]
    fn set_dma(&mut self, dma: DmaInfo) {
        if let Some(open) = &mut self.open {
            open.dma = dma;
            open.filled = true;
        }
    }

    /// Makes the batch fail with an error that the caller found.
    pub fn refuse(&mut self, error: PostError) {
        self.fail(error);
    }

    #[cold]
    fn fail(&mut self, error: PostError) -> PostError {
        self.open = None;
        *self.error.get_or_insert(error)
    }
}

/// The sum of lengths, in 64 bits, if a message may be that long.
#[inline]
fn total(lengths: impl Iterator<Item = usize>) -> Result<u32, PostError> {
    let mut sum: u64 = 0;
    for length in lengths {
        sum = sum.saturating_add(length as u64);
    }
    if sum > MAX_MESSAGE {
        Err(PostError::TooLong)
    } else {
        Ok(sum as u32)
    }
}
