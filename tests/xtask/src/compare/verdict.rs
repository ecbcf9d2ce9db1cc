//! What the runs of the suite say together.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How a test ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Outcome {
    #[serde(rename = "passed")]
    Passed,
    #[serde(rename = "skipped")]
    Skipped,
    #[serde(rename = "failed")]
    Failed,
    #[serde(rename = "error")]
    Error,
    #[serde(rename = "crashed")]
    Crashed,
    #[serde(rename = "timeout")]
    Timeout,
    /// Another provider than the intended one served the test: a failure of this harness.
    #[serde(rename = "wrong provider")]
    WrongProvider,
    /// The guest's kernel died under the test.
    #[serde(rename = "guest died")]
    GuestDied,
}

impl Outcome {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Skipped => "skipped",
            Self::Failed => "failed",
            Self::Error => "error",
            Self::Crashed => "CRASHED",
            Self::Timeout => "timeout",
            Self::WrongProvider => "WRONG PROVIDER",
            Self::GuestDied => "GUEST DIED",
        }
    }

    /// Never to be forgiven, whatever a repetition says.
    fn is_grave(self) -> bool {
        matches!(self, Self::Crashed | Self::WrongProvider | Self::GuestDied)
    }
}

/// One run of one test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) test: String,
    pub(crate) result: Outcome,
    /// Reason of a skip, trace of a failure.
    pub(crate) detail: String,
    /// File name of the provider that served.
    pub(crate) provider: String,
    pub(crate) seconds: f64,
}

/// All runs of a test under one provider: the first and, if it did not pass though it should, its repetitions.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Record {
    pub(crate) runs: Vec<Run>,
}

impl Record {
    fn first(&self) -> Option<Outcome> {
        self.runs.first().map(|run| run.result)
    }

    /// A test that does not pass at once passes only if all its repetitions do, and none crashed.
    pub(crate) fn passed(&self) -> bool {
        match self.first() {
            None => false,
            Some(Outcome::Passed) => !self.is_grave(),
            Some(_) => {
                let repeated = &self.runs[1..];
                !self.is_grave()
                    && !repeated.is_empty()
                    && repeated.iter().all(|run| run.result == Outcome::Passed)
            }
        }
    }

    fn is_grave(&self) -> bool {
        self.runs.iter().any(|run| run.result.is_grave())
    }

    fn is_unstable(&self) -> bool {
        self.runs.iter().any(|run| run.result == Outcome::Passed)
            && self.runs.iter().any(|run| run.result != Outcome::Passed)
    }

    pub(crate) fn word(&self) -> String {
        let words: Vec<&str> = self.runs.iter().map(|run| run.result.word()).collect();
        words.join(", ")
    }
}

/// Records of all tests under one provider.
pub(crate) type Records = BTreeMap<String, Record>;

/// Tests of interfaces that ours has the names of and no more: how their names begin, and where that is said.
const DECLINED: &[(&str, &str)] = &[(
    "tests.test_mlx5_dr.",
    "software steering answers EOPNOTSUPP, docs/mlx5dv.md",
)];

/// Why ours need not pass a test: it is one of [`DECLINED`], and each run was skipped because of that answer.
fn declined(name: &str, ours: &Record) -> Option<&'static str> {
    let says_so = |run: &Run| {
        run.result == Outcome::Skipped && run.detail.contains("Operation not supported")
    };
    if ours.runs.is_empty() || !ours.runs.iter().all(says_so) {
        return None;
    }
    let (_, why) = DECLINED.iter().find(|(begin, _)| name.starts_with(begin))?;
    Some(why)
}

