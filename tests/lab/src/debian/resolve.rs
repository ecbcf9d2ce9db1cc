//! Which packages a list of names needs (Debian Policy §7: Depends, Pre-Depends, alternatives, Provides, versions).
//!
//! Conflicts and Breaks are not looked at: the roots are unpacked, not configured, from suites that are consistent.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap, VecDeque};

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use super::control::{self, Stanza};
use super::version;

/// What of a package's index entry the lab uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Package {
    /// Name.
    pub name: String,
    /// Full version.
    pub version: String,
    /// Suite whose index listed it.
    pub suite: String,
    /// Path below the archive root.
    pub filename: String,
    /// Bytes of the `.deb`.
    pub size: u64,
    /// SHA-256 of the `.deb`, in hexadecimal.
    pub sha256: String,
    #[serde(skip)]
    depends: Vec<Vec<Relation>>,
    #[serde(skip)]
    provides: Vec<Relation>,
    #[serde(skip)]
    essential: bool,
    #[serde(skip)]
    priority: u8,
}

/// `name (>= version)`; the operator is kept as written.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Relation {
    name: String,
    constraint: Option<(String, String)>,
}

impl Relation {
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let end = text
            .find(|c: char| c.is_whitespace() || matches!(c, '(' | '[' | '<'))
            .unwrap_or(text.len());
        let name = text[..end].split(':').next()?;
        if name.is_empty() {
            return None;
        }
        let constraint = text[end..].split_once('(').and_then(|(_, rest)| {
            let inner = rest.split_once(')')?.0.trim();
            let at = inner.find(|c| !matches!(c, '<' | '>' | '='))?;
            Some((inner[..at].to_owned(), inner[at..].trim().to_owned()))
        });
        Some(Self {
            name: name.to_owned(),
            constraint,
        })
    }

    fn accepts(&self, candidate: &str) -> bool {
        let Some((operator, wanted)) = &self.constraint else {
            return true;
        };
        let order = version::compare(candidate, wanted);
        match operator.as_str() {
            "<<" => order == Ordering::Less,
            "<=" | "<" => order != Ordering::Greater,
            "=" => order == Ordering::Equal,
            ">=" | ">" => order != Ordering::Less,
            ">>" => order == Ordering::Greater,
            _ => false,
        }
    }

    /// A virtual package without a version satisfies no versioned dependency (Policy §7.5).
    fn accepts_provided(&self, provided: &Relation) -> bool {
        match (&self.constraint, &provided.constraint) {
            (None, _) => true,
            (Some(_), Some((_, version))) => self.accepts(version),
            (Some(_), None) => false,
        }
    }
}

fn relations(text: &str) -> Vec<Vec<Relation>> {
    text.split(',')
        .map(|group| {
            group
                .split('|')
                .filter_map(Relation::parse)
                .collect::<Vec<_>>()
        })
        .filter(|group| !group.is_empty())
        .collect()
}

impl Package {
    fn from_stanza(stanza: &Stanza<'_>, suite: &str) -> Option<Self> {
        let list = |field| stanza.get(field).map(relations).unwrap_or_default();
        let mut depends = list("Pre-Depends");
        depends.extend(list("Depends"));
        Some(Self {
            name: stanza.get("Package")?.to_owned(),
            version: stanza.get("Version")?.to_owned(),
            suite: suite.to_owned(),
            filename: stanza.get("Filename")?.to_owned(),
            size: stanza.get("Size")?.parse().ok()?,
            sha256: stanza.get("SHA256")?.to_owned(),
            depends,
            provides: list("Provides").into_iter().flatten().collect(),
            essential: stanza.get("Essential") == Some("yes"),
            priority: match stanza.get("Priority") {
                Some("required") => 0,
                Some("important") => 1,
                Some("standard") => 2,
                _ => 3,
            },
        })
    }
}

/// All packages of one or more suites. Suites added first are preferred; later ones are used for what is asked of them
/// by name (`name/suite`) and where a versioned dependency needs them, as apt does with backports.
#[derive(Debug, Default)]
pub struct Universe {
    packages: Vec<Package>,
    by_name: HashMap<String, Vec<usize>>,
    providers: HashMap<String, Vec<usize>>,
}

/// What to resolve.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// Names, each optionally `name/suite`.
    pub names: &'a [&'a str],
    /// Also all packages marked Essential in the first suite.
    pub essential: bool,
    /// Dependencies are followed only into packages whose name starts so; empty: all.
    pub only_prefix: &'a str,
}

