//! Waiting until a program gave back what the kernel delivered, before its object goes.

/// Initialises a lock and a condition that live in a C object.
///
/// # Safety
///
/// Both are writable and not in use.
pub(crate) unsafe fn init_wait(mutex: *mut libc::pthread_mutex_t, cond: *mut libc::pthread_cond_t) {
    // SAFETY: the caller's promise; default attributes.
    unsafe { libc::pthread_mutex_init(mutex, std::ptr::null()) };
    // SAFETY: as above.
    unsafe { libc::pthread_cond_init(cond, std::ptr::null()) };
}

/// Waits until the program gave back as many events as the kernel delivered for an object.
///
/// # Safety
///
/// The three belong together and are initialised; the counter is written under the mutex.
pub(crate) unsafe fn wait_for_events(
    mutex: *mut libc::pthread_mutex_t,
    cond: *mut libc::pthread_cond_t,
    completed: *const u32,
    reported: u32,
) {
    // SAFETY: initialised by the caller's promise.
    unsafe { libc::pthread_mutex_lock(mutex) };
    // SAFETY: read under the mutex.
    while unsafe { completed.read_volatile() } != reported {
        // SAFETY: as above; the mutex is held.
        unsafe { libc::pthread_cond_wait(cond, mutex) };
    }
    // SAFETY: held by this thread.
    unsafe { libc::pthread_mutex_unlock(mutex) };
}
