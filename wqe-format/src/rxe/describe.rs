//! Entries in words, for dumps.

use core::fmt;

use super::cqe::{Cqe, WcOpcode, WcStatus};
use super::operation::{Operation, SendFlags};
use super::wqe::{RecvWqe, SendWqe};

impl fmt::Display for SendFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (Self::FENCE, "fence"),
            (Self::SIGNALED, "signaled"),
            (Self::SOLICITED, "solicited"),
            (Self::INLINE, "inline"),
        ];
        let mut rest = self.0;
        let mut separator = "";
        for (flag, name) in names {
            if self.contains(flag) {
                write!(f, "{separator}{name}")?;
                separator = "|";
                rest &= !flag.0;
            }
        }
        if rest != 0 || self.0 == 0 {
            write!(f, "{separator}{rest:#x}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Send => f.write_str("SEND"),
            Self::SendWithImm { imm } => write!(f, "SEND_IMM imm {:#x}", imm.get()),
            Self::SendWithInv { rkey } => write!(f, "SEND_INV rkey {rkey:#x}"),
            Self::RdmaWrite { remote_addr, rkey } => {
                write!(f, "RDMA_WRITE to {remote_addr:#x} rkey {rkey:#x}")
            }
            Self::RdmaWriteWithImm {
                remote_addr,
                rkey,
                imm,
            } => write!(
                f,
                "RDMA_WRITE_IMM to {remote_addr:#x} rkey {rkey:#x} imm {:#x}",
                imm.get()
            ),
            Self::RdmaRead { remote_addr, rkey } => {
                write!(f, "RDMA_READ from {remote_addr:#x} rkey {rkey:#x}")
            }
            Self::AtomicCmpAndSwp {
                remote_addr,
                rkey,
                compare,
                swap,
            } => write!(
                f,
                "CMP_SWP at {remote_addr:#x} rkey {rkey:#x} compare {compare:#x} swap {swap:#x}"
            ),
            Self::AtomicFetchAndAdd {
                remote_addr,
                rkey,
                add,
            } => write!(
                f,
                "FETCH_ADD at {remote_addr:#x} rkey {rkey:#x} add {add:#x}"
            ),
            Self::LocalInv { rkey } => write!(f, "LOCAL_INV rkey {rkey:#x}"),
            Self::BindMw(bind) => write!(
                f,
                "BIND_MW {:#x}+{:#x} of lkey {:#x}, rkey {:#x} becomes {:#x}, access {:#x}",
                bind.addr, bind.length, bind.mr_lkey, bind.mw_rkey, bind.rkey, bind.access.0
            ),
            Self::Flush(flush) => write!(
                f,
                "FLUSH {:#x}+{:#x} rkey {:#x} placement {:#x} selectivity {}",
                flush.remote_addr, flush.length, flush.rkey, flush.placement, flush.selectivity
            ),
            Self::AtomicWrite { remote_addr, rkey } => {
                write!(f, "ATOMIC_WRITE to {remote_addr:#x} rkey {rkey:#x}")
            }
        }
    }
}

impl fmt::Display for SendWqe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "wr_id {:#x} ", self.wr.wr_id)?;
        match self.wr.operation() {
            Some(operation) => write!(f, "{operation}")?,
            None => write!(f, "opcode {}", self.wr.raw_opcode)?,
        }
        write!(
            f,
            " flags {} ssn {} {} bytes in {} sge",
            self.wr.flags(),
            self.ssn,
            self.dma.length,
            self.dma.num_sge
        )
    }
}

impl fmt::Display for RecvWqe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "wr_id {:#x} RECV {} bytes in {} sge",
            self.wr_id, self.dma.length, self.dma.num_sge
        )
    }
}

impl fmt::Display for WcStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "status {}", self.0),
        }
    }
}

impl fmt::Display for WcOpcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "opcode {}", self.0),
        }
    }
}

impl fmt::Display for Cqe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "wr_id {:#x} qp {:#x} {} ({}): {} bytes",
            self.wr_id,
            self.qp_num,
            self.opcode(),
            self.status(),
            self.byte_len
        )?;
        if let Some(imm) = self.immediate() {
            write!(f, " imm {imm:#x}")?;
        }
        if let Some(rkey) = self.invalidated_rkey() {
            write!(f, " invalidated {rkey:#x}")?;
        }
        Ok(())
    }
}
