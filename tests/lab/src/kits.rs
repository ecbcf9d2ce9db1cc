//! What a guest is made of: QEMU, a kernel with its initial file system, a userland.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow, bail};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::cache::{Cache, Recipe, Tree, write_whole};
use crate::config::Device;
use crate::cpio;
use crate::debian::fetch::sha256;
use crate::kernel_image;

/// Which of Debian's kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kernel {
    /// Debian stable's (trixie: 6.12).
    #[default]
    Stable,
    /// The newest of stable's backports (7.x).
    Backports,
}

/// Which of Debian's userlands, and with it which rdma-core.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Userland {
    /// Debian 12, rdma-core 44.
    Bookworm,
    /// Debian 13, rdma-core 56.
    #[default]
    Trixie,
    /// Unstable, rdma-core 65 or newer.
    Sid,
}

const QEMU: Recipe = Recipe {
    name: "qemu",
    suites: &["trixie", "trixie-backports"],
    // Older QEMU lacks vfio-user-pci, which later devices need.
    packages: &["qemu-system-x86/trixie-backports", "busybox-static"],
    essential: false,
    only_prefix: "",
    filter: not_documentation,
    version: 1,
};

/// What every guest's root has, and more.
macro_rules! guest_packages {
    ($($more:literal,)*) => {
        &[
            "mawk",
            "mount",
            "rdma-core",
            "ibverbs-utils",
            "ibverbs-providers",
            "rdmacm-utils",
            "librdmacm1",
            "python3",
            "python3-pyverbs",
            // pyverbs' tests of DevX and of VFIO build commands with it.
            "python3-scapy",
            "perftest",
            "qperf",
            "iproute2",
            "iputils-ping",
            "netbase",
            "strace",
            "kmod",
            "busybox",
            "ethtool",
            "procps",
            "valgrind",
            // valgrind reads libc's symbols to replace malloc.
            "libc6-dbg",
            $($more,)*
        ]
    };
}

const GUEST_PACKAGES: &[&str] = guest_packages![];

/// With the programs that only `cargo xtask apps` and `cargo xtask mpi` run, whose packages bring much along.
const APPS_PACKAGES: &[&str] = guest_packages![
    "ucx-utils",
    "fio",
    "libfabric-bin",
    "openmpi-bin",
    "python3-mpi4py",
];

const fn userland_recipe(
    name: &'static str,
    suites: &'static [&'static str],
    packages: &'static [&'static str],
) -> Recipe {
    Recipe {
        name,
        suites,
        packages,
        essential: true,
        only_prefix: "",
        filter: not_documentation,
        version: 3,
    }
}

const fn kernel_recipe(name: &'static str, suites: &'static [&'static str]) -> Recipe {
    let packages: &[&str] = &["linux-image-amd64"];
    Recipe {
        name,
        suites,
        packages,
        essential: false,
        only_prefix: "linux-",
        filter: kernel_parts,
        version: 3,
    }
}

impl Userland {
    fn recipe(self, apps: bool) -> Recipe {
        let (name, suites, with_apps): (_, &[&str], _) = match self {
            Self::Bookworm => ("bookworm", &["bookworm"], "bookworm-apps"),
            Self::Trixie => ("trixie", &["trixie"], "trixie-apps"),
            Self::Sid => ("sid", &["sid"], "sid-apps"),
        };
        if apps {
            userland_recipe(with_apps, suites, APPS_PACKAGES)
        } else {
            userland_recipe(name, suites, GUEST_PACKAGES)
        }
    }

    /// The suite's name.
    pub fn suite(self) -> &'static str {
        self.recipe(false).name
    }
}

impl Kernel {
    fn recipe(self) -> Recipe {
        match self {
            Self::Stable => kernel_recipe("kernel-stable", &["trixie"]),
            Self::Backports => kernel_recipe("kernel-backports", &["trixie-backports"]),
        }
    }
}

