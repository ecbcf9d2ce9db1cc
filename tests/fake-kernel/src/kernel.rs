//! The fake kernel as a whole.

use std::ffi::CStr;
use std::io;
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use oxverbs::sys::Errno;
use oxverbs::sys::kernel::{Kernel, KernelRef};
use uverbs_abi::ioctl::wire::{Header, RDMA_VERBS_IOCTL};
use uverbs_abi::ioctl::{Malformed, RequestView};
use uverbs_abi::types::EventType;
use uverbs_abi::udata::mlx5::mmap::{self, MmapCommand};
use uverbs_abi::write::frame::PlainView;

use crate::config::{Config, Family, Lie};
use crate::core::{commands, methods};
use crate::fault::Fault;
use crate::mlx5;
use crate::mlx5::hca::Hca;
use crate::raw::{self, PAGE};
use crate::record::Recorded;
use crate::request::{Call, WriteRequest, shorten};
use crate::rxe::engine;
use crate::state::{Census, Context, State};

/// Bytes of a command descriptor's file. Sparse: only queues take memory.
const FILE_LEN: i64 = 1 << 40;

/// `ioctl` requests are at most a page (`ib_uverbs_ioctl`).
const MAX_REQUEST: usize = PAGE;

/// A kernel with rxe devices, in this process.
#[derive(Clone, Debug)]
pub struct FakeKernel {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    state: Mutex<State>,
    wake: Condvar,
}

impl FakeKernel {
    /// A kernel as `config` says.
    pub fn new(config: Config) -> Self {
        let runs = config.family == Family::Mlx5 && config.mlx5.runs;
        let inner = Arc::new(Inner {
            state: Mutex::new(State::new(config)),
            wake: Condvar::new(),
        });
        if runs {
            let inner = Arc::downgrade(&inner);
            std::thread::spawn(move || device_loop(&inner));
        }
        Self { inner }
    }

