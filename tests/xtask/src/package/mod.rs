//! `cargo xtask package`: Debian packages of the providers.
//!
//! Two, since a machine may want one without the other: `oxverbs-provider` takes rxe's place in libibverbs,
//! `oxverbs-libmlx5` that of mlx5's and of `libmlx5.so.1`. They use the same mechanisms as `cargo xtask install --system`:
//! diversions of dpkg and a directory before the others in the loader's.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::Args;
use object::Endianness;
use object::read::elf::{ElfFile64, FileHeader as _};

use crate::cargo;
use crate::drop_in;
use crate::install::SUFFIX;
use crate::install::layout::{LOADER_CONF, NUMBERS, OBJECT, triplet};
use deb::{Content, Deb};

mod deb;
#[cfg(test)]
mod tests;

/// Build Debian packages of the provider and of libmlx5.so.1.
///
/// oxverbs-provider takes the place of rdma-core's provider for rxe devices, oxverbs-libmlx5 that of its libmlx5.so.1 and of
/// its provider for mlx5 devices. rdma-core's files stay, under other names, and come back when a package is removed.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Where the packages are written.
    #[arg(long, value_name = "DIR", default_value = "target/package")]
    out: PathBuf,
    /// Package this plug-in instead of building one.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Package this libmlx5.so.1 instead of building one.
    #[arg(long, value_name = "FILE")]
    mlx5_file: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<u8> {
    let scratch = tempfile::tempdir()?;
    let object = match &arguments.file {
        Some(file) => file.clone(),
        None => crate::install::build()?,
    };
    let libmlx5 = match &arguments.mlx5_file {
        Some(file) => file.clone(),
        None => {
            let file = scratch.path().join(lab::drop_in::SONAME);
            drop_in::build(&file)?;
            file
        }
    };
    let out = std::path::absolute(&arguments.out)?;
    fs::create_dir_all(&out).with_context(|| out.display().to_string())?;
    let time = time();
    for package in [provider(&object, time)?, libmlx5_package(&libmlx5, time)?] {
        println!("{}", package.write(&out)?.display());
    }
    Ok(0)
}

/// What files of a package say, so that the same commit makes the same package: `SOURCE_DATE_EPOCH`, else the commit's time.
fn time() -> u64 {
    let of_commit = || {
        let output = std::process::Command::new("git")
            .args(["log", "-1", "--format=%ct"])
            .current_dir(cargo::root())
            .output()
            .ok()?;
        String::from_utf8(output.stdout).ok()
    };
    std::env::var("SOURCE_DATE_EPOCH")
        .ok()
        .or_else(of_commit)
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0)
}

/// Debian's name of the architecture that we were built for, of packages.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// The newest glibc whose symbols a shared object wants.
fn libc_of(bytes: &[u8]) -> Result<String> {
    let elf = ElfFile64::<Endianness>::parse(bytes)?;
    let endian = elf.endian();
    let sections = elf.elf_header().sections(endian, bytes)?;
    let mut newest = vec![2, 17];
    if let Some((mut needs, link)) = sections.gnu_verneed(endian, bytes)? {
        let strings = sections.strings(endian, bytes, link)?;
        while let Some((_, mut versions)) = needs.next()? {
            while let Some(version) = versions.next()? {
                let name = version.name(endian, strings)?;
                let name = String::from_utf8_lossy(name);
                let numbers = name.strip_prefix("GLIBC_").map(|numbers| {
                    numbers
                        .split('.')
                        .filter_map(|number| number.parse().ok())
                        .collect::<Vec<u32>>()
                });
                newest = newest.max(numbers.unwrap_or_default());
            }
        }
    }
    let numbers: Vec<_> = newest.iter().map(u32::to_string).collect();
    Ok(numbers.join("."))
}

const COPYRIGHT: &str = "\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: oxverbs

Files: *
Copyright: The oxverbs developers
License: MIT or Apache-2.0
";

