//! What a real device never checks.

/// What the checks remember.
#[derive(Debug, Default)]
pub(crate) struct State {}
