//! Exports the interposing functions from this crate's own test, which is an executable that has them.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // `fake_kernel_preload::NAMES`
    for name in [
        "open", "open64", "openat", "stat", "fstat", "ioctl", "write", "read", "mmap", "mmap64",
        "munmap", "close", "socket",
    ] {
        println!("cargo:rustc-link-arg-tests=-Wl,--export-dynamic-symbol={name}");
    }
}
