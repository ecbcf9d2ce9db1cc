//! An open mlx5 device.

use std::any::Any;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use uverbs_abi::types::{CoreSupport, DriverId, GidType};
use uverbs_abi::udata::mlx5::mmap::{self, MmapCommand};
use uverbs_abi::udata::mlx5::{
    AllocUcontextFlags, AllocUcontextReqV2, CLOCK_INFO_V1, CmdsSuppUhw, LibCaps, QueryDeviceResp,
};
use uverbs_abi::write::device::ExQueryDeviceResp;

use super::av::Wire;
use super::buffer::{Allocator, ContextAllocator, HugePool, Source};
use super::dbrec::RecordPool;
use super::entry::Numbers;
use super::environment::{Environment, QueueKind as Setting, UAR_SIZE};
use super::file::DeviceFile;
use super::pages::{DrivenPages, KernelPages};
use super::response::{BadResponse, ContextLimits, CqeVersion};
use super::uar::{Layout, Uars};
use super::user_index::UserIndices;
use crate::control::kernel::{self, Uctx};
use crate::data::mlx5::cq::ClockPage;
use crate::data::mlx5::{BlueFlame, CqeVersion as Tables, ErrorLog, SignatureKeys, UserIndexTable};
use crate::sys::errno::Errno;
use crate::sys::fd::UverbsFd;
use crate::sys::mapping::SharedMapping;
use crate::sys::pages::page_size;

/// Link layer of InfiniBand ports (`IBV_LINK_LAYER_INFINIBAND`).
const LINK_INFINIBAND: u8 = 1;
/// And of Ethernet ports.
const LINK_ETHERNET: u8 = 2;

/// Why a device does not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// The kernel said so.
    Kernel(Errno),
    /// The kernel answered something that no device can mean.
    Response(BadResponse),
    /// `MLX5_TOTAL_UUARS` and `MLX5_NUM_LOW_LAT_UUARS` ask for registers that a process cannot have.
    Environment(Errno),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel(errno) => errno.fmt(f),
            Self::Response(bad) => bad.fmt(f),
            Self::Environment(_) => f.write_str(
                "MLX5_TOTAL_UUARS or MLX5_NUM_LOW_LAT_UUARS is out of range: at most 512 registers, \
                 one of them not of low latency",
            ),
        }
    }
}

impl std::error::Error for OpenError {}

impl From<Errno> for OpenError {
    fn from(errno: Errno) -> Self {
        Self::Kernel(errno)
    }
}

impl From<BadResponse> for OpenError {
    fn from(bad: BadResponse) -> Self {
        Self::Response(bad)
    }
}

impl From<OpenError> for Errno {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Kernel(errno) | OpenError::Environment(errno) => errno,
            OpenError::Response(bad) => bad.into(),
        }
    }
}

/// What an opened device says besides the context.
#[derive(Debug)]
pub struct Opened {
    /// The context.
    pub context: Arc<Mlx5Context>,
    /// Completion vectors of the device.
    pub num_comp_vectors: u32,
    /// What the kernel's core can do.
    pub core_support: CoreSupport,
    /// The file of asynchronous events, if the kernel made it already.
    pub async_event: Option<std::os::fd::OwnedFd>,
}

/// What was found out about a port when the device was opened.
#[derive(Clone, Copy, Debug, Default)]
struct Port {
    /// 0 if the kernel did not say.
    link_layer: u8,
    grh_required: bool,
}

/// What keeps a clock page.
pub type ClockKeep = Arc<dyn Any + Send + Sync>;

/// An open mlx5 device: what all of its objects share.
pub struct Mlx5Context {
    uctx: Arc<DeviceFile>,
    environment: Environment,
    limits: ContextLimits,
    attr: ExQueryDeviceResp,
    device: QueryDeviceResp,
    devx: bool,
    ports: Vec<Port>,
    uars: Arc<Uars>,
    allocator: Arc<ContextAllocator>,
    records: Arc<RecordPool>,
    huge: Arc<HugePool>,
    indices: Arc<UserIndices>,
    numbers: Numbers,
    tables: Tables,
    error_log: Arc<ErrorLog>,
    signatures: Arc<SignatureKeys>,
    clock_info: Option<(ClockPage, ClockKeep)>,
    core_clock: Option<(SharedMapping, usize)>,
}

