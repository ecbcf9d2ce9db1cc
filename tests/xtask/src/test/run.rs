//! Programs that stages run: their output is shown as it comes and kept.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use test_support::skip::SKIPS_FILE;

use super::counts::Counts;
use crate::cargo::target;

/// What a program printed, and whether it succeeded.
#[derive(Debug)]
pub(crate) struct Printed {
    pub(crate) output: String,
    pub(crate) success: bool,
}

/// Runs a program; its standard output is shown and kept, its standard error is shown.
pub(crate) fn show_and_keep(command: &mut Command) -> Result<Printed> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("{command:?}"))?;
    let stdout = child.stdout.take().context("standard output")?;
    let mut output = String::new();
    for line in BufReader::new(stdout).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        output.push_str(&line);
        output.push('\n');
    }
    let success = child.wait()?.success();
    Ok(Printed { output, success })
}

/// Cargo, for output that is read.
pub(crate) fn cargo() -> Command {
    let mut cargo = crate::cargo::cargo();
    cargo.env("CARGO_TERM_COLOR", "never");
    cargo
}

/// Runs another word of this program; its closing line has the counts, and what it skips beside them it says as tests do.
pub(crate) fn word(arguments: &[&str]) -> Result<Counts> {
    let skips = target().join("word.skips");
    fs::write(&skips, "").with_context(|| skips.display().to_string())?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(arguments).env(SKIPS_FILE, &skips);
    let printed = show_and_keep(&mut command)?;
    let mut counts = of_closing_line(&arguments.join(" "), &printed);
    let skipped = fs::read_to_string(&skips).with_context(|| skips.display().to_string())?;
    counts.take_in_skips(&skipped);
    Ok(counts)
}

/// Counts of a program that closes with a line such as `12 passed, 0 failed, 1 skipped` or `compare rxe stable: official 102
/// passed, ours 103 passed, 0 regressions`.
fn of_closing_line(name: &str, printed: &Printed) -> Counts {
    let last = printed.output.lines().rfind(|line| !line.trim().is_empty());
    let last = last.unwrap_or_default();
    let words: Vec<&str> = last
        .split([' ', ',', ':'])
        .filter(|w| !w.is_empty())
        .collect();
    // The last such number: of "official … passed, ours … passed" ours is the one that counts.
    let before = |what: &str| {
        let place = words.iter().rposition(|word| *word == what)?;
        words.get(place.checked_sub(1)?)?.parse::<u64>().ok()
    };
    let mut counts = Counts {
        passed: before("passed").unwrap_or(0),
        ..Counts::default()
    };
    let failed = before("failed").or(before("regressions")).unwrap_or(0);
    for number in 1..=failed {
        counts
            .failed
            .push(format!("{name} ({number} of {failed}; see above)"));
    }
    for number in 1..=before("skipped").unwrap_or(0) {
        counts.add(Counts::skip(
            format!("{name}#{number}"),
            "named in the output above",
        ));
    }
    if !printed.success && counts.failed.is_empty() {
        counts.failed.push(format!("{name}: {last}"));
    }
    if printed.success && before("passed").is_none() {
        // A verdict as a whole, such as "0 differences".
        counts.passed = 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(output: &str, success: bool) -> Counts {
        let output = output.to_owned();
        of_closing_line("word", &Printed { output, success })
    }

    #[test]
    fn reads_closing_lines() {
        let of = counts("noise 7 passed\n150 passed, 2 failed, 1 skipped\n\n", false);
        assert_eq!((of.passed, of.failed.len(), of.skipped.len()), (150, 2, 1));
        let line = "compare rxe 6.12: official 102 passed, ours 103 passed, 1 regressions\n";
        let of = counts(line, false);
        assert_eq!((of.passed, of.failed.len()), (103, 1));
        let line = "oracle: 10 wqes, 5 completions, 0 differences, 2 named divergences\n";
        let of = counts(line, true);
        assert_eq!((of.passed, of.failed.len()), (1, 0));
        assert_eq!(counts(line, false).failed.len(), 1);
    }

    #[test]
    fn a_program_that_dies_without_a_closing_line_has_failed() {
        assert_eq!(
            counts("error: no QEMU\n", false).failed,
            ["word: error: no QEMU"]
        );
    }
}
