//! libc's names. Variadic functions are defined with the arguments that they can have, which the calling
//! conventions of x86-64 and AArch64 allow.

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_ulong, c_void};
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicIsize, Ordering};

use fake_kernel::{FakeKernel, sysfs};
use oxverbs::sys::kernel::Kernel;

use crate::process;

/// What is interposed, by the names to export from an executable.
pub const NAMES: [&str; 13] = [
    "open", "open64", "openat", "stat", "fstat", "ioctl", "write", "read", "mmap", "mmap64",
    "munmap", "close", "socket",
];

/// Refers to every interposing function, so that a linker takes them all.
pub(crate) fn keep() {
    let functions: [*const (); NAMES.len()] = [
        open as *const (),
        open64 as *const (),
        openat as *const (),
        stat as *const (),
        fstat as *const (),
        ioctl as *const (),
        write as *const (),
        read as *const (),
        mmap as *const (),
        mmap64 as *const (),
        munmap as *const (),
        close as *const (),
        socket as *const (),
    ];
    std::hint::black_box(functions);
}

/// Bytes mapped of the process's own accord, less those unmapped.
static MAPPED: AtomicIsize = AtomicIsize::new(0);

/// Bytes that `mmap` gave and `munmap` has not taken back, without the fake kernel's pages. What libc's allocator maps does
/// not come by here.
pub fn mapped() -> isize {
    MAPPED.load(Ordering::Relaxed)
}

/// `socket` protocol of RDMA netlink (`uapi linux/netlink.h`).
const NETLINK_RDMA: c_int = 20;

/// Sets errno and gives -1, as libc does.
fn answer<T: TryInto<i64>>(result: io::Result<T>) -> i64 {
    match result {
        Ok(value) => value.try_into().unwrap_or(-1),
        Err(error) => {
            process::set_errno(error.raw_os_error().unwrap_or(libc::EIO));
            -1
        }
    }
}

/// # Safety
///
/// `path` is null or a C string.
unsafe fn device_of(path: *const c_char) -> Option<usize> {
    let path = NonNull::new(path.cast_mut())?;
    // SAFETY: the program gave a C string.
    let path = unsafe { CStr::from_ptr(path.as_ptr()) };
    process::with(|kernel| kernel.device_of(path))
}

/// # Safety
///
/// As for `open(2)`.
unsafe fn open_at(dir: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    // SAFETY: the caller's path.
    if unsafe { device_of(path) }.is_some() {
        // SAFETY: not null, as `device_of` looked into it.
        let path = unsafe { CStr::from_ptr(path) };
        if let Some(result) = process::with(|kernel| Some(kernel.open(path, flags))) {
            return answer(result) as c_int;
        }
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { libc::syscall(libc::SYS_openat, dir, path, flags, mode) as c_int }
}

/// # Safety
///
/// As for `open(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { open_at(libc::AT_FDCWD, path, flags, mode) }
}

/// # Safety
///
/// As for `open(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { open_at(libc::AT_FDCWD, path, flags, mode) }
}

/// # Safety
///
/// As for `openat(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn openat(
    dir: c_int,
    path: *const c_char,
    flags: c_int,
    mode: c_uint,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { open_at(dir, path, flags, mode) }
}

/// A character device's `struct stat`.
///
/// # Safety
///
/// `stat` is valid for writing.
unsafe fn fill_stat(stat: *mut libc::stat, device: usize) -> c_int {
    // SAFETY: zero bytes are a valid `stat`.
    let mut filled: libc::stat = unsafe { std::mem::zeroed() };
    filled.st_mode = libc::S_IFCHR | 0o666;
    filled.st_rdev = libc::makedev(sysfs::MAJOR, sysfs::FIRST_MINOR + device as u32);
    filled.st_nlink = 1;
    // SAFETY: the caller vouches for `stat`.
    unsafe { stat.write(filled) };
    0
}

/// # Safety
///
/// As for `stat(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn stat(path: *const c_char, buf: *mut libc::stat) -> c_int {
    // SAFETY: the caller's path.
    match unsafe { device_of(path) } {
        // SAFETY: the caller's buffer.
        Some(device) => unsafe { fill_stat(buf, device) },
        // SAFETY: the caller's arguments, unchanged.
        None => unsafe {
            libc::syscall(libc::SYS_newfstatat, libc::AT_FDCWD, path, buf, 0) as c_int
        },
    }
}

/// # Safety
///
/// As for `fstat(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fstat(fd: c_int, buf: *mut libc::stat) -> c_int {
    match process::with(|kernel| kernel.context_device(fd)) {
        // SAFETY: the caller's buffer.
        Some(device) => unsafe { fill_stat(buf, device) },
        // SAFETY: the caller's arguments, unchanged.
        None => unsafe { libc::syscall(libc::SYS_fstat, fd, buf) as c_int },
    }
}

