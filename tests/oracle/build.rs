//! Exports the interposing functions from the executables, because the C libraries bind libc's otherwise.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // `fake_kernel_preload::NAMES`, repeated: with that crate this script would interpose its own calls.
    for name in [
        "open", "open64", "openat", "stat", "fstat", "ioctl", "write", "read", "mmap", "mmap64",
        "munmap", "close", "socket",
    ] {
        println!("cargo:rustc-link-arg-bins=-Wl,--export-dynamic-symbol={name}");
    }
}
