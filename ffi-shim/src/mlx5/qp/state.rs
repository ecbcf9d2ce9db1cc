//! What a queue pair is like and what state it is in.

use std::ffi::c_int;

use oxverbs::ffi_core::Errno;
use oxverbs::ffi_core::uverbs_abi::types::QpAttrMask;
#[cfg(feature = "drop-in")]
use oxverbs::ffi_core::uverbs_abi::types::QpState;
use oxverbs::ffi_core::uverbs_abi::udata::mlx5::BurstInfo;
use oxverbs::ffi_core::uverbs_abi::write::qp::ExModifyQp;

use super::{Object, clean, of};
use crate::abi::attr::{ibv_ece, ibv_qp_attr, ibv_qp_init_attr, ibv_qp_rate_limit_attr};
use crate::abi::objects::ibv_qp;
use crate::common::qp::{PLAIN_ATTRIBUTES, attributes, made_with, modification};
use crate::door::control;
#[cfg(feature = "drop-in")]
use crate::mlx5::dv::change::Change;

/// Attributes that libibverbs hands to the plain command, and `IBV_QP_RATE_LIMIT`.
const ATTRIBUTES: u32 = PLAIN_ATTRIBUTES | RATE_LIMIT;
/// `IBV_QP_RATE_LIMIT`.
const RATE_LIMIT: u32 = 1 << 25;

pub(crate) unsafe extern "C" fn modify_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    mask: c_int,
) -> c_int {
    control("modify_qp", || {
        let mask = mask as u32;
        if mask & !ATTRIBUTES != 0 {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        // SAFETY: a queue pair of ours (C1).
        let ours = unsafe { of(qp) };
        // SAFETY: the caller's attributes.
        let attr = unsafe { &*attr };
        let mut object = ours.object();
        let object = match &mut *object {
            Object::Queues(object) => object,
            Object::Spreads(_) => return Err(Errno(libc::EOPNOTSUPP)),
            #[cfg(feature = "drop-in")]
            Object::Target(object) => {
                if mask & RATE_LIMIT != 0 {
                    return Err(Errno(libc::EOPNOTSUPP));
                }
                object.modify(&ExModifyQp {
                    base: modification(object.handle(), attr, mask),
                    ..ExModifyQp::default()
                })?;
                // It has a number from RTR on.
                // SAFETY: a field of the program's object that only this verb writes.
                unsafe { (*qp).qp_num = object.number() };
                return Ok(());
            }
            Object::Opened(object) if mask & RATE_LIMIT == 0 => {
                let command = modification(object.handle(), attr, mask);
                return object.context().uctx().modify_qp(&command);
            }
            Object::Opened(_) => return Err(Errno(libc::EOPNOTSUPP)),
        };
        let command = ExModifyQp {
            base: modification(object.handle(), attr, mask),
            rate_limit: if mask & RATE_LIMIT != 0 {
                attr.rate_limit
            } else {
                0
            },
            ..ExModifyQp::default()
        };
        let change = object.modify(&command)?;
        if change.resets()
            && let Some(key) = object.key()
        {
            // SAFETY: a queue pair of ours.
            unsafe { clean(qp, key) };
        }
        if let Some(send) = &ours.send {
            change.apply_to_send(&mut send.lock().queue);
        }
        if let Some(recv) = &ours.recv {
            change.apply_to_receive(&mut recv.lock());
        }
        #[cfg(feature = "drop-in")]
        if change.to() == Some(QpState::INIT) {
            // SAFETY: the program's object.
            let qp = unsafe { &*qp };
            let uctx = object.context().uctx();
            if ours.drains_signature_errors {
                Change::drains_signature_errors(qp.qp_num).run(uctx, qp)?;
            }
            if ours.copies.is_some_and(|copies| copies.to_enable) {
                Change::copies(qp.qp_num).run(uctx, qp)?;
            }
        }
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn modify_qp_rate_limit(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_rate_limit_attr,
) -> c_int {
    control("modify_qp_rate_limit", || {
        // SAFETY: the caller's attributes.
        let attr = unsafe { &*attr };
        if attr.comp_mask != 0 {
            return Err(Errno(libc::EINVAL));
        }
        let burst = BurstInfo {
            max_burst_sz: attr.max_burst_sz,
            typical_pkt_sz: attr.typical_pkt_sz,
            ..BurstInfo::default()
        };
        // SAFETY: a queue pair of ours (C1).
        match &mut *unsafe { of(qp) }.object() {
            Object::Queues(object) => object.set_rate_limit(attr.rate_limit, burst),
            _ => Err(Errno(libc::EOPNOTSUPP)),
        }
    })
}

/// PCI vendor, which options of a connection name the device's maker by.
const MELLANOX: u32 = 0x15b3;

pub(crate) unsafe extern "C" fn set_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int {
    control("set_ece", || {
        // SAFETY: the caller's attributes.
        let ece = unsafe { &*ece };
        if ece.comp_mask != 0 || ece.vendor_id != MELLANOX {
            return Err(Errno(libc::EINVAL));
        }
        // SAFETY: a queue pair of ours (C1).
        match &mut *unsafe { of(qp) }.object() {
            Object::Queues(object) => object.set_ece(ece.options),
            #[cfg(feature = "drop-in")]
            Object::Target(object) => object.set_ece(ece.options),
            _ => Err(Errno(libc::EOPNOTSUPP)),
        }
    })
}

pub(crate) unsafe extern "C" fn query_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int {
    control("query_ece", || {
        // SAFETY: a queue pair of ours (C1).
        let options = match &*unsafe { of(qp) }.object() {
            Object::Queues(object) => object.ece(),
            #[cfg(feature = "drop-in")]
            Object::Target(object) => object.ece(),
            _ => 0,
        };
        let answer = ibv_ece {
            vendor_id: MELLANOX,
            options,
            comp_mask: 0,
        };
        // SAFETY: the caller's memory.
        unsafe { ece.write(answer) };
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn query_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    mask: c_int,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    control("query_qp", || {
        let mask = mask as u32;
        if mask & !PLAIN_ATTRIBUTES != 0 {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        // SAFETY: a queue pair of ours (C1).
        let base = unsafe { &*qp };
        // SAFETY: as above.
        let ours = unsafe { of(qp) };
        let to = match &*ours.object() {
            Object::Queues(object) => object.query(QpAttrMask(mask))?,
            Object::Spreads(_) => return Err(Errno(libc::EOPNOTSUPP)),
            #[cfg(feature = "drop-in")]
            Object::Target(object) => {
                let uctx = object.context().uctx();
                uctx.query_qp(object.handle(), QpAttrMask(mask))?
            }
            Object::Opened(object) => {
                let uctx = object.context().uctx();
                uctx.query_qp(object.handle(), QpAttrMask(mask))?
            }
        };
        let to = attributes(&to);
        let cap = to.cap;
        // SAFETY: the caller's memory.
        unsafe { attr.write(to) };
        // SAFETY: the caller's memory.
        unsafe { init.write(made_with(base, cap, ours.sq_sig_all)) };
        Ok(())
    })
}
