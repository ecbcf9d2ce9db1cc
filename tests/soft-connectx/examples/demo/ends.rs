//! Two ends of a reliable connection, on one device.

use std::error::Error;

use oxverbs::{
    AccessFlags, Address, Completion, CompletionQueue, Context, MemoryRegion, Mtu, Peer,
    ProtectionDomain, QueuePair, Rc, Timing,
};

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Bytes of each end's memory.
pub(crate) const MEMORY: usize = 1 << 20;
/// Requests under way at most.
pub(crate) const WINDOW: usize = 64;

const ACCESS: AccessFlags = AccessFlags(
    AccessFlags::LOCAL_WRITE.0
        | AccessFlags::REMOTE_READ.0
        | AccessFlags::REMOTE_WRITE.0
        | AccessFlags::REMOTE_ATOMIC.0,
);

pub(crate) struct End {
    _pd: ProtectionDomain,
    pub(crate) send_cq: CompletionQueue,
    pub(crate) recv_cq: CompletionQueue,
    pub(crate) qp: QueuePair<Rc>,
    pub(crate) memory: MemoryRegion,
}

impl End {
    fn new(context: &Context) -> Result<Self> {
        let pd = context.protection_domain()?;
        let entries = 2 * WINDOW as u32;
        let send_cq = context.completion_queue(entries)?;
        let recv_cq = context.completion_queue(entries)?;
        let qp = pd
            .queue_pair::<Rc>(&send_cq)
            .recv_completion_queue(&recv_cq)
            .max_send_wr(entries)
            .max_recv_wr(entries)
            .create()?;
        let memory = pd.allocate(MEMORY, ACCESS)?;
        Ok(Self {
            _pd: pd,
            send_cq,
            recv_cq,
            qp,
            memory,
        })
    }

    fn connect(&mut self, qpn: u32, address: Address, mtu: Mtu) -> Result<()> {
        self.qp.to_init(1, ACCESS)?;
        let mut peer = Peer::new(qpn, 0, address);
        peer.path_mtu = mtu;
        peer.max_dest_rd_atomic = 8;
        self.qp.to_rtr(&peer)?;
        let timing = Timing {
            max_rd_atomic: 8,
            ..Timing::default()
        };
        Ok(self.qp.to_rts(0, timing)?)
    }
}

/// Both ends, connected.
pub(crate) struct Pair {
    pub(crate) near: End,
    pub(crate) far: End,
}

impl Pair {
    pub(crate) fn new(context: &Context) -> Result<Self> {
        let (mut near, mut far) = (End::new(context)?, End::new(context)?);
        let gid_index = context.usual_gid(1)?.index as u8;
        let address = near.qp.endpoint(1, gid_index)?.address(1, gid_index);
        let mtu = context.query_port(1)?.active_mtu();
        let mtu = mtu.unwrap_or(Mtu::Bytes1024);
        let (here, there) = (near.qp.qp_num(), far.qp.qp_num());
        near.connect(there, address, mtu)?;
        far.connect(here, address, mtu)?;
        Ok(Self { near, far })
    }
}

/// Waits for `count` completions; answers the last. An error in any of them is one here.
pub(crate) fn reap(cq: &mut CompletionQueue, count: usize) -> Result<Completion> {
    let mut last = None;
    for _ in 0..count {
        let completion = cq.spin();
        if !completion.is_success() {
            return Err(format!("a request failed: {:?}", completion.status()).into());
        }
        last = Some(completion);
    }
    last.ok_or_else(|| "nothing to wait for".into())
}
