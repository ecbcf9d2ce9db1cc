//! `cargo xtask install`: the plug-in where libibverbs looks for providers.
//!
//! libibverbs opens `libNAME-rdmavNN.so` in its provider directory, where NN is the number of its private ABI, for
//! every `driver NAME` line in its configuration directory; a NAME with a leading slash is a path of its own. One file
//! of ours serves every NN, so it is written once and linked under each name.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::Args;

use crate::cargo;

/// `IBVERBS_PABI_VERSION` of rdma-core 34–56, 57–58, 59–63, 64 and 65.
const NUMBERS: [u32; 5] = [34, 57, 59, 64, 65];
/// Not the name of an official provider, so that both can be installed.
const NAME: &str = "oxverbs";
/// The file beside the plug-in that makes it claim mlx5 devices (`ffi-shim`'s `mlx5::MARKER`).
const MLX5: &str = "claim-mlx5";
/// What that file says, and `--mlx5` prints.
const MLX5_TEXT: &str = "\
mlx5 devices are claimed too, since it was asked for. It is not done by default because of programs that use mlx5dv, the
interface of libmlx5.so.1 (perftest, UCX, pyverbs' mlx5 part, NCCL since 2.27, DPDK): such a program loads the official
libmlx5, which registers itself as soon as it is loaded and so gets the devices before libibverbs reads its
configuration. It keeps working, on the official provider. It would use ours only with a libmlx5.so.1 of ours beside
it, since the official one refuses devices that another provider opened. Programs that link libibverbs alone get ours.
";
/// First line of the configuration file; how we know our own.
const MARK: &str = "# written by oxverbs (cargo xtask install); remove with --uninstall";

/// Install the plug-in for libibverbs, or show how to try it without installing.
///
/// The shared object goes to PREFIX/lib/oxverbs, with one link per private ABI of rdma-core 34 to 65, and a
/// `.driver` file to PREFIX/etc/libibverbs.d (for the prefix /usr: /etc/libibverbs.d), which libibverbs reads if it was
/// built for that prefix. In any other case the printed IBV_DRIVERS line does the same for one program.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Where to install.
    #[arg(long, default_value = "/usr/local")]
    prefix: PathBuf,

    /// Remove what an earlier install with the same prefix wrote.
    #[arg(long)]
    uninstall: bool,

    /// Claim mlx5 devices too, not only rxe's.
    ///
    /// Without it, OXVERBS_DEVICES=mlx5_0 asks for one in one program. Programs that use mlx5dv (UCX, perftest) stay with
    /// the official provider in any case: they need the matching libmlx5.so.1.
    #[arg(long)]
    mlx5: bool,

    /// Install this file instead of building one.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

/// Everything that an installation consists of.
#[derive(Debug)]
struct Layout {
    object: PathBuf,
    links: Vec<PathBuf>,
    driver: PathBuf,
    /// Says that mlx5 devices are claimed.
    marker: PathBuf,
}

const OBJECT: &str = "liboxverbs_ffi.so";

impl Layout {
    fn new(prefix: &Path) -> Self {
        let lib = prefix.join("lib/oxverbs");
        let etc = if prefix == Path::new("/usr") {
            PathBuf::from("/etc")
        } else {
            prefix.join("etc")
        };
        let link = |number| lib.join(format!("lib{NAME}-rdmav{number}.so"));
        Self {
            object: lib.join(OBJECT),
            marker: lib.join(MLX5),
            links: NUMBERS.iter().map(link).collect(),
            driver: etc.join("libibverbs.d").join(format!("{NAME}.driver")),
        }
    }

    /// What libibverbs appends `-rdmavNN.so` to.
    fn stem(&self) -> PathBuf {
        self.object.with_file_name(format!("lib{NAME}"))
    }

    fn driver_text(&self) -> String {
        format!("{MARK}\ndriver {}\n", self.stem().display())
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<u8> {
    let prefix = std::path::absolute(&arguments.prefix)?;
    let layout = Layout::new(&prefix);
    if arguments.uninstall {
        uninstall(&layout)?;
        return Ok(0);
    }
    let object = match &arguments.file {
        Some(file) => file.clone(),
        None => build()?,
    };
    install(&layout, &object, arguments.mlx5)?;
    println!("installed {}", layout.object.display());
    println!(
        "      for rdma-core 34 to 65, by {} links beside it",
        layout.links.len()
    );
    println!("          {}", layout.driver.display());
    println!();
    println!(
        "libibverbs reads its configuration in no particular order, so beside Debian's rxe.driver either may win."
    );
    println!("For one program, ours for certain:");
    println!("    IBV_DRIVERS={} ibv_devinfo", layout.stem().display());
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
    Ok(0)
}

/// Builds the plug-in.
pub(crate) fn build() -> Result<PathBuf> {
    cargo::release("oxverbs-ffi", OBJECT)
}

fn install(layout: &Layout, object: &Path, mlx5: bool) -> Result<()> {
    let bytes = fs::read(object).with_context(|| object.display().to_string())?;
    // Everything is looked at before anything is written.
    foreign(&layout.driver, |path| {
        Ok(fs::read_to_string(path)?.starts_with(MARK))
    })?;
    for link in &layout.links {
        foreign(link, is_our_link)?;
    }
    make_parent(&layout.object)?;
    write_anew(&layout.object, &bytes)?;
    for link in &layout.links {
        if is_our_link(link).unwrap_or(false) {
            continue;
        }
        symlink(OBJECT, link).map_err(|error| explain(error, link))?;
    }
    if mlx5 {
        write_anew(&layout.marker, MLX5_TEXT.as_bytes())?;
    } else {
        remove_file(&layout.marker)?;
    }
    make_parent(&layout.driver)?;
    write_anew(&layout.driver, layout.driver_text().as_bytes())
}

/// Removes a file that may not be there.
fn remove_file(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(explain(error, path)),
        _ => Ok(()),
    }
}

fn uninstall(layout: &Layout) -> Result<()> {
    let mut removed = 0;
    let mut remove = |path: &Path, ours: bool| -> Result<()> {
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(explain(error, path)),
            Ok(_) if !ours => {
                println!("left {}, which is not ours", path.display());
                return Ok(());
            }
            Ok(_) => {}
        }
        fs::remove_file(path).map_err(|error| explain(error, path))?;
        println!("removed {}", path.display());
        removed += 1;
        Ok(())
    };
    let marked = fs::read_to_string(&layout.driver).is_ok_and(|text| text.starts_with(MARK));
    remove(&layout.driver, marked)?;
    for link in &layout.links {
        remove(link, is_our_link(link).unwrap_or(false))?;
    }
    remove(&layout.marker, true)?;
    remove(&layout.object, true)?;
    // Ours alone if it is empty; a directory with other files stays.
    if let Some(dir) = layout.object.parent() {
        let _ = fs::remove_dir(dir);
    }
    if removed == 0 {
        println!("nothing of ours is installed there");
    }
    Ok(())
}

fn is_our_link(path: &Path) -> io::Result<bool> {
    Ok(fs::read_link(path)?.as_os_str() == OsStr::new(OBJECT))
}

/// Refuses to replace a file that `ours` does not know.
fn foreign(path: &Path, ours: impl Fn(&Path) -> io::Result<bool>) -> Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(explain(error, path)),
        Ok(_) if ours(path).unwrap_or(false) => Ok(()),
        Ok(_) => bail!(
            "{} exists and is not ours; move it away or choose another --prefix",
            path.display()
        ),
    }
}