    /// For the driver.
    pub fn kernel_ref(&self) -> KernelRef {
        KernelRef::Fake(Arc::new(self.clone()))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // A panic in a call leaves tables that the next one can still read.
        self.inner
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Which device a node's path names.
    pub fn device_of(&self, path: &CStr) -> Option<usize> {
        let name = path.to_str().ok()?.strip_prefix("/dev/infiniband/uverbs")?;
        let index = name.parse().ok()?;
        (index < self.lock().devices.len()).then_some(index)
    }

    /// The device that a descriptor was opened for.
    pub fn context_device(&self, fd: RawFd) -> Option<usize> {
        self.lock().context(fd).ok().map(|context| context.device)
    }

    /// Whether a descriptor is a completion channel or an asynchronous event file of this kernel.
    pub fn is_event_file(&self, fd: RawFd) -> bool {
        self.lock().file_of(fd).is_some()
    }

    /// Bytes of one record of an event file.
    pub fn event_record_len(&self, fd: RawFd) -> Option<usize> {
        let st = self.lock();
        Some(st.files[&st.file_of(fd)?].record_len())
    }

    /// Whether a mapping was made by [`Kernel::mmap`].
    pub fn is_mapping(&self, address: usize) -> bool {
        self.lock().mappings.contains_key(&address)
    }

    /// The `k`-th call from now on (1 is the next one) has this fault. `open`, `ioctl`, `write` and
    /// `mmap` count; `close`, `munmap` and `read` do not, since they do not fail so on Linux.
    pub fn inject(&self, k: u64, fault: Fault) {
        self.lock().faults.choose(k, fault);
    }

    /// Takes an injected fault back; says whether it has happened.
    pub fn clear_fault(&self) -> bool {
        self.lock().faults.clear()
    }

    /// Calls so far.
    pub fn calls(&self) -> u64 {
        self.lock().faults.calls()
    }

    /// Doorbells so far.
    pub fn doorbells(&self) -> u64 {
        self.lock().doorbells
    }

    /// What is alive.
    pub fn census(&self) -> Census {
        self.lock().census()
    }

    /// From now on queues are lied about; `None` ends it.
    pub fn set_lie(&self, lie: Option<Lie>) {
        self.lock().config.lie = lie;
    }

    /// Starts or stops keeping what is sent.
    pub fn record(&self, on: bool) {
        self.lock().recorder.is_on = on;
    }

    /// What was sent while recording; forgotten here.
    pub fn take_recorded(&self) -> Vec<Recorded> {
        std::mem::take(&mut self.lock().recorder.calls)
    }

    /// Reports an event of a queue pair, which rxe itself never reports (such as `QP_FATAL`). Says whether
    /// the queue pair exists and has a file for it.
    pub fn send_qp_event(&self, device: usize, qpn: u32, event: EventType) -> bool {
        self.lock().send_qp_event(device, qpn, event)
    }

    /// The device behind the kernel, of family [`Mlx5`](crate::Family::Mlx5).
    ///
    /// # Panics
    ///
    /// If there is no such device.
    pub fn hca(&self, device: usize) -> Hca {
        assert!(device < self.lock().devices.len());
        Hca::new(self.clone(), device)
    }

    /// Reports an event of port 1 of a device to every context of it.
    pub fn send_port_event(&self, device: usize, event: EventType) {
        let mut st = self.lock();
        let files: Vec<_> = st
            .contexts
            .values()
            .filter(|context| context.device == device)
            .map(|context| context.async_file)
            .collect();
        for file in files {
            st.send_async(file, 1, event);
        }
    }

    fn run_ioctl(st: &mut State, fd: RawFd, base: u64, is_short: bool) -> Result<(), Errno> {
        let header = raw::copy_in(base, size_of::<Header>())?;
        let len = RequestView::length(&header).map_err(|_| Errno(libc::EINVAL))?;
        if !(size_of::<Header>()..=MAX_REQUEST).contains(&len) {
            return Err(Errno(libc::EINVAL));
        }
        let bytes = raw::copy_in(base, len)?;
        let view = RequestView::parse(&bytes).map_err(|malformed| match malformed {
            Malformed::Reserved => Errno(libc::EPROTONOSUPPORT),
            Malformed::Short => Errno(libc::EFAULT),
            _ => Errno(libc::EINVAL),
        })?;
        st.recorder.ioctl(&view);
        methods::run(st, fd, &Call::new(base, view, is_short))
    }

    fn run_write(st: &mut State, fd: RawFd, bytes: &[u8], is_short: bool) -> Result<(), Errno> {
        st.recorder.write(bytes);
        let view = PlainView::parse(bytes).ok_or(Errno(libc::EINVAL))?;
        let mut request = WriteRequest {
            command: view.command,
            core: view.request.to_vec(),
            uhw: view.uhw_in.to_vec(),
            uhw_room: view.uhw_out_len,
            ..WriteRequest::default()
        };
        commands::run(st, fd, &mut request)?;
        if view.response == 0 {
            return Ok(());
        }
        if is_short {
            request.response = shorten(true, request.response);
            request.uhw_response.clear();
        }
        request.response.resize(view.response_len, 0);
        request.uhw_response.resize(view.uhw_out_len, 0);
        request.response.append(&mut request.uhw_response);
        raw::copy_out(view.response, &request.response)
    }

    /// Sees to it that what waits is tried again in time.
    fn watch(&self, st: &mut State) {
        if engine::next_deadline(st).is_none() {
            return;
        }
        if !std::mem::replace(&mut st.has_timer, true) {
            let inner = Arc::downgrade(&self.inner);
            std::thread::spawn(move || timer(&inner));
        }
        self.inner.wake.notify_all();
    }
}

/// Lets the devices execute what is posted, until the kernel is gone. Their registers are memory, in which a
/// store wakes nobody, so they look: again and again while there is something to do, then more seldom.
fn device_loop(inner: &Weak<Inner>) {
    let mut idle = 0_u32;
    while let Some(inner) = inner.upgrade() {
        let mut st = inner.state.lock().unwrap_or_else(PoisonError::into_inner);
        idle = if mlx5::exec::run(&mut st) {
            0
        } else {
            idle + 1
        };
        drop(st);
        drop(inner);
        match idle {
            0..50 => std::thread::yield_now(),
            50..200 => std::thread::sleep(Duration::from_micros(50)),
            _ => std::thread::sleep(Duration::from_micros(500)),
        }
    }
}

/// Runs the engine whenever a deadline has passed; ends when nothing waits any more.
fn timer(inner: &Weak<Inner>) {
    while let Some(inner) = inner.upgrade() {
        let mut st = inner.state.lock().unwrap_or_else(PoisonError::into_inner);
        engine::run(&mut st);
        let Some(deadline) = engine::next_deadline(&st) else {
            st.has_timer = false;
            return;
        };
        let wait = deadline.saturating_duration_since(Instant::now());
        drop(inner.wake.wait_timeout(st, wait));
    }
}

fn io_error(errno: Errno) -> io::Error {
    errno.into()
}

impl Kernel for FakeKernel {
    fn open(&self, path: &CStr, flags: i32) -> io::Result<RawFd> {
        let device = self.device_of(path).ok_or(Errno(libc::ENOENT))?;
        let mut st = self.lock();
        if let Some(Fault::Errno(errno)) = st.faults.next() {
            return Err(io_error(Errno(errno)));
        }
        let fd = raw::memory_file(FILE_LEN, flags & libc::O_CLOEXEC != 0)?;
        // A number that comes again was closed past the seam.
        st.end_context(fd);
        st.contexts.insert(
            fd,
            Context {
                device,
                inode: raw::inode(fd),
                is_made: false,
                objects: Default::default(),
                pending: Vec::new(),
                mlx5: Default::default(),
                async_file: None,
            },
        );
        Ok(fd)
    }