fn not_documentation(path: &str) -> bool {
    const UNUSED: [&str; 8] = [
        "usr/share/doc/",
        "usr/share/man/",
        "usr/share/locale/",
        "usr/share/info/",
        "usr/share/lintian/",
        "usr/share/bug/",
        "usr/share/icons/",
        "usr/share/zoneinfo/",
    ];
    !UNUSED.iter().any(|prefix| path.starts_with(prefix))
}

/// The image and those modules that an RDMA guest could want; the rest (sound, graphics, media) is most of a kernel.
fn kernel_parts(path: &str) -> bool {
    const WANTED: [&str; 15] = [
        "arch/",
        "block/",
        "crypto/",
        "drivers/base/",
        "drivers/char/",
        "drivers/dma-buf/",
        "drivers/infiniband/",
        "drivers/net/",
        "drivers/pci/",
        "drivers/vfio/",
        "drivers/virtio/",
        "fs/",
        "lib/",
        "net/",
        "virt/",
    ];
    if path.starts_with("boot/") {
        return true;
    }
    let Some(below) = path.strip_prefix("usr/lib/modules/") else {
        return false;
    };
    match below.split_once("/kernel/") {
        Some((_, module)) => WANTED.iter().any(|prefix| module.starts_with(prefix)),
        None => true,
    }
}

/// The packaged QEMU and the static busybox.
#[derive(Debug, Clone)]
pub(crate) struct Tools {
    tree: Tree,
}

impl Tools {
    pub(crate) fn get(cache: &Cache) -> Result<Self> {
        Ok(Self {
            tree: cache.tree(&QEMU, merge_usr, |_| Ok(()))?,
        })
    }

    /// `qemu-system-x86_64` through the tree's own loader, so that nothing of the host's libraries matters.
    pub(crate) fn qemu(&self) -> Command {
        let root = &self.tree.dir;
        let mut command = run_in_tree(root, "usr/bin/qemu-system-x86_64");
        command.env(
            "QEMU_MODULE_DIR",
            root.join("usr/lib/x86_64-linux-gnu/qemu"),
        );
        for data in ["usr/share/qemu", "usr/share/seabios"] {
            command.arg("-L").arg(root.join(data));
        }
        command
    }

    pub(crate) fn qemu_version(&self) -> &str {
        self.tree.version_of("qemu-system-x86").unwrap_or("?")
    }

    fn busybox(&self) -> PathBuf {
        self.tree.dir.join("usr/bin/busybox")
    }
}

/// A program of an unpacked tree, run on the host with the tree's loader and libraries.
fn run_in_tree(root: &Path, program: &str) -> Command {
    let libraries = root.join("usr/lib/x86_64-linux-gnu");
    let mut command = Command::new(libraries.join("ld-linux-x86-64.so.2"));
    command
        .arg("--library-path")
        .arg(&libraries)
        .arg(root.join(program));
    command
}

/// A kernel that QEMU can start at once.
#[derive(Debug, Clone)]
pub(crate) struct KernelKit {
    /// Release as `uname -r` says it.
    pub(crate) release: String,
    /// Version of the package.
    pub(crate) package: String,
    /// Uncompressed ELF.
    pub(crate) image: PathBuf,
    /// Initial file system.
    pub(crate) initrd: PathBuf,
}

/// Modules for the shared file systems and for verbs; `?` marks those that some kernels do not have.
const MODULES: &[&str] = &[
    "?virtio_pci",
    "?virtio_console",
    "?virtio_rng",
    "9p",
    "9pnet_virtio",
    "ib_uverbs",
    "ib_umad",
    "rdma_cm",
    "rdma_ucm",
];

/// Modules for a device.
fn device_modules(device: Device) -> &'static [&'static str] {
    match device {
        Device::Rxe => &["?crc32_generic", "rdma_rxe", "dummy", "veth"],
        Device::Mlx5 => &["virtio_net", "mlx5_core", "mlx5_ib"],
        Device::Vfio => &["vfio_pci", "vfio_iommu_type1"],
    }
}

