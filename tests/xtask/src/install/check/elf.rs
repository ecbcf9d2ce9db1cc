//! Which shared objects a program gets, as the loader would find them, without running anything.
//!
//! `ld.so(8)`: DT_RPATH (without DT_RUNPATH), LD_LIBRARY_PATH, DT_RUNPATH, the cache, the default directories.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::elf;
use object::read::elf::{Dyn as _, ElfFile64, FileHeader as _};
use object::{Endianness, FileKind};

use crate::install::layout::{triplet, under};

/// What an ELF file says of the others that it needs.
#[derive(Clone, Debug, Default)]
pub(super) struct Needs {
    names: Vec<String>,
    /// DT_RPATH, which counts only without a DT_RUNPATH.
    rpath: Vec<String>,
    runpath: Vec<String>,
}

/// Reads the dynamic section of a 64-bit ELF file; nothing of a file that is none, or is damaged.
fn needs(file: &Path) -> Option<Needs> {
    let bytes = fs::read(file).ok()?;
    if FileKind::parse(bytes.as_slice()).ok()? != FileKind::Elf64 {
        return None;
    }
    let elf = ElfFile64::<Endianness>::parse(bytes.as_slice()).ok()?;
    let endian = elf.endian();
    let header = elf.elf_header();
    let sections = header.sections(endian, bytes.as_slice()).ok()?;
    let (entries, link) = sections.dynamic(endian, bytes.as_slice()).ok()??;
    let strings = sections.strings(endian, bytes.as_slice(), link).ok()?;
    let mut needs = Needs::default();
    for entry in entries {
        let Some(text) = entry
            .val32(endian)
            .and_then(|offset| strings.get(offset).ok())
        else {
            continue;
        };
        let text = String::from_utf8_lossy(text).into_owned();
        let paths = || text.split(':').map(str::to_owned);
        match entry.tag(endian) {
            elf::DT_NEEDED => needs.names.push(text),
            elf::DT_RPATH => needs.rpath.extend(paths()),
            elf::DT_RUNPATH => needs.runpath.extend(paths()),
            _ => {}
        }
    }
    Some(needs)
}

/// The loader of a system.
#[derive(Debug)]
pub(super) struct Loader {
    root: PathBuf,
    /// `LD_LIBRARY_PATH`.
    library_path: Vec<String>,
    /// First file of each name in the cache.
    cache: HashMap<String, PathBuf>,
    /// What was read of files before.
    read: HashMap<PathBuf, Option<Needs>>,
}

impl Loader {
    /// Reads the cache of the system in `root`.
    pub(super) fn new(root: &Path, library_path: Option<OsString>) -> Self {
        Self {
            root: root.to_owned(),
            library_path: library_path
                .map(|paths| String::from_utf8_lossy(&paths.into_vec()).into_owned())
                .unwrap_or_default()
                .split([':', ';'])
                .filter(|dir| !dir.is_empty())
                .map(str::to_owned)
                .collect(),
            cache: cache(root),
            read: HashMap::new(),
        }
    }

    /// What a file needs, read once. The path is one of the system, not of ours.
    fn needs(&mut self, file: &Path) -> Option<Needs> {
        let here = under(&self.root, file);
        self.read
            .entry(file.to_owned())
            .or_insert_with(|| needs(&here))
            .clone()
    }

    /// Names and files of all shared objects that a program gets when it starts. None if it is no ELF program.
    pub(super) fn closure(&mut self, program: &Path) -> Option<BTreeMap<String, PathBuf>> {
        self.needs(program)?;
        let mut found = BTreeMap::new();
        let mut queue = vec![program.to_owned()];
        while let Some(file) = queue.pop() {
            let Some(needs) = self.needs(&file) else {
                continue;
            };
            for name in &needs.names {
                if found.contains_key(name) {
                    continue;
                }
                if let Some(path) = self.find(name, &file, &needs) {
                    found.insert(name.clone(), path.clone());
                    queue.push(path);
                }
            }
        }
        Some(found)
    }

