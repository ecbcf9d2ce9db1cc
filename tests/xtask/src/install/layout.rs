//! Where everything of an installation stands.
//!
//! libibverbs opens `libNAME-rdmavNN.so` in its provider directory, where NN is the number of its private ABI, for
//! every `driver NAME` line in its configuration directory; a NAME with a leading slash is a path of its own. One file
//! of ours serves every NN, so it is written once and linked under each name.

use std::fs;
use std::path::{Path, PathBuf};

/// `IBVERBS_PABI_VERSION` of rdma-core 34–56, 57–58, 59–63, 64 and 65.
pub(crate) const NUMBERS: [u32; 5] = [34, 57, 59, 64, 65];
/// Not the name of an official provider, so that both can be installed.
pub(crate) const NAME: &str = "oxverbs";
/// The file beside the plug-in that makes it claim mlx5 devices (`ffi-shim`'s `mlx5::MARKER`).
const MLX5: &str = "claim-mlx5";
/// First line of what configures others; how we know our own.
pub(crate) const MARK: &str = "# written by oxverbs (cargo xtask install); remove with --uninstall";
/// The plug-in.
pub(crate) const OBJECT: &str = "liboxverbs_ffi.so";
/// Read before `libc.conf` and the directory of the architecture.
pub(crate) const LOADER_CONF: &str = "etc/ld.so.conf.d/00-oxverbs.conf";

/// Everything that an installation consists of, but for diversions. Paths are those of the installed system.
#[derive(Debug)]
pub(super) struct Layout {
    /// `/`, or the tree that is installed into.
    pub(super) root: PathBuf,
    /// The plug-in.
    pub(super) object: PathBuf,
    /// What libibverbs of each private ABI opens, beside the plug-in.
    pub(super) links: Vec<PathBuf>,
    /// The line for libibverbs.
    pub(super) driver: PathBuf,
    /// Says that mlx5 devices are claimed.
    pub(super) marker: PathBuf,
    /// Ours in place of `libmlx5.so.1`, alone in its directory, so that this can go into search paths.
    pub(super) drop_in: PathBuf,
}

impl Layout {
    pub(super) fn new(root: &Path, prefix: &Path) -> Self {
        let lib = prefix.join("lib/oxverbs");
        let etc = if prefix == Path::new("/usr") {
            PathBuf::from("/etc")
        } else {
            prefix.join("etc")
        };
        let link = |number| lib.join(format!("lib{NAME}-rdmav{number}.so"));
        Self {
            root: root.to_owned(),
            object: lib.join(OBJECT),
            marker: lib.join(MLX5),
            drop_in: lib.join("mlx5").join(lab::drop_in::SONAME),
            links: NUMBERS.iter().map(link).collect(),
            driver: etc.join("libibverbs.d").join(format!("{NAME}.driver")),
        }
    }

    /// Where a path of the installed system is now.
    pub(super) fn at(&self, path: &Path) -> PathBuf {
        under(&self.root, path)
    }

    /// What libibverbs appends `-rdmavNN.so` to.
    pub(super) fn stem(&self) -> PathBuf {
        self.object.with_file_name(format!("lib{NAME}"))
    }

    pub(super) fn driver_text(&self) -> String {
        format!("{MARK}\ndriver {}\n", self.stem().display())
    }

    /// The directory with nothing but our `libmlx5.so.1`.
    pub(super) fn drop_in_dir(&self) -> &Path {
        self.drop_in.parent().unwrap_or(Path::new("/"))
    }
}

/// An absolute path in the tree at `root`.
pub(crate) fn under(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// Debian's name of the architecture that we were built for, in paths.
pub(crate) fn triplet() -> String {
    format!("{}-linux-gnu", std::env::consts::ARCH)
}

/// Where libibverbs' own plug-ins are in the tree at `root`: Debian's directory for the architecture, or Fedora's.
/// Without rdma-core there, where Debian would put them.
pub(super) fn provider_dir(root: &Path) -> PathBuf {
    let debian = PathBuf::from(format!("/usr/lib/{}/libibverbs", triplet()));
    let candidates = [debian.clone(), "/usr/lib64/libibverbs".into()];
    candidates
        .into_iter()
        .find(|dir| under(root, dir).is_dir())
        .unwrap_or(debian)
}

/// Whether a file is one of our shared objects: both know this variable, and nobody else's does.
pub(super) fn is_ours(file: &Path) -> bool {
    const VARIABLE: &[u8] = b"OXVERBS_DEVICES";
    fs::read(file).is_ok_and(|bytes| {
        bytes
            .windows(VARIABLE.len())
            .any(|window| window == VARIABLE)
    })
}
