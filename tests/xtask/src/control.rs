//! `cargo xtask control`: rdma-core's own Python test-suite under Debian's provider alone.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use clap::Args;
use comfy_table::{Table, presets};
use lab::{Device, Provider};
use serde::{Deserialize, Serialize};

use crate::cargo;
use crate::compare::suite::Which;
use crate::compare::verdict::{Outcome, Record, Records};
use crate::compare::{self, Of, SuiteArguments};
use crate::lab::end_guests_on_ctrl_c;

/// Run rdma-core's own tests under Debian's provider, to see that the device is what that provider expects.
///
/// Each test runs in a process of its own. A test that fails is run twice more and counts as passed only if it passes both
/// times. tests/control.toml says how many must pass and which may fail, with the reason.
///
/// Exit status: 0 only if enough passed, nothing else failed, no kernel object is left and the kernel did not complain.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    suite: SuiteArguments,
}

/// What `control --json` writes of the suite.
#[derive(Debug, Serialize)]
struct Controlled<'a> {
    passed: usize,
    official: &'a Records,
}

/// What is required of a device.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Required {
    /// Least number of tests that pass.
    passed: usize,
    /// Tests that may fail or crash, each with its reason.
    #[serde(default)]
    may_fail: Vec<MayFail>,
    /// Lines that the kernel may say, each with the reason.
    #[serde(default)]
    may_say: Vec<MaySay>,
    /// What a seed of the mlx5 device's adversary changes.
    #[serde(default)]
    adversary: BTreeMap<String, Seed>,
    /// What the seed in force takes away.
    #[serde(skip)]
    takes_away: String,
}

/// What is required with a seed: fewer tests pass where it takes something away.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Seed {
    passed: usize,
    takes_away: String,
    /// Tests that use what is taken away without asking for it.
    #[serde(default)]
    may_fail: Vec<MayFail>,
    #[serde(default)]
    may_say: Vec<MaySay>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MayFail {
    /// End of the test's name, or of its class' or module's.
    test: String,
    #[allow(dead_code, reason = "for the reader of the file")]
    reason: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MaySay {
    /// Part of the line.
    line: String,
    #[allow(dead_code, reason = "for the reader of the file")]
    reason: String,
}

impl Required {
    /// Of the device with this name, and its adversary if it has one.
    fn read(path: &Path, device: &str, seed: Option<u64>) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let mut all: BTreeMap<String, Self> =
            toml::from_str(&text).with_context(|| path.display().to_string())?;
        let mut required = all
            .remove(device)
            .with_context(|| format!("{} says nothing of {device}", path.display()))?;
        if let Some(seed) = seed {
            let known = required.adversary.remove(&seed.to_string());
            // Of a seed that was not tried before nobody knows what it takes away; that nothing fails counts.
            let known = known.unwrap_or_default();
            required.passed = known.passed;
            required.may_fail.extend(known.may_fail);
            required.may_say.extend(known.may_say);
            required.takes_away = known.takes_away;
        }
        Ok(required)
    }

    fn forgives(&self, test: &str) -> bool {
        let listed = |entry: &MayFail| {
            test.split('.').any(|part| part == entry.test) || test.ends_with(&entry.test)
        };
        self.may_fail.iter().any(listed)
    }

    fn expects(&self, complaint: &str) -> bool {
        self.may_say.iter().any(|it| complaint.contains(&it.line))
    }
}

fn failed(record: &Record) -> bool {
    let skipped = |run: &compare::verdict::Run| run.result == Outcome::Skipped;
    !record.passed() && !record.runs.iter().all(skipped)
}