/// Modules that are loaded after the guest has given devices away.
fn late_modules(device: Device) -> &'static [&'static str] {
    match device {
        Device::Rxe | Device::Mlx5 => &[],
        Device::Vfio => &["mlx5_core", "mlx5_ib"],
    }
}

impl KernelKit {
    pub(crate) fn get(
        cache: &Cache,
        kernel: Kernel,
        device: Device,
        tools: &Tools,
    ) -> Result<Self> {
        let tree = cache.tree(
            &kernel.recipe(),
            |_| Ok(()),
            |root| {
                let release = kernel_release(root)?;
                let packed = packed_kernel(root, &release)?;
                let image =
                    fs::read(&packed).with_context(|| format!("reading {}", packed.display()))?;
                let elf =
                    kernel_image::vmlinux(&image).with_context(|| packed.display().to_string())?;
                write_whole(&root.join("vmlinux"), &elf)
            },
        )?;
        let release = kernel_release(&tree.dir)?;
        let package = tree
            .version_of("linux-image-amd64")
            .unwrap_or("?")
            .to_owned();
        let modules = [MODULES, device_modules(device)].concat();
        let late = late_modules(device);
        let recipe = format!(
            "{} {} {modules:?} {late:?} {INIT}",
            tree.key, tools.tree.key
        );
        let initrd = cache.path(&format!(
            "initrds/{}.cpio",
            &sha256(recipe.as_bytes())[..16]
        ));
        if !initrd.is_file() {
            let content = initial_file_system(&tree.dir, &release, &modules, late, tools)?;
            write_whole(&initrd, &content)?;
        }
        Ok(Self {
            release,
            package,
            image: tree.dir.join("vmlinux"),
            initrd,
        })
    }
}

/// The one release whose modules the tree has.
fn kernel_release(root: &Path) -> Result<String> {
    let modules = root.join("usr/lib/modules");
    let mut names: Vec<String> = fs::read_dir(&modules)
        .with_context(|| modules.display().to_string())?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    match (names.pop(), names.as_slice()) {
        (Some(release), []) => Ok(release),
        _ => bail!("{} should have one kernel's modules", modules.display()),
    }
}

/// The packed kernel, in `/boot` or, in packages from 7.0 on, beside its modules.
fn packed_kernel(root: &Path, release: &str) -> Result<PathBuf> {
    let places = [
        format!("boot/vmlinuz-{release}"),
        format!("usr/lib/modules/{release}/vmlinuz"),
    ];
    let mut places = places.iter().map(|place| root.join(place));
    places
        .find(|path| path.is_file())
        .ok_or_else(|| anyhow!("no vmlinuz of {release} in {}", root.display()))
}

/// What the kernel starts first; the rest of the guest's start is in [`AGENT`](crate::guest::AGENT).
const INIT: &str = include_str!("guest/init.sh");

fn initial_file_system(
    kernel: &Path,
    release: &str,
    wanted: &[&str],
    late: &[&str],
    tools: &Tools,
) -> Result<Vec<u8>> {
    let mut archive = cpio::Archive::default();
    for directory in ["bin", "dev", "proc", "modules", "late", "newroot"] {
        archive.directory(directory);
    }
    archive.character_device("dev/console", 0o600, 5, 1);
    let busybox = tools.busybox();
    archive.file(
        "bin/busybox",
        0o755,
        &fs::read(&busybox).with_context(|| busybox.display().to_string())?,
    );
    archive.symlink("bin/sh", "busybox");
    archive.file("init", 0o755, INIT.as_bytes());
    let modules = Modules::find(&kernel.join("usr/lib/modules").join(release))?;
    let early = modules.in_order(wanted)?.len();
    let mut orders = [String::new(), String::new()];
    // Those that are loaded first come first, with all that they need.
    let all = modules.in_order(&[wanted, late].concat())?;
    for (number, (name, elf)) in all.into_iter().enumerate() {
        let folder = if number < early { "modules" } else { "late" };
        archive.file(&format!("{folder}/{name}.ko"), 0o644, &strip(elf)?);
        orders[usize::from(number >= early)] += &format!("{name}\n");
    }
    archive.file("modules/order", 0o644, orders[0].as_bytes());
    archive.file("late/order", 0o644, orders[1].as_bytes());
    Ok(archive.finish())
}