    /// The file that a name leads to for a program without paths of its own.
    pub(super) fn of_system(&self, name: &str) -> Option<PathBuf> {
        self.find(name, Path::new("/"), &Needs::default())
    }

    /// The file that a name leads to.
    fn find(&self, name: &str, of: &Path, needs: &Needs) -> Option<PathBuf> {
        let origin = of.parent().unwrap_or(Path::new("/")).display().to_string();
        let expand = |dir: &String| {
            dir.replace("${ORIGIN}", &origin)
                .replace("$ORIGIN", &origin)
        };
        let rpath = if needs.runpath.is_empty() {
            needs.rpath.as_slice()
        } else {
            &[]
        };
        let before = rpath.iter().map(expand);
        let named = before
            .chain(self.library_path.iter().cloned())
            .chain(needs.runpath.iter().map(expand));
        let there = |dir: String| {
            let path = Path::new(&dir).join(name);
            under(&self.root, &path).exists().then_some(path)
        };
        named
            .into_iter()
            .find_map(there)
            .or_else(|| self.cache.get(name).cloned())
            .or_else(|| {
                // Debian's loader has the architecture's directories built in.
                let debian = |dir| format!("{dir}/{}", triplet());
                [debian("/lib"), debian("/usr/lib")]
                    .into_iter()
                    .chain(["/lib64", "/usr/lib64", "/lib", "/usr/lib"].map(str::to_owned))
                    .find_map(there)
            })
    }
}

/// What `ldconfig -p` prints of this machine's architecture: `NAME (libc6,x86-64) => PATH`, best first.
fn cache(root: &Path) -> HashMap<String, PathBuf> {
    let mut command = Command::new("/sbin/ldconfig");
    command.arg("-p");
    if root != Path::new("/") {
        command.arg("-C").arg(root.join("etc/ld.so.cache"));
    }
    let Ok(output) = command.output() else {
        return HashMap::new();
    };
    let mut cache = HashMap::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Some((entry, path)) = line.split_once(" => ") else {
            continue;
        };
        let Some((name, kind)) = entry.trim().split_once(" (") else {
            continue;
        };
        if kind.contains("x86-64") || kind.contains("AArch64") {
            cache
                .entry(name.to_owned())
                .or_insert_with(|| PathBuf::from(path));
        }
    }
    cache
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program of this machine against what the loader itself says of it.
    #[test]
    fn finds_what_the_loader_finds() {
        let program = std::env::current_exe().unwrap();
        let output = Command::new("ldd").arg(&program).output();
        let Ok(output) = output else {
            return test_support::skip("xtask::install::ldd", "no ldd on this host");
        };
        let mut expected: Vec<_> = String::from_utf8_lossy(&output.stdout)
            .lines()
            .filter_map(|line| line.split_once(" => "))
            .filter_map(|(name, path)| {
                let path = path.split_whitespace().next()?;
                Some((name.trim().to_owned(), fs::canonicalize(path).unwrap()))
            })
            .collect();
        expected.sort();
        let mut loader = Loader::new(Path::new("/"), std::env::var_os("LD_LIBRARY_PATH"));
        let found: Vec<_> = loader
            .closure(&program)
            .unwrap()
            .into_iter()
            // ldd prints the interpreter without an arrow
            .filter(|(name, _)| !name.starts_with("ld-linux"))
            .map(|(name, path)| (name, fs::canonicalize(path).unwrap()))
            .collect();
        assert_eq!(found, expected);
        assert!(!expected.is_empty());
    }

    #[test]
    fn what_is_no_program_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("script");
        fs::write(&script, "#!/bin/sh\n").unwrap();
        let damaged = dir.path().join("damaged");
        let whole = fs::read(std::env::current_exe().unwrap()).unwrap();
        fs::write(&damaged, &whole[..100]).unwrap();
        let mut loader = Loader::new(Path::new("/"), None);
        assert!(loader.closure(&script).is_none());
        assert!(loader.closure(&damaged).is_none());
        assert!(loader.closure(&dir.path().join("missing")).is_none());
    }
}
