//! Receive work queues, which indirection tables spread packets over.

use std::os::fd::RawFd;
use std::sync::Arc;

use uverbs_abi::handle::{Cq, Pd, RwqIndTbl, Wq};
use uverbs_abi::types::{WqFlags, WqType};
use uverbs_abi::udata::mlx5::{
    CreateWq as DriverInput, CreateWqFlags as DriverFlags, CreateWqMask, CreateWqResp,
    ModifyWq as DriverModify,
};
use uverbs_abi::write::wq::ExModifyWq;

use super::buffer::{Allocator, QueueBuffer, ResourceType};
use super::context::Mlx5Context;
use super::entry::{Dying, Entry, Kind};
use super::environment::QueueKind as Setting;
use super::geometry::{ReceiveGeometry, ReceiveRequest};
use super::placement::RingPlacement;
use crate::control::kernel::CreateWq as KernelRequest;
use crate::data::mlx5::{
    KeepAlive, QueueKind, QueueRecord, ReceiveSide, RecvParts, RecvQueue, RecvShared,
};
use crate::sys::errno::Errno;
use crate::sys::pages::page_size;

/// Entries that hold many packets each, in strides (`mlx5dv_striding_rq_init_attr`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Striding {
    /// Logarithm of the bytes of a stride.
    pub log_stride_bytes: u32,
    /// Logarithm of the strides of an entry.
    pub log_strides: u32,
    /// Whether packets begin two bytes into a stride.
    pub two_byte_shift: bool,
}

/// A work queue to make.
#[derive(Clone, Debug, Default)]
pub struct WqRequest {
    /// The protection domain.
    pub pd: Pd,
    /// Where receives complete.
    pub cq: Cq,
    /// Comes back in events.
    pub user_handle: u64,
    /// Comes back with completions.
    pub cookie: usize,
    /// Receives asked for.
    pub max_wr: u32,
    /// Scatter entries of each.
    pub max_sge: u32,
    /// How the kernel's core makes it.
    pub flags: WqFlags,
    /// Whether entries hold many packets.
    pub striding: Option<Striding>,
    /// The file that asynchronous events go to.
    pub async_event: Option<RawFd>,
    /// The program's allocator.
    pub allocator: Option<Arc<dyn Allocator>>,
}

/// State of a work queue (`enum ibv_wq_state`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WqState(pub u32);

impl WqState {
    /// It does not receive.
    pub const RESET: Self = Self(0);
    /// It receives.
    pub const READY: Self = Self(1);
    /// Something went wrong.
    pub const ERROR: Self = Self(2);
}

/// Bits of the mask of a modify (`enum ibv_wq_attr_mask`).
const STATE: u32 = 1 << 0;
const CURRENT_STATE: u32 = 1 << 1;

/// The kernel's part of a work queue; it is destroyed with this, unless it was before.
#[derive(Debug)]
pub struct WqObject {
    context: Arc<Mlx5Context>,
    handle: Wq,
    number: u32,
    max_wr: u32,
    max_sge: u32,
    state: WqState,
    striding: bool,
    /// Keeps the memory of the queue until the kernel has destroyed it.
    record: Option<Arc<QueueRecord>>,
    placement: RingPlacement,
    entry: Option<Entry>,
    destroyed: bool,
}

impl Mlx5Context {
    fn striding(&self, asked: &Striding) -> Result<DriverInput, Errno> {
        let caps = &self.device().striding_rq_caps;
        let bytes =
            caps.min_single_stride_log_num_of_bytes..=caps.max_single_stride_log_num_of_bytes;
        let strides =
            caps.min_single_wqe_log_num_of_strides..=caps.max_single_wqe_log_num_of_strides;
        if !bytes.contains(&asked.log_stride_bytes) || !strides.contains(&asked.log_strides) {
            return Err(Errno(libc::EINVAL));
        }
        Ok(DriverInput {
            comp_mask: CreateWqMask::STRIDING_RQ,
            single_stride_log_num_of_bytes: asked.log_stride_bytes,
            single_wqe_log_num_of_strides: asked.log_strides,
            two_byte_shift_en: asked.two_byte_shift.into(),
            ..DriverInput::default()
        })
    }

