//! oxverbs' untyped core: the control path and the data paths of rxe and mlx5, which the native API and
//! the libibverbs plug-in both stand on. What the typed API makes impossible to say (a READ on an
//! unreliable pair, a transition without an attribute) can be said here, so that it is tested.

mod acks;
mod calls;
mod convert;
mod extras;
mod mlx5;
mod table;

use std::collections::HashMap;
use std::ffi::CString;
use std::ops::Deref;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use oxverbs::control::kernel::Uctx;
use oxverbs::control::mlx5::environment::Environment;
use oxverbs::control::mlx5::{Mlx5Context, Opened};
use oxverbs::control::vfio::linux::{VFIO, VfioPci};
use oxverbs::control::vfio::{self, pci::Pci};
use oxverbs::data::rxe::{CompletionQueue, Doorbell, PostError, RecvQueue, SendQueue};
use oxverbs::sys::errno::Errno;
use oxverbs::sys::kernel::KernelRef;
use oxverbs::sys::mapping::SharedMapping;
use soft_connectx::in_process::InProcess;
use soft_connectx::{Config, LinkLayer};
use uverbs_abi::handle;
use uverbs_abi::types::DriverId;
use uverbs_abi::udata::rxe::MmapInfo;
use uverbs_abi::write::ah::{AhAttr, GlobalRoute};
use wqe_format::rxe;

use super::memory::Memory;
use super::types::*;
use acks::Acks;
use mlx5::Mlx5;
use table::Table;

/// A device opened by the core.
#[derive(Debug)]
pub(crate) struct Core {
    uctx: Holder,
    mlx5: Option<Mlx5>,
    events: OwnedFd,
    name: String,
    memory: Memory,
    pds: Table<handle::Pd>,
    mrs: Table<handle::Mr>,
    channels: Table<ChannelState>,
    cqs: Table<CqState>,
    qps: Table<QpState>,
    srqs: Table<SrqState>,
    ahs: Table<AhState>,
    mws: Table<handle::Mw>,
    /// Keys of type 1 windows after their last bind.
    bound: Mutex<HashMap<u32, u32>>,
}

#[derive(Debug)]
struct ChannelState {
    file: OwnedFd,
    /// Completion queues that use it.
    users: Mutex<u32>,
}

#[derive(Debug)]
struct CqState {
    handle: handle::Cq,
    queue: Mutex<CompletionQueue>,
    channel: Option<Channel>,
    acks: Acks,
}

#[derive(Debug)]
struct QpState {
    handle: handle::Qp,
    doorbell: Doorbell,
    sq: Mutex<Option<SendQueue>>,
    rq: Mutex<Option<RecvQueue>>,
}

#[derive(Debug)]
struct SrqState {
    handle: handle::Srq,
    queue: Mutex<RecvQueue>,
}

#[derive(Debug)]
struct AhState {
    handle: handle::Ah,
    number: u32,
}

/// Who has the descriptor.
#[derive(Debug)]
enum Holder {
    /// This.
    Own(Uctx),
    /// mlx5's context.
    Mlx5(Arc<Mlx5Context>),
}

impl Deref for Holder {
    type Target = Uctx;

    fn deref(&self) -> &Uctx {
        match self {
            Self::Own(uctx) => uctx,
            Self::Mlx5(context) => context.uctx(),
        }
    }
}

impl Core {
    pub(crate) fn open(name: &str) -> Answer<Self> {
        let what = |errno| fault("open the device", errno);
        if let Some(pci) = driven(name)? {
            let objects = vfio::open(pci, vfio::hca::Options::default());
            let objects = objects.map_err(|error| Fault {
                errno: Some(error.errno().0),
                what: format!("drive the device: {error}"),
            })?;
            let uctx = Uctx::over(objects).map_err(what)?;
            let opened = Mlx5Context::open(uctx, Environment::of_process());
            return Self::over(name, opened.map_err(|error| what(error.into()))?);
        }
        let node = node_of(name)?;
        if is_mlx5(name) {
            let uctx = Uctx::open(KernelRef::Linux, &node, DriverId::MLX5).map_err(what)?;
            let opened = Mlx5Context::open(uctx, Environment::of_process());
            return Self::over(name, opened.map_err(|error| what(error.into()))?);
        }
        // The kernel refuses every command if the driver is another.
        let uctx = Uctx::open(KernelRef::Linux, &node, DriverId::RXE).map_err(what)?;
        uctx.get_context::<()>().map_err(what)?;
        let events = uctx.alloc_async_event().map_err(what)?;
        Ok(Self::new(name, Holder::Own(uctx), None, events))
    }

