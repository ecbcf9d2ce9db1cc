//! Completions (`struct ib_uverbs_wc`, 48 bytes).

use core::mem::offset_of;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A completion as it stands in the queue.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[doc(alias = "ib_uverbs_wc")]
pub struct Cqe {
    /// The work request's number.
    pub wr_id: u64,
    /// See [`status`](Self::status).
    pub raw_status: u32,
    /// See [`opcode`](Self::opcode).
    pub raw_opcode: u32,
    /// Reason of an error, in the device's own numbers; rxe leaves 0.
    pub vendor_err: u32,
    /// Bytes transferred.
    pub byte_len: u32,
    /// Immediate data in network byte order, or the invalidated key in the host's.
    pub ex: u32,
    /// The local queue pair.
    pub qp_num: u32,
    /// The remote queue pair (datagrams).
    pub src_qp: u32,
    /// See [`flags`](Self::flags).
    pub raw_flags: u32,
    /// Partition key index (GSI only).
    pub pkey_index: u16,
    /// Source LID.
    pub slid: u16,
    /// Service level.
    pub sl: u8,
    /// Destination LID path bits.
    pub dlid_path_bits: u8,
    /// Port.
    pub port_num: u8,
    /// Padding.
    pub reserved: u8,
}

const _: () = {
    assert!(size_of::<Cqe>() == 48);
    assert!(offset_of!(Cqe, raw_status) == 8);
    assert!(offset_of!(Cqe, ex) == 24);
    assert!(offset_of!(Cqe, raw_flags) == 36);
    assert!(offset_of!(Cqe, pkey_index) == 40);
    assert!(offset_of!(Cqe, port_num) == 46);
};

impl Cqe {
    /// How the work request ended.
    #[inline]
    pub const fn status(&self) -> WcStatus {
        WcStatus(self.raw_status)
    }

    /// What completed.
    #[inline]
    pub const fn opcode(&self) -> WcOpcode {
        WcOpcode(self.raw_opcode)
    }

    /// Which other fields are valid.
    #[inline]
    pub const fn flags(&self) -> WcFlags {
        WcFlags(self.raw_flags)
    }

    /// Immediate data as a number, if there is some.
    pub const fn immediate(&self) -> Option<u32> {
        if self.raw_flags & WcFlags::WITH_IMM.0 != 0 {
            Some(u32::from_be(self.ex))
        } else {
            None
        }
    }

    /// The key that the sender invalidated, if it did.
    pub const fn invalidated_rkey(&self) -> Option<u32> {
        if self.raw_flags & WcFlags::WITH_INVALIDATE.0 != 0 {
            Some(self.ex)
        } else {
            None
        }
    }
}

/// `enum ib_wc_status`, which has the numbers of libibverbs' `enum ibv_wc_status`. Any number is a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WcStatus(pub u32);

macro_rules! named {
    ($type:ident: $($name:ident = $value:expr, $text:literal;)*) => {
        #[allow(missing_docs, reason = "the field's names")]
        impl $type {
            $(pub const $name: Self = Self($value);)*

            /// The name in lower case, if the number has one.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $(x if x == $value => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

named! { WcStatus:
    SUCCESS = 0, "success";
    LOC_LEN_ERR = 1, "local length error";
    LOC_QP_OP_ERR = 2, "local QP operation error";
    LOC_EEC_OP_ERR = 3, "local EE context operation error";
    LOC_PROT_ERR = 4, "local protection error";
    WR_FLUSH_ERR = 5, "work request flushed error";
    MW_BIND_ERR = 6, "memory window bind error";
    BAD_RESP_ERR = 7, "bad response error";
    LOC_ACCESS_ERR = 8, "local access error";
    REM_INV_REQ_ERR = 9, "remote invalid request error";
    REM_ACCESS_ERR = 10, "remote access error";
    REM_OP_ERR = 11, "remote operation error";
    RETRY_EXC_ERR = 12, "transport retry counter exceeded";
    RNR_RETRY_EXC_ERR = 13, "RNR retry counter exceeded";
    LOC_RDD_VIOL_ERR = 14, "local RDD violation error";
    REM_INV_RD_REQ_ERR = 15, "remote invalid RD request";
    REM_ABORT_ERR = 16, "remote aborted error";
    INV_EECN_ERR = 17, "invalid EE context number";
    INV_EEC_STATE_ERR = 18, "invalid EE context state";
    FATAL_ERR = 19, "fatal error";
    RESP_TIMEOUT_ERR = 20, "response timeout error";
    GENERAL_ERR = 21, "general error";
    TM_ERR = 22, "TM error";
    TM_RNDV_INCOMPLETE = 23, "TM software rendezvous";
}

/// `enum ib_wc_opcode`, and of tag matching what libibverbs' `enum ibv_wc_opcode` adds. Any number is a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WcOpcode(pub u32);

named! { WcOpcode:
    SEND = 0, "send";
    RDMA_WRITE = 1, "rdma write";
    RDMA_READ = 2, "rdma read";
    COMP_SWAP = 3, "compare and swap";
    FETCH_ADD = 4, "fetch and add";
    BIND_MW = 5, "bind memory window";
    LOCAL_INV = 6, "local invalidate";
    TSO = 7, "tso";
    FLUSH = 8, "flush";
    ATOMIC_WRITE = 9, "atomic write";
    RECV = 128, "recv";
    RECV_RDMA_WITH_IMM = 129, "recv of rdma write with immediate";
    TM_ADD = 130, "tag added";
    TM_DEL = 131, "tag removed";
    TM_SYNC = 132, "tags synchronized";
    TM_RECV = 133, "tagged recv";
    TM_NO_TAG = 134, "recv without tag";
}

/// `enum ib_wc_flags`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WcFlags(pub u32);

impl WcFlags {
    /// A datagram came with a global route header (its 40 bytes precede the payload).
    pub const GRH: Self = Self(1);
    /// Immediate data is valid.
    pub const WITH_IMM: Self = Self(2);
    /// A key was invalidated: the kernel's `IB_WC_WITH_INVALIDATE`, which rxe writes as it is. libibverbs' `IBV_WC_WITH_INV`
    /// is 8, and 4 means something else there.
    pub const WITH_INVALIDATE: Self = Self(4);

    /// Whether all flags of `other` are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}
