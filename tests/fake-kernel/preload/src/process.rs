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

/// Told when a thread enters the fake kernel (`true`) and when it leaves.
static WATCHER: OnceLock<fn(bool)> = OnceLock::new();

/// From now on `watcher` is called, by the thread itself, before each call that the fake kernel looks at (`true`) and after
/// it: what a program costs can then be told from what the fake kernel costs. Only the first one is taken.
pub fn watch(watcher: fn(bool)) {
    let _ = WATCHER.set(watcher);
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
    let watcher = WATCHER.get();
    if let Some(watcher) = watcher {
        watcher(true);
    }
    let result = f(&process.kernel);
    if let Some(watcher) = watcher {
        watcher(false);
    }
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

/// Runs before `main`: the shared object starts with what the environment says. Linked into an
/// executable it waits for [`start`](crate::start).
extern "C" fn init() {
    if is_in_executable() {
        return;
    }
    INSIDE.set(true);
    let words = std::env::var("OXVERBS_FAKE").unwrap_or_default();
    match Config::parse(&words) {
        Ok(config) => {
            start(config);
        }
        Err(error) => eprintln!("OXVERBS_FAKE: {error}"),
    }
    INSIDE.set(false);
}

/// Whether this code is a part of the program itself and not of a preloaded library: the program's
/// headers (`AT_PHDR`, `getauxval(3)`) then follow the ELF header that this code's addresses count from.
fn is_in_executable() -> bool {
    // SAFETY: zero bytes are a valid `Dl_info`.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    let address = is_in_executable as *const ();
    // SAFETY: `info` outlives the call; any address may be asked for.
    if unsafe { libc::dladdr(address.cast(), &raw mut info) } == 0 {
        return false;
    }
    // SAFETY: no pointer is passed.
    let headers = unsafe { libc::getauxval(libc::AT_PHDR) } as usize;
    let base = info.dli_fbase.expose_provenance();
    headers == base + size_of::<libc::Elf64_Ehdr>()
}

/// Makes the kernel and the tree that its devices are found by, unless that has happened.
pub(crate) fn start(config: Config) -> &'static FakeKernel {
    let was_inside = INSIDE.replace(true);
    let process = PROCESS.get_or_init(|| {
        let tree = make_tree(&config);
        let kernel = FakeKernel::new(config);
        kernel.record(std::env::var_os("OXVERBS_FAKE_RECORD").is_some());
        Process { kernel, tree }
    });
    INSIDE.set(was_inside);
    &process.kernel
}

fn make_tree(config: &Config) -> Option<PathBuf> {
    let tree = std::env::temp_dir().join(format!("fake-uverbs-{}", std::process::id()));
    // One that is there was left by a dead process of our number, or by the program that `exec` replaced.
    let _ = std::fs::remove_dir_all(&tree);
    if let Err(error) = sysfs::write_tree(&tree, config) {
        eprintln!("{}: {error}", tree.display());
        return None;
    }
    // SAFETY: before `main`, or by the contract of `start`, there is no other thread that reads or writes
    // the environment.
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

// SAFETY: the section is the list of functions that the loader calls before `main`; `init` has their type.
#[unsafe(link_section = ".init_array")]
#[used]
static INIT: extern "C" fn() = init;
// SAFETY: as above, for the end of the process.
#[unsafe(link_section = ".fini_array")]
#[used]
static END: extern "C" fn() = end;