    /// A context of mlx5.
    fn over(name: &str, opened: Opened) -> Answer<Self> {
        let context = opened.context;
        let events = match opened.async_event {
            Some(events) => events,
            None => (context.uctx().alloc_async_event())
                .map_err(|errno| fault("open the device", errno))?,
        };
        let mlx5 = Mlx5::new(context.clone());
        Ok(Self::new(name, Holder::Mlx5(context), Some(mlx5), events))
    }

    fn new(name: &str, uctx: Holder, mlx5: Option<Mlx5>, events: OwnedFd) -> Self {
        Self {
            uctx,
            mlx5,
            events,
            name: name.to_owned(),
            memory: Memory::default(),
            pds: Table::default(),
            mrs: Table::default(),
            channels: Table::default(),
            cqs: Table::default(),
            qps: Table::default(),
            srqs: Table::default(),
            ahs: Table::default(),
            mws: Table::default(),
            bound: Mutex::default(),
        }
    }

    fn map(&self, info: &MmapInfo) -> Answer<SharedMapping> {
        SharedMapping::map(self.uctx.fd(), info.size as usize, info.offset)
            .map_err(|errno| fault("map a queue", errno))
    }
}

/// A device that this process drives itself: one of vfio-pci's, or `soft` and `soft-ib`, a ConnectX in this process with an
/// Ethernet and an InfiniBand port; `-vf` behind those makes it a virtual function, `:SEED` an adversary.
fn driven(name: &str) -> Answer<Option<Arc<dyn Pci>>> {
    if let Some(address) = name.strip_prefix(VFIO) {
        let pci = VfioPci::open(address).map_err(|error| Fault {
            errno: None,
            what: error.to_string(),
        })?;
        return Ok(Some(Arc::new(pci)));
    }
    Ok(in_process(name).map(|config| -> Arc<dyn Pci> { InProcess::new(config) }))
}

/// What a device in software is made as.
fn in_process(name: &str) -> Option<Config> {
    let (name, seed) = match name.split_once(':') {
        Some((name, seed)) => (name, seed.parse().ok()),
        None => (name, None),
    };
    let (name, virtual_function) = match name.strip_suffix("-vf") {
        Some(name) => (name, true),
        None => (name, false),
    };
    let link = match name {
        "soft" => LinkLayer::Ethernet,
        "soft-ib" => LinkLayer::InfiniBand,
        _ => return None,
    };
    Some(Config {
        link,
        adversary: seed,
        virtual_function,
        ..Config::default()
    })
}

/// Whether a device is one that its user drives, not the kernel.
pub(crate) fn is_driven(name: &str) -> bool {
    name.starts_with(VFIO) || in_process(name).is_some()
}

/// Whether the kernel's driver of a device is mlx5's.
fn is_mlx5(name: &str) -> bool {
    oxverbs::Device::named(name).is_ok_and(|device| device.driver() == oxverbs::Driver::Mlx5)
}

/// The uverbs node whose device has this name.
fn node_of(name: &str) -> Answer<CString> {
    let missing = || Fault::errno(libc::ENODEV, format!("find RDMA device {name}"));
    let class = std::fs::read_dir("/sys/class/infiniband_verbs").map_err(|_| missing())?;
    for entry in class.flatten() {
        let device = std::fs::read_to_string(entry.path().join("ibdev")).unwrap_or_default();
        if device.trim() == name {
            let node = entry.file_name().to_string_lossy().into_owned();
            return CString::new(format!("/dev/infiniband/{node}")).map_err(|_| missing());
        }
    }
    Err(missing())
}

