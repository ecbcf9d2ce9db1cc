//! Completion queues.

use std::os::fd::RawFd;
use std::sync::Arc;

use uverbs_abi::handle::Cq;
use uverbs_abi::types::CreateCqFlags;
use uverbs_abi::udata::mlx5::{
    CqeCompFormat, CreateCq as DriverInput, CreateCqFlags as DriverFlags, CreateCqResp,
    QueryDeviceFlags, ResizeCq as DriverResize,
};

use super::buffer::{Allocator, QueueBuffer, ResourceType};
use super::context::Mlx5Context;
use super::dbrec::DoorbellRecord;
use super::environment::QueueKind as Setting;
use super::geometry;
use super::placement::RingPlacement;
use crate::control::kernel::CreateCq as KernelRequest;
use crate::data::mlx5::{CompletionQueue, CqParts, KeepAlive};
use crate::sys::errno::Errno;
use crate::sys::pages::page_size;

/// A completion queue to make.
#[derive(Clone, Debug, Default)]
pub struct CqRequest {
    /// Completions asked for.
    pub cqe: u32,
    /// Comes back in events.
    pub user_handle: u64,
    /// The channel that completion events go to.
    pub comp_channel: Option<RawFd>,
    /// The completion vector.
    pub comp_vector: u32,
    /// How the kernel's core makes it.
    pub flags: CreateCqFlags,
    /// The file that asynchronous events go to.
    pub async_event: Option<RawFd>,
    /// Bytes of an entry, 64 or 128; without, what the environment says.
    pub entry_size: Option<u32>,
    /// How completions are compressed.
    pub compression: Option<CqeCompFormat>,
    /// Whether entries of 128 bytes are padded to whole cache lines.
    pub padded: bool,
    /// Whether timestamps are nanoseconds, where the device can do it.
    pub real_time: bool,
    /// Whether wall-clock times of completions will be asked for.
    pub wall_clock: bool,
    /// The program's allocator.
    pub allocator: Option<Arc<dyn Allocator>>,
}

/// The kernel's part of a completion queue; it is destroyed with this, unless it was before.
#[derive(Debug)]
pub struct CqObject {
    context: Arc<Mlx5Context>,
    handle: Cq,
    number: u32,
    entry_size: u32,
    allocator: Option<Arc<dyn Allocator>>,
    /// What the queue lies in. The data path's queue has it too; the kernel's has it as long as it lives.
    memory: Memory,
    destroyed: bool,
}

/// What a completion queue lies in.
#[derive(Clone, Debug)]
struct Memory {
    ring: Arc<QueueBuffer>,
    record: Arc<DoorbellRecord>,
}

impl CqRequest {
    /// Bytes of an entry.
    fn entry_size(&self, context: &Mlx5Context) -> Result<u32, Errno> {
        let size = match self.entry_size {
            Some(size) => i64::from(size),
            None => context.environment().cqe_size.into(),
        };
        match size {
            64 => Ok(64),
            128 => Ok(128),
            _ => Err(Errno(libc::EINVAL)),
        }
    }

    /// The driver's part of the request, but for memory.
    fn input(&self, context: &Mlx5Context, entry_size: u32) -> Result<DriverInput, Errno> {
        let mut input = DriverInput {
            cqe_size: entry_size,
            ..DriverInput::default()
        };
        if let Some(format) = self.compression {
            let caps = &context.device().cqe_comp_caps;
            let supported = CqeCompFormat(caps.supported_format.0 & format.0);
            if caps.max_num == 0 || supported.is_empty() {
                return Err(Errno(libc::EINVAL));
            }
            input.cqe_comp_en = 1;
            input.cqe_comp_res_format = u8::try_from(format.0).map_err(|_| Errno(libc::EINVAL))?;
        }
        if self.padded {
            let can = context
                .device()
                .flags
                .contains(QueryDeviceFlags::CQE_128B_PAD);
            if !can || entry_size != 128 {
                return Err(Errno(libc::EINVAL));
            }
            input.flags |= DriverFlags::CQE_128B_PAD;
        }
        if self.real_time && context.limits().real_time_ts {
            input.flags |= DriverFlags::REAL_TIME_TS;
        }
        Ok(input)
    }
}