pub(crate) fn run(arguments: &Arguments) -> Result<u8> {
    let config = arguments.suite.config(Provider::Official);
    let device = compare::name_of(&config);
    let required = Required::read(
        &cargo::root().join("tests/control.toml"),
        &device,
        config.connectx.adversary,
    )?;
    arguments.suite.build(&config)?;
    end_guests_on_ctrl_c()?;
    let mut bench = compare::boot("control", &config)?;
    let versions = bench.guest.versions().clone();
    let all = Which::Matching(match config.device {
        // What Debian's provider can do with it without a kernel driver is tested there, and nothing else uses it.
        Device::Vfio if arguments.suite.filter.is_empty() => "mlx5_vfio",
        _ => &arguments.suite.filter,
    });
    let should_pass = |run: &compare::verdict::Run| {
        run.result != Outcome::Skipped && !required.forgives(&run.test)
    };
    let (records, left) = bench.records("official", Provider::Official, all, should_pass)?;
    let complaints = bench.guest.complaints();
    show(&records);
    if !required.takes_away.is_empty() {
        println!("this seed: {}", required.takes_away);
    }
    for line in left.iter().chain(&complaints) {
        println!("{line}");
    }
    let passed = records.values().filter(|record| record.passed()).count();
    let failures: Vec<&String> = records
        .iter()
        .filter(|(name, record)| failed(record) && !required.forgives(name))
        .map(|(name, _)| name)
        .collect();
    let of = Of::new(&config, &versions, &left, &complaints);
    let official = &records;
    arguments
        .suite
        .write(&of, &Controlled { passed, official })?;
    let enough = !arguments.suite.filter.is_empty() || passed >= required.passed;
    if !enough {
        println!("{} must pass, says tests/control.toml", required.passed);
    }
    let good = enough
        && failures.is_empty()
        && left.is_empty()
        && complaints.iter().all(|line| required.expects(line));
    if !good && let Some(dir) = bench.guest.keep_device_log()? {
        eprintln!("control: the device's log is in {}", dir.display());
    }
    let skipped = records.len() - passed - records.values().filter(|r| failed(r)).count();
    println!(
        "control {device} {}: {skipped} not applicable, {passed} passed, {} failed",
        versions.kernel,
        failures.len()
    );
    Ok(u8::from(!good))
}

/// Reasons of skips with their numbers, and what failed.
fn show(records: &Records) {
    let mut reasons = std::collections::BTreeMap::<&str, usize>::new();
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_header(["test", "result", "why"]);
    for (name, record) in records {
        let Some(first) = record.runs.first() else {
            continue;
        };
        if first.result == Outcome::Skipped {
            *reasons.entry(&first.detail).or_default() += 1;
        } else if first.result != Outcome::Passed {
            table.add_row([
                name.as_str(),
                &record.word(),
                compare::verdict::last_line(&first.detail),
            ]);
        }
    }
    println!("skipped:");
    let mut reasons: Vec<_> = reasons.into_iter().collect();
    reasons.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
    for (reason, count) in reasons {
        println!("{count:5}  {reason}");
    }
    if !table.is_empty() {
        println!("\n{table}");
    }
    println!();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_read_and_forgives_by_name() {
        let path = cargo::root().join("tests/control.toml");
        for device in ["rxe", "mlx5-ib", "mlx5-roce"] {
            assert!(
                Required::read(&path, device, None).unwrap().passed > 0,
                "{device}"
            );
        }
        assert!(Required::read(&path, "mlx4", None).is_err());
        let entry = |test: &str| MayFail {
            test: test.to_owned(),
            reason: String::new(),
        };
        let required = Required {
            passed: 0,
            may_fail: vec![entry("test_mlx5_dm_ops"), entry("CQTest.test_resize_cq")],
            may_say: vec![MaySay {
                line: "too many outstanding".to_owned(),
                reason: String::new(),
            }],
            ..Required::default()
        };
        assert!(required.expects("mlx5_core 0000:01:00.0: too many outstanding CQEs(0x40)"));
        assert!(!required.expects("mlx5_core 0000:01:00.0: bad parameter(0x3)"));
        assert!(required.forgives("tests.test_mlx5_dm_ops.Mlx5DmOpAddresses.test_dm_atomic_ops"));
        assert!(required.forgives("tests.test_cq.CQTest.test_resize_cq"));
        assert!(!required.forgives("tests.test_cq.CQTest.test_create_cq"));
    }
}
