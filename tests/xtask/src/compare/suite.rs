//! Running the suite in a guest under one provider.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use lab::{Config, Device, Guest, GuestDied, Provider, Resources, Step, Stream, step::quote};
use serde::Deserialize;

use super::verdict::{Outcome, Record, Records, Run};

/// Runs the tests, in the guest.
const RUNNER: &str = include_str!("runner.py");
/// A single test; official's slowest passing one takes 8 s on an idle machine under emulation.
const TEST_TIMEOUT: u32 = 60;
/// A whole pass.
const PASS_TIMEOUT: Duration = Duration::from_secs(1200);
/// Runs of a test after one that should have passed.
const REPETITIONS: usize = 2;
/// rxe destroys objects in the background; how often and how long its counters are looked at before something counts as
/// left.
const SETTLE: (u32, Duration) = (20, Duration::from_millis(250));

/// Which tests of the suite.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Which<'a> {
    /// Those whose names match a (Python) regular expression.
    Matching(&'a str),
    /// These.
    Named(&'a [String]),
}

/// A guest with the suite in it.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) guest: Guest,
    config: Config,
    suite: PathBuf,
}

/// A line of the runner.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Line {
    All {
        tests: Vec<String>,
    },
    Start {
        test: String,
        #[allow(dead_code, reason = "tells the kinds of lines apart")]
        start: bool,
    },
    Run(Run),
}

/// What a pass left behind, if anything.
pub(crate) type Leftover = Option<String>;

impl Bench {
    pub(crate) fn boot(config: &Config, suite: &Path) -> Result<Self> {
        let mut bench = Self {
            guest: Guest::boot(config)?,
            config: config.clone(),
            suite: suite.to_owned(),
        };
        bench.bring_suite()?;
        Ok(bench)
    }

