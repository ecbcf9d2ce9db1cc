//! Configuring memory keys by work requests (`mlx5dv_wr_mkey_configure` and its setters, `mlx5dv_wr_mr_list`,
//! `mlx5dv_wr_mr_interleaved`): the key's access and the memory that it stands for.

use wqe_format::mlx5::{
    DS_UNIT, InlineHeader, KlmSegment, MkeyAccess, MkeyContextSegment, MkeyMask, Opcode, QpnMkey,
    RepeatBlockSegment, RepeatEntrySegment, UmrCtrlSegment, UmrFlags,
};
use wqe_format::rxe::Sge;
use zerocopy::byteorder::big_endian::{U16, U32, U64};

use super::super::error::PostError;
use super::super::record::QueueKind;
use super::super::ring::{Cursor, Unit, unit, units};
use super::SendQueue;
use super::draft::{Draft, state};
use super::operation::Operation;
use super::request::SendFlags;
use super::segments::ACCESS;
use super::signed::{SignatureUpdate, Signed};

/// Entries of a layout come in groups of so many (rdma-core `align(…, 4)` of `klm_octowords`).
const GROUP: u32 = 4;
/// Units of a request before its layout: control, UMR control, key context.
const FIXED: u32 = 1 + 3 + 4;

/// One buffer of a pattern (`struct mlx5dv_mr_interleaved`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PatternPiece {
    /// Address of the first turn's bytes.
    pub addr: u64,
    /// Bytes of each turn.
    pub length: u32,
    /// Bytes between those of two turns.
    pub skip: u32,
    /// Key of the buffer.
    pub lkey: u32,
}

/// The memory that a key stands for.
#[derive(Clone, Copy, Debug)]
pub enum KeyLayout<'a> {
    /// Buffers, one behind the other.
    List(&'a [Sge]),
    /// Pieces of buffers in turn, so many times.
    Pattern {
        /// Turns.
        repeat: u32,
        /// The pieces of one turn.
        pieces: &'a [PatternPiece],
    },
}

impl KeyLayout<'_> {
    fn units(&self) -> usize {
        match self {
            Self::List(list) => list.len(),
            Self::Pattern { pieces, .. } => pieces.len().saturating_add(1),
        }
    }
}

/// What becomes of a key. Its low byte may change: it is the one in `key`.
#[derive(Clone, Copy, Debug)]
pub struct KeyUpdate<'a> {
    /// The key.
    pub key: u32,
    /// Entries that the key was made for (`max_entries`).
    pub entries: u32,
    /// Its access from now on, as libibverbs' flags.
    pub access: Option<u32>,
    /// Its memory from now on.
    pub layout: Option<KeyLayout<'a>>,
    /// Its signatures, of a key that has some.
    pub signature: Option<SignatureUpdate<'a>>,
}

impl SendQueue {
    /// Puts the configuration of a memory key into the batch. What follows has a small fence, so that it may use the key.
    /// Of a key with signatures it may be up to three work requests, the last of which completes.
    ///
    /// Unlike libmlx5, which cuts the bytes of a pattern's piece and its stride to 16 bits and sums a list's in 31, this
    /// refuses the former and counts the latter right.
    ///
    /// # Errors
    ///
    /// Not on a reliable connection, without [`SendFlags::INLINE`] (the layout is in the work request), unknown access, a
    /// layout longer than the key or the queue was made for; a rule of signatures that cannot be
    /// ([`PostError::KeySignature`]).
    pub fn configure_key(
        &self,
        draft: &mut Draft,
        wr_id: u64,
        flags: SendFlags,
        update: &KeyUpdate<'_>,
    ) -> Result<(), PostError> {
        // SAFETY: no headers are read.
        unsafe { self.open(draft, wr_id, flags, &Operation::Nop) }?;
        let put = self.put_key(draft, flags, update);
        let (cursor, signed) = put.map_err(|error| draft.fail(error))?;
        self.make_change(draft, wr_id, Opcode::UMR, &cursor, state::INLINE);
        match signed {
            Some(signed) => self.end_signed(draft, wr_id, flags, signed),
            None => Ok(()),
        }
    }

