//! Which mirror the host uses, from its own apt configuration (`sources.list(5)`, both formats).

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use super::control;

/// Environment variable that overrides apt's configuration: a URI such as `http://HOST/debian`.
pub const MIRROR_VARIABLE: &str = "OXVERBS_DEBIAN_MIRROR";

/// One archive of binary packages that apt would read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Archive root, without a trailing slash.
    pub uri: String,
    /// Suite (`bookworm`, `trixie-security`, ...).
    pub suite: String,
}

/// Entries of a one-line `sources.list`: `deb [options] URI SUITE COMPONENT…`.
pub fn parse_one_line(text: &str) -> Vec<Source> {
    let mut found = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        let Some(mut rest) = line
            .strip_prefix("deb")
            .filter(|rest| rest.starts_with([' ', '\t']))
        else {
            continue;
        };
        rest = rest.trim_start();
        if rest.starts_with('[') {
            let Some((_, after)) = rest.split_once(']') else {
                continue;
            };
            rest = after;
        }
        let mut words = rest.split_whitespace();
        if let (Some(uri), Some(suite)) = (words.next(), words.next()) {
            found.push(Source {
                uri: trim_uri(uri),
                suite: suite.to_owned(),
            });
        }
    }
    found
}

/// Entries of a deb822 `.sources` file; disabled stanzas and sources of source packages are left out.
pub fn parse_deb822(text: &str) -> Vec<Source> {
    let mut found = Vec::new();
    for stanza in control::stanzas(text).flatten() {
        let enabled = !matches!(stanza.get("Enabled"), Some("no" | "false" | "0"));
        if !enabled || !stanza.words("Types").contains(&"deb") {
            continue;
        }
        for uri in stanza.words("URIs") {
            for suite in stanza.words("Suites") {
                found.push(Source {
                    uri: trim_uri(uri),
                    suite: suite.to_owned(),
                });
            }
        }
    }
    found
}

fn trim_uri(uri: &str) -> String {
    uri.trim_end_matches('/').to_owned()
}

/// Archive roots that may hold Debian's suites, most likely first; empty when the host's apt knows none.
///
/// Security archives and suites with a path (`stable/updates`, flat `./`) are left out: they hold no full release.
pub fn archive_candidates(sources: &[Source]) -> Vec<String> {
    const DEBIAN: [&str; 11] = [
        "bullseye",
        "bookworm",
        "trixie",
        "forky",
        "sid",
        "oldoldstable",
        "oldstable",
        "stable",
        "testing",
        "unstable",
        "trixie-backports",
    ];
    let mut candidates: Vec<String> = Vec::new();
    for source in sources {
        if DEBIAN.contains(&source.suite.as_str()) && !candidates.contains(&source.uri) {
            candidates.push(source.uri.clone());
        }
    }
    candidates
}

/// Reads the host's apt configuration below `etc_apt` (normally `/etc/apt`).
pub fn read_apt(etc_apt: &Path) -> Vec<Source> {
    let mut files = vec![etc_apt.join("sources.list")];
    if let Ok(entries) = std::fs::read_dir(etc_apt.join("sources.list.d")) {
        let mut more: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        more.sort();
        files.extend(more);
    }
    let mut found = Vec::new();
    for file in files {
        let Ok(text) = std::fs::read_to_string(&file) else {
            continue;
        };
        match file.extension().and_then(|extension| extension.to_str()) {
            Some("sources") => found.extend(parse_deb822(&text)),
            Some("list") => found.extend(parse_one_line(&text)),
            _ => {}
        }
    }
    found
}