    fn bring_suite(&mut self) -> Result<()> {
        let work = self.guest.work();
        fs::write(work.join("runner.py"), RUNNER)?;
        fs::create_dir_all(work.join("suite/tests"))?;
        for entry in fs::read_dir(&self.suite).with_context(|| self.suite.display().to_string())? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "py")
                && let Some(name) = path.file_name()
            {
                fs::copy(&path, work.join("suite/tests").join(name))?;
            }
        }
        // Memory is faster than the shared directory, and the runner writes nothing into it.
        let step = Step::new(
            "bring the suite",
            "exec cp -r /share/work/suite /share/work/runner.py /tmp/",
        );
        self.guest.run(step)?.expect_ok()?;
        Ok(())
    }

    /// One run of each of these tests under a provider, in one boot if the guest survives; and what it left.
    pub(crate) fn pass(
        &mut self,
        what: &str,
        provider: Provider,
        which: Which<'_>,
    ) -> Result<(Vec<Run>, Leftover)> {
        let mut wanted: Option<Vec<String>> = match which {
            Which::Named(names) => Some(names.to_vec()),
            Which::Matching(_) => None,
        };
        let mut runs: Vec<Run> = Vec::new();
        let bar = ProgressBar::no_length().with_prefix(what.to_owned());
        bar.set_style(ProgressStyle::with_template(
            "{prefix:>10} {bar:30} {pos}/{len} {msg}",
        )?);
        let mut before = self.guest.resources_at_first()?;
        loop {
            let remaining: Option<Vec<String>> = wanted.as_ref().map(|wanted| {
                let done = |name: &&String| !runs.iter().any(|run| run.test == **name);
                wanted.iter().filter(done).cloned().collect()
            });
            if remaining.as_ref().is_some_and(Vec::is_empty) {
                break;
            }
            let argument = match (&remaining, which) {
                (Some(names), _) => {
                    fs::write(self.guest.work().join("names"), names.join("\n"))?;
                    "@/share/work/names".to_owned()
                }
                (None, Which::Matching(pattern)) => pattern.to_owned(),
                (None, Which::Named(_)) => unreachable!("named tests are known"),
            };
            let step = Step::new(what, self.command(provider, &argument)).timeout(PASS_TIMEOUT);
            let (mut text, mut running) = (Vec::new(), None);
            let ended = self.guest.run_with(step, |stream, bytes| {
                if stream == Stream::Stdout {
                    text.extend_from_slice(bytes);
                    while let Some(end) = text.iter().position(|&byte| byte == b'\n') {
                        let line: Vec<u8> = text.drain(..=end).collect();
                        match serde_json::from_slice(&line) {
                            Ok(Line::All { tests }) => {
                                if wanted.is_none() {
                                    bar.set_length(tests.len() as u64);
                                    wanted = Some(tests);
                                } else {
                                    bar.set_length(
                                        wanted.as_ref().map_or(0, |wanted| wanted.len() as u64),
                                    );
                                }
                            }
                            Ok(Line::Start { test, .. }) => {
                                bar.set_message(test.clone());
                                running = Some(test);
                            }
                            Ok(Line::Run(run)) => {
                                running = None;
                                runs.push(run);
                                bar.set_position(runs.len() as u64);
                            }
                            // Something else that the suite printed.
                            Err(_) => {}
                        }
                    }
                }
            });
            match ended {
                Ok(outcome) if outcome.ok() => break,
                Ok(outcome) => bail!(
                    "the suite's runner ({what}): {}\n{}",
                    outcome.ended,
                    outcome.stderr.trim_end()
                ),
                Err(error) => {
                    let died = error.downcast::<GuestDied>()?;
                    let Some(test) = running else {
                        return Err(died.into());
                    };
                    bar.suspend(|| eprintln!("{what}: the guest died under {test}: {died}"));
                    runs.push(Run {
                        test,
                        result: Outcome::GuestDied,
                        detail: died.to_string(),
                        provider: String::new(),
                        seconds: 0.0,
                    });
                    self.guest = Guest::boot(&self.config)?;
                    self.bring_suite()?;
                    before = self.guest.resources_at_first()?;
                }
            }
        }
        bar.finish_and_clear();
        let wanted = wanted.unwrap_or_default();
        if let Some(missing) = wanted
            .iter()
            .find(|name| !runs.iter().any(|run| run.test == **name))
        {
            bail!("the suite's runner ({what}) did not run {missing}");
        }
        Ok((runs, self.leftover(&before)?))
    }

    /// The pass, and repetitions of those tests that `should_pass` and did not.
    pub(crate) fn records(
        &mut self,
        what: &str,
        provider: Provider,
        which: Which<'_>,
        should_pass: impl Fn(&Run) -> bool,
    ) -> Result<(Records, Vec<String>)> {
        let mut left = Vec::new();
        let mut note =
            |leftover: Leftover| left.extend(leftover.map(|text| format!("{what}: {text}")));
        let (runs, leftover) = self.pass(what, provider, which)?;
        note(leftover);
        let again: Vec<String> = runs
            .iter()
            .filter(|run| run.result != Outcome::Passed && should_pass(run))
            .map(|run| run.test.clone())
            .collect();
        let mut records = Records::new();
        let mut keep = |runs: Vec<Run>| {
            for run in runs {
                let record: &mut Record = records.entry(run.test.clone()).or_default();
                record.runs.push(run);
            }
        };
        keep(runs);
        for _ in 0..REPETITIONS {
            if !again.is_empty() {
                let (runs, leftover) =
                    self.pass(&format!("{what}, again"), provider, Which::Named(&again))?;
                note(leftover);
                keep(runs);
            }
        }
        Ok((records, left))
    }

    fn command(&self, provider: Provider, which: &str) -> String {
        let expected = provider_file(provider, &self.config);
        let (device, gid) = (self.config.devices()[0], self.config.gid_index());
        let runner = format!(
            "exec python3 /tmp/runner.py /tmp/suite/tests {expected} {TEST_TIMEOUT} {device} {gid} {}",
            quote(which)
        );
        under(provider, &self.config, &runner)
    }

    fn leftover(&mut self, before: &[Resources]) -> Result<Leftover> {
        let mut now = self.guest.resources()?;
        for _ in 0..SETTLE.0 {
            if now == before {
                return Ok(None);
            }
            std::thread::sleep(SETTLE.1);
            now = self.guest.resources()?;
        }
        Ok(Some(format!(
            "kernel objects are left: before {before:?}, after {now:?}"
        )))
    }
}

/// How the file names of a provider begin.
pub(super) fn provider_file(provider: Provider, config: &Config) -> &'static str {
    match (provider, config.device) {
        (Provider::Official, Device::Rxe) => "librxe-rdmav",
        (Provider::Official, Device::Mlx5 | Device::Vfio) => "libmlx5",
        // The suite's own modules link what stands in libmlx5's place, so that has to serve, not the plug-in.
        (Provider::Ours, Device::Mlx5) if config.drop_in => "liboxverbs_mlx5",
        (Provider::Ours, _) => "liboxverbs",
    }
}

/// A command under a provider, in a guest that has ours.
pub(crate) fn under(provider: Provider, config: &Config, command: &str) -> String {
    if provider == Provider::Official && config.provider == Provider::Ours {
        // In a mount namespace of its own, Debian's configuration is uncovered again.
        format!(
            "exec unshare --mount sh -c {}",
            quote(&format!(
                "umount /etc/libibverbs.d && unset LD_LIBRARY_PATH && {command}"
            ))
        )
    } else {
        command.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_runner() {
        let parse = |line: &str| serde_json::from_str::<Line>(line).unwrap();
        assert!(
            matches!(parse(r#"{"tests": ["a", "b"]}"#), Line::All { tests } if tests.len() == 2)
        );
        assert!(
            matches!(parse(r#"{"test": "a", "start": true}"#), Line::Start { test, .. } if test == "a")
        );
        let line = r#"{"test": "a", "seconds": 0.5, "result": "wrong provider", "detail": "d", "provider": "p"}"#;
        assert!(matches!(parse(line), Line::Run(run) if run.result == Outcome::WrongProvider));
    }
}