/// What both packages have in common.
fn package(name: &'static str, file: &Path, time: u64) -> Result<(Deb, Vec<u8>)> {
    let bytes = fs::read(file).with_context(|| file.display().to_string())?;
    let libc = libc_of(&bytes).with_context(|| file.display().to_string())?;
    let package = Deb {
        name,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        architecture: architecture(),
        depends: format!("libc6 (>= {libc}), libgcc-s1, libibverbs1 (>= 34)"),
        description: ("", ""),
        files: vec![(
            format!("usr/share/doc/{name}/copyright"),
            Content::Bytes(COPYRIGHT.into()),
        )],
        control: Vec::new(),
        time,
    };
    Ok((package, bytes))
}

/// Adds links in libibverbs' directory, for each of its private ABIs, and the scripts that divert the official files.
fn take_places(package: &mut Deb, family: &str, target: &str) {
    let triplet = triplet();
    let name = package.name;
    let mut divert = String::from("#!/bin/sh\nset -e\n");
    divert.push_str("case \"$1\" in install|upgrade) ;; *) exit 0 ;; esac\n");
    let mut undivert = String::from("#!/bin/sh\nset -e\n");
    undivert.push_str("case \"$1\" in remove|abort-install|disappear) ;; *) exit 0 ;; esac\n");
    for number in NUMBERS {
        let file = format!("usr/lib/{triplet}/libibverbs/lib{family}-rdmav{number}.so");
        let both = format!("--package {name} --rename --divert /{file}{SUFFIX}");
        divert.push_str(&format!("dpkg-divert {both} --add /{file}\n"));
        undivert.push_str(&format!("dpkg-divert {both} --remove /{file}\n"));
        package.files.push((file, Content::Link(target.to_owned())));
    }
    package.control.push(("preinst", divert, true));
    package.control.push(("postrm", undivert, true));
}

fn provider(object: &Path, time: u64) -> Result<Deb> {
    let (mut package, bytes) = package("oxverbs-provider", object, time)?;
    let triplet = triplet();
    package.description = (
        "RDMA verbs in Rust: provider of libibverbs for soft-RoCE",
        "\
Takes the place of rdma-core's provider for rxe devices, which stays installed
beside it and comes back when this package is removed. Works with libibverbs
of rdma-core 34 to 65 and refuses others.",
    );
    package.files.push((
        format!("usr/lib/{triplet}/oxverbs/{OBJECT}"),
        Content::Bytes(bytes),
    ));
    take_places(&mut package, "rxe", &format!("../oxverbs/{OBJECT}"));
    Ok(package)
}

fn libmlx5_package(libmlx5: &Path, time: u64) -> Result<Deb> {
    let (mut package, bytes) = package("oxverbs-libmlx5", libmlx5, time)?;
    let triplet = triplet();
    package.description = (
        "RDMA verbs in Rust: libmlx5.so.1 and provider for NVIDIA ConnectX",
        "\
Takes the place of rdma-core's libmlx5.so.1, for programs that link it, and of
its provider for mlx5 devices, for those that link libibverbs alone. Both stay
installed and come back when this package is removed.

Of mlx5dv's names some answer EOPNOTSUPP, software steering among them.",
    );
    let dir = format!("usr/lib/{triplet}/oxverbs/mlx5");
    package.files.push((
        format!("{dir}/{}", lab::drop_in::SONAME),
        Content::Bytes(bytes),
    ));
    let conf = format!("# before the other directories: our libmlx5.so.1\n/{dir}\n");
    package
        .files
        .push((LOADER_CONF.to_owned(), Content::Bytes(conf.into())));
    package
        .control
        .push(("conffiles", format!("/{LOADER_CONF}\n"), false));
    package
        .control
        .push(("triggers", "activate-noawait ldconfig\n".to_owned(), false));
    let target = format!("../oxverbs/mlx5/{}", lab::drop_in::SONAME);
    take_places(&mut package, "mlx5", &target);
    Ok(package)
}
