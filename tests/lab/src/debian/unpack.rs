//! Unpacks `.deb` files (`deb(5)`) below a directory, without root and without maintainer scripts.
//!
//! Owners are not kept, device nodes are left out, and `/bin`, `/sbin`, `/lib*` land in `/usr` (all suites are merged,
//! but bookworm's packages still name both).

use std::fs::{self, File, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};

use super::fetch::disk;

/// Which of a package's paths (without leading `/`, after the merge into `/usr`) are wanted.
pub type Filter = fn(&str) -> bool;

/// Unpacks the data of `deb` below `root`.
pub fn unpack_deb(deb: &Path, root: &Path, filter: Filter) -> Result<()> {
    let what = || format!("unpacking {}", deb.display());
    let file = File::open(deb).with_context(what)?;
    let mut archive = ar::Archive::new(io::BufReader::new(file));
    while let Some(entry) = archive.next_entry() {
        let entry = entry.with_context(what)?;
        let name = String::from_utf8_lossy(entry.header().identifier())
            .trim_end_matches('/')
            .to_owned();
        if let Some(compression) = name.strip_prefix("data.tar") {
            let data: Box<dyn Read + '_> = match compression {
                "" => Box::new(entry),
                ".gz" => Box::new(flate2::read::GzDecoder::new(entry)),
                ".xz" => Box::new(liblzma::read::XzDecoder::new(entry)),
                ".zst" => Box::new(
                    ruzstd::decoding::StreamingDecoder::new(entry).map_err(|e| anyhow!("{e}"))?,
                ),
                other => bail!("{}: data compressed as {other:?}", deb.display()),
            };
            return unpack_tar(data, root, filter).with_context(what);
        }
    }
    bail!("{}: no data.tar in it", deb.display())
}

/// Unpacks a tar stream below `root`, as [`unpack_deb`] does.
pub fn unpack_tar(data: impl Read, root: &Path, filter: Filter) -> Result<()> {
    let mut archive = tar::Archive::new(data);
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = merged(&entry.path()?)?;
        let text = path.to_string_lossy();
        if text.is_empty() || !filter(&text) {
            continue;
        }
        let kind = entry.header().entry_type();
        let mode = entry.header().mode()? & 0o7777;
        let target = locate(root, &path)?;
        if kind.is_dir() {
            if !target.is_dir() {
                fs::create_dir_all(&target).map_err(|error| disk(error, &target))?;
            }
            // The owner must be able to fill it and to remove it later.
            fs::set_permissions(&target, Permissions::from_mode(mode | 0o700))?;
            continue;
        }
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent).map_err(|error| disk(error, parent))?;
        }
        if target.symlink_metadata().is_ok_and(|meta| !meta.is_dir()) {
            fs::remove_file(&target).map_err(|error| disk(error, &target))?;
        }
        let link = || {
            entry
                .link_name()
                .ok()
                .flatten()
                .ok_or_else(|| anyhow!("{text}: link to nothing"))
        };
        match kind {
            tar::EntryType::Symlink => {
                symlink(link()?, &target).map_err(|error| disk(error, &target))?;
            }
            tar::EntryType::Link => {
                let source = locate(root, &merged(&link()?)?)?;
                fs::hard_link(&source, &target).map_err(|error| disk(error, &target))?;
            }
            tar::EntryType::Regular | tar::EntryType::Continuous => {
                let mut file = File::create(&target).map_err(|error| disk(error, &target))?;
                io::copy(&mut entry, &mut file).map_err(|error| disk(error, &target))?;
                fs::set_permissions(&target, Permissions::from_mode(mode | 0o400))?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// The path without `./`, with the directories that every suite has merged into `/usr`.
fn merged(path: &Path) -> Result<PathBuf> {
    let mut clean = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => clean.push(name),
            Component::CurDir | Component::RootDir => {}
            _ => bail!("{}: climbs out of the archive", path.display()),
        }
    }
    let first = clean.iter().next().and_then(|name| name.to_str());
    if let Some("bin" | "sbin" | "lib" | "lib32" | "lib64" | "libx32") = first {
        let is_the_directory_itself = clean.iter().count() == 1;
        // A package may ship the merge's own symlink; the root has it already.
        clean = if is_the_directory_itself {
            PathBuf::new()
        } else {
            Path::new("usr").join(clean)
        };
    }
    Ok(clean)
}

