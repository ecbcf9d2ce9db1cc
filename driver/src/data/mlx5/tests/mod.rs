//! Posting against heap memory. Expected bytes come from the model in `model`, which builds a work request as a string
//! of bytes from the manual's field positions and knows nothing of rings, or stand in the test.

mod draft;
mod keys;
mod model;
mod packets;
mod recv;
mod register;
mod send;
mod signed;
mod step;
mod table;
mod tags;
mod wrap;

use std::alloc::{Layout, alloc, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;

use wqe_format::mlx5::DatagramSegment;
use wqe_format::rxe::Sge;
use zerocopy::byteorder::big_endian::U32;

use super::*;

/// Bytes before and behind each piece of memory, which nobody may touch.
const GUARD: usize = 4096;
/// What memory holds before anything is written.
pub(super) const FILL: u8 = 0xff;

/// Memory with guards.
#[derive(Debug)]
pub(super) struct Memory {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: plain memory, freed when the last owner is dropped.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    pub(super) fn new(len: usize) -> Arc<Self> {
        let layout = Self::layout(len);
        // SAFETY: the size is not zero.
        let start = NonNull::new(unsafe { alloc(layout) }).unwrap();
        // SAFETY: just allocated.
        unsafe { start.write_bytes(FILL, layout.size()) };
        Arc::new(Self { start, len })
    }

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len + 2 * GUARD, 4096).unwrap()
    }

    pub(super) fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset < self.len);
        // SAFETY: within the allocation.
        unsafe { self.start.add(GUARD + offset) }
    }

    fn range(&self, from: usize, len: usize) -> Vec<u8> {
        assert!(from + len <= self.len + 2 * GUARD);
        // SAFETY: within the allocation.
        let from = unsafe { self.start.add(from) };
        let mut bytes = vec![0; len];
        // SAFETY: as above; the vector has as many bytes.
        unsafe { from.copy_to_nonoverlapping(NonNull::new(bytes.as_mut_ptr()).unwrap(), len) };
        bytes
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let guards = [self.range(0, GUARD), self.range(GUARD + self.len, GUARD)];
        assert!(
            guards.concat().iter().all(|&byte| byte == FILL),
            "a guard was written to"
        );
        self.range(GUARD, self.len)
    }

    pub(super) fn fill(&self, byte: u8) {
        // SAFETY: within the allocation.
        unsafe { self.at(0).write_bytes(byte, self.len) };
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.start.as_ptr(), Self::layout(self.len)) };
    }
}

/// A queue's number in tests: three different bytes.
pub(super) const QPN: u32 = 0xab_cdef;

/// A send queue with its memory.
pub(super) struct Bed {
    pub(super) queue: SendQueue,
    pub(super) ring: Arc<Memory>,
    pub(super) doorbell: Arc<Memory>,
    pub(super) uar: Arc<Memory>,
    pub(super) record: Arc<QueueRecord>,
}

/// How a bed is made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Make {
    pub(super) kind: QueueKind,
    pub(super) wqebbs: u32,
    pub(super) limits: SendLimits,
    pub(super) blue_flame: BlueFlame,
    pub(super) sharing: Sharing,
    pub(super) signature: bool,
    pub(super) signal_all: bool,
}

impl Make {
    pub(super) fn new(kind: QueueKind) -> Self {
        Self {
            kind,
            wqebbs: 64,
            limits: SendLimits {
                max_wr: 4,
                max_sge: 16,
                max_inline: 828,
                min_inline_header: 18,
                max_tso: 1 << 18,
                max_tso_header: 192,
                checksums: true,
                atomics: true,
                max_copy: 1 << 31,
            },
            blue_flame: BlueFlame::Always,
            sharing: Sharing::Exclusive,
            signature: false,
            signal_all: false,
        }
    }

    pub(super) fn bed(self) -> Bed {
        let ring = Memory::new(self.wqebbs as usize * 64);
        let doorbell = Memory::new(64);
        let uar = Memory::new(512);
        let send = SendShared::new(ring.at(0), self.wqebbs, 0);
        let keep: KeepAlive = Box::new(ring.clone());
        // SAFETY: the ring lives as long as the record, which keeps it.
        let record = unsafe {
            QueueRecord::new(self.kind, QPN, 7, Some(send), ReceiveSide::None, Some(keep))
        };
        let record = Arc::new(record);
        let keep: KeepAlive = Box::new(uar.clone());
        // SAFETY: two halves of 256 bytes, kept by the register.
        let register =
            unsafe { Register::new(uar.at(0), 256, self.blue_flame, self.sharing, Some(keep)) };
        let parts = SendParts {
            record: record.clone(),
            doorbell: doorbell.at(0).cast(),
            register,
            limits: self.limits,
            signal_all: self.signal_all,
            signature: self.signature,
        };
        // SAFETY: the bed keeps the doorbell record, and has the only queue over the ring.
        let mut queue = unsafe { SendQueue::new(parts) };
        queue.set_accepting(true);
        Bed {
            queue,
            ring,
            doorbell,
            uar,
            record,
        }
    }
}