    unsafe fn ioctl(&self, fd: RawFd, request: u64, arg: *mut u8) -> io::Result<i32> {
        let mut st = self.lock();
        let fault = st.faults.next();
        if let Some(Fault::Errno(errno)) = fault {
            return Err(io_error(Errno(errno)));
        }
        st.context(fd)?;
        if request != RDMA_VERBS_IOCTL || !st.config.has_ioctl {
            return Err(io_error(Errno(libc::ENOTTY)));
        }
        let base = arg.expose_provenance() as u64;
        let result = Self::run_ioctl(&mut st, fd, base, fault.is_some());
        self.watch(&mut st);
        result.map(|()| 0).map_err(io_error)
    }

    unsafe fn write(&self, fd: RawFd, bytes: &[u8]) -> io::Result<usize> {
        let mut st = self.lock();
        let fault = st.faults.next();
        if let Some(Fault::Errno(errno)) = fault {
            return Err(io_error(Errno(errno)));
        }
        st.context(fd)?;
        let result = Self::run_write(&mut st, fd, bytes, fault.is_some());
        self.watch(&mut st);
        result.map(|()| bytes.len()).map_err(io_error)
    }

    fn read(&self, fd: RawFd, bytes: &mut [u8]) -> io::Result<usize> {
        let record = {
            let st = self.lock();
            let id = st.file_of(fd).ok_or(Errno(libc::EBADF))?;
            st.files[&id].record_len()
        };
        // One record at a time, and only a whole one (`ib_uverbs_event_read`).
        let bytes = bytes.get_mut(..record).ok_or(Errno(libc::EINVAL))?;
        raw::read(fd, bytes).map_err(io_error)
    }

    fn mmap(&self, fd: RawFd, len: usize, offset: u64) -> io::Result<NonNull<u8>> {
        let mut st = self.lock();
        if let Some(Fault::Errno(errno)) = st.faults.next() {
            return Err(io_error(Errno(errno)));
        }
        if st.config.family == Family::Mlx5 {
            let (command, index) = mmap::parse(offset / PAGE as u64);
            if command == MmapCommand::DEVICE_MEM && st.is_dm(fd, index as u32, len)? {
                let place = mlx5::uar::dm_file_offset(index as u32);
                let address = raw::map(fd, len, place)?;
                st.mappings
                    .insert(address.as_ptr().expose_provenance(), len);
                return Ok(address);
            }
            let page_id = st.device(fd)?.mlx5.next_uar();
            let uars = &mut st.context(fd)?.mlx5.uars;
            let (place, is_read_only) = uars.place(fd, offset, page_id)?;
            if len > PAGE {
                return Err(io_error(Errno(libc::EINVAL)));
            }
            let address = raw::map_with(fd, len, place, !is_read_only)?;
            st.mappings
                .insert(address.as_ptr().expose_provenance(), len);
            return Ok(address);
        }
        // A queue can be mapped once, from its start, and not further than its end (`rxe_mmap`).
        let pending = &mut st.context(fd)?.pending;
        let at = pending
            .iter()
            .position(|(start, size)| *start == offset && len.next_multiple_of(PAGE) <= *size)
            .ok_or(Errno(libc::EINVAL))?;
        let address = raw::map(fd, len, offset)?;
        pending.remove(at);
        st.mappings
            .insert(address.as_ptr().expose_provenance(), len);
        Ok(address)
    }

    unsafe fn munmap(&self, addr: NonNull<u8>, len: usize) -> io::Result<()> {
        let address = addr.as_ptr().expose_provenance();
        self.lock().mappings.remove(&address);
        // SAFETY: the caller vouches that nothing uses the range.
        unsafe { raw::unmap(address, len) }.map_err(io_error)
    }

    fn close(&self, fd: RawFd) -> io::Result<()> {
        let mut st = self.lock();
        if st.contexts.contains_key(&fd) {
            st.end_context(fd);
        }
        raw::close(fd);
        st.reap();
        Ok(())
    }
}
