//! The inline functions of `infiniband/verbs.h` for posting: calls through slots of the context and of `ibv_qp_ex`.

use std::ffi::{c_int, c_void};
use std::ptr;

use oxverbs_ffi::abi::objects::{ibv_ah, ibv_context, ibv_mr, ibv_mw, ibv_qp, ibv_qp_ex};
use oxverbs_ffi::abi::work::{
    ibv_data_buf, ibv_mw_bind_info, ibv_recv_wr, ibv_send_wr, ibv_sge, send_atomic, send_bind_mw,
    send_rdma, send_target, send_ud,
};

use super::dv::DirectQp;
use crate::call::{Api, Opcode, Outcome, Piece, Post, Service, Wr, flags};
use crate::receive::Receive;

/// Slots of `ibv_context.ops`.
pub mod slot {
    /// `alloc_mw`.
    pub const ALLOC_MW: usize = 7;
    /// `poll_cq`.
    pub const POLL_CQ: usize = 11;
    /// `req_notify_cq`.
    pub const REQ_NOTIFY_CQ: usize = 12;
    /// `post_srq_recv`.
    pub const POST_SRQ_RECV: usize = 20;
    /// `post_send`.
    pub const POST_SEND: usize = 25;
    /// `post_recv`.
    pub const POST_RECV: usize = 26;
}

/// `post_send` of a context.
pub type PostSend =
    unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int;
