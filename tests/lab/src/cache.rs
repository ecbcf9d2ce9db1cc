//! The cache of packages and unpacked trees below `$XDG_CACHE_HOME/oxverbs`.
//!
//! ```text
//! lock                        held while the cache is being changed
//! indexes/                    InRelease files and Packages indexes (by hash)
//! debs/HASH.deb               verified packages; HASH.deb.part is a download to be continued
//! resolved/NAME.json          what a recipe resolved to, so that later uses need no network
//! trees/NAME-KEY/             unpacked; KEY names the recipe and every package version in it
//! initrds/, runs/             built initial file systems; one directory per running guest
//! ```
//!
//! Everything gets its final name only when it is complete, so an interrupted run costs no more than its own work.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::env;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, anyhow, bail};
use serde::{Deserialize, Serialize};

use crate::debian::fetch::{Fetcher, Gone, Wanted, bytes_bar, disk, sha256};
use crate::debian::index::Indexes;
use crate::debian::resolve::{Package, Request, Universe};
use crate::debian::sources;
use crate::debian::unpack::{Filter, unpack_deb};

/// Downloads at a time: enough to hide a mirror's latency.
const DOWNLOADS: usize = 4;

/// A tree to be built from packages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recipe {
    /// Name of the tree.
    pub(crate) name: &'static str,
    /// Suites, most preferred first.
    pub(crate) suites: &'static [&'static str],
    /// Packages, `name` or `name/suite`.
    pub(crate) packages: &'static [&'static str],
    /// With the suite's essential packages.
    pub(crate) essential: bool,
    /// Follow dependencies only to names that start so.
    pub(crate) only_prefix: &'static str,
    /// Paths to unpack.
    pub(crate) filter: Filter,
    /// Counted up when the way the tree is built changes.
    pub(crate) version: u32,
}

/// An unpacked tree.
#[derive(Debug, Clone)]
pub struct Tree {
    /// Where it is.
    pub dir: PathBuf,
    /// Names the recipe and all versions in it.
    pub key: String,
    /// The packages in it.
    pub packages: Vec<Package>,
}