/// What the comparison says.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(crate) struct Verdict {
    pub(crate) official_passed: usize,
    pub(crate) ours_passed: usize,
    /// Official passes, ours does not.
    pub(crate) regressions: Vec<String>,
    /// The same where ours says on purpose that it has not got what the test is about ([`DECLINED`]).
    pub(crate) declined: Vec<String>,
    /// Ours passes, official does not.
    pub(crate) gains: Vec<String>,
    /// Passed in one run and not in another, with the side it happened on.
    pub(crate) unstable: Vec<String>,
    /// Crashes and wrong providers, with the side they happened on.
    pub(crate) grave: Vec<String>,
    /// Official passed the first time and not the second: the comparison itself cannot be trusted.
    pub(crate) control_failures: Vec<String>,
}

impl Verdict {
    /// `control` holds the tests that official passed at first, run under official again.
    pub(crate) fn of(official: &Records, control: &Records, ours: &Records) -> Self {
        let mut verdict = Self::default();
        for (name, record) in official {
            verdict.note_trouble(name, "official", record);
            let ours_passed = ours.get(name).is_some_and(Record::passed);
            if record.passed() {
                verdict.official_passed += 1;
                match ours.get(name).and_then(|record| declined(name, record)) {
                    _ if ours_passed => {}
                    Some(why) => verdict.declined.push(format!("{name} ({why})")),
                    None => verdict.regressions.push(name.clone()),
                }
                if !control.get(name).is_some_and(Record::passed) {
                    verdict.control_failures.push(name.clone());
                }
            } else if ours_passed {
                verdict.gains.push(name.clone());
            }
        }
        for (side, records) in [("official, second run", control), ("ours", ours)] {
            for (name, record) in records {
                verdict.note_trouble(name, side, record);
            }
        }
        verdict.ours_passed = ours.values().filter(|record| record.passed()).count();
        verdict
    }

    fn note_trouble(&mut self, name: &str, side: &str, record: &Record) {
        let line = format!("{name} ({side}: {})", record.word());
        if record.is_grave() {
            self.grave.push(line);
        } else if record.is_unstable() {
            self.unstable.push(line);
        }
    }

    pub(crate) fn is_good(&self) -> bool {
        self.official_passed > 0
            && self.regressions.is_empty()
            && self.grave.is_empty()
            && self.control_failures.is_empty()
    }
}

/// Rows of the table for people: test, official, ours, and why ours does not pass.
pub(crate) fn rows(official: &Records, ours: &Records) -> Vec<[String; 4]> {
    let mut rows = Vec::new();
    for (name, record) in official {
        let other = ours.get(name);
        let shown = other.map_or_else(|| "-".to_owned(), Record::word);
        let reason = match other {
            Some(other) if !other.passed() => {
                other.runs.first().map_or("", |run| last_line(&run.detail))
            }
            _ => "",
        };
        rows.push([name.clone(), record.word(), shown, reason.to_owned()]);
    }
    rows
}

