//! An open device.

use std::ffi::CString;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use uverbs_abi::types::{self, DriverId};

use super::advice;
use super::attributes::{DeviceAttributes, PortAttributes};
use super::channel::CompletionChannel;
use super::cq::CompletionQueue;
use super::device::{Device, Driver, Guid, NodeType};
use super::discovery;
use super::event::{self, AsyncEvent};
use super::gid::{Gid, GidEntry};
use super::neighbours::Station;
use super::pd::ProtectionDomain;
use crate::control::kernel::Uctx;
use crate::control::mlx5::environment::Environment;
use crate::control::mlx5::{Mlx5Context, OpenError, Opened};
use crate::control::vfio;
use crate::control::vfio::hca::Options;
use crate::control::vfio::linux::{VFIO, VfioPci};
use crate::control::vfio::objects::DriverUsage;
use crate::control::vfio::pci::Pci;
use crate::error::{Error, Result};
use crate::sys::fd::UverbsFd;
use crate::sys::kernel::KernelRef;
use crate::sys::{Errno, sysfs};

/// An open device, the parent of all objects. Cheap to clone; the device closes with its last object.
///
/// ```no_run
/// # fn main() -> oxverbs::Result<()> {
/// let context = oxverbs::Context::open("rxe0")?;
/// println!("{:?}", context.query_port(1)?.active_mtu());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Context {
    pub(super) inner: Arc<ContextInner>,
}

#[derive(Debug)]
pub(super) struct ContextInner {
    pub(super) family: Family,
    pub(super) events: UverbsFd,
    device: Device,
    num_comp_vectors: u32,
    /// Who answers for the addresses of a RoCE port that this process drives.
    _station: Option<Station>,
}

/// Whose queues a device has, and how the kernel is reached.
#[derive(Debug)]
pub(super) enum Family {
    Rxe(Uctx),
    Mlx5(Arc<Mlx5Context>),
}

impl Family {
    #[inline]
    fn uctx(&self) -> &Uctx {
        match self {
            Self::Rxe(uctx) => uctx,
            Self::Mlx5(context) => context.uctx(),
        }
    }
}

impl ContextInner {
    /// The device file.
    #[inline]
    pub(super) fn uctx(&self) -> &Uctx {
        self.family.uctx()
    }

    /// Whether objects may be destroyed: not by a forked child, whose descriptor is the parent's.
    pub(super) fn is_ours(&self) -> bool {
        self.uctx().fd().is_owned_by_this_process()
    }

    /// Where new objects send their asynchronous events.
    pub(super) fn events_fd(&self) -> RawFd {
        self.events.as_raw_fd()
    }
}

impl Context {
    /// Opens the device called `name`, such as `rxe0`, or `vfio:0000:3b:00.0` for one that vfio-pci has and this process
    /// shall drive.
    ///
    /// # Errors
    ///
    /// Says what to do: modules to load, names there are, rights on the device node, commands that give a device to
    /// vfio-pci.
    pub fn open(name: &str) -> Result<Self> {
        match name.strip_prefix(VFIO) {
            Some(address) => Self::over_pci(Arc::new(VfioPci::open(address)?)),
            None => Self::of_device(&Device::named(name)?),
        }
    }

