//! Outside witnesses for tests on the host: C headers, sources, official libraries of Debian's releases, unpacked into
//! the cache. They are read, compiled against and run, never copied into the repository.

use std::cmp::Ordering;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};

use crate::cache::{Cache, Recipe};
use crate::debian::control::{Stanza, stanzas};
use crate::debian::fetch::{Gone, Wanted, bytes_bar, disk};
use crate::debian::index::Indexes;
use crate::debian::unpack::unpack_tar;
use crate::debian::{sources, version};
use crate::kits::{self, Userland};

/// A directory to put before the compiler's own (`-I`) to get the kernel headers (`rdma/…`) of a release.
pub fn kernel_headers(cache: &Cache, release: Userland) -> Result<PathBuf> {
    let (name, suites): (_, &[&str]) = match release {
        Userland::Bookworm => ("headers-bookworm", &["bookworm"]),
        Userland::Trixie => ("headers-trixie", &["trixie"]),
        Userland::Sid => ("headers-sid", &["sid"]),
    };
    let recipe = Recipe {
        name,
        suites,
        packages: &["linux-libc-dev"],
        essential: false,
        only_prefix: "linux-libc-dev",
        filter: |path| path.starts_with("usr/include/"),
        version: 1,
    };
    let tree = cache.tree(&recipe, |_| Ok(()), |_| Ok(()))?;
    Ok(tree.dir.join("usr/include"))
}

/// The headers of libibverbs and librdmacm of a release: a directory for `-I`.
pub fn verbs_headers(cache: &Cache, release: Userland) -> Result<PathBuf> {
    let (name, suites): (_, &[&str]) = match release {
        Userland::Bookworm => ("verbs-headers-bookworm", &["bookworm"]),
        Userland::Trixie => ("verbs-headers-trixie", &["trixie"]),
        Userland::Sid => ("verbs-headers-sid", &["sid"]),
    };
    let recipe = Recipe {
        name,
        suites,
        packages: &["libibverbs-dev", "librdmacm-dev"],
        essential: false,
        only_prefix: "lib",
        filter: |path| path.starts_with("usr/include/") && !path.contains("c++"),
        version: 1,
    };
    let tree = cache.tree(&recipe, |_| Ok(()), |_| Ok(()))?;
    Ok(tree.dir.join("usr/include"))
}

/// A release's userland, whose libibverbs, providers and programs can be run on the host through the tree's own loader.
pub fn userland(cache: &Cache, release: Userland) -> Result<PathBuf> {
    Ok(kits::userland(cache, release, false)?.dir)
}

/// UCX of a release with every library that it needs, to be run on the host through the tree's own loader.
///
/// Its mlx5 transport reads compressed completions: of basic layout in bookworm (1.13), of enhanced layout from 1.14 on.
pub fn ucx(cache: &Cache, release: Userland) -> Result<PathBuf> {
    let (name, suites): (_, &[&str]) = match release {
        Userland::Bookworm => ("ucx-bookworm", &["bookworm"]),
        Userland::Trixie => ("ucx-trixie", &["trixie"]),
        Userland::Sid => ("ucx-sid", &["sid"]),
    };
    let recipe = Recipe {
        name,
        suites,
        packages: &["libucx0"],
        essential: false,
        only_prefix: "",
        filter: |path| {
            // What its transports for graphics cards need; they are not loaded.
            const HEAVY: [&str; 5] = ["libLLVM", "libamd", "libz3", "libhsa", "gconv/"];
            path.contains("lib/") && !HEAVY.iter().any(|part| path.contains(part))
        },
        version: 2,
    };
    Ok(cache.tree(&recipe, |_| Ok(()), |_| Ok(()))?.dir)
}

/// Of the source of Linux 6.12, as Debian's package has it: `include/linux/mlx5/` and `cmd.c` of mlx5_core.
///
/// The package is large (150 MB); what is not wanted of it is not kept. `None`: the archive's index lists it, but the
/// archive does not have the file.
pub fn linux_source(cache: &Cache) -> Result<Option<PathBuf>> {
    const TARBALL: &str = "usr/src/linux-source-6.12.tar.xz";
    let recipe = Recipe {
        name: "linux-source",
        suites: &["trixie"],
        packages: &["linux-source-6.12"],
        essential: false,
        only_prefix: "linux-source",
        filter: |path| path == TARBALL,
        version: 1,
    };
    let finish = |dir: &Path| {
        let tarball = dir.join(TARBALL);
        let file = fs::File::open(&tarball).map_err(|error| disk(error, &tarball))?;
        let data = liblzma::read::XzDecoder::new_multi_decoder(file);
        unpack_tar(data, dir, |path| {
            path.contains("/include/linux/mlx5/") || path.ends_with("/mlx5/core/cmd.c")
        })
        .with_context(|| format!("unpacking {}", tarball.display()))?;
        fs::remove_dir_all(dir.join("usr")).map_err(|error| disk(error, dir))
    };
    let tree = match cache.tree(&recipe, |_| Ok(()), finish) {
        Ok(tree) => tree,
        Err(error) if error.is::<Gone>() => return Ok(None),
        Err(error) => return Err(error),
    };
    for package in &tree.packages {
        let _ = fs::remove_file(cache.path(&format!("debs/{}.deb", package.sha256)));
    }
    Ok(Some(tree.dir.join("linux-source-6.12")))
}

/// The upstream source of rdma-core as Debian's source package of a release holds it (without Debian's patches).
///
/// `None`: the archive's index lists it, but the archive does not have the file. Some mirrors carry no sources of older
/// releases.
pub fn rdma_core_source(cache: &Cache, release: Userland) -> Result<Option<PathBuf>> {
    match source(cache, release.suite(), "rdma-core") {
        Ok(dir) => Ok(Some(dir)),
        Err(error) if error.is::<Gone>() => Ok(None),
        Err(error) => Err(error),
    }
}