    /// Makes a work queue, in RESET. `EINVAL` for sizes that the device cannot have.
    pub fn create_wq(self: &Arc<Self>, asked: &WqRequest) -> Result<(WqObject, RecvQueue), Errno> {
        let signature = self.environment().rwq_signature;
        let geometry = ReceiveGeometry::work_queue(
            &self.limits().limits,
            &ReceiveRequest {
                max_wr: asked.max_wr,
                max_sge: asked.max_sge,
                signature,
                striding: asked.striding.is_some(),
                out_of_order: 0,
            },
        )?;
        let mut input = match &asked.striding {
            Some(striding) => self.striding(striding)?,
            None => DriverInput::default(),
        };
        let buffer = QueueBuffer::new(
            geometry.bytes(),
            ResourceType::RWQ,
            page_size(),
            &self.source(asked.allocator.as_ref(), Setting::Rwq),
            self.huge_pages(),
        )?;
        let doorbell = self.records().take(asked.allocator.as_ref())?;
        // work queues have an index even where completions carry the queue's number
        let index = self.indices().take()?;
        input.buf_addr = buffer.address();
        input.db_addr = doorbell.address();
        input.rq_wqe_count = geometry.wqe_cnt;
        input.rq_wqe_shift = geometry.wqe_shift;
        input.user_index = index.get();
        if signature {
            input.flags = DriverFlags::SIGNATURE;
        }
        let request = KernelRequest {
            wq_type: WqType::RQ,
            pd: asked.pd,
            cq: asked.cq,
            user_handle: asked.user_handle,
            max_wr: asked.max_wr,
            max_sge: asked.max_sge,
            flags: asked.flags,
            async_event: asked.async_event,
        };
        let placement = RingPlacement {
            ring: buffer.address(),
            doorbell: doorbell.address(),
            entries: geometry.wqe_cnt,
            shift: geometry.wqe_shift,
        };
        let words = doorbell.words();
        let shared = RecvShared::new(
            buffer.start(),
            geometry.wqe_cnt,
            geometry.wqe_shift,
            signature,
            self.null_lkey(),
        );
        let memory: KeepAlive = Box::new((buffer, doorbell));
        let making = self.making(Kind::Queue);
        // SAFETY: ring and record live as long as the object below has them, which destroys the kernel's
        // queue first.
        let created = unsafe {
            self.uctx()
                .create_wq_with::<_, CreateWqResp>(&request, &input)
        }?;
        // SAFETY: the ring is within the buffer, which is new and lives in `memory`.
        let record = Arc::new(unsafe {
            QueueRecord::new(
                QueueKind::Rwq,
                created.wq_num,
                asked.cookie,
                None,
                ReceiveSide::Own(shared),
                Some(memory),
            )
        });
        let mut object = WqObject {
            context: self.clone(),
            handle: created.handle,
            number: created.wq_num,
            max_wr: geometry.max_post,
            max_sge: geometry.max_gs,
            state: WqState::RESET,
            striding: asked.striding.is_some(),
            record: Some(record.clone()),
            placement,
            entry: None,
            destroyed: false,
        };
        let index = self.names_queues_by_index().then_some(index);
        let custom = asked.allocator.is_some();
        let entry = making.enter(index, created.wq_num, record.clone(), custom);
        // before the object, which takes it to destroy itself
        drop(making);
        object.entry = Some(entry?);
        let parts = RecvParts {
            record,
            doorbell: words,
            max_wr: geometry.max_post,
            max_sge: geometry.max_gs,
        };
        // SAFETY: the doorbell record lives in the record, as the ring does; both are new, and this is the
        // only queue over them.
        let mut queue = unsafe { RecvQueue::new(parts) };
        // programs fill it before it is ready; entries in strides are not written by this data path
        queue.set_accepting(asked.striding.is_none());
        Ok((object, queue))
    }
}

impl WqObject {
    /// The kernel's handle.
    pub fn handle(&self) -> Wq {
        self.handle
    }

