//! The real kernel made to look older: what it has learnt since is refused, the rest is Linux'.

use std::ffi::CStr;
use std::io;
use std::os::fd::RawFd;
use std::ptr::NonNull;

use oxverbs::sys::kernel::Kernel;
use uverbs_abi::RequestView;
use uverbs_abi::object::Object;

/// How old.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Older {
    /// Before the ioctl: `ENOTTY`.
    WithoutIoctl,
    /// Write commands go inside the ioctl, which knows nothing else: `EPROTONOSUPPORT`.
    InvokeWriteAlone,
}

fn check(result: i64) -> io::Result<i64> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

impl Kernel for Older {
    fn open(&self, path: &CStr, flags: i32) -> io::Result<RawFd> {
        // SAFETY: the path is a C string.
        check(unsafe { libc::open(path.as_ptr(), flags) }.into()).map(|fd| fd as RawFd)
    }

    unsafe fn ioctl(&self, fd: RawFd, request: u64, arg: *mut u8) -> io::Result<i32> {
        // SAFETY: a request starts with a header of 24 bytes.
        let header = unsafe { std::slice::from_raw_parts(arg, 24) };
        let len = RequestView::length(header).unwrap();
        // SAFETY: the header says how long the request is; a copy, before the kernel writes to it.
        let frame = unsafe { std::slice::from_raw_parts(arg, len) }.to_vec();
        let invoke = RequestView::parse(&frame).unwrap().method() == (Object::DEVICE, 0);
        match self {
            Self::WithoutIoctl => return Err(io::Error::from_raw_os_error(libc::ENOTTY)),
            Self::InvokeWriteAlone if !invoke => {
                return Err(io::Error::from_raw_os_error(libc::EPROTONOSUPPORT));
            }
            Self::InvokeWriteAlone => {}
        }
        // SAFETY: the caller vouches for the request.
        let result = unsafe { libc::ioctl(fd, request as _, arg) };
        check(result.into()).map(|value| value as i32)
    }

    unsafe fn write(&self, fd: RawFd, bytes: &[u8]) -> io::Result<usize> {
        // SAFETY: the slice is readable; the caller vouches for addresses inside it.
        let result = unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
        check(result as i64).map(|len| len as usize)
    }

    fn read(&self, fd: RawFd, bytes: &mut [u8]) -> io::Result<usize> {
        // SAFETY: the slice is writable.
        let result = unsafe { libc::read(fd, bytes.as_mut_ptr().cast(), bytes.len()) };
        check(result as i64).map(|len| len as usize)
    }

    fn mmap(&self, _: RawFd, _: usize, _: u64) -> io::Result<NonNull<u8>> {
        Err(io::Error::from_raw_os_error(libc::ENOSYS))
    }

    unsafe fn munmap(&self, _: NonNull<u8>, _: usize) -> io::Result<()> {
        Err(io::Error::from_raw_os_error(libc::ENOSYS))
    }

    fn close(&self, fd: RawFd) -> io::Result<()> {
        // SAFETY: the descriptor's owner is done with it.
        check(unsafe { libc::close(fd) }.into()).map(drop)
    }
}