/// # Safety
///
/// As for `ioctl(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, arg: *mut c_void) -> c_int {
    let answered = process::with(|kernel| {
        kernel.context_device(fd)?;
        // SAFETY: the caller vouches for the request.
        Some(unsafe { kernel.ioctl(fd, request, arg.cast()) })
    });
    match answered {
        Some(result) => answer(result) as c_int,
        // SAFETY: the caller's arguments, unchanged.
        None => unsafe { libc::syscall(libc::SYS_ioctl, fd, request, arg) as c_int },
    }
}

/// # Safety
///
/// As for `write(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn write(fd: c_int, bytes: *const c_void, len: usize) -> isize {
    let answered = process::with(|kernel| {
        kernel.context_device(fd)?;
        // SAFETY: the caller vouches for `len` readable bytes.
        let bytes = unsafe { std::slice::from_raw_parts(bytes.cast(), len) };
        // SAFETY: the caller vouches for addresses in them.
        Some(unsafe { kernel.write(fd, bytes) })
    });
    match answered {
        Some(result) => answer(result) as isize,
        // SAFETY: the caller's arguments, unchanged.
        None => unsafe { libc::syscall(libc::SYS_write, fd, bytes, len) as isize },
    }
}

/// # Safety
///
/// As for `read(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn read(fd: c_int, bytes: *mut c_void, len: usize) -> isize {
    // The reading itself may block, so it happens outside of the fake kernel.
    let is_event_file = process::with(|kernel| Some(kernel.is_event_file(fd)));
    let len = match is_event_file {
        Some(true) => match record_len(fd) {
            Some(record) if len < record => {
                return answer::<i64>(Err(io::Error::from_raw_os_error(libc::EINVAL))) as isize;
            }
            Some(record) => record,
            None => len,
        },
        _ => len,
    };
    // SAFETY: the caller's buffer, of which no more is used than there is.
    unsafe { libc::syscall(libc::SYS_read, fd, bytes, len) as isize }
}

fn record_len(fd: c_int) -> Option<usize> {
    process::with(|kernel| kernel.event_record_len(fd))
}

/// # Safety
///
/// As for `mmap(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn mmap(
    address: *mut c_void,
    len: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    let answered = process::with(|kernel: &FakeKernel| {
        kernel.context_device(fd)?;
        Some(kernel.mmap(fd, len, offset as u64))
    });
    match answered {
        Some(Ok(mapped)) => mapped.as_ptr().cast(),
        Some(Err(error)) => {
            answer::<i64>(Err(error));
            libc::MAP_FAILED
        }
        None => {
            // SAFETY: the caller's arguments, unchanged.
            let result = unsafe {
                libc::syscall(libc::SYS_mmap, address, len, protection, flags, fd, offset)
            };
            if result != -1 {
                MAPPED.fetch_add(len.cast_signed(), Ordering::Relaxed);
            }
            std::ptr::with_exposed_provenance_mut(result as usize)
        }
    }
}

/// # Safety
///
/// As for `mmap(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn mmap64(
    address: *mut c_void,
    len: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: the caller's arguments.
    unsafe { mmap(address, len, protection, flags, fd, offset) }
}

/// # Safety
///
/// As for `munmap(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn munmap(address: *mut c_void, len: usize) -> c_int {
    let number = address.expose_provenance();
    let answered = process::with(|kernel| {
        let address = NonNull::new(address.cast()).filter(|_| kernel.is_mapping(number))?;
        // SAFETY: the caller vouches that nothing uses the range.
        Some(unsafe { kernel.munmap(address, len) })
    });
    match answered {
        Some(result) => answer(result.map(|()| 0_i64)) as c_int,
        None => {
            MAPPED.fetch_sub(len.cast_signed(), Ordering::Relaxed);
            // SAFETY: the caller's arguments, unchanged.
            unsafe { libc::syscall(libc::SYS_munmap, number, len) as c_int }
        }
    }
}

/// # Safety
///
/// As for `close(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn close(fd: c_int) -> c_int {
    let answered = process::with(|kernel| {
        kernel.context_device(fd)?;
        Some(kernel.close(fd))
    });
    match answered {
        Some(result) => answer(result.map(|()| 0_i64)) as c_int,
        // SAFETY: a number.
        None => unsafe { libc::syscall(libc::SYS_close, fd as c_long) as c_int },
    }
}

/// # Safety
///
/// As for `socket(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    if domain == libc::AF_NETLINK && protocol == NETLINK_RDMA {
        return answer::<i64>(Err(io::Error::from_raw_os_error(libc::EPROTONOSUPPORT))) as c_int;
    }
    // SAFETY: numbers.
    unsafe { libc::syscall(libc::SYS_socket, domain, kind, protocol) as c_int }
}
