//! Configuring keys with signatures (`mlx5dv_wr_set_mkey_sig_block`): what the configuration says besides, and the work
//! requests behind it that set the states of the computation.

use std::sync::MutexGuard;

use wqe_format::mlx5::{
    BsfSegment, CtrlFlags, DS_UNIT, InlineHeader, MkeyContextSegment, MkeyMask, Opcode,
    SetPsvSegment, SignatureRule,
};
use zerocopy::byteorder::big_endian::U32;

use super::super::error::PostError;
use super::super::protection::{KeySignature, State};
use super::super::record::WorkKind;
use super::super::ring::{Cursor, unit};
use super::SendQueue;
use super::draft::{Draft, state};
use super::operation::Operation;
use super::request::SendFlags;

/// 16-byte units of a format.
const FORMAT: u32 = (size_of::<BsfSegment>() / DS_UNIT) as u32;

/// What becomes of a key's signatures.
#[derive(Clone, Copy, Debug)]
pub struct SignatureUpdate<'a> {
    /// The key's.
    pub key: &'a KeySignature,
    /// Whether the rule so far ends here (`MLX5DV_MKEY_CONF_FLAG_RESET_SIG_ATTR`).
    pub reset: bool,
    /// The rule from now on.
    pub rule: Option<&'a SignatureRule>,
}

/// An update that is being written. The key stays as it was until [`end_signed`](SendQueue::end_signed).
#[derive(Debug)]
pub(super) struct Signed<'a> {
    key: &'a KeySignature,
    state: MutexGuard<'a, State>,
    /// The rule as it will be.
    rule: Option<SignatureRule>,
    length: u64,
    /// Of a rule that is new.
    format: Option<BsfSegment>,
}

impl<'a> Signed<'a> {
    /// `length` is that of the key's memory, if the layout changes; its units are `octowords`, and a queue pair has
    /// `max_inline` bytes for them and the format.
    pub(super) fn begin(
        update: &SignatureUpdate<'a>,
        length: Option<u64>,
        octowords: u32,
        max_inline: u32,
    ) -> Result<Self, PostError> {
        let state = update.key.state();
        let before = if update.reset { None } else { state.rule };
        let length = length.unwrap_or(state.length);
        let mut format = None;
        if let Some(rule) = update.rule {
            let room = max_inline as usize + size_of::<InlineHeader>();
            if (octowords + FORMAT) as usize * DS_UNIT > room {
                return Err(PostError::InlineTooLong);
            }
            // A format counts its data in 32 bits.
            if length > u32::MAX.into() {
                return Err(PostError::KeySignature);
            }
            let (memory, wire) = update.key.psvs();
            format = Some(BsfSegment::of(rule, memory, wire).ok_or(PostError::KeySignature)?);
        }
        Ok(Self {
            key: update.key,
            state,
            rule: update.rule.copied().or(before),
            length,
            format,
        })
    }

    /// The units of the format, if the work request has one.
    pub(super) fn units(&self) -> u32 {
        self.format.map_or(0, |_| FORMAT)
    }

    /// The format, if the work request has one.
    pub(super) fn format(&self) -> Option<BsfSegment> {
        self.format
    }

    /// Says in the key's new context what changes; `mask` is what changes besides.
    pub(super) fn mark(&self, mask: MkeyMask, context: &mut MkeyContextSegment) -> MkeyMask {
        let mut mask = mask;
        let mut flags = 0;
        if self.format.is_some() {
            flags |= MkeyContextSegment::BSF_ENABLE;
        }
        if self.format.is_some() || self.rule.is_none() {
            mask = mask.with(MkeyMask::BSF_ENABLE);
        }
        if self.state.to_tell {
            flags |= self.state.count() << MkeyContextSegment::SIG_ERR_COUNT_SHIFT;
            mask = mask.with(MkeyMask::SIG_ERR);
        }
        context.flags_pd = U32::new(flags);
        mask
    }

    /// Whether the states are set behind the configuration: of a new rule, and after an error.
    fn sets_states(&self) -> bool {
        self.format.is_some() || self.state.to_tell && self.rule.is_some()
    }
}

impl SendQueue {
    /// Ends the configuration: the states' first values follow, and the last of them completes instead of the configuration.
    pub(super) fn end_signed(
        &self,
        draft: &mut Draft,
        wr_id: u64,
        flags: SendFlags,
        mut signed: Signed<'_>,
    ) -> Result<(), PostError> {
        if let Some(rule) = signed.rule
            && signed.sets_states()
        {
            self.complete_later(draft);
            let (memory, wire) = signed.key.psvs();
            if let Some(domain) = rule.memory {
                let flags = match rule.wire {
                    Some(_) => SendFlags(flags.0 & !SendFlags::SIGNALED.0),
                    None => flags,
                };
                self.set_state(draft, wr_id, flags, (memory, domain.transient()))?;
            }
            if let Some(domain) = rule.wire {
                self.set_state(draft, wr_id, flags, (wire, domain.transient()))?;
            }
        }
        signed.state.rule = signed.rule;
        signed.state.length = signed.length;
        signed.state.to_tell = false;
        Ok(())
    }

    /// The open work request makes no completion.
    fn complete_later(&self, draft: &Draft) {
        // SAFETY: the twelfth byte of a control segment.
        let flags = unsafe { self.ring.block(draft.blocks()).cast::<u8>().add(11) };
        // SAFETY: as above, of a block that is free.
        let asked = unsafe { flags.read() };
        // SAFETY: as above.
        unsafe { flags.write(asked & !CtrlFlags::CQ_UPDATE.0) };
    }

    /// One request that sets a state.
    fn set_state(
        &self,
        draft: &mut Draft,
        wr_id: u64,
        flags: SendFlags,
        (psv, value): (u32, u64),
    ) -> Result<(), PostError> {
        // SAFETY: no headers are read.
        unsafe { self.open(draft, wr_id, flags, &Operation::Nop) }?;
        let mut cursor = Cursor::behind_ctrl(draft.blocks());
        // SAFETY: the second unit of a free block.
        unsafe { cursor.put(&self.ring, unit(SetPsvSegment::new(psv, value))) };
        self.make_change(draft, wr_id, Opcode::SET_PSV, &cursor, 0);
        Ok(())
    }

    /// Makes what was begun as a NOP a change of keys, which the next one waits for.
    pub(super) fn make_change(
        &self,
        draft: &mut Draft,
        wr_id: u64,
        opcode: Opcode,
        cursor: &Cursor,
        more: u32,
    ) {
        self.remember(draft.blocks(), wr_id, draft.head, opcode.0, WorkKind::Mkey);
        // SAFETY: the fourth byte of a control segment.
        let place = unsafe { self.ring.block(draft.blocks()).cast::<u8>().add(3) };
        // SAFETY: as above, in a free block.
        unsafe { place.write(opcode.0) };
        draft.state = draft.state & state::NEEDS_SIGNATURE | state::FENCE_NEXT | more;
        draft.stop = draft.head;
        draft.set_ds(cursor.ds());
        self.write_ds(draft);
    }
}
