//! `mlx5dv_init_obj`: the memory of objects, for programs that write work requests and read completions themselves.

use std::ffi::{c_int, c_void};
use std::ptr;

use oxverbs::ffi_core::Errno;

use super::ours;
use crate::abi::dv::{
    mlx5dv_ah, mlx5dv_cq, mlx5dv_dm, mlx5dv_obj, mlx5dv_pd, mlx5dv_qp, mlx5dv_rwq, mlx5dv_srq,
    register, ring,
};
use crate::abi::objects::{ibv_ah, ibv_context, ibv_cq, ibv_pd, ibv_qp, ibv_srq};
use crate::abi::wq::ibv_wq;
use crate::door::control;
use crate::mlx5::{ah, cq, dm, domain, qp, srq, wq};

/// `enum mlx5dv_obj_type`.
mod kind {
    pub(super) const QP: u64 = 1;
    pub(super) const CQ: u64 = 1 << 1;
    pub(super) const SRQ: u64 = 1 << 2;
    pub(super) const RWQ: u64 = 1 << 3;
    pub(super) const DM: u64 = 1 << 4;
    pub(super) const AH: u64 = 1 << 5;
    pub(super) const PD: u64 = 1 << 6;
    pub(super) const DEVX: u64 = 1 << 7;
    pub(super) const ALL: u64 = (1 << 8) - 1;
}

/// Sets fields of a struct of the caller's, one by one: those behind may be missing in older programs.
macro_rules! put {
    ($out:ident: $($field:ident = $value:expr),* $(,)?) => {$({
        let value = $value;
        // SAFETY: the caller's memory.
        unsafe { (*$out).$field = value };
    })*};
}

/// An address that was exposed when the memory was made.
fn at<T>(address: u64) -> *mut T {
    ptr::with_exposed_provenance_mut(address as usize)
}

unsafe extern "C" fn init_obj_1_2(obj: *mut mlx5dv_obj, kinds: u64) -> c_int {
    // SAFETY: the caller's arguments.
    control("mlx5dv_init_obj", || unsafe { init(obj, kinds) })
}

