//! Compressed completions: one title, many mini entries.
//!
//! With *basic* compression an entry of format 3 is a title: its byte count is the number of completions, itself included,
//! and the following entry holds the first 8 mini entries, the title's own first. The block takes as many ring entries as it
//! has completions; mini entries 8 and on stand in the entries 8, 16, … behind the title.
//!
//! With *enhanced* compression the title is the last ordinary entry, and a complete completion. An entry of format 3 behind
//! it holds up to 7 mini entries, in its opcode bits their number less one, and it takes as many ring entries as it has mini
//! entries. Whether any entry is valid is told by [`Cqe64::signature`], which holds the number of the turn, not by the owner
//! bit. Several blocks may follow one title.
//!
//! Ring entries that a block spans but does not use keep what was there: the reader makes them invalid
//! ([`OpOwn::INVALID`]) when it consumes them, lest they seem to be valid on a later turn.
//!
//! Sources: DPDK `mlx5_rx.c`, `mlx5_rxtx_vec_*.h`; UCX `ib_mlx5.c` (enhanced, and basic in 1.12); the Linux driver's
//! `en_rx.c`. libmlx5 reads no compressed completions; Debian's UCX (1.13: basic, later: enhanced) does, and expands the
//! tests' rings to the same completions. What UCX does not read (hash, checksum, strides, flow tags) is checked against the
//! other two sources only. All of it is unproven on hardware.

use zerocopy::byteorder::big_endian::{U16, U32};

use super::cqe::{Cqe64, CqeFormat, CqeOpcode, OpOwn, SopDropQpn};
use super::mini::{MiniArray, MiniCqe, MiniFormat};

/// How a queue compresses (`cqe_comp_layout` of the queue).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// Title of format 3, owner bit.
    Basic,
    /// Ordinary title, number of the turn.
    Enhanced,
}

/// Why an entry of format 3 is not a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadBlock {
    /// The number of completions is 0 or more than the ring (basic) or one entry (enhanced) can have.
    Count(u32),
    /// The title completes neither a request nor a receive.
    Title(CqeOpcode),
    /// An enhanced block came before any ordinary entry.
    NoTitle,
}

impl core::fmt::Display for BadBlock {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Count(n) => write!(f, "a compressed block of {n} completions"),
            Self::Title(opcode) => write!(
                f,
                "a compressed block under an entry of opcode {:#x}",
                opcode.0
            ),
            Self::NoTitle => f.write_str("a compressed block without a title"),
        }
    }
}

impl core::error::Error for BadBlock {}

/// Whether an entry of a queue with enhanced compression is valid at `consumer_index` of `2^log_size` entries: the turn's
/// number agrees, and the opcode bits are not those of a fresh queue (no block has 16 mini entries).
///
/// `signature` and `op_own` are the last two bytes of the entry, read at once.
#[inline]
pub const fn is_valid_enhanced(
    signature: u8,
    op_own: OpOwn,
    consumer_index: u32,
    log_size: u32,
) -> bool {
    signature == (consumer_index >> (log_size & 31)) as u8 && op_own.into_bits() & 0xf0 != 0xf0
}

/// What all completions of a block share, and how to make each from its mini entry.
#[derive(Clone, Copy, Debug)]
pub struct Title {
    cqe: Cqe64,
    format: MiniFormat,
    requester: bool,
    /// Of the next receive, where mini entries do not tell.
    next_counter: u16,
}

impl Title {
    /// A title.
    ///
    /// # Errors
    ///
    /// [`BadBlock::Title`] when the entry completes neither a request nor a receive.
    pub const fn new(cqe: &Cqe64, layout: Layout, format: MiniFormat) -> Result<Self, BadBlock> {
        let opcode = cqe.op_own.opcode();
        let requester = opcode.0 == CqeOpcode::REQ.0;
        if !requester && !opcode.is_responder() {
            return Err(BadBlock::Title(opcode));
        }
        let counter = cqe.wqe_counter.get();
        Ok(Self {
            cqe: *cqe,
            format,
            requester,
            next_counter: match layout {
                // The first mini entry is the title's own completion; else the title has had it.
                Layout::Basic => counter,
                Layout::Enhanced => counter.wrapping_add(1),
            },
        })
    }

    /// The completion of a mini entry, as the device would have written it on turn `turn` of the ring.
    #[inline]
    pub const fn expand(&mut self, mini: MiniCqe, layout: Layout, turn: u32) -> Cqe64 {
        let mut cqe = self.cqe;
        cqe.op_own = OpOwn::of(
            cqe.op_own.opcode(),
            CqeFormat::NONE,
            cqe.op_own.solicited(),
            turn & 1 != 0,
        );
        if matches!(layout, Layout::Enhanced) {
            cqe.signature = turn as u8;
        }
        if self.requester {
            cqe.byte_cnt = mini.byte_cnt;
            cqe.wqe_counter = mini.send_wqe_counter();
            let qpn = cqe.sop_drop_qpn.into_bits().get() & 0xff_ffff;
            cqe.sop_drop_qpn =
                SopDropQpn::from_bits(U32::new((mini.send_opcode() as u32) << 24 | qpn));
        } else {
            // Receives of a linear queue follow each other; a striding queue needs a format with strides.
            cqe.wqe_counter = U16::new(self.next_counter);
            self.next_counter = self.next_counter.wrapping_add(1);
            mini.merge_responder(self.format, &mut cqe);
        }
        cqe
    }
}

