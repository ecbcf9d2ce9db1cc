//! Registration and the claiming of devices.

use std::ffi::{CStr, c_char};
use std::ptr;

use crate::abi::driver::{
    VERBS_MATCH_DRIVER_ID, VERBS_MATCH_MODALIAS, VERBS_MATCH_SENTINEL, match_key, verbs_device,
    verbs_device_ops, verbs_match_ent, verbs_sysfs_dev,
};
use crate::{context, door, library, log};

/// `RDMA_DRIVER_RXE` (uapi `rdma/ib_user_ioctl_verbs.h`).
pub(crate) const DRIVER_RXE: u64 = 14;

#[repr(transparent)]
struct Table<T>(T);

// SAFETY: the values hold pointers to statics that nobody writes.
unsafe impl<T> Sync for Table<T> {}

const fn entry(kind: u8, u: match_key) -> verbs_match_ent {
    verbs_match_ent {
        driver_data: ptr::null_mut(),
        u,
        vendor: 0,
        device: 0,
        kind,
    }
}

static MATCHES: Table<[verbs_match_ent; 3]> = Table([
    entry(
        VERBS_MATCH_DRIVER_ID,
        match_key {
            driver_id: DRIVER_RXE,
        },
    ),
    // What libibverbs compares where the kernel does not say the driver: the device's name.
    entry(
        VERBS_MATCH_MODALIAS,
        match_key {
            modalias: c"rdma_device:Nrxe*".as_ptr(),
        },
    ),
    entry(VERBS_MATCH_SENTINEL, match_key { driver_id: 0 }),
]);

static DEVICE_OPS: Table<verbs_device_ops> = Table(verbs_device_ops {
    name: c"oxverbs".as_ptr(),
    // rxe's kernel ABI: 2 since Linux 4.18, 1 before (equal on 64-bit).
    match_min_abi_version: 1,
    match_max_abi_version: 2,
    match_table: (&raw const MATCHES).cast(),
    static_providers: ptr::null_mut(),
    match_device: Some(match_device),
    alloc_context: Some(context::alloc_context),
    import_context: None,
    alloc_device: Some(alloc_device),
    uninit_device: Some(uninit_device),
});

/// Runs when the shared object is loaded.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = register;

extern "C" fn register() {
    door::guarded("loading", || match library::find() {
        Ok(library) => {
            // SAFETY: the library keeps the pointer, which is to a static; the table has the layout of all releases.
            unsafe { (library.register)(&raw const DEVICE_OPS.0) };
            log::trace(format_args!(
                "registered with the libibverbs of rdma-core {}",
                library.layout.release
            ));
        }
        // Our own test programs link this package without libibverbs.
        Err(library::Refusal::NotLoaded) => {}
        Err(refusal) => log::always(format_args!("not registered: {refusal}")),
    });
}

/// `OXVERBS_DEVICES=a,b` claims only these devices.
unsafe extern "C" fn match_device(device: *mut verbs_sysfs_dev) -> bool {
    door::guarded("match_device", || {
        let Some(wanted) = std::env::var_os("OXVERBS_DEVICES") else {
            return true;
        };
        // SAFETY: libibverbs passes a device that it found; the name's place is the same in all releases.
        let name = unsafe { &raw const (*device).ibdev_name };
        // SAFETY: NUL-terminated within 64 bytes, as libibverbs filled it.
        let name = unsafe { CStr::from_ptr(name.cast::<c_char>()) };
        let wanted = wanted.to_string_lossy();
        wanted
            .split(',')
            .any(|wanted| wanted.as_bytes() == name.to_bytes())
    })
    .unwrap_or(false)
}

unsafe extern "C" fn alloc_device(_: *mut verbs_sysfs_dev) -> *mut verbs_device {
    door::control("alloc_device", || {
        // SAFETY: all-zero is what libibverbs expects of a new device.
        let device: verbs_device = unsafe { std::mem::zeroed() };
        Ok(Box::into_raw(Box::new(device)))
    })
}

unsafe extern "C" fn uninit_device(device: *mut verbs_device) {
    door::guarded("uninit_device", || {
        // SAFETY: libibverbs gives back a device that `alloc_device` made, once.
        drop(unsafe { Box::from_raw(device) });
    });
}
