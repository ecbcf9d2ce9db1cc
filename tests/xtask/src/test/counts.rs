//! What the stages report, added up.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

/// A test, or a part of one, that was not run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Skip {
    pub(crate) name: String,
    pub(crate) reason: String,
}

/// What a stage, or all of them, came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    /// Names of what failed.
    pub(crate) failed: Vec<String>,
    pub(crate) skipped: Vec<Skip>,
}

impl Counts {
    pub(crate) fn failure(name: impl Into<String>) -> Self {
        Self {
            failed: vec![name.into()],
            ..Self::default()
        }
    }

    pub(crate) fn skip(name: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            skipped: vec![Skip {
                name: name.into(),
                reason: reason.into(),
            }],
            ..Self::default()
        }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed.extend(other.failed);
        self.skipped.extend(other.skipped);
    }

    /// Reads what `cargo test` printed: one line a test, from any number of test programs; `program` is the one that
    /// tests belong to before cargo names another.
    pub(crate) fn of_libtest(program: &str, output: &str) -> Self {
        let mut counts = Self::default();
        let mut program = program.to_owned();
        for line in output.lines() {
            if let Some(rest) = line.trim_start().strip_prefix("Running ") {
                program = program_name(rest);
            } else if let Some(rest) = line.trim_start().strip_prefix("Doc-tests ") {
                program = format!("{rest} doc");
            }
            let Some((name, outcome)) = line
                .strip_prefix("test ")
                .and_then(|rest| rest.split_once(" ... "))
            else {
                continue;
            };
            let name = format!("{program}::{name}");
            // Our own suite adds how long a slow case took, and knows skips at run time.
            if outcome == "ok" || outcome.starts_with("ok (") {
                counts.passed += 1;
            } else if let Some(reason) = outcome.strip_prefix("skipped: ") {
                counts.skipped.push(Skip {
                    name,
                    reason: reason.to_owned(),
                });
            } else if outcome.starts_with("FAILED") {
                counts.failed.push(name);
            } else if let Some(rest) = outcome.strip_prefix("ignored") {
                let reason = rest.trim_start_matches([',', ' ']);
                counts.skipped.push(Skip {
                    name,
                    reason: reason.to_owned(),
                });
            }
        }
        counts
    }

    /// Takes in what tests wrote through `test_support::skip`: a skipped test function was counted as
    /// passed by the harness, a skipped part leaves its test counted.
    pub(crate) fn take_in_skips(&mut self, file: &str) {
        for line in file.lines() {
            let mut columns = line.splitn(3, '\t');
            let (Some(kind), Some(name), Some(reason)) =
                (columns.next(), columns.next(), columns.next())
            else {
                continue;
            };
            if kind == "test" {
                self.passed = self.passed.saturating_sub(1);
            }
            self.skipped.push(Skip {
                name: name.to_owned(),
                reason: reason.to_owned(),
            });
        }
    }

    /// How often each reason occurred, for the people who read the end of a long log.
    pub(crate) fn reasons(&self) -> BTreeMap<&str, Vec<&str>> {
        let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for skip in &self.skipped {
            reasons.entry(&skip.reason).or_default().push(&skip.name);
        }
        reasons
    }
}

/// The closing line.
impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            passed,
            failed,
            skipped,
        } = self;
        write!(
            f,
            "{passed} passed, {} failed, {} skipped",
            failed.len(),
            skipped.len()
        )
    }
}

/// `unittests src/lib.rs (target/debug/deps/uverbs_abi-0123456789abcdef)` names `uverbs_abi`.
fn program_name(running: &str) -> String {
    let path = running.rsplit_once('(').map_or(running, |(_, path)| path);
    let file = path.trim_end_matches(')');
    let file = file.rsplit_once('/').map_or(file, |(_, file)| file);
    file.rsplit_once('-')
        .map_or(file, |(name, _)| name)
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_test_harness_prints() {
        let output = "\
     Running unittests src/lib.rs (target/debug/deps/uverbs_abi-0a1b2c3d4e5f6071)

running 3 tests
test ioctl::tests::header ... ok
test slow ... ignored, needs an hour
test broken ... FAILED

test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s
   Doc-tests oxverbs
test driver/src/lib.rs - (line 7) - compile ... ok
";
        let counts = Counts::of_libtest("", output);
        assert_eq!(counts.passed, 2);
        assert_eq!(counts.failed, ["uverbs_abi::broken"]);
        assert_eq!(counts.skipped[0].name, "uverbs_abi::slow");
        assert_eq!(counts.skipped[0].reason, "needs an hour");
        assert_eq!(counts.to_string(), "2 passed, 1 failed, 1 skipped");
    }

    #[test]
    fn reads_what_our_suite_prints() {
        let output = "\
test mr/len=4096 ... ok
test mr/len=3145728 ... ok (12.0 s)
test mr/rereg/range ... skipped: the device has no rereg_mr ... at all
test srq/full[B58] ... FAILED: 3 instead of 4
";
        let counts = Counts::of_libtest("hw-tests 6.12", output);
        assert_eq!(counts.passed, 2);
        assert_eq!(counts.skipped[0].name, "hw-tests 6.12::mr/rereg/range");
        assert_eq!(counts.failed, ["hw-tests 6.12::srq/full[B58]"]);
    }

    #[test]
    fn a_skipped_test_is_not_a_passed_one() {
        let mut counts = Counts {
            passed: 5,
            ..Counts::default()
        };
        counts.take_in_skips("test\theaders::trixie\tno headers\npart\theaders::x\tnot in 6.1\n");
        assert_eq!(counts.passed, 4);
        assert_eq!(counts.skipped.len(), 2);
    }
}