/// A block that is being expanded.
///
/// It owns its title and knows where its mini entries stand; the ring's bytes are brought to it, so that the caller decides
/// how device-visible memory is read. A block can be left at any completion and taken up again.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    title: Title,
    layout: Layout,
    /// Consumer index of the block's first ring entry.
    start: u32,
    count: u32,
    done: u32,
    log_size: u32,
}

impl Block {
    /// Mini entries that an enhanced block can have.
    pub const ENHANCED_MAX: u32 = 7;

    /// The block that starts with the title `cqe` at `consumer_index` of a ring of `2^log_size` entries.
    ///
    /// # Errors
    ///
    /// [`BadBlock`] when the title cannot be one, or its count is impossible for the ring.
    pub const fn basic(
        cqe: &Cqe64,
        consumer_index: u32,
        log_size: u32,
        format: MiniFormat,
    ) -> Result<Self, BadBlock> {
        let count = cqe.byte_cnt.get();
        if count == 0 || log_size < 32 && count > 1 << log_size {
            return Err(BadBlock::Count(count));
        }
        match Title::new(cqe, Layout::Basic, format) {
            Ok(title) => Ok(Self {
                title,
                layout: Layout::Basic,
                start: consumer_index,
                count,
                done: 0,
                log_size,
            }),
            Err(error) => Err(error),
        }
    }

    /// The block that the entry of format 3 with `op_own` at `consumer_index` holds. `title` is that of the last ordinary
    /// entry or, when another block came in between, what [`Block::title`] of that gave.
    ///
    /// # Errors
    ///
    /// [`BadBlock`] without title, or when the count is impossible.
    pub const fn enhanced(
        title: Option<Title>,
        op_own: OpOwn,
        consumer_index: u32,
        log_size: u32,
    ) -> Result<Self, BadBlock> {
        let count = (op_own.into_bits() >> 4) as u32 + 1;
        if count > Self::ENHANCED_MAX {
            return Err(BadBlock::Count(count));
        }
        let Some(title) = title else {
            return Err(BadBlock::NoTitle);
        };
        Ok(Self {
            title,
            layout: Layout::Enhanced,
            start: consumer_index,
            count,
            done: 0,
            log_size,
        })
    }

    /// Completions of the block, which is also how many ring entries it takes.
    #[inline]
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// Completions that were not taken yet.
    #[inline]
    pub const fn remaining(&self) -> u32 {
        self.count - self.done
    }

    /// Consumer index of the ring entry that the next completion stands for, or of the first behind the block.
    #[inline]
    pub const fn consumer_index(&self) -> u32 {
        self.start.wrapping_add(self.done)
    }

    /// Consumer index of the ring entry whose bytes hold the next mini entry; `None` at the end.
    ///
    /// It changes every 8 completions only. It is behind [`consumer_index`](Self::consumer_index) by up to 7, never in front
    /// of it, but for the title's own, which is one in front.
    #[inline]
    pub const fn array_index(&self) -> Option<u32> {
        if self.done >= self.count {
            return None;
        }
        Some(match (self.layout, self.done / MiniArray::LEN as u32) {
            (Layout::Enhanced, _) => self.start,
            (Layout::Basic, 0) => self.start.wrapping_add(1),
            (Layout::Basic, nth) => self.start.wrapping_add(nth * MiniArray::LEN as u32),
        })
    }

    /// The next completion, from the bytes of the ring entry at [`array_index`](Self::array_index); `None` at the end.
    #[inline]
    pub const fn next(&mut self, array: &MiniArray) -> Option<Cqe64> {
        if self.done >= self.count {
            return None;
        }
        let turn = self.consumer_index() >> (self.log_size & 31);
        let mini = array.get(self.done);
        self.done += 1;
        Some(self.title.expand(mini, self.layout, turn))
    }

    /// The title, counted on: for an enhanced block that follows this one.
    #[inline]
    pub const fn title(&self) -> Title {
        self.title
    }

    /// All remaining completions. `read` gives the bytes of the ring entry at a consumer index; it is called once per 8.
    #[inline]
    pub fn expand<F: FnMut(u32) -> MiniArray>(self, read: F) -> Expanded<F> {
        Expanded {
            block: self,
            read,
            array: None,
        }
    }
}

/// The completions of a block, see [`Block::expand`].
pub struct Expanded<F> {
    block: Block,
    read: F,
    array: Option<(u32, MiniArray)>,
}

impl<F> core::fmt::Debug for Expanded<F> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Expanded")
            .field("block", &self.block)
            .finish_non_exhaustive()
    }
}

impl<F: FnMut(u32) -> MiniArray> Iterator for Expanded<F> {
    type Item = Cqe64;

    fn next(&mut self) -> Option<Cqe64> {
        let index = self.block.array_index()?;
        let array = match self.array {
            Some((at, array)) if at == index => array,
            _ => {
                let array = (self.read)(index);
                self.array = Some((index, array));
                array
            }
        };
        self.block.next(&array)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let n = self.block.remaining() as usize;
        (n, Some(n))
    }
}
