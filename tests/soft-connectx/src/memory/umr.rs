//! Work requests that change keys: registration by the kernel, binding of windows, invalidation.

use wqe_format::mlx5::firmware::bits;
use wqe_format::mlx5::request::{Segment, SendRequest, Service};
use wqe_format::mlx5::{MkeyContextSegment, UmrCtrlSegment, UmrFlags};
use zerocopy::IntoBytes;

use super::signature::Format;
use super::{Right, Who};
use crate::device::Device;
use crate::resources::Mkey;

/// Who changes a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Editor {
    pub(crate) who: Who,
    /// The kernel's own queue pair (`REG_UMR`), which may change keys of every domain.
    pub(crate) privileged: bool,
}

/// Why a key wasn't changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The request makes no sense.
    Malformed,
    /// The list of its translation can't be read.
    List,
    /// The key is not what the request says.
    Key,
}

/// Parts of a key in `mkey_mask`, and the bits of the key's context: first bit and width, as `mlx5_ifc.h` counts in `mkc`
/// (the numbers of the mask are `MLX5_MKEY_MASK_*` of Linux include/linux/mlx5/device.h).
const PARTS: &[(u32, usize, usize)] = &[
    (0, 0x60, 1),     // LEN: length64
    (0, 0xc0, 0x40),  // LEN: len
    (1, 0x1db, 5),    // PAGE_SIZE: log_page_size
    (6, 0x80, 0x40),  // START_ADDR
    (7, 0x68, 0x18),  // PD
    (8, 0x67, 1),     // EN_RINVAL
    (9, 0x65, 1),     // SIG_ERR: expected_sigerr_count
    (12, 0x61, 1),    // BSF_EN
    (13, 0x38, 8),    // KEY: mkey_7_0
    (14, 0x20, 0x18), // QPN
    (17, 0x15, 1),    // LR
    (18, 0x14, 1),    // LW
    (19, 0x13, 1),    // RR
    (20, 0x12, 1),    // RW
    (21, 0x11, 1),    // A
    (29, 0x1, 1),     // FREE
    (42, 0x1da, 1),   // PAGE_SIZE_5: the upper bit of log_page_size
];

/// The queue pair of a key that is bound to none (`mkc.qpn`).
const ANY_QPN: u32 = 0xff_ffff;

/// Octowords up to which translations are padded (`MLX5_UMR_FLEX_ALIGNMENT` of device.h: 64 bytes).
const PADDING: usize = 4;

/// Does what the request says.
pub(crate) fn update(
    device: &mut Device,
    editor: Editor,
    request: &SendRequest<'_>,
) -> Result<(), Refusal> {
    let mut segments = request.segments(Service::Connected);
    let (Some(Segment::UmrCtrl(ctrl)), Some(Segment::MkeyContext(context))) =
        (segments.next(), segments.next())
    else {
        return Err(Refusal::Malformed);
    };
    let key = request.ctrl().imm.get();
    check_key(device, editor, key, &ctrl)?;
    let list = list(device, editor, request, &ctrl)?;
    let format = format(device, editor, request)?;
    let mkey = device
        .resources
        .mkeys
        .get_mut(key >> 8)
        .ok_or(Refusal::Key)?;
    apply(mkey, &ctrl, &context, &list)?;
    if format.is_some() {
        mkey.format = format;
    }
    Ok(())
}

/// The format of signatures that the request brings. Their states belong to who asks.
fn format(
    device: &Device,
    editor: Editor,
    request: &SendRequest<'_>,
) -> Result<Option<Format>, Refusal> {
    let mut segments = request.segments(Service::Connected);
    let found = segments.find_map(|segment| match segment {
        Segment::Bsf(segment) => Some(segment),
        _ => None,
    });
    let Some(segment) = found else {
        return Ok(None);
    };
    let format = Format::of(&segment).ok_or(Refusal::Malformed)?;
    let psvs = &device.resources.psvs;
    let is_own = |number| psvs.get(number).is_some_and(|psv| psv.pd == editor.who.pd);
    if format.states().all(is_own) {
        Ok(Some(format))
    } else {
        Err(Refusal::Malformed)
    }
}