fn fault(what: &str, errno: Errno) -> Fault {
    Fault::errno(errno.0, what)
}

fn bad_ring<E: std::fmt::Display>(error: E) -> Fault {
    Fault {
        errno: None,
        what: format!("use the kernel's queue: {error}"),
    }
}

fn post_fault(index: usize, error: PostError) -> PostFault {
    PostFault {
        index,
        fault: Fault::errno(error.errno().0, format!("post: {error}")),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no panic under the lock")
}

/// Whether `file` becomes readable in `timeout`.
fn readable(file: &OwnedFd, timeout: Duration) -> bool {
    let mut poll = libc::pollfd {
        fd: file.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let millis = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: one entry, which outlives the call.
    unsafe { libc::poll(&raw mut poll, 1, millis) > 0 }
}

/// One event record.
fn read_record<const N: usize>(file: &OwnedFd) -> Answer<[u8; N]> {
    let mut bytes = [0; N];
    // SAFETY: `bytes` is writable for its whole length.
    let got = unsafe { libc::read(file.as_raw_fd(), bytes.as_mut_ptr().cast(), N) };
    match usize::try_from(got) {
        Ok(len) if len == N => Ok(bytes),
        Ok(_) => Err(Fault::errno(libc::EPROTO, "read an event")),
        Err(_) => Err(fault("read an event", Errno::last())),
    }
}

fn path(route: &Route) -> AhAttr {
    AhAttr {
        grh: GlobalRoute {
            dgid: route.gid,
            flow_label: route.flow_label,
            sgid_index: route.sgid_index,
            hop_limit: route.hop_limit,
            traffic_class: route.traffic_class,
            ..GlobalRoute::default()
        },
        dlid: route.lid,
        is_global: 1,
        port_num: route.port,
        ..AhAttr::default()
    }
}

fn sges(list: &[Sge]) -> Vec<rxe::Sge> {
    list.iter()
        .map(|sge| rxe::Sge {
            addr: sge.addr,
            length: sge.len,
            lkey: sge.lkey,
        })
        .collect()
}

fn operation(op: &Op) -> rxe::Operation {
    use rxe::Operation;
    match *op {
        Op::Send => Operation::Send,
        Op::SendImm(imm) => Operation::SendWithImm { imm: imm.into() },
        Op::SendInv(rkey) => Operation::SendWithInv { rkey },
        Op::Write(Remote { addr, rkey }) => Operation::RdmaWrite {
            remote_addr: addr,
            rkey,
        },
        Op::WriteImm(Remote { addr, rkey }, imm) => Operation::RdmaWriteWithImm {
            remote_addr: addr,
            rkey,
            imm: imm.into(),
        },
        Op::Read(Remote { addr, rkey }) => Operation::RdmaRead {
            remote_addr: addr,
            rkey,
        },
        Op::CompareSwap {
            remote: Remote { addr, rkey },
            compare,
            swap,
        } => Operation::AtomicCmpAndSwp {
            remote_addr: addr,
            rkey,
            compare,
            swap,
        },
        Op::FetchAdd {
            remote: Remote { addr, rkey },
            add,
        } => Operation::AtomicFetchAndAdd {
            remote_addr: addr,
            rkey,
            add,
        },
        Op::AtomicWrite(Remote { addr, rkey }, _) => Operation::AtomicWrite {
            remote_addr: addr,
            rkey,
        },
        Op::Flush {
            remote: Remote { addr, rkey },
            len,
            kind,
            level,
        } => Operation::Flush(rxe::Flush {
            remote_addr: addr,
            length: len,
            rkey,
            placement: kind,
            selectivity: level,
        }),
        Op::LocalInv(rkey) => Operation::LocalInv { rkey },
        Op::BindMw(bind) => Operation::BindMw(bind_arguments(&bind)),
    }
}

fn bind_arguments(bind: &Bind) -> rxe::BindMw {
    rxe::BindMw {
        addr: bind.addr,
        length: bind.len,
        mr_lkey: bind.mr.lkey,
        mw_rkey: bind.mw.rkey,
        rkey: bind.rkey,
        access: rxe::Access(bind.access),
    }
}
