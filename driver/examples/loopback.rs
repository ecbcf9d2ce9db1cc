//! Times the native API: two RC queue pairs of one process, connected to each other, so that no second polling process
//! fights for the processor. The counterpart of `tests/bench/loopback.c`, which times libibverbs; `cargo xtask bench` runs
//! both.
//!
//! ```text
//! loopback DEVICE GID_INDEX SCALE [OPERATION SIZE MODE]
//! ```
//!
//! For each operation (send, write, read), size (8, 4096) and mode prints `OPERATION SIZE MODE NANOSECONDS_PER_OPERATION`.
//! `latency` posts one and polls until it is complete (send: until the receiver has it); `rate` posts lists of 16, each
//! list's last request signalled, with 64 requests in flight. SCALE is the number of latency operations; the rate has four
//! times as many.

use std::error::Error;
use std::time::Instant;

use oxverbs::{
    AccessFlags, Address, CompletionQueue, Context, MemoryRegion, Mtu, Peer, ProtectionDomain,
    QueuePair, Rc, RemoteMemory, Sge, Timing,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const BATCH: usize = 16;
const WINDOW: usize = 64;
const MAX_SIZE: usize = 4096;

#[derive(Clone, Copy, PartialEq)]
enum Operation {
    Send,
    Write,
    Read,
}

struct End {
    send_cq: CompletionQueue,
    recv_cq: CompletionQueue,
    qp: QueuePair<Rc>,
    memory: MemoryRegion,
}

fn end(context: &Context, pd: &ProtectionDomain) -> Result<End> {
    let entries = 2 * WINDOW as u32;
    let send_cq = context.completion_queue(entries)?;
    let recv_cq = context.completion_queue(entries)?;
    let qp = pd
        .queue_pair::<Rc>(&send_cq)
        .recv_completion_queue(&recv_cq)
        .max_send_wr(entries)
        .max_recv_wr(entries)
        .create()?;
    let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE;
    let memory = pd.allocate(MAX_SIZE, access)?;
    Ok(End {
        send_cq,
        recv_cq,
        qp,
        memory,
    })
}

fn connect(qp: &mut QueuePair<Rc>, qpn: u32, address: Address) -> Result<()> {
    qp.to_init(1, AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE)?;
    let mut peer = Peer::new(qpn, 0, address);
    peer.path_mtu = Mtu::Bytes4096;
    peer.max_dest_rd_atomic = 8;
    qp.to_rtr(&peer)?;
    let timing = Timing {
        max_rd_atomic: 8,
        ..Timing::default()
    };
    Ok(qp.to_rts(0, timing)?)
}

/// Polls until `count` completions have come.
fn reap(cq: &mut CompletionQueue, count: usize) -> Result<()> {
    let mut missing = count;
    while missing > 0 {
        for completion in cq.poll().take(missing) {
            if !completion.is_success() {
                return Err(format!("completion: {:?}", completion.status()).into());
            }
            missing -= 1;
        }
    }
    Ok(())
}

/// Both ends and what one measurement moves between them.
struct Pair {
    from: End,
    to: End,
}

struct Measure {
    operation: Operation,
    size: usize,
}

impl Pair {
    fn post_receives(&mut self, size: usize, count: usize) -> Result<()> {
        let sge = [self.to.memory.sge(0..size)];
        let recv = self.to.qp.recv_half();
        for _ in 0..count {
            // SAFETY: the region outlives the queue pairs' work, all of which is reaped, and only it is measured.
            unsafe { recv.post_sges(0, &sge) }?;
        }
        Ok(())
    }

    fn post(&mut self, measure: &Measure, count: usize) -> Result<()> {
        let sge: [Sge; 1] = [self.from.memory.sge(0..measure.size)];
        let remote: RemoteMemory = self.to.memory.remote(0);
        let mut batch = self.from.qp.send_batch();
        for number in 1..=count {
            let request = match measure.operation {
                Operation::Send => batch.send(0),
                Operation::Write => batch.write(0, remote),
                Operation::Read => batch.read(0, remote),
            };
            if number == count {
                request.signaled().sges(&sge);
            } else {
                request.sges(&sge);
            }
        }
        // SAFETY: as in `post_receives`.
        Ok(unsafe { batch.post() }?)
    }

    fn latency(&mut self, measure: &Measure, count: usize) -> Result<()> {
        let is_send = measure.operation == Operation::Send;
        for _ in 0..count {
            if is_send {
                self.post_receives(measure.size, 1)?;
            }
            self.post(measure, 1)?;
            if is_send {
                reap(&mut self.to.recv_cq, 1)?;
            }
            reap(&mut self.from.send_cq, 1)?;
        }
        Ok(())
    }

    fn rate(&mut self, measure: &Measure, count: usize) -> Result<()> {
        let is_send = measure.operation == Operation::Send;
        let (mut posted, mut done) = (0, 0);
        while done < count {
            while posted < count && posted - done < WINDOW {
                if is_send {
                    self.post_receives(measure.size, BATCH)?;
                }
                self.post(measure, BATCH)?;
                posted += BATCH;
            }
            reap(&mut self.from.send_cq, 1)?;
            if is_send {
                reap(&mut self.to.recv_cq, BATCH)?;
            }
            done += BATCH;
        }
        Ok(())
    }
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (device, gid_index, scale, only) = match words[..] {
        [_, device, gid, scale] => (device, gid, scale, None),
        [_, device, gid, scale, operation, size, mode] => (
            device,
            gid,
            scale,
            Some(format!("{operation} {size} {mode}")),
        ),
        _ => return Err("usage: loopback DEVICE GID_INDEX SCALE [OPERATION SIZE MODE]".into()),
    };
    let gid_index: u8 = gid_index.parse()?;
    let scale: usize = scale.parse()?;
    let context = Context::open(device)?;
    let pd = context.protection_domain()?;
    let mut pair = Pair {
        from: end(&context, &pd)?,
        to: end(&context, &pd)?,
    };
    let endpoint = pair.from.qp.endpoint(1, gid_index)?;
    let address = endpoint.address(1, gid_index);
    let (from, to) = (pair.from.qp.qp_num(), pair.to.qp.qp_num());
    connect(&mut pair.from.qp, to, address)?;
    connect(&mut pair.to.qp, from, address)?;

    let operations = [
        ("send", Operation::Send),
        ("write", Operation::Write),
        ("read", Operation::Read),
    ];
    for (name, operation) in operations {
        for size in [8, 4096] {
            for mode in ["latency", "rate"] {
                let what = format!("{name} {size} {mode}");
                if only.as_ref().is_some_and(|only| *only != what) {
                    continue;
                }
                let measure = Measure { operation, size };
                // The first operations fault pages in and wake the kernel's tasks.
                pair.latency(&measure, 4)?;
                let start = Instant::now();
                let count = if mode == "rate" {
                    let count = (4 * scale).next_multiple_of(BATCH);
                    pair.rate(&measure, count)?;
                    count
                } else {
                    pair.latency(&measure, scale)?;
                    scale
                };
                let nanoseconds = start.elapsed().as_nanos() as f64 / count as f64;
                println!("{what} {nanoseconds:.0}");
            }
        }
    }
    Ok(())
}
