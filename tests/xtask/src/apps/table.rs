//! The table of programs, `tests/apps.toml`.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use lab::{Kernel, Userland};
use regex::Regex;
use serde::Deserialize;

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Table {
    #[serde(rename = "run")]
    runs: Vec<Template>,
    #[serde(default)]
    cannot: Vec<Cannot>,
}

/// A run before its words are replaced.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Template {
    name: String,
    server: Option<String>,
    client: String,
    ready: Option<Ready>,
    #[serde(default = "default_timeout")]
    timeout: u64,
    #[serde(default)]
    expect: Vec<String>,
    #[serde(default)]
    server_expect: Vec<String>,
    #[serde(default = "yes")]
    server_ends: bool,
    #[serde(default)]
    provider: Sides,
    #[serde(default)]
    native: bool,
    #[serde(default = "yes")]
    ci: bool,
    #[serde(default)]
    vary: BTreeMap<String, Vec<String>>,
}

fn default_timeout() -> u64 {
    60
}

fn yes() -> bool {
    true
}

/// What tells that a server can be connected to.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(crate) enum Ready {
    /// It listens on this TCP port.
    Port(u16),
    /// "rdma": it listens through rdma_cm.
    Word(String),
}

/// The sides that go through libibverbs' provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Sides {
    #[default]
    Both,
    Server,
    Client,
    None,
}

/// What Debian's provider does not pass.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cannot {
    run: String,
    reason: String,
    kernel: Option<Kernel>,
    userland: Option<Userland>,
}

/// One run.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) name: String,
    pub(crate) server: Option<String>,
    pub(crate) client: String,
    pub(crate) ready: Option<Ready>,
    pub(crate) timeout: Duration,
    pub(crate) expect: Vec<Regex>,
    pub(crate) server_expect: Vec<Regex>,
    pub(crate) server_ends: bool,
    pub(crate) provider: Sides,
    /// A Rust program takes part.
    pub(crate) native: bool,
    pub(crate) ci: bool,
    /// Why Debian's provider does not pass it, if so.
    pub(crate) cannot: Option<String>,
}

/// All runs for a kernel and a userland.
pub(crate) fn runs(text: &str, kernel: Kernel, userland: Userland) -> Result<Vec<Run>> {
    let table: Table = toml::from_str(text)?;
    let mut runs = Vec::new();
    for template in &table.runs {
        for words in combinations(&template.vary) {
            let run = expand(template, &words).with_context(|| format!("run {}", template.name))?;
            if runs.iter().any(|known: &Run| known.name == run.name) {
                bail!("two runs are named {}", run.name);
            }
            runs.push(run);
        }
    }
    for cannot in table.cannot {
        let Some(run) = runs.iter_mut().find(|run| run.name == cannot.run) else {
            bail!("no run is named {} (in a [[cannot]])", cannot.run);
        };
        if cannot.kernel.is_none_or(|only| only == kernel)
            && cannot.userland.is_none_or(|only| only == userland)
        {
            run.cannot = Some(cannot.reason);
        }
    }
    Ok(runs)
}

/// Every combination of the words' values, the last word varying fastest.
fn combinations(vary: &BTreeMap<String, Vec<String>>) -> Vec<Vec<(&str, &str)>> {
    let mut all: Vec<Vec<(&str, &str)>> = vec![Vec::new()];
    for (word, values) in vary {
        all = all
            .iter()
            .flat_map(|known| {
                values.iter().map(move |value| {
                    let mut longer = known.clone();
                    longer.push((word.as_str(), value.as_str()));
                    longer
                })
            })
            .collect();
    }
    all
}

fn expand(template: &Template, words: &[(&str, &str)]) -> Result<Run> {
    let fill = |text: &str| {
        words.iter().fold(text.to_owned(), |text, (word, value)| {
            text.replace(&format!("{{{word}}}"), value)
        })
    };
    let patterns = |texts: &[String]| -> Result<Vec<Regex>> {
        texts
            .iter()
            .map(|text| Regex::new(&fill(text)).with_context(|| format!("pattern {text}")))
            .collect()
    };
    if let Some(Ready::Word(word)) = &template.ready
        && word != "rdma"
    {
        bail!("ready = {word:?} is neither a port nor \"rdma\"");
    }
    if template.server.is_some() != template.ready.is_some() {
        bail!("a server wants `ready`, and only a server");
    }
    Ok(Run {
        name: fill(&template.name),
        server: template.server.as_deref().map(fill),
        client: fill(&template.client),
        ready: template.ready.clone(),
        timeout: Duration::from_secs(template.timeout),
        expect: patterns(&template.expect)?,
        server_expect: patterns(&template.server_expect)?,
        server_ends: template.server_ends,
        provider: template.provider,
        native: template.native,
        ci: template.ci,
        cannot: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_replaced_in_every_combination() {
        let text = r#"
            [[run]]
            name = "x {a}{b}"
            server = "s {a}"
            client = "c {b}"
            ready = 5
            expect = ["{a}+"]
            vary = { a = ["1", "2"], b = ["", " -e"] }
            [[cannot]]
            run = "x 2 -e"
            reason = "r"
            kernel = "stable"
        "#;
        let of = |kernel| runs(text, kernel, Userland::Trixie).unwrap();
        let names: Vec<String> = of(Kernel::Stable).into_iter().map(|run| run.name).collect();
        assert_eq!(names, ["x 1", "x 1 -e", "x 2", "x 2 -e"]);
        let last = |kernel| of(kernel).pop().unwrap();
        assert_eq!(last(Kernel::Stable).cannot.as_deref(), Some("r"));
        assert_eq!(last(Kernel::Backports).cannot, None);
        assert_eq!(last(Kernel::Stable).expect[0].as_str(), "2+");
        assert_eq!(last(Kernel::Stable).client, "c  -e");
    }

    #[test]
    fn mistakes_are_named() {
        let error = |text: &str| {
            format!(
                "{:#}",
                runs(text, Kernel::Stable, Userland::Trixie).unwrap_err()
            )
        };
        let run = "[[run]]\nname = \"x\"\nclient = \"c\"\n";
        assert!(error(&format!("{run}{run}")).contains("two runs"));
        assert!(error(&format!("{run}ready = 5\n")).contains("ready"));
        assert!(error(&format!("{run}server = \"s\"\nready = \"soon\"\n")).contains("soon"));
        assert!(error(&format!("{run}typo = 5\n")).contains("typo"));
        assert!(
            error(&format!("{run}[[cannot]]\nrun = \"y\"\nreason = \"\"\n")).contains("no run")
        );
    }

    #[test]
    fn the_checked_in_table_is_sound() {
        for kernel in [Kernel::Stable, Kernel::Backports] {
            for userland in [Userland::Bookworm, Userland::Trixie, Userland::Sid] {
                let runs = runs(super::super::TABLE, kernel, userland).unwrap();
                assert!(runs.len() > 80, "{}", runs.len());
            }
        }
    }
}