/// The module files of a kernel, by canonical name.
struct Modules {
    files: BTreeMap<String, PathBuf>,
    builtin: HashSet<String>,
}

impl Modules {
    fn find(dir: &Path) -> Result<Self> {
        let mut files = BTreeMap::new();
        let mut todo = vec![dir.join("kernel")];
        while let Some(dir) = todo.pop() {
            for entry in fs::read_dir(&dir).with_context(|| dir.display().to_string())? {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    todo.push(entry.path());
                } else if let Some(name) = module_name(&entry.path()) {
                    files.insert(name, entry.path());
                }
            }
        }
        let builtin = fs::read_to_string(dir.join("modules.builtin")).unwrap_or_default();
        let builtin = builtin
            .lines()
            .filter_map(|line| module_name(Path::new(line)))
            .collect();
        Ok(Self { files, builtin })
    }

    /// `wanted` and what they need, each after its needs, decompressed.
    fn in_order(&self, wanted: &[&str]) -> Result<Vec<(String, Vec<u8>)>> {
        let mut done = Vec::new();
        let mut seen = HashSet::new();
        for name in wanted {
            let (name, optional) = name
                .strip_prefix('?')
                .map_or((*name, false), |name| (name, true));
            let name = kernel_image::canonical(name);
            if optional && !self.files.contains_key(&name) {
                continue;
            }
            self.visit(&name, &mut seen, &mut done)?;
        }
        Ok(done)
    }

    fn visit(
        &self,
        name: &str,
        seen: &mut HashSet<String>,
        done: &mut Vec<(String, Vec<u8>)>,
    ) -> Result<()> {
        if !seen.insert(name.to_owned()) || self.builtin.contains(name) {
            return Ok(());
        }
        let path = self
            .files
            .get(name)
            .ok_or_else(|| anyhow!("the kernel has no module {name}"))?;
        let elf = read_module(path).with_context(|| path.display().to_string())?;
        for needed in
            kernel_image::module_dependencies(&elf).with_context(|| path.display().to_string())?
        {
            self.visit(&needed, seen, done)?;
        }
        done.push((name.to_owned(), elf));
        Ok(())
    }
}

fn module_name(path: &Path) -> Option<String> {
    let file = path.file_name()?.to_str()?;
    let (name, extension) = file.split_once(".ko")?;
    matches!(extension, "" | ".xz" | ".zst" | ".gz").then(|| kernel_image::canonical(name))
}

fn read_module(path: &Path) -> Result<Vec<u8>> {
    use std::io::Read;
    let file = fs::read(path)?;
    let mut elf = Vec::new();
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("xz") => liblzma::read::XzDecoder::new(file.as_slice()).read_to_end(&mut elf)?,
        Some("gz") => flate2::read::GzDecoder::new(file.as_slice()).read_to_end(&mut elf)?,
        Some("zst") => ruzstd::decoding::StreamingDecoder::new(file.as_slice())
            .map_err(|e| anyhow!("{e}"))?
            .read_to_end(&mut elf)?,
        _ => return Ok(file),
    };
    Ok(elf)
}

