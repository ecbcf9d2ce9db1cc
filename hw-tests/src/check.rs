//! How a case ends early.

use std::fmt;

use crate::verbs::types::{Fault, PostFault};

/// Why a case does not go on.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The device or the provider did something else than the verbs say.
    Fail(String),
    /// The device lacks what the case needs, found out on the way.
    Skip(String),
}

pub(crate) type Check<T = ()> = Result<T, Stop>;

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Fail(format!("unexpected: {fault}"))
    }
}

impl From<PostFault> for Stop {
    fn from(fault: PostFault) -> Self {
        Self::Fail(format!("unexpected: {fault}"))
    }
}

/// Skips the case where the function is missing; any other fault stays a failure.
pub(crate) trait OrSkip<T> {
    fn or_skip(self, function: &str) -> Check<T>;
}

impl<T> OrSkip<T> for Result<T, Fault> {
    fn or_skip(self, function: &str) -> Check<T> {
        self.map_err(|fault| match fault.unsupported() {
            true => Stop::Skip(format!("the device has no {function} ({fault})")),
            false => fault.into(),
        })
    }
}

impl OrSkip<()> for Result<(), PostFault> {
    fn or_skip(self, function: &str) -> Check {
        self.map_err(|post| post.fault).or_skip(function)
    }
}

/// Ends a case whose device is known not to follow the specification. Named and counted as a skip,
/// with the source, so that it is neither green nor red.
pub(crate) fn deviates<T>(how: &str) -> Check<T> {
    Err(Stop::Skip(format!("the device deviates: {how}")))
}

pub(crate) fn fail<T>(message: impl fmt::Display) -> Check<T> {
    Err(Stop::Fail(message.to_string()))
}

/// Fails unless the call was refused, with one of `errnos` if the kernel or provider gave one.
pub(crate) fn refused<T: fmt::Debug>(
    what: &str,
    answer: Result<T, Fault>,
    errnos: &[i32],
) -> Check {
    match answer {
        Ok(value) => fail(format!("{what} was accepted: {value:?}")),
        Err(fault) if fault.is(errnos) => Ok(()),
        Err(fault) => fail(format!("{what}: refused with the wrong error: {fault}")),
    }
}

/// Fails unless posting stopped at request `index` with one of `errnos`, all positive.
pub(crate) fn post_refused(
    what: &str,
    posted: Result<(), PostFault>,
    index: usize,
    errnos: &[i32],
) -> Check {
    match posted {
        Ok(()) => fail(format!("{what} was accepted")),
        Err(post) if post.index != index => {
            fail(format!("{what}: request {index} is bad, reported: {post}"))
        }
        Err(post) => refused(what, Err::<(), _>(post.fault), errnos),
    }
}

/// Fails with both values unless they are equal.
pub(crate) fn equal<T: PartialEq + fmt::Debug>(what: &str, got: T, expected: T) -> Check {
    if got == expected {
        return Ok(());
    }
    fail(format!("{what}: got {got:?}, expected {expected:?}"))
}

pub(crate) fn ensure(what: &str, holds: bool) -> Check {
    if holds {
        return Ok(());
    }
    fail(format!("not so: {what}"))
}
