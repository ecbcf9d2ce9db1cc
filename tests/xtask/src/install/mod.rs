//! `cargo xtask install`: the plug-in where libibverbs looks for providers, and our `libmlx5.so.1` where programs do.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::Args;

use crate::{cargo, drop_in};
use layout::{Layout, MARK, OBJECT};

mod check;
mod divert;
mod files;
pub(crate) mod layout;
#[cfg(test)]
mod tests;

pub(crate) use divert::SUFFIX;

/// What the file says that claims mlx5 devices, and `--mlx5` prints.
const MLX5_TEXT: &str = "\
mlx5 devices are claimed too, since it was asked for. It is not done by default because of programs that use mlx5dv, the
interface of libmlx5.so.1 (perftest, UCX, pyverbs' mlx5 part, NCCL since 2.27, DPDK): such a program loads the official
libmlx5, which registers itself as soon as it is loaded and so gets the devices before libibverbs reads its
configuration; and the official one refuses devices that another provider opened. Such a program gets ours if it finds
our libmlx5.so.1 first: with --system all do, otherwise those with the directory in LD_LIBRARY_PATH, the others keep
working on the official provider. docs/mlx5dv.md says what of mlx5dv ours answers.
";

/// Install the providers for libibverbs, or show how to try them without installing.
///
/// The plug-in goes to PREFIX/lib/oxverbs, with one link per private ABI of rdma-core 34 to 65, and a `.driver` file to
/// PREFIX/etc/libibverbs.d (for the prefix /usr: /etc/libibverbs.d), which libibverbs reads if it was built for that prefix.
/// In any other case the printed IBV_DRIVERS line does the same for one program. With --system no program needs such a line.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Where to install.
    #[arg(long, default_value = "/usr/local")]
    prefix: PathBuf,

    /// Remove what an earlier install with the same prefix wrote, and give diverted files their places back.
    #[arg(long, conflicts_with = "check")]
    uninstall: bool,

    /// Claim mlx5 devices too, not only rxe's, and install libmlx5.so.1 for programs that use mlx5dv (UCX, perftest).
    ///
    /// Without it, OXVERBS_DEVICES=mlx5_0 asks for one in one program that links libibverbs alone.
    #[arg(long)]
    mlx5: bool,

    /// Take the places of the official files, so that every program gets ours: dpkg-divert for libibverbs' plug-ins, and
    /// with --mlx5 a directory before the others in /etc/ld.so.conf.d. Stays over upgrades of rdma-core; --uninstall undoes it.
    #[arg(long)]
    system: bool,

    /// Say which libraries and which provider each RDMA program of this machine gets, and change nothing.
    ///
    /// Exit status 1 if a program would mix ours with the official libmlx5.
    #[arg(long)]
    check: bool,

    /// Only these programs, with --check.
    #[arg(requires = "check", value_name = "PROGRAM")]
    programs: Vec<PathBuf>,

    /// Work on the tree at DIR (an image, a chroot) instead of this machine.
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,

    /// Install this plug-in instead of building one.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// Install this libmlx5.so.1 instead of building one.
    #[arg(long, value_name = "FILE", requires = "mlx5")]
    mlx5_file: Option<PathBuf>,

    /// Write what --check found to this file.
    #[arg(long, value_name = "FILE", requires = "check")]
    json: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<u8> {
    let root = std::path::absolute(&arguments.root)?;
    if arguments.check {
        return check::run(&root, &arguments.programs, arguments.json.as_deref());
    }
    let prefix = std::path::absolute(&arguments.prefix)?;
    let layout = Layout::new(&root, &prefix);
    if arguments.uninstall {
        uninstall(&layout)?;
        return Ok(0);
    }
    let scratch = tempfile::tempdir()?;
    let object = match &arguments.file {
        Some(file) => file.clone(),
        None => build()?,
    };
    let drop_in = match &arguments.mlx5_file {
        _ if !arguments.mlx5 => None,
        Some(file) => Some(file.clone()),
        None => {
            let file = scratch.path().join(lab::drop_in::SONAME);
            drop_in::build(&file)?;
            Some(file)
        }
    };
    install(&layout, &object, drop_in.as_deref())?;
    if arguments.system {
        divert::divert(&layout, arguments.mlx5)?;
    }
    tell(&layout, arguments);
    Ok(0)
}

/// What was installed, and how to use it.
fn tell(layout: &Layout, arguments: &Arguments) {
    println!("installed {}", layout.object.display());
    println!(
        "      for rdma-core 34 to 65, by {} links beside it",
        layout.links.len()
    );
    println!("          {}", layout.driver.display());
    if arguments.mlx5 {
        println!("          {}", layout.drop_in.display());
    }
    println!();
    if arguments.system {
        println!(
            "In the places of the official plug-ins, which stand beside them under names that end in {SUFFIX}; no program needs"
        );
        println!("a variable. `cargo xtask install --check` says what each one gets.");
    } else {
        println!(
            "libibverbs reads its configuration in no particular order, so beside Debian's rxe.driver either may win, unless"
        );
        println!("installed with --system. For one program, ours for certain:");
        let library_path = if arguments.mlx5 {
            format!("LD_LIBRARY_PATH={} ", layout.drop_in_dir().display())
        } else {
            String::new()
        };
        println!(
            "    {library_path}IBV_DRIVERS={} ibv_devinfo",
            layout.stem().display()
        );
    }
    if arguments.mlx5 {
        println!();
        print!("{MLX5_TEXT}");
    } else {
        println!(
            "mlx5 devices are left to the official provider; OXVERBS_DEVICES=mlx5_0 beside that line, or installing with --mlx5,"
        );
        println!("changes that.");
    }
    println!("OXVERBS_LOG=1 shows whether it was loaded and what it claims.");
}

/// Builds the plug-in.
pub(crate) fn build() -> Result<PathBuf> {
    cargo::release("oxverbs-ffi", OBJECT)
}

/// Writes the files; `drop_in` is our `libmlx5.so.1`, with which mlx5 devices are claimed.
fn install(layout: &Layout, object: &Path, drop_in: Option<&Path>) -> Result<()> {
    let read = |file: &Path| fs::read(file).with_context(|| file.display().to_string());
    let bytes = read(object)?;
    let drop_in = drop_in.map(read).transpose()?;
    // Everything is looked at before anything is written.
    let driver = layout.at(&layout.driver);
    files::foreign(&driver, |path| {
        Ok(fs::read_to_string(path)?.starts_with(MARK))
    })?;
    let links: Vec<_> = layout.links.iter().map(|link| layout.at(link)).collect();
    for link in &links {
        files::foreign(link, |path| files::leads_to(path, Path::new(OBJECT)))?;
    }
    let place = layout.at(&layout.drop_in);
    if drop_in.is_some() {
        files::foreign(&place, |path| Ok(layout::is_ours(path)))?;
    } else if divert::loader_knows(layout) {
        bail!(
            "{} is every program's libmlx5.so.1 since an installation with --system --mlx5; ask for --mlx5 again, or \
             --uninstall first",
            layout.drop_in.display()
        );
    }
    files::write_anew(&layout.at(&layout.object), &bytes)?;
    for link in &links {
        files::link(link, Path::new(OBJECT))?;
    }
    match drop_in {
        Some(bytes) => {
            files::write_anew(&place, &bytes)?;
            files::write_anew(&layout.at(&layout.marker), MLX5_TEXT.as_bytes())?;
        }
        None => {
            files::remove(&layout.at(&layout.marker))?;
            files::remove(&place)?;
            let _ = fs::remove_dir(layout.at(layout.drop_in_dir()));
        }
    }
    files::write_anew(&driver, layout.driver_text().as_bytes())
}

fn uninstall(layout: &Layout) -> Result<()> {
    let mut removed = divert::undivert(layout)?;
    let mut remove = |path: &Path, ours: bool| -> Result<()> {
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(files::explain(error, path)),
            Ok(_) if !ours => {
                println!("left {}, which is not ours", path.display());
                return Ok(());
            }
            Ok(_) => {}
        }
        files::remove(path)?;
        println!("removed {}", path.display());
        removed += 1;
        Ok(())
    };
    let driver = layout.at(&layout.driver);
    let marked = fs::read_to_string(&driver).is_ok_and(|text| text.starts_with(MARK));
    remove(&driver, marked)?;
    for link in &layout.links {
        let link = layout.at(link);
        let ours = files::leads_to(&link, Path::new(OBJECT)).unwrap_or(false);
        remove(&link, ours)?;
    }
    remove(&layout.at(&layout.marker), true)?;
    let drop_in = layout.at(&layout.drop_in);
    remove(&drop_in, layout::is_ours(&drop_in))?;
    let object = layout.at(&layout.object);
    remove(&object, true)?;
    // Ours alone if they are empty; a directory with other files stays.
    for file in [&drop_in, &object] {
        if let Some(dir) = file.parent() {
            let _ = fs::remove_dir(dir);
        }
    }
    if removed == 0 {
        println!("nothing of ours is installed there");
    }
    Ok(())
}