/// Drops debug data, which is most of a module, if the host has binutils; a module loads with it as well.
fn strip(elf: Vec<u8>) -> Result<Vec<u8>> {
    let dir = tempfile::tempdir()?;
    let (input, output) = (dir.path().join("in.ko"), dir.path().join("out.ko"));
    fs::write(&input, &elf)?;
    let status = Command::new("objcopy")
        .args(["--strip-debug", "-R", ".BTF", "-R", ".BTF.base"])
        .args([&input, &output])
        .stderr(Stdio::null())
        .status();
    match status {
        Ok(status) if status.success() => Ok(fs::read(output)?),
        _ => Ok(elf),
    }
}

/// The guest's root for a userland, on request with the programs of `cargo xtask apps`.
pub(crate) fn userland(cache: &Cache, userland: Userland, apps: bool) -> Result<Tree> {
    cache.tree(&userland.recipe(apps), merge_usr, finish_userland)
}

/// `/bin -> usr/bin` and its like, which debootstrap makes, not a package of every suite.
fn merge_usr(root: &Path) -> Result<()> {
    for name in ["bin", "sbin", "lib", "lib64"] {
        fs::create_dir_all(root.join("usr").join(name))?;
        symlink(format!("usr/{name}"), root.join(name))?;
    }
    Ok(())
}

/// What the maintainer scripts would have done, as far as a guest that runs programs as root needs it.
fn finish_userland(root: &Path) -> Result<()> {
    for dir in [
        "dev",
        "proc",
        "sys",
        "run",
        "tmp",
        "root",
        "share",
        "var/tmp",
        "oxverbs/checkout",
        "oxverbs/target",
        "etc/libibverbs.d",
    ] {
        fs::create_dir_all(root.join(dir))?;
    }
    let write =
        |path: &str, text: &str| fs::write(root.join(path), text).with_context(|| path.to_owned());
    for name in ["passwd", "group"] {
        let master = root.join(format!("usr/share/base-passwd/{name}.master"));
        fs::copy(&master, root.join("etc").join(name))
            .with_context(|| master.display().to_string())?;
    }
    write("etc/hostname", "lab\n")?;
    write(
        "etc/hosts",
        "127.0.0.1 localhost lab\n::1 localhost\n10.9.0.1 rxe0\n10.9.0.2 rxe1\n",
    )?;
    write(
        "etc/nsswitch.conf",
        "passwd: files\ngroup: files\nhosts: files\nservices: files\nprotocols: files\n",
    )?;
    write("etc/resolv.conf", "")?;
    write("etc/machine-id", "6f787665726273000000000000000000\n")?;
    for (link, target) in [
        ("sh", "dash"),
        ("awk", "mawk"),
        ("which", "which.debianutils"),
    ] {
        let path = root.join("usr/bin").join(link);
        if path.symlink_metadata().is_err() {
            symlink(target, &path)?;
        }
    }
    compile_python(root)
}

/// Byte-compiles Python's modules: the guest's root is read-only, and emulated compilation costs a second per process.
fn compile_python(root: &Path) -> Result<()> {
    let library = root.join("usr/lib");
    let mut interpreters = fs::read_dir(&library)?
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    let Some(name) = interpreters.find(|name| name.starts_with("python3.")) else {
        bail!("no Python library in {}", library.display());
    };
    let output = run_in_tree(root, &format!("usr/bin/{name}"))
        .env("PYTHONHOME", root.join("usr"))
        // One process: compileall's workers would be started without the tree's loader. Hashes that nobody checks: file
        // times differ through the guest's file system.
        .args([
            "-m",
            "compileall",
            "-q",
            "--invalidation-mode",
            "unchecked-hash",
            "-x",
            "/(idlelib|lib2to3/tests)/",
            "-s",
        ])
        .arg(root)
        .args(["-p", "/"])
        .args([library.join(&name), library.join("python3")])
        .stdin(Stdio::null())
        .output()
        .context("running the tree's own Python")?;
    if !output.status.success() {
        bail!(
            "byte-compiling {}: {}\n{}{}",
            library.join(name).display(),
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}
