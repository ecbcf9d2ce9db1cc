//! Configuring keys by work requests.

use std::ffi::c_void;
use std::sync::Arc;

use oxverbs::ffi_core::mlx5::{
    KeyLayout, KeySignature, KeyUpdate, PatternPiece, PostError, SendFlags, SignatureUpdate,
};
use oxverbs::ffi_core::wqe_format::mlx5::SignatureRule;
use oxverbs::ffi_core::wqe_format::rxe::Sge;

use super::Send;
use super::dv::{held, qp_of};
use crate::abi::dv::{mlx5dv_mkey, mlx5dv_mkey_conf_attr, mlx5dv_mr_interleaved, mlx5dv_qp_ex};
use crate::abi::protection::mlx5dv_sig_block_attr;
use crate::abi::work::ibv_sge;
use crate::common::{as_sges, slice};
use crate::mlx5::dv::mkey::{entries_of, signature_of};
use crate::mlx5::dv::signature;

/// A key that is being configured: it is put into the batch with its last setter.
#[derive(Debug, Default)]
pub(super) struct PendingKey {
    open: bool,
    key: u32,
    entries: u32,
    wr_id: u64,
    flags: u32,
    /// Setters to come.
    left: u8,
    access: Option<u32>,
    layout: Layout,
    /// Of a key that has some.
    signature: Option<Arc<KeySignature>>,
    /// Whether their rule so far ends here, and the one that there is from now on.
    reset: bool,
    rule: Option<SignatureRule>,
    /// Kept for the next one, as `pieces` is.
    list: Vec<Sge>,
    pieces: Vec<PatternPiece>,
}

#[derive(Clone, Copy, Debug, Default)]
enum Layout {
    #[default]
    Same,
    List,
    Pattern(u32),
}

/// Begins the configuration of a key.
///
/// # Safety
///
/// As for [`held`]; `mkey` is one of ours.
unsafe fn begin_key(view: *mut mlx5dv_qp_ex, mkey: *mut mlx5dv_mkey, setters: u8, reset: bool) {
    // SAFETY: the caller's promise.
    let Some(Send { draft, key, .. }) = (unsafe { held(view) }) else {
        return;
    };
    if mkey.is_null() {
        return draft.refuse(PostError::Incomplete);
    }
    let qp = qp_of(view);
    key.open = true;
    // SAFETY: the caller's promise.
    key.key = unsafe { (*mkey).lkey };
    // SAFETY: as above.
    key.entries = unsafe { entries_of(mkey) };
    // SAFETY: a field of a live object, written by this thread.
    key.wr_id = unsafe { (*qp).wr_id };
    // SAFETY: as above.
    key.flags = unsafe { (*qp).wr_flags };
    key.left = setters;
    key.access = None;
    key.layout = Layout::Same;
    // SAFETY: as above.
    key.signature = unsafe { signature_of(mkey) };
    key.reset = reset;
    key.rule = None;
    if setters == 0 {
        // SAFETY: the caller's promise.
        unsafe { set(view, |_| {}) };
    }
}

/// Takes one setter, and puts the work request into the batch with the last.
///
/// # Safety
///
/// As for [`held`].
unsafe fn set(view: *mut mlx5dv_qp_ex, change: impl FnOnce(&mut PendingKey)) {
    // SAFETY: the caller's promise.
    let Some(Send { queue, draft, key }) = (unsafe { held(view) }) else {
        return;
    };
    if !key.open {
        return draft.refuse(PostError::Incomplete);
    }
    change(key);
    key.left = key.left.saturating_sub(1);
    if key.left != 0 {
        return;
    }
    key.open = false;
    let update = KeyUpdate {
        key: key.key,
        entries: key.entries,
        access: key.access,
        layout: match key.layout {
            Layout::Same => None,
            Layout::List => Some(KeyLayout::List(&key.list)),
            Layout::Pattern(repeat) => Some(KeyLayout::Pattern {
                repeat,
                pieces: &key.pieces,
            }),
        },
        signature: key.signature.as_deref().map(|of| SignatureUpdate {
            key: of,
            reset: key.reset,
            rule: key.rule.as_ref(),
        }),
    };
    let _ = queue.configure_key(draft, key.wr_id, SendFlags(key.flags), &update);
}

/// `MLX5DV_MKEY_CONF_FLAG_RESET_SIG_ATTR`.
const RESET_SIG_ATTR: u32 = 1;