    /// The device's number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Where its memory is.
    pub fn placement(&self) -> &RingPlacement {
        &self.placement
    }

    /// Receives that fit.
    pub fn max_wr(&self) -> u32 {
        self.max_wr
    }

    /// Scatter entries of each.
    pub fn max_sge(&self) -> u32 {
        self.max_sge
    }

    /// The state that it was brought to.
    pub fn state(&self) -> WqState {
        self.state
    }

    /// What completions call it.
    pub fn key(&self) -> Option<u32> {
        self.entry.as_ref().map(Entry::key)
    }

    /// Whether a modify starts the queue over: its completions are to be cleaned and
    /// [`start_over`](Self::start_over) to be called, both before [`modify`](Self::modify), after which
    /// packets arrive.
    pub fn starts_over(&self, attr: &ExModifyWq) -> bool {
        attr.attr_mask & STATE != 0
            && attr.wq_state == WqState::READY.0
            && self.state == WqState::RESET
    }

    /// Forgets what was posted.
    pub fn start_over(&self, queue: &mut RecvQueue) {
        queue.reset();
        queue.set_accepting(!self.striding);
    }

    /// Changes state or flags, as far as `attr.attr_mask` goes; whose handle is set here. `EINVAL` if it
    /// is not in the state that the modify names.
    pub fn modify(&mut self, attr: &ExModifyWq) -> Result<(), Errno> {
        if attr.attr_mask & CURRENT_STATE != 0 && attr.curr_wq_state != self.state.0 {
            return Err(Errno(libc::EINVAL));
        }
        let request = ExModifyWq {
            wq_handle: self.handle,
            ..*attr
        };
        self.context
            .uctx()
            .modify_wq_with(&request, &DriverModify::default())?;
        if attr.attr_mask & STATE != 0 {
            self.state = WqState(attr.wq_state);
        }
        Ok(())
    }

    /// Destroys it in the kernel. Nothing has happened if that fails, as it does while a table has it.
    /// Its completions are to be cleaned before the answer is dropped, and the data path's queue is to be
    /// dropped after it.
    pub fn destroy(&mut self) -> Result<Dying<'_>, Errno> {
        let making = self.context.making(Kind::Queue);
        let events = if self.destroyed {
            0
        } else {
            self.context.uctx().destroy_wq(self.handle)?
        };
        self.destroyed = true;
        Ok(Dying::new(events, self.entry.as_mut(), making))
    }
}

impl Drop for WqObject {
    fn drop(&mut self) {
        if !self.destroyed && self.context.is_ours() && self.destroy().is_err() {
            // The device may still use the ring.
            self.context
                .abandon((self.record.take(), self.entry.take()));
        }
    }
}

/// A table of work queues; it is destroyed with this, unless it was before.
#[derive(Debug)]
pub struct TableObject {
    context: Arc<Mlx5Context>,
    handle: RwqIndTbl,
    number: u32,
    destroyed: bool,
}

impl Mlx5Context {
    /// Makes a table of work queues, as many as a power of two.
    pub fn create_rwq_ind_table(self: &Arc<Self>, queues: &[Wq]) -> Result<TableObject, Errno> {
        let created = self.uctx().create_rwq_ind_table::<()>(queues)?;
        Ok(TableObject {
            context: self.clone(),
            handle: created.handle,
            number: created.number,
            destroyed: false,
        })
    }
}

impl TableObject {
    /// The kernel's handle.
    pub fn handle(&self) -> RwqIndTbl {
        self.handle
    }

    /// The kernel's number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Destroys it in the kernel, if no queue pair uses it (`EBUSY`).
    pub fn destroy(&mut self) -> Result<(), Errno> {
        if !self.destroyed {
            self.context.uctx().destroy_rwq_ind_table(self.handle)?;
            self.destroyed = true;
        }
        Ok(())
    }
}

impl Drop for TableObject {
    fn drop(&mut self) {
        if self.context.is_ours() {
            // Nobody is left to tell.
            let _ = self.destroy();
        }
    }
}