impl Universe {
    /// Adds a `Packages` index.
    pub fn add(&mut self, suite: &str, index: &str) -> Result<()> {
        for stanza in control::stanzas(index) {
            let stanza = stanza.map_err(|damage| anyhow::anyhow!("index of {suite}: {damage}"))?;
            let Some(package) = Package::from_stanza(&stanza, suite) else {
                continue;
            };
            let at = self.packages.len();
            self.by_name
                .entry(package.name.clone())
                .or_default()
                .push(at);
            for provided in &package.provides {
                self.providers
                    .entry(provided.name.clone())
                    .or_default()
                    .push(at);
            }
            self.packages.push(package);
        }
        Ok(())
    }

    /// Newest package of `name` that `fits`, from the most preferred suite that has one.
    fn best(&self, name: &str, fits: impl Fn(&Package) -> bool) -> Option<usize> {
        let candidates = self
            .by_name
            .get(name)?
            .iter()
            .copied()
            .filter(|&at| fits(&self.packages[at]));
        let suites = self.suites();
        candidates.min_by(|&a, &b| {
            let (a, b) = (&self.packages[a], &self.packages[b]);
            let rank = |p: &Package| suites.iter().position(|suite| *suite == p.suite);
            rank(a)
                .cmp(&rank(b))
                .then_with(|| version::compare(&b.version, &a.version))
        })
    }

    fn suites(&self) -> Vec<&str> {
        let mut suites: Vec<&str> = Vec::new();
        for package in &self.packages {
            if suites.last() != Some(&package.suite.as_str()) {
                suites.push(&package.suite);
            }
        }
        suites
    }

    /// A package, real or by Provides, that satisfies `relation`.
    fn satisfy(&self, relation: &Relation) -> Option<usize> {
        self.best(&relation.name, |package| relation.accepts(&package.version))
            .or_else(|| {
                let providers = self.providers.get(&relation.name)?.iter().copied();
                let fits = providers.filter(|&at| {
                    let mut provided = self.packages[at]
                        .provides
                        .iter()
                        .filter(|p| p.name == relation.name);
                    provided.any(|p| relation.accepts_provided(p))
                });
                fits.min_by_key(|&at| {
                    (
                        self.packages[at].priority,
                        self.packages[at].name.clone(),
                        at,
                    )
                })
            })
    }

    fn satisfied_by(&self, at: usize, relation: &Relation) -> bool {
        let package = &self.packages[at];
        (package.name == relation.name && relation.accepts(&package.version))
            || package
                .provides
                .iter()
                .any(|p| p.name == relation.name && relation.accepts_provided(p))
    }

