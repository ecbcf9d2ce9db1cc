//! The libibverbs that loaded us: which release it is, and the four functions of it that we need.

use std::ffi::{CStr, CString, c_int, c_void};
use std::fmt;
use std::path::Path;
use std::sync::OnceLock;

use crate::abi::driver::verbs_device_ops;
use crate::abi::objects::ibv_device;
#[cfg(feature = "drop-in")]
use crate::abi::objects::{ibv_comp_channel, ibv_context, ibv_cq};
use crate::abi::release::{Layout, NEWEST, OLDEST};

/// `verbs_register_driver_NN`.
type Register = unsafe extern "C" fn(*const verbs_device_ops);
/// `_verbs_init_and_alloc_context`: device, command descriptor, bytes, offset of `verbs_context`, driver number.
type InitContext =
    unsafe extern "C" fn(*mut ibv_device, c_int, usize, *mut c_void, u32) -> *mut c_void;
/// `verbs_set_ops`: context and a `verbs_context_ops` of the library's own layout.
type SetOps = unsafe extern "C" fn(*mut c_void, *const c_void);
/// `verbs_uninit_context`.
type UninitContext = unsafe extern "C" fn(*mut c_void);

/// `verbs_open_device`: device, and what its provider is given.
#[cfg(feature = "drop-in")]
type OpenDevice = unsafe extern "C" fn(*mut ibv_device, *mut c_void) -> *mut ibv_context;
/// `ibv_close_device`.
#[cfg(feature = "drop-in")]
type CloseDevice = unsafe extern "C" fn(*mut ibv_context) -> c_int;
/// `verbs_init_cq`: queue, context, channel, the program's pointer.
#[cfg(feature = "drop-in")]
type InitCq =
    unsafe extern "C" fn(*mut ibv_cq, *mut ibv_context, *mut ibv_comp_channel, *mut c_void);

/// The library and what we know of it.
#[derive(Debug)]
pub(crate) struct Library {
    pub(crate) layout: Layout,
    pub(crate) register: Register,
    pub(crate) init_context: InitContext,
    pub(crate) set_ops: SetOps,
    pub(crate) uninit_context: UninitContext,
    /// The variable that makes destruction succeed on a device that is gone; absent before it was exported.
    allow_disassociate: Option<AllowDisassociate>,
    /// What only libmlx5 needs of it.
    #[cfg(feature = "drop-in")]
    open_device: Option<OpenDevice>,
    #[cfg(feature = "drop-in")]
    close_device: Option<CloseDevice>,
    #[cfg(feature = "drop-in")]
    init_cq: Option<InitCq>,
}

/// Address of a C `bool` of the library.
#[derive(Clone, Copy, Debug)]
struct AllowDisassociate(*const u8);

// SAFETY: an address of a variable that is set while the library is initialised and only read afterwards.
unsafe impl Send for AllowDisassociate {}
// SAFETY: as above.
unsafe impl Sync for AllowDisassociate {}

/// Why the library can't be used.
#[derive(Debug)]
pub(crate) enum Refusal {
    NotLoaded,
    Missing(&'static CStr),
    Nameless(String),
    UnknownRelease(u32, String),
    OtherNumber { release: u32, number: u32 },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLoaded => f.write_str("libibverbs.so.1 is not loaded in this process"),
            Self::Missing(name) => write!(f, "libibverbs.so.1 has no {}", name.to_string_lossy()),
            Self::Nameless(path) => write!(
                f,
                "can't tell the rdma-core release of {path}: expected a file name such as libibverbs.so.1.14.56.1"
            ),
            Self::UnknownRelease(release, path) => write!(
                f,
                "{path} is of rdma-core {release}; this build knows the private ABI of {OLDEST} to {NEWEST} and does not guess"
            ),
            Self::OtherNumber { release, number } => write!(
                f,
                "a libibverbs of rdma-core {release} should register providers by number {number}, but does not"
            ),
        }
    }
}

static LIBRARY: OnceLock<Library> = OnceLock::new();

/// The library, once [`find`] found it.
pub(crate) fn library() -> Option<&'static Library> {
    LIBRARY.get()
}

/// Finds the library that this process has loaded.
pub(crate) fn find() -> Result<&'static Library, Refusal> {
    if let Some(known) = LIBRARY.get() {
        return Ok(known);
    }
    let found = search()?;
    Ok(LIBRARY.get_or_init(|| found))
}

