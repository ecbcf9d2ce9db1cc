//! Trust in an archive's indexes: signature of `InRelease`, then the SHA-256 of each index that it lists.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow, bail};
use indicatif::ProgressBar;

use super::control;
use super::fetch::{Fetcher, Wanted, bytes_bar};

/// Where Debian installs its archive keys.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// What a `Release` file says that the lab uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    origin: String,
    files: Vec<(String, u64, String)>,
}

impl Release {
    /// Parses the signed text of an `InRelease` file.
    pub fn parse(text: &str) -> Result<Self> {
        let stanza = control::stanzas(text)
            .next()
            .ok_or_else(|| anyhow!("empty Release file"))?;
        let stanza = stanza.map_err(|damage| anyhow!("Release file: {damage}"))?;
        let mut files = Vec::new();
        for line in stanza.lines("SHA256").unwrap_or_default() {
            let mut words = line.split_whitespace();
            if let (Some(hash), Some(size), Some(path)) = (words.next(), words.next(), words.next())
            {
                let size = size
                    .parse()
                    .with_context(|| format!("size in Release line {line:?}"))?;
                files.push((path.to_owned(), size, hash.to_owned()));
            }
        }
        Ok(Self {
            origin: stanza.get("Origin").unwrap_or_default().to_owned(),
            files,
        })
    }

    /// Size and hash of a file below the suite's directory.
    pub fn file(&self, path: &str) -> Option<(u64, &str)> {
        self.files
            .iter()
            .find(|(name, ..)| name == path)
            .map(|(_, size, hash)| (*size, hash.as_str()))
    }
}

/// The part of a clear-signed message that the signature covers (RFC 9580 §7), without checking it.
pub fn signed_text(message: &str) -> Option<String> {
    let (_, rest) = message.split_once("-----BEGIN PGP SIGNED MESSAGE-----")?;
    let (_, body) = rest.split_once("\n\n")?;
    let (body, _) = body.split_once("\n-----BEGIN PGP SIGNATURE-----")?;
    Some(
        body.lines()
            .map(|line| line.strip_prefix("- ").unwrap_or(line))
            .collect::<Vec<_>>()
            .join("\n"),
    )
}

/// Whether a signature was checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trust {
    Signed,
    /// No `gpgv` or no Debian keyring on this host.
    Unchecked,
}

