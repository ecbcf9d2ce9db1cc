//! What probably led to a completion in error.

use super::error::{ErrorCqe, Syndrome};
use super::opcode::Opcode;

/// A guess at what went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cause {
    /// What it means.
    pub meaning: &'static str,
    /// What to look at.
    pub look_at: &'static str,
    /// What the vendor's byte adds, where users reported it together with an explanation.
    pub vendor: Option<&'static str>,
}

impl ErrorCqe {
    /// What probably led to it.
    ///
    /// Meanings follow the InfiniBand specification's completion codes; the vendor's bytes are not public, and what is said
    /// of them is what users found out.
    pub const fn likely_cause(&self) -> Cause {
        let opcode = Opcode((self.s_wqe_opcode_qpn.into_bits().get() >> 24) as u8);
        let responder = self.op_own.into_bits() >> 4 == super::CqeOpcode::RESP_ERR.0;
        let (meaning, look_at) = cause(self.syndrome, opcode, responder);
        Cause {
            meaning,
            look_at,
            vendor: vendor(self.syndrome, self.vendor_err_synd),
        }
    }
}

const fn cause(
    syndrome: Syndrome,
    opcode: Opcode,
    responder: bool,
) -> (&'static str, &'static str) {
    match syndrome {
        Syndrome::LOCAL_LENGTH_ERR if responder => (
            "A message was longer than the buffers of the posted receive.",
            "The receive's scatter list against the largest message; on UD, the 40 bytes of global route header in front.",
        ),
        Syndrome::LOCAL_LENGTH_ERR => (
            "The request's length is not allowed: longer than the port's largest message, or than one packet on UD.",
            "The sum of the scatter list against max_msg_sz, or the path MTU on UD; atomics take 8 bytes.",
        ),
        Syndrome::LOCAL_QP_OP_ERR => (
            "The device could not make sense of the request itself.",
            "The bytes of the request: opcode against the pair's service, length (ds), segments; a foreign write into the queue.",
        ),
        Syndrome::LOCAL_PROT_ERR if responder => (
            "A receive's buffer is not covered by its local key.",
            "Key, address and length of the posted receive; whether the region lives, is of the pair's domain and has local write.",
        ),
        Syndrome::LOCAL_PROT_ERR => match opcode {
            Opcode::RDMA_READ | Opcode::ATOMIC_CS | Opcode::ATOMIC_FA => (
                "The buffer for the answer is not covered by its local key.",
                "Key, address and length of the request; the region needs local write for reads and atomics.",
            ),
            _ => (
                "The request's buffer is not covered by its local key.",
                "Key, address and length of the request; whether the region lives and is of the pair's domain.",
            ),
        },
        Syndrome::WR_FLUSH_ERR => (
            "The pair was in the error state: the request was not tried.",
            "The first completion of the pair that is not flushed, or who moved it to the error state.",
        ),
        Syndrome::MW_BIND_ERR => (
            "A window could not be bound.",
            "Whether the region allows binding, covers the range, is of the same domain, and the key is the window's.",
        ),
        Syndrome::BAD_RESP_ERR => (
            "The peer's answer did not fit the request.",
            "Opcodes and lengths on both sides; whether both ends agree about the connection (packet numbers, MTU).",
        ),
        Syndrome::LOCAL_ACCESS_ERR => (
            "A peer's write with immediate data met memory that does not allow it.",
            "The key and range that the peer uses, and the region's access.",
        ),
        Syndrome::REMOTE_INVAL_REQ_ERR => match opcode {
            Opcode::SEND | Opcode::SEND_IMM | Opcode::SEND_INVAL => (
                "The peer refused the message: most often its posted receive is too small.",
                "The peer's receive buffers against this message; its own completion says local length error then.",
            ),
            Opcode::RDMA_READ | Opcode::ATOMIC_CS | Opcode::ATOMIC_FA => (
                "The peer refused the request.",
                "Alignment of atomics to 8 bytes; whether the peer's pair allows reads and atomics and how many at once (max_dest_rd_atomic).",
            ),
            _ => (
                "The peer refused the request.",
                "Whether the peer's pair allows the operation, and the length.",
            ),
        },
        Syndrome::REMOTE_ACCESS_ERR => (
            "The peer's key does not allow this access to this range.",
            "Remote key, address and length; access of region and pair on the peer (remote write, read, atomic); whether the region or window still lives.",
        ),
        Syndrome::REMOTE_OP_ERR => (
            "The peer failed to do the operation.",
            "The peer's own completions and asynchronous events.",
        ),
        Syndrome::TRANSPORT_RETRY_EXC_ERR => (
            "The peer did not answer in time, retry_cnt times.",
            "Whether the peer's pair is ready to receive and lives; the path: link, address (GID index, VLAN, LID), MTU, partition, lossless setup; timeout.",
        ),
        Syndrome::RNR_RETRY_EXC_ERR => (
            "The peer had no receive posted, rnr_retry times.",
            "Receives on the peer (or its shared queue); rnr_retry 7 waits for ever; min_rnr_timer.",
        ),
        Syndrome::REMOTE_ABORTED_ERR => (
            "The operation was given up.",
            "The peer's state; memory on demand that could not be brought in.",
        ),
        _ => (
            "An error that this crate does not know.",
            "Firmware release notes; the kernel's log.",
        ),
    }
}

/// Vendor bytes that came with an explanation in public reports.
const fn vendor(syndrome: Syndrome, vendor: u8) -> Option<&'static str> {
    match (syndrome, vendor) {
        (Syndrome::REMOTE_ABORTED_ERR, ErrorCqe::VENDOR_ODP_PAGE_FAULT) => {
            Some("page fault on demand-paged memory; a shared receive is posted again")
        }
        (Syndrome::TRANSPORT_RETRY_EXC_ERR, 0x81) => Some("usual with exceeded retries"),
        (Syndrome::RNR_RETRY_EXC_ERR, 0x87) => {
            Some("usual with exceeded receiver-not-ready retries")
        }
        (Syndrome::REMOTE_ACCESS_ERR, 0x88) => Some("usual with remote access errors"),
        (Syndrome::REMOTE_INVAL_REQ_ERR, 0x8a) => Some("usual with refused requests"),
        (Syndrome::WR_FLUSH_ERR, 0xf4 | 0xf9) => Some("usual with flushed requests"),
        (Syndrome::LOCAL_PROT_ERR, 0x52 | 0x53) => Some("seen with local keys that do not fit"),
        _ => None,
    }
}
