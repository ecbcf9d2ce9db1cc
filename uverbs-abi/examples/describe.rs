//! Turns a recording of uverbs calls (`driver/tests/golden/record.c` says the format) into text.
//!
//! `describe [--portable] < recording`

use std::io::{self, Read};
use std::process::ExitCode;

use uverbs_abi::trace::Show;

#[path = "../../driver/tests/golden/recording.rs"]
mod recording;

fn main() -> ExitCode {
    let show = match std::env::args().nth(1).as_deref() {
        None => Show::All,
        Some("--portable") => Show::Portable,
        Some(_) => {
            eprintln!("usage: describe [--portable] < recording");
            return ExitCode::from(2);
        }
    };
    let mut text = String::new();
    if let Err(error) = io::stdin().read_to_string(&mut text) {
        eprintln!("{error}");
        return ExitCode::FAILURE;
    }
    match recording::describe(&text, show) {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
