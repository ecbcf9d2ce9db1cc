//! Pingpong over several reliable connections with one receive queue; its other end may be `ibv_srq_pingpong`.

mod common;

use std::error::Error;
use std::process::ExitCode;

use clap::Parser;
use common::{Buffers, Completions, Destination, Options, RECV, SEND};
use oxverbs::{
    AccessFlags, Mtu, Peer, QueuePair, Rc, SharedReceiveQueue, SharedReceiveQueueAttributes, Timing,
};

/// Addresses that the hand-shake always exchanges, whatever the number of queue pairs.
const MAX_QP: usize = 256;

/// Send messages back and forth over several connections that share a receive queue. The other end may be the C
/// program ibv_srq_pingpong.
#[derive(Parser, Debug)]
struct Arguments {
    #[command(flatten)]
    common: Options,
    /// Bytes of a message.
    #[arg(short, long, default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..))]
    size: u32,
    /// Path MTU in bytes.
    #[arg(short, long, default_value = "1024", value_parser = common::mtu, value_name = "SIZE")]
    mtu: Mtu,
    /// Queue pairs.
    #[arg(short = 'q', long, default_value_t = 16, value_name = "COUNT",
          value_parser = clap::value_parser!(u32).range(1..MAX_QP as i64))]
    num_qp: u32,
    /// Use on-demand paging.
    #[arg(short, long)]
    odp: bool,
}

struct Link<'a> {
    qps: Vec<QueuePair<Rc>>,
    pending: Vec<u64>,
    srq: SharedReceiveQueue,
    buffers: &'a Buffers,
    size: usize,
    inline: bool,
}

impl Link<'_> {
    fn send(&mut self, index: usize) -> Result<(), Box<dyn Error>> {
        let out = &self.buffers.out;
        let mut batch = self.qps[index].send_batch();
        let request = batch.send(SEND).signaled();
        if self.inline {
            request.inline(&out.to_vec(0..self.size));
        } else {
            request.sges(&[out.sge(0..self.size)]);
        }
        // SAFETY: the region outlives the queue pairs and is never lent as a slice.
        Ok(unsafe { batch.post() }?)
    }

    fn receive(&mut self, count: u32) -> Result<(), Box<dyn Error>> {
        let sge = self.buffers.inp().sge(0..self.size);
        for _ in 0..count {
            // SAFETY: as for sends.
            unsafe { self.srq.post_sges(RECV, &[sge]) }?;
        }
        Ok(())
    }

    fn find(&self, qp_num: u32) -> Result<usize, Box<dyn Error>> {
        let found = self.qps.iter().position(|qp| qp.qp_num() == qp_num);
        found.ok_or_else(|| format!("Couldn't find QPN {qp_num:06x}").into())
    }
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let Arguments {
        common: options,
        num_qp,
        ..
    } = arguments;
    if *num_qp > options.rx_depth {
        return Err(format!(
            "rx_depth {} is too small for {num_qp} QPs -- must have at least one receive per QP.",
            options.rx_depth
        )
        .into());
    }
    let size = arguments.size as usize;
    let context = options.open()?;
    let pd = context.protection_domain()?;
    let client = options.host.is_some();
    let access = if arguments.odp {
        AccessFlags::ON_DEMAND
    } else {
        AccessFlags::NONE
    };
    let buffers = Buffers::new(&pd, size, 0, client, access)?;
    let mut completions = Completions::new(&context, options.rx_depth + num_qp, options.events)?;
    let srq = pd.shared_receive_queue(SharedReceiveQueueAttributes {
        max_wr: options.rx_depth,
        max_sge: 1,
        limit: 0,
    })?;
    let mut qps = Vec::new();
    for _ in 0..*num_qp {
        let builder = pd
            .queue_pair::<Rc>(completions.cq())
            .max_send_wr(1)
            .max_recv_wr(0);
        let mut qp = builder
            .max_recv_sge(0)
            .shared_receive_queue(&srq)
            .create()?;
        qp.to_init(options.ib_port, AccessFlags::NONE)?;
        qps.push(qp);
    }
    let inline = qps[0].cap().max_inline_data >= arguments.size;
    let pending = vec![RECV; qps.len()];
    let mut link = Link {
        qps,
        pending,
        srq,
        buffers: &buffers,
        size,
        inline,
    };
    link.receive(options.rx_depth)?;

    let (lid, gid) = options.local_address(&context)?;
    let mut local = vec![Destination::default(); MAX_QP];
    for (qp, local) in link.qps.iter().zip(&mut local) {
        *local = Destination {
            lid,
            gid,
            psn: common::random_psn(),
            qpn: qp.qp_num(),
        };
        println!("  local address:  {local}");
    }
    let exchanged = common::exchange(options.host.as_deref(), options.port, &local, |remote| {
        for ((qp, local), remote) in link.qps.iter_mut().zip(&local).zip(remote) {
            println!("  remote address: {remote}");
            let address = remote.address(options.ib_port, options.gid_idx, options.sl, 1);
            let mut peer = Peer::new(remote.qpn, remote.psn, address);
            peer.path_mtu = arguments.mtu;
            qp.to_rtr(&peer)?;
            qp.to_rts(local.psn, Timing::default())?;
        }
        Ok(())
    });
    exchanged?;

    if client {
        for index in 0..link.qps.len() {
            link.send(index)?;
            link.pending[index] |= SEND;
        }
    }
    let start = std::time::Instant::now();
    let (mut sent, mut received, mut posted) = (0, 0, options.rx_depth);
    while received < options.iters || sent < options.iters {
        completions.wait(|completion| {
            let index = link.find(completion.qp_num())?;
            match completion.wr_id() {
                SEND => sent += 1,
                RECV => {
                    received += 1;
                    posted -= 1;
                    if posted <= *num_qp {
                        link.receive(options.rx_depth - posted)?;
                        posted = options.rx_depth;
                    }
                }
                other => return Err(format!("Completion for unknown wr_id {other}").into()),
            }
            link.pending[index] &= !completion.wr_id();
            if sent < options.iters && link.pending[index] == 0 {
                link.send(index)?;
                link.pending[index] = RECV | SEND;
            }
            Ok(())
        })?;
    }
    common::report(start, size, options.iters);
    if options.chk {
        buffers.check()?;
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    common::main(|| run(&arguments))
}
