//! Reads dumps of firmware commands, from the kernel's log or `soft-connectx --trace`, and prints them field by field:
//! one line for each half of a command, so that two traces can be compared with `diff`.
//!
//! `cargo run -p soft-connectx --example commands -- FILE`, or standard input.

use std::io::{self, Read, Write};
use std::process::ExitCode;

use soft_connectx::trace::{self, Direction, Dump};

fn read() -> io::Result<String> {
    let mut log = Vec::new();
    match std::env::args_os().nth(1) {
        Some(path) => log = std::fs::read(path)?,
        None => _ = io::stdin().read_to_end(&mut log)?,
    }
    Ok(String::from_utf8_lossy(&log).into_owned())
}

fn print(dump: &Dump, to: &mut impl Write) -> io::Result<()> {
    let (arrow, layout) = match dump.direction {
        Direction::Input => ("->", dump.opcode.input()),
        Direction::Output => ("<-", dump.opcode.output()),
    };
    let name = dump.opcode.name().unwrap_or("?");
    match layout {
        Some(layout) => writeln!(to, "{arrow} {name} {:x?}", layout.view(&dump.bytes)),
        None => writeln!(
            to,
            "{arrow} {name}({:#x}) {:02x?}",
            dump.opcode.0, dump.bytes
        ),
    }
}

fn main() -> ExitCode {
    let run = || {
        let mut to = io::BufWriter::new(io::stdout().lock());
        trace::parse(&read()?)
            .iter()
            .try_for_each(|dump| print(dump, &mut to))?;
        to.flush()
    };
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("commands: {error}");
            ExitCode::FAILURE
        }
    }
}
