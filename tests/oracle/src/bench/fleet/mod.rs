//! Many queue pairs on one completion queue, as objects of the device: made, connected and destroyed by the calls that
//! programs make.

mod c;
mod native;

use anyhow::Result;
use wqe_format::mlx5::{Cqe64, CqeFormat, CqeOpcode, OpOwn, SopDropQpn};

pub use c::CFleet;
pub use native::NativeFleet;

use crate::c::device::QpSpec;
use crate::call::Service;

/// Work requests that a queue pair holds, and completions of one region.
pub const DEPTH: usize = 64;

/// The queue pairs.
pub const SPEC: QpSpec = QpSpec {
    service: Service::Rc,
    send_wr: DEPTH as u32,
    recv_wr: 16,
    send_sge: 1,
    recv_sge: 1,
    inline: 0,
    tso_header: 0,
    signals_all: false,
    has_builder: false,
};

/// Entries asked for of the completion queue.
pub const ENTRIES: u32 = 1023;

/// One implementation's.
pub trait Fleet {
    /// Whose it is.
    fn name(&self) -> &'static str;

    /// Queue pairs that there are.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes one more, in the state RESET.
    ///
    /// # Errors
    ///
    /// As the call.
    fn make(&mut self) -> Result<()>;

    /// Takes the last one from RESET to RTS.
    ///
    /// # Errors
    ///
    /// As the calls.
    fn connect(&mut self) -> Result<()>;

    /// Looks where the last one is, which is no part of what it costs.
    ///
    /// # Errors
    ///
    /// The kernel does not know it.
    fn locate(&mut self) -> Result<()>;

    /// Destroys the last one.
    ///
    /// # Errors
    ///
    /// As the call.
    fn unmake(&mut self) -> Result<()>;

    /// Makes one more completion queue.
    ///
    /// # Errors
    ///
    /// As the call.
    fn make_cq(&mut self) -> Result<()>;

    /// Destroys the last one made so.
    ///
    /// # Errors
    ///
    /// As the call.
    fn unmake_cq(&mut self) -> Result<()>;

    /// Posts a signalled work request of one block.
    fn post(&mut self, index: usize);

    /// The device completes the oldest work request of this queue pair that it has not completed.
    fn complete(&mut self, index: usize);

    /// Polls `n` completions, `batch` a call.
    fn poll(&mut self, batch: usize, n: usize);
}

/// What the device knows of a queue pair.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    qpn: u32,
    user_index: u32,
    completed: u16,
}

impl Known {
    /// The entry about the oldest work request.
    fn complete(&mut self) -> Cqe64 {
        let counter = self.completed;
        self.completed = counter.wrapping_add(1);
        Cqe64 {
            srqn_uidx: self.user_index.into(),
            byte_cnt: 64.into(),
            // MLX5_OPCODE_RDMA_WRITE
            sop_drop_qpn: SopDropQpn::from_bits((0x08 << 24 | self.qpn).into()),
            wqe_counter: counter.into(),
            op_own: OpOwn::of(CqeOpcode::REQ, CqeFormat::NONE, false, false),
            ..Cqe64::default()
        }
    }
}
