//! The bytes of the ioctl (`uapi rdma/rdma_user_ioctl_cmds.h`).

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// The request number: `_IOWR(0x1b, 1, struct ib_uverbs_ioctl_hdr)`, with the header's 24 bytes.
pub const RDMA_VERBS_IOCTL: u64 = 0xc018_1b01;

/// The kernel must know the attribute or refuse the call.
#[doc(alias = "UVERBS_ATTR_F_MANDATORY")]
pub const ATTR_F_MANDATORY: u16 = 1 << 0;
/// Set by the kernel in an output that it wrote.
#[doc(alias = "UVERBS_ATTR_F_VALID_OUTPUT")]
pub const ATTR_F_VALID_OUTPUT: u16 = 1 << 1;

/// Attributes from here on belong to the driver.
#[doc(alias = "UVERBS_UDATA_DRIVER_DATA_FLAG")]
pub const DRIVER_DATA_FLAG: u16 = 1 << 12;
/// The driver's part of a request.
#[doc(alias = "UVERBS_ATTR_UHW_IN")]
pub const ATTR_UHW_IN: u16 = DRIVER_DATA_FLAG;
/// The driver's part of a response.
#[doc(alias = "UVERBS_ATTR_UHW_OUT")]
pub const ATTR_UHW_OUT: u16 = DRIVER_DATA_FLAG + 1;

/// Inputs of up to this many bytes travel inside the attribute.
pub const INLINE_MAX: usize = 8;

/// Attributes that one [`Command`](super::Command) holds. The largest core method has 15 (`QP_CREATE`),
/// and the driver adds to that.
pub const MAX_ATTRS: usize = 28;

abi_structs! {
    /// The header of a request.
    "ib_uverbs_ioctl_hdr" Header [24] {
        /// Bytes of the header and its attributes.
        0 length: u16,
        2 object_id: u16,
        4 method_id: u16,
        6 num_attrs: u16,
        8 reserved1: u64,
        16 driver_id: u32,
        20 reserved2: u32,
    }

    /// One attribute.
    "ib_uverbs_attr" Attr [16] {
        0 attr_id: u16,
        /// Bytes of the payload; 0 for objects and file descriptors.
        2 len: u16,
        4 flags: u16,
        /// Which element of an enumeration with payload (C: `attr_data.enum_data.elem_id`).
        6 elem_id: u8,
        7 reserved: u8,
        /// The payload, its address, or a number (C: `data`, `data_s64`).
        8 data: u64,
    }
}

/// A request as the kernel reads and writes it: header and attributes, contiguous.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
pub struct Frame {
    /// The header.
    pub header: Header,
    /// The attributes; `header.num_attrs` of them count.
    pub attrs: [Attr; MAX_ATTRS],
}

impl Frame {
    /// An empty request.
    pub(crate) const fn empty() -> Self {
        const ATTR: Attr = Attr {
            attr_id: 0,
            len: 0,
            flags: 0,
            elem_id: 0,
            reserved: 0,
            data: 0,
        };
        Self {
            header: Header {
                length: 0,
                object_id: 0,
                method_id: 0,
                num_attrs: 0,
                reserved1: 0,
                driver_id: 0,
                reserved2: 0,
            },
            attrs: [ATTR; MAX_ATTRS],
        }
    }

    /// The bytes that the header says are in use.
    pub fn bytes(&self) -> &[u8] {
        let all = self.as_bytes();
        &all[..usize::from(self.header.length).min(all.len())]
    }
}
