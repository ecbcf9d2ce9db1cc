//! The fake kernel under unmodified C programs, and under C libraries in a Rust program.
//!
//! This crate defines the functions of libc by which libibverbs and its providers reach the kernel, answers those
//! that concern a fake device, and hands the rest on as plain system calls. Found devices come from a tree
//! like sysfs in a temporary directory, to which it points `SYSFS_PATH`; RDMA netlink is made to fail,
//! since libibverbs asks sysfs only without it.
//!
//! # As a library for `LD_PRELOAD`
//!
//! `libfake_kernel_preload.so` starts by itself. Environment: `OXVERBS_FAKE` has settings
//! ([`fake_kernel::Config::parse`]), `OXVERBS_FAKE_RECORD` a file that the calls are written to at exit.
//! Programs can steer it by the functions of the module `control`, found with `dlsym`.
//!
//! # Linked into an executable
//!
//! A Rust program that links Debian's libibverbs and libmlx5 puts the fake kernel under them by itself, at
//! native speed and with the fake kernel's whole Rust interface:
//!
//! 1. depend on this crate and on `fake-kernel`;
//! 2. first thing in `main`, call [`start`] and keep what it returns; the reference also makes the linker take the
//!    interposing functions out of the archive;
//! 3. in the executable's `build.rs`, export them, because libraries bind libc's otherwise:
//!
//! ```
//! // These are `fake_kernel_preload::NAMES`, repeated: with this crate the build script would interpose its own calls.
//! for name in [
//!     "open", "open64", "openat", "stat", "fstat", "ioctl", "write", "read", "mmap", "mmap64", "munmap", "close", "socket",
//! ] {
//!     println!("cargo:rustc-link-arg-tests=-Wl,--export-dynamic-symbol={name}");
//! }
//! ```
//!
//! (`rustc-link-arg-tests` for a test target, `-benches`, `-bins` or nothing for the others.)
//! `tests/own_process.rs` of this crate is an example.

mod control;
mod interpose;
mod process;

pub use interpose::{NAMES, mapped};
pub use process::watch;

/// Makes the process's fake kernel, unless there is one, and gives it.
///
/// Of a second call the settings are ignored.
///
/// # Safety
///
/// No other thread uses the environment meanwhile: this sets `SYSFS_PATH`.
pub unsafe fn start(config: fake_kernel::Config) -> &'static fake_kernel::FakeKernel {
    interpose::keep();
    process::start(config)
}
