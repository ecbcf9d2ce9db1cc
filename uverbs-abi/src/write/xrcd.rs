//! XRC domains.

use crate::handle;

abi_structs! {
    /// Opens the XRC domain of a file, or makes it.
    "ib_uverbs_open_xrcd" OpenXrcd [16] {
        0 response: u64,
        /// The file that names the domain, or -1 for a private one.
        8 fd: i32,
        /// `O_CREAT`, `O_EXCL` or both.
        12 oflags: u32,
    }

    /// Answer to [`OpenXrcd`].
    "ib_uverbs_open_xrcd_resp" OpenXrcdResp [4] {
        0 xrcd_handle: handle::Xrcd,
    }

    /// Closes an XRC domain.
    "ib_uverbs_close_xrcd" CloseXrcd [4] {
        0 xrcd_handle: handle::Xrcd,
    }
}

write_commands! {
    "IB_USER_VERBS_CMD_OPEN_XRCD" 37: OpenXrcd => OpenXrcdResp;
    "IB_USER_VERBS_CMD_CLOSE_XRCD" 38: CloseXrcd => ();
}
