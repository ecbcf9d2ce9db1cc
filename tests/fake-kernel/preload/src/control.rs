//! What a test program can call, having found it by `dlsym(RTLD_DEFAULT, …)`.

use fake_kernel::Fault;

use crate::process;

/// The `k`-th call from now on fails with `errno`, or answers nothing if `errno` is 0.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fake_kernel_inject(k: u64, errno: i32) {
    let fault = match errno {
        0 => Fault::Short,
        errno => Fault::Errno(errno),
    };
    process::with(|kernel| {
        kernel.inject(k, fault);
        Some(())
    });
}

/// Takes the injected fault back; 1 if it has happened.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fake_kernel_clear_fault() -> i32 {
    process::with(|kernel| Some(kernel.clear_fault().into())).unwrap_or(-1)
}

/// Calls so far.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fake_kernel_calls() -> u64 {
    process::with(|kernel| Some(kernel.calls())).unwrap_or(0)
}

/// Objects with handles that are alive.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fake_kernel_objects() -> u64 {
    process::with(|kernel| Some(kernel.census().objects() as u64)).unwrap_or(u64::MAX)
}

/// Contexts, event files and mappings that are alive.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fake_kernel_resources() -> u64 {
    process::with(|kernel| {
        let census = kernel.census();
        Some((census.contexts + census.event_files + census.mappings) as u64)
    })
    .unwrap_or(u64::MAX)
}
