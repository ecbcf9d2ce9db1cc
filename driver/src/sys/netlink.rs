//! The RDMA netlink socket.

use std::fmt;

use netlink_sys::{Socket, SocketAddr};
use uverbs_abi::netlink::{Body, NETLINK_RDMA, Request, messages};

use super::errno::Errno;

/// A socket on which requests are answered at once, one after the other.
pub struct RdmaSocket(Socket);

impl fmt::Debug for RdmaSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RdmaSocket")
    }
}

impl RdmaSocket {
    /// Opens one. `EPROTONOSUPPORT` without module `ib_core`.
    pub fn open() -> Result<Self, Errno> {
        let mut socket = Socket::new(NETLINK_RDMA as isize)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self(socket))
    }

    /// Sends a request and gives the payloads of its answers to `take`. `several`: the answer ends with a message that
    /// says so (a dump).
    pub fn ask(
        &self,
        request: &Request,
        several: bool,
        mut take: impl FnMut(&[u8]),
    ) -> Result<(), Errno> {
        self.0.send(request.bytes(), 0)?;
        loop {
            let (datagram, _) = self.0.recv_from_full()?;
            for message in messages(&datagram) {
                match message.map_err(|_| Errno(libc::EBADMSG))?.body() {
                    Body::Data(payload) => take(payload),
                    Body::Error(0) | Body::Done => return Ok(()),
                    Body::Error(errno) => return Err(Errno(errno)),
                }
            }
            if !several {
                return Ok(());
            }
        }
    }
}