impl Tree {
    /// Version of a package in the tree.
    pub fn version_of(&self, name: &str) -> Option<&str> {
        self.packages
            .iter()
            .find(|package| package.name == name)
            .map(|package| package.version.as_str())
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Resolved {
    request: String,
    archive: String,
    packages: Vec<Package>,
    /// Name of the tree built from it, so that [`Cache::prune`] knows what is in use.
    #[serde(default)]
    tree: String,
}

/// The cache, locked against other processes for as long as this value lives.
#[derive(Debug)]
pub struct Cache {
    dir: PathBuf,
    refresh: bool,
    fetcher: Fetcher,
    indexes: RefCell<HashMap<String, (String, String)>>,
    _lock: File,
}

/// The cache's directory: `$XDG_CACHE_HOME/oxverbs`, else `~/.cache/oxverbs`.
pub fn directory() -> Result<PathBuf> {
    let base = match env::var_os("XDG_CACHE_HOME").filter(|dir| Path::new(dir).is_absolute()) {
        Some(dir) => PathBuf::from(dir),
        None => env::home_dir()
            .context("no home directory; set XDG_CACHE_HOME")?
            .join(".cache"),
    };
    Ok(base.join("oxverbs"))
}

impl Cache {
    /// Opens and locks the cache; waits for another process that is filling it. `refresh` asks the archive anew for
    /// the newest versions of everything that is used.
    pub fn open(refresh: bool) -> Result<Self> {
        if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
            bail!(
                "the lab runs on x86-64 Linux only: it uses Debian's amd64 packages of QEMU and of the guest"
            );
        }
        Self::open_in(directory()?, refresh)
    }

    fn open_in(dir: PathBuf, refresh: bool) -> Result<Self> {
        fs::create_dir_all(&dir).map_err(|error| disk(error, &dir))?;
        let path = dir.join("lock");
        let lock = File::create(&path).map_err(|error| disk(error, &path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                eprintln!(
                    "lab: another process is filling {}; waiting for it",
                    dir.display()
                );
                lock.lock()?;
            }
            Err(TryLockError::Error(error)) => return Err(disk(error, &path)),
        }
        Ok(Self {
            dir,
            refresh,
            fetcher: Fetcher::new(),
            indexes: RefCell::default(),
            _lock: lock,
        })
    }

    /// A path below the cache.
    pub fn path(&self, below: &str) -> PathBuf {
        self.dir.join(below)
    }

    /// Whether everything that is used is to be looked up anew.
    pub(crate) fn wants_refresh(&self) -> bool {
        self.refresh
    }

    pub(crate) fn fetcher(&self) -> &Fetcher {
        &self.fetcher
    }

    /// The tree of a recipe, built if it is not there. `finish` is run on a new tree before it gets its name.
    pub(crate) fn tree(
        &self,
        recipe: &Recipe,
        prepare: impl Fn(&Path) -> Result<()>,
        finish: impl Fn(&Path) -> Result<()>,
    ) -> Result<Tree> {
        let mut resolved = self.resolved(recipe, self.refresh)?;
        let mut tree = self.tree_of(recipe, &resolved);
        if tree.dir.is_dir() {
            self.remember_tree(recipe, resolved, &tree)?;
            return Ok(tree);
        }
        let mut fetched = self.fetch_all(recipe, &resolved);
        if fetched
            .as_ref()
            .is_err_and(|error| error.chain().any(|cause| cause.is::<Gone>()) || error.is::<Gone>())
        {
            // The archive moved on since this was resolved.
            resolved = self.resolved(recipe, true)?;
            tree = self.tree_of(recipe, &resolved);
            fetched = self.fetch_all(recipe, &resolved);
        }
        let debs = fetched?;
        let scratch = tree.dir.with_extension("tmp");
        remove_tree(&scratch)?;
        fs::create_dir_all(&scratch).map_err(|error| disk(error, &scratch))?;
        prepare(&scratch)?;
        let bar = bytes_bar(
            resolved.packages.iter().map(|p| p.size).sum(),
            &format!("unpacking {}", recipe.name),
        );
        for (deb, package) in debs.iter().zip(&resolved.packages) {
            crate::interrupt::check()?;
            unpack_deb(deb, &scratch, recipe.filter)?;
            bar.inc(package.size);
        }
        bar.finish_and_clear();
        finish(&scratch)?;
        fs::rename(&scratch, &tree.dir).map_err(|error| disk(error, &tree.dir))?;
        self.remember_tree(recipe, resolved, &tree)?;
        Ok(tree)
    }

    fn remember_tree(&self, recipe: &Recipe, mut resolved: Resolved, tree: &Tree) -> Result<()> {
        let name = tree.dir.file_name().unwrap_or_default().to_string_lossy();
        if resolved.tree == name {
            return Ok(());
        }
        resolved.tree = name.into_owned();
        let text = serde_json::to_string_pretty(&resolved)?;
        write_whole(&self.resolved_path(recipe), text.as_bytes())
    }

    fn resolved_path(&self, recipe: &Recipe) -> PathBuf {
        self.path(&format!("resolved/{}.json", recipe.name))
    }

    /// Removes what no recipe uses any more: trees and packages of older versions, and initial file systems, which are
    /// rebuilt in a second. Returns the paths that it removed.
    ///
    /// Fails while a guest runs: it may be using an older tree.
    pub fn prune(&self) -> Result<Vec<PathBuf>> {
        let guests = crate::guest::running(&self.path("runs"));
        if guests > 0 {
            bail!("{guests} guest(s) of this cache are running");
        }
        let mut used: HashSet<String> = HashSet::new();
        for path in entries(&self.path("resolved")) {
            let Ok(text) = fs::read_to_string(&path) else {
                continue;
            };
            match serde_json::from_str::<Resolved>(&text) {
                Ok(resolved) => {
                    used.insert(resolved.tree);
                    used.extend(
                        resolved
                            .packages
                            .iter()
                            .map(|p| format!("{}.deb", p.sha256)),
                    );
                }
                // A source package's pointer is the path of its tree.
                Err(_) => used.extend(text.rsplit('/').next().map(str::to_owned)),
            }
        }
        let mut removed = Vec::new();
        for path in entries(&self.path("trees"))
            .into_iter()
            .chain(entries(&self.path("debs")))
        {
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            // Tarballs of source packages carry their own name behind the hash.
            if used.contains(&name) || name.contains(".orig.tar.") {
                continue;
            }
            removed.push(path);
        }
        removed.extend(entries(&self.path("initrds")));
        for path in &removed {
            let outcome = if path.is_dir() {
                fs::remove_dir_all(path)
            } else {
                fs::remove_file(path)
            };
            outcome.map_err(|error| disk(error, path))?;
        }
        Ok(removed)
    }

    fn tree_of(&self, recipe: &Recipe, resolved: &Resolved) -> Tree {
        let mut text = format!("recipe {}\n", recipe.version);
        for package in &resolved.packages {
            text += &format!("{} {}\n", package.name, package.sha256);
        }
        let key = sha256(text.as_bytes())[..16].to_owned();
        let dir = self.path(&format!("trees/{}-{key}", recipe.name));
        Tree {
            dir,
            key,
            packages: resolved.packages.clone(),
        }
    }

    fn resolved(&self, recipe: &Recipe, refresh: bool) -> Result<Resolved> {
        let path = self.resolved_path(recipe);
        let request = format!(
            "{:?}",
            (
                recipe.suites,
                recipe.packages,
                recipe.essential,
                recipe.only_prefix
            )
        );
        if !refresh
            && let Ok(text) = fs::read_to_string(&path)
            && let Ok(known) = serde_json::from_str::<Resolved>(&text)
            && known.request == request
        {
            return Ok(known);
        }
        let archives = sources::archives()?;
        let indexes = Indexes::new(&self.fetcher, &archives, self.path("indexes"));
        let mut universe = Universe::default();
        let mut archive = String::new();
        for suite in recipe.suites {
            let mut known = self.indexes.borrow_mut();
            if !known.contains_key(*suite) {
                let found = indexes.index(suite, "main/binary-amd64/Packages")?;
                known.insert((*suite).to_owned(), found);
            }
            let (text, root) = &known[*suite];
            universe.add(suite, text)?;
            archive.clone_from(root);
        }
        let packages = universe.resolve(&Request {
            names: recipe.packages,
            essential: recipe.essential,
            only_prefix: recipe.only_prefix,
        })?;
        let resolved = Resolved {
            request,
            archive,
            packages,
            tree: String::new(),
        };
        write_whole(&path, serde_json::to_string_pretty(&resolved)?.as_bytes())?;
        Ok(resolved)
    }

    fn fetch_all(&self, recipe: &Recipe, resolved: &Resolved) -> Result<Vec<PathBuf>> {
        let packages = &resolved.packages;
        let target = |package: &Package| self.path(&format!("debs/{}.deb", package.sha256));
        let missing: Vec<&Package> = packages
            .iter()
            .filter(|package| !target(package).is_file())
            .collect();
        let bar = bytes_bar(
            missing.iter().map(|p| p.size).sum(),
            &format!("packages for {}", recipe.name),
        );
        let targets: HashMap<&String, PathBuf> =
            missing.iter().map(|p| (&p.sha256, target(p))).collect();
        let fetcher = &self.fetcher;
        if !missing.is_empty() && bar.is_hidden() {
            eprintln!(
                "lab: downloading {} packages for {} ({} MiB)",
                missing.len(),
                recipe.name,
                bar.length().unwrap_or_default() >> 20
            );
        }
        let next = AtomicUsize::new(0);
        let failure: Mutex<Option<anyhow::Error>> = Mutex::new(None);
        let store = |error| *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        std::thread::scope(|scope| {
            for _ in 0..DOWNLOADS {
                scope.spawn(|| {
                    while let Some(package) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let uri = format!("{}/{}", resolved.archive, package.filename);
                        let wanted = Wanted {
                            size: Some(package.size),
                            sha256: Some(&package.sha256),
                        };
                        if let Err(error) =
                            fetcher.fetch(&uri, &targets[&package.sha256], wanted, &bar)
                        {
                            next.store(missing.len(), Ordering::Relaxed);
                            store(error);
                        }
                    }
                });
            }
        });
        bar.finish_and_clear();
        match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error.context(format!("packages for {}", recipe.name))),
            None => Ok(packages.iter().map(target).collect()),
        }
    }
}

