//! Keys: what memory they lead to, and how memory windows change.

use uverbs_abi::types::{AccessFlags, MwType};

use super::wqe::KeyUpdate;
use crate::core::objects::{Bound, Device};
use crate::mlx5::ucontext::DUMP_FILL_MKEY;
use crate::raw;

/// Where a key leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    /// To the program's memory.
    At(u64),
    /// Nowhere: it reads as zero and swallows writes.
    Nowhere,
}

impl Memory {
    pub(crate) fn read(self, length: usize) -> Option<Vec<u8>> {
        match self {
            Self::At(address) => raw::copy_in(address, length).ok(),
            Self::Nowhere => Some(vec![0; length]),
        }
    }

    pub(crate) fn write(self, bytes: &[u8]) -> Option<()> {
        match self {
            Self::At(address) => raw::copy_out(address, bytes).ok(),
            Self::Nowhere => Some(()),
        }
    }
}

/// A key of the own side: of a memory region.
pub(crate) fn local(
    device: &Device,
    pd: u32,
    key: u32,
    address: u64,
    length: u64,
    need: AccessFlags,
) -> Option<Memory> {
    if key == DUMP_FILL_MKEY {
        return Some(Memory::Nowhere);
    }
    let mr = device.mrs.get(&(key >> 8))?;
    let is_allowed = mr.key == key && mr.valid && mr.pd == pd && mr.access.contains(need);
    let offset = address.checked_sub(mr.iova)?;
    let fits = offset.checked_add(length)? <= mr.length;
    (is_allowed && fits).then(|| Memory::At(mr.start.wrapping_add(offset)))
}

/// A key that the other side sent: of a memory region or a window.
pub(crate) fn remote(
    device: &Device,
    (pd, qpn): (u32, u32),
    key: u32,
    address: u64,
    length: u64,
    need: AccessFlags,
) -> Option<Memory> {
    if device.mrs.contains_key(&(key >> 8)) || key == DUMP_FILL_MKEY {
        return local(device, pd, key, address, length, need);
    }
    let mw = device.mws.get(&(key >> 8)).filter(|mw| mw.key == key)?;
    let bound = mw.bound.as_ref()?;
    let is_owner = mw.mw_type == MwType::TYPE_1 || bound.qp == qpn;
    let start = match bound.access.contains(AccessFlags::ZERO_BASED) {
        true => 0,
        false => bound.addr,
    };
    let offset = address.checked_sub(start)?;
    let fits = offset.checked_add(length)? <= bound.length;
    if mw.pd != pd || !is_owner || !fits || !bound.access.contains(need) {
        return None;
    }
    let mr = device.mrs.get(&bound.mr)?;
    let inner = (bound.addr.checked_sub(mr.iova)?).checked_add(offset)?;
    Some(Memory::At(mr.start.wrapping_add(inner)))
}

/// Invalidates a window of type 2; whether that was allowed.
pub(crate) fn invalidate(device: &mut Device, qpn: u32, key: u32) -> bool {
    let Some(mw) = device.mws.get_mut(&(key >> 8)) else {
        return false;
    };
    if mw.key != key || mw.mw_type != MwType::TYPE_2 {
        return false;
    }
    let Some(bound) = mw.bound.take_if(|bound| bound.qp == qpn) else {
        return false;
    };
    if let Some(mr) = device.mrs.get_mut(&bound.mr) {
        mr.windows -= 1;
    }
    true
}

/// `MLX5_WQE_UMR_CTRL_FLAG_CHECK_FREE`
const CHECK_FREE: u8 = 1 << 5;

/// Binds or frees a window; whether that was allowed.
pub(crate) fn update(device: &mut Device, pd: u32, qpn: u32, update: &KeyUpdate) -> bool {
    bind(device, pd, qpn, update).is_some()
}

fn bind(device: &mut Device, pd: u32, qpn: u32, update: &KeyUpdate) -> Option<()> {
    let number = update.key >> 8;
    let mw = device.mws.get(&number).filter(|mw| mw.pd == pd)?;
    let is_second = mw.mw_type == MwType::TYPE_2;
    // A window that was invalidated from here has 0 in its low byte, and is still named as it was before.
    if is_second && mw.bound.is_some() && mw.key != update.key {
        return None;
    }
    if update.flags & CHECK_FREE != 0 && mw.bound.is_some() {
        return None;
    }
    let bound = if update.is_free {
        if is_second && mw.bound.as_ref().is_some_and(|bound| bound.qp != qpn) {
            return None;
        }
        None
    } else {
        Some(new_binding(device, pd, qpn, update)?)
    };
    let gained = bound.as_ref().map(|bound| bound.mr);
    let mw = device.mws.get_mut(&number)?;
    mw.key = (mw.key & !0xff) | u32::from(update.tag);
    let lost = std::mem::replace(&mut mw.bound, bound).map(|bound| bound.mr);
    if let Some(mr) = lost.and_then(|mr| device.mrs.get_mut(&mr)) {
        mr.windows -= 1;
    }
    if let Some(mr) = gained.and_then(|mr| device.mrs.get_mut(&mr)) {
        mr.windows += 1;
    }
    Some(())
}

fn new_binding(device: &Device, pd: u32, qpn: u32, update: &KeyUpdate) -> Option<Bound> {
    let (key, address) = update.target?;
    // `MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_*`
    let pairs = [
        (1 << 3, AccessFlags::LOCAL_WRITE),
        (1 << 4, AccessFlags::REMOTE_READ),
        (1 << 5, AccessFlags::REMOTE_WRITE),
        (1 << 6, AccessFlags::REMOTE_ATOMIC),
    ];
    let mut access = AccessFlags::NONE;
    for (bit, flag) in pairs {
        if update.access & bit != 0 {
            access |= flag;
        }
    }
    if update.start == 0 && address != 0 {
        access |= AccessFlags::ZERO_BASED;
    }
    let mr = device.mrs.get(&(key >> 8)).filter(|mr| mr.key == key)?;
    let writes = access.0 & (AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC).0 != 0;
    let is_allowed = mr.pd == pd
        && mr.access.contains(AccessFlags::MW_BIND)
        && (!writes || mr.access.contains(AccessFlags::LOCAL_WRITE));
    let offset = address.checked_sub(mr.iova)?;
    let fits = offset.checked_add(update.length)? <= mr.length;
    (is_allowed && fits).then_some(Bound {
        mr: key >> 8,
        qp: qpn,
        addr: address,
        length: update.length,
        access,
    })
}
