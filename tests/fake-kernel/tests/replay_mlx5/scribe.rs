//! A kernel that writes down what it is asked and says yes.

use std::ffi::CStr;
use std::io;
use std::os::fd::{IntoRawFd, RawFd};
use std::ptr::NonNull;
use std::sync::Mutex;

use fake_kernel::record::{self, Recorded};
use oxverbs::sys::kernel::Kernel;
use uverbs_abi::RequestView;
use uverbs_abi::ioctl::Kind;
use uverbs_abi::object::Object;
use uverbs_abi::write::frame::PlainView;

/// The kernel.
#[derive(Debug)]
pub(crate) struct Scribe {
    pub(crate) has_ioctl: bool,
    pub(crate) calls: Mutex<Vec<Recorded>>,
}

/// A descriptor for the caller to own.
fn new_fd() -> RawFd {
    let file = std::fs::File::open("/dev/null").expect("the null device");
    file.into_raw_fd()
}

impl Kernel for Scribe {
    fn open(&self, _: &CStr, _: i32) -> io::Result<RawFd> {
        Ok(new_fd())
    }

    unsafe fn ioctl(&self, _: RawFd, _: u64, arg: *mut u8) -> io::Result<i32> {
        if !self.has_ioctl {
            return Err(io::Error::from_raw_os_error(libc::ENOTTY));
        }
        // SAFETY: a request starts with a header of 24 bytes, in memory that is ours to read.
        let header = unsafe { std::slice::from_raw_parts(arg, 24) };
        let len = RequestView::length(header).expect("a header");
        // SAFETY: the header says how long the request is.
        let frame = unsafe { std::slice::from_raw_parts(arg, len) };
        let view = RequestView::parse(frame).expect("a request");
        self.calls
            .lock()
            .expect("no panic")
            .push(record::ioctl(&view));
        let spec = view.spec().expect("a known method");
        spec.check(&view).expect("a request that a kernel takes");
        let invoke = view.method() == (Object::DEVICE, 0);
        let command = view.find(2).map(|attr| attr.data);
        if invoke && view.len() == 1 {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        // descriptors have to be real ones; everything else may be zero
        for (index, attr) in view.attrs().enumerate() {
            let kind = spec
                .attribute_of(view.driver(), attr.id)
                .map(|attr| attr.kind);
            let place: *mut i32 = match (invoke, kind) {
                (false, Some(Kind::NewFd)) => {
                    arg.wrapping_add(RequestView::attr_offset(index) + 8).cast()
                }
                (true, Some(Kind::SliceOut)) if command == Some(17) => {
                    std::ptr::with_exposed_provenance_mut(attr.data as usize)
                }
                _ => continue,
            };
            // SAFETY: the number's place in the request, or the first field of the response.
            unsafe { place.write_unaligned(new_fd()) };
        }
        Ok(0)
    }

    unsafe fn write(&self, _: RawFd, bytes: &[u8]) -> io::Result<usize> {
        self.calls
            .lock()
            .expect("no panic")
            .push(record::plain(bytes));
        let view = PlainView::parse(bytes).expect("a command");
        // the commands that answer a descriptor answer it first
        if view.response_len >= 4 && matches!(view.command, 0 | 17) {
            let place: *mut i32 = std::ptr::with_exposed_provenance_mut(view.response as usize);
            // SAFETY: the response has room for the descriptor.
            unsafe { place.write_unaligned(new_fd()) };
        }
        Ok(bytes.len())
    }

    fn read(&self, _: RawFd, _: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::from_raw_os_error(libc::EAGAIN))
    }

    fn mmap(&self, _: RawFd, _: usize, _: u64) -> io::Result<NonNull<u8>> {
        Err(io::Error::from_raw_os_error(libc::ENODEV))
    }

    unsafe fn munmap(&self, _: NonNull<u8>, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn close(&self, fd: RawFd) -> io::Result<()> {
        // SAFETY: the descriptor is one of ours, and its owner is done with it.
        match unsafe { libc::close(fd) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}
