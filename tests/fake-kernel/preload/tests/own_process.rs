//! An executable that interposes its own calls: libibverbs, loaded into this process, finds the fake devices.

use std::ffi::{CStr, c_char, c_int, c_void};

use fake_kernel::Config;

/// A function of a loaded library.
fn symbol(library: *mut c_void, name: &CStr) -> *mut c_void {
    // SAFETY: a handle from dlopen and a C string.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    assert!(!found.is_null(), "{name:?}");
    found
}

type GetDeviceList = unsafe extern "C" fn(*mut c_int) -> *mut *mut c_void;
type GetDeviceName = unsafe extern "C" fn(*mut c_void) -> *const c_char;
type OpenDevice = unsafe extern "C" fn(*mut c_void) -> *mut c_void;
type CloseDevice = unsafe extern "C" fn(*mut c_void) -> c_int;

fn main() {
    let config = Config::parse("devices=2").expect("settings");
    // SAFETY: there is no other thread yet.
    let kernel = unsafe { fake_kernel_preload::start(config) };
    // SAFETY: the library's constructors are those of libibverbs.
    let library = unsafe { libc::dlopen(c"libibverbs.so.1".as_ptr(), libc::RTLD_NOW) };
    if library.is_null() {
        return test_support::skip(
            "fake-kernel-preload::own_process",
            "libibverbs is not installed",
        );
    }
    // SAFETY: the types are those of `infiniband/verbs.h`.
    let list: GetDeviceList =
        unsafe { std::mem::transmute(symbol(library, c"ibv_get_device_list")) };
    // SAFETY: as above.
    let name: GetDeviceName =
        unsafe { std::mem::transmute(symbol(library, c"ibv_get_device_name")) };
    // SAFETY: as above.
    let open: OpenDevice = unsafe { std::mem::transmute(symbol(library, c"ibv_open_device")) };
    // SAFETY: as above.
    let close: CloseDevice = unsafe { std::mem::transmute(symbol(library, c"ibv_close_device")) };

    let mut n = 0;
    // SAFETY: the count outlives the call.
    let devices = unsafe { list(&raw mut n) };
    assert_eq!(n, 2, "devices found; the fake kernel has two");
    // SAFETY: the list has two entries.
    let second = unsafe { devices.add(1) };
    // SAFETY: as above.
    let second = unsafe { *second };
    // SAFETY: a device of the list.
    let told = unsafe { name(second) };
    // SAFETY: a C string of the device's.
    let told = unsafe { CStr::from_ptr(told) };
    assert_eq!(told, c"rxe1");
    // SAFETY: a device of the list.
    let context = unsafe { open(second) };
    assert!(!context.is_null());
    assert_eq!(kernel.census().contexts, 1);
    assert!(kernel.calls() > 0);
    // SAFETY: a context that nothing uses.
    assert_eq!(unsafe { close(context) }, 0);
    assert!(kernel.census().is_empty());
}
