//! `cargo xtask drop-in`: our `libmlx5.so.1` beside Debian's: its names, what it answers, what it asks of the kernel.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use lab::cache::Cache;
use lab::drop_in::{self, Names};
use lab::{Userland, witness};
use serde_json::Value;

use crate::cargo;

mod refusal;

/// Compare our libmlx5.so.1 with Debian's of bookworm, trixie and sid.
///
/// The exported names with their version nodes have to be those of the table in ffi-shim/drop-in, for each release and for
/// ours. Then C programs call mlx5dv on the fake kernel, with trixie's or sid's library and with ours, and both have to answer
/// the same, and to send the same commands to the firmware. Under a libibverbs that ours does not know it has to say so in one line, and a program has to go on with
/// Debian's provider. The table of the documentation (docs/mlx5dv.md) has to be what this word would write.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Write docs/mlx5dv.md instead of comparing it.
    #[arg(long)]
    write: bool,
    /// Write the shared object here too.
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
}

/// Where the documentation's table is.
const DOCUMENT: &str = "docs/mlx5dv.md";
/// Names that answer `EOPNOTSUPP`, in the sources.
const UNSUPPORTED: &str = "ffi-shim/src/mlx5/dv/unsupported.rs";
/// What of mlx5dv programs of Debian import.
const USERS: &str = "ffi-shim/drop-in/users.tsv";
/// Of those, names that answer so in libmlx5 too on a device of the kernel's.
const VFIO: [&str; 4] = [
    "mlx5dv_devx_alloc_msi_vector",
    "mlx5dv_devx_create_eq",
    "mlx5dv_devx_destroy_eq",
    "mlx5dv_devx_free_msi_vector",
];
/// A C program that asks a library, and what the fake kernel is like then.
struct Program {
    source: &'static str,
    /// Debian's release whose libmlx5 answers too.
    release: Userland,
    settings: &'static [&'static str],
    /// Lines that it prints at least, where the device has what it asks for.
    least: usize,
}

const PROGRAMS: [Program; 4] = [
    // Everything.
    Program {
        source: include_str!("drop_in.c"),
        release: Userland::Trixie,
        settings: &[
            "mlx5",
            "mlx5,link=eth",
            "mlx5,no-devx",
            "mlx5,no-bf",
            "mlx5,cqe-version=0",
            "mlx5,no-clock",
            "mlx5,numbers",
            "mlx5,copy,link=ib",
            "mlx5,copy,traffic",
            "mlx5,traffic,link=ib",
            "mlx5,traffic",
            "mlx5,traffic,link=ib,refuse=6",
        ],
        least: 800,
    },
    // Keys with signatures.
    Program {
        source: include_str!("drop_in/signatures.c"),
        release: Userland::Trixie,
        settings: &[
            "mlx5,signatures",
            "mlx5,signatures,link=ib,cqe-version=0",
            "mlx5,signatures,no-bf",
        ],
        least: 10_000,
    },
    // The same where there are none, and where the firmware makes none.
    Program {
        source: include_str!("drop_in/signatures.c"),
        release: Userland::Trixie,
        settings: &["mlx5", "mlx5,signatures,refuse=6"],
        least: 20,
    },
    // Objects in other processes.
    Program {
        source: include_str!("drop_in/exports.c"),
        release: Userland::Sid,
        settings: &["mlx5", "mlx5,no-devx"],
        least: 20,
    },
];

/// Builds the shared object.
pub(crate) fn build(to: &Path) -> Result<()> {
    let archive = cargo::release("oxverbs-mlx5", drop_in::ARCHIVE)?;
    drop_in::link(&cargo::root(), &archive, to)
}

/// `name@node` or `name@@node` of what a shared object exports.
fn exported(file: &Path) -> Result<BTreeSet<String>> {
    let text = output(
        Command::new("nm")
            .args(["-D", "--defined-only", "--with-symbol-versions"])
            .arg(file),
    )?;
    let names = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (kind, name) = (words.next()?, words.next()?);
        (kind != "A").then(|| name.to_owned())
    });
    Ok(names.collect())
}

fn expected(names: &Names, release: u32) -> BTreeSet<String> {
    let names = names.names.iter().filter(|name| name.since <= release);
    names
        .map(|name| {
            let at = if name.old { "@" } else { "@@" };
            format!("{}{at}{}", name.name, name.node)
        })
        .collect()
}

