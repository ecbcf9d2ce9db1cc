//! `cargo xtask suite`: the device-independent suite on the fake kernel's ConnectX.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use clap::Args;

use crate::test::run::cargo;

/// Run the suite of verbs behaviour (hw-tests) on a ConnectX that the fake kernel plays, through Debian's libibverbs: once
/// with Debian's libmlx5, once with our plug-in.
///
/// Fails where ours fails a case that libmlx5 passes. What both fail is about the played device, or about what libmlx5 has
/// taught programs to expect. Needs no RDMA hardware, no kernel support and no root.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Only cases whose names match this regular expression.
    #[arg(long)]
    filter: Option<String>,
    /// Write what each case came to under both providers to this file.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// Numbers of libibverbs' provider interface, in the names of plug-ins.
const INTERFACES: [u32; 5] = [34, 57, 59, 64, 65];

/// What a case came to: "passed", "failed" or "skipped".
type Outcomes = BTreeMap<String, String>;

/// Programs and libraries, built.
struct Built {
    folder: PathBuf,
    home: tempfile::TempDir,
}

pub(crate) fn run(arguments: &Arguments) -> Result<u8> {
    if !has_libmlx5() {
        println!("skipped suite: Debian's libibverbs and its mlx5 provider are not installed");
        println!("suite mlx5: 0 passed, 0 failed, 1 skipped");
        return Ok(0);
    }
    let built = build()?;
    let filter = arguments.filter.as_deref();
    let (official, ours) = std::thread::scope(|scope| {
        let official = scope.spawn(|| built.outcomes(false, filter));
        let ours = built.outcomes(true, filter);
        (official.join().expect("no panic"), ours)
    });
    let (official, mut ours) = (official?, ours?);
    // On a busy machine a case may run out of time: what seems worse is looked at once more, alone.
    let worse = regressions(&official, &ours);
    if !worse.is_empty() {
        let names: Vec<_> = worse.iter().map(|name| regex::escape(name)).collect();
        let again = built.outcomes(true, Some(&format!("^({})$", names.join("|"))))?;
        ours.extend(again);
    }
    let worse = regressions(&official, &ours);
    for (name, outcome) in &ours {
        let official = official.get(name).map_or("absent", String::as_str);
        if outcome != "passed" || official != "passed" {
            println!("{name}: libmlx5 {official}, ours {outcome}");
        }
    }
    if let Some(path) = &arguments.json {
        let both = serde_json::json!({ "official": official, "ours": ours });
        serde_json::to_writer_pretty(File::create(path)?, &both)?;
    }
    let passed = |outcomes: &Outcomes| outcomes.values().filter(|o| *o == "passed").count();
    println!(
        "suite mlx5: official {} passed, ours {} passed, {} regressions",
        passed(&official),
        passed(&ours),
        worse.len()
    );
    Ok(u8::from(!worse.is_empty() || passed(&ours) == 0))
}

/// Cases that libmlx5 passes and ours does not.
fn regressions<'a>(official: &'a Outcomes, ours: &Outcomes) -> Vec<&'a str> {
    official
        .iter()
        .filter(|(name, outcome)| {
            *outcome == "passed" && ours.get(*name).is_none_or(|ours| ours != "passed")
        })
        .map(|(name, _)| name.as_str())
        .collect()
}

fn has_libmlx5() -> bool {
    ["x86_64-linux-gnu", "aarch64-linux-gnu"]
        .iter()
        .filter_map(|triple| fs::read_dir(format!("/usr/lib/{triple}/libibverbs")).ok())
        .flatten()
        .flatten()
        .any(|entry| {
            entry
                .file_name()
                .to_string_lossy()
                .starts_with("libmlx5-rdmav")
        })
}

fn build() -> Result<Built> {
    let packages = ["hw-tests", "fake-kernel-preload", "oxverbs-ffi"];
    let mut command = cargo();
    command.arg("build").arg("--quiet");
    for package in packages {
        command.args(["--package", package]);
    }
    if !command.status().context("cargo")?.success() {
        bail!("building {} failed", packages.join(", "));
    }
    let program = std::env::current_exe()?;
    let folder = program.parent().context("a folder")?.to_owned();
    let home = tempfile::tempdir()?;
    for interface in INTERFACES {
        let name = home.path().join(format!("liboxverbs-rdmav{interface}.so"));
        symlink(folder.join("liboxverbs_ffi.so"), name)?;
    }
    Ok(Built { folder, home })
}

impl Built {
    /// Runs the suite with one provider.
    fn outcomes(&self, ours: bool, filter: Option<&str>) -> Result<Outcomes> {
        let name = if ours { "ours" } else { "official" };
        let results = self.home.path().join(format!("{name}.json"));
        let mut command = Command::new(self.folder.join("hw-tests"));
        command
            .args(["--device", "mlx5_0", "--gid-index", "1"])
            .args(["--provider", "libibverbs", "--seed", "1", "--slow", "3"])
            .arg("--json")
            .arg(&results)
            .env("LD_PRELOAD", self.folder.join("libfake_kernel_preload.so"))
            .env("OXVERBS_FAKE", "mlx5,run")
            .env_remove("SYSFS_PATH")
            .stdout(File::create(self.home.path().join(format!("{name}.log")))?);
        if let Some(filter) = filter {
            command.args(["--filter", filter]);
        }
        for variable in ["IBV_DRIVERS", "RDMAV_DRIVERS"] {
            if ours {
                command.env(variable, self.home.path().join("liboxverbs"));
            } else {
                command.env_remove(variable);
            }
        }
        if ours {
            command.env("OXVERBS_DEVICES", "mlx5_0");
        }
        let status = command.status().with_context(|| format!("{command:?}"))?;
        read(&results).with_context(|| format!("the suite with {name} ended with {status}"))
    }
}

fn read(results: &Path) -> Result<Outcomes> {
    let results: serde_json::Value = serde_json::from_reader(File::open(results)?)?;
    let cases = results["cases"].as_array().context("no cases")?;
    cases
        .iter()
        .map(|case| {
            let text = |field: &str| case[field].as_str().map(str::to_owned);
            let name = text("name").context("a case without a name")?;
            Ok((name, text("outcome").context("a case without an outcome")?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_a_regression() {
        let of = |list: &[(&str, &str)]| {
            list.iter()
                .map(|(name, outcome)| ((*name).to_owned(), (*outcome).to_owned()))
                .collect::<Outcomes>()
        };
        let official = of(&[
            ("a", "passed"),
            ("b", "failed"),
            ("c", "passed"),
            ("d", "passed"),
        ]);
        let ours = of(&[("a", "passed"), ("b", "passed"), ("c", "failed")]);
        assert_eq!(regressions(&official, &ours), ["c", "d"]);
    }
}
