//! Verbs that only mlx5 has, or has with rules of its own.

use uverbs_abi::udata::mlx5::{AllocUcontextFlags, AllocUcontextReqV2, AllocUcontextResp};
use zerocopy::IntoBytes;

use super::{ContextInfo, Errno, Uctx};

/// What [`Uctx::get_context_mlx5`] answers.
#[derive(Debug)]
pub struct Mlx5Context {
    /// The context and the driver's answer.
    pub info: ContextInfo<AllocUcontextResp>,
    /// Whether the context may have DEVX objects.
    pub devx: bool,
}

impl Uctx {
    /// Makes the context.
    ///
    /// Kernels and devices say in no particular way what they do not know, so it is asked for less and
    /// less until one agrees: the whole request, without its youngest fields, and all of these once
    /// more without DEVX. The errno is that of the last attempt.
    pub fn get_context_mlx5(&self, request: AllocUcontextReqV2) -> Result<Mlx5Context, Errno> {
        let mut request = request;
        loop {
            let devx = request.flags.contains(AllocUcontextFlags::DEVX);
            let mut last = Errno(libc::EINVAL);
            for len in AllocUcontextReqV2::LENGTHS {
                match self.get_context_with(&request.as_bytes()[..len]) {
                    Ok(info) => return Ok(Mlx5Context { info, devx }),
                    Err(errno) => last = errno,
                }
            }
            if !devx {
                return Err(last);
            }
            request.flags = AllocUcontextFlags(request.flags.0 & !AllocUcontextFlags::DEVX.0);
        }
    }
}
