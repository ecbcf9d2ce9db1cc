//! Lists of work requests of any opcode, flags and shape, posted by the list and by drafts: no panic, nothing is written
//! beside the ring, each block's counter stays right, and the queue never takes more than it has room for.

#![no_main]

use std::sync::Arc;

use arbitrary::Arbitrary;
use fuzz::Guarded;
use libfuzzer_sys::fuzz_target;
use oxverbs::data::mlx5::{
    AtomicOperands, Bind, BlueFlame, Destination, QueueKind, QueueRecord, ReceiveSide, Register,
    Remote, Segmentation, SendFlags, SendLimits, SendParts, SendQueue, SendRequest, SendShared,
    Sharing, WrOpcode,
};
use wqe_format::mlx5::DatagramSegment;
use wqe_format::rxe::Sge;
use zerocopy::byteorder::big_endian::U32;

const WQEBBS: u32 = 64;
const MAX_WR: u32 = 16;

#[derive(Arbitrary, Debug)]
struct Request {
    wr_id: u64,
    opcode: u8,
    flags: u8,
    sges: Vec<(u32, bool)>,
    imm: u32,
    remote: (u64, u32),
    atomic: (u64, u64),
    has_destination: bool,
    bind: Option<(u64, u64, u32)>,
    header: Option<(u16, u16)>,
}

#[derive(Arbitrary, Debug)]
struct Input {
    kind: u8,
    signature: bool,
    signal_all: bool,
    complete: u8,
    lists: Vec<Vec<Request>>,
}

/// A request whose memory is `bytes`.
struct Whole<'a> {
    request: &'a Request,
    sges: Vec<Sge>,
    header: &'a [u8],
    av: DatagramSegment,
}

// SAFETY: with the inline flag the elements lie within the memory that `whole` gave; so do the headers.
unsafe impl SendRequest for Whole<'_> {
    fn wr_id(&self) -> u64 {
        self.request.wr_id
    }
    fn opcode(&self) -> WrOpcode {
        WrOpcode(self.request.opcode.into())
    }
    fn flags(&self) -> SendFlags {
        SendFlags(self.request.flags.into())
    }
    fn sges(&self) -> &[Sge] {
        &self.sges
    }
    fn imm(&self) -> U32 {
        U32::new(self.request.imm)
    }
    fn remote(&self) -> Remote {
        Remote {
            addr: self.request.remote.0,
            rkey: self.request.remote.1,
        }
    }
    fn atomic(&self) -> AtomicOperands {
        AtomicOperands {
            compare_add: self.request.atomic.0,
            swap: self.request.atomic.1,
        }
    }
    fn destination(&self) -> Option<Destination<'_>> {
        self.request.has_destination.then_some(Destination {
            av: &self.av,
            qpn: self.request.imm,
            qkey: self.request.imm,
        })
    }
    fn bind(&self) -> Option<Bind> {
        let (addr, length, key) = self.request.bind?;
        Some(Bind {
            type_1: key & 1 != 0,
            old_rkey: key,
            new_rkey: key.wrapping_add(1),
            addr,
            length,
            lkey: key,
            access: key,
        })
    }
    fn segmentation(&self) -> Option<Segmentation> {
        let (len, mss) = self.request.header?;
        Some(Segmentation {
            header: self.header.as_ptr(),
            header_len: len % 64,
            mss,
        })
    }
}

const KINDS: [QueueKind; 6] = [
    QueueKind::Rc,
    QueueKind::Uc,
    QueueKind::Ud,
    QueueKind::XrcSend,
    QueueKind::RawPacket,
    QueueKind::Dci,
];

fuzz_target!(|input: Input| {
    let ring = Guarded::new(WQEBBS as usize * 64);
    let doorbell = Guarded::new(8);
    let uar = Guarded::new(4096);
    let payload = vec![0x5a_u8; 4096];
    let kind = KINDS[usize::from(input.kind) % KINDS.len()];
    let shared = SendShared::new(ring.start(), WQEBBS, 0);
    // SAFETY: the ring outlives the record.
    let record =
        unsafe { QueueRecord::new(kind, 0x1234, 0, Some(shared), ReceiveSide::None, None) };
    let record = Arc::new(record);
    // SAFETY: the page outlives the register, and only this thread stores there.
    let register = unsafe {
        Register::new(
            uar.start(),
            256,
            BlueFlame::Inline,
            Sharing::Exclusive,
            None,
        )
    };
    let parts = SendParts {
        record: Arc::clone(&record),
        doorbell: doorbell.start().cast(),
        register,
        limits: SendLimits {
            max_wr: MAX_WR,
            max_sge: 4,
            max_inline: 60,
            min_inline_header: if kind == QueueKind::RawPacket { 18 } else { 0 },
            max_tso: 1 << 16,
            max_tso_header: 64,
            checksums: true,
            atomics: true,
            max_copy: 1 << 31,
        },
        signal_all: input.signal_all,
        signature: input.signature,
    };
    // SAFETY: memory of these sizes, for this queue alone.
    let mut queue = unsafe { SendQueue::new(parts) };
    queue.set_accepting(true);
    let mut posted = 0_u32;
    for list in &input.lists {
        let whole: Vec<Whole<'_>> = list
            .iter()
            .map(|request| {
                let inline = request.flags & 8 != 0 || kind == QueueKind::RawPacket;
                let sges = request.sges.iter().map(|&(length, absurd)| Sge {
                    addr: payload.as_ptr().expose_provenance() as u64,
                    // What is over the limit is refused unread.
                    length: if absurd && !inline {
                        length
                    } else {
                        length % payload.len() as u32
                    },
                    lkey: length,
                });
                Whole {
                    request,
                    sges: sges.collect(),
                    header: &payload,
                    av: DatagramSegment::default(),
                }
            })
            .collect();
        let before = queue.head();
        let result = queue.post(whole.iter());
        let taken = queue.head().wrapping_sub(before);
        match result {
            Ok(count) => assert_eq!((count, taken as usize), (taken, whole.len())),
            Err(_) => assert!((taken as usize) < whole.len()),
        }
        posted += taken;
        let used = queue
            .head()
            .wrapping_sub(record.send().expect("send").tail());
        assert!(used <= MAX_WR);
        // SAFETY: the record's memory.
        let counter = unsafe { doorbell.start().cast::<[u8; 8]>().read() };
        if posted != 0 {
            let told = u32::from_be_bytes([counter[4], counter[5], counter[6], counter[7]]);
            assert_eq!(told, queue.posted_blocks() & 0xffff);
        }
        if input.complete != 0 && posted.is_multiple_of(u32::from(input.complete)) {
            record.send().expect("send").complete(queue.head());
        }
    }
    for memory in [&ring, &doorbell, &uar] {
        memory.check();
    }
});
