//! The asynchronous event file.

methods! {
    ASYNC_EVENT;

    /// Makes an asynchronous event file; objects report to the one that was named when they were
    /// made.
    "UVERBS_METHOD_ASYNC_EVENT_ALLOC" alloc = 0 {
        "UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE" FD_HANDLE = 0: NewFd<handle::AsyncEvent>, required;
    }
}
