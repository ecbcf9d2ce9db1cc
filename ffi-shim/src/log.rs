//! Messages: `OXVERBS_LOG` (set to anything but 0) traces the control path on standard error.

use std::fmt;
use std::sync::OnceLock;

use oxverbs::ffi_core::Errno;

fn tracing() -> bool {
    static TRACING: OnceLock<bool> = OnceLock::new();
    *TRACING.get_or_init(|| std::env::var_os("OXVERBS_LOG").is_some_and(|value| value != "0"))
}

/// A message for whoever asked for the trace.
pub(crate) fn trace(message: fmt::Arguments<'_>) {
    if tracing() {
        always(message);
    }
}

/// A message that the user must see.
pub(crate) fn always(message: fmt::Arguments<'_>) {
    use std::io::Write;
    // Standard error may be closed; there is nowhere else to say so.
    let _ = writeln!(std::io::stderr(), "oxverbs: {message}");
}

/// The outcome of a control operation.
pub(crate) fn operation(name: &str, error: Option<Errno>) {
    match error {
        None => trace(format_args!("{name}")),
        Some(errno) => trace(format_args!("{name}: {errno}")),
    }
}
