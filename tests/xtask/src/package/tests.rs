//! Packages, as dpkg takes them.

use std::process::Command;

use super::*;

/// dpkg on a tree of its own. Scripts run outside of it and are told of it by `DPKG_ROOT`, which dpkg-divert knows.
struct Tree {
    dir: tempfile::TempDir,
}

impl Tree {
    /// None, with a named skip, where dpkg cannot be tried.
    fn new() -> Option<Self> {
        let is_root = Command::new("id")
            .arg("-u")
            .output()
            .is_ok_and(|output| output.stdout == b"0\n");
        if !is_root || Command::new("dpkg").arg("--version").output().is_err() {
            test_support::skip("xtask::package::dpkg", "needs dpkg, and root to set owners");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        for sub in ["info", "updates", "triggers"] {
            fs::create_dir_all(dir.path().join("root/var/lib/dpkg").join(sub)).unwrap();
        }
        fs::write(dir.path().join("root/var/lib/dpkg/status"), "").unwrap();
        Some(Self { dir })
    }

    fn dpkg(&self, arguments: &[&str]) {
        let output = Command::new("dpkg")
            .arg(format!("--root={}", self.dir.path().join("root").display()))
            .args(["--force-script-chrootless", "--force-depends"])
            .arg("--force-architecture")
            .args(arguments)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "dpkg {arguments:?}: {}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }

    fn install(&self, package: &Deb) {
        let file = package.write(self.dir.path()).unwrap();
        self.dpkg(&["--install", file.to_str().unwrap()]);
    }

    /// The text that a path of the tree leads to.
    fn text(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.dir.path().join("root").join(path)).ok()
    }
}

fn object(dir: &Path, text: &str) -> PathBuf {
    // An ELF file that every system has, and that is small; then the text.
    let mut bytes = fs::read("/bin/sh").unwrap();
    bytes.extend_from_slice(text.as_bytes());
    let file = dir.join(text);
    fs::write(&file, bytes).unwrap();
    file
}

/// rdma-core's package, as far as it matters here.
fn official(version: &str, numbers: &[u32]) -> Deb {
    let triplet = triplet();
    let plugin = |family: &'static str| {
        let triplet = triplet.clone();
        let version = version.to_owned();
        move |number: &u32| {
            (
                format!("usr/lib/{triplet}/libibverbs/lib{family}-rdmav{number}.so"),
                Content::Bytes(format!("{family} {version}").into_bytes()),
            )
        }
    };
    let rxe = numbers.iter().map(plugin("rxe"));
    let files = rxe.chain(numbers.iter().map(plugin("mlx5"))).collect();
    Deb {
        name: "ibverbs-providers",
        version: version.to_owned(),
        architecture: architecture(),
        depends: "libc6".to_owned(),
        description: ("stands for rdma-core's", ""),
        files,
        control: Vec::new(),
        time: 0,
    }
}

/// dpkg installs ours over the official ones; an upgrade of those, with a new private ABI, changes nothing for programs;
/// removal brings the upgraded ones back.
#[test]
fn packages_survive_upgrades_and_go_away() {
    let Some(tree) = Tree::new() else { return };
    let triplet = triplet();
    let plugin = |family: &str, number: u32| {
        format!("usr/lib/{triplet}/libibverbs/lib{family}-rdmav{number}.so")
    };
    tree.install(&official("56", &[34]));
    let scratch = tempfile::tempdir().unwrap();
    let ours = [
        (
            "rxe",
            provider(&object(scratch.path(), "our-rxe"), 1).unwrap(),
        ),
        (
            "mlx5",
            libmlx5_package(&object(scratch.path(), "our-mlx5"), 1).unwrap(),
        ),
    ];
    for (_, package) in &ours {
        tree.install(package);
        // again, as an upgrade of ours
        tree.install(package);
    }
    let is_ours = |family: &str, number: u32| {
        let path = tree.dir.path().join("root").join(plugin(family, number));
        fs::read(path).is_ok_and(|bytes| bytes.ends_with(format!("our-{family}").as_bytes()))
    };
    for upgraded in [false, true] {
        if upgraded {
            tree.install(&official("65", &[65]));
        }
        for (family, _) in &ours {
            assert!(is_ours(family, 34) && is_ours(family, 65), "{family}");
        }
    }
    let conf = tree.text(LOADER_CONF).unwrap();
    assert!(conf.ends_with(&format!("/usr/lib/{triplet}/oxverbs/mlx5\n")));
    for (family, package) in &ours {
        tree.dpkg(&["--purge", package.name]);
        assert_eq!(tree.text(&plugin(family, 65)), Some(format!("{family} 65")));
        assert_eq!(tree.text(&plugin(family, 34)), None);
    }
    assert_eq!(tree.text("var/lib/dpkg/diversions").as_deref(), Some(""));
    assert_eq!(tree.text(LOADER_CONF), None);
}

#[test]
fn same_content_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let file = object(dir.path(), "x");
    let read = || {
        let path = provider(&file, 7).unwrap().write(dir.path()).unwrap();
        let bytes = fs::read(&path).unwrap();
        fs::remove_file(path).unwrap();
        bytes
    };
    assert_eq!(read(), read());
}

/// The dependency is what the linker wrote: no symbol of a newer glibc.
#[test]
fn glibc_is_what_readelf_says() {
    let program = std::env::current_exe().unwrap();
    let output = Command::new("readelf")
        .args(["-V", "-W"])
        .arg(&program)
        .output();
    let Ok(output) = output else {
        return test_support::skip("xtask::package::readelf", "no readelf on this host");
    };
    let newest = String::from_utf8_lossy(&output.stdout)
        .split("GLIBC_")
        .skip(1)
        .filter_map(|rest| {
            let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
            let numbers: Option<Vec<u32>> = rest[..end]
                .split('.')
                .map(|number| number.parse().ok())
                .collect();
            numbers
        })
        .max()
        .unwrap();
    let ours = libc_of(&fs::read(program).unwrap()).unwrap();
    let numbers: Vec<u32> = ours
        .split('.')
        .map(|number| number.parse().unwrap())
        .collect();
    assert_eq!(numbers, newest);
}
