//! Installing into trees: what is written, what stays, what `--check` then says.

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

/// A tree with what was built.
struct Scratch {
    dir: tempfile::TempDir,
    built: PathBuf,
    drop_in: PathBuf,
}

impl Scratch {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let built = dir.path().join("built.so");
        // the variable by which our files are known
        fs::write(&built, "one OXVERBS_DEVICES").unwrap();
        let drop_in = dir.path().join("drop-in.so");
        fs::write(&drop_in, "mlx5dv OXVERBS_DEVICES").unwrap();
        Self {
            dir,
            built,
            drop_in,
        }
    }

    fn layout(&self, prefix: &str) -> Layout {
        Layout::new(&self.dir.path().join("root"), Path::new(prefix))
    }
}

/// B64: a name for every private ABI; twice is as once; uninstalling leaves nothing.
#[test]
fn installs_twice_and_goes_away() {
    let scratch = Scratch::new();
    let layout = scratch.layout("/opt/verbs");
    install(&layout, &scratch.built, None).unwrap();
    fs::write(&scratch.built, "two").unwrap();
    install(&layout, &scratch.built, None).unwrap();
    let lib = layout.at(layout.object.parent().unwrap());
    let expected = [
        "liboxverbs-rdmav34.so",
        "liboxverbs-rdmav57.so",
        "liboxverbs-rdmav59.so",
        "liboxverbs-rdmav64.so",
        "liboxverbs-rdmav65.so",
        "liboxverbs_ffi.so",
    ];
    assert_eq!(names(&lib), expected);
    for link in &layout.links {
        assert_eq!(fs::read_to_string(layout.at(link)).unwrap(), "two");
    }
    let driver = layout.at(&layout.driver);
    let text = fs::read_to_string(&driver).unwrap();
    // the path of the installed system, not of the tree
    assert_eq!(
        text.lines().last(),
        Some("driver /opt/verbs/lib/oxverbs/liboxverbs")
    );
    uninstall(&layout).unwrap();
    assert!(!lib.exists() && !driver.exists());
    uninstall(&layout).unwrap();
}

/// mlx5 devices are claimed, and libmlx5.so.1 is there, on request and no more after an installation without it.
#[test]
fn mlx5_is_on_request() {
    let scratch = Scratch::new();
    let layout = scratch.layout("/usr/local");
    for asked in [false, true, true, false, true] {
        let drop_in = asked.then_some(scratch.drop_in.as_path());
        install(&layout, &scratch.built, drop_in).unwrap();
        for file in [&layout.marker, &layout.drop_in] {
            assert_eq!(layout.at(file).exists(), asked, "{}", file.display());
        }
    }
    assert_eq!(layout.marker.parent(), layout.object.parent());
    // A directory for search paths has nothing that a program could find by another name.
    assert_eq!(names(&layout.at(layout.drop_in_dir())), ["libmlx5.so.1"]);
    uninstall(&layout).unwrap();
    assert!(!layout.at(layout.object.parent().unwrap()).exists());
}

#[test]
fn foreign_files_stay() {
    let scratch = Scratch::new();
    let layout = scratch.layout("/usr");
    for path in [&layout.driver, &layout.links[1], &layout.drop_in] {
        let path = layout.at(path);
        files::make_parent(&path).unwrap();
        fs::write(&path, "theirs").unwrap();
        let error = install(&layout, &scratch.built, Some(&scratch.drop_in))
            .unwrap_err()
            .to_string();
        assert!(error.contains("is not ours"), "{error}");
        assert!(!layout.at(&layout.object).exists());
        uninstall(&layout).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "theirs");
        fs::remove_file(&path).unwrap();
    }
}

/// A tree of a system with rdma-core's plug-ins, whose dpkg knows them.
fn system(scratch: &Scratch) -> (Layout, PathBuf) {
    let layout = scratch.layout("/usr/local");
    for dir in [
        "var/lib/dpkg/info",
        "var/lib/dpkg/updates",
        "etc/ld.so.conf.d",
    ] {
        fs::create_dir_all(layout.root.join(dir)).unwrap();
    }
    fs::write(layout.root.join("var/lib/dpkg/status"), "").unwrap();
    fs::write(
        layout.root.join("etc/ld.so.conf"),
        "include /etc/ld.so.conf.d/*.conf\n",
    )
    .unwrap();
    let plugins = layout.at(&layout::provider_dir(&layout.root));
    fs::create_dir_all(&plugins).unwrap();
    for family in ["rxe", "mlx5"] {
        fs::write(plugins.join(format!("lib{family}-rdmav34.so")), "official").unwrap();
    }
    (layout, plugins)
}

fn has_dpkg_divert() -> bool {
    let has = std::process::Command::new("dpkg-divert")
        .arg("--version")
        .output()
        .is_ok();
    if !has {
        test_support::skip("xtask::install::divert", "no dpkg on this host");
    }
    has
}

/// The official plug-ins stand aside, also those that an upgrade brings, and come back unharmed.
#[test]
fn diversions_come_and_go() {
    if !has_dpkg_divert() {
        return;
    }
    let scratch = Scratch::new();
    let (layout, plugins) = system(&scratch);
    install(&layout, &scratch.built, Some(&scratch.drop_in)).unwrap();
    let before = names(&plugins);
    for _ in 0..2 {
        divert::divert(&layout, true).unwrap();
        for (family, ours) in [("rxe", &layout.object), ("mlx5", &layout.drop_in)] {
            for number in layout::NUMBERS {
                let file = plugins.join(format!("lib{family}-rdmav{number}.so"));
                assert!(files::leads_to(&file, ours).unwrap());
            }
            let aside = plugins.join(format!("lib{family}-rdmav34.so{SUFFIX}"));
            assert_eq!(fs::read_to_string(aside).unwrap(), "official");
        }
    }
    let truename = std::process::Command::new("dpkg-divert")
        .arg("--root")
        .arg(&layout.root)
        .arg("--truename")
        .arg(layout::provider_dir(&layout.root).join("librxe-rdmav65.so"))
        .output()
        .unwrap();
    let truename = String::from_utf8(truename.stdout).unwrap();
    assert!(
        truename.trim().ends_with("librxe-rdmav65.so.official"),
        "an upgrade's file goes aside: {truename}"
    );
    // Without --mlx5 every program would lose its libmlx5.so.1.
    let error = install(&layout, &scratch.built, None)
        .unwrap_err()
        .to_string();
    assert!(error.contains("--uninstall first"), "{error}");
    uninstall(&layout).unwrap();
    assert_eq!(names(&plugins), before);
    for name in before {
        let text = fs::read_to_string(plugins.join(name)).unwrap();
        assert_eq!(text, "official");
    }
    let diversions = fs::read_to_string(layout.root.join("var/lib/dpkg/diversions")).unwrap();
    assert_eq!(diversions, "");
    assert!(!layout.root.join(layout::LOADER_CONF).exists());
}