/// The version of `MLX5_1.0`: the field for arming is a pointer to the address.
unsafe extern "C" fn init_obj_1_0(obj: *mut mlx5dv_obj, kinds: u64) -> c_int {
    control("mlx5dv_init_obj", || {
        // SAFETY: the caller's arguments.
        unsafe { init(obj, kinds) }?;
        if kinds & kind::CQ != 0 {
            // SAFETY: the caller's struct.
            let cq = unsafe { &(*obj).cq };
            // SAFETY: a completion queue of ours, as `init` found.
            let context = unsafe { (*cq.r#in).context };
            // SAFETY: as above.
            let place = unsafe { ours(context) }?.arming_page();
            // SAFETY: the caller's memory.
            unsafe { (*cq.out).cq_uar = place.cast_mut().cast() };
        }
        Ok(())
    })
}

/// # Safety
///
/// For each of `kinds`, `obj` has an object and room for its description.
unsafe fn init(obj: *mut mlx5dv_obj, kinds: u64) -> Result<(), Errno> {
    if kinds == 0 || kinds & !kind::ALL != 0 || obj.is_null() {
        return Err(Errno(libc::EINVAL));
    }
    // Programs before release 54 have a struct without the last pair.
    macro_rules! describe {
        ($bit:ident, $pair:ident, $function:ident) => {
            if kinds & kind::$bit != 0 {
                // SAFETY: the caller's struct, which has the pair.
                let object = unsafe { (*obj).$pair.r#in };
                // SAFETY: as above.
                let out = unsafe { (*obj).$pair.out };
                if object.is_null() || out.is_null() {
                    return Err(Errno(libc::EINVAL));
                }
                // SAFETY: the caller's promise.
                unsafe { $function(object, out) }?;
            }
        };
    }
    describe!(QP, qp, of_qp);
    describe!(CQ, cq, of_cq);
    describe!(SRQ, srq, of_srq);
    describe!(RWQ, rwq, of_rwq);
    describe!(DM, dm, of_dm);
    describe!(AH, ah, of_ah);
    describe!(PD, pd, of_pd);
    describe!(DEVX, devx, of_devx);
    Ok(())
}

/// Fails for an object of another provider's device.
///
/// # Safety
///
/// `context` is an open one.
unsafe fn check(context: *mut ibv_context) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    unsafe { ours(context) }.map(drop)
}

/// `enum mlx5dv_qp_comp_mask`: where the register is mapped from; numbers of a raw queue pair; its address for steering.
const QP_MMAP_OFFSET: u64 = 1;
const QP_RAW_NUMBERS: u64 = 1 << 1;
const QP_RAW_ADDRESS: u64 = 1 << 2;

unsafe fn of_qp(qp: *mut ibv_qp, out: *mut mlx5dv_qp) -> Result<(), Errno> {
    // SAFETY: a queue pair by the verb's contract.
    let context = unsafe { (*qp).context };
    // SAFETY: an open context.
    unsafe { check(context) }?;
    // SAFETY: one of ours.
    let place = unsafe { qp::dv::placement(qp) }?;
    // SAFETY: the caller's struct. Fields that it does not ask for may be missing in older programs.
    let asked = unsafe { (*out).comp_mask };
    let mut given = 0;
    put! { out:
        dbrec = at(place.doorbell),
        sq = ring {
            buf: at(place.send_ring),
            wqe_cnt: place.send_blocks,
            stride: if place.send_blocks == 0 { 1 } else { 64 },
        },
        rq = ring {
            buf: at(place.receive_ring),
            wqe_cnt: place.receive_entries,
            stride: 1 << place.receive_shift,
        },
        bf = register {
            reg: at(place.register),
            size: place.register_half,
        },
    }
    if asked & QP_MMAP_OFFSET != 0 {
        put!(out: uar_mmap_offset = place.mmap_offset.unwrap_or(0) as i64);
        given |= QP_MMAP_OFFSET;
    }
    let answer = &place.answer;
    if asked & QP_RAW_NUMBERS != 0 {
        put! { out:
            tirn = answer.tirn,
            tisn = answer.tisn,
            rqn = answer.rqn,
            sqn = answer.sqn,
        }
        given |= QP_RAW_NUMBERS;
    }
    if asked & QP_RAW_ADDRESS != 0 {
        put!(out: tir_icm_addr = answer.tir_icm_addr);
        given |= QP_RAW_ADDRESS;
    }
    put!(out: comp_mask = given);
    Ok(())
}

unsafe fn of_cq(cq: *mut ibv_cq, out: *mut mlx5dv_cq) -> Result<(), Errno> {
    // SAFETY: a completion queue by the verb's contract.
    let context = unsafe { (*cq).context };
    // SAFETY: an open context.
    let device = unsafe { ours(context) }?;
    // From now on the program counts what was consumed.
    // SAFETY: one of ours.
    let (number, place) = unsafe { cq::hand_over(cq) };
    // SAFETY: as above.
    let cqe = unsafe { (*cq).cqe };
    let answer = mlx5dv_cq {
        buf: at(place.ring),
        dbrec: at(place.doorbell),
        cqe_cnt: cqe as u32 + 1,
        cqe_size: 1 << place.shift,
        // SAFETY: a word of the context's.
        cq_uar: at(unsafe { device.arming_page().read() } as u64),
        cqn: number,
        comp_mask: 0,
    };
    // SAFETY: the caller's memory; the struct has not grown.
    unsafe { out.write(answer) };
    Ok(())
}

/// `MLX5DV_SRQ_MASK_SRQN`.
const SRQ_NUMBER: u64 = 1;

unsafe fn of_srq(srq: *mut ibv_srq, out: *mut mlx5dv_srq) -> Result<(), Errno> {
    // SAFETY: a shared receive queue by the verb's contract.
    let context = unsafe { (*srq).context };
    // SAFETY: an open context.
    unsafe { check(context) }?;
    // SAFETY: one of ours.
    let (number, place, (head, tail)) = unsafe { srq::placement(srq) };
    // SAFETY: the caller's struct; its last field may be missing in older programs.
    let asked = unsafe { (*out).comp_mask };
    put! { out:
        buf = at(place.ring),
        dbrec = at(place.doorbell),
        stride = 1 << place.shift,
        head = head.into(),
        tail = tail.into(),
        comp_mask = asked & SRQ_NUMBER,
    }
    if asked & SRQ_NUMBER != 0 {
        put!(out: srqn = number);
    }
    Ok(())
}

unsafe fn of_rwq(wq: *mut ibv_wq, out: *mut mlx5dv_rwq) -> Result<(), Errno> {
    // SAFETY: a work queue by the verb's contract.
    let context = unsafe { (*wq).context };
    // SAFETY: an open context.
    unsafe { check(context) }?;
    // SAFETY: one of ours.
    let place = unsafe { wq::placement(wq) };
    let answer = mlx5dv_rwq {
        buf: at(place.ring),
        dbrec: at(place.doorbell),
        wqe_cnt: place.entries,
        stride: 1 << place.shift,
        comp_mask: 0,
    };
    // SAFETY: the caller's memory; the struct has not grown.
    unsafe { out.write(answer) };
    Ok(())
}

/// `MLX5DV_DM_MASK_REMOTE_VA`.
const DM_REMOTE: u64 = 1;

unsafe fn of_dm(dm: *mut crate::abi::domain::ibv_dm, out: *mut mlx5dv_dm) -> Result<(), Errno> {
    // SAFETY: device memory by the verb's contract.
    let context = unsafe { (*dm).context };
    // SAFETY: an open context.
    unsafe { check(context) }?;
    // SAFETY: of ours.
    let (start, length) = unsafe { dm::placement(dm) };
    // SAFETY: the caller's struct; its last field may be missing in older programs.
    let asked = unsafe { (*out).comp_mask };
    // SAFETY: the caller's memory.
    unsafe { (*out).buf = start.cast() };
    // SAFETY: as above.
    unsafe { (*out).length = length as u64 };
    if asked & DM_REMOTE != 0 {
        // Memory that is mapped has no address in the device that regions would need.
        // SAFETY: as above; it was asked for.
        unsafe { (*out).remote_va = 0 };
    }
    // SAFETY: as above.
    unsafe { (*out).comp_mask = asked & DM_REMOTE };
    Ok(())
}

unsafe fn of_ah(handle: *mut ibv_ah, out: *mut mlx5dv_ah) -> Result<(), Errno> {
    // SAFETY: an address handle by the verb's contract.
    let context = unsafe { (*handle).context };
    // SAFETY: an open context.
    unsafe { check(context) }?;
    let answer = mlx5dv_ah {
        // SAFETY: one of ours.
        av: unsafe { ah::vector(handle) }.cast_mut().cast::<c_void>(),
        comp_mask: 0,
    };
    // SAFETY: the caller's memory; the struct has not grown.
    unsafe { out.write(answer) };
    Ok(())
}

unsafe fn of_pd(pd: *mut ibv_pd, out: *mut mlx5dv_pd) -> Result<(), Errno> {
    // SAFETY: a protection domain by the verb's contract.
    let context = unsafe { (*pd).context };
    // SAFETY: an open context.
    unsafe { check(context) }?;
    let answer = mlx5dv_pd {
        // SAFETY: one of ours.
        pdn: unsafe { domain::number(pd) },
        comp_mask: 0,
    };
    // SAFETY: the caller's memory; the struct has not grown.
    unsafe { out.write(answer) };
    Ok(())
}

unsafe fn of_devx(object: *mut c_void, out: *mut u32) -> Result<(), Errno> {
    // SAFETY: an object of `mlx5dv_devx_obj_create` by the verb's contract.
    let handle = unsafe { super::devx::handle_of(object) };
    // SAFETY: the caller's memory.
    unsafe { out.write(handle) };
    Ok(())
}

/// Defines a name of which there are two with the assembler, since a version script alone gives a name one node.
macro_rules! version {
    ($symbol:literal, $version:literal, $function:ident) => {
        #[cfg(target_arch = "x86_64")]
        version!(@ $symbol, $version, $function, "jmp");
        #[cfg(target_arch = "aarch64")]
        version!(@ $symbol, $version, $function, "b");
    };
    (@ $symbol:literal, $version:literal, $function:ident, $jump:literal) => {
        std::arch::global_asm!(
            concat!(".globl ", $symbol),
            concat!(".type ", $symbol, ", %function"),
            concat!($symbol, ":"),
            concat!($jump, " {function}"),
            concat!(".symver ", $symbol, ", ", $version),
            function = sym $function,
        );
    };
}

version!(
    "oxverbs_init_obj_1_0",
    "mlx5dv_init_obj@MLX5_1.0",
    init_obj_1_0
);
version!(
    "oxverbs_init_obj_1_2",
    "mlx5dv_init_obj@@MLX5_1.2",
    init_obj_1_2
);
