//! One implementation's queue with tags: what is called, and what comes back.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use fake_kernel::FakeKernel;
use fake_kernel::hca::SharedReceiveQueue;
use oxverbs_ffi::abi::attr::{ibv_srq_attr, ibv_srq_init_attr_ex};
use oxverbs_ffi::abi::objects::{ibv_cq, ibv_cq_ex, ibv_srq};
use oxverbs_ffi::abi::work::{
    ibv_ops_wr, ibv_ops_wr_tm, ibv_poll_cq_attr, ibv_recv_wr, ibv_sge, ibv_wc_tm_info,
};
use wqe_format::mlx5::{Cqe64, SopDropQpn, tag_operation};
use zerocopy::FromBytes as _;

use crate::c::device::{CDevice, Object};
use crate::c::library::{Slot, slot, slot_types};
use crate::c::locate::{Places, shared};
use crate::ring::{BLOCK, CqWriter, Shared};

/// `ibv_post_srq_ops`.
type PostOps = unsafe extern "C" fn(*mut ibv_srq, *mut ibv_ops_wr, *mut *mut ibv_ops_wr) -> c_int;

/// Bytes of a tag's buffer.
pub(super) const BUFFER: usize = 64;

/// A change in plain words.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    pub(super) id: u64,
    /// `enum ibv_ops_wr_opcode`, or none of it.
    pub(super) opcode: u32,
    pub(super) flags: c_int,
    pub(super) unexpected: u32,
    /// Of a removal.
    pub(super) handle: u32,
    pub(super) recv_id: u64,
    /// Which buffer, and how much of it.
    pub(super) buffer: Option<(usize, u32)>,
    pub(super) tag: u64,
    pub(super) mask: u64,
}

/// What a call left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Posted {
    pub(super) errno: c_int,
    /// Which change was refused.
    pub(super) bad: Option<usize>,
    pub(super) handles: Vec<u32>,
    /// The doorbell record's send word.
    pub(super) record: u32,
    pub(super) ring: Vec<u8>,
}

/// A completion as `ibv_start_poll` and its siblings tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Polled {
    pub(super) id: u64,
    pub(super) status: u32,
    pub(super) opcode: u32,
    pub(super) flags: u32,
    pub(super) length: u32,
    pub(super) tag: u64,
    pub(super) private: u32,
}

/// One implementation's queue.
pub(super) struct Side {
    cq: Object<ibv_cq_ex>,
    srq: Object<ibv_srq>,
    post: PostOps,
    post_receive: crate::c::post::PostRecv,
    pub(super) ring: Shared,
    pub(super) record: Shared,
    qpn: u32,
    index: u32,
    writer: CqWriter,
    device_end: Arc<SharedReceiveQueue>,
    pub(super) buffers: Vec<u8>,
    poison: u8,
}

impl Side {
    pub(super) fn new(
        kernel: &FakeKernel,
        device: &CDevice,
        number: u8,
        (tags, ops): (u32, u32),
        poison: u8,
    ) -> Result<Self> {
        // All standard fields, and IBV_WC_EX_WITH_TM_INFO.
        let cq = device.cq_ex(255, 0x7f | 1 << 10, false)?;
        // SAFETY: an open device.
        let create = unsafe { slot(device.context, Slot::CreateSrqEx) }?;
        // SAFETY: the slot's type.
        let create =
            unsafe { std::mem::transmute::<*const c_void, slot_types::CreateSrqEx>(create) };
        let mut attr = ibv_srq_init_attr_ex {
            srq_context: ptr::null_mut(),
            attr: ibv_srq_attr {
                max_wr: 15,
                max_sge: 1,
                srq_limit: 0,
            },
            // IBV_SRQ_INIT_ATTR_TYPE, _PD, _CQ and _TM; IBV_SRQT_TM
            comp_mask: 0b1_1011,
            srq_type: 2,
            pd: device.pd,
            xrcd: ptr::null_mut(),
            cq: Object::<ibv_cq>::from(cq).pointer(),
            max_num_tags: tags,
            max_ops: ops,
        };
        let hca = kernel.hca(number.into());
        // SAFETY: an open device and filled attributes.
        let srq = unsafe { create(device.context, &raw mut attr) };
        ensure!(
            !srq.is_null(),
            "ibv_create_srq_ex: {}",
            std::io::Error::last_os_error()
        );
        // The queue pair for changes is made last.
        let qp = hca.qps().pop().context("no queue pair for changes")?;
        let places = Places::new(kernel, number);
        let ring = qp.send.context("no send ring")?;
        // SAFETY: a live queue.
        let handle = unsafe { (*srq).handle };
        // SAFETY: an open device.
        let fd = unsafe { (*device.context).cmd_fd };
        let srqn = hca.number_of_handle(fd, handle).context("its number")?;
        let device_end = hca.srq(srqn).context("no such queue")?;
        // SAFETY: an open device.
        let post = unsafe { slot(device.context, Slot::PostSrqOps) }?;
        Ok(Self {
            cq,
            srq: Object(srq),
            // SAFETY: the slot's type.
            post: unsafe { std::mem::transmute::<*const c_void, PostOps>(post) },
            post_receive: device.post_srq_recv(),
            ring: shared(ring.address, ring.len())?,
            record: shared(qp.dbrec, 8)?,
            qpn: qp.qpn,
            index: device_end.uidx,
            writer: places.cq(cq.into())?,
            device_end,
            buffers: vec![0; BUFFER * (tags as usize + 1)],
            poison,
        })
    }

