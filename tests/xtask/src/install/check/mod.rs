//! `cargo xtask install --check`: which library and which provider will each RDMA program get?

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use comfy_table::Table;
use comfy_table::presets::NOTHING;
use serde::Serialize;

use super::layout::{is_ours, triplet, under};
use elf::Loader;
use providers::{Library, Owner};

mod elf;
mod providers;

const VERBS: &str = "libibverbs.so.1";

/// Where programs are.
const PROGRAMS: [&str; 6] = [
    "/bin",
    "/sbin",
    "/usr/bin",
    "/usr/sbin",
    "/usr/local/bin",
    "/usr/local/sbin",
];

/// Parts that programs load when they run and that bring verbs with them: directories below those of libraries.
const MODULES: [&str; 4] = ["ucx", "libfabric", "openmpi/lib/openmpi3", "qemu"];

/// What a program gets.
#[derive(Debug, Serialize)]
struct Row {
    program: PathBuf,
    /// Of libibverbs.
    rdma_core: String,
    rxe: Owner,
    mlx5: Owner,
    /// Its `libmlx5.so.1`, if it links one.
    libmlx5: Option<PathBuf>,
    /// The `libmlx5.so.1` that it would load later is not of those who have its mlx5 devices, and would refuse them.
    mixed: bool,
}

pub(super) fn run(root: &Path, programs: &[PathBuf], json: Option<&Path>) -> Result<u8> {
    let mut system = System::new(root);
    let asked = !programs.is_empty();
    let programs = if asked {
        let absolute = |program: &PathBuf| find(root, program);
        programs.iter().map(absolute).collect::<Result<_>>()?
    } else {
        candidates(root)
    };
    let mut rows = Vec::new();
    for program in programs {
        match system.examine(&program) {
            None if asked => println!("{}: does not link {VERBS}", program.display()),
            None => {}
            Some(row) => rows.push(row),
        }
    }
    print(&rows);
    if let Some(file) = json {
        fs::write(file, serde_json::to_vec_pretty(&rows)?)
            .with_context(|| file.display().to_string())?;
    }
    Ok(u8::from(rows.iter().any(|row| row.mixed)))
}

/// A program as a shell finds it.
fn find(root: &Path, program: &Path) -> Result<PathBuf> {
    if program.components().count() > 1 {
        return Ok(std::path::absolute(program)?);
    }
    let found = PROGRAMS
        .iter()
        .map(|dir| Path::new(dir).join(program))
        .find(|path| under(root, path).is_file());
    match found {
        Some(path) => Ok(path),
        None => bail!("{}: no such program", program.display()),
    }
}

/// Programs, and what programs load, of the system in `root`.
fn candidates(root: &Path) -> Vec<PathBuf> {
    let mut files = BTreeMap::new();
    let mut add = |dir: &Path| {
        for entry in fs::read_dir(under(root, dir))
            .into_iter()
            .flatten()
            .flatten()
        {
            // One row for a file that is reached by two ways (/bin is /usr/bin).
            if let Ok(real) = fs::canonicalize(entry.path())
                && real.is_file()
            {
                files.insert(real, dir.join(entry.file_name()));
            }
        }
    };
    for dir in PROGRAMS {
        add(Path::new(dir));
    }
    let libraries = format!("/usr/lib/{}", triplet());
    for dir in [libraries.as_str(), "/usr/lib64"] {
        for module in MODULES {
            add(&Path::new(dir).join(module));
        }
    }
    for package in ["pyverbs", "pyverbs/providers/mlx5"] {
        add(&Path::new("/usr/lib/python3/dist-packages").join(package));
    }
    let mut paths: Vec<_> = files.into_values().collect();
    paths.sort();
    paths
}

/// What programs of a system share.
struct System {
    root: PathBuf,
    loader: Loader,
    /// `RDMAV_DRIVERS` or `IBV_DRIVERS`.
    environment: Option<String>,
    /// Whether the libmlx5.so.1 is ours that a program gets which asks for it when it runs, if there is one.
    later: Option<bool>,
    /// What each libibverbs gives its devices to, read once.
    libraries: HashMap<PathBuf, Option<Owners>>,
}

/// What a libibverbs does.
#[derive(Clone)]
struct Owners {
    release: String,
    rxe: Owner,
    mlx5: Owner,
}

impl System {
    fn new(root: &Path) -> Self {
        // A tree's programs do not run in our environment.
        let own = root == Path::new("/");
        let variable = |name| std::env::var_os(name).filter(|_| own);
        let loader = Loader::new(root, variable("LD_LIBRARY_PATH"));
        let environment = variable("RDMAV_DRIVERS").or_else(|| variable("IBV_DRIVERS"));
        let later = loader.of_system(lab::drop_in::SONAME);
        Self {
            root: root.to_owned(),
            loader,
            environment: environment.map(|names| names.to_string_lossy().into_owned()),
            later: later.map(|file| is_ours(&under(root, &file))),
            libraries: HashMap::new(),
        }
    }

    fn owners(&mut self, libibverbs: &Path) -> Option<Owners> {
        let (root, environment) = (&self.root, self.environment.as_deref());
        let read = || {
            let library = Library::read(root, libibverbs)?;
            Some(Owners {
                rxe: library.owner("rxe", environment),
                mlx5: library.owner("mlx5", environment),
                release: library.release,
            })
        };
        self.libraries
            .entry(libibverbs.to_owned())
            .or_insert_with(read)
            .clone()
    }

    fn examine(&mut self, program: &Path) -> Option<Row> {
        let libraries = self.loader.closure(program)?;
        let owners = self.owners(libraries.get(VERBS)?)?;
        let libmlx5 = libraries.get(lab::drop_in::SONAME).cloned();
        // A linked libmlx5 registers itself before libibverbs looks for plug-ins.
        let mlx5 = match &libmlx5 {
            Some(file) if is_ours(&under(&self.root, file)) => Owner::Ours,
            Some(_) => Owner::Official,
            None => owners.mlx5,
        };
        let mixed = match (&libmlx5, self.later, mlx5) {
            (None, Some(ours), Owner::Ours) => !ours,
            (None, Some(ours), Owner::Official) => ours,
            _ => false,
        };
        Some(Row {
            program: program.to_owned(),
            rdma_core: owners.release,
            rxe: owners.rxe,
            mlx5,
            libmlx5,
            mixed,
        })
    }
}

fn print(rows: &[Row]) {
    let mut table = Table::new();
    table.load_preset(NOTHING).set_header([
        "program",
        "rdma-core",
        "rxe devices",
        "mlx5 devices",
        "libmlx5.so.1",
    ]);
    for row in rows {
        let libmlx5 = match &row.libmlx5 {
            Some(file) => file.display().to_string(),
            None if row.mixed => "not linked; the other one if loaded later".to_owned(),
            None => "not linked".to_owned(),
        };
        table.add_row([
            row.program.display().to_string(),
            row.rdma_core.clone(),
            row.rxe.word().to_owned(),
            row.mlx5.word().to_owned(),
            libmlx5,
        ]);
    }
    println!("{table}");
    let count = |is: fn(&Row) -> bool| rows.iter().filter(|row| is(row)).count();
    println!(
        "check: {} programs, rxe devices ours in {}, mlx5 devices ours in {}, {} mixed",
        rows.len(),
        count(|row| row.rxe == Owner::Ours),
        count(|row| row.mlx5 == Owner::Ours),
        count(|row| row.mixed),
    );
}