/// `post_recv` of a context, and `post_srq_recv` with another first pointer.
pub type PostRecv =
    unsafe extern "C" fn(*mut c_void, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int;

/// The function in a slot of `ibv_context.ops`.
///
/// # Safety
///
/// `context` is an open device, and `T` the slot's type.
pub unsafe fn context_op<T: Copy>(context: *mut ibv_context, index: usize) -> T {
    const { assert!(size_of::<T>() == size_of::<usize>()) };
    // SAFETY: an open device.
    let slot = unsafe { &raw const (*context).ops.slots };
    // SAFETY: 32 slots.
    let slot = unsafe { slot.cast::<T>().add(index) };
    // SAFETY: a slot, and the caller vouches for the type.
    unsafe { slot.read() }
}

/// C's arrays for one posting call. The chain points into them, so they are filled once and then stay.
#[derive(Debug, Default)]
pub struct Chain {
    wrs: Vec<ibv_send_wr>,
    sges: Vec<ibv_sge>,
    mws: Vec<ibv_mw>,
    mrs: Vec<ibv_mr>,
}

fn sge(piece: &Piece) -> ibv_sge {
    ibv_sge {
        addr: piece.address,
        length: piece.len,
        lkey: piece.lkey,
    }
}

fn pointer(address: u64) -> *mut c_void {
    ptr::with_exposed_provenance_mut(address as usize)
}

/// A window that exists only for the caller: providers read its key and type.
fn window(wr: &Wr) -> ibv_mw {
    ibv_mw {
        context: ptr::null_mut(),
        pd: ptr::null_mut(),
        rkey: wr.bind.window_rkey,
        handle: 0,
        r#type: 1 + u32::from(wr.bind.is_type_2),
    }
}

/// A region likewise: providers read its key.
fn region(wr: &Wr) -> ibv_mr {
    ibv_mr {
        context: ptr::null_mut(),
        pd: ptr::null_mut(),
        addr: pointer(wr.bind.address),
        length: wr.bind.len as usize,
        handle: 0,
        lkey: wr.bind.mr_lkey,
        rkey: wr.bind.mr_lkey,
    }
}

fn bind_info(wr: &Wr, mr: *mut ibv_mr) -> ibv_mw_bind_info {
    ibv_mw_bind_info {
        mr,
        addr: wr.bind.address,
        length: wr.bind.len,
        mw_access_flags: wr.bind.access,
    }
}

impl Chain {
    /// Fills the arrays and links them.
    pub fn fill(&mut self, service: Service, wrs: &[Wr], handles: &[*mut ibv_ah]) {
        self.wrs.clear();
        self.sges.clear();
        self.mws.clear();
        self.mrs.clear();
        // Pointers to elements stay.
        self.wrs.reserve(wrs.len());
        self.mws.reserve(wrs.len());
        self.mrs.reserve(wrs.len());
        self.sges
            .extend(wrs.iter().flat_map(|wr| wr.pieces.iter().map(sge)));
        let mut at = 0;
        for wr in wrs {
            let list = &mut self.sges[at..];
            at += wr.pieces.len();
            let target = if service == Service::Ud {
                send_target {
                    ud: send_ud {
                        ah: handles[wr.handle],
                        remote_qpn: wr.remote_qpn,
                        remote_qkey: wr.remote_qkey,
                    },
                }
            } else if wr.opcode.is_atomic() {
                send_target {
                    atomic: send_atomic {
                        remote_addr: wr.remote,
                        compare_add: wr.compare_add,
                        swap: wr.swap,
                        rkey: wr.rkey,
                    },
                }
            } else {
                send_target {
                    rdma: send_rdma {
                        remote_addr: wr.remote,
                        rkey: wr.rkey,
                    },
                }
            };
            let mut bind_mw = send_bind_mw {
                mw: ptr::null_mut(),
                rkey: wr.rkey,
                bind_info: bind_info(wr, ptr::null_mut()),
            };
            if wr.opcode == Opcode::BindMw {
                self.mws.push(window(wr));
                self.mrs.push(region(wr));
                if let (Some(mw), Some(mr)) = (self.mws.last_mut(), self.mrs.last_mut()) {
                    bind_mw.mw = mw;
                    bind_mw.bind_info.mr = mr;
                }
            }
            if wr.opcode == Opcode::Tso {
                // C's union: `tso.hdr` where `bind_mw.mw` is, `hdr_sz` then `mss` in the word of `bind_mw.rkey`.
                bind_mw.mw = pointer(wr.header.address).cast();
                bind_mw.rkey = wr.header.len | u32::from(wr.mss) << 16;
            }
            let has_key = matches!(wr.opcode, Opcode::LocalInv | Opcode::SendInv);
            self.wrs.push(ibv_send_wr {
                wr_id: wr.id,
                next: ptr::null_mut(),
                sg_list: list.as_mut_ptr(),
                num_sge: wr.pieces.len() as c_int,
                opcode: wr.opcode.number(),
                send_flags: u32::from(wr.flags | if wr.is_inline { flags::INLINE } else { 0 }),
                imm_data: if has_key { wr.rkey } else { wr.imm },
                wr: target,
                remote_srqn: wr.srqn,
                bind_mw,
            });
        }
        for index in 1..self.wrs.len() {
            let next = &raw mut self.wrs[index];
            self.wrs[index - 1].next = next;
        }
    }

    /// `ibv_post_send`.
    ///
    /// # Safety
    ///
    /// `qp` is a queue pair, `post_send` its context's.
    pub unsafe fn post(&mut self, post_send: PostSend, qp: *mut ibv_qp) -> Outcome {
        let mut bad = ptr::null_mut();
        let first = self.wrs.as_mut_ptr();
        // SAFETY: the caller's queue pair; the chain's arrays live as long as `self`.
        let errno = unsafe { post_send(qp, first, &raw mut bad) };
        Outcome {
            errno,
            refused: (errno != 0).then(|| (bad.addr() - first.addr()) / size_of::<ibv_send_wr>()),
        }
    }

    /// The first work request, for callers that time only the call.
    pub fn first(&mut self) -> *mut ibv_send_wr {
        self.wrs.as_mut_ptr()
    }
}

/// Posts a list of receives.
///
/// # Safety
///
/// `queue` is one that `post` takes.
pub unsafe fn post_receives(post: PostRecv, queue: *mut c_void, list: &[Receive]) -> Outcome {
    let mut sges: Vec<Vec<ibv_sge>> = list
        .iter()
        .map(|(_, pieces)| pieces.iter().map(sge).collect())
        .collect();
    let mut wrs: Vec<ibv_recv_wr> = list
        .iter()
        .zip(&mut sges)
        .map(|((id, _), sges)| ibv_recv_wr {
            wr_id: *id,
            next: ptr::null_mut(),
            sg_list: sges.as_mut_ptr(),
            num_sge: sges.len() as i32,
        })
        .collect();
    for index in 1..wrs.len() {
        let next = &raw mut wrs[index];
        wrs[index - 1].next = next;
    }
    let first = wrs.as_mut_ptr();
    let mut bad = ptr::null_mut();
    // SAFETY: the caller's queue and a linked list.
    let errno = unsafe { post(queue, first, &raw mut bad) };
    Outcome {
        errno,
        refused: (errno != 0).then(|| (bad.addr() - first.addr()) / size_of::<ibv_recv_wr>()),
    }
}

/// Calls a slot that the service's queue pair must have.
macro_rules! call {
    ($qp:expr, $slot:ident $(, $argument:expr)*) => {{
        // SAFETY: the caller's queue pair.
        let function = unsafe { (*$qp).ops.$slot };
        let function = function.expect(concat!("the provider fills ", stringify!($slot)));
        // SAFETY: the slot's own function, with arguments as verbs.h documents them.
        unsafe { function($qp $(, $argument)*) }
    }};
}

/// One batch by the builders.
///
/// # Safety
///
/// `qp` is a queue pair made with `send_ops_flags` for everything in `post`.
pub unsafe fn build(
    qp: *mut ibv_qp_ex,
    service: Service,
    post: &Post,
    handles: &[*mut ibv_ah],
    direct: Option<&DirectQp>,
) -> Outcome {
    debug_assert_eq!(post.api, Api::Builder);
    call!(qp, wr_start);
    for wr in &post.wrs {
        // SAFETY: the caller's queue pair.
        unsafe { (*qp).wr_id = wr.id };
        let inline = match wr.opcode.is_direct() && wr.is_inline {
            true => flags::INLINE,
            false => 0,
        };
        // SAFETY: the caller's queue pair.
        unsafe { (*qp).wr_flags = (wr.flags | inline).into() };
        match wr.opcode {
            Opcode::Send => call!(qp, wr_send),
            Opcode::SendImm => call!(qp, wr_send_imm, wr.imm),
            Opcode::SendInv => call!(qp, wr_send_inv, wr.rkey),
            Opcode::Write => call!(qp, wr_rdma_write, wr.rkey, wr.remote),
            Opcode::WriteImm => call!(qp, wr_rdma_write_imm, wr.rkey, wr.remote, wr.imm),
            Opcode::Read => call!(qp, wr_rdma_read, wr.rkey, wr.remote),
            Opcode::CompareSwap => {
                call!(
                    qp,
                    wr_atomic_cmp_swp,
                    wr.rkey,
                    wr.remote,
                    wr.compare_add,
                    wr.swap
                );
            }
            Opcode::FetchAdd => {
                call!(qp, wr_atomic_fetch_add, wr.rkey, wr.remote, wr.compare_add);
            }
            Opcode::LocalInv => call!(qp, wr_local_inv, wr.rkey),
            Opcode::BindMw => {
                let mut mw = window(wr);
                let mut mr = region(wr);
                let info = bind_info(wr, &raw mut mr);
                call!(qp, wr_bind_mw, &raw mut mw, wr.rkey, &raw const info);
            }
            Opcode::Tso => call!(
                qp,
                wr_send_tso,
                pointer(wr.header.address),
                wr.header.len as u16,
                wr.mss
            ),
            _ => {
                direct.expect("a queue pair of mlx5dv's").build(wr);
                continue;
            }
        }
        let addressed = matches!(service, Service::Ud | Service::Xrc | Service::Dci);
        let has_address = wr.opcode.has_data() && addressed;
        let address = || match service {
            Service::Dci => {
                let direct = direct.expect("a queue pair of mlx5dv's");
                // SAFETY: the caller's handles.
                unsafe { direct.set_address(wr, handles[wr.handle]) }
            }
            Service::Ud => call!(
                qp,
                wr_set_ud_addr,
                handles[wr.handle],
                wr.remote_qpn,
                wr.remote_qkey
            ),
            _ => call!(qp, wr_set_xrc_srqn, wr.srqn),
        };
        if has_address && wr.address_first {
            address();
        }
        if wr.opcode.has_data() {
            set_data(qp, wr);
        }
        if has_address && !wr.address_first {
            address();
        }
    }
    if post.aborts {
        call!(qp, wr_abort);
        return Outcome::DONE;
    }
    Outcome {
        errno: call!(qp, wr_complete),
        refused: None,
    }
}

fn set_data(qp: *mut ibv_qp_ex, wr: &Wr) {
    match (&wr.pieces[..], wr.is_inline) {
        ([one], true) if !wr.uses_list => {
            call!(
                qp,
                wr_set_inline_data,
                pointer(one.address),
                one.len as usize
            );
        }
        ([one], false) if !wr.uses_list => {
            call!(qp, wr_set_sge, one.lkey, one.address, one.len);
        }
        (pieces, true) => {
            let list: Vec<_> = pieces
                .iter()
                .map(|piece| ibv_data_buf {
                    addr: pointer(piece.address),
                    length: piece.len as usize,
                })
                .collect();
            call!(qp, wr_set_inline_data_list, list.len(), list.as_ptr());
        }
        (pieces, false) => {
            let list: Vec<_> = pieces.iter().map(sge).collect();
            call!(qp, wr_set_sge_list, list.len(), list.as_ptr());
        }
    }
}
