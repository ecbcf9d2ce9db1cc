//! Commands for a guest and what came of them.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::death::GuestDied;

/// A shell command to be run in a guest.
#[derive(Debug, Clone)]
pub struct Step {
    pub(crate) name: String,
    pub(crate) command: String,
    pub(crate) timeout: Duration,
    pub(crate) servers: Vec<Step>,
}

impl Step {
    /// A command for the guest's `/bin/sh`, as root in `/tmp`, with 60 s to finish.
    pub fn new(name: impl Into<String>, command: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            command: command.into(),
            timeout: Duration::from_secs(60),
            servers: Vec::new(),
        }
    }

    /// A program and its arguments, taken literally.
    pub fn program<S: AsRef<str>>(
        name: impl Into<String>,
        words: impl IntoIterator<Item = S>,
    ) -> Self {
        let quoted: Vec<String> = words.into_iter().map(|word| quote(word.as_ref())).collect();
        Self::new(name, format!("exec {}", quoted.join(" ")))
    }

    /// Kill the step's processes after this time; the guest lives on.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Set a variable in the step's environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.command = format!("export {name}={}\n{}", quote(value), self.command);
        self
    }

    /// Start the command only once something listens on this TCP port of the guest (a server started before).
    #[must_use]
    pub fn when_listening(mut self, port: u16) -> Self {
        self.command = format!("wait-port {port}\n{}", self.command);
        self
    }

    /// Start this in the background before the step, and end it after the step (2 s for it to end by itself, then
    /// SIGTERM). The step should wait for its readiness: see [`when_listening`](Self::when_listening).
    #[must_use]
    pub fn server(mut self, server: Step) -> Self {
        self.servers.push(server);
        self
    }

    /// The step's name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Quotes a word for a shell.
pub fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// How a step ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// With this exit status.
    Exit(i32),
    /// By this signal (which the shell reports as 128 + the signal).
    Signal(i32),
    /// Killed after its timeout.
    TimedOut,
    /// The guest died meanwhile.
    GuestDied,
}

impl Ended {
    /// From a shell's `$?`.
    pub(crate) fn from_shell(status: i32) -> Self {
        if (129..=128 + 64).contains(&status) {
            Self::Signal(status - 128)
        } else {
            Self::Exit(status)
        }
    }

    /// As an exit code: a timeout is 124 (as `timeout(1)`), a dead guest 125, a signal 128 + its number.
    pub fn code(self) -> i32 {
        match self {
            Self::Exit(code) => code,
            Self::Signal(signal) => 128 + signal,
            Self::TimedOut => 124,
            Self::GuestDied => 125,
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exit(code) => write!(f, "exit status {code}"),
            Self::Signal(signal) => {
                write!(f, "killed by signal {signal} ({})", signal_name(*signal))
            }
            Self::TimedOut => f.write_str("timed out"),
            Self::GuestDied => f.write_str("the guest died"),
        }
    }
}

/// Linux' name of a signal (`signal(7)`, x86-64).
fn signal_name(signal: i32) -> &'static str {
    const NAMES: [&str; 16] = [
        "?", "SIGHUP", "SIGINT", "SIGQUIT", "SIGILL", "SIGTRAP", "SIGABRT", "SIGBUS", "SIGFPE",
        "SIGKILL", "SIGUSR1", "SIGSEGV", "SIGUSR2", "SIGPIPE", "SIGALRM", "SIGTERM",
    ];
    usize::try_from(signal)
        .ok()
        .and_then(|at| NAMES.get(at).copied())
        .unwrap_or("?")
}

/// What came of a step.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    /// The step's name.
    pub name: String,
    /// How it ended.
    pub ended: Ended,
    /// Seconds of the guest's clock.
    pub seconds: f64,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// What came of its servers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<Outcome>,
}

impl Outcome {
    pub(crate) fn of_dead_guest(name: String, died: &GuestDied) -> Self {
        Self {
            name,
            ended: Ended::GuestDied,
            seconds: 0.0,
            stdout: String::new(),
            stderr: died.to_string(),
            servers: Vec::new(),
        }
    }

    /// Exit status 0.
    pub fn ok(&self) -> bool {
        self.ended == Ended::Exit(0)
    }

    /// The output of a step that must succeed; the error shows what it printed.
    pub fn expect_ok(self) -> anyhow::Result<Self> {
        if self.ok() {
            return Ok(self);
        }
        let Self {
            name,
            ended,
            stdout,
            stderr,
            ..
        } = self;
        anyhow::bail!("step {name}: {ended}\n{}{}", stdout, stderr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_the_shell() {
        for word in [
            "a", "", "a b", "it's", "$HOME", "*", "-x=1", "\n", "\"", "\\",
        ] {
            let output = std::process::Command::new("sh")
                .arg("-c")
                .arg(format!("printf %s {}", quote(word)))
                .output();
            assert_eq!(String::from_utf8(output.unwrap().stdout).unwrap(), word);
        }
    }

    #[test]
    fn statuses() {
        assert_eq!(Ended::from_shell(7), Ended::Exit(7));
        assert_eq!(Ended::from_shell(128), Ended::Exit(128));
        assert_eq!(Ended::from_shell(139), Ended::Signal(11));
        assert_eq!(Ended::from_shell(255), Ended::Exit(255));
        assert_eq!(
            Ended::Signal(11).to_string(),
            "killed by signal 11 (SIGSEGV)"
        );
        assert_eq!(Ended::Signal(11).code(), 139);
    }
}
