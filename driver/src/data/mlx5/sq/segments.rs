//! The segments behind a work request's first ones: local memory, windows, packets.

use wqe_format::mlx5::{
    ChecksumFlags, DataSegment, EthSegment, InlineHeader, KlmSegment, MkeyAccess,
    MkeyContextSegment, MkeyMask, QpnMkey, UmrCtrlSegment, UmrFlags,
};
use wqe_format::rxe::Sge;
use zerocopy::byteorder::big_endian::U64;

use super::super::error::PostError;
use super::super::ring::{Cursor, unit, units};
use super::request::{Bind, InlinePiece, Segmentation};
use super::{QueueKind, SendQueue};

/// A window of more bytes is refused: the entry of its layout has 32 bits for the length, and libmlx5 draws the line at 2^31.
const MAX_WINDOW: u64 = 1 << 31;

/// Bytes of the shortest header of a segmented packet (Ethernet's; rdma-core `MLX5_ETH_L2_MIN_HEADER_SIZE`).
const MIN_TSO_HEADER: u16 = 14;

/// Access of windows with libibverbs' numbers, and mlx5's.
pub(super) const ACCESS: [(u32, MkeyAccess); 4] = [
    (1, MkeyAccess::LOCAL_WRITE),
    (1 << 1, MkeyAccess::REMOTE_WRITE),
    (1 << 2, MkeyAccess::REMOTE_READ),
    (1 << 3, MkeyAccess::ATOMIC),
];
/// `IBV_ACCESS_ZERO_BASED`.
const ACCESS_ZERO_BASED: u32 = 1 << 5;

/// The packet's bytes that went into the Ethernet segment: whole pieces, and the first bytes of the next.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Consumed {
    pub(super) pieces: usize,
    pub(super) bytes: usize,
}

impl SendQueue {
    /// Writes a pointer to local memory.
    ///
    /// # Safety
    ///
    /// The cursor is within blocks that are free.
    #[inline(always)]
    pub(super) unsafe fn put_sge(
        &self,
        cursor: &mut Cursor,
        sge: &Sge,
        length: u32,
    ) -> Result<(), PostError> {
        // The device takes an empty one for 2 GiB.
        if length == 0 {
            return Ok(());
        }
        if length >> 31 != 0 {
            return Err(PostError::TooLong);
        }
        let segment = unit(DataSegment::new(sge.addr, length, sge.lkey));
        // SAFETY: the caller's promise.
        unsafe { cursor.put(&self.ring, segment) };
        Ok(())
    }

    /// Copies pieces behind an inline header, which none of it has none.
    ///
    /// # Safety
    ///
    /// The cursor is within blocks that are free, and every piece is readable if their sum is within the limit.
    #[inline(always)]
    pub(super) unsafe fn put_inline<I>(
        &self,
        cursor: &mut Cursor,
        pieces: I,
    ) -> Result<(), PostError>
    where
        I: Iterator<Item = InlinePiece> + Clone,
    {
        // In 64 bits, before anything is read: the sum of what a program says must not come out small.
        let mut sum: u64 = 0;
        for piece in pieces.clone() {
            sum = sum.saturating_add(piece.len as u64);
        }
        if sum > u64::from(self.limits.max_inline) {
            return Err(PostError::InlineTooLong);
        }
        if sum == 0 {
            return Ok(());
        }
        let length = sum as u32;
        let room = InlineHeader::units(length);
        if cursor.ds() + room > self.max_ds {
            return Err(PostError::Length);
        }
        let first = cursor.next();
        let header = self.ring.unit(first).cast::<InlineHeader>();
        // SAFETY: a unit of a free block.
        unsafe { header.write(InlineHeader::of_length(length)) };
        let mut skip = size_of::<InlineHeader>();
        for piece in pieces {
            // SAFETY: the caller's promise; the sum fits into the queue's blocks for one work request.
            unsafe { self.ring.copy_in(first, skip, piece.addr, piece.len) };
            skip += piece.len;
        }
        cursor.skip(room);
        Ok(())
    }

    /// Writes the segments of a bind, or of an invalidation (a bind of type 2 to nothing).
    ///
    /// # Safety
    ///
    /// The cursor is behind the control segment of a work request in free blocks.
    pub(super) unsafe fn put_bind(
        &self,
        cursor: &mut Cursor,
        bind: &Bind,
    ) -> Result<(), PostError> {
        if bind.length > MAX_WINDOW {
            return Err(PostError::WindowTooLong);
        }
        let bound = bind.length != 0;
        if cursor.ds() + if bound { 11 } else { 7 } > self.max_ds {
            return Err(PostError::Length);
        }
        let mut flags = UmrFlags::TRANSLATION_OFFSET.with(UmrFlags::INLINE);
        let mut mask = MkeyMask::FREE.with(MkeyMask::MKEY);
        if !bind.type_1 {
            mask = mask.with(MkeyMask::QPN);
            flags = flags.with(if bound {
                UmrFlags::CHECK_FREE
            } else {
                UmrFlags::CHECK_QPN
            });
        }
        let mut mkey = MkeyContextSegment::ZERO;
        if bound {
            mask = mask
                .with(MkeyMask::LEN)
                .with(MkeyMask::START_ADDR)
                .with(MkeyMask::ACCESS_LOCAL_WRITE)
                .with(MkeyMask::ACCESS_REMOTE_READ)
                .with(MkeyMask::ACCESS_REMOTE_WRITE)
                .with(MkeyMask::ACCESS_ATOMIC);
            for (number, access) in ACCESS {
                if bind.access & number != 0 {
                    mkey.access_flags = mkey.access_flags.with(access);
                }
            }
            if bind.access & ACCESS_ZERO_BASED == 0 {
                mkey.start_addr = U64::new(bind.addr);
            }
            mkey.len = U64::new(bind.length);
        } else {
            mkey.free = MkeyContextSegment::FREE;
        }
        let owner = if bind.type_1 || !bound {
            QpnMkey::ANY_QP
        } else {
            self.qpn
        };
        mkey.qpn_mkey = QpnMkey::of(owner, bind.new_rkey);
        // One entry of the layout is padded to four.
        let octowords = if bound { 4 } else { 0 };
        let control = units::<_, 3>(UmrCtrlSegment::new(flags, octowords, mask));
        // SAFETY: the caller's promise.
        unsafe { cursor.put_all(&self.ring, control) };
        // SAFETY: the caller's promise.
        unsafe { cursor.put_all(&self.ring, units::<_, 4>(mkey)) };
        if bound {
            let entry = unit(KlmSegment::new(bind.addr, bind.length as u32, bind.lkey));
            // SAFETY: the caller's promise.
            unsafe { cursor.put_all(&self.ring, [entry, [0; 2], [0; 2], [0; 2]]) };
        }
        Ok(())
    }