    fn put_key<'a>(
        &self,
        draft: &Draft,
        flags: SendFlags,
        update: &KeyUpdate<'a>,
    ) -> Result<(Cursor, Option<Signed<'a>>), PostError> {
        if self.kind != QueueKind::Rc {
            return Err(PostError::Opcode);
        }
        if !flags.contains(SendFlags::INLINE) {
            return Err(PostError::KeyElsewhere);
        }
        let mut mask = MkeyMask::FREE.with(MkeyMask::MKEY);
        let mut mkey = MkeyContextSegment::ZERO;
        mkey.qpn_mkey = QpnMkey::of(QpnMkey::ANY_QP, update.key);
        if let Some(asked) = update.access {
            mkey.access_flags = access(asked)?;
            mask = mask
                .with(MkeyMask::ACCESS_LOCAL_WRITE)
                .with(MkeyMask::ACCESS_REMOTE_READ)
                .with(MkeyMask::ACCESS_REMOTE_WRITE)
                .with(MkeyMask::ACCESS_ATOMIC);
        }
        let (mut octowords, mut bytes) = (0, None);
        if let Some(layout) = &update.layout {
            octowords = self.room(update, layout)?;
            let whole = length(layout)?;
            mkey.len = U64::new(whole);
            mask = mask.with(MkeyMask::LEN);
            bytes = Some(whole);
        }
        let mut format_units = 0;
        let mut signed = None;
        if let Some(signature) = &update.signature {
            let update = Signed::begin(signature, bytes, octowords, self.limits.max_inline)?;
            format_units = update.units();
            mask = update.mark(mask, &mut mkey);
            signed = Some(update);
        }
        let ds = FIXED + octowords + format_units;
        if ds > self.max_ds {
            return Err(PostError::Length);
        }
        let mut cursor = Cursor::behind_ctrl(draft.blocks());
        let mut control = UmrCtrlSegment::new(UmrFlags::INLINE, octowords as u16, mask);
        control.bsf_octowords = U16::new(format_units as u16);
        // SAFETY: free blocks: the whole was compared with a work request's.
        unsafe { cursor.put_all(&self.ring, units::<_, 3>(control)) };
        // SAFETY: as above.
        unsafe { cursor.put_all(&self.ring, units::<_, 4>(mkey)) };
        if let Some(layout) = &update.layout {
            // SAFETY: as above.
            unsafe { self.put_layout(&mut cursor, layout) };
        }
        while cursor.ds() < FIXED + octowords {
            // SAFETY: as above.
            unsafe { cursor.put(&self.ring, [0; 2]) };
        }
        if let Some(format) = signed.as_ref().and_then(Signed::format) {
            // SAFETY: as above.
            unsafe { cursor.put_all(&self.ring, units::<_, 4>(format)) };
        }
        // SAFETY: the last four bytes of the control segment of a free block.
        let imm = unsafe { self.ring.block(draft.blocks()).cast::<U32>().add(3) };
        // SAFETY: as above; of one byte's alignment.
        unsafe { imm.write(U32::new(update.key)) };
        Ok((cursor, signed))
    }

    /// The units of a layout with its padding, if they have room in the key and in the queue pair's inline data.
    fn room(&self, update: &KeyUpdate<'_>, layout: &KeyLayout<'_>) -> Result<u32, PostError> {
        let head = matches!(layout, KeyLayout::Pattern { .. }) as usize;
        let entries = layout.units() - head;
        let inline = self.limits.max_inline as usize + size_of::<InlineHeader>();
        let room = (inline / DS_UNIT).saturating_sub(head);
        if entries > room.min(update.entries as usize) {
            return Err(PostError::TooManySges);
        }
        Ok((layout.units() as u32).next_multiple_of(GROUP))
    }

    /// # Safety
    ///
    /// The cursor is within blocks that are free, and there is room.
    unsafe fn put_layout(&self, cursor: &mut Cursor, layout: &KeyLayout<'_>) {
        let mut put = |unit: Unit| {
            // SAFETY: the caller's promise.
            unsafe { cursor.put(&self.ring, unit) };
        };
        match *layout {
            KeyLayout::List(list) => {
                for sge in list {
                    put(unit(KlmSegment::new(sge.addr, sge.length, sge.lkey)));
                }
            }
            KeyLayout::Pattern { repeat, pieces } => {
                let turn: u32 = pieces.iter().map(|piece| piece.length).sum();
                let [head] =
                    units::<_, 1>(RepeatBlockSegment::new(turn, repeat, pieces.len() as u16));
                put(head);
                for piece in pieces {
                    let [entry] = units::<_, 1>(RepeatEntrySegment::new(
                        piece.addr,
                        piece.length as u16,
                        (piece.length + piece.skip) as u16,
                        piece.lkey,
                    ));
                    put(entry);
                }
            }
        }
    }
}

/// mlx5's access flags.
fn access(asked: u32) -> Result<MkeyAccess, PostError> {
    let mut known = 0;
    let mut access = MkeyAccess::NONE;
    for (number, granted) in ACCESS {
        known |= number;
        if asked & number != 0 {
            access = access.with(granted);
        }
    }
    if asked & !known != 0 {
        return Err(PostError::KeyAccess);
    }
    Ok(access)
}

/// Bytes that a layout stands for. The counts of a pattern's pieces have 16 bits in the work request.
fn length(layout: &KeyLayout<'_>) -> Result<u64, PostError> {
    match *layout {
        KeyLayout::List(list) => Ok(list.iter().map(|sge| u64::from(sge.length)).sum()),
        KeyLayout::Pattern { repeat, pieces } => {
            let mut turn = 0;
            for piece in pieces {
                let stride = piece.length.checked_add(piece.skip);
                if stride.is_none_or(|stride| stride > u16::MAX.into()) {
                    return Err(PostError::TooLong);
                }
                turn += u64::from(piece.length);
            }
            Ok(turn * u64::from(repeat))
        }
    }
}
