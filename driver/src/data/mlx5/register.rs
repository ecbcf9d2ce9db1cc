//! The register that tells the device of new send work requests.
//!
//! A register has two halves, used in turn. Either one work request is copied into a half whole (BlueFlame: the device need
//! not read it from memory), or its first eight bytes are stored there (the doorbell). Between two rings of one register
//! the write-combining buffers must be empty, else the device could see a mixture of two work requests.
//!
//! Which half is next is state. A queue that owns its register keeps it without a lock; queues that share one take a lock;
//! a register without BlueFlame has one half and no state, and an 8-byte store cannot be torn, so it needs none.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use wqe_format::mlx5::SEND_WQE_BB;

use super::lock::SpinLock;
use super::record::KeepAlive;
use super::ring::SendRing;
use crate::sys::barrier;

/// When work requests are copied into the register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlueFlame {
    /// Never: `MLX5_SHUT_UP_BF`, or a register that is not mapped write-combining.
    Off,
    /// Only those with inline data: `MLX5_POST_SEND_PREFER_BF=0`.
    Inline,
    /// All that fit.
    Always,
}

/// Who uses a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// One queue.
    Exclusive,
    /// Several queues, which may be posted to at the same time.
    Locked,
    /// Several queues, which are not posted to at the same time (`MLX5_SINGLE_THREADED`, one thread domain).
    OneThread,
}

/// A register of a device.
#[derive(Debug)]
pub struct Register {
    base: NonNull<u8>,
    /// Bytes of a half; zero if there is one only.
    half: u32,
    /// How many lengths of a work request without inline data, from [`SHORTEST`] on, are copied.
    plain: u32,
    /// The same of one with inline data.
    inline: u32,
    state: State,
}

enum State {
    Own {
        /// Offset of the half that is next.
        offset: u32,
        _memory: Option<KeepAlive>,
    },
    Shared(Arc<Shared>),
}

struct Shared {
    base: NonNull<u8>,
    half: u32,
    lock: SpinLock,
    locked: bool,
    /// Offset of the half that is next.
    offset: AtomicU32,
    _memory: Option<KeepAlive>,
}

// SAFETY: a register is the process's, not a thread's; stores to it are made through `&mut self`, or with the lock held.
unsafe impl Send for Register {}
// SAFETY: as above: stores are made with the lock held, or by one thread at a time as the maker promised.
unsafe impl Send for Shared {}
// SAFETY: as above; all else is atomic or never changes.
unsafe impl Sync for Shared {}

/// Units of 16 bytes of the shortest work request that is copied: one of a control segment only is not.
const SHORTEST: u32 = 2;
/// Units of a block.
const BLOCK_UNITS: u32 = (SEND_WQE_BB / 16) as u32;

/// A work request in its ring, as the register needs it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Announced {
    /// The last control segment.
    pub(super) ctrl: NonNull<u64>,
    /// Its length in units of 16 bytes.
    pub(super) ds: u32,
    /// Whether it was posted alone.
    pub(super) alone: bool,
    /// Whether it has inline data.
    pub(super) inline: bool,
}

/// What is stored to a register.
#[derive(Clone, Copy, Debug)]
struct Stored<'a> {
    ctrl: NonNull<u64>,
    /// Units of it if it is copied; none if it is the doorbell.
    ds: u32,
    /// Where it is. Borrowed: few of those that are copied go on in another block.
    ring: &'a SendRing,
}

impl Register {
    /// A register at `base`, with halves of `half` bytes (half of `bf_reg_size`); zero if the device has no BlueFlame.
    ///
    /// # Panics
    ///
    /// If `half` is not a multiple of 64.
    ///
    /// # Safety
    ///
    /// `2 * half` bytes, at least 8, are mapped writable at `base` as long as `memory` or the register (or one that
    /// [`shares`](Self::shares) it) exists, aligned to 64 bytes, and nobody else stores there at the same time. With
    /// [`Sharing::OneThread`], no two threads post through it or its shares at the same time.
    pub unsafe fn new(
        base: NonNull<u8>,
        half: u32,
        blue_flame: BlueFlame,
        sharing: Sharing,
        memory: Option<KeepAlive>,
    ) -> Self {
        assert!((half as usize).is_multiple_of(SEND_WQE_BB));
        let state = match sharing {
            Sharing::Exclusive => State::Own {
                offset: 0,
                _memory: memory,
            },
            Sharing::Locked | Sharing::OneThread => State::Shared(Arc::new(Shared {
                base,
                half,
                lock: SpinLock::new(sharing == Sharing::Locked),
                locked: sharing == Sharing::Locked,
                offset: AtomicU32::new(0),
                _memory: memory,
            })),
        };
        // All that a half holds.
        let lengths = (half / 16).saturating_sub(SHORTEST - 1);
        Self {
            base,
            half,
            plain: match blue_flame {
                BlueFlame::Off | BlueFlame::Inline => 0,
                BlueFlame::Always => lengths,
            },
            inline: match blue_flame {
                BlueFlame::Off => 0,
                BlueFlame::Inline | BlueFlame::Always => lengths,
            },
            state,
        }
    }

    /// The same register for another queue; `None` if it is exclusive.
    pub fn share(&self) -> Option<Self> {
        match &self.state {
            State::Own { .. } => None,
            State::Shared(shared) => Some(Self {
                state: State::Shared(shared.clone()),
                ..*self
            }),
        }
    }

    /// Whether it belongs to one queue.
    #[inline(always)]
    pub(super) fn is_exclusive(&self) -> bool {
        matches!(self.state, State::Own { .. })
    }

