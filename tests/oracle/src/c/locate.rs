//! Where a provider put a queue's memory.

use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};

use anyhow::{Context as _, Result, bail};
use oxverbs_ffi::abi::objects::{ibv_cq, ibv_qp};

use super::device::{Object, QpSpec};
use super::library;
use crate::ring::{CqWriter, Shared};
use crate::subject::SendMemory;

/// `struct mlx5dv_qp` (`infiniband/mlx5dv.h`) as far as it is used.
#[repr(C)]
#[derive(Debug)]
struct DvQp {
    dbrec: *mut u32,
    sq_buf: *mut u8,
    sq_wqe_cnt: u32,
    sq_stride: u32,
    rq_buf: *mut u8,
    rq_wqe_cnt: u32,
    rq_stride: u32,
    bf_reg: *mut u8,
    bf_size: u32,
    comp_mask: u64,
    rest: [u64; 16],
}

/// `struct mlx5dv_cq`.
#[repr(C)]
#[derive(Debug)]
struct DvCq {
    buf: *mut u8,
    dbrec: *mut u32,
    cqe_cnt: u32,
    cqe_size: u32,
    cq_uar: *mut u8,
    cqn: u32,
    comp_mask: u64,
    rest: [u64; 4],
}

/// `struct mlx5dv_obj`: pairs of the object and the answer.
#[repr(C)]
#[derive(Debug)]
struct DvObj {
    qp: [*mut c_void; 2],
    cq: [*mut c_void; 2],
    rest: [*mut c_void; 12],
}

/// `MLX5DV_OBJ_QP`, `MLX5DV_OBJ_CQ`
const QP: u64 = 1;
const CQ: u64 = 1 << 1;

type InitObj = unsafe extern "C" fn(*mut DvObj, u64) -> c_int;

/// Ways to know.
#[derive(Clone, Copy, Debug)]
pub enum Places {
    /// `mlx5dv_init_obj`, which libmlx5 answers about its own objects.
    Libmlx5(InitObjPointer),
}

/// The function.
#[derive(Clone, Copy, Debug)]
pub struct InitObjPointer(InitObj);

impl Places {
    /// For objects of libmlx5.
    ///
    /// # Errors
    ///
    /// It is not loaded.
    pub fn libmlx5() -> Result<Self> {
        let handle = library::load("libmlx5.so.1")?;
        let function = library::symbol(handle, c"mlx5dv_init_obj")?;
        // SAFETY: the function's type in `infiniband/mlx5dv.h`.
        let function = unsafe { std::mem::transmute::<*mut c_void, InitObj>(function) };
        Ok(Self::Libmlx5(InitObjPointer(function)))
    }

    /// The send side of a queue pair.
    ///
    /// # Errors
    ///
    /// The provider says no.
    pub fn send(&self, qp: Object<ibv_qp>, _spec: &QpSpec) -> Result<SendMemory> {
        let Self::Libmlx5(InitObjPointer(init)) = self;
        // SAFETY: zero bytes are a value of it.
        let mut answer: DvQp = unsafe { std::mem::zeroed() };
        let mut object = DvObj {
            qp: [qp.pointer().cast(), (&raw mut answer).cast()],
            cq: [ptr::null_mut(); 2],
            rest: [ptr::null_mut(); 12],
        };
        // SAFETY: a queue pair of libmlx5 and room for more than its answer.
        let errno = unsafe { init(&raw mut object, QP) };
        if errno != 0 {
            bail!("mlx5dv_init_obj: {errno}");
        }
        // SAFETY: a live queue pair.
        let qpn = unsafe { (*qp.pointer()).qp_num };
        let ring = NonNull::new(answer.sq_buf).context("no send ring")?;
        let record = NonNull::new(answer.dbrec.cast()).context("no doorbell record")?;
        let register = NonNull::new(answer.bf_reg).context("no register")?;
        // Alternates between two halves; registers are aligned to both, in a page of registers of 512 bytes.
        let half = if answer.bf_size == 0 {
            256
        } else {
            answer.bf_size as usize
        };
        let register = register.as_ptr().map_addr(|at| at & !(2 * half - 1));
        let register = NonNull::new(register).context("no register")?;
        let bytes = answer.sq_wqe_cnt as usize * answer.sq_stride as usize;
        Ok(SendMemory {
            // SAFETY: the provider's ring, mapped while the queue pair lives.
            ring: unsafe { Shared::new(ring, bytes) },
            // SAFETY: the provider's doorbell record: two words.
            record: unsafe { Shared::new(record, 8) },
            // SAFETY: the provider's register page.
            register: unsafe { Shared::new(register, 2 * half) },
            qpn,
            user_index: 0,
        })
    }

    /// The device's end of a completion queue.
    ///
    /// # Errors
    ///
    /// The provider says no.
    pub fn cq(&self, cq: Object<ibv_cq>) -> Result<CqWriter> {
        let Self::Libmlx5(InitObjPointer(init)) = self;
        // SAFETY: zero bytes are a value of it.
        let mut answer: DvCq = unsafe { std::mem::zeroed() };
        let mut object = DvObj {
            qp: [ptr::null_mut(); 2],
            cq: [cq.pointer().cast(), (&raw mut answer).cast()],
            rest: [ptr::null_mut(); 12],
        };
        // SAFETY: a completion queue of libmlx5 and room for more than its answer.
        let errno = unsafe { init(&raw mut object, CQ) };
        if errno != 0 {
            bail!("mlx5dv_init_obj: {errno}");
        }
        let ring = NonNull::new(answer.buf).context("no completion ring")?;
        let entry = answer.cqe_size as usize;
        // SAFETY: the provider's ring, mapped while the queue lives.
        let ring = unsafe { Shared::new(ring, answer.cqe_cnt as usize * entry) };
        Ok(CqWriter::new(ring, answer.cqe_cnt, entry))
    }
}