fn check_signature(in_release: &Path) -> Result<(String, Trust)> {
    let message = fs::read_to_string(in_release)?;
    let text = signed_text(&message)
        .ok_or_else(|| anyhow!("{} is not a signed message", in_release.display()))?;
    if !Path::new(KEYRING).exists() {
        return Ok((text, Trust::Unchecked));
    }
    let checked = tempfile::NamedTempFile::new()?;
    let output = Command::new("gpgv")
        .args(["--status-fd", "1", "--keyring", KEYRING, "--output"])
        .arg(checked.path())
        .arg(in_release)
        .output();
    let Ok(output) = output else {
        return Ok((text, Trust::Unchecked));
    };
    let status = String::from_utf8_lossy(&output.stdout);
    // One good signature by a key of the keyring is enough: newer releases are also signed by keys it may not have yet.
    if status.contains("[GNUPG:] BADSIG") || !status.contains("[GNUPG:] VALIDSIG") {
        bail!(
            "no valid signature on {} by a key of {KEYRING} (is debian-archive-keyring up to date?)\n{}",
            in_release.display(),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok((fs::read_to_string(checked.path())?, Trust::Signed))
}

/// Downloads verified indexes into a directory.
#[derive(Debug)]
pub struct Indexes<'a> {
    fetcher: &'a Fetcher,
    archives: &'a [String],
    dir: PathBuf,
}

impl<'a> Indexes<'a> {
    /// Indexes of the first of `archives` that is a Debian archive, cached below `dir`.
    pub fn new(fetcher: &'a Fetcher, archives: &'a [String], dir: PathBuf) -> Self {
        Self {
            fetcher,
            archives,
            dir,
        }
    }

    /// The release file of a suite and the archive root it came from.
    pub fn release(&self, suite: &str) -> Result<(Release, String)> {
        let mut last = anyhow!("no archive to ask");
        for archive in self.archives {
            match self.release_from(archive, suite) {
                Ok(release) => return Ok((release, archive.clone())),
                Err(error) => last = error,
            }
        }
        Err(last.context(format!("suite {suite}")))
    }

    fn release_from(&self, archive: &str, suite: &str) -> Result<Release> {
        let target = self.dir.join(format!("{suite}.InRelease"));
        let unknown = Wanted {
            size: None,
            sha256: None,
        };
        let uri = format!("{archive}/dists/{suite}/InRelease");
        self.fetcher
            .fetch(&uri, &target, unknown, &ProgressBar::hidden())?;
        let (text, trust) = check_signature(&target)?;
        if trust == Trust::Unchecked {
            eprintln!("lab: {uri}: signature not checked (no gpgv or no {KEYRING})");
        }
        let release = Release::parse(&text)?;
        // "Debian Backports" is one as well.
        if !release.origin.starts_with("Debian") {
            bail!(
                "{archive} is an archive of {:?}, not Debian",
                release.origin
            );
        }
        Ok(release)
    }

    /// The text of an index such as `main/binary-amd64/Packages`, which the release lists as `.xz`, and the archive root
    /// that it came from.
    pub fn index(&self, suite: &str, path: &str) -> Result<(String, String)> {
        let (release, archive) = self.release(suite)?;
        let packed = format!("{path}.xz");
        let (size, hash) = release
            .file(&packed)
            .ok_or_else(|| anyhow!("{suite} has no {packed}"))?;
        let target = self.dir.join(format!("{hash}.xz"));
        let bar = bytes_bar(size, &format!("index of {suite}"));
        let wanted = Wanted {
            size: Some(size),
            sha256: Some(hash),
        };
        let (parent, _) = packed.rsplit_once('/').unwrap_or_default();
        // By hash first: an archive that is being updated keeps old indexes reachable only there.
        let by_hash = format!("{archive}/dists/{suite}/{parent}/by-hash/SHA256/{hash}");
        let plain = format!("{archive}/dists/{suite}/{packed}");
        self.fetcher
            .fetch(&by_hash, &target, wanted, &bar)
            .or_else(|_| self.fetcher.fetch(&plain, &target, wanted, &bar))?;
        bar.finish_and_clear();
        let mut text = String::new();
        let file = fs::File::open(&target)?;
        liblzma::read::XzDecoder::new_multi_decoder(file)
            .read_to_string(&mut text)
            .with_context(|| format!("decompressing {}", target.display()))?;
        Ok((text, archive))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_lists_files() {
        let text = "Origin: Debian\nSuite: x\nMD5Sum:\n 00 1 main/a\nSHA256:\n ab 12 main/binary-amd64/Packages.xz\n cd 3 main/b\n";
        let release = Release::parse(text).unwrap();
        assert_eq!(release.origin, "Debian");
        assert_eq!(
            release.file("main/binary-amd64/Packages.xz"),
            Some((12, "ab"))
        );
        assert_eq!(release.file("main/a"), None);
    }

    #[test]
    fn clear_signed_text_is_unescaped() {
        let message = "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\nA: 1\n- -B: 2\n-----BEGIN PGP SIGNATURE-----\nxx\n";
        assert_eq!(signed_text(message).unwrap(), "A: 1\n-B: 2");
        assert_eq!(signed_text("A: 1"), None);
    }

    /// With the archive's own signature: the planted change must be noticed.
    #[test]
    fn a_changed_release_is_refused() {
        const NAME: &str = "lab::index::a_changed_release_is_refused";
        if std::env::var_os("OXVERBS_LAB").is_none() {
            return test_support::skip(NAME, "downloads: wants OXVERBS_LAB=1");
        }
        if !Path::new(KEYRING).exists() || Command::new("gpgv").arg("--version").output().is_err() {
            return test_support::skip(NAME, "no gpgv or no Debian keyring");
        }
        let dir = tempfile::tempdir().unwrap();
        let archives = crate::debian::sources::archives().unwrap();
        let fetcher = Fetcher::new();
        let indexes = Indexes::new(&fetcher, &archives, dir.path().to_owned());
        indexes.release("trixie").unwrap();
        let path = dir.path().join("trixie.InRelease");
        let (text, trust) = check_signature(&path).unwrap();
        assert_eq!(trust, Trust::Signed);
        assert!(
            Release::parse(&text)
                .unwrap()
                .file("main/binary-amd64/Packages.xz")
                .is_some()
        );
        let message = fs::read_to_string(&path).unwrap();
        for (from, to) in [
            ("Origin: Debian", "Origin: debian"),
            ("-----BEGIN PGP SIGNATURE-----", ""),
        ] {
            fs::write(&path, message.replacen(from, to, 1)).unwrap();
            assert!(
                check_signature(&path).is_err(),
                "{from:?} changed unnoticed"
            );
        }
    }
}
