//! Compressed completions: those that are alike are held back for a while, and written as one block.
//!
//! The layouts are those that [`wqe_format::mlx5::compressed`] reads, with its sources. Which completions make a block, and when
//! it ends, is a card's choice. Here a block ends with a completion that is unlike, when it is full, after
//! [`TIMEOUT`], before any command, and wherever an adversary wants. Completions are alike if nothing is lost but what readers
//! do without: the time, of receives with [`MiniFormat::HASH`] the checksum and with the other formats the hash (Linux'
//! `mlx5e_decompress_cqe` and `mlx5e_decompress_cqe_no_hash`).

use std::time::Duration;

use wqe_format::mlx5::compressed::{Block, Layout};
use wqe_format::mlx5::{Cqe64, CqeFormat, CqeOpcode, MiniArray, MiniCqe, MiniFormat};
use zerocopy::byteorder::big_endian::{U16, U32, U64};

use super::Cqe;

/// Completions of one basic block at most (`cqe_compression_max_num`).
pub(crate) const MOST: u16 = 64;
/// How long the first one waits at most, in microseconds (`cqe_compression_timeout`, whose unit no public source says).
pub(crate) const TIMEOUT: u16 = 100;

/// How a queue compresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Compression {
    pub(crate) layout: Layout,
    /// Of receives.
    pub(crate) format: MiniFormat,
}

impl Compression {
    /// Completions that are held back at most, in a queue of `2^log_size` entries.
    fn most(self, log_size: u8) -> usize {
        match self.layout {
            Layout::Basic => usize::from(MOST).min(1 << log_size),
            Layout::Enhanced => Block::ENHANCED_MAX as usize,
        }
    }
}

/// What a queue holds back.
#[derive(Debug, Default)]
pub(super) struct Session {
    held: Vec<Cqe>,
    /// What the next completion must be like: the last one that is held or, with the enhanced layout, was written.
    last: Option<Cqe64>,
    due: Option<Duration>,
}

/// What becomes of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It waits for others.
    Held,
    /// It is the last one of its block.
    Last,
    /// It is written as it is.
    Written,
}

impl Session {
    /// How many are held back.
    pub(super) fn len(&self) -> u32 {
        self.held.len() as u32
    }

    /// When they are due.
    pub(super) fn due(&self) -> Option<Duration> {
        self.due
    }

    /// Whether a completion goes with those that are held back, which otherwise must be written before it.
    pub(super) fn takes(&self, how: Compression, cqe: &Cqe) -> bool {
        let next = fields(cqe);
        can(cqe) && (self.last).is_some_and(|last| follows(how.format, &last, &next))
    }

    /// Adds a completion; those unlike it are gone.
    pub(super) fn add(
        &mut self,
        how: Compression,
        log_size: u8,
        now: Duration,
        cqe: &Cqe,
        takes: bool,
    ) -> Fate {
        self.last = can(cqe).then(|| fields(cqe));
        let waits = takes || how.layout == Layout::Basic && self.last.is_some();
        if !waits {
            return Fate::Written;
        }
        self.held.push(cqe.clone());
        let timeout = Duration::from_micros(TIMEOUT.into());
        self.due.get_or_insert(now + timeout);
        if self.held.len() >= how.most(log_size) {
            Fate::Last
        } else {
            Fate::Held
        }
    }

    /// Those that were held back.
    pub(super) fn take(&mut self, layout: Layout) -> Vec<Cqe> {
        self.due = None;
        if layout == Layout::Basic {
            self.last = None;
        }
        std::mem::take(&mut self.held)
    }
}

/// The entry that makes a block valid, and entries of mini entries that are written before it, with their distances from it.
pub(super) fn block(how: Compression, held: &[Cqe]) -> ([u8; 64], Vec<(u32, [u8; 64])>) {
    let array = |cqes: &[Cqe]| {
        let mut array = MiniArray::default();
        for (place, cqe) in array.0.iter_mut().zip(cqes) {
            *place = mini(how.format, &fields(cqe));
        }
        zerocopy::transmute!(array)
    };
    if how.layout == Layout::Enhanced {
        let mut bytes: [u8; 64] = array(held);
        bytes[63] = (held.len().saturating_sub(1) as u8) << 4 | CqeFormat::COMPRESSED.0 << 2;
        return (bytes, Vec::new());
    }
    let mut title = held.first().map(fields).unwrap_or_default();
    title.byte_cnt = U32::new(held.len() as u32);
    title.op_own = title.op_own.with_raw_format(CqeFormat::COMPRESSED.0);
    let arrays = (held.chunks(MiniArray::LEN).enumerate())
        .map(|(nth, cqes)| (if nth == 0 { 1 } else { 8 * nth as u32 }, array(cqes)))
        .collect();
    (zerocopy::transmute!(title), arrays)
}

fn fields(cqe: &Cqe) -> Cqe64 {
    zerocopy::transmute!(cqe.bytes)
}

/// Whether it may be one of a block: nothing of it is in the place of data or of what queues with tags say.
fn can(cqe: &Cqe) -> bool {
    let fields = fields(cqe);
    let opcode = fields.opcode();
    (opcode == CqeOpcode::REQ || opcode.is_responder())
        && fields.format() == CqeFormat::NONE
        && fields.app == 0
}

/// Whether `next` can be made from `last` and a mini entry.
fn follows(format: MiniFormat, last: &Cqe64, next: &Cqe64) -> bool {
    let counts = last.opcode() == CqeOpcode::REQ
        || format.has_stride_index()
        || next.wqe_counter.get() == last.wqe_counter.get().wrapping_add(1);
    counts && common(last) == common(next)
}

/// What a block has once.
fn common(cqe: &Cqe64) -> Cqe64 {
    let mut common = Cqe64 {
        byte_cnt: U32::ZERO,
        timestamp: U64::ZERO,
        wqe_counter: U16::ZERO,
        ..*cqe
    };
    if common.opcode() == CqeOpcode::REQ {
        common.sop_drop_qpn = common.sop_drop_qpn.with_sop(0);
    } else {
        common.rx_hash_result = U32::ZERO;
        common.check_sum = U16::ZERO;
    }
    common
}

fn mini(format: MiniFormat, cqe: &Cqe64) -> MiniCqe {
    let (counter, bytes) = (cqe.wqe_counter.get(), cqe.byte_cnt.get());
    let sum = cqe.check_sum.get();
    match format {
        _ if cqe.opcode() == CqeOpcode::REQ => MiniCqe::send(counter, cqe.send_opcode().0, bytes),
        MiniFormat::HASH => MiniCqe::hash(cqe.rx_hash_result.get(), bytes),
        MiniFormat::CSUM_STRIDX => MiniCqe::checksum(sum, counter, bytes),
        _ => MiniCqe::checksum(sum, 0, bytes),
    }
}