impl Mlx5Context {
    /// Opens the device behind a descriptor on which no context was made yet.
    ///
    /// Kernels are asked for less until they agree, see
    /// [`Uctx::get_context_mlx5`](crate::control::kernel::Uctx::get_context_mlx5).
    pub fn open(uctx: Uctx, environment: Environment) -> Result<Opened, OpenError> {
        let page = page_size();
        let (total, low_latency) = environment.bfregs(page).map_err(OpenError::Environment)?;
        let uctx = Arc::new(DeviceFile::new(uctx));
        let answer = uctx.get_context_mlx5(AllocUcontextReqV2 {
            total_num_bfregs: total,
            num_low_latency_bfregs: low_latency,
            flags: AllocUcontextFlags::DEVX,
            max_cqe_version: 1,
            lib_caps: LibCaps(LibCaps::UAR_4K.0 | LibCaps::DYN_UAR.0),
            ..AllocUcontextReqV2::default()
        })?;
        Self::set_up(uctx, environment, answer)
    }

    /// Takes part in the context that another process made on this descriptor, and passed with it.
    ///
    /// `EINVAL` of kernels before 5.7: the doorbell registers came with their context, and another process has them.
    pub fn import(uctx: Uctx, environment: Environment) -> Result<Opened, OpenError> {
        let uctx = Arc::new(DeviceFile::new(uctx));
        let info = uctx.query_context_mlx5()?;
        if info.udata.tot_bfregs != 0 {
            return Err(OpenError::Kernel(Errno(libc::EINVAL)));
        }
        // Whether the other process asked for it, the kernel does not say; where it did not, it refuses each use.
        let devx = true;
        Self::set_up(uctx, environment, kernel::Mlx5Context { info, devx })
    }

    /// What is done of a context of the kernel's, however it came.
    fn set_up(
        uctx: Arc<DeviceFile>,
        environment: Environment,
        answer: kernel::Mlx5Context,
    ) -> Result<Opened, OpenError> {
        let page = page_size();
        let (total, low_latency) = environment.bfregs(page).map_err(OpenError::Environment)?;
        let limits = ContextLimits::new(&answer.info.udata, page)?;
        let clock_info = match limits.clock_info {
            true => clock_info(&uctx),
            false => None,
        };
        let core_clock = limits.core_clock_offset.and_then(|offset| {
            let mapping = map_clock(&uctx, MmapCommand::CORE_CLOCK, 0)?;
            Some((mapping, usize::try_from(offset).ok()?))
        });
        let (attr, device) = query_device(&uctx, limits.commands);
        let ports = (1..=limits.num_ports)
            .map(|port| query_port(&uctx, port).unwrap_or_default())
            .collect();
        let layout = Layout {
            register_size: limits.bf_reg_size,
            uars_per_page: limits.uars_per_page,
            blue_flame: if environment.no_blue_flame {
                BlueFlame::Off
            } else if environment.prefer_blue_flame {
                BlueFlame::Always
            } else {
                BlueFlame::Inline
            },
            single_threaded: environment.single_threaded,
        };
        let source = KernelPages::new(uctx.clone());
        let uars = if let Some(objects) = uctx.objects() {
            let source = DrivenPages::new(objects.clone());
            Uars::dynamic(layout, total, low_latency, Box::new(source))?
        } else if limits.tot_bfregs == 0 {
            Uars::dynamic(layout, total, low_latency, Box::new(source))?
        } else {
            let pages = source.of_context(
                limits.tot_bfregs / (limits.uars_per_page * super::environment::BFREGS_PER_UAR),
                environment.no_blue_flame,
            )?;
            Uars::with_context(
                layout,
                limits.tot_bfregs,
                low_latency,
                pages,
                limits.num_dyn_bfregs,
                Box::new(source),
            )?
        };
        let allocator = Arc::<ContextAllocator>::default();
        let context = Self {
            records: Arc::new(RecordPool::new(
                limits.cache_line_size as usize,
                allocator.clone(),
            )),
            allocator,
            huge: Arc::default(),
            indices: Arc::default(),
            numbers: Numbers::default(),
            tables: match limits.cqe_version {
                CqeVersion::V1 => Tables::V1(UserIndexTable::new()),
                CqeVersion::V0 => Tables::V0 {
                    queue_pairs: UserIndexTable::new(),
                    shared_queues: UserIndexTable::new(),
                },
            },
            error_log: Arc::new(error_log(&environment)),
            signatures: Arc::default(),
            uctx,
            environment,
            limits,
            attr,
            device,
            devx: answer.devx,
            ports,
            uars,
            clock_info,
            core_clock,
        };
        Ok(Opened {
            context: Arc::new(context),
            num_comp_vectors: answer.info.num_comp_vectors,
            core_support: answer.info.core_support,
            async_event: answer.info.async_event,
        })
    }