fn output(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("running {command:?}"))?;
    if !output.status.success() {
        bail!(
            "{command:?}: {}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Says what is different, and whether nothing is.
fn same(what: &str, official: &BTreeSet<String>, ours: &BTreeSet<String>) -> bool {
    for (missing, set) in [
        ("lacks", official - ours),
        ("has too much", ours - official),
    ] {
        for name in set {
            println!("{what} {missing}: {name}");
        }
    }
    official == ours
}

/// The libraries of a release's tree.
fn libraries(tree: &Path) -> PathBuf {
    tree.join("usr/lib/x86_64-linux-gnu")
}

pub(crate) fn run(arguments: &Arguments) -> Result<u8> {
    let names = Names::read(&cargo::root())?;
    let text = document(&names)?;
    let file = cargo::root().join(DOCUMENT);
    if arguments.write {
        fs::write(&file, text)?;
        return Ok(0);
    }
    let scratch = tempfile::tempdir()?;
    let ours = scratch.path().join(drop_in::SONAME);
    build(&ours)?;
    if let Some(to) = &arguments.to {
        fs::copy(&ours, to).with_context(|| to.display().to_string())?;
    }
    let mut good = same(
        "libmlx5.so.1 of ours",
        &expected(&names, 65),
        &exported(&ours)?,
    );
    let cache = Cache::open(false)?;
    for (release, number) in [
        (Userland::Bookworm, 44),
        (Userland::Trixie, 56),
        (Userland::Sid, 65),
    ] {
        let tree = witness::userland(&cache, release)?;
        let official = exported(&libraries(&tree).join(drop_in::SONAME))?;
        let table = expected(&names, number);
        println!("rdma-core {number}: {} names", official.len());
        good &= same(
            &format!("the table for rdma-core {number}"),
            &official,
            &table,
        );
    }
    let debian = |release| -> Result<(PathBuf, PathBuf)> {
        Ok((
            witness::verbs_headers(&cache, release)?,
            libraries(&witness::userland(&cache, release)?),
        ))
    };
    let (headers, tree) = debian(Userland::Trixie)?;
    let asked = PROGRAMS.map(|program| Ok((debian(program.release)?, program)));
    let asked: Vec<_> = asked.into_iter().collect::<Result<_>>()?;
    // Others may want it while programs are built and run.
    drop(cache);
    let fake = cargo::release("fake-kernel-preload", "libfake_kernel_preload.so")?;
    for ((headers, tree), program) in &asked {
        good &= answers(program, headers, tree, scratch.path(), &fake)?;
    }
    good &= refusal::check(&mut compiler(&headers), &tree, scratch.path(), &fake)?;
    if fs::read_to_string(&file).unwrap_or_default() != text {
        println!("{DOCUMENT} is not what the sources say: cargo xtask drop-in --write");
        good = false;
    }
    Ok(u8::from(!good))
}

fn compiler(headers: &Path) -> Command {
    let mut compiler = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    // The tree's libraries want a newer libc than the host's may be; its own loader runs the program.
    compiler.arg("-w").arg("-I").arg(headers).args([
        "-Wl,--allow-shlib-undefined",
        "-Wl,--unresolved-symbols=ignore-in-shared-libs",
    ]);
    compiler
}

/// A program under the official library of `tree` and under ours, which `scratch` has.
fn answers(
    asked: &Program,
    headers: &Path,
    tree: &Path,
    scratch: &Path,
    fake: &Path,
) -> Result<bool> {
    let (source, program) = (scratch.join("program.c"), scratch.join("program"));
    fs::write(&source, asked.source)?;
    output(
        compiler(headers)
            .arg("-o")
            .arg(&program)
            .arg(&source)
            .arg(tree.join("libibverbs.so.1"))
            .arg(tree.join(drop_in::SONAME)),
    )?;
    let mut good = true;
    for settings in asked.settings {
        let record = scratch.join("record");
        let run = |path: String| -> Result<(String, Vec<String>)> {
            let _ = fs::remove_file(&record);
            let text = output(
                Command::new(tree.join("ld-linux-x86-64.so.2"))
                    .arg("--library-path")
                    .arg(path)
                    .arg("--preload")
                    .arg(fake)
                    .arg(&program)
                    .env("OXVERBS_FAKE", settings)
                    .env("OXVERBS_FAKE_RECORD", &record),
            )?;
            Ok((text, firmware_commands(&fs::read_to_string(&record)?)))
        };
        let (official, official_asked) = run(tree.display().to_string())?;
        let (ours, ours_asked) = run(format!("{}:{}", scratch.display(), tree.display()))?;
        let lines = official.lines().count();
        let commands = official_asked.len();
        println!("{settings}: {lines} answers, {commands} commands to the firmware");
        if official_asked != ours_asked {
            println!("    official asks: {official_asked:#?}\n    ours asks:     {ours_asked:#?}");
            good = false;
        }
        for (official, ours) in official.lines().zip(ours.lines()) {
            if official != ours {
                println!("    official: {official}\n    ours:     {ours}");
            }
        }
        good &= official == ours && lines > asked.least;
    }
    Ok(good)
}

/// What the firmware was asked, but for what it can do, of a record of the fake kernel (a line of JSON each call). Zeros
/// at a command's end say nothing: libmlx5 adds an extension that it does not use. Nor does destroying what is left before
/// the device is closed, which takes it along.
fn firmware_commands(record: &str) -> Vec<String> {
    let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let mut commands: Vec<_> = record
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter_map(|call| {
            let method = text(&call, "method");
            let kind = method.strip_prefix("MLX5_IB_METHOD_DEVX_")?;
            let kind = kind.strip_prefix("OBJ_").unwrap_or(kind);
            let attrs = call["attrs"].as_array()?;
            let input = attrs
                .iter()
                .find(|attr| text(attr, "name").ends_with("_CMD_IN"))
                .map(|input| text(input, "data"));
            if kind != "DESTROY" && input.is_none() {
                return None;
            }
            let bytes = input.unwrap_or_default();
            // QUERY_HCA_CAP: each library asks what it wants to know when it wants to know it.
            let asks = kind == "OTHER" && bytes.starts_with("0100");
            (!asks).then(|| format!("{kind} {}", bytes.trim_end_matches('0')))
        })
        .collect();
    while commands
        .last()
        .is_some_and(|last| last.starts_with("DESTROY"))
    {
        commands.pop();
    }
    commands
}

/// The documentation's table.
fn document(names: &Names) -> Result<String> {
    let root = cargo::root();
    let read = |path| fs::read_to_string(root.join(path)).with_context(|| String::from(path));
    let sources = read(UNSUPPORTED)?;
    let refused: BTreeSet<_> = sources.lines().map(str::trim).collect();
    let users = read(USERS)?;
    let mut text = String::from(HEAD);
    let mut done = 0;
    let mut sorted: Vec<_> = names.names.iter().filter(|name| !name.old).collect();
    sorted.sort();
    for name in &sorted {
        let users: Vec<_> = users
            .lines()
            .filter_map(|line| line.split_once('\t'))
            .filter(|(_, used)| *used == name.name)
            .map(|(user, _)| user)
            .collect();
        let answer = if VFIO.contains(&name.name.as_str()) {
            "as libmlx5 where it has no VFIO: `EOPNOTSUPP`"
        } else if refused.contains(name.name.as_str()) {
            "`EOPNOTSUPP`"
        } else {
            done += 1;
            "implemented"
        };
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {answer} | {} |",
            name.name,
            name.node,
            name.since,
            users.join(", ")
        );
    }
    let _ = write!(
        text,
        "\n{done} of {} names are implemented.\n",
        sorted.len()
    );
    Ok(text)
}

const HEAD: &str = "\
# mlx5dv: what our libmlx5.so.1 answers

Written by `cargo xtask drop-in --write` from `ffi-shim/drop-in/names.tsv` and the sources; `cargo xtask drop-in` fails
if it is not true.

Our shared object has every name and version node of rdma-core 44, 56 and 65, so that every program that links Debian's
loads with it. What is not implemented answers `EOPNOTSUPP` (or a null pointer with that errno): software steering (`dr_*`),
cryptography, the official entry points of VFIO among it. Programs are those of Debian that import the name.

Keys with signatures (`MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE`, `mlx5dv_wr_set_mkey_sig_block`, `mlx5dv_mkey_check`):
the software ConnectX makes and checks them, under Debian's libmlx5 and under ours (rdma-core's `test_mlx5_mkey`); how a card
writes CRCs is unproven. `cargo xtask drop-in` compares every rule's work requests, the firmware's commands, and what
is made of errors in the completion queue with Debian's libmlx5.

| name | node | since | answer | programs |
|---|---|---|---|---|
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_is_what_the_sources_say() {
        let names = Names::read(&cargo::root()).unwrap();
        let written = fs::read_to_string(cargo::root().join(DOCUMENT)).unwrap();
        let true_one = document(&names).unwrap();
        assert!(
            written == true_one,
            "{DOCUMENT}: cargo xtask drop-in --write"
        );
    }

    #[test]
    fn every_release_has_as_many_names_as_debians() {
        let names = Names::read(&cargo::root()).unwrap();
        // Those of Debian's shared objects, with the old version of one.
        for (release, count) in [(44, 128 + 1), (56, 130 + 1), (65, 142 + 1)] {
            assert_eq!(expected(&names, release).len(), count, "{release}");
        }
        assert_eq!(names.nodes.len(), 29);
    }
}
