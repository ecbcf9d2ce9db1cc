//! Completion queues.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use uverbs_abi::handle::Cq;
use uverbs_abi::types::{CreateCqFlags, EventType};
use uverbs_abi::udata::mlx5::{
    CreateCq as DriverInput, CreateCqFlags as DriverFlags, CreateCqResp, ResizeCq as DriverResize,
};
use uverbs_abi::write::cq::DestroyCqResp;
use wqe_format::mlx5::MiniFormat;
use wqe_format::mlx5::firmware::Opcode;
use wqe_format::mlx5::firmware::cq::{Cqc, CreateCqIn, CreateCqOut, ModifyCqIn};

use super::Objects;
use super::events::EventFile;
use super::platform::Mapped;
use super::ring::Ring;
use crate::control::kernel::{CqCreated, CqResized, CreateCq};
use crate::sys::errno::Errno;

/// A completion queue.
#[derive(Debug)]
pub(super) struct CompletionQueue {
    pub(super) number: u32,
    /// Bytes of an entry, 64 or 128.
    pub(super) entry_size: u32,
    /// Whether its timestamps are nanoseconds.
    pub(super) real_time: bool,
    user_handle: u64,
    channel: Option<Arc<EventFile>>,
    events: Option<Arc<EventFile>>,
    /// Events told: of completions, others.
    told: [AtomicU32; 2],
    ring: Mutex<Ring>,
    _record: Arc<Mapped>,
}

impl CompletionQueue {
    /// What the program has to acknowledge when the queue is gone.
    fn told(&self) -> DestroyCqResp {
        let [completions, others] = (self.told.each_ref()).map(|told| told.load(Ordering::Relaxed));
        DestroyCqResp {
            comp_events_reported: self.channel.as_ref().map_or(0, |channel| {
                channel.completions_read_of(self.user_handle, completions)
            }),
            async_events_reported: self.events.as_ref().map_or(0, |file| {
                file.read_of(self.user_handle, others, &[EventType::CQ_ERR])
            }),
        }
    }
}

/// Entry sizes (`mlx5_ifc.h` `CQE_SIZE_64`, `CQE_SIZE_128`, `CQE_SIZE_128_PAD` of `cqe_sz`).
fn entry_code(size: u32, padded: bool) -> u8 {
    match (size, padded) {
        (64, _) => 0,
        (_, false) => 1,
        (_, true) => 2,
    }
}

/// What MODIFY_CQ changes of moderation (`mlx5/cq.h` `MLX5_CQ_MODIFY_PERIOD`, `_COUNT`).
const MODIFY_MODERATION: u32 = 1 << 0 | 1 << 1;
/// And of the ring (`mlx5_ifc.h` `MLX5_MODIFY_CQ_MASK_LOG_SIZE`, `_PG_OFFSET`, `_PG_SIZE`).
const MODIFY_RING: u32 = 1 << 0 | 1 << 1 | 1 << 2;
/// MODIFY_CQ for another ring (`mlx5_ifc.h` `MLX5_CQ_OPMOD_RESIZE`).
const RESIZE: u16 = 1;
/// The longest period in microseconds: 12 bits.
const MAX_PERIOD: u16 = (1 << 12) - 1;

/// A ring of `entries` entries in a context.
fn describe_ring(context: &mut Cqc<&mut [u8]>, ring: &Ring, entries: u32, code: u8) {
    context
        .set_log_cq_size(entries.trailing_zeros() as u8)
        .set_log_page_size(ring.log_page_size())
        .set_page_offset(ring.page_offset())
        .set_cqe_sz(code);
}

/// Bytes of a command with a list of pages behind its `fixed` part.
pub(super) fn with_pages(fixed: usize, ring: &Ring) -> Vec<u8> {
    let pages = ring.pages();
    let mut input = vec![0; fixed + pages.len() * 8];
    for (place, page) in input[fixed..].chunks_exact_mut(8).zip(pages) {
        place.copy_from_slice(&page.to_be_bytes());
    }
    input
}

