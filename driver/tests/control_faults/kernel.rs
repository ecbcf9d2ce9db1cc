//! A kernel that fails, or that answers the same to everything.

use std::ffi::CStr;
use std::io;
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use oxverbs::control::kernel::Uctx;
use oxverbs::sys::fd::UverbsFd;
use oxverbs::sys::kernel::{Kernel, KernelRef};
use uverbs_abi::RequestView;
use uverbs_abi::ioctl::wire::ATTR_UHW_OUT;
use uverbs_abi::object::Object;
use uverbs_abi::types::DriverId;
use uverbs_abi::write::frame::PlainView;

/// What a kernel does with a request that it knows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mood {
    /// Succeeds and writes nothing.
    Silent,
    /// Fails.
    Fails(i32),
    /// Succeeds and writes this byte into every output.
    Fills(u8),
}

/// A kernel with a mood.
#[derive(Debug)]
pub(crate) struct Moody {
    /// The errno for methods that it does not know.
    refuses: Option<i32>,
    mood: Mutex<Mood>,
    pub(crate) refused: AtomicUsize,
    pub(crate) answered: AtomicUsize,
}

fn errno<T>(number: i32) -> io::Result<T> {
    Err(io::Error::from_raw_os_error(number))
}

/// Fills an output of the request that is being answered.
fn fill(address: u64, len: usize, byte: u8) {
    let place: *mut u8 = std::ptr::with_exposed_provenance_mut(address as usize);
    // SAFETY: the request says that `len` bytes at the address are for its kernel to write.
    unsafe { place.write_bytes(byte, len) };
}

impl Kernel for Moody {
    fn open(&self, _: &CStr, _: i32) -> io::Result<RawFd> {
        errno(libc::ENXIO)
    }

    unsafe fn ioctl(&self, _: RawFd, _: u64, arg: *mut u8) -> io::Result<i32> {
        // SAFETY: a request starts with a header of 24 bytes, in memory that is ours to read.
        let header = unsafe { std::slice::from_raw_parts(arg, 24) };
        let len = RequestView::length(header).unwrap();
        // SAFETY: the header says how long the request is; a copy, since it is written to below.
        let frame = unsafe { std::slice::from_raw_parts(arg, len) }.to_vec();
        let view = RequestView::parse(&frame).unwrap();
        let invoke = view.method() == (Object::DEVICE, 0);
        match self.refuses {
            Some(libc::ENOTTY) => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                return errno(libc::ENOTTY);
            }
            Some(number) if !invoke => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                return errno(number);
            }
            _ => {}
        }
        if invoke && view.len() == 1 {
            return errno(libc::ENOSPC);
        }
        self.answered.fetch_add(1, Ordering::Relaxed);
        match *self.mood.lock().unwrap() {
            Mood::Silent => Ok(0),
            Mood::Fails(number) => errno(number),
            Mood::Fills(byte) => {
                let spec = view.spec().unwrap();
                for (index, attr) in view.attrs().enumerate() {
                    let known = spec.attribute_of(view.driver(), attr.id);
                    let kind = known.map(|attr| attr.kind);
                    if spec.has_uhw && attr.id == ATTR_UHW_OUT
                        || kind.is_some_and(|kind| kind.is_output())
                    {
                        fill(attr.data, attr.len.into(), byte);
                    } else if kind.is_some_and(|kind| kind.is_object()) {
                        let place = arg.wrapping_add(RequestView::attr_offset(index) + 8);
                        fill(place.expose_provenance() as u64, 8, byte);
                    }
                }
                Ok(0)
            }
        }
    }

    unsafe fn write(&self, _: RawFd, bytes: &[u8]) -> io::Result<usize> {
        self.answered.fetch_add(1, Ordering::Relaxed);
        match *self.mood.lock().unwrap() {
            Mood::Silent => {}
            Mood::Fails(number) => return errno(number),
            Mood::Fills(byte) => {
                let view = PlainView::parse(bytes).unwrap();
                let len = view.response_len + view.uhw_out_len;
                if len > 0 {
                    fill(view.response, len, byte);
                }
            }
        }
        Ok(bytes.len())
    }

    fn read(&self, _: RawFd, _: &mut [u8]) -> io::Result<usize> {
        errno(libc::EAGAIN)
    }

    fn mmap(&self, _: RawFd, _: usize, _: u64) -> io::Result<NonNull<u8>> {
        errno(libc::ENODEV)
    }

    unsafe fn munmap(&self, _: NonNull<u8>, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn close(&self, _: RawFd) -> io::Result<()> {
        Ok(())
    }
}

/// What a kernel answers to methods that it does not know; `None` knows all.
pub(crate) const KERNELS: [Option<i32>; 3] =
    [None, Some(libc::EPROTONOSUPPORT), Some(libc::ENOTTY)];

/// A context on such a kernel.
pub(crate) fn context(driver: DriverId, refuses: Option<i32>, mood: Mood) -> (Arc<Moody>, Uctx) {
    let moody = Arc::new(Moody {
        refuses,
        mood: Mutex::new(mood),
        refused: AtomicUsize::new(0),
        answered: AtomicUsize::new(0),
    });
    let fd = UverbsFd::borrowed(KernelRef::Fake(moody.clone()), 9);
    let uctx = Uctx::new(fd, driver).unwrap();
    moody.refused.store(0, Ordering::Relaxed);
    moody.answered.store(0, Ordering::Relaxed);
    (moody, uctx)
}