impl Bed {
    pub(super) fn new(kind: QueueKind) -> Self {
        Make::new(kind).bed()
    }

    /// The second word of the doorbell record.
    pub(super) fn doorbell(&self) -> u32 {
        let bytes = self.doorbell.bytes();
        assert_eq!(bytes[..4], [FILL; 4], "the receive word is not ours");
        assert!(bytes[8..].iter().all(|&byte| byte == FILL));
        u32::from_be_bytes(bytes[4..8].try_into().unwrap())
    }

    /// `len` bytes of the ring from a block on, over its end.
    pub(super) fn wqe(&self, block: usize, len: usize) -> Vec<u8> {
        let ring = self.ring.bytes();
        (0..len)
            .map(|place| ring[(block * 64 + place) % ring.len()])
            .collect()
    }

    /// All that was posted is complete.
    pub(super) fn complete(&self) {
        self.record.send().unwrap().complete(self.queue.head());
    }
}

/// A work request as a list has it.
#[derive(Clone, Debug)]
pub(super) struct Wr {
    pub(super) wr_id: u64,
    pub(super) opcode: WrOpcode,
    pub(super) flags: SendFlags,
    pub(super) sges: Vec<Sge>,
    /// Also the key to invalidate.
    pub(super) imm: [u8; 4],
    pub(super) remote: Remote,
    pub(super) atomic: AtomicOperands,
    pub(super) av: DatagramSegment,
    pub(super) qpn: u32,
    pub(super) qkey: u32,
    pub(super) srqn: u32,
    pub(super) bind: Bind,
    pub(super) header: Vec<u8>,
    pub(super) mss: u16,
}

impl Wr {
    pub(super) fn new(opcode: WrOpcode, sges: Vec<Sge>) -> Self {
        Self {
            wr_id: 0x1122_3344_5566_7788,
            opcode,
            flags: SendFlags::NONE,
            sges,
            imm: [0xde, 0xad, 0xbe, 0xef],
            remote: Remote {
                addr: 0x0102_0304_0506_0708,
                rkey: 0x1112_1314,
            },
            atomic: AtomicOperands {
                compare_add: 0x2122_2324_2526_2728,
                swap: 0x3132_3334_3536_3738,
            },
            av: DatagramSegment::default(),
            qpn: 0x41_4243,
            qkey: 0x5152_5354,
            srqn: 0x61_6263,
            bind: Bind::default(),
            header: Vec::new(),
            mss: 0x7172,
        }
    }

    pub(super) fn with(mut self, flags: SendFlags) -> Self {
        self.flags = flags;
        self
    }
}

// SAFETY: tests give inline elements that name live memory, and headers of their own.
unsafe impl SendRequest for Wr {
    fn wr_id(&self) -> u64 {
        self.wr_id
    }

    fn opcode(&self) -> WrOpcode {
        self.opcode
    }

    fn flags(&self) -> SendFlags {
        self.flags
    }

    fn sges(&self) -> &[Sge] {
        &self.sges
    }

    fn imm(&self) -> U32 {
        U32::from_bytes(self.imm)
    }

    fn invalidate_rkey(&self) -> u32 {
        u32::from_be_bytes(self.imm)
    }

    fn remote(&self) -> Remote {
        self.remote
    }

    fn atomic(&self) -> AtomicOperands {
        self.atomic
    }

    fn destination(&self) -> Option<Destination<'_>> {
        Some(Destination {
            av: &self.av,
            qpn: self.qpn,
            qkey: self.qkey,
        })
    }

    fn remote_srqn(&self) -> u32 {
        self.srqn
    }

    fn bind(&self) -> Option<Bind> {
        Some(self.bind)
    }

    fn segmentation(&self) -> Option<Segmentation> {
        Some(Segmentation {
            header: self.header.as_ptr(),
            header_len: self.header.len() as u16,
            mss: self.mss,
        })
    }
}

/// An element that names memory nobody reads.
pub(super) fn sge(length: u32) -> Sge {
    Sge {
        addr: 0x8182_8384_8586_8788,
        length,
        lkey: 0x9192_9394,
    }
}

/// An element that names bytes.
pub(super) fn of(bytes: &[u8]) -> Sge {
    Sge {
        addr: bytes.as_ptr().expose_provenance() as u64,
        length: bytes.len() as u32,
        lkey: 0xdead_beef,
    }
}
