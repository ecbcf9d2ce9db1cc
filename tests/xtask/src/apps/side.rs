//! What came of a run under one provider.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use lab::{Config, Device, Ended, Outcome, Provider};
use serde::Serialize;

use super::script::SERVED;
use super::table::{Run, Sides};

/// One provider's column of a row.
#[derive(Debug, Serialize)]
pub(super) struct Side {
    pub(super) passed: bool,
    /// Why it did not pass.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) reason: String,
    /// Providers that served the server and the client.
    pub(super) served: Served,
    /// What the program chose, if the table asks: UCX' transports.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) picked: BTreeSet<String>,
    pub(super) seconds: f64,
    pub(super) outcome: Outcome,
}

/// File names of the providers that the processes of each side initialised.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Served {
    pub(super) server: Vec<String>,
    pub(super) client: Vec<String>,
}

impl Side {
    pub(super) fn of(run: &Run, outcome: &Outcome, provider: Provider, config: &Config) -> Self {
        let served = Served::of(&outcome.stdout);
        let mut reason = why_not(run, outcome, &served, (provider, config));
        let picked = picked(run, outcome);
        if reason.is_empty() && run.picks.is_some() && picked.is_empty() {
            reason = "it does not say what it chose".to_owned();
        }
        Self {
            passed: reason.is_empty(),
            reason,
            served,
            picked,
            seconds: outcome.seconds,
            outcome: outcome.clone(),
        }
    }

    /// What served, in words.
    pub(super) fn servers(&self) -> String {
        let mut served = [self.served.server.clone(), self.served.client.clone()].concat();
        served.dedup();
        served.join(" ")
    }
}

/// Ours in the place of libmlx5.
const DROP_IN: &str = "liboxverbs_mlx5";

/// What of the client's output the run's pattern captures.
fn picked(run: &Run, outcome: &Outcome) -> BTreeSet<String> {
    let Some(pattern) = &run.picks else {
        return BTreeSet::new();
    };
    let found = pattern.captures_iter(&outcome.stdout);
    found
        .filter_map(|found| Some(found.get(1)?.as_str().to_owned()))
        .collect()
}

impl Served {
    pub(super) fn of(stdout: &str) -> Self {
        let mut served = Self::default();
        for line in stdout.lines() {
            match line
                .strip_prefix(SERVED)
                .and_then(|rest| rest.split_once(' '))
            {
                Some(("server", file)) => served.server.push(file.to_owned()),
                Some((_, file)) => served.client.push(file.to_owned()),
                None => {}
            }
        }
        served
    }

    /// What is wrong with the providers of a run.
    fn complaint(&self, run: &Run, (provider, config): (Provider, &Config)) -> Option<String> {
        let expected = match (provider, config.device) {
            (Provider::Official, Device::Rxe) => "librxe-rdmav",
            (Provider::Official, Device::Mlx5 | Device::Vfio) => "libmlx5",
            (Provider::Ours, Device::Mlx5) if run.libmlx5 => DROP_IN,
            (Provider::Ours, _) => "liboxverbs",
        };
        let through = |side: Sides| run.provider == Sides::Both || run.provider == side;
        let sides = [
            (
                "server",
                &self.server,
                run.server.is_some() && through(Sides::Server),
            ),
            ("client", &self.client, through(Sides::Client)),
        ];
        for (side, files, wanted) in sides {
            let right = match (files.as_slice(), wanted) {
                ([file], true) => file.starts_with(expected),
                ([], false) => true,
                _ => false,
            };
            if !right {
                return Some(format!("the {side} was served by {files:?}"));
            }
        }
        None
    }
}

