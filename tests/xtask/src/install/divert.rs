//! `--system`: our files in the places of the official ones, for every program and over upgrades.
//!
//! Two mechanisms of the system, neither of which touches a package's file for good:
//! - libibverbs opens a fixed name, `libibverbs/librxe-rdmavNN.so`. dpkg keeps a *diversion* of such a name: the package's
//!   file stands under another name, also after upgrades, and ours has the place (`dpkg-divert(1)`). Names of releases that
//!   are not installed are diverted too, since an upgrade may bring them.
//! - Programs look for `libmlx5.so.1` through the loader's cache. A diversion would not last: `ldconfig` makes that link
//!   anew from whatever file has the name inside. A directory of ours before Debian's in `/etc/ld.so.conf.d` does
//!   (`ldconfig(8)`; the first directory with a name wins).

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::files;
use super::layout::{LOADER_CONF, Layout, MARK, NUMBERS, provider_dir};

/// What the package's file is called meanwhile.
pub(crate) const SUFFIX: &str = ".official";

/// A name of an official plug-in, and what of ours stands there.
struct Place {
    /// Path in the installed system.
    name: PathBuf,
    ours: PathBuf,
}

fn places(layout: &Layout, mlx5: bool) -> Vec<Place> {
    let dir = provider_dir(&layout.root);
    let mut families = vec![("rxe", &layout.object)];
    if mlx5 {
        // The drop-in and not the plug-in, so that a program that opens libmlx5.so.1 later finds the library that has its devices.
        families.push(("mlx5", &layout.drop_in));
    }
    let of_family = |(family, ours): (&str, &PathBuf)| {
        NUMBERS.map(|number| Place {
            name: dir.join(format!("lib{family}-rdmav{number}.so")),
            ours: ours.clone(),
        })
    };
    families.into_iter().flat_map(of_family).collect()
}

/// `dpkg-divert`, in the tree.
fn dpkg_divert(layout: &Layout, arguments: &[&str], name: &Path) -> Result<String> {
    let mut command = Command::new("dpkg-divert");
    if layout.root != Path::new("/") {
        command.arg("--root").arg(&layout.root);
    }
    let output = command
        .args(arguments)
        .arg(name)
        .output()
        .context("dpkg-divert, which --system needs (without it, use the IBV_DRIVERS line)")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        bail!("dpkg-divert of {}: {}", name.display(), said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Diverts the official plug-ins and sets ours there; with `mlx5` the loader finds our `libmlx5.so.1` first, too.
pub(super) fn divert(layout: &Layout, mlx5: bool) -> Result<()> {
    for Place { name, ours } in places(layout, mlx5) {
        let at = layout.at(&name);
        if files::leads_to(&at, &ours).unwrap_or(false) {
            continue;
        }
        files::make_parent(&at)?;
        let divert = format!("{}{SUFFIX}", name.display());
        let arguments = ["--local", "--rename", "--divert", &divert, "--add"];
        dpkg_divert(layout, &arguments, &name)?;
        if let Err(error) = files::link(&at, &ours) {
            // A name with no file would leave its devices without any provider.
            dpkg_divert(layout, &["--local", "--rename", "--remove"], &name)?;
            return Err(error);
        }
    }
    if mlx5 {
        let text = format!("{MARK}\n{}\n", layout.drop_in_dir().display());
        files::write_anew(&layout.root.join(LOADER_CONF), text.as_bytes())?;
        ldconfig(&layout.root)?;
    }
    Ok(())
}

/// Whether the loader was told of our `libmlx5.so.1`.
pub(super) fn loader_knows(layout: &Layout) -> bool {
    let conf = layout.root.join(LOADER_CONF);
    let dir = layout.drop_in_dir().display().to_string();
    std::fs::read_to_string(conf).is_ok_and(|text| text.lines().any(|line| line == dir))
}

/// Gives the official files their places back. Says each, and how many there were.
pub(super) fn undivert(layout: &Layout) -> Result<u32> {
    let mut removed = 0;
    for Place { name, ours } in places(layout, true) {
        let at = layout.at(&name);
        if !files::leads_to(&at, &ours).unwrap_or(false) {
            continue;
        }
        files::remove(&at)?;
        dpkg_divert(layout, &["--local", "--rename", "--remove"], &name)?;
        println!("gave back {}", name.display());
        removed += 1;
    }
    let conf = layout.root.join(LOADER_CONF);
    if std::fs::read_to_string(&conf).is_ok_and(|text| text.starts_with(MARK)) {
        files::remove(&conf)?;
        println!("removed {}", conf.display());
        ldconfig(&layout.root)?;
        removed += 1;
    }
    Ok(removed)
}

/// Makes the loader's cache anew.
fn ldconfig(root: &Path) -> Result<()> {
    let mut command = Command::new("ldconfig");
    if root != Path::new("/") {
        command.arg("-r").arg(root);
    }
    let output = command.output();
    let output = match output {
        // Ordinary users have no sbin in their PATH.
        Err(_) => {
            let mut again = Command::new("/sbin/ldconfig");
            again.args(command.get_args()).output()
        }
        output => output,
    }
    .context("ldconfig")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        bail!("ldconfig: {}", said.trim());
    }
    Ok(())
}
