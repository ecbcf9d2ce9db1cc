//! XRC domains.

use std::os::fd::RawFd;

use uverbs_abi::Command;
use uverbs_abi::handle::Xrcd;
use uverbs_abi::object::xrcd;
use uverbs_abi::write::xrcd::{CloseXrcd, OpenXrcd};

use super::{Errno, Tried, Uctx};

impl Uctx {
    /// Opens the XRC domain that `file` names, or a private one without a file. `oflags` are open(2)'s:
    /// `O_CREAT` makes it, `O_EXCL` fails if another has.
    pub fn open_xrcd(&self, file: Option<RawFd>, oflags: i32) -> Result<Xrcd, Errno> {
        if let Some(objects) = self.objects() {
            return match file {
                None => objects.open_xrcd(),
                Some(_) => Err(Errno(libc::EOPNOTSUPP)),
            };
        }
        let resp = self.simple(OpenXrcd {
            response: 0,
            fd: file.unwrap_or(-1),
            oflags: oflags as u32,
        })?;
        Ok(resp.xrcd_handle)
    }

    /// Closes an XRC domain. `EBUSY` while queues of this context are in it.
    pub fn close_xrcd(&self, handle: Xrcd) -> Result<(), Errno> {
        if let Some(objects) = self.objects() {
            return objects.close_xrcd(handle);
        }
        let mut cmd = Command::new();
        cmd.destroy(xrcd::destroy::HANDLE, handle);
        match self.try_method(&mut cmd)? {
            Tried::Done => Ok(()),
            Tried::Unknown => self.simple(CloseXrcd {
                xrcd_handle: handle,
            }),
        }
    }
}
