//! The pingpong over a connection, reliable or not.

use std::error::Error;

use oxverbs::{AccessFlags, AdviseMrAdvice, Context, Mtu, Paired, Peer, QueuePair, Rc, Timing, Uc};

use super::{Buffers, Completions, Destination, Link, Options, RECV, SEND};

/// What differs between reliable and unreliable connections.
pub(crate) trait Kind: Paired + Sized {
    fn connect(qp: &mut QueuePair<Self>, peer: &Peer, psn: u32) -> oxverbs::Result<()>;
}

impl Kind for Rc {
    fn connect(qp: &mut QueuePair<Self>, peer: &Peer, psn: u32) -> oxverbs::Result<()> {
        qp.to_rtr(peer)?;
        qp.to_rts(psn, Timing::default())
    }
}

impl Kind for Uc {
    fn connect(qp: &mut QueuePair<Self>, peer: &Peer, psn: u32) -> oxverbs::Result<()> {
        qp.to_rtr(peer)?;
        qp.to_rts(psn)
    }
}

/// What the user chose beside the common options.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectedOptions {
    pub(crate) size: u32,
    pub(crate) mtu: Mtu,
    pub(crate) on_demand: bool,
    pub(crate) prefetch: bool,
    pub(crate) implicit: bool,
    pub(crate) timestamps: bool,
    pub(crate) device_memory: bool,
}

impl ConnectedOptions {
    /// Refuses what the device does not have, and what this program does not do though the device may have it.
    fn check(&self, context: &Context) -> Result<(), Box<dyn Error>> {
        let device = context.query_device()?.extended;
        // IB_ODP_SUPPORT and IB_ODP_SUPPORT_IMPLICIT (uapi rdma/ib_user_ioctl_verbs.h)
        let paging = device.odp_caps.general_caps;
        for (wanted, has, what) in [
            (
                self.on_demand || self.implicit,
                paging & 1 != 0,
                "on-demand paging",
            ),
            (self.implicit, paging & 2 != 0, "implicit on-demand paging"),
            (
                self.timestamps,
                device.timestamp_mask != 0,
                "completion timestamps",
            ),
            (
                self.device_memory,
                device.max_dm_size != 0,
                "memory of its own",
            ),
        ] {
            if wanted && !has {
                return Err(format!("the device has no {what}").into());
            }
        }
        if self.implicit || self.timestamps || self.device_memory {
            return Err("-O, -t and -j are not built into this program yet".into());
        }
        Ok(())
    }
}

struct Connection<'a, T> {
    qp: &'a mut QueuePair<T>,
    buffers: &'a Buffers,
    size: usize,
    inline: bool,
}

impl<T: Paired> Link for Connection<'_, T> {
    fn send(&mut self) -> Result<(), Box<dyn Error>> {
        let out = &self.buffers.out;
        let mut batch = self.qp.send_batch();
        let request = batch.send(SEND).signaled();
        if self.inline {
            request.inline(&out.to_vec(0..self.size));
        } else {
            request.sges(&[out.sge(0..self.size)]);
        }
        // SAFETY: the region outlives the queue pair and is never lent as a slice.
        Ok(unsafe { batch.post() }?)
    }

    fn receive(&mut self, count: u32) -> Result<(), Box<dyn Error>> {
        let sge = self.buffers.inp().sge(0..self.size);
        for _ in 0..count {
            // SAFETY: as for sends.
            unsafe { self.qp.recv_half().post_sges(RECV, &[sge]) }?;
        }
        Ok(())
    }
}

/// Runs one end.
pub(crate) fn run<T: Kind>(
    options: &Options,
    more: ConnectedOptions,
) -> Result<(), Box<dyn Error>> {
    let size = more.size as usize;
    let context: Context = options.open()?;
    more.check(&context)?;
    let pd = context.protection_domain()?;
    let access = if more.on_demand {
        AccessFlags::ON_DEMAND
    } else {
        AccessFlags::NONE
    };
    let client = options.host.is_some();
    let buffers = Buffers::new(&pd, size, 0, client, access)?;
    if more.prefetch
        && let Err(error) = buffers
            .inp()
            .advise(AdviseMrAdvice::PREFETCH_WRITE, 0..size)
    {
        eprintln!("{error}; continuing");
    }
    let mut completions = Completions::new(&context, options.rx_depth + 1, options.events)?;
    let mut qp = pd
        .queue_pair::<T>(completions.cq())
        .max_send_wr(1)
        .max_recv_wr(options.rx_depth)
        .create()?;
    qp.to_init(options.ib_port, AccessFlags::NONE)?;
    let inline = qp.cap().max_inline_data >= more.size;
    let mut link = Connection {
        qp: &mut qp,
        buffers: &buffers,
        size,
        inline,
    };
    link.receive(options.rx_depth)?;

    let (lid, gid) = options.local_address(&context)?;
    let psn = super::random_psn();
    let local = Destination {
        lid,
        gid,
        psn,
        qpn: link.qp.qp_num(),
    };
    println!("  local address:  {local}");
    let remote = super::exchange(options.host.as_deref(), options.port, &[local], |remote| {
        println!("  remote address: {}", remote[0]);
        let address = remote[0].address(options.ib_port, options.gid_idx, options.sl, 1);
        let mut peer = Peer::new(remote[0].qpn, remote[0].psn, address);
        peer.path_mtu = more.mtu;
        Ok(T::connect(link.qp, &peer, psn)?)
    });
    remote?;
    let start = super::run(
        &mut link,
        &mut completions,
        client,
        options.iters,
        options.rx_depth,
    )?;
    super::report(start, size, options.iters);
    if options.chk {
        buffers.check()?;
    }
    Ok(())
}
