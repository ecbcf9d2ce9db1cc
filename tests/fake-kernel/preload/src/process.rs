//! The process's one fake kernel.

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::OnceLock;

use fake_kernel::{Config, FakeKernel, sysfs};

/// The kernel and what belongs to it.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) kernel: FakeKernel,
    tree: Option<PathBuf>,
}

static PROCESS: OnceLock<Process> = OnceLock::new();

thread_local! {
    /// Whether this thread is inside the fake kernel, whose own calls of libc go to Linux.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Runs `f` with the fake kernel, or answers `None` if the thread is inside it already or the process has
/// not come so far as to have one.
pub(crate) fn with<T>(f: impl FnOnce(&FakeKernel) -> Option<T>) -> Option<T> {
    if INSIDE.get() {
        return None;
    }
    let process = PROCESS.get()?;
    // A call that succeeds does not touch errno, whatever this side's own calls say.
    let errno = errno();
    INSIDE.set(true);
    let result = f(&process.kernel);
    INSIDE.set(false);
    set_errno(errno);
    result
}

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Sets the calling thread's errno.
pub(crate) fn set_errno(errno: i32) {
    // SAFETY: libc's own place for the calling thread's errno.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: valid, and no other thread's.
    unsafe { *place = errno };
}

/// Runs before `main`: makes the kernel and the tree that its devices are found by.
extern "C" fn start() {
    INSIDE.set(true);
    let words = std::env::var("OXVERBS_FAKE").unwrap_or_default();
    match Config::parse(&words) {
        Ok(config) => {
            let tree = make_tree(config.devices);
            let kernel = FakeKernel::new(config);
            kernel.record(std::env::var_os("OXVERBS_FAKE_RECORD").is_some());
            let _ = PROCESS.set(Process { kernel, tree });
        }
        Err(error) => eprintln!("OXVERBS_FAKE: {error}"),
    }
    INSIDE.set(false);
}

fn make_tree(devices: usize) -> Option<PathBuf> {
    let tree = std::env::temp_dir().join(format!("fake-uverbs-{}", std::process::id()));
    if let Err(error) = sysfs::write_tree(&tree, devices) {
        eprintln!("{}: {error}", tree.display());
        return None;
    }
    // SAFETY: before `main` there is no other thread that reads or writes the environment.
    unsafe { std::env::set_var("SYSFS_PATH", &tree) };
    Some(tree)
}

extern "C" fn end() {
    INSIDE.set(true);
    if let Some(process) = PROCESS.get() {
        if let Some(path) = std::env::var_os("OXVERBS_FAKE_RECORD") {
            let lines: String = process
                .kernel
                .take_recorded()
                .iter()
                .filter_map(|call| serde_json::to_string(call).ok())
                .map(|line| line + "\n")
                .collect();
            // A process that made no call, such as the shell around the program, has nothing to say.
            if !lines.is_empty()
                && let Err(error) = std::fs::write(&path, lines)
            {
                eprintln!("{}: {error}", PathBuf::from(path).display());
            }
        }
        // A forked child leaves its parent's tree alone.
        let own = format!("fake-uverbs-{}", std::process::id());
        if let Some(tree) = process.tree.as_ref().filter(|tree| tree.ends_with(&own)) {
            let _ = std::fs::remove_dir_all(tree);
        }
    }
    INSIDE.set(false);
}

// SAFETY: the section is the list of functions that the loader calls before `main`; `start` has their type.
#[unsafe(link_section = ".init_array")]
#[used]
static START: extern "C" fn() = start;
// SAFETY: as above, for the end of the process.
#[unsafe(link_section = ".fini_array")]
#[used]
static END: extern "C" fn() = end;