    /// Opens the first device that this library drives.
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open).
    pub fn open_first() -> Result<Self> {
        let devices = discovery::devices()?;
        match devices
            .iter()
            .find(|device| driver(device).is_some())
            .or(devices.first())
        {
            Some(device) => Self::of_device(device),
            None => Err(Error::refused("open an RDMA device", advice::NO_DEVICE)),
        }
    }

    /// Opens `device`.
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open).
    pub fn of_device(device: &Device) -> Result<Self> {
        Self::with_kernel(device, KernelRef::Linux)
    }

    /// Drives a function of PCI Express from this process, without a kernel driver: the one of a ConnectX, real or in
    /// software. It is reset first.
    ///
    /// # Errors
    ///
    /// Says how far the device came, and what its firmware says.
    pub fn over_pci(pci: Arc<dyn Pci>) -> Result<Self> {
        Self::over_pci_with(pci, Options::default())
    }

    /// [`over_pci`](Self::over_pci), with a choice of how the device is driven.
    ///
    /// # Errors
    ///
    /// As for [`over_pci`](Self::over_pci).
    pub fn over_pci_with(pci: Arc<dyn Pci>, options: Options) -> Result<Self> {
        let name = pci.name();
        let action = || format!("drive {name}");
        let failed = |errno| Error::kernel(action(), errno);
        let objects = vfio::open(pci, options).map_err(|error| {
            let errno = error.errno();
            Error::kernel(action(), errno).advise(match errno.0 {
                // Memory that a device reaches is locked.
                libc::ENOMEM => format!("{error}; {}", advice::locked_memory()),
                _ => error.to_string(),
            })
        })?;
        let guid = objects
            .query_device_ex()
            .map_err(failed)?
            .attr
            .base
            .node_guid;
        let uctx = Uctx::over(objects.clone()).map_err(failed)?;
        let opened = open_mlx5(uctx, action)?;
        let events = match opened.async_event {
            Some(events) => events,
            None => opened.context.uctx().alloc_async_event().map_err(failed)?,
        };
        let device = Device {
            uverbs_name: String::new(),
            node_type: NodeType::ChannelAdapter,
            guid: Guid(u64::from_be_bytes(guid)),
            driver: Driver::Mlx5,
            abi_version: 1,
            sysfs_path: Default::default(),
            name: name.clone(),
        };
        let context = |events, station| ContextInner {
            events: event_file(&KernelRef::Linux, events),
            family: Family::Mlx5(opened.context.clone()),
            device: device.clone(),
            num_comp_vectors: opened.num_comp_vectors,
            _station: station,
        };
        let station = match objects.has_neighbours() {
            true => {
                // one of its own, or it would keep itself open
                let events = opened.context.uctx().alloc_async_event();
                let inner = Arc::new(context(events.map_err(failed)?, None));
                Some(Station::start(&Self { inner }, &objects)?)
            }
            false => None,
        };
        let inner = Arc::new(context(events, station));
        Ok(Self { inner })
    }

    /// Opens `device` on a kernel of the caller's choice, for tests.
    #[doc(hidden)]
    pub fn with_kernel(device: &Device, kernel: KernelRef) -> Result<Self> {
        let path = device.node_path();
        let action = || format!("open {} ({})", path.display(), device.name());
        let Some(driver) = driver(device) else {
            let advice = format!(
                "oxverbs drives rxe and mlx5; this device's driver is {:?}",
                device.driver
            );
            return Err(Error::refused(action(), advice));
        };
        let c_path = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| Error::refused(action(), "the path holds a NUL byte"))?;
        let failed = |errno| advice::open(action(), errno);
        let uctx = Uctx::open(kernel.clone(), &c_path, driver).map_err(failed)?;
        let (family, async_event, num_comp_vectors) = if driver == DriverId::MLX5 {
            let opened = open_mlx5(uctx, action)?;
            let family = Family::Mlx5(opened.context);
            (family, opened.async_event, opened.num_comp_vectors)
        } else {
            let info = uctx.get_context::<()>().map_err(failed)?;
            (Family::Rxe(uctx), info.async_event, info.num_comp_vectors)
        };
        let events = match async_event {
            Some(events) => events,
            None => family.uctx().alloc_async_event().map_err(failed)?,
        };
        let inner = ContextInner {
            events: event_file(&kernel, events),
            family,
            device: device.clone(),
            num_comp_vectors,
            _station: None,
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.inner.device
    }

    /// Attributes of the device.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn query_device(&self) -> Result<DeviceAttributes> {
        let attributes = self.inner.uctx().query_device_ex::<()>();
        Ok(DeviceAttributes {
            extended: attributes
                .map_err(|errno| Error::kernel("query the device", errno))?
                .attr,
            num_comp_vectors: self.inner.num_comp_vectors,
        })
    }

    /// The device's time, in cycles of its clock; [`DeviceAttributes::nanoseconds`] turns a difference into time.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` of a device without a clock, such as rxe.
    pub fn read_clock(&self) -> Result<u64> {
        let clock = match &self.inner.family {
            Family::Mlx5(context) => context.read_clock(),
            Family::Rxe(_) => None,
        };
        clock.ok_or_else(|| Error::kernel("read the device's clock", Errno(libc::EOPNOTSUPP)))
    }

    /// What this process holds for a device that it drives itself; `None` of one that the kernel drives.
    pub fn driver_usage(&self) -> Option<DriverUsage> {
        let objects = self.inner.uctx().objects()?;
        Some(objects.platform().usage())
    }

    /// Attributes of a port, numbered from 1.
    ///
    /// # Errors
    ///
    /// There is no such port.
    pub fn query_port(&self, port: u8) -> Result<PortAttributes> {
        let extended = self
            .inner
            .uctx()
            .query_port(port)
            .map_err(|errno| Error::kernel(format!("query port {port}"), errno))?;
        Ok(PortAttributes { extended })
    }

    /// One entry of a port's GID table; `None` if it is empty.
    ///
    /// # Errors
    ///
    /// There is no such port or index.
    pub fn query_gid(&self, port: u8, index: u32) -> Result<Option<GidEntry>> {
        match self.inner.uctx().query_gid_entry(port.into(), index) {
            Ok(entry) => Ok(Some(entry.into())),
            Err(Errno(libc::ENODATA)) => Ok(None),
            Err(Errno(libc::EOPNOTSUPP)) => self.gid_of_sysfs(port, index),
            Err(errno) => Err(Error::kernel(
                format!("query GID {index} of port {port}"),
                errno,
            )),
        }
    }

    /// Valid entries of all ports' GID tables.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn gid_table(&self) -> Result<Vec<GidEntry>> {
        let mut ports = Vec::new();
        for port in 1..=self.query_device()?.phys_port_cnt {
            ports.push((port, self.query_port(port)?.gid_tbl_len));
        }
        let room: u32 = ports.iter().map(|&(_, len)| len).sum();
        let mut entries = vec![types::GidEntry::default(); room as usize];
        match self.inner.uctx().query_gid_table(&mut entries) {
            Ok(count) => Ok(entries[..count].iter().map(|&entry| entry.into()).collect()),
            Err(Errno(libc::EOPNOTSUPP)) => {
                let mut table = Vec::new();
                for (port, len) in ports {
                    for index in 0..len {
                        table.extend(self.gid_of_sysfs(port, index)?);
                    }
                }
                Ok(table)
            }
            Err(errno) => Err(Error::kernel("query the GID table", errno)),
        }
    }

    /// Gives a RoCE port that this process drives an IP address, for RoCE v2: answers the index of its GID. Peers learn the
    /// port's MAC address from now on, by ARP and neighbour discovery.
    ///
    /// # Errors
    ///
    /// The table is full. `EOPNOTSUPP` on InfiniBand, and where a kernel drives the port: there addresses are its network
    /// device's.
    pub fn add_address(&self, address: IpAddr) -> Result<u32> {
        let failed = |errno| Error::kernel(format!("give the port the address {address}"), errno);
        let gid = match address {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        let objects = self.inner.uctx().objects();
        let objects = objects.ok_or(failed(Errno(libc::EOPNOTSUPP)))?;
        objects
            .add_gid(gid.octets(), types::GidType::ROCE_V2)
            .map_err(failed)
    }

    /// Says at which MAC address a neighbour is, or the router that leads to it, of a RoCE port that this process drives.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` where a kernel drives the port: there its network device's tables tell.
    pub fn add_neighbour(&self, gid: Gid, mac: [u8; 6]) -> Result<()> {
        let refused = || {
            let action = format!("say where {gid} is");
            Error::kernel(action, Errno(libc::EOPNOTSUPP))
        };
        let objects = self.inner.uctx().objects().ok_or_else(refused)?;
        objects.add_neighbour(gid.0, mac);
        Ok(())
    }

    /// The first RoCE v2 GID of a port that is no link-local one, else the first GID: what to give peers
    /// if the user does not say.
    ///
    /// # Errors
    ///
    /// The port has no GID.
    pub fn usual_gid(&self, port: u8) -> Result<GidEntry> {
        let table = self.gid_table()?;
        let of_port = || table.iter().filter(|entry| entry.port == port);
        of_port()
            .find(|entry| {
                entry.gid_type == super::gid::GidType::RoceV2 && !entry.gid.is_link_local()
            })
            .or_else(|| of_port().next())
            .copied()
            .ok_or_else(|| {
                Error::refused(
                    format!("find a GID of port {port}"),
                    "the port has none: give its network device an address and bring it up",
                )
            })
    }

    /// GIDs as kernels before 5.10 tell them.
    fn gid_of_sysfs(&self, port: u8, index: u32) -> Result<Option<GidEntry>> {
        let ports = self
            .inner
            .device
            .sysfs_path
            .join("ports")
            .join(port.to_string());
        let action = || format!("query GID {index} of port {port}");
        let text = sysfs::read(&ports.join("gids").join(index.to_string()))
            .map_err(|error| Error::kernel(action(), error.into()))?;
        let gid: Gid = text
            .parse()
            .map_err(|_| Error::refused(action(), "sysfs has no GID there"))?;
        let gid_type = sysfs::read(&ports.join("gid_attrs/types").join(index.to_string()));
        let gid_type = match gid_type.as_deref() {
            Ok("RoCE v2") => types::GidType::ROCE_V2,
            Ok("IB/RoCE v1") if self.query_port(port)?.link_layer == 2 => types::GidType::ROCE_V1,
            Ok(_) => types::GidType::IB,
            // An entry without a type is not in use.
            Err(_) => return Ok(None),
        };
        let entry = types::GidEntry {
            gid: gid.0,
            gid_index: index,
            port_num: port.into(),
            gid_type,
            netdev_ifindex: 0,
        };
        Ok(Some(entry.into()))
    }

    /// One entry of a port's partition key table.
    ///
    /// # Errors
    ///
    /// There is no such port or index.
    pub fn query_pkey(&self, port: u8, index: u16) -> Result<u16> {
        let path = format!("ports/{port}/pkeys/{index}");
        let action = || format!("query partition key {index} of port {port}");
        if let Some(objects) = self.inner.uctx().objects() {
            return objects
                .query_pkey(port, index)
                .map_err(|errno| Error::kernel(action(), errno));
        }
        let text = sysfs::read(&self.inner.device.sysfs_path.join(path))
            .map_err(|error| Error::kernel(action(), error.into()))?;
        u16::from_str_radix(text.trim_start_matches("0x"), 16)
            .map_err(|_| Error::refused(action(), "sysfs has no number there"))
    }

    /// Makes a protection domain.
    ///
    /// # Errors
    ///
    /// The device has no more.
    pub fn protection_domain(&self) -> Result<ProtectionDomain> {
        ProtectionDomain::new(self)
    }

    /// Makes a completion queue of at least `entries` entries.
    ///
    /// # Errors
    ///
    /// More entries than the device has.
    pub fn completion_queue(&self, entries: u32) -> Result<CompletionQueue> {
        CompletionQueue::new(self, entries, None, 0)
    }

    /// Makes a completion channel, on which completion queues announce completions.
    ///
    /// # Errors
    ///
    /// The process has too many files open.
    pub fn completion_channel(&self) -> Result<CompletionChannel> {
        CompletionChannel::new(self)
    }

    /// Waits for an asynchronous event of the device or of an object.
    ///
    /// # Errors
    ///
    /// `EAGAIN` if the descriptor does not block and there is none; `EIO` once the device is gone.
    pub fn next_event(&self) -> Result<AsyncEvent> {
        event::read(&self.inner.events)
    }

    /// Descriptor of the asynchronous events, readable when there is one.
    pub fn events_fd(&self) -> RawFd {
        self.inner.events_fd()
    }

    /// Whether [`next_event`](Self::next_event) returns at once.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn set_events_nonblocking(&self, nonblocking: bool) -> Result<()> {
        self.inner
            .events
            .set_nonblocking(nonblocking)
            .map_err(|errno| Error::kernel("change the event file", errno))
    }
}

/// Puts a descriptor that the kernel made behind the kernel seam.
pub(super) fn event_file(kernel: &KernelRef, fd: OwnedFd) -> UverbsFd {
    UverbsFd::owned(kernel.clone(), fd.into_raw_fd())
}

/// Opens an mlx5 device as the environment says.
fn open_mlx5(uctx: Uctx, action: impl Fn() -> String) -> Result<Opened> {
    Mlx5Context::open(uctx, Environment::of_process()).map_err(|error| match error {
        OpenError::Kernel(errno) => advice::open(action(), errno),
        other => Error::refused(action(), other.to_string()),
    })
}

fn driver(device: &Device) -> Option<DriverId> {
    match device.driver {
        Driver::Rxe => Some(DriverId::RXE),
        Driver::Mlx5 => Some(DriverId::MLX5),
        _ => None,
    }
}