/// A file of a source package.
#[derive(Debug, PartialEq, Eq)]
struct SourceFile {
    /// Below the archive's root.
    path: String,
    size: u64,
    sha256: String,
}

/// The newest version of a package in a `Sources` index, and its upstream tarball.
fn find(index: &str, package: &str) -> Result<(String, SourceFile)> {
    let mut newest: Option<Stanza<'_>> = None;
    for stanza in stanzas(index) {
        let stanza = stanza.map_err(|error| anyhow!("Sources: {error}"))?;
        if stanza.get("Package") != Some(package) {
            continue;
        }
        let of = |stanza: &Stanza<'_>| stanza.get("Version").unwrap_or_default().to_owned();
        if newest
            .as_ref()
            .is_none_or(|known| version::compare(&of(&stanza), &of(known)) == Ordering::Greater)
        {
            newest = Some(stanza);
        }
    }
    let stanza = newest.with_context(|| format!("no source package {package}"))?;
    let directory = stanza.get("Directory").context("no Directory")?;
    let files = stanza.lines("Checksums-Sha256").unwrap_or_default();
    for line in files {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [sha256, size, name] = words[..] else {
            continue;
        };
        if name.contains(".orig.tar.") && !name.ends_with(".asc") {
            let file = SourceFile {
                path: format!("{directory}/{name}"),
                size: size.parse().context("size of a source file")?,
                sha256: sha256.to_owned(),
            };
            let version = stanza.get("Version").unwrap_or_default().to_owned();
            return Ok((version, file));
        }
    }
    bail!("the source package {package} has no upstream tarball")
}

fn source(cache: &Cache, suite: &str, package: &str) -> Result<PathBuf> {
    // The pointer says what was found last time, so that later uses need no network.
    let pointer = cache.path(&format!("resolved/source-{package}-{suite}"));
    if !cache.wants_refresh()
        && let Ok(dir) = fs::read_to_string(&pointer)
        && cache.path(&dir).is_dir()
    {
        return Ok(cache.path(&dir));
    }
    let archives = sources::archives()?;
    let fetcher = cache.fetcher();
    let indexes = Indexes::new(fetcher, &archives, cache.path("indexes"));
    let (index, archive) = indexes.index(suite, "main/source/Sources")?;
    let (version, file) = find(&index, package)?;
    let below = format!("trees/source-{package}-{}", version.replace(':', "%3a"));
    let dir = cache.path(&below);
    if !dir.is_dir() {
        let name = file.path.rsplit('/').next().unwrap_or(&file.path);
        let tarball = cache.path(&format!("debs/{}.{name}", file.sha256));
        let bar = bytes_bar(file.size, &format!("source of {package}"));
        let wanted = Wanted {
            size: Some(file.size),
            sha256: Some(&file.sha256),
        };
        fetcher.fetch(&format!("{archive}/{}", file.path), &tarball, wanted, &bar)?;
        bar.finish_and_clear();
        unpack_source(&tarball, &dir)?;
    }
    crate::cache::write_whole(&pointer, below.as_bytes())?;
    Ok(dir)
}

/// Unpacks a tarball whose content is in one directory, and makes that directory `dir`.
fn unpack_source(tarball: &Path, dir: &Path) -> Result<()> {
    let scratch = dir.with_extension("tmp");
    if scratch.exists() {
        fs::remove_dir_all(&scratch).map_err(|error| disk(error, &scratch))?;
    }
    fs::create_dir_all(&scratch).map_err(|error| disk(error, &scratch))?;
    let file = fs::File::open(tarball)?;
    let data: Box<dyn Read> = match tarball.extension().and_then(|e| e.to_str()) {
        Some("xz") => Box::new(liblzma::read::XzDecoder::new_multi_decoder(file)),
        Some("gz") => Box::new(flate2::read::GzDecoder::new(file)),
        _ => bail!("{}: compressed in an unknown way", tarball.display()),
    };
    unpack_tar(data, &scratch, |_| true)
        .with_context(|| format!("unpacking {}", tarball.display()))?;
    let mut entries = fs::read_dir(&scratch)?;
    let (Some(only), None) = (entries.next(), entries.next()) else {
        bail!("{}: not one directory in it", tarball.display());
    };
    fs::rename(only?.path(), dir).map_err(|error| disk(error, dir))?;
    fs::remove_dir_all(&scratch).map_err(|error| disk(error, &scratch))
}

#[cfg(test)]
mod tests {
    use super::*;

    const INDEX: &str = "\
Package: other
Version: 1-1
Directory: pool/o
Checksums-Sha256:
 aa 1 other_1.orig.tar.xz

Package: rdma-core
Version: 56.0-1
Directory: pool/r
Checksums-Sha256:
 bb 2 rdma-core_56.0.orig.tar.gz

Package: rdma-core
Version: 56.1-1
Directory: pool/r
Checksums-Sha256:
 cc 3 rdma-core_56.1-1.dsc
 dd 4 rdma-core_56.1.orig.tar.xz.asc
 ee 5 rdma-core_56.1.orig.tar.xz
 ff 6 rdma-core_56.1-1.debian.tar.xz
";

    #[test]
    fn finds_the_newest_upstream_tarball() {
        let (version, file) = find(INDEX, "rdma-core").unwrap();
        assert_eq!(version, "56.1-1");
        let expected = SourceFile {
            path: "pool/r/rdma-core_56.1.orig.tar.xz".to_owned(),
            size: 5,
            sha256: "ee".to_owned(),
        };
        assert_eq!(file, expected);
        assert!(find(INDEX, "absent").is_err());
    }
}