impl Mlx5Context {
    /// Makes a completion queue.
    ///
    /// `EINVAL` for no entries, more than 2^24, an entry size other than 64 and 128, or what the device
    /// does not do.
    pub fn create_cq(
        self: &Arc<Self>,
        asked: &CqRequest,
    ) -> Result<(CqObject, CompletionQueue), Errno> {
        let entries = geometry::cq_entries(asked.cqe)?;
        let entry_size = asked.entry_size(self)?;
        let mut input = asked.input(self, entry_size)?;
        let buffer = self.cq_buffer(entries, entry_size, asked.allocator.as_ref())?;
        let mut record = self.records().take(asked.allocator.as_ref())?;
        record.clear();
        let ring = buffer.start();
        input.buf_addr = buffer.address();
        input.db_addr = record.address();
        let (uar, page, register) = self.uars().cq_page();
        let mut uar_index = None;
        match page.map(|page| (page, u16::try_from(page))) {
            None => {}
            Some((_, Ok(page))) => {
                input.uar_page_index = page;
                input.flags |= DriverFlags::UAR_PAGE_INDEX;
            }
            Some((page, Err(_))) => uar_index = Some(page),
        }
        // The kernel's page is read at each start of polling, which costs; timestamps that are nanoseconds need no page.
        let real_time = asked.real_time && self.limits().real_time_ts;
        let clock = if asked.wall_clock && !real_time {
            Some(self.clock_page().ok_or(Errno(libc::EOPNOTSUPP))?)
        } else {
            None
        };
        let memory = Memory {
            ring: Arc::new(buffer),
            record: Arc::new(record),
        };
        let parts = CqParts {
            ring,
            entries,
            entry_size,
            cqn: 0,
            doorbell_record: memory.record.words(),
            uar,
            version: self.tables().clone(),
            clock: clock.as_ref().map(|(page, _)| *page),
            error_log: self.error_log().clone(),
            signatures: self.signatures().clone(),
            memory: Some(Box::new((memory.clone(), register, clock))),
        };
        // SAFETY: ring and record are new and as long as said, zeroed or a program's allocator's; the
        // page of registers is mapped; all of them live in `memory`. What lies in them later is the
        // device's. Buffers of work requests are the business of who posts.
        let mut queue = unsafe { CompletionQueue::new(parts) }.map_err(|_| Errno(libc::EINVAL))?;
        let request = KernelRequest {
            cqe: entries - 1,
            user_handle: asked.user_handle,
            comp_channel: asked.comp_channel,
            comp_vector: asked.comp_vector,
            flags: asked.flags,
            async_event: asked.async_event,
            uar_index,
        };
        // SAFETY: the ring and the record live as long as the object below, which destroys the kernel's
        // queue first.
        let created = unsafe {
            self.uctx()
                .create_cq_with::<_, CreateCqResp>(&request, &input)
        }?;
        queue.set_cqn(created.udata.cqn);
        let object = CqObject {
            context: self.clone(),
            handle: created.handle,
            number: created.udata.cqn,
            entry_size,
            allocator: asked.allocator.clone(),
            memory,
            destroyed: false,
        };
        Ok((object, queue))
    }

    fn cq_buffer(
        &self,
        entries: u32,
        entry_size: u32,
        allocator: Option<&Arc<dyn Allocator>>,
    ) -> Result<QueueBuffer, Errno> {
        QueueBuffer::new(
            entries as usize * entry_size as usize,
            ResourceType::CQ,
            page_size(),
            &self.source(allocator, Setting::Cq),
            self.huge_pages(),
        )
    }
}

impl CqObject {
    /// The kernel's handle.
    pub fn handle(&self) -> Cq {
        self.handle
    }

    /// The device's number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Bytes of an entry.
    pub fn entry_size(&self) -> u32 {
        self.entry_size
    }

    /// Where its memory is, until it is resized.
    pub fn placement(&self) -> RingPlacement {
        RingPlacement {
            ring: self.memory.ring.address(),
            doorbell: self.memory.record.address(),
            entries: self.memory.ring.len() as u32 / self.entry_size,
            shift: self.entry_size.trailing_zeros(),
        }
    }

    /// The context.
    pub fn context(&self) -> &Arc<Mlx5Context> {
        &self.context
    }

    /// Holds events back until there are `count` completions or `period` microseconds have passed.
    pub fn moderate(&self, count: u16, period: u16) -> Result<(), Errno> {
        self.context
            .uctx()
            .modify_cq_moderation(self.handle, count, period)
    }

    /// Changes the number of entries to hold `cqe` completions; answers how many it holds. Completions
    /// that are there stay.
    ///
    /// `EINVAL`, and nothing has happened, if more completions wait than there would be room for, or for a
    /// size that cannot be. `EIO` if the device did not do what the kernel said: completions are lost.
    pub fn resize(&mut self, queue: &mut CompletionQueue, cqe: u32) -> Result<u32, Errno> {
        let entries = geometry::cq_entries(cqe)?;
        if entries == queue.entries() {
            return Ok(entries - 1);
        }
        // the device's mark takes a place too
        if queue.waiting() >= entries {
            return Err(Errno(libc::EINVAL));
        }
        let context = &self.context;
        let ring =
            Arc::new(context.cq_buffer(entries, self.entry_size, self.allocator.as_ref())?);
        let memory: KeepAlive = Box::new(ring.clone());
        // SAFETY: the ring is new, as long as said, at a page, and lives in `memory`.
        let new = unsafe { queue.prepare_ring(ring.start(), entries, Some(memory)) }
            .map_err(|_| Errno(libc::EINVAL))?;
        let input = DriverResize {
            buf_addr: ring.address(),
            cqe_size: self.entry_size as u16,
            ..DriverResize::default()
        };
        // SAFETY: the ring lives as long as this object has it, which destroys the kernel's queue first.
        unsafe {
            context
                .uctx()
                .resize_cq_with::<_, ()>(self.handle, entries - 1, &input)
        }?;
        let carried = queue.use_ring(new);
        self.memory.ring = ring;
        carried.map_err(|_| Errno(libc::EIO))?;
        Ok(entries - 1)
    }

    /// Destroys it in the kernel; answers how many of its events were delivered. Nothing has happened
    /// if that fails, as it does while queue pairs use it.
    ///
    /// The data path's queue is to be dropped after this.
    pub fn destroy(&mut self) -> Result<CqEvents, Errno> {
        if self.destroyed {
            return Ok(CqEvents::default());
        }
        let resp = self.context.uctx().destroy_cq(self.handle)?;
        self.destroyed = true;
        Ok(CqEvents {
            completion: resp.comp_events_reported,
            asynchronous: resp.async_events_reported,
        })
    }
}

/// Events of a completion queue that were delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CqEvents {
    /// On its channel.
    pub completion: u32,
    /// Asynchronous ones.
    pub asynchronous: u32,
}

impl Drop for CqObject {
    fn drop(&mut self) {
        if !self.destroyed && self.context.is_ours() && self.destroy().is_err() {
            // The device may still write there.
            self.context.abandon(self.memory.clone());
        }
    }
}