fn search() -> Result<Library, Refusal> {
    // NOLOAD: the one that is there. RTLD_DEFAULT would miss a library that the program opened locally, as NCCL does.
    // SAFETY: a NUL-terminated name; nothing is loaded, so no foreign code runs.
    let handle = unsafe {
        libc::dlopen(
            c"libibverbs.so.1".as_ptr(),
            libc::RTLD_NOLOAD | libc::RTLD_LAZY,
        )
    };
    if handle.is_null() {
        return Err(Refusal::NotLoaded);
    }
    let need = |name: &'static CStr| symbol(handle, name).ok_or(Refusal::Missing(name));
    let init_context = need(c"_verbs_init_and_alloc_context")?;
    let path = path_of(init_context).ok_or_else(|| Refusal::Nameless("?".to_owned()))?;
    let release = release_of(&path).ok_or_else(|| Refusal::Nameless(path.clone()))?;
    let layout = Layout::of_release(release).ok_or(Refusal::UnknownRelease(release, path))?;
    let number = layout.pabi;
    let register = CString::new(format!("verbs_register_driver_{number}")).ok();
    let register = register
        .and_then(|name| symbol(handle, &name))
        .ok_or(Refusal::OtherNumber { release, number })?;
    let set_ops = need(c"verbs_set_ops")?;
    let uninit_context = need(c"verbs_uninit_context")?;
    let allow_disassociate = symbol(handle, c"verbs_allow_disassociate_destroy")
        .map(|place| AllowDisassociate(place.cast_const().cast()));
    // The handle is never closed: the library stays as long as we are registered with it.
    Ok(Library {
        layout,
        // SAFETY: the function of that name has this type in every release that has the number.
        register: unsafe { std::mem::transmute::<*mut c_void, Register>(register) },
        // SAFETY: as above; the signature is the same in 34 to 65.
        init_context: unsafe { std::mem::transmute::<*mut c_void, InitContext>(init_context) },
        // SAFETY: as above.
        set_ops: unsafe { std::mem::transmute::<*mut c_void, SetOps>(set_ops) },
        // SAFETY: as above.
        uninit_context: unsafe {
            std::mem::transmute::<*mut c_void, UninitContext>(uninit_context)
        },
        allow_disassociate,
        #[cfg(feature = "drop-in")]
        open_device: symbol(handle, c"verbs_open_device").map(|place| {
            // SAFETY: the function of that name has this type in 34 to 65.
            unsafe { std::mem::transmute::<*mut c_void, OpenDevice>(place) }
        }),
        #[cfg(feature = "drop-in")]
        close_device: symbol(handle, c"ibv_close_device").map(|place| {
            // SAFETY: a public function.
            unsafe { std::mem::transmute::<*mut c_void, CloseDevice>(place) }
        }),
        #[cfg(feature = "drop-in")]
        init_cq: symbol(handle, c"verbs_init_cq").map(|place| {
            // SAFETY: the function of that name has this type in 34 to 65.
            unsafe { std::mem::transmute::<*mut c_void, InitCq>(place) }
        }),
    })
}

#[cfg(feature = "drop-in")]
impl Library {
    /// Opens a device as `ibv_open_device` does, with something for its provider.
    pub(crate) fn open_device(&self) -> Option<OpenDevice> {
        self.open_device
    }

    /// Closes a device.
    pub(crate) fn close_device(&self) -> Option<CloseDevice> {
        self.close_device
    }

    /// Makes the rest of a completion queue, as `ibv_create_cq` does.
    pub(crate) fn init_cq(&self) -> Option<InitCq> {
        self.init_cq
    }
}

impl Library {
    /// Whether destroying objects of a device that is gone counts as success (`RDMAV_ALLOW_DISASSOC_DESTROY`).
    pub(crate) fn allows_disassociate(&self) -> bool {
        match self.allow_disassociate {
            // SAFETY: a C bool of the library, which stays loaded; written only while it is initialised.
            Some(AllowDisassociate(place)) => (unsafe { place.read_volatile() }) != 0,
            None => false,
        }
    }
}

fn symbol(handle: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a handle from dlopen and a NUL-terminated name.
    let place = unsafe { libc::dlsym(handle, name.as_ptr()) };
    (!place.is_null()).then_some(place)
}

/// The file that an address was loaded from, with links resolved.
pub(crate) fn path_of(address: *mut c_void) -> Option<String> {
    // SAFETY: an all-zero Dl_info is a valid one to be filled.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be asked for; `info` is ours.
    if unsafe { libc::dladdr(address, &raw mut info) } == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: dladdr answered a NUL-terminated string that lives as long as the library.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    let path = Path::new(name.to_str().ok()?);
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    Some(path.to_string_lossy().into_owned())
}

/// The release in a file name: `libibverbs.so.1.14.56.1` is of 56.
fn release_of(path: &str) -> Option<u32> {
    let file = path.rsplit('/').next()?;
    let numbers = file.strip_prefix("libibverbs.so.1.")?;
    let mut numbers = numbers.split('.');
    // the library's own minor number
    numbers.next()?.parse::<u32>().ok()?;
    let release = numbers.next()?.parse().ok()?;
    numbers.next()?.parse::<u32>().ok()?;
    numbers.next().is_none().then_some(release)
}

#[cfg(test)]
mod tests {
    use super::release_of;

    #[test]
    fn the_release_is_in_the_file_name() {
        let lib = "/usr/lib/x86_64-linux-gnu/libibverbs.so.1";
        assert_eq!(release_of(&format!("{lib}.14.44.0")), Some(44));
        assert_eq!(release_of(&format!("{lib}.14.56.1")), Some(56));
        assert_eq!(release_of(&format!("{lib}.18.65.0")), Some(65));
        for other in ["", ".14", ".14.56", ".14.56.1.2", ".x.56.1", ".14.y.1"] {
            assert_eq!(release_of(&format!("{lib}{other}")), None, "{other}");
        }
        assert_eq!(release_of("/opt/libother.so.1.14.56.1"), None);
    }
}
