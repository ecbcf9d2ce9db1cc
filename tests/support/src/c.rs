//! C programs as independent witnesses: compiled against installed headers, run, their output
//! compared with what Rust says.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles `source` and runs it, with `include` directories searched before the system's.
///
/// The compiler is `$CC`, or `cc`.
///
/// # Errors
///
/// The compiler's or the program's own messages, when one of them fails.
pub fn compile_and_run(source: &str, include: &[&Path]) -> Result<String, String> {
    let dir = tempfile::tempdir().map_err(|e| format!("no temporary directory: {e}"))?;
    let program = dir.path().join("witness");
    compile_with(source, include, &program)?;
    output_of(&mut Command::new(&program))
}

/// Compiles `source` to `program`, for a test that runs it in its own way.
///
/// # Errors
///
/// The compiler's messages, when it fails.
pub fn compile(source: &str, program: &Path) -> Result<(), String> {
    compile_with(source, &[], program)
}

fn compile_with(source: &str, include: &[&Path], program: &Path) -> Result<(), String> {
    let c_file = program.with_extension("c");
    std::fs::write(&c_file, source).map_err(|e| format!("{}: {e}", c_file.display()))?;
    let mut cc = Command::new(std::env::var_os("CC").unwrap_or_else(|| OsString::from("cc")));
    cc.arg("-o").arg(program).arg(&c_file);
    for dir in include {
        cc.arg("-I").arg(dir);
    }
    output_of(&mut cc)?;
    Ok(())
}

fn output_of(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    if output.status.success() {
        String::from_utf8(output.stdout).map_err(|e| format!("{command:?}: {e}"))
    } else {
        Err(format!(
            "{command:?}: {}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        ))
    }
}

/// Include directories named in an environment variable, separated by `:`.
pub fn include_dirs(variable: &str) -> Vec<PathBuf> {
    std::env::var_os(variable)
        .map(|value| {
            std::env::split_paths(&value)
                .filter(|p| !p.as_os_str().is_empty())
                .collect()
        })
        .unwrap_or_default()
}
