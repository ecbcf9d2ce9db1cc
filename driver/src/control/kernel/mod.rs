//! Objects made by the kernel, through a uverbs descriptor.
//!
//! [`Uctx`] has one method per verb: plain values in, plain values out, the kernel's errno as error.
//! It is the untyped core that both the native API and the plug-in stand on, so it checks nothing
//! that the kernel checks, owns nothing but the descriptor, and destroys nothing by itself.
//!
//! Most verbs exist as an ioctl method and as an older write command. A method is tried first; if
//! the kernel does not know it (`ENOTTY`: no ioctl at all, `EPROTONOSUPPORT`: not this method), it is
//! not tried again on this descriptor and the write command does the same. Verbs that are write
//! commands to this day travel inside the ioctl (`INVOKE_WRITE`) where the kernel has it and as plain
//! `write()` elsewhere.
//!
//! A method that answers with the driver's own data is generic over its type `O`
//! ([`uverbs_abi::udata`]); `()` is none. Such data reads as zero where the kernel wrote less. One that
//! also takes such data, of type `I`, has `_with` in its name.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, IntoRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use uverbs_abi::Command;
use uverbs_abi::ioctl::{HasUhw, Method};
use uverbs_abi::object::device::invoke_write;
use uverbs_abi::types::DriverId;
use uverbs_abi::write::device::QueryDevice;
use uverbs_abi::write::{WriteCall, WriteCommand};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::control::vfio::Held;
use crate::control::vfio::objects::Objects;
use crate::sys::errno::Errno;
use crate::sys::eventfd::eventfd;
use crate::sys::fd::UverbsFd;
use crate::sys::ioctl::{self, WriteFraming};
use crate::sys::kernel::KernelRef;

mod ah;
mod cq;
mod device;
mod dm;
mod flow;
mod memory;
mod mlx5;
mod qp;
mod srq;
mod steering;
mod wq;
mod xrcd;

pub use cq::{CqCreated, CqResized, CreateCq};
pub use device::{ContextInfo, DeviceAttr};
pub use dm::DmMr;
pub use memory::{DmabufMr, MrInfo, MrKeys, MwKeys, UserMr};
pub use mlx5::{DevicePage, DevxNotice, DmPage, Mlx5Context, RegUmem};
pub use qp::{CreateQp, QpCreated};
pub use srq::{CreateSrq, SrqCreated};
pub use steering::{CreateMatcher, CreateRule};
pub use wq::{CreateWq, RwqIndTableCreated, WqCreated};

/// A uverbs descriptor and what its kernel can do.
///
/// Threads may share it: the kernel orders what they do to the same object.
#[derive(Debug)]
pub struct Uctx {
    fd: UverbsFd,
    driver: DriverId,
    framing: WriteFraming,
    /// Methods that the kernel answered not to know; see [`Bit`].
    unknown: [AtomicU64; WORDS],
    /// Who answers instead of the kernel.
    objects: Option<Held>,
}

/// Objects have at most 8 methods each, and there are 17 of them in the core.
const METHODS: usize = 8;
const WORDS: usize = (17 * METHODS).div_ceil(64);

/// Where a method is remembered in `Uctx::unknown`.
struct Bit {
    word: usize,
    mask: u64,
}

impl Bit {
    /// `None` for a method beyond the core's, which is then simply asked for every time.
    fn of<M: Method>() -> Option<Self> {
        let object = usize::from(M::SPEC.object.0);
        let method = usize::from(M::SPEC.id);
        let index = object * METHODS + method;
        (method < METHODS && index < WORDS * 64).then(|| Self {
            word: index / 64,
            mask: 1 << (index % 64),
        })
    }
}

