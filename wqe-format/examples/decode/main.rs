//! Turns hex dumps of mlx5 work requests and completions into words, and says what probably led to an error.
//!
//! ```text
//! cargo run -p wqe-format --example decode -- dmesg.txt
//! xxd -r … | xxd | cargo run -q -p wqe-format --example decode
//! ```

mod dump;
mod report;

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

/// Turns hex dumps of mlx5 (ConnectX) work requests and completions into words.
///
/// Reads text with dumps in it: the debug file of libmlx5 (MLX5_DEBUG_FILE), a kernel log with "dump_cqe" or "WQE DUMP",
/// the output of xxd, hexdump -C or gdb. For a completion in error it says what probably led to it.
#[derive(Debug, Parser)]
#[command(name = "decode", after_help = EXAMPLES)]
struct Cli {
    /// Files to read; - or none: standard input
    files: Vec<PathBuf>,
    #[command(flatten)]
    options: report::Options,
}

const EXAMPLES: &str = "\
Examples:
  dmesg | decode
  MLX5_DEBUG_FILE=/tmp/mlx5.log app; decode /tmp/mlx5.log
  xxd wqe.bin | decode --as wqe --queue ud
  decode --as cqe --words le32 gdb.txt        # gdb: x/16xw cqe";

fn main() -> ExitCode {
    let cli = Cli::parse();
    let files = match cli.files.as_slice() {
        [] => vec![PathBuf::from("-")],
        files => files.to_vec(),
    };
    let mut code = ExitCode::SUCCESS;
    for file in files {
        let result = read(&file).and_then(|(name, text)| report::report(&name, &text, cli.options));
        match result {
            // A closed pipe (decode | head) is no error.
            Ok(words) => {
                if std::io::stdout().write_all(words.as_bytes()).is_err() {
                    break;
                }
            }
            Err(error) => {
                eprintln!("decode: {error}");
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}

/// The text of a file and what to call it. Bytes that are not text are kept apart from the dump by a mark.
fn read(file: &PathBuf) -> Result<(String, String), String> {
    let mut bytes = Vec::new();
    let (name, result) = if file.as_os_str() == "-" {
        let result = std::io::stdin().read_to_end(&mut bytes).map(drop);
        ("stdin".to_owned(), result)
    } else {
        let result = std::fs::read(file).map(|read| bytes = read);
        (file.display().to_string(), result)
    };
    result.map_err(|e| format!("{name}: {e}"))?;
    if bytes.contains(&0) {
        return Err(format!(
            "{name}: these are bytes, not text; print them with xxd {name}"
        ));
    }
    Ok((name, String::from_utf8_lossy(&bytes).into_owned()))
}
