//! An RDMA WRITE from one buffer to another, through a queue pair that is its own peer.

use oxverbs::{AccessFlags, Context, Rc, Result};

fn main() -> Result<()> {
    let context = Context::open(&std::env::args().nth(1).unwrap_or("rxe0".into()))?;
    let pd = context.protection_domain()?;
    let mut cq = context.completion_queue(16)?;
    let mut qp = pd.queue_pair::<Rc>(&cq).create()?;
    let gid = context.usual_gid(1)?;
    let me = qp.endpoint(1, gid.index as u8)?;
    qp.connect(&me, &me, AccessFlags::REMOTE_WRITE)?;
    let from = pd.allocate(4096, AccessFlags::NONE)?;
    let to = pd.allocate(4096, AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE)?;
    from.copy_in(0, b"hello, RDMA");
    qp.send_half().write(from.slice(0..11), to.remote(0))?;
    let completion = cq.spin();
    qp.reclaim(&completion);
    println!(
        "{:?}: {}",
        completion.status(),
        String::from_utf8_lossy(&to.to_vec(0..11))
    );
    Ok(())
}