    /// The descriptor.
    pub fn uctx(&self) -> &Uctx {
        &self.uctx
    }

    /// The settings it was opened with.
    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    /// What the context can do.
    pub fn limits(&self) -> &ContextLimits {
        &self.limits
    }

    /// Attributes of the device as they were when it was opened; all zero if the kernel did not say.
    pub fn attributes(&self) -> &ExQueryDeviceResp {
        &self.attr
    }

    /// The driver's part of them.
    pub fn device(&self) -> &QueryDeviceResp {
        &self.device
    }

    /// Whether the context may have DEVX objects.
    pub fn has_devx(&self) -> bool {
        self.devx
    }

    /// Whether the device does atomics.
    pub fn has_atomics(&self) -> bool {
        self.attr.base.atomic_cap != 0
    }

    /// Doorbell registers.
    pub fn uars(&self) -> &Arc<Uars> {
        &self.uars
    }

    /// Where completions find their queues.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Where errors are written about.
    pub fn error_log(&self) -> &Arc<ErrorLog> {
        &self.error_log
    }

    /// Keys with signatures: where completion queues keep errors of those.
    pub fn signatures(&self) -> &Arc<SignatureKeys> {
        &self.signatures
    }

    /// Memory of queues and doorbell records that are made from now on comes from here, but for queues with an allocator
    /// of their own; `None` for the process' own pages again.
    pub fn set_allocator(&self, allocator: Option<Arc<dyn Allocator>>) {
        self.allocator.set(allocator);
    }

    pub(super) fn records(&self) -> &Arc<RecordPool> {
        &self.records
    }

    pub(super) fn huge_pages(&self) -> &Arc<HugePool> {
        &self.huge
    }

    pub(super) fn indices(&self) -> &Arc<UserIndices> {
        &self.indices
    }

    pub(super) fn numbers(&self) -> &Numbers {
        &self.numbers
    }

    /// Keeps memory that the kernel did not let go of, until the device is closed.
    pub(super) fn abandon(&self, memory: impl Any + Send + Sync) {
        self.uctx.abandon(Box::new(memory));
    }

    /// Where the memory of a queue comes from.
    pub(super) fn source(&self, custom: Option<&Arc<dyn Allocator>>, setting: Setting) -> Source {
        Source {
            custom: custom.cloned(),
            context: self.allocator.get(),
            allocation: self.environment.allocation(setting),
        }
    }

    /// The key that memory which is not there has, for the data path; 0 if there is none.
    pub(super) fn null_lkey(&self) -> u32 {
        self.limits.dump_fill_mkey.unwrap_or(0)
    }

    /// Whether there are Ethernet ports.
    pub(super) fn has_ethernet(&self) -> bool {
        self.ports
            .iter()
            .any(|port| port.link_layer == LINK_ETHERNET)
    }

    /// Whether objects may be destroyed: not by a forked child, whose descriptor is the parent's.
    pub(super) fn is_ours(&self) -> bool {
        self.uctx.fd().is_owned_by_this_process()
    }

    /// The page that turns the device's time into wall-clock time, with what keeps it.
    pub fn clock_page(&self) -> Option<(ClockPage, ClockKeep)> {
        self.clock_info.clone()
    }

    /// The register from which the device's time is read, 8 bytes in its order, as long as the context lives; `None` if it is
    /// not mapped.
    pub fn clock_register(&self) -> Option<NonNull<u8>> {
        let (mapping, offset) = self.core_clock.as_ref()?;
        // SAFETY: the offset is within the page, checked when the answer was read.
        Some(unsafe { mapping.start().add(*offset) })
    }

    /// The device's time, in its own units; `None` if it cannot be read.
    pub fn read_clock(&self) -> Option<u64> {
        if let Some(objects) = self.uctx.objects() {
            return objects.platform().timer().ok();
        }
        let (mapping, offset) = self.core_clock.as_ref()?;
        // SAFETY: the offset is a multiple of 8 within the page, checked when the answer was read.
        let high: NonNull<u32> = unsafe { mapping.start().add(*offset) }.cast();
        // SAFETY: the word behind it, of the same 8 bytes.
        let low = unsafe { high.add(1) };
        // SAFETY: a register in a mapped page, aligned.
        let read = |word: NonNull<u32>| u32::from_be(unsafe { word.read_volatile() });
        let mut before = read(high);
        loop {
            let value = read(low);
            let after = read(high);
            // the upper half changes once in seconds, so this ends
            if before == after {
                return Some(u64::from(after) << 32 | u64::from(value));
            }
            before = after;
        }
    }