/// The driver's own data of a method, as far as there is any.
fn uhw<M, I, O>(command: &mut Command<'_, M>, input: &I)
where
    M: HasUhw,
    I: IntoBytes + Immutable,
    O: FromBytes,
{
    if size_of::<I>() > 0 {
        command.uhw_in(input);
    }
    if size_of::<O>() > 0 {
        command.uhw_out::<O>();
    }
}

/// The driver's own input of a method as the type that a driven device takes; what is not there is zero. `EINVAL` if there is
/// more, unless that is zero.
pub(crate) fn driver_input<I, T>(input: &I) -> Result<T, Errno>
where
    I: IntoBytes + Immutable,
    T: FromBytes + IntoBytes,
{
    let mut whole = T::new_zeroed();
    let bytes = input.as_bytes();
    let len = bytes.len().min(size_of::<T>());
    whole.as_mut_bytes()[..len].copy_from_slice(&bytes[..len]);
    if bytes[len..].iter().any(|byte| *byte != 0) {
        return Err(Errno(libc::EINVAL));
    }
    Ok(whole)
}

/// A driven device's answer as the type that the caller of a method wants, as much as fits.
pub(crate) fn driver_answer<T, O>(answer: &T) -> O
where
    T: IntoBytes + Immutable,
    O: FromBytes,
{
    let mut bytes = vec![0; size_of::<O>()];
    let len = bytes.len().min(size_of::<T>());
    bytes[..len].copy_from_slice(&answer.as_bytes()[..len]);
    O::read_from_bytes(&bytes).unwrap_or_else(|_| O::new_zeroed())
}

/// What became of a method that has a write command beside it.
enum Tried {
    Done,
    Unknown,
}

impl Uctx {
    /// Opens a device node. The context still has to be made: [`get_context`](Self::get_context).
    pub fn open(kernel: KernelRef, path: &CStr, driver: DriverId) -> Result<Self, Errno> {
        Self::new(UverbsFd::open(kernel, path)?, driver)
    }

    /// Uses a descriptor that someone else opened and closes, such as libibverbs' `cmd_fd`.
    pub fn borrow(kernel: KernelRef, fd: RawFd, driver: DriverId) -> Result<Self, Errno> {
        Self::new(UverbsFd::borrowed(kernel, fd), driver)
    }

    /// Asks the kernel once how it takes write commands.
    ///
    /// The question is a command that is too short, so a kernel that knows `INVOKE_WRITE` answers
    /// `ENOSPC`.
    pub fn new(fd: UverbsFd, driver: DriverId) -> Result<Self, Errno> {
        let mut uctx = Self {
            fd,
            driver,
            framing: WriteFraming::Invoke,
            unknown: Default::default(),
            objects: None,
        };
        let mut command = Command::<invoke_write::Method>::new();
        command.constant(invoke_write::WRITE_CMD, QueryDevice::SPEC.command());
        match uctx.try_method(&mut command) {
            Ok(Tried::Done) | Err(Errno(libc::ENOSPC | libc::EINVAL | libc::EOPNOTSUPP)) => {}
            Ok(Tried::Unknown) => uctx.framing = WriteFraming::Plain,
            Err(errno) => return Err(errno),
        }
        Ok(uctx)
    }

    /// A device that this process drives itself, without a kernel driver (see [`vfio`](crate::control::vfio)). The
    /// descriptor is one on which nothing happens.
    pub fn over(objects: Arc<Objects>) -> Result<Self, Errno> {
        let fd = eventfd()?.into_raw_fd();
        Ok(Self {
            fd: UverbsFd::owned(KernelRef::Linux, fd),
            driver: DriverId::MLX5,
            framing: WriteFraming::Plain,
            unknown: Default::default(),
            objects: Some(Held::new(objects)),
        })
    }

    /// The objects of a device that this process drives itself; `None` if the kernel answers.
    pub fn objects(&self) -> Option<&Arc<Objects>> {
        self.objects.as_deref()
    }

    /// The descriptor, for doorbells, mappings and further commands.
    pub fn fd(&self) -> &UverbsFd {
        &self.fd
    }

    /// The driver whose device this is.
    pub fn driver(&self) -> DriverId {
        self.driver
    }

    /// How this kernel takes write commands.
    pub fn write_framing(&self) -> WriteFraming {
        self.framing
    }

    /// Runs a method that has no other form; a kernel that does not know it gives `EOPNOTSUPP`, as
    /// libibverbs says it to programs.
    fn method<M: Method>(&self, command: &mut Command<'_, M>) -> Result<(), Errno> {
        match self.try_method(command)? {
            Tried::Done => Ok(()),
            Tried::Unknown => Err(Errno(libc::EOPNOTSUPP)),
        }
    }

    /// Runs a method that has a write command beside it.
    fn try_method<M: Method>(&self, command: &mut Command<'_, M>) -> Result<Tried, Errno> {
        if self.objects.is_some() {
            return Ok(Tried::Unknown);
        }
        let bit = Bit::of::<M>();
        if let Some(bit) = &bit
            && self.unknown[bit.word].load(Ordering::Relaxed) & bit.mask != 0
        {
            return Ok(Tried::Unknown);
        }
        // SAFETY: the methods of this module take addresses only in attributes that `Command` fills
        // from memory it borrows, and where the caller vouches for a range or for a driver's input.
        match unsafe { ioctl::execute(&self.fd, self.driver, command) } {
            Ok(()) => Ok(Tried::Done),
            Err(Errno(libc::ENOTTY)) => {
                for word in &self.unknown {
                    word.store(u64::MAX, Ordering::Relaxed);
                }
                Ok(Tried::Unknown)
            }
            Err(Errno(libc::EPROTONOSUPPORT)) => {
                if let Some(bit) = bit {
                    self.unknown[bit.word].fetch_or(bit.mask, Ordering::Relaxed);
                }
                Ok(Tried::Unknown)
            }
            Err(errno) => Err(errno),
        }
    }

    /// Runs a write command.
    fn write<C, const IN: usize, const OUT: usize>(
        &self,
        call: &mut WriteCall<C, IN, OUT>,
    ) -> Result<(), Errno>
    where
        C: WriteCommand,
    {
        if self.objects.is_some() {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        // SAFETY: the commands of this module take no addresses besides the response's, but for
        // `reg_mr` and `rereg_mr`, whose callers vouch for the range, those with a driver's input, whose
        // callers do the same, and `modify_srq`, which passes the address of a local that outlives the
        // call.
        unsafe { ioctl::execute_write(&self.fd, self.driver, self.framing, call) }
    }

    /// Runs a write command without driver data and gives its response.
    fn simple<C: WriteCommand>(&self, request: C) -> Result<C::Response, Errno> {
        let mut call = WriteCall::new(request);
        self.write(&mut call)?;
        Ok(call.response())
    }
}

impl AsRawFd for Uctx {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}