    /// Whether another register is a share of this one.
    pub fn shares(&self, other: &Self) -> bool {
        self.base == other.base
    }

    /// Where it is.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Bytes of a half; zero if work requests are never copied into it.
    pub fn half(&self) -> u32 {
        self.half
    }

    /// Rings. The doorbell record was stored before.
    ///
    /// # Safety
    ///
    /// `announced` is a complete work request in the ring.
    #[inline(always)]
    pub(super) unsafe fn ring(&mut self, announced: Announced, ring: &SendRing) {
        let over = announced.ds.wrapping_sub(SHORTEST);
        let copied =
            announced.alone && (over < self.plain || announced.inline && over < self.inline);
        let stored = Stored {
            ctrl: announced.ctrl,
            ds: if copied { announced.ds } else { 0 },
            ring,
        };
        match &mut self.state {
            State::Own { offset, .. } => {
                barrier::device_sees_doorbell_record_before_register();
                // SAFETY: one of two halves of a register; its memory is mapped as `new`'s caller promised.
                let to = unsafe { self.base.add(*offset as usize) }.cast();
                // SAFETY: the caller's promise; nobody else stores to the register.
                unsafe { store(to, stored) };
                barrier::register_stores_leave_the_processor();
                *offset ^= self.half;
            }
            State::Shared(shared) => {
                // SAFETY: the caller's promise.
                unsafe { shared.ring(stored.ctrl, stored.ds, ring) };
            }
        }
    }
}

impl Shared {
    /// Arguments in registers: they are not laid down in memory before it is clear that this is called.
    ///
    /// # Safety
    ///
    /// As for [`Register::ring`].
    #[inline(never)]
    unsafe fn ring(&self, ctrl: NonNull<u64>, ds: u32, ring: &SendRing) {
        let held = self.lock.lock();
        // On x86 taking the lock is a locked instruction, which orders stores of every memory type and empties
        // write-combining buffers (SDM 3A, 9.2.5 and 12.3.1).
        if !(cfg!(target_arch = "x86_64") && self.locked) {
            barrier::device_sees_doorbell_record_before_register();
        }
        let offset = self.offset.load(Ordering::Relaxed);
        // SAFETY: one of two halves of a register; its memory is mapped as `new`'s caller promised.
        let to = unsafe { self.base.add(offset as usize) }.cast();
        let stored = Stored { ctrl, ds, ring };
        // SAFETY: the caller's promise; the lock keeps others from the register.
        unsafe { store(to, stored) };
        barrier::register_stores_leave_the_processor();
        self.offset.store(offset ^ self.half, Ordering::Relaxed);
        drop(held);
    }
}

/// Copies a work request, or its first eight bytes, into a half of a register.
///
/// # Safety
///
/// `to` is a mapped half; the rest as for [`Register::ring`].
#[inline(always)]
unsafe fn store(to: NonNull<u64>, stored: Stored<'_>) {
    if stored.ds != 0 {
        // SAFETY: the caller's promise; the length was compared with the half's.
        unsafe { copy(to, stored) };
    } else {
        // SAFETY: a control segment in the ring.
        let head = unsafe { stored.ctrl.read() };
        // SAFETY: a mapped half, aligned.
        unsafe { to.write_volatile(head) };
    }
}

/// Copies basic blocks in ascending order by stores of eight bytes, with whatever the ring holds behind the work request in
/// its last block: the device takes whole blocks.
///
/// # Safety
///
/// As for [`store`], with room for the work request.
#[inline(always)]
unsafe fn copy(to: NonNull<u64>, stored: Stored<'_>) {
    // SAFETY: a block of the ring; the caller's promise.
    unsafe { copy_block(to, stored.ctrl) };
    if stored.ds > BLOCK_UNITS {
        // SAFETY: the caller's promise.
        unsafe { copy_rest(to, stored) };
    }
}

/// As [`copy`], of all blocks but the first.
///
/// # Safety
///
/// As for [`copy`]; there is a second block.
#[inline(always)]
unsafe fn copy_rest(mut to: NonNull<u64>, stored: Stored<'_>) {
    let mut from = stored.ctrl;
    let mut left = stored.ds;
    while left > BLOCK_UNITS {
        left -= BLOCK_UNITS;
        // SAFETY: there is room for another block.
        to = unsafe { to.add(WORDS) };
        // SAFETY: at most the end of the ring.
        from = unsafe { from.add(WORDS) };
        if from == stored.ring.end().cast() {
            from = stored.ring.start().cast();
        }
        // SAFETY: a block of the ring; there is room.
        unsafe { copy_block(to, from) };
    }
}

/// Words of a block.
const WORDS: usize = SEND_WQE_BB / 8;

/// # Safety
///
/// A block of the ring, and room for one in a mapped half.
#[inline(always)]
unsafe fn copy_block(to: NonNull<u64>, from: NonNull<u64>) {
    for word in 0..WORDS {
        // SAFETY: within a block of the ring.
        let source = unsafe { from.add(word) };
        // SAFETY: as above, and aligned; the device only reads it.
        let value = unsafe { source.read() };
        // SAFETY: within the half.
        let place = unsafe { to.add(word) };
        // SAFETY: a mapped register, aligned; volatile, so that each store is made once, whole and in order.
        unsafe { place.write_volatile(value) };
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own { offset, .. } => f.debug_tuple("Own").field(offset).finish(),
            Self::Shared(shared) => f.debug_tuple("Shared").field(&shared.offset).finish(),
        }
    }
}
