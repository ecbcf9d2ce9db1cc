//! rxe's doorbell: an empty POST_SEND command.

use uverbs_abi::handle;
use uverbs_abi::write::WriteCommand;
use uverbs_abi::write::frame::CmdHeader;
use uverbs_abi::write::post::{PostSend, PostSendResp};
use zerocopy::{FromZeros, Immutable, IntoBytes};

use crate::sys::errno::Errno;
use crate::sys::fd::UverbsFd;

/// Size of libibverbs' `struct ibv_send_wr`, which the kernel wants to be at least its own; there is none of them.
const WQE_SIZE: u32 = 128;

#[derive(Clone, Copy, Debug, Immutable, IntoBytes)]
#[repr(C)]
struct Message {
    header: CmdHeader,
    request: PostSend,
}

/// Tells the kernel that a send queue has new entries: one `write()` of 32 bytes.
#[derive(Clone, Copy, Debug)]
pub struct Doorbell {
    message: Message,
}

impl Doorbell {
    /// The doorbell of a queue pair.
    pub fn new(qp: handle::Qp) -> Self {
        let header = CmdHeader {
            command: PostSend::SPEC.command(),
            in_words: const { (size_of::<Message>() / 4) as u16 },
            out_words: const { (size_of::<PostSendResp>() / 4) as u16 },
        };
        let request = PostSend {
            response: 0,
            qp_handle: qp,
            wr_count: 0,
            sge_count: 0,
            wqe_size: WQE_SIZE,
        };
        Self {
            message: Message { header, request },
        }
    }

    /// Rings it.
    ///
    /// # Errors
    ///
    /// The kernel's errno: the entries stay in the queue, and a later ring makes them known.
    #[inline]
    pub fn ring(&self, fd: &UverbsFd) -> Result<(), Errno> {
        let mut response = PostSendResp::new_zeroed();
        let mut message = self.message;
        message.request.response = (&raw mut response).expose_provenance() as u64;
        loop {
            // SAFETY: the response pointer is that of a local value of the length that the header says (K2).
            match unsafe { fd.write(message.as_bytes()) } {
                Ok(_) => return Ok(()),
                Err(Errno(libc::EINTR)) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes that rdma-core 56's rxe provider writes (recorded by strace on Linux 6.12, handle 3), without the
    /// response's address.
    #[test]
    fn is_the_command_that_the_official_provider_writes() {
        let doorbell = Doorbell::new(handle::Qp(3));
        let words: &[u8] = doorbell.message.as_bytes();
        let expected: [u32; 8] = [28, 8 | 1 << 16, 0, 0, 3, 0, 0, 128];
        assert_eq!(words, expected.as_bytes());
    }
}
