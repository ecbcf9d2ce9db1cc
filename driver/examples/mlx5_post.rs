//! What posting to an mlx5 queue costs the processor, with memory in place of the device: no bus, no doorbell.
//!
//! `cargo run --release -p oxverbs --example mlx5_post`: the least nanoseconds per work request of many regions of 256.

use std::alloc::{Layout, alloc};
use std::hint::black_box;
use std::iter::repeat_n;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Instant;

use oxverbs::data::mlx5::{
    BlueFlame, Operation, QueueKind, QueueRecord, ReceiveSide, RecvParts, RecvQueue, RecvShared,
    Register, Remote, SendFlags, SendLimits, SendParts, SendQueue, SendRequest, SendShared,
    Sharing, WrOpcode,
};
use oxverbs::ffi_core::wqe_format::rxe::Sge;

/// Work requests of a region, which fit into the queue.
const REGION: usize = 256;
const REGIONS: usize = 4000;

fn memory(len: usize) -> NonNull<u8> {
    let layout = Layout::from_size_align(len, 4096).expect("a layout");
    // SAFETY: the length is not zero. Never freed: the process is short.
    let start = NonNull::new(unsafe { alloc(layout) }).expect("memory");
    // SAFETY: just allocated.
    unsafe { start.write_bytes(0, len) };
    start
}

#[derive(Debug)]
struct Wr {
    wr_id: u64,
    opcode: WrOpcode,
    flags: SendFlags,
    sges: [Sge; 1],
    remote: Remote,
}

// SAFETY: the element names live memory.
unsafe impl SendRequest for Wr {
    #[inline]
    fn wr_id(&self) -> u64 {
        self.wr_id
    }

    #[inline]
    fn opcode(&self) -> WrOpcode {
        self.opcode
    }

    #[inline]
    fn flags(&self) -> SendFlags {
        self.flags
    }

    #[inline]
    fn sges(&self) -> &[Sge] {
        &self.sges
    }

    #[inline]
    fn remote(&self) -> Remote {
        self.remote
    }
}

fn send_queue(sharing: Sharing) -> (SendQueue, Arc<QueueRecord>) {
    let wqebbs = 1024;
    let ring = memory(wqebbs as usize * 64);
    let shared = SendShared::new(ring, wqebbs, 0);
    // SAFETY: the ring is never freed.
    let record = Arc::new(unsafe {
        QueueRecord::new(
            QueueKind::Rc,
            0x1234,
            0,
            Some(shared),
            ReceiveSide::None,
            None,
        )
    });
    // SAFETY: memory of two halves, never freed.
    let register = unsafe { Register::new(memory(512), 256, BlueFlame::Always, sharing, None) };
    let parts = SendParts {
        record: record.clone(),
        doorbell: memory(64).cast(),
        register,
        limits: SendLimits {
            max_wr: REGION as u32,
            max_sge: 1,
            max_inline: 60,
            min_inline_header: 0,
            max_tso: 0,
            max_tso_header: 0,
            checksums: false,
            atomics: true,
            max_copy: 0,
        },
        signal_all: false,
        signature: false,
    };
    // SAFETY: the doorbell record is never freed; it is the only queue over the ring.
    let mut queue = unsafe { SendQueue::new(parts) };
    queue.set_accepting(true);
    (queue, record)
}

/// A call that is not inlined, as from another crate's compilation unit with its own arguments.
#[inline(never)]
fn post_list(queue: &mut SendQueue, list: &[Wr]) {
    queue.post(list).expect("room");
}

#[inline(never)]
fn post_one(queue: &mut SendQueue, wr: &Wr) {
    queue.post_one(wr).expect("room");
}

#[inline(never)]
fn post_write(queue: &mut SendQueue, wr_id: u64, sge: Sge, remote: Remote) {
    let wr = Wr {
        wr_id,
        opcode: WrOpcode::RDMA_WRITE,
        flags: SendFlags::SIGNALED,
        sges: [sge],
        remote,
    };
    queue.post_one(&wr).expect("room");
}

