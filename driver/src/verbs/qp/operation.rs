//! Operations on remote memory, from what the API's functions are given.

use wqe_format::rxe::Operation;
use zerocopy::byteorder::big_endian::U32;

use crate::verbs::mr::RemoteMemory;

#[inline(always)]
pub(super) fn write(to: RemoteMemory) -> Operation {
    Operation::RdmaWrite {
        remote_addr: to.addr,
        rkey: to.rkey,
    }
}

#[inline(always)]
pub(super) fn write_imm(to: RemoteMemory, imm: u32) -> Operation {
    Operation::RdmaWriteWithImm {
        remote_addr: to.addr,
        rkey: to.rkey,
        imm: U32::new(imm),
    }
}

#[inline(always)]
pub(super) fn read(from: RemoteMemory) -> Operation {
    Operation::RdmaRead {
        remote_addr: from.addr,
        rkey: from.rkey,
    }
}

#[inline(always)]
pub(super) fn compare_swap(at: RemoteMemory, compare: u64, swap: u64) -> Operation {
    Operation::AtomicCmpAndSwp {
        remote_addr: at.addr,
        rkey: at.rkey,
        compare,
        swap,
    }
}

#[inline(always)]
pub(super) fn fetch_add(at: RemoteMemory, add: u64) -> Operation {
    Operation::AtomicFetchAndAdd {
        remote_addr: at.addr,
        rkey: at.rkey,
        add,
    }
}