/// The line of a trace that says what happened.
pub(crate) fn last_line(detail: &str) -> &str {
    let lines = || {
        detail
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
    };
    let error = lines().rfind(|line| {
        line.split_once(':').is_some_and(|(kind, _)| {
            kind.ends_with("Error") || kind.ends_with("Exception") || kind == "exceptions"
        })
    });
    error.or_else(|| lines().next_back()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(outcomes: &[Outcome]) -> Record {
        let run = |&result: &Outcome| Run {
            test: String::new(),
            result,
            detail: String::new(),
            provider: String::new(),
            seconds: 0.0,
        };
        Record {
            runs: outcomes.iter().map(run).collect(),
        }
    }

    fn records(of: &[(&str, &[Outcome])]) -> Records {
        of.iter()
            .map(|(name, outcomes)| ((*name).to_owned(), record(outcomes)))
            .collect()
    }

    use Outcome::{Crashed, Error, Passed, Skipped, WrongProvider};

    #[test]
    fn repetitions() {
        assert!(record(&[Passed]).passed());
        assert!(record(&[Error, Passed, Passed]).passed());
        assert!(!record(&[Error, Passed, Error]).passed());
        assert!(!record(&[Error]).passed());
        assert!(!record(&[Crashed, Passed, Passed]).passed());
        assert!(!record(&[Skipped]).passed());
        assert!(!record(&[]).passed());
    }

    #[test]
    fn official_against_official_is_good() {
        let official = records(&[("a", &[Passed]), ("b", &[Skipped]), ("c", &[Error])]);
        let control = records(&[("a", &[Passed])]);
        let verdict = Verdict::of(&official, &control, &official);
        assert!(verdict.is_good());
        assert_eq!((verdict.official_passed, verdict.ours_passed), (1, 1));
    }

    #[test]
    fn every_kind_of_trouble_turns_it_red() {
        let official = records(&[("a", &[Passed]), ("b", &[Skipped])]);
        let control = records(&[("a", &[Passed])]);
        // A skip is not a pass; neither is a test that was not run.
        for worse in [&[Skipped][..], &[Error], &[Crashed], &[WrongProvider], &[]] {
            let ours = records(&[("a", worse)]);
            let verdict = Verdict::of(&official, &control, &ours);
            assert_eq!(verdict.regressions, ["a"]);
            assert!(!verdict.is_good());
        }
        // A crash in a test that official does not pass.
        let ours = records(&[("a", &[Passed]), ("b", &[Crashed])]);
        let verdict = Verdict::of(&official, &control, &ours);
        assert!(verdict.regressions.is_empty() && !verdict.is_good());
        // Official that fails its second run.
        let verdict = Verdict::of(&official, &records(&[("a", &[Error])]), &official);
        assert!(!verdict.is_good());
        // Nothing passed at all.
        assert!(!Verdict::of(&Records::new(), &Records::new(), &Records::new()).is_good());
    }

    #[test]
    fn what_ours_declines_is_named_and_nothing_else() {
        let name = "tests.test_mlx5_dr.Mlx5DrTest.test_root_tbl_qp_rule";
        let official = records(&[(name, &[Passed])]);
        let said = |outcome, detail: &str, name: &str| {
            let mut record = record(&[outcome, outcome]);
            for run in &mut record.runs {
                detail.clone_into(&mut run.detail);
            }
            Records::from([(name.to_owned(), record)])
        };
        let not_supported = "Operation not supported (Errno: 95, Operation not supported)";
        let verdict = Verdict::of(&official, &official, &said(Skipped, not_supported, name));
        assert!(verdict.is_good() && verdict.declined.len() == 1);
        for ours in [
            said(Error, not_supported, name),
            said(Skipped, "Must be run by root", name),
            Records::new(),
        ] {
            let verdict = Verdict::of(&official, &official, &ours);
            assert!(!verdict.is_good() && verdict.declined.is_empty());
        }
        let other = "tests.test_qp.QPTest.test_query_rc_qp";
        let official = records(&[(other, &[Passed])]);
        let verdict = Verdict::of(&official, &official, &said(Skipped, not_supported, other));
        assert_eq!(verdict.regressions, [other]);
    }

    #[test]
    fn gains_and_instability_are_named() {
        let official = records(&[("a", &[Passed]), ("b", &[Error])]);
        let control = records(&[("a", &[Error, Passed, Passed])]);
        let ours = records(&[("a", &[Passed]), ("b", &[Passed])]);
        let verdict = Verdict::of(&official, &control, &ours);
        assert!(verdict.is_good());
        assert_eq!(verdict.gains, ["b"]);
        assert_eq!(verdict.unstable.len(), 1);
    }

    #[test]
    fn reasons() {
        let trace = "Traceback (most recent call last):\n  File x\npyverbs.pyverbs_error.PyverbsRDMAError: Failed to create QP. Errno: 22, Invalid argument\n\nprinted\n";
        assert!(last_line(trace).starts_with("pyverbs.pyverbs_error.PyverbsRDMAError: Failed"));
        assert_eq!(last_line("SIGSEGV\n\n"), "SIGSEGV");
        assert_eq!(last_line(""), "");
    }
}
