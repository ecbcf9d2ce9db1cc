//! How examples end.

use std::error::Error;
use std::process::ExitCode;

/// Runs `example` and prints its error in one line, with what to do about it.
pub(crate) fn main(example: impl FnOnce() -> Result<(), Box<dyn Error>>) -> ExitCode {
    match example() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