/// Where `path` is below `root` when the symlinks of the root are followed as inside it (the last component is not):
/// a package may write through another one's `/var/run -> /run`, which on the host leads elsewhere.
pub fn locate(root: &Path, path: &Path) -> Result<PathBuf> {
    let mut done = PathBuf::new();
    let mut todo: Vec<std::ffi::OsString> = path.iter().map(Into::into).collect();
    todo.reverse();
    let mut hops = 0;
    while let Some(name) = todo.pop() {
        if name == ".." {
            done.pop();
            continue;
        }
        if name == "." || name == "/" {
            continue;
        }
        let candidate = done.join(&name);
        match fs::read_link(root.join(&candidate)) {
            Ok(link) if !todo.is_empty() => {
                hops += 1;
                if hops > 40 {
                    bail!("{}: too many symbolic links", path.display());
                }
                if link.is_absolute() {
                    done = PathBuf::new();
                }
                todo.extend(link.iter().rev().map(std::ffi::OsString::from));
            }
            _ => done = candidate,
        }
    }
    Ok(root.join(done))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tar_with(build: impl FnOnce(&mut tar::Builder<Vec<u8>>)) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        build(&mut builder);
        builder.into_inner().unwrap()
    }

    fn entry(
        builder: &mut tar::Builder<Vec<u8>>,
        path: &str,
        kind: tar::EntryType,
        link: &str,
        data: &[u8],
    ) {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(0o4555);
        header.set_size(data.len() as u64);
        // Written raw, so that hostile names can be tested.
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_cksum();
        builder.append(&header, data).unwrap();
    }

    #[test]
    fn merges_links_and_stays_inside() {
        use tar::EntryType::{Directory, Link, Regular, Symlink};
        let data = tar_with(|b| {
            entry(b, "./", Directory, "", b"");
            entry(b, "./lib", Symlink, "usr/lib", b"");
            entry(b, "./lib/x/", Directory, "", b"");
            entry(b, "./lib/x/libc.so", Regular, "", b"code");
            entry(b, "./usr/lib/x/hard", Link, "./lib/x/libc.so", b"");
            entry(b, "./var/run", Symlink, "/run", b"");
            entry(b, "./var/run/pid", Regular, "", b"1");
            entry(b, "./usr/share/doc/x/y", Regular, "", b"unwanted");
            entry(b, "./usr/lib/x/libc.so", Regular, "", b"newer");
        });
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        unpack_tar(data.as_slice(), &root, |path| {
            !path.starts_with("usr/share/doc")
        })
        .unwrap();
        assert_eq!(fs::read(root.join("usr/lib/x/libc.so")).unwrap(), b"newer");
        assert_eq!(fs::read(root.join("usr/lib/x/hard")).unwrap(), b"code");
        assert_eq!(fs::read(root.join("run/pid")).unwrap(), b"1");
        assert!(!root.join("usr/share").exists());
        assert!(root.join("lib").symlink_metadata().is_err());
        let mode = fs::metadata(root.join("usr/lib/x/hard"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o7777, 0o4555);
    }

    #[test]
    fn hostile_names_are_refused() {
        let data = tar_with(|b| entry(b, "./../escape", tar::EntryType::Regular, "", b"x"));
        let dir = tempfile::tempdir().unwrap();
        assert!(unpack_tar(data.as_slice(), &dir.path().join("root"), |_| true).is_err());
        assert!(!dir.path().join("escape").exists());
    }

    #[test]
    fn links_that_climb_or_loop_stay_inside() {
        let dir = tempfile::tempdir().unwrap();
        symlink("../../..", dir.path().join("up")).unwrap();
        symlink("loop", dir.path().join("loop")).unwrap();
        assert_eq!(
            locate(dir.path(), Path::new("up/etc/x")).unwrap(),
            dir.path().join("etc/x")
        );
        assert!(locate(dir.path(), Path::new("loop/x")).is_err());
    }

    #[test]
    fn a_real_deb_unpacks_as_dpkg_does() {
        // Built with the host's dpkg-deb; a host without it proves the same with the tar tests above.
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        fs::create_dir_all(tree.join("DEBIAN")).unwrap();
        fs::create_dir_all(tree.join("usr/bin")).unwrap();
        fs::write(
            tree.join("DEBIAN/control"),
            "Package: t\nVersion: 1\nArchitecture: all\nMaintainer: t <t@t>\nDescription: t\n",
        )
        .unwrap();
        fs::write(tree.join("usr/bin/t"), "hello").unwrap();
        for compression in ["-Zxz", "-Zgzip", "-Znone", "-Zzstd"] {
            let deb = dir.path().join(format!("t{compression}.deb"));
            let status = std::process::Command::new("dpkg-deb")
                .args(["--root-owner-group", compression, "-b"])
                .args([&tree, &deb])
                .stdout(std::process::Stdio::null())
                .status();
            let Ok(status) = status else {
                return test_support::skip("lab::dpkg::unpack", "no dpkg-deb on this host");
            };
            assert!(status.success());
            let root = dir.path().join(format!("root{compression}"));
            unpack_deb(&deb, &root, |_| true).unwrap();
            assert_eq!(fs::read(root.join("usr/bin/t")).unwrap(), b"hello");
        }
    }
}
