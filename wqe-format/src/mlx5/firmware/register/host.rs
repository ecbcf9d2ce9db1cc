//! Registers of the host's side.

use crate::mlx5::firmware::layout::layouts;

layouts! {
    /// HOST_ENDIANNESS (0x7004).
    RegisterHostEndianness = "register_host_endianness", 0x10 {
        bool he: 0x0, 0x1;
    }
}