    /// What the paths of a port go over; needs the GID's type on Ethernet. `EINVAL` if there is no such
    /// port or no such GID.
    pub fn wire(&self, port: u8, is_global: bool, sgid_index: u8) -> Result<Wire, Errno> {
        let known = usize::from(port)
            .checked_sub(1)
            .and_then(|index| self.ports.get(index))
            .ok_or(Errno(libc::EINVAL))?;
        let known = if known.link_layer == 0 {
            query_port(&self.uctx, port)?
        } else {
            *known
        };
        let ethernet = known.link_layer == LINK_ETHERNET;
        if !is_global && (ethernet || known.grh_required) {
            return Err(Errno(libc::EINVAL));
        }
        if !ethernet {
            return Ok(Wire::InfiniBand);
        }
        match self.uctx.query_gid_entry(port.into(), sgid_index.into()) {
            Ok(entry) if entry.gid_type == GidType::ROCE_V2 => Ok(Wire::RoceV2),
            Ok(_) => Ok(Wire::RoceV1),
            // kernels before 5.10 say it in sysfs only, and those have had RoCE v2 as default since 4.5
            Err(Errno(libc::EOPNOTSUPP)) => Ok(Wire::RoceV2),
            Err(errno) => Err(errno),
        }
    }
}

impl fmt::Debug for Mlx5Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mlx5Context")
            .field("uctx", &self.uctx)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// Opens a descriptor for [`Mlx5Context::open`].
pub fn uctx(fd: UverbsFd) -> Result<Uctx, Errno> {
    Uctx::new(fd, DriverId::MLX5)
}

/// A page of a clock; `None` if the kernel does not map it, which only costs the feature.
/// The page that turns the device's time into wall-clock time: the kernel's, or that of who drives the device.
fn clock_info(uctx: &Uctx) -> Option<(ClockPage, ClockKeep)> {
    if let Some(objects) = uctx.objects() {
        let clock = objects.platform().clock()?;
        // SAFETY: a page of memory, which is longer than 56 bytes and stays as long as the clock that is handed out with it.
        let page = unsafe { ClockPage::new(clock.start()) };
        return Some((page, clock));
    }
    let mapping = map_clock(uctx, MmapCommand::CLOCK_INFO, CLOCK_INFO_V1.into())?;
    // SAFETY: a page of the kernel's, which is longer than 56 bytes and stays as long as the mapping that is handed out with it.
    let page = unsafe { ClockPage::new(mapping.start()) };
    Some((page, Arc::new(mapping)))
}

fn map_clock(uctx: &Uctx, command: MmapCommand, index: u32) -> Option<SharedMapping> {
    let offset = mmap::offset(command, index, page_size() as u64)?;
    SharedMapping::map_read_only(uctx.fd(), page_size().max(UAR_SIZE), offset).ok()
}

/// What the device can do; nothing of what the kernel does not say.
fn query_device(uctx: &Uctx, commands: CmdsSuppUhw) -> (ExQueryDeviceResp, QueryDeviceResp) {
    let none = || (ExQueryDeviceResp::default(), QueryDeviceResp::default());
    if commands.contains(CmdsSuppUhw::QUERY_DEVICE) {
        uctx.query_device_ex::<QueryDeviceResp>()
            .map_or_else(|_| none(), |answer| (answer.attr, answer.udata))
    } else {
        uctx.query_device_ex::<()>().map_or_else(
            |_| none(),
            |answer| (answer.attr, QueryDeviceResp::default()),
        )
    }
}

fn query_port(uctx: &Uctx, port: u8) -> Result<Port, Errno> {
    use uverbs_abi::types::QueryPortFlags;
    let attr = uctx.query_port(port)?.legacy_resp;
    Ok(Port {
        link_layer: match attr.link_layer {
            LINK_ETHERNET => LINK_ETHERNET,
            _ => LINK_INFINIBAND,
        },
        grh_required: attr.flags.contains(QueryPortFlags::GRH_REQUIRED),
    })
}

/// The file that `MLX5_DEBUG_FILE` names; without one that can be written, none.
fn error_log(environment: &Environment) -> ErrorLog {
    let host = crate::sys::host::name().unwrap_or_else(|| "host_unknown".into());
    let freeze = environment.freeze_on_error;
    ErrorLog::new(environment.debug_file.as_deref(), host.clone(), freeze)
        .or_else(|_| ErrorLog::new(None, host, freeze))
        .unwrap_or_default()
}