/// What a directory holds; nothing if there is none.
fn entries(dir: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .map(|e| e.path())
        .collect();
    found.sort();
    found
}

/// Bytes of everything below a path.
pub fn size(path: &Path) -> u64 {
    match path.symlink_metadata() {
        Ok(meta) if meta.is_dir() => entries(path).iter().map(|path| size(path)).sum(),
        Ok(meta) => meta.len(),
        Err(_) => 0,
    }
}

/// Writes a file under a temporary name and renames it.
pub(crate) fn write_whole(path: &Path, content: &[u8]) -> Result<()> {
    let parent = path
        .parent()
        .ok_or_else(|| anyhow!("{} has no directory", path.display()))?;
    fs::create_dir_all(parent).map_err(|error| disk(error, parent))?;
    let scratch = path.with_extension("new");
    fs::write(&scratch, content).map_err(|error| disk(error, &scratch))?;
    fs::rename(&scratch, path).map_err(|error| disk(error, path))
}

fn remove_tree(dir: &Path) -> Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(disk(error, dir)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "x").unwrap();
    }

    #[test]
    fn pruning_keeps_what_recipes_use() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open_in(dir.path().to_owned(), false).unwrap();
        let resolved = r#"{"request": "", "archive": "", "tree": "sid-1", "packages": [
            {"name": "a", "version": "1", "suite": "sid", "filename": "f", "size": 1, "sha256": "aa"}]}"#;
        write_whole(&cache.path("resolved/sid.json"), resolved.as_bytes()).unwrap();
        write_whole(&cache.path("resolved/source-x-sid"), b"trees/source-x-1").unwrap();
        let keep = [
            "trees/sid-1/f",
            "trees/source-x-1/f",
            "debs/aa.deb",
            "debs/cc.x_1.orig.tar.xz",
            "indexes/i",
        ];
        let drop = [
            "trees/sid-0/f",
            "trees/sid-2.tmp/f",
            "debs/bb.deb",
            "debs/dd.deb.part",
            "initrds/i.cpio",
        ];
        keep.iter()
            .chain(&drop)
            .for_each(|path| touch(&cache.path(path)));
        assert_eq!(cache.prune().unwrap().len(), drop.len());
        assert!(keep.iter().all(|path| cache.path(path).exists()));
        assert!(!drop.iter().any(|path| cache.path(path).exists()));
    }

    #[test]
    fn nothing_is_pruned_under_a_running_guest() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open_in(dir.path().to_owned(), false).unwrap();
        touch(&cache.path("debs/bb.deb"));
        touch(&cache.path("runs/guest-1/in-use"));
        let guest = File::open(cache.path("runs/guest-1/in-use")).unwrap();
        guest.lock().unwrap();
        assert!(cache.prune().unwrap_err().to_string().contains("running"));
        drop(guest);
        assert_eq!(cache.prune().unwrap(), [cache.path("debs/bb.deb")]);
    }

    #[test]
    fn a_second_user_of_the_cache_waits() {
        let dir = tempfile::tempdir().unwrap();
        let first = Cache::open_in(dir.path().to_owned(), false).unwrap();
        let path = dir.path().to_owned();
        let second = std::thread::spawn(move || Cache::open_in(path, false).map(|_| ()));
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert!(!second.is_finished());
        drop(first);
        second.join().unwrap().unwrap();
    }
}
