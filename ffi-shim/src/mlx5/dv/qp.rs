//! Making queue pairs, completion queues and work queues with what only mlx5 has.

use oxverbs::ffi_core::Errno;
use oxverbs::ffi_core::mlx5_control::wq::Striding;
use oxverbs::ffi_core::uverbs_abi::udata::mlx5::CqeCompFormat;

use super::ours;
use crate::abi::attr::{ibv_cq_init_attr_ex, ibv_qp_init_attr_ex};
use crate::abi::dv::{mlx5dv_cq_init_attr, mlx5dv_qp_ex, mlx5dv_qp_init_attr, mlx5dv_wq_init_attr};
use crate::abi::objects::{ibv_context, ibv_cq, ibv_cq_ex, ibv_qp, ibv_qp_ex};
use crate::abi::wq::{ibv_wq, ibv_wq_init_attr};
use crate::door::control;
use crate::library::library;
use crate::mlx5::qp::dv as qp_dv;
use crate::mlx5::{cq, wq};

#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_create_qp(
    context: *mut ibv_context,
    init: *mut ibv_qp_init_attr_ex,
    dv: *mut mlx5dv_qp_init_attr,
) -> *mut ibv_qp {
    control("mlx5dv_create_qp", || {
        // SAFETY: an open context by the verb's contract.
        unsafe { ours(context) }?;
        // SAFETY: the caller's arguments.
        unsafe { qp_dv::create_dv(context, init, dv) }.map(<*mut _>::cast)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_qp_ex_from_ibv_qp_ex(qp: *mut ibv_qp_ex) -> *mut mlx5dv_qp_ex {
    // SAFETY: a queue pair of ours by the verb's contract.
    unsafe { qp_dv::view(qp) }
}

/// `enum mlx5dv_cq_init_attr_mask`.
const CQ_COMPRESSED: u64 = 1;
const CQ_FLAGS: u64 = 1 << 1;
const CQ_ENTRY_SIZE: u64 = 1 << 2;
/// `MLX5DV_CQ_INIT_ATTR_FLAGS_CQE_PAD`.
const CQ_PAD: u32 = 1;

#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_create_cq(
    context: *mut ibv_context,
    init: *mut ibv_cq_init_attr_ex,
    dv: *mut mlx5dv_cq_init_attr,
) -> *mut ibv_cq_ex {
    control("mlx5dv_create_cq", || {
        // SAFETY: an open context by the verb's contract.
        unsafe { ours(context) }?;
        // SAFETY: null or the caller's attributes.
        let dv = unsafe { dv.as_ref() };
        let mask = dv.map_or(0, |dv| dv.comp_mask);
        if mask & !(CQ_COMPRESSED | CQ_FLAGS | CQ_ENTRY_SIZE) != 0 {
            return Err(Errno(libc::EINVAL));
        }
        let has = |bit| dv.filter(|_| mask & bit != 0);
        let flags = has(CQ_FLAGS).map_or(0, |dv| dv.flags);
        if flags & !CQ_PAD != 0 {
            return Err(Errno(libc::EINVAL));
        }
        let special = cq::Special {
            entry_size: has(CQ_ENTRY_SIZE).map(|dv| dv.cqe_size.into()),
            compression: has(CQ_COMPRESSED).map(|dv| CqeCompFormat(dv.cqe_comp_res_format.into())),
            padded: flags & CQ_PAD != 0,
        };
        // SAFETY: the caller's arguments.
        let made = unsafe { cq::create_ex(context, init, special) }?;
        if let Some(finish) = library().and_then(|library| library.init_cq()) {
            // SAFETY: the caller's attributes.
            let init = unsafe { &*init };
            // SAFETY: the new queue; libibverbs does this itself for its own verbs.
            unsafe {
                finish(
                    made.cast::<ibv_cq>(),
                    context,
                    init.channel,
                    init.cq_context,
                )
            };
        }
        Ok(made.cast::<ibv_cq_ex>())
    })
}

/// `MLX5DV_WQ_INIT_ATTR_MASK_STRIDING_RQ`.
const WQ_STRIDING: u64 = 1;

#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_create_wq(
    context: *mut ibv_context,
    init: *mut ibv_wq_init_attr,
    dv: *mut mlx5dv_wq_init_attr,
) -> *mut ibv_wq {
    control("mlx5dv_create_wq", || {
        // SAFETY: an open context by the verb's contract.
        unsafe { ours(context) }?;
        // SAFETY: null or the caller's attributes.
        let dv = unsafe { dv.as_ref() };
        if dv.is_some_and(|dv| dv.comp_mask & !WQ_STRIDING != 0) {
            return Err(Errno(libc::EINVAL));
        }
        let striding = dv
            .filter(|dv| dv.comp_mask & WQ_STRIDING != 0)
            .map(|dv| Striding {
                log_stride_bytes: dv.striding_rq_attrs.single_stride_log_num_of_bytes,
                log_strides: dv.striding_rq_attrs.single_wqe_log_num_of_strides,
                two_byte_shift: dv.striding_rq_attrs.two_byte_shift_en != 0,
            });
        // SAFETY: the caller's arguments.
        let made = unsafe { wq::create(context, init, striding) }?.cast::<ibv_wq>();
        // What `ibv_create_wq` does for its own.
        // SAFETY: the caller's attributes.
        let wq_context = unsafe { (*init).wq_context };
        // SAFETY: the new object.
        unsafe { (*made).wq_context = wq_context };
        // SAFETY: the new object's own, which nobody waits for yet.
        unsafe { crate::common::events::Events::of_wq(made).init() };
        Ok(made)
    })
}
