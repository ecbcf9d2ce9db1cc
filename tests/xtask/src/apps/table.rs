//! The table of programs, `tests/apps.toml`.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use lab::{Config, Device, Kernel, Link, Userland};
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
    #[serde(default)]
    libmlx5: bool,
    #[serde(default)]
    kit: bool,
    picks: Option<String>,
    #[serde(default = "yes")]
    ci: bool,
    /// The guests' devices that can run it; none: all.
    #[serde(default)]
    links: Vec<Guests>,
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
    link: Option<Guests>,
}

/// Guests by their device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Guests {
    Rxe,
    Ib,
    Roce,
}

impl Guests {
    fn of(config: &Config) -> Self {
        match (config.device, config.connectx.link) {
            (Device::Rxe, _) => Self::Rxe,
            (Device::Mlx5 | Device::Vfio, Link::Ib) => Self::Ib,
            (Device::Mlx5 | Device::Vfio, Link::Roce) => Self::Roce,
        }
    }
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
    /// A program of it links libmlx5.
    pub(crate) libmlx5: bool,
    /// Its packages are in the larger userland only.
    pub(crate) kit: bool,
    /// Captures what the program chose.
    pub(crate) picks: Option<Regex>,
    pub(crate) ci: bool,
    /// Why Debian's provider does not pass it, if so.
    pub(crate) cannot: Option<String>,
}

/// All runs for a guest.
pub(crate) fn runs(text: &str, config: &Config) -> Result<Vec<Run>> {
    let table: Table = toml::from_str(text)?;
    let gid = config.gid_index().to_string();
    let devices = config.devices();
    let guest = [
        ("device", devices[0]),
        ("gid", gid.as_str()),
        ("peer", devices.last().copied().unwrap_or_default()),
    ];
    let (mut runs, mut others) = (Vec::new(), Vec::new());
    for template in &table.runs {
        let here = template.links.is_empty() || template.links.contains(&Guests::of(config));
        let runs = if here { &mut runs } else { &mut others };
        for mut words in combinations(&template.vary) {
            words.extend(guest);
            let run = expand(template, &words).with_context(|| format!("run {}", template.name))?;
            if runs.iter().any(|known: &Run| known.name == run.name) {
                bail!("two runs are named {}", run.name);
            }
            runs.push(run);
        }
    }
    for cannot in table.cannot {
        let mut all = runs.iter_mut().chain(&mut others);
        let Some(run) = all.find(|run| run.name == cannot.run) else {
            bail!("no run is named {} (in a [[cannot]])", cannot.run);
        };
        if cannot.kernel.is_none_or(|only| only == config.kernel)
            && cannot.userland.is_none_or(|only| only == config.userland)
            && cannot.link.is_none_or(|only| only == Guests::of(config))
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
        libmlx5: template.libmlx5,
        kit: template.kit,
        picks: patterns(template.picks.as_slice())?.pop(),
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
        let of = |kernel| {
            let config = Config {
                kernel,
                ..Config::default()
            };
            runs(text, &config).unwrap()
        };
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
        let error = |text: &str| format!("{:#}", runs(text, &Config::default()).unwrap_err());
        let run = "[[run]]\nname = \"x\"\nclient = \"c\"\n";
        assert!(error(&format!("{run}{run}")).contains("two runs"));
        assert!(error(&format!("{run}ready = 5\n")).contains("ready"));
        assert!(error(&format!("{run}server = \"s\"\nready = \"soon\"\n")).contains("soon"));
        assert!(error(&format!("{run}typo = 5\n")).contains("typo"));
        assert!(
            error(&format!("{run}[[cannot]]\nrun = \"y\"\nreason = \"\"\n")).contains("no run")
        );
    }

    /// A guest with a software ConnectX.
    fn mlx5(link: Link) -> Config {
        Config {
            device: Device::Mlx5,
            connectx: lab::ConnectX {
                link,
                ..lab::ConnectX::default()
            },
            ..Config::default()
        }
    }

    #[test]
    fn each_guest_has_its_runs_with_its_own_device() {
        let text = r#"
            [[run]]
            name = "all"
            client = "c -d {device} -g {gid} {word}"
            vary = { word = ["w"] }
            [[run]]
            name = "some"
            client = "c"
            links = ["rxe", "roce"]
            [[cannot]]
            run = "some"
            reason = "r"
            link = "roce"
        "#;
        let names = |config: &Config| -> Vec<String> {
            let runs = runs(text, config).unwrap();
            let name = |run: Run| format!("{}:{}:{}", run.name, run.client, run.cannot.is_some());
            runs.into_iter().map(name).collect()
        };
        assert_eq!(
            names(&Config::default()),
            ["all:c -d rxe0 -g 1 w:false", "some:c:false"]
        );
        assert_eq!(names(&mlx5(Link::Ib)), ["all:c -d mlx5_0 -g 0 w:false"]);
        assert_eq!(
            names(&mlx5(Link::Roce)),
            ["all:c -d mlx5_0 -g 3 w:false", "some:c:true"]
        );
    }

    #[test]
    fn the_userspace_driver_meets_the_official_stack_in_both_directions() {
        for link in [Link::Ib, Link::Roce] {
            let config = Config {
                device: Device::Vfio,
                connectx: lab::ConnectX {
                    link,
                    two: true,
                    ..lab::ConnectX::default()
                },
                ..Config::default()
            };
            let runs = runs(super::super::INTEROP, &config).unwrap();
            let by = |side| runs.iter().filter(|run| run.provider == side).count();
            assert!(by(Sides::Server) >= 16 && by(Sides::Client) >= 16);
            // Those in which something breaks or could grow have a Rust program only, and it is the userspace driver's.
            assert_eq!((by(Sides::Both), by(Sides::None)), (0, 6));
            let (alone, whole): (Vec<_>, Vec<_>) =
                (runs.into_iter()).partition(|run| run.provider == Sides::None);
            for run in alone {
                assert!(run.server.is_none(), "{}", run.name);
                assert!(run.client.contains("vfio:0000:") && !run.client.contains('{'));
            }
            for run in whole {
                let server = run.server.unwrap();
                let (ours, official) = match run.provider {
                    Sides::Server => (run.client, server),
                    _ => (server, run.client),
                };
                assert!(ours.contains("-d vfio:0000:"), "{ours}");
                assert!(official.starts_with("ibv_") && official.contains("-d mlx5_0"));
                assert!(!ours.contains('{') && !official.contains('{'));
            }
        }
    }

    #[test]
    fn the_checked_in_table_is_sound() {
        let mut configs = vec![mlx5(Link::Ib), mlx5(Link::Roce)];
        for kernel in [Kernel::Stable, Kernel::Backports] {
            for userland in [Userland::Bookworm, Userland::Trixie, Userland::Sid] {
                configs.push(Config {
                    kernel,
                    userland,
                    ..Config::default()
                });
            }
        }
        for config in configs {
            let runs = runs(super::super::TABLE, &config).unwrap();
            assert!(runs.len() > 80, "{}", runs.len());
            assert!(!runs.iter().any(|run| run.client.contains('{')));
        }
    }
}