pub(super) unsafe extern "C" fn wr_mkey_configure(
    view: *mut mlx5dv_qp_ex,
    mkey: *mut mlx5dv_mkey,
    setters: u8,
    conf: *const mlx5dv_mkey_conf_attr,
) {
    // SAFETY: null or the caller's attributes.
    let flags = unsafe { conf.as_ref() }.filter(|conf| conf.comp_mask == 0);
    let flags = flags.map(|conf| conf.conf_flags);
    let Some(flags @ (0 | RESET_SIG_ATTR)) = flags else {
        // SAFETY: between start and complete (C1).
        return unsafe { refuse(view, PostError::KeyOption) };
    };
    // SAFETY: as above; the caller's key.
    unsafe { begin_key(view, mkey, setters, flags == RESET_SIG_ATTR) };
}

/// # Safety
///
/// As for [`held`].
unsafe fn refuse(view: *mut mlx5dv_qp_ex, error: PostError) {
    // SAFETY: the caller's promise.
    if let Some(Send { draft, .. }) = unsafe { held(view) } {
        draft.refuse(error);
    }
}

pub(super) unsafe extern "C" fn wr_set_mkey_access_flags(view: *mut mlx5dv_qp_ex, access: u32) {
    // SAFETY: between start and complete (C1).
    unsafe { set(view, |key| key.access = Some(access)) };
}

pub(super) unsafe extern "C" fn wr_set_mkey_layout_list(
    view: *mut mlx5dv_qp_ex,
    count: u16,
    list: *const ibv_sge,
) {
    // SAFETY: `count` elements by the verb's contract.
    let list = as_sges(unsafe { slice(list, count.into()) });
    let change = |key: &mut PendingKey| {
        key.list.clear();
        key.list.extend_from_slice(list);
        key.layout = Layout::List;
    };
    // SAFETY: between start and complete (C1).
    unsafe { set(view, change) };
}

pub(super) unsafe extern "C" fn wr_set_mkey_layout_interleaved(
    view: *mut mlx5dv_qp_ex,
    repeat: u32,
    count: u16,
    list: *const mlx5dv_mr_interleaved,
) {
    // SAFETY: `count` elements by the verb's contract.
    let list = unsafe { slice(list, count.into()) };
    let change = |key: &mut PendingKey| {
        key.pieces.clear();
        key.pieces.extend(list.iter().map(|piece| PatternPiece {
            addr: piece.addr,
            length: piece.bytes_count,
            skip: piece.bytes_skip,
            lkey: piece.lkey,
        }));
        key.layout = Layout::Pattern(repeat);
    };
    // SAFETY: between start and complete (C1).
    unsafe { set(view, change) };
}

/// What is done about signatures from now on: once in a configuration, of a key with such.
pub(super) unsafe extern "C" fn wr_set_mkey_sig_block(
    view: *mut mlx5dv_qp_ex,
    attr: *const mlx5dv_sig_block_attr,
) {
    // SAFETY: between start and complete (C1).
    let Some(Send { key, .. }) = (unsafe { held(view) }) else {
        return;
    };
    let takes = key.open && key.signature.is_some() && key.rule.is_none();
    // SAFETY: the caller's attributes.
    let Some(rule) = (unsafe { signature::rule(attr) }).filter(|_| takes) else {
        // SAFETY: as above.
        return unsafe { refuse(view, PostError::KeySignature) };
    };
    // SAFETY: as above.
    unsafe { set(view, |key| key.rule = Some(rule)) };
}

/// Keys are not made for encryption.
pub(super) unsafe extern "C" fn wr_set_mkey_crypto(view: *mut mlx5dv_qp_ex, _: *const c_void) {
    // SAFETY: between start and complete (C1).
    unsafe { refuse(view, PostError::Opcode) };
}

pub(super) unsafe extern "C" fn wr_mr_list(
    view: *mut mlx5dv_qp_ex,
    mkey: *mut mlx5dv_mkey,
    access: u32,
    count: u16,
    list: *const ibv_sge,
) {
    // SAFETY: between start and complete (C1), with the caller's key and list.
    unsafe { begin_key(view, mkey, 2, false) };
    // SAFETY: as above.
    unsafe { wr_set_mkey_access_flags(view, access) };
    // SAFETY: as above.
    unsafe { wr_set_mkey_layout_list(view, count, list) };
}

pub(super) unsafe extern "C" fn wr_mr_interleaved(
    view: *mut mlx5dv_qp_ex,
    mkey: *mut mlx5dv_mkey,
    access: u32,
    repeat: u32,
    count: u16,
    list: *const mlx5dv_mr_interleaved,
) {
    // SAFETY: between start and complete (C1), with the caller's key and list.
    unsafe { begin_key(view, mkey, 2, false) };
    // SAFETY: as above.
    unsafe { wr_set_mkey_access_flags(view, access) };
    // SAFETY: as above.
    unsafe { wr_set_mkey_layout_interleaved(view, repeat, count, list) };
}