/// The archive roots to try, from the environment or the host's apt.
pub fn archives() -> Result<Vec<String>> {
    if let Some(uri) = std::env::var_os(MIRROR_VARIABLE) {
        let uri = uri.to_string_lossy();
        if !uri.contains(':') {
            bail!("{MIRROR_VARIABLE}={uri} is not a URI such as http://HOST/debian");
        }
        return Ok(vec![trim_uri(&uri)]);
    }
    let mut found = Vec::new();
    for candidate in archive_candidates(&read_apt(Path::new("/etc/apt"))) {
        found.extend(expand_mirror_list(&candidate));
    }
    if found.is_empty() {
        bail!(
            "no Debian archive in /etc/apt/sources.list or /etc/apt/sources.list.d; \
             name one: {MIRROR_VARIABLE}=http://HOST/debian"
        );
    }
    Ok(found)
}

/// `mirror+file:/list` (`apt-transport-mirror(1)`, used by Debian's cloud images) stands for the URIs in that file.
fn expand_mirror_list(uri: &str) -> Vec<String> {
    let Some(file) = uri.strip_prefix("mirror+file:") else {
        return vec![uri.to_owned()];
    };
    let file = format!("/{}", file.trim_start_matches('/'));
    std::fs::read_to_string(file)
        .map(|text| mirror_list(&text))
        .unwrap_or_default()
}

fn mirror_list(text: &str) -> Vec<String> {
    text.lines()
        .filter_map(|line| line.split('#').next()?.split_whitespace().next())
        .map(trim_uri)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(uri: &str, suite: &str) -> Source {
        Source {
            uri: uri.into(),
            suite: suite.into(),
        }
    }

    #[test]
    fn one_line_format() {
        let text = "# deb http://commented/ x main\n\
                    deb http://mirror/debian/ bookworm main contrib # remark\n\
                    deb-src http://mirror/debian bookworm main\n\
                    deb [ arch=amd64 signed-by=/k.gpg ] https://other/debian trixie main\n\
                    debfoo http://x y z\n\
                    deb [broken http://x y\n";
        assert_eq!(
            parse_one_line(text),
            [
                source("http://mirror/debian", "bookworm"),
                source("https://other/debian", "trixie")
            ]
        );
    }

    #[test]
    fn deb822_format() {
        let text = "Types: deb deb-src\nURIs: http://a/debian/ http://b/debian\nSuites: bookworm bookworm-updates\n\
                    Components: main\nSigned-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc\n\n\
                    Enabled: no\nTypes: deb\nURIs: http://off/debian\nSuites: trixie\n\n\
                    Types: deb-src\nURIs: http://src/debian\nSuites: trixie\n";
        assert_eq!(
            parse_deb822(text),
            [
                source("http://a/debian", "bookworm"),
                source("http://a/debian", "bookworm-updates"),
                source("http://b/debian", "bookworm"),
                source("http://b/debian", "bookworm-updates"),
            ]
        );
    }

    #[test]
    fn only_full_debian_archives_are_candidates() {
        let sources = [
            source("https://packages.example/apt", "nodistro"),
            source("http://m/debian-security", "bookworm-security"),
            source("http://m/debian", "bookworm-updates"),
            source("http://m/debian", "bookworm"),
            source("http://m/debian", "trixie"),
            source("http://ubuntu/ubuntu", "noble"),
        ];
        assert_eq!(archive_candidates(&sources), ["http://m/debian"]);
    }

    #[test]
    fn mirror_lists() {
        assert_eq!(
            mirror_list("# c\nhttp://a/debian/\tpriority:1\n\nhttps://b/debian\n"),
            ["http://a/debian", "https://b/debian"]
        );
    }

    #[test]
    fn both_formats_are_found_on_disk() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("sources.list.d")).unwrap();
        std::fs::write(
            dir.path().join("sources.list"),
            "deb http://one/debian bookworm main\n",
        )
        .unwrap();
        let deb822 = "Types: deb\nURIs: http://two/debian\nSuites: trixie\nComponents: main\n";
        std::fs::write(dir.path().join("sources.list.d/x.sources"), deb822).unwrap();
        std::fs::write(
            dir.path().join("sources.list.d/x.sources.save"),
            deb822.replace("two", "three"),
        )
        .unwrap();
        let found = archive_candidates(&read_apt(dir.path()));
        assert_eq!(found, ["http://one/debian", "http://two/debian"]);
    }
}
