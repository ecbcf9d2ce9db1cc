//! Pingpong with datagrams; its other end may be `ibv_ud_pingpong`.

mod common;

use std::error::Error;
use std::process::ExitCode;

use clap::Parser;
use common::{Buffers, Completions, Destination, Link, Options, RECV, SEND};
use oxverbs::{AccessFlags, AddressHandle, QueuePair, Ud};

/// Key of the datagrams, which both ends know.
const QKEY: u32 = 0x1111_1111;
/// A received datagram begins with its global route header, or 40 bytes without meaning.
const HEADER: usize = 40;

/// Send datagrams back and forth. The other end may be the C program ibv_ud_pingpong.
#[derive(Parser, Debug)]
struct Arguments {
    #[command(flatten)]
    common: Options,
    /// Bytes of a message.
    #[arg(short, long, default_value_t = 1024)]
    size: u32,
}

struct Datagrams<'a> {
    qp: &'a mut QueuePair<Ud>,
    buffers: &'a Buffers,
    peer: Option<(AddressHandle, u32)>,
    size: usize,
    inline: bool,
}

impl Link for Datagrams<'_> {
    fn send(&mut self) -> Result<(), Box<dyn Error>> {
        let (handle, qpn) = self.peer.as_ref().ok_or("no peer yet")?;
        let out = &self.buffers.out;
        let payload = HEADER..HEADER + self.size;
        let mut batch = self.qp.send_batch();
        let request = batch.send(SEND, &handle.queue_pair(*qpn, QKEY)).signaled();
        if self.inline {
            request.inline(&out.to_vec(payload));
        } else {
            request.sges(&[out.sge(payload)]);
        }
        // SAFETY: the region outlives the queue pair and is never lent as a slice.
        Ok(unsafe { batch.post() }?)
    }

    fn receive(&mut self, count: u32) -> Result<(), Box<dyn Error>> {
        let sge = self.buffers.inp().sge(0..HEADER + self.size);
        for _ in 0..count {
            // SAFETY: as for sends.
            unsafe { self.qp.recv_half().post_sges(RECV, &[sge]) }?;
        }
        Ok(())
    }
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let Arguments {
        common: options,
        size,
    } = arguments;
    let context = options.open()?;
    let mtu = context
        .query_port(options.ib_port)?
        .active_mtu()
        .map_or(0, oxverbs::Mtu::bytes);
    if *size > mtu {
        return Err(format!("Requested size larger than port MTU ({mtu})").into());
    }
    let size = *size as usize;
    let pd = context.protection_domain()?;
    let client = options.host.is_some();
    let buffers = Buffers::new(&pd, size, HEADER, client, AccessFlags::NONE)?;
    let mut completions = Completions::new(&context, options.rx_depth + 1, options.events)?;
    let mut qp = pd
        .queue_pair::<Ud>(completions.cq())
        .max_send_wr(1)
        .max_recv_wr(options.rx_depth)
        .create()?;
    qp.to_init(options.ib_port, QKEY)?;
    let inline = qp.cap().max_inline_data as usize >= size;
    let mut link = Datagrams {
        qp: &mut qp,
        buffers: &buffers,
        peer: None,
        size,
        inline,
    };
    link.receive(options.rx_depth)?;

    let (lid, gid) = options.local_address(&context)?;
    let psn = common::random_psn();
    let local = Destination {
        lid,
        gid,
        psn,
        qpn: link.qp.qp_num(),
    };
    println!(
        "  local address:  LID 0x{lid:04x}, QPN 0x{:06x}, PSN 0x{psn:06x}: GID {gid}",
        local.qpn
    );
    let exchanged = common::exchange(options.host.as_deref(), options.port, &[local], |remote| {
        println!("  remote address: {}", remote[0]);
        link.qp.to_rtr()?;
        link.qp.to_rts(psn)?;
        let address = remote[0].address(options.ib_port, options.gid_idx, options.sl, 64);
        link.peer = Some((pd.address_handle(&address)?, remote[0].qpn));
        Ok(())
    });
    exchanged?;
    let start = common::run(
        &mut link,
        &mut completions,
        client,
        options.iters,
        options.rx_depth,
    )?;
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
