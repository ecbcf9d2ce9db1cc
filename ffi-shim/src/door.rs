//! What every function that C calls goes through: no panic crosses, and errors become errno.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use oxverbs::ffi_core::Errno;

use crate::log;

/// What an operation gives C: the value for success and for failure.
pub(crate) trait Answer {
    /// What C gets.
    type C;
    /// The value, or the failure with `errno` as the C convention of its type wants it.
    fn answer(result: Result<Self, Errno>) -> Self::C
    where
        Self: Sized;
}

impl Answer for () {
    type C = c_int;
    /// 0 or a positive errno, which is also left in `errno`, since some programs look there.
    fn answer(result: Result<Self, Errno>) -> c_int {
        match result {
            Ok(()) => 0,
            Err(Errno(number)) => {
                set_errno(number);
                number
            }
        }
    }
}

impl Answer for u32 {
    type C = c_int;
    /// How many, or an errno below zero.
    fn answer(result: Result<Self, Errno>) -> c_int {
        match result {
            Ok(count) => count as c_int,
            Err(Errno(number)) => {
                set_errno(number);
                -number
            }
        }
    }
}

impl<T> Answer for *mut T {
    type C = *mut T;
    fn answer(result: Result<Self, Errno>) -> *mut T {
        result.unwrap_or_else(|Errno(number)| {
            set_errno(number);
            std::ptr::null_mut()
        })
    }
}

/// Runs a control operation: traced, and a panic becomes `EIO` with a message.
pub(crate) fn control<T: Answer>(
    operation: &'static str,
    run: impl FnOnce() -> Result<T, Errno>,
) -> T::C {
    let result = guarded(operation, run).unwrap_or(Err(Errno(libc::EIO)));
    log::operation(operation, result.as_ref().err().copied());
    T::answer(result)
}

/// Runs something that must not let a panic out; says with `None` that one was stopped.
pub(crate) fn guarded<T>(operation: &'static str, run: impl FnOnce() -> T) -> Option<T> {
    // Whatever was interrupted belongs to one object, which the program can only destroy after the error.
    catch_unwind(AssertUnwindSafe(run))
        .inspect_err(|_| log::always(format_args!("{operation}: internal error, see above")))
        .ok()
}

pub(crate) fn set_errno(number: c_int) {
    // SAFETY: libc's location of the calling thread's errno, always valid.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    unsafe { *place = number };
}
