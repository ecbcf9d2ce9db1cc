//! Linking our `libmlx5.so.1` from the archive that cargo builds.
//!
//! Programs look names up by version node, so the shared object needs the official one's nodes. rustc makes shared objects
//! with a version script of its own, without nodes, which linkers do not combine with another; so cargo builds an archive
//! and the C compiler links it.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The archive's file name (package `oxverbs-mlx5`).
pub const ARCHIVE: &str = "liboxverbs_mlx5.a";
/// What programs link.
pub const SONAME: &str = "libmlx5.so.1";
/// The names, from the repository.
pub const NAMES: &str = "ffi-shim/drop-in/names.tsv";

/// A name with its node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    /// As programs call it.
    pub name: String,
    /// Version node.
    pub node: String,
    /// First of rdma-core 44, 56 and 65 that has it.
    pub since: u32,
    /// Whether it is for programs linked long ago only.
    pub old: bool,
}

/// What `names.tsv` says.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// Nodes in their order, each with the one that it inherits from.
    pub nodes: Vec<(String, Option<String>)>,
    /// Names in the order of the file.
    pub names: Vec<Name>,
}

impl Names {
    /// Reads the table's text.
    pub fn parse(text: &str) -> Result<Self> {
        let mut names = Self::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let fields: Vec<_> = line.split('\t').collect();
            match (fields.as_slice(), names.nodes.last()) {
                (["", name, since, old @ ..], Some((node, _))) => names.names.push(Name {
                    name: (*name).to_owned(),
                    node: node.clone(),
                    since: since.parse().with_context(|| line.to_owned())?,
                    old: *old == ["old"],
                }),
                ([node, parent], _) => {
                    let parent = (*parent != "-").then(|| (*parent).to_owned());
                    names.nodes.push(((*node).to_owned(), parent));
                }
                _ => bail!("{line:?} is neither a node nor a name"),
            }
        }
        Ok(names)
    }

    /// Reads the table of a checkout.
    pub fn read(checkout: &Path) -> Result<Self> {
        let file = checkout.join(NAMES);
        Self::parse(&fs::read_to_string(&file).with_context(|| file.display().to_string())?)
    }

    /// For the linker.
    pub fn version_script(&self) -> String {
        let mut script = String::new();
        for (index, (node, parent)) in self.nodes.iter().enumerate() {
            let _ = writeln!(script, "{node} {{");
            let own: Vec<_> = self
                .names
                .iter()
                .filter(|name| name.node == *node)
                .collect();
            if !own.is_empty() {
                let _ = writeln!(script, "global:");
            }
            for name in own {
                let _ = writeln!(script, "    {};", name.name);
            }
            if index == 0 {
                let _ = writeln!(script, "local:\n    *;");
            }
            let parent = parent.as_deref().unwrap_or_default();
            let _ = writeln!(script, "}} {parent};");
        }
        script
    }
}

/// Links `archive` to the shared object `to`.
pub fn link(checkout: &Path, archive: &Path, to: &Path) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let script = scratch.path().join("libmlx5.map");
    fs::write(&script, Names::read(checkout)?.version_script())?;
    // So that it can be opened before anything else has loaded libibverbs, without needing one to link.
    let libibverbs = scratch.path().join("libibverbs.so");
    let empty = scratch.path().join("empty.c");
    fs::write(&empty, "")?;
    run(compiler()
        .args(["-shared", "-nostdlib", "-Wl,-soname,libibverbs.so.1", "-o"])
        .arg(&libibverbs)
        .arg(&empty))?;
    let mut cc = compiler();
    cc.args(["-shared", "-o"])
        .arg(to)
        .arg(format!("-Wl,-soname,{SONAME}"))
        .arg(format!("-Wl,--version-script={}", script.display()))
        .args([
            "-Wl,--gc-sections",
            "-Wl,-z,relro,-z,now",
            "-Wl,--no-undefined",
        ])
        .arg("-Wl,--whole-archive")
        .arg(archive)
        .args(["-Wl,--no-whole-archive", "-Wl,--no-as-needed"])
        .arg(&libibverbs)
        .args([
            "-Wl,--as-needed",
            "-lgcc_s",
            "-lutil",
            "-lrt",
            "-lpthread",
            "-lm",
            "-ldl",
        ]);
    run(&mut cc).with_context(|| format!("linking {}", to.display()))
}

fn compiler() -> Command {
    Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()))
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output().context("running the C compiler")?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}