fn make_parent(path: &Path) -> Result<()> {
    let Some(dir) = path.parent() else {
        return Ok(());
    };
    fs::create_dir_all(dir).map_err(|error| explain(error, dir))
}

/// Writes beside and renames: a program that has the old file mapped keeps it whole.
fn write_anew(path: &Path, bytes: &[u8]) -> Result<()> {
    let new = path.with_extension("new");
    let write = || -> io::Result<()> {
        let mut file = fs::File::create(&new)?;
        file.write_all(bytes)?;
        drop(file);
        fs::rename(&new, path)
    };
    write().map_err(|error| {
        let _ = fs::remove_file(&new);
        explain(error, path)
    })
}

fn explain(error: io::Error, path: &Path) -> anyhow::Error {
    let advice = match error.kind() {
        ErrorKind::PermissionDenied => "; run it as root, or choose a --prefix of your own",
        ErrorKind::ReadOnlyFilesystem => "; choose a --prefix on a file system that is writable",
        _ => "",
    };
    anyhow::anyhow!("{}: {error}{advice}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(dir)
            .into_iter()
            .flatten()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// B64: a name for every private ABI; twice is as once; uninstalling leaves nothing.
    #[test]
    fn installs_twice_and_goes_away() {
        let dir = tempfile::tempdir().unwrap();
        let built = dir.path().join("built.so");
        fs::write(&built, "one").unwrap();
        let layout = Layout::new(&dir.path().join("prefix"));
        install(&layout, &built, false).unwrap();
        fs::write(&built, "two").unwrap();
        install(&layout, &built, false).unwrap();
        let lib = layout.object.parent().unwrap();
        let expected = [
            "liboxverbs-rdmav34.so",
            "liboxverbs-rdmav57.so",
            "liboxverbs-rdmav59.so",
            "liboxverbs-rdmav64.so",
            "liboxverbs-rdmav65.so",
            "liboxverbs_ffi.so",
        ];
        assert_eq!(names(lib), expected);
        for link in &layout.links {
            assert_eq!(fs::read_to_string(link).unwrap(), "two");
        }
        let driver = fs::read_to_string(&layout.driver).unwrap();
        let line = format!("driver {}/liboxverbs", lib.display());
        assert_eq!(driver.lines().last(), Some(line.as_str()));
        uninstall(&layout).unwrap();
        assert!(!lib.exists() && !layout.driver.exists());
        uninstall(&layout).unwrap();
    }

    /// mlx5 devices are claimed on request, and no more after an installation without it.
    #[test]
    fn mlx5_is_on_request() {
        let dir = tempfile::tempdir().unwrap();
        let built = dir.path().join("built.so");
        fs::write(&built, "one").unwrap();
        let layout = Layout::new(&dir.path().join("prefix"));
        for asked in [false, true, true, false, true] {
            install(&layout, &built, asked).unwrap();
            assert_eq!(layout.marker.exists(), asked);
        }
        assert_eq!(layout.marker.parent(), layout.object.parent());
        uninstall(&layout).unwrap();
        assert!(!layout.object.parent().unwrap().exists());
    }

    #[test]
    fn foreign_files_stay() {
        let dir = tempfile::tempdir().unwrap();
        let built = dir.path().join("built.so");
        fs::write(&built, "ours").unwrap();
        let layout = Layout::new(dir.path());
        for path in [&layout.driver, &layout.links[1]] {
            make_parent(path).unwrap();
            fs::write(path, "theirs").unwrap();
            let error = install(&layout, &built, false).unwrap_err().to_string();
            assert!(error.contains("is not ours"), "{error}");
            assert!(!layout.object.exists());
            uninstall(&layout).unwrap();
            assert_eq!(fs::read_to_string(path).unwrap(), "theirs");
            fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn errors_say_what_to_do() {
        let error = explain(ErrorKind::PermissionDenied.into(), Path::new("/usr/x")).to_string();
        assert!(
            error.starts_with("/usr/x: ") && error.ends_with("or choose a --prefix of your own"),
            "{error}"
        );
    }
}