/// Why a run did not pass; empty if it did.
fn why_not(run: &Run, outcome: &Outcome, served: &Served, under: (Provider, &Config)) -> String {
    let server = outcome.servers.first();
    if !outcome.ok() {
        let last = |text: &str| {
            let mut lines = text
                .lines()
                .map(str::trim)
                .filter(|line| !line.is_empty() && !line.starts_with(SERVED));
            lines.next_back().unwrap_or_default().to_owned()
        };
        let mut said = last(&outcome.stderr);
        if said.is_empty() {
            said = last(&outcome.stdout);
        }
        if let Some(server) = server {
            let _ = write!(said, "; server: {} {}", server.ended, last(&server.stderr));
        }
        return format!("client: {} {said}", outcome.ended);
    }
    if let Some(server) = server
        && !server.ok()
        && (run.server_ends || server.ended != Ended::Signal(15))
    {
        return format!(
            "server: {} {}",
            server.ended,
            server.stderr.trim().lines().last().unwrap_or_default()
        );
    }
    for pattern in &run.expect {
        if !pattern.is_match(&outcome.stdout) {
            return format!("the client's output does not match {pattern}");
        }
    }
    for pattern in &run.server_expect {
        if !server.is_some_and(|server| pattern.is_match(&server.stdout)) {
            return format!("the server's output does not match {pattern}");
        }
    }
    served.complaint(run, under).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a_run(more: &str) -> Run {
        let text = format!(
            "[[run]]\nname = \"n\"\nserver = \"s\"\nclient = \"c\"\nready = 5\nexpect = [\"good\"]\n{more}"
        );
        super::super::table::runs(&text, &Config::default())
            .unwrap()
            .remove(0)
    }

    fn outcome(ended: Ended, stdout: &str, server: Ended) -> Outcome {
        let of = |ended, stdout: &str| Outcome {
            name: String::new(),
            ended,
            seconds: 1.0,
            stdout: stdout.to_owned(),
            stderr: String::new(),
            servers: Vec::new(),
        };
        let mut outcome = of(ended, stdout);
        outcome.servers.push(of(server, "from server"));
        outcome
    }

    const GOOD: &str = "good\noxverbs-served server liboxverbs-rdmav34.so\noxverbs-served client liboxverbs-rdmav34.so\n";

    #[test]
    fn a_run_passes_only_if_everything_is_right() {
        let zero = Ended::Exit(0);
        let passes = |run: &Run, outcome: &Outcome, provider| {
            let config = Config {
                provider,
                ..Config::default()
            };
            Side::of(run, outcome, provider, &config).passed
        };
        let run = a_run("");
        assert!(passes(&run, &outcome(zero, GOOD, zero), Provider::Ours));
        assert!(!passes(
            &run,
            &outcome(zero, GOOD, zero),
            Provider::Official
        ));
        assert!(!passes(
            &run,
            &outcome(Ended::Exit(1), GOOD, zero),
            Provider::Ours
        ));
        assert!(!passes(
            &run,
            &outcome(Ended::TimedOut, GOOD, zero),
            Provider::Ours
        ));
        assert!(!passes(
            &run,
            &outcome(zero, GOOD, Ended::Exit(1)),
            Provider::Ours
        ));
        assert!(!passes(
            &run,
            &outcome(zero, GOOD, Ended::Signal(15)),
            Provider::Ours
        ));
        assert!(!passes(
            &run,
            &outcome(zero, "good\n", zero),
            Provider::Ours
        ));
        assert!(!passes(
            &run,
            &outcome(zero, &GOOD.replace("good", "bad"), zero),
            Provider::Ours
        ));
        assert!(!passes(
            &a_run("server_expect = [\"other\"]"),
            &outcome(zero, GOOD, zero),
            Provider::Ours
        ));
        assert!(passes(
            &a_run("server_expect = [\"from\"]"),
            &outcome(zero, GOOD, zero),
            Provider::Ours
        ));
        let endless = a_run("server_ends = false");
        assert!(passes(
            &endless,
            &outcome(zero, GOOD, Ended::Signal(15)),
            Provider::Ours
        ));
        assert!(!passes(
            &endless,
            &outcome(zero, GOOD, Ended::Signal(11)),
            Provider::Ours
        ));
        // Both providers in one process: who served is unknown.
        let both = format!("{GOOD}oxverbs-served client librxe-rdmav34.so\n");
        assert!(!passes(&run, &outcome(zero, &both, zero), Provider::Ours));
        // A native server must not have gone through a provider.
        assert!(!passes(
            &a_run("provider = \"client\""),
            &outcome(zero, GOOD, zero),
            Provider::Ours
        ));
        let native = GOOD.replace("oxverbs-served server liboxverbs-rdmav34.so\n", "");
        assert!(passes(
            &a_run("provider = \"client\""),
            &outcome(zero, &native, zero),
            Provider::Ours
        ));
    }

    #[test]
    fn what_a_program_chose_is_read_and_must_be_there() {
        let run = a_run("picks = \"lane (\\\\w+)\"");
        let of = |stdout: &str| {
            let outcome = outcome(Ended::Exit(0), stdout, Ended::Exit(0));
            Side::of(&run, &outcome, Provider::Ours, &Config::default())
        };
        assert!(!of(GOOD).passed);
        let side = of(&format!("lane b lane a\nlane b\n{GOOD}"));
        assert!(side.passed);
        assert_eq!(side.picked.into_iter().collect::<Vec<_>>(), ["a", "b"]);
    }

    /// A program that links libmlx5 has ours in its place, and not beside it.
    #[test]
    fn in_the_place_of_libmlx5_is_ours() {
        let run = a_run("libmlx5 = true");
        let config = Config {
            device: Device::Mlx5,
            ..Config::default()
        };
        let zero = Ended::Exit(0);
        let passes = |file: &str| {
            let stdout = GOOD.replace("liboxverbs-rdmav34.so", file);
            Side::of(&run, &outcome(zero, &stdout, zero), Provider::Ours, &config).passed
        };
        assert!(passes("liboxverbs_mlx5.so"));
        assert!(!passes("liboxverbs_ffi.so"));
        assert!(!passes("libmlx5.so.1.25.56.1"));
    }
}
