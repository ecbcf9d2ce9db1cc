//! Sets of counters, which flow rules count into.

methods! {
    COUNTERS;

    /// Makes a set of counters.
    "UVERBS_METHOD_COUNTERS_CREATE" create = 0 {
        "UVERBS_ATTR_CREATE_COUNTERS_HANDLE" HANDLE = 0: NewHandle<handle::Counters>, required;
    }

    /// Destroys a set of counters.
    "UVERBS_METHOD_COUNTERS_DESTROY" destroy = 1 {
        "UVERBS_ATTR_DESTROY_COUNTERS_HANDLE" HANDLE = 0: DestroyHandle<handle::Counters>, required;
    }

    /// Reads counters. `EINVAL` while nothing counts into them.
    "UVERBS_METHOD_COUNTERS_READ" read = 2 {
        "UVERBS_ATTR_READ_COUNTERS_HANDLE" HANDLE = 0: HandleIn<handle::Counters>, required;
        "UVERBS_ATTR_READ_COUNTERS_BUFF" BUFF = 1: SliceOut<u64>, required;
        "UVERBS_ATTR_READ_COUNTERS_FLAGS" FLAGS = 2: Flags<types::ReadCountersFlags>, optional;
    }
}