    pub(super) fn destroy(self, device: &CDevice) -> Result<()> {
        // SAFETY: a queue of this device that is given up.
        let errno = unsafe { (device.library().exports.ibv_destroy_srq)(self.srq.pointer()) };
        ensure!(errno == 0, "ibv_destroy_srq: {errno}");
        device.destroy_cq(self.cq.into())
    }

    pub(super) fn buffer(&self, place: usize) -> u64 {
        self.buffers[place * BUFFER..].as_ptr().expose_provenance() as u64
    }

    pub(super) fn change(&mut self, changes: &[Change]) -> Posted {
        self.ring.fill(self.poison);
        let mut sges: Vec<ibv_sge> = changes
            .iter()
            .map(|change| {
                let (place, length) = change.buffer.unwrap_or((0, 0));
                ibv_sge {
                    addr: self.buffer(place),
                    length,
                    lkey: 0x1234 + place as u32,
                }
            })
            .collect();
        let mut list: Vec<ibv_ops_wr> = changes
            .iter()
            .zip(&mut sges)
            .map(|(change, sge)| ibv_ops_wr {
                wr_id: change.id,
                next: ptr::null_mut(),
                opcode: change.opcode,
                flags: change.flags,
                tm: ibv_ops_wr_tm {
                    unexpected_cnt: change.unexpected,
                    handle: change.handle,
                    recv_wr_id: change.recv_id,
                    sg_list: sge,
                    num_sge: change.buffer.is_some().into(),
                    tag: change.tag,
                    mask: change.mask,
                },
            })
            .collect();
        let first = list.as_mut_ptr();
        for place in 1..list.len() {
            list[place - 1].next = first.wrapping_add(place);
        }
        let mut bad = ptr::null_mut();
        // SAFETY: this queue, and a list of its elements.
        let errno = unsafe { (self.post)(self.srq.pointer(), first, &raw mut bad) };
        let mut ring = self.ring.copy();
        for block in ring.chunks_exact_mut(BLOCK) {
            // The queue pair's number, which differs, where it is its own.
            let own = (self.qpn << 8).to_be_bytes();
            if block[4..7] == own[..3] {
                block[4..7].fill(0);
            }
            // Buffers differ too.
            if let Ok((address, _)) = u64::read_from_prefix(&block[56..]) {
                let offset = u64::from_be(address).wrapping_sub(self.buffer(0));
                if offset < self.buffers.len() as u64 {
                    block[56..].copy_from_slice(&offset.to_be_bytes());
                }
            }
        }
        Posted {
            errno,
            bad: (errno != 0).then(|| (bad.addr() - first.addr()) / size_of::<ibv_ops_wr>()),
            handles: list.iter().map(|change| change.tm.handle).collect(),
            record: self.record.word(4),
            ring,
        }
    }

    pub(super) fn receive(&mut self, id: u64) -> c_int {
        let mut sge = ibv_sge {
            addr: self.buffer(0),
            length: BUFFER as u32,
            lkey: 1,
        };
        let mut wr = ibv_recv_wr {
            wr_id: id,
            next: ptr::null_mut(),
            sg_list: &raw mut sge,
            num_sge: 1,
        };
        let mut bad = ptr::null_mut();
        // SAFETY: this queue, and a list of one.
        unsafe { (self.post_receive)(self.srq.pointer().cast(), &raw mut wr, &raw mut bad) }
    }

    /// The device writes an entry, whose receive it takes if it uses one, and the program polls it.
    pub(super) fn complete(&mut self, before: &[u8; 64], mut cqe: Cqe64) -> Option<Polled> {
        cqe.srqn_uidx = self.index.into();
        cqe.sop_drop_qpn = SopDropQpn::from_bits(self.qpn.into());
        if matches!(
            cqe.app_op,
            tag_operation::UNEXPECTED | tag_operation::NO_TAG
        ) {
            cqe.wqe_counter = self.device_end.next()?.0.into();
        }
        self.writer.write(before, cqe);
        let cq = self.cq.pointer();
        // SAFETY: an extended completion queue.
        let ops = unsafe { (*cq).ops };
        let mut attr = ibv_poll_cq_attr { comp_mask: 0 };
        // SAFETY: as verbs.h's inline function does.
        if unsafe { ops.start_poll?(cq, &raw mut attr) } != 0 {
            return None;
        }
        let mut info = ibv_wc_tm_info { tag: 0, r#priv: 0 };
        // SAFETY: a completion was found; the queue was made with this field.
        unsafe { ops.read_tm_info?(cq, (&raw mut info).cast()) };
        let polled = Polled {
            // SAFETY: a completion was found.
            id: unsafe { (*cq).wr_id },
            // SAFETY: as above.
            status: unsafe { (*cq).status },
            // SAFETY: as above.
            opcode: unsafe { ops.read_opcode?(cq) },
            // SAFETY: as above.
            flags: unsafe { ops.read_wc_flags?(cq) },
            // SAFETY: as above.
            length: unsafe { ops.read_byte_len?(cq) },
            tag: info.tag,
            private: info.r#priv,
        };
        // SAFETY: as above.
        unsafe { ops.end_poll?(cq) };
        Some(polled)
    }
}
