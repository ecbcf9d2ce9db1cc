//! C programs of these tests on the preloaded fake kernel.
#![allow(dead_code, reason = "each test program uses its part")]

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The shared object to preload; cargo builds it beside the tests, as their dependency.
pub(crate) fn preload() -> PathBuf {
    let exe = std::env::current_exe().expect("a test knows its own path");
    let library = exe.with_file_name("libfake_kernel_preload.so");
    assert!(library.exists(), "{} is not there", library.display());
    library
}

/// Whether Debian's libibverbs with its headers and rxe provider is installed; else the test `name` is
/// skipped.
pub(crate) fn has_official(name: &str) -> bool {
    has_provider(name, "librxe-rdmav")
}

/// As [`has_official`], with the provider whose file's name begins so.
pub(crate) fn has_provider(name: &str, provider_file: &str) -> bool {
    let header = Path::new("/usr/include/infiniband/verbs.h").exists();
    let providers = ["x86_64-linux-gnu", "aarch64-linux-gnu"];
    let provider = providers
        .iter()
        .filter_map(|triple| std::fs::read_dir(format!("/usr/lib/{triple}/libibverbs")).ok())
        .flatten()
        .flatten()
        .any(|entry| {
            entry
                .file_name()
                .to_string_lossy()
                .starts_with(provider_file)
        });
    if !header || !provider {
        test_support::skip(name, "libibverbs-dev or ibverbs-providers is not installed");
    }
    header && provider
}

/// Compiles `tests/c/NAME.c` into `dir`.
pub(crate) fn compile(name: &str, dir: &Path) -> PathBuf {
    compile_with(name, dir, &[])
}

/// As [`compile`], with more arguments for the linker.
pub(crate) fn compile_with(name: &str, dir: &Path, libraries: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/c/{name}.c"));
    let program = dir.join(name);
    let compiler = std::env::var_os("CC").unwrap_or_else(|| OsString::from("cc"));
    let output = Command::new(compiler)
        .args(["-Wall", "-Werror", "-g", "-O1", "-o"])
        .arg(&program)
        .arg(source)
        .args(libraries)
        .args(["-libverbs", "-ldl", "-lpthread"])
        .output()
        .expect("a C compiler");
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{messages}");
    program
}

/// A command that runs on the fake kernel, with these settings.
pub(crate) fn on_fake(program: &Path, settings: &str) -> Command {
    let mut command = Command::new("timeout");
    command
        .arg("120")
        .arg(program)
        .env("LD_PRELOAD", preload())
        .env("OXVERBS_FAKE", settings);
    for variable in ["RDMAV_DRIVERS", "IBV_DRIVERS", "SYSFS_PATH"] {
        command.env_remove(variable);
    }
    command
}

/// Which libibverbs and libmlx5 a program runs with. The program is linked with libmlx5 ([`MLX5`]), since libibverbs
/// looks for its providers where they are installed, of whichever release.
#[derive(Clone, Debug)]
pub(crate) enum Libraries {
    /// Those that are installed.
    Installed,
    /// Those of an unpacked Debian tree, with its own loader.
    Of(PathBuf),
}

/// What links a program with libmlx5, whether it calls it or not.
pub(crate) const MLX5: &[&str] = &["-Wl,--no-as-needed", "-lmlx5"];

impl Libraries {
    /// The installed ones, and those that `OXVERBS_USERLANDS=dir[:dir]` names (`cargo xtask test` downloads them).
    pub(crate) fn all() -> Vec<Self> {
        let mut all = vec![Self::Installed];
        for tree in test_support::c::include_dirs("OXVERBS_USERLANDS") {
            let triple = format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH);
            all.push(Self::Of(tree.join(triple)));
        }
        all
    }

    /// A command that runs on the fake kernel and fails if it does not get libmlx5 from here.
    pub(crate) fn on_fake(&self, program: &Path, settings: &str) -> Command {
        let Self::Of(directory) = self else {
            let mut command = on_fake(program, settings);
            command.env("EXPECT_PROVIDER", "libmlx5");
            return command;
        };
        let mut command = on_fake(&directory.join("ld-linux-x86-64.so.2"), settings);
        command
            .arg("--library-path")
            .arg(directory)
            .arg(program)
            .env("EXPECT_PROVIDER", directory);
        command
    }
}

/// Standard output of a command that must succeed.
pub(crate) fn succeed(mut command: Command) -> String {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().expect("timeout(1) of coreutils");
    let stdout = String::from_utf8_lossy(&stdout).into_owned();
    let stderr = String::from_utf8_lossy(&stderr);
    assert!(
        status.success(),
        "{command:?}: {status}\n{stdout}\n{stderr}"
    );
    stdout
}

/// The plug-in under the name that libibverbs of this release looks for; cargo builds it beside the tests.
pub(crate) fn plugin(dir: &Path) -> PathBuf {
    let exe = std::env::current_exe().expect("a test knows its own path");
    let library = exe.with_file_name("liboxverbs_ffi.so");
    assert!(library.exists(), "{} is not there", library.display());
    for abi in [34, 57, 59, 64, 65] {
        let name = dir.join(format!("liboxverbs-rdmav{abi}.so"));
        std::os::unix::fs::symlink(&library, name).expect("a symbolic link");
    }
    dir.join("liboxverbs")
}