impl Objects {
    /// How many entries a ring has that takes `cqe` completions. `EINVAL` for more than the device has.
    fn cq_entries(&self, cqe: u32) -> Result<u32, Errno> {
        let most = 1u32 << self.caps.general.log_max_cq_sz().min(31);
        let entries = cqe.checked_add(1).and_then(u32::checked_next_power_of_two);
        entries
            .filter(|entries| cqe > 0 && *entries <= most)
            .ok_or(Errno(libc::EINVAL))
    }

    /// What the device calls the format of mini entries that mlx5dv calls `bit`: it numbers them, and leaves the bits no
    /// number (Linux `mlx5/device.h` `MLX5_CQE_FORMAT_CSUM`, `MLX5_CQE_FORMAT_CSUM_STRIDX`). `EOPNOTSUPP` if it compresses
    /// no entries of this size or does not know the format, `EINVAL` for what is no format.
    fn mini_format(&self, entry_size: u32, bit: u8) -> Result<MiniFormat, Errno> {
        let caps = &self.caps.general;
        let compresses = match entry_size {
            128 => caps.cqe_compression_128(),
            _ => caps.cqe_compression(),
        };
        let format = MiniFormat::from_mlx5dv(bit.into()).ok_or(Errno(libc::EINVAL))?;
        if !compresses || (format.has_stride_index() && !caps.mini_cqe_resp_stride_index()) {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        Ok(format)
    }

    /// Makes a completion queue.
    ///
    /// # Safety
    ///
    /// As for [`Uctx::create_cq_with`](crate::control::kernel::Uctx::create_cq_with).
    pub unsafe fn create_cq(
        &self,
        request: &CreateCq,
        input: &DriverInput,
    ) -> Result<CqCreated<CreateCqResp>, Errno> {
        let entries = self.cq_entries(request.cqe)?;
        let size = input.cqe_size;
        if size != 64 && size != 128 {
            return Err(Errno(libc::EINVAL));
        }
        let event_queue = self.platform.event_queue(request.comp_vector);
        let event_queue = event_queue.ok_or(Errno(libc::EINVAL))?;
        let uar = match request.uar_index {
            Some(page) => page,
            None if input.flags.contains(DriverFlags::UAR_PAGE_INDEX) => {
                input.uar_page_index.into()
            }
            // the context's pages are made on demand, and each queue says its own
            None => return Err(Errno(libc::EINVAL)),
        };
        let find = |fd: Option<_>| fd.map(|fd| self.files.find(fd)).transpose();
        let channel = find(request.comp_channel)?;
        let events = find(request.async_event)?;
        let bytes = u64::from(entries) * u64::from(size);
        let ring = Ring::new(&*self.platform, input.buf_addr, bytes)?;
        let (record_address, record) = self.record(input.db_addr)?;

        let mut bytes = with_pages(CreateCqIn::SIZE, &ring);
        let mut command = CreateCqIn::new(&mut bytes[..]).map_err(|_| Errno(libc::EINVAL))?;
        command.set_opcode(Opcode::CREATE_CQ.0);
        let mut context = command.cq_context_mut();
        let padded = input.flags.contains(DriverFlags::CQE_128B_PAD);
        describe_ring(&mut context, &ring, entries, entry_code(size, padded));
        context
            .set_uar_page(uar)
            .set_c_eqn_or_apu_element(event_queue)
            .set_dbr_addr(record_address)
            .set_oi(request.flags.contains(CreateCqFlags::IGNORE_OVERRUN));
        if input.cqe_comp_en != 0 {
            let format = self.mini_format(size, input.cqe_comp_res_format)?;
            context
                .set_cqe_comp_en(true)
                .set_mini_cqe_res_format(format.0);
        }
        let mut output = CreateCqOut::zeroed();
        self.platform.execute(&bytes, output.as_bytes_mut())?;
        let number = output.cqn();
        let handle = self.cqs.insert_at(
            number,
            CompletionQueue {
                number,
                entry_size: size,
                real_time: input.flags.contains(DriverFlags::REAL_TIME_TS),
                user_handle: request.user_handle,
                channel,
                events,
                told: Default::default(),
                ring: Mutex::new(ring),
                _record: record,
            },
        );
        Ok(CqCreated {
            handle: Cq(handle),
            cqe: entries - 1,
            udata: CreateCqResp {
                cqn: number,
                ..CreateCqResp::default()
            },
        })
    }

    /// Gives a completion queue another ring. `EINVAL`, and nothing has happened, if more completions wait than
    /// it has entries.
    ///
    /// # Safety
    ///
    /// As for [`Uctx::resize_cq_with`](crate::control::kernel::Uctx::resize_cq_with).
    pub unsafe fn resize_cq(
        &self,
        handle: Cq,
        cqe: u32,
        input: &DriverResize,
    ) -> Result<CqResized<()>, Errno> {
        if !self.caps.general.cq_resize() {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        let entries = self.cq_entries(cqe)?;
        let queue = self.cqs.get(handle.0)?;
        let size = u32::from(input.cqe_size);
        if size != queue.entry_size {
            return Err(Errno(libc::EINVAL));
        }
        let bytes = u64::from(entries) * u64::from(size);
        let new = Ring::new(&*self.platform, input.buf_addr, bytes)?;
        let mut bytes = with_pages(ModifyCqIn::SIZE, &new);
        let mut command = ModifyCqIn::new(&mut bytes[..]).map_err(|_| Errno(libc::EINVAL))?;
        command
            .set_opcode(Opcode::MODIFY_CQ.0)
            .set_op_mod(RESIZE)
            .set_cqn(queue.number)
            .set_modify_field_select_resize_field_select(MODIFY_RING);
        let mut context = command.cq_context_mut();
        describe_ring(&mut context, &new, entries, entry_code(size, false));
        // one at a time, so that the ring that is kept is the one that the device has
        let mut ring = queue.ring.lock().unwrap_or_else(PoisonError::into_inner);
        self.run_bytes::<16>(&bytes)?;
        *ring = new;
        Ok(CqResized {
            cqe: entries - 1,
            udata: (),
        })
    }

    /// Holds events back. `EOPNOTSUPP` if the device cannot, `EINVAL` for a period of more than 12 bits.
    pub fn modify_cq_moderation(&self, handle: Cq, count: u16, period: u16) -> Result<(), Errno> {
        if !self.caps.general.cq_moderation() {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        if period > MAX_PERIOD {
            return Err(Errno(libc::EINVAL));
        }
        let queue = self.cqs.get(handle.0)?;
        let mut command = ModifyCqIn::zeroed();
        command
            .set_opcode(Opcode::MODIFY_CQ.0)
            .set_cqn(queue.number)
            .set_modify_field_select_resize_field_select(MODIFY_MODERATION);
        command
            .cq_context_mut()
            .set_cq_period(period)
            .set_cq_max_count(count);
        self.run_bytes::<16>(command.as_bytes()).map(drop)
    }

    /// Destroys a completion queue. `EBUSY` while queues complete there.
    pub fn destroy_cq(&self, handle: Cq) -> Result<DestroyCqResp, Errno> {
        self.cqs.remove(handle.0, |queue| {
            self.run_on(Opcode::DESTROY_CQ, queue.number)?;
            Ok(queue.told())
        })
    }

    /// The device says that a completion queue has completions: tells its channel.
    pub fn completion_event(&self, number: u32) {
        self.cqs.look(number, |queue| {
            if let Some(channel) = &queue.channel {
                queue.told[0].fetch_add(1, Ordering::Relaxed);
                channel.completion(queue.user_handle);
            }
        });
    }

    /// The device says that a completion queue is in error.
    pub(super) fn cq_error(&self, number: u32) {
        self.cqs.look(number, |queue| {
            if let Some(file) = &queue.events {
                queue.told[1].fetch_add(1, Ordering::Relaxed);
                file.tell(EventType::CQ_ERR, queue.user_handle);
            }
        });
    }
}