#[inline(never)]
fn build(queue: &mut SendQueue, wr: &Wr, count: usize) {
    let mut draft = queue.begin();
    for _ in 0..count {
        let operation = Operation::RdmaWrite(wr.remote);
        // SAFETY: no headers are read.
        unsafe { queue.open(&mut draft, wr.wr_id, wr.flags, &operation) }.expect("room");
        // SAFETY: no packets are read.
        unsafe { queue.set_sge(&mut draft, &wr.sges[0]) }.expect("one element");
    }
    queue.commit(&mut draft).expect("a batch");
}

#[inline(never)]
fn receive_one(queue: &mut RecvQueue, sges: &[Sge]) {
    queue.post_one((7_u64, sges)).expect("room");
}

#[inline(never)]
fn receive(queue: &mut RecvQueue, sges: &[Sge], count: usize) {
    queue.post(repeat_n((7_u64, sges), count)).expect("room");
}

fn measure(name: &str, mut region: impl FnMut()) {
    let mut least = f64::MAX;
    for _ in 0..REGIONS {
        let start = Instant::now();
        region();
        least = least.min(start.elapsed().as_nanos() as f64);
    }
    println!("{name:40} {:6.2} ns", least / REGION as f64);
}

fn main() {
    let data = [7_u8; 64];
    let wr = |opcode, flags| Wr {
        wr_id: 1,
        opcode,
        flags,
        sges: [Sge {
            addr: data.as_ptr().expose_provenance() as u64,
            length: 16,
            lkey: 3,
        }],
        remote: Remote { addr: 5, rkey: 6 },
    };
    let inline = SendFlags::SIGNALED.with(SendFlags::INLINE);
    for sharing in [Sharing::Exclusive, Sharing::OneThread, Sharing::Locked] {
        println!("{sharing:?}");
        for (name, opcode, flags) in [
            ("WRITE 1sge", WrOpcode::RDMA_WRITE, SendFlags::SIGNALED),
            ("WRITE inl16", WrOpcode::RDMA_WRITE, inline),
            ("SEND 1sge", WrOpcode::SEND, SendFlags::SIGNALED),
            ("SEND inl16", WrOpcode::SEND, inline),
        ] {
            let (mut queue, record) = send_queue(sharing);
            let shared = record.send().expect("a send queue");
            let list: Vec<Wr> = (0..16).map(|_| wr(opcode, flags)).collect();
            measure(&format!("{name} b1"), || {
                for _ in 0..REGION {
                    post_one(&mut queue, black_box(&list[0]));
                }
                shared.complete(queue.head());
            });
            measure(&format!("{name} b16"), || {
                for _ in 0..REGION / 16 {
                    post_list(&mut queue, black_box(&list));
                }
                shared.complete(queue.head());
            });
        }
    }
    let one = wr(WrOpcode::RDMA_WRITE, SendFlags::SIGNALED);
    let (mut queue, record) = send_queue(Sharing::Exclusive);
    let shared = record.send().expect("a send queue");
    measure("WRITE 1sge b1, opcode known", || {
        for _ in 0..REGION {
            post_write(&mut queue, 1, black_box(one.sges[0]), black_box(one.remote));
        }
        shared.complete(queue.head());
    });
    for count in [1, 16] {
        measure(&format!("draft WRITE 1sge b{count}"), || {
            for _ in 0..REGION / count {
                build(&mut queue, black_box(&one), count);
            }
            shared.complete(queue.head());
        });
    }
    let recv = RecvShared::new(memory(1 << 16), 512, 4, false, 0);
    // SAFETY: the ring is never freed.
    let record = Arc::new(unsafe {
        QueueRecord::new(QueueKind::Rc, 1, 0, None, ReceiveSide::Own(recv), None)
    });
    let parts = RecvParts {
        record: record.clone(),
        doorbell: memory(64).cast(),
        max_wr: 512,
        max_sge: 1,
    };
    // SAFETY: the doorbell record is never freed; it is the only queue over the ring.
    let mut queue = unsafe { RecvQueue::new(parts) };
    queue.set_accepting(true);
    for count in [1, 16] {
        measure(&format!("recv b{count}"), || {
            for _ in 0..REGION / count {
                match count {
                    1 => receive_one(&mut queue, black_box(&one.sges)),
                    _ => receive(&mut queue, black_box(&one.sges), count),
                }
            }
            let recv = record.recv().expect("a receive queue");
            recv.complete(REGION as u32);
        });
    }
}