    /// The request and everything it depends on, by name.
    pub fn resolve(&self, request: &Request<'_>) -> Result<Vec<Package>> {
        let mut chosen: BTreeMap<String, usize> = BTreeMap::new();
        let mut queue: VecDeque<usize> = VecDeque::new();
        let suites = self.suites();
        if request.essential {
            let first = suites.first().copied().unwrap_or_default();
            let essential = self
                .packages
                .iter()
                .filter(|p| p.essential && p.suite == first);
            queue.extend(essential.filter_map(|p| self.best(&p.name, |_| true)));
        }
        for wanted in request.names {
            let found = match wanted.split_once('/') {
                Some((name, suite)) => self.best(name, |p| p.suite == suite),
                None => self.satisfy(&Relation {
                    name: (*wanted).to_owned(),
                    constraint: None,
                }),
            };
            let Some(at) = found else {
                bail!("package {wanted} is in none of: {}", suites.join(", "))
            };
            queue.push_back(at);
        }
        while let Some(at) = queue.pop_front() {
            let package = &self.packages[at];
            if chosen.get(&package.name) == Some(&at) {
                continue;
            }
            // A later versioned dependency may replace what an earlier one took; the newer one wins and stays.
            if let Some(&old) = chosen.get(&package.name)
                && version::compare(&self.packages[old].version, &package.version) != Ordering::Less
            {
                continue;
            }
            chosen.insert(package.name.clone(), at);
            for group in &package.depends {
                let followed: Vec<&Relation> = group
                    .iter()
                    .filter(|r| r.name.starts_with(request.only_prefix))
                    .collect();
                if followed.len() != group.len() {
                    continue;
                }
                if group
                    .iter()
                    .any(|r| chosen.values().any(|&at| self.satisfied_by(at, r)))
                {
                    continue;
                }
                let Some(next) = followed.iter().find_map(|relation| self.satisfy(relation)) else {
                    bail!(
                        "{} {} needs {}, which is in none of: {}",
                        package.name,
                        package.version,
                        group
                            .iter()
                            .map(|r| r.name.as_str())
                            .collect::<Vec<_>>()
                            .join(" | "),
                        suites.join(", ")
                    );
                };
                queue.push_back(next);
            }
        }
        Ok(chosen
            .values()
            .map(|&at| self.packages[at].clone())
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stanza(name: &str, version: &str, more: &str) -> String {
        format!(
            "Package: {name}\nVersion: {version}\nFilename: pool/{name}.deb\nSize: 1\nSHA256: 00\n{more}\n"
        )
    }

    fn names(universe: &Universe, names: &[&str]) -> Vec<String> {
        let request = Request {
            names,
            essential: false,
            only_prefix: "",
        };
        universe
            .resolve(&request)
            .unwrap()
            .iter()
            .map(|p| format!("{}={}", p.name, p.version))
            .collect()
    }

    #[test]
    fn relations_with_every_decoration() {
        let parsed = relations("libc6:any (>= 2.36), a | b (<< 1:2~) [amd64] <!nocheck>, c(=1)");
        assert_eq!(parsed.len(), 3);
        assert_eq!(
            parsed[0][0],
            Relation {
                name: "libc6".into(),
                constraint: Some((">=".into(), "2.36".into()))
            }
        );
        assert_eq!(parsed[1][1].constraint, Some(("<<".into(), "1:2~".into())));
        assert_eq!(parsed[2][0].constraint, Some(("=".into(), "1".into())));
        assert!(parsed[1][1].accepts("1:1"));
        assert!(!parsed[1][1].accepts("1:2"));
        assert!(relations("").is_empty());
    }

    #[test]
    fn alternatives_virtual_packages_and_cycles() {
        let mut universe = Universe::default();
        let index = [
            stanza(
                "top",
                "1",
                "Pre-Depends: a\nDepends: missing | b, virtual, versioned (>= 2)",
            ),
            stanza("a", "1", "Depends: b"),
            stanza("b", "1", "Depends: a"),
            stanza("zz", "1", "Provides: virtual\nPriority: required"),
            stanza("aa", "1", "Provides: virtual"),
            stanza("old", "9", "Provides: versioned (= 1)"),
            stanza("plain", "9", "Provides: versioned"),
            stanza("new", "1", "Provides: versioned (= 2)"),
        ];
        universe.add("s", &index.join("\n")).unwrap();
        assert_eq!(
            names(&universe, &["top"]),
            ["a=1", "b=1", "new=1", "top=1", "zz=1"]
        );
        // What is already chosen satisfies, before a default is taken.
        assert_eq!(
            names(&universe, &["aa", "top"]),
            ["a=1", "aa=1", "b=1", "new=1", "top=1"]
        );
    }

    #[test]
    fn backports_only_where_needed() {
        let mut universe = Universe::default();
        universe
            .add(
                "stable",
                &[
                    stanza("lib", "1", ""),
                    stanza("app", "1", ""),
                    stanza("dep", "1", "Depends: lib"),
                ]
                .join("\n"),
            )
            .unwrap();
        universe
            .add(
                "backports",
                &[
                    stanza("lib", "2~bpo", ""),
                    stanza("app", "2~bpo", "Depends: dep, lib (>= 2~)"),
                ]
                .join("\n"),
            )
            .unwrap();
        assert_eq!(names(&universe, &["dep"]), ["dep=1", "lib=1"]);
        // `dep` first took lib 1; app's constraint replaces it.
        assert_eq!(
            names(&universe, &["dep", "app/backports"]),
            ["app=2~bpo", "dep=1", "lib=2~bpo"]
        );
    }

    #[test]
    fn newest_version_essential_and_prefix() {
        let mut universe = Universe::default();
        let index = [
            stanza("base", "1", "Essential: yes"),
            stanza("linux-image", "6.12.9", ""),
            stanza(
                "linux-image",
                "6.12.117",
                "Depends: linux-base, dracut | linux-tool",
            ),
            stanza("linux-base", "1", "Depends: perl"),
        ];
        universe.add("s", &index.join("\n")).unwrap();
        let request = Request {
            names: &["linux-image"],
            essential: true,
            only_prefix: "linux-",
        };
        let found: Vec<String> = universe
            .resolve(&request)
            .unwrap()
            .iter()
            .map(|p| p.version.clone())
            .collect();
        assert_eq!(found, ["1", "1", "6.12.117"]);
    }

    #[test]
    fn what_is_missing_is_named() {
        let mut universe = Universe::default();
        universe
            .add("s", &stanza("a", "1", "Depends: x | y"))
            .unwrap();
        let request = Request {
            names: &["a"],
            essential: false,
            only_prefix: "",
        };
        assert_eq!(
            universe.resolve(&request).unwrap_err().to_string(),
            "a 1 needs x | y, which is in none of: s"
        );
        let request = Request {
            names: &["nope"],
            ..request
        };
        assert!(
            universe
                .resolve(&request)
                .unwrap_err()
                .to_string()
                .contains("package nope")
        );
    }
}
