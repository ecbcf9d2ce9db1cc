//! C programs as independent witnesses: compiled against installed headers, run, their output
//! compared with what Rust says.

use std::ffi::OsString;
use std::fmt::Write as _;
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

/// One thing that C and Rust must agree on: a C expression and its value here.
#[derive(Debug)]
struct Fact {
    expression: String,
    value: u64,
}

/// What C and Rust must agree on.
#[derive(Debug, Default)]
pub struct Facts(Vec<Fact>);

impl Facts {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Adds those of another.
    pub fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Adds a C expression and its value here.
    pub fn add(&mut self, expression: impl Into<String>, value: impl Into<u64>) {
        self.0.push(Fact {
            expression: expression.into(),
            value: value.into(),
        });
    }

    /// Compiles a program that prints every expression, and compares.
    ///
    /// # Errors
    ///
    /// Every expression whose value differs, or the compiler's messages.
    pub fn check(&self, preamble: &str, include: &[&Path]) -> Result<(), String> {
        let mut source = format!(
            "#include <stddef.h>\n#include <stdint.h>\n#include <stdio.h>\n{preamble}\nint main(void) {{\n"
        );
        for fact in &self.0 {
            writeln!(
                source,
                "printf(\"%llu\\n\", (unsigned long long)(uint64_t)({}));",
                fact.expression
            )
            .unwrap();
        }
        source.push_str("return 0; }\n");
        let output = compile_and_run(&source, include)?;
        let mut lines = output.lines();
        let mut wrong = String::new();
        for fact in &self.0 {
            let c: u64 = lines
                .next()
                .ok_or("the program printed too little")?
                .parse()
                .map_err(|e| format!("{e}"))?;
            if c != fact.value {
                writeln!(
                    wrong,
                    "{}: C {c:#x}, Rust {:#x}",
                    fact.expression, fact.value
                )
                .unwrap();
            }
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong) }
    }
}