fn check_key(
    device: &Device,
    editor: Editor,
    key: u32,
    ctrl: &UmrCtrlSegment,
) -> Result<(), Refusal> {
    let mkey = device.resources.mkeys.get(key >> 8).ok_or(Refusal::Key)?;
    // The request names the key's index only: the kernel's registration says the new low byte, which the key does not have yet
    // (`IB_WR_REG_MR` of Linux mlx5/wr.c), and programs the one of before, which invalidating it took away (libmlx5).
    let is_owner = editor.privileged || mkey.pd == editor.who.pd;
    let flags = ctrl.flags;
    let is_refused = !mkey.umr_enabled
        || !is_owner
        || flags.contains(UmrFlags::CHECK_FREE) && !mkey.free
        || flags.contains(UmrFlags::CHECK_NOT_FREE) && mkey.free
        || flags.contains(UmrFlags::CHECK_QPN) && ![ANY_QPN, editor.who.qpn].contains(&mkey.qpn);
    if is_refused {
        Err(Refusal::Key)
    } else {
        Ok(())
    }
}

/// The translation that the request brings or points to.
fn list(
    device: &Device,
    editor: Editor,
    request: &SendRequest<'_>,
    ctrl: &UmrCtrlSegment,
) -> Result<Vec<u8>, Refusal> {
    let octowords = usize::from(ctrl.klm_octowords.get());
    let behind = size_of::<UmrCtrlSegment>() + size_of::<MkeyContextSegment>();
    let rest = request.body().get(behind..).ok_or(Refusal::Malformed)?;
    if octowords == 0 {
        return Ok(Vec::new());
    }
    if ctrl.flags.contains(UmrFlags::INLINE) {
        let list = rest.get(..octowords * 16).ok_or(Refusal::Malformed)?;
        return Ok(list.to_vec());
    }
    let mut list = Vec::new();
    let mut who = editor.who;
    for segment in request.segments(Service::Connected).skip(2) {
        let Segment::Data(data) = segment else {
            return Err(Refusal::Malformed);
        };
        let mut part = vec![0; data.byte_count.get() as usize & 0xf_ffff];
        let from = (data.lkey.get(), data.addr.get());
        // The kernel's queue pair for this has no domain, and its lists are in a key of one.
        if editor.privileged
            && let Some(source) = device.resources.mkeys.get(from.0 >> 8)
        {
            who.pd = source.pd;
        }
        super::read(device, &who, from, Right::LocalRead, &mut part).map_err(|fault| {
            log::debug!("the list at {from:x?} can't be read by {who:x?}: {fault:?}");
            Refusal::List
        })?;
        list.extend(part);
    }
    if list.len() > octowords * 16 {
        list.truncate(octowords * 16);
    }
    Ok(list)
}

fn apply(
    mkey: &mut Mkey,
    ctrl: &UmrCtrlSegment,
    context: &MkeyContextSegment,
    list: &[u8],
) -> Result<(), Refusal> {
    let start = if ctrl.flags.contains(UmrFlags::TRANSLATION_OFFSET) {
        // Its upper 32 bits are in the first reserved ones (`xlt_offset_47_16` of Linux include/linux/mlx5/qp.h).
        let [a, b, c, d, ..] = ctrl.reserved_16;
        let upper = u32::from_be_bytes([a, b, c, d]);
        usize::try_from(u64::from(upper) << 16 | u64::from(ctrl.bsf_octowords.get()))
            .ok()
            .and_then(|octowords| octowords.checked_mul(16))
            .ok_or(Refusal::Malformed)?
    } else {
        0
    };
    if !list.is_empty() {
        let size = bits::get(&mkey.context, 0x1a0, 0x20) as usize;
        let room = size.next_multiple_of(PADDING).saturating_mul(16);
        let end = start.checked_add(list.len()).filter(|end| *end <= room);
        let end = end.ok_or(Refusal::Key)?;
        if mkey.translation.len() < end {
            mkey.translation.resize(end, 0);
        }
        mkey.translation[start..end].copy_from_slice(list);
    }
    let mask = ctrl.mkey_mask.0.get();
    for (part, offset, width) in PARTS {
        if mask >> part & 1 != 0 {
            let value = bits::get(context.as_bytes(), *offset, *width);
            bits::set(&mut mkey.context, *offset, *width, value);
        }
    }
    mkey.load();
    Ok(())
}

/// `SEND` with invalidation arrived: the key, a window or one that allows it, becomes free.
pub(crate) fn invalidate(device: &mut Device, who: &Who, key: u32) -> Result<(), Refusal> {
    let mkey = device
        .resources
        .mkeys
        .get_mut(key >> 8)
        .ok_or(Refusal::Key)?;
    let is_anyone = [ANY_QPN, who.qpn].contains(&mkey.qpn);
    let is_allowed = mkey.variant == key as u8
        && mkey.remote_invalidate
        && mkey.pd == who.pd
        && is_anyone
        && !mkey.free;
    if !is_allowed {
        return Err(Refusal::Key);
    }
    bits::set(&mut mkey.context, 1, 1, 1);
    mkey.load();
    Ok(())
}