    /// Writes a raw packet's Ethernet segment and the first bytes of the packet into it, if the device wants them there.
    ///
    /// # Safety
    ///
    /// The cursor is behind the control segment of a work request in a free block; the pieces' first bytes are readable, as
    /// many as the device wants.
    pub(super) unsafe fn put_eth<I>(
        &self,
        cursor: &mut Cursor,
        checksums: bool,
        mut pieces: I,
    ) -> Result<Consumed, PostError>
    where
        I: Iterator<Item = InlinePiece>,
    {
        let wanted = self.limits.min_inline_header as usize;
        let mut segment = EthSegment::new(self.checksums(checksums)?, 0, wanted as u16);
        let mut header = [0; EthSegment::INLINE_HEADER_MAX];
        let mut have = 0;
        let mut consumed = Consumed::default();
        while have < wanted {
            let piece = pieces.next().ok_or(PostError::HeadersTooShort)?;
            let taken = piece.len.min(wanted - have);
            let into = header[have..have + taken].as_mut_ptr();
            // SAFETY: the caller's promise; `into` has as many bytes.
            unsafe { std::ptr::copy_nonoverlapping(piece.addr, into, taken) };
            have += taken;
            if taken == piece.len {
                consumed.pieces += 1;
            } else {
                consumed.bytes = taken;
            }
        }
        segment.inline_hdr_start.copy_from_slice(&header[..2]);
        segment.inline_hdr.copy_from_slice(&header[2..]);
        let segment = units::<_, 2>(segment);
        // Both units are written; without a header, the second is the next segment's.
        // SAFETY: the caller's promise: behind the control segment there are three units in its block.
        unsafe { cursor.put_all(&self.ring, segment) };
        if wanted == 0 {
            cursor.back_one();
        }
        Ok(consumed)
    }

    /// Writes a segmented packet's Ethernet segment with its headers.
    ///
    /// # Safety
    ///
    /// The cursor is behind the control segment of a work request in free blocks; the headers are readable, if they
    /// are within the limit.
    pub(super) unsafe fn put_tso(
        &self,
        cursor: &mut Cursor,
        checksums: bool,
        segmentation: &Segmentation,
    ) -> Result<(), PostError> {
        let checksums = self.checksums(checksums)?;
        let length = segmentation.header_len;
        if length < MIN_TSO_HEADER || u32::from(length) > self.limits.max_tso_header {
            return Err(PostError::Segmentation);
        }
        let rest = (usize::from(length) - 2).div_ceil(16) as u32;
        if cursor.ds() + 1 + rest > self.max_ds {
            return Err(PostError::Length);
        }
        let segment = units::<_, 2>(EthSegment::new(checksums, segmentation.mss, length));
        let first = cursor.next();
        // SAFETY: the caller's promise: behind the control segment there are three units in its block.
        unsafe { cursor.put_all(&self.ring, segment) };
        let skip = EthSegment::INLINE_HEADER_OFFSET;
        // SAFETY: readable by the caller's promise; the length was compared with the room.
        unsafe {
            self.ring
                .copy_in(first, skip, segmentation.header, length.into())
        };
        // The two units held the header's first 18 bytes.
        cursor.back_one();
        cursor.skip(rest);
        Ok(())
    }

    #[inline]
    pub(super) fn checksums(&self, asked: bool) -> Result<ChecksumFlags, PostError> {
        if !asked {
            Ok(ChecksumFlags::NONE)
        } else if self.limits.checksums {
            Ok(ChecksumFlags::L3_AND_L4)
        } else {
            Err(PostError::ChecksumsOff)
        }
    }
}

/// [`InlineHeader::units`] of a short length, less one; takes no care for overflow.
#[inline(always)]
pub(super) const fn short_units_beyond_one(length: u32) -> u32 {
    (size_of::<InlineHeader>() as u32 + length - 1) >> 4
}

/// Units of the transport's own segment behind the control segment.
pub(super) const fn transport_units(kind: QueueKind) -> u32 {
    match kind {
        QueueKind::Ud | QueueKind::Dci => 3,
        QueueKind::XrcSend => 1,
        _ => 0,
    }
}
