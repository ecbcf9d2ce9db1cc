//! Registration and the claiming of devices.

use std::ffi::{CStr, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use oxverbs::ffi_core::uverbs_abi::types::DriverId;

use crate::abi::driver::{
    VERBS_MATCH_DRIVER_ID, VERBS_MATCH_MODALIAS, VERBS_MATCH_PCI, VERBS_MATCH_SENTINEL, match_key,
    verbs_device, verbs_device_ops, verbs_match_ent, verbs_sysfs_dev,
};
use crate::context::{self, Family};
use crate::{door, library, log, mlx5, rxe};

/// A value that C reads and nobody writes.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Static<T>(pub(crate) T);

// SAFETY: the values hold pointers to statics and functions that nobody writes.
unsafe impl<T> Sync for Static<T> {}

const fn entry(kind: u8, u: match_key, vendor: u16, device: u16) -> verbs_match_ent {
    verbs_match_ent {
        driver_data: ptr::null_mut(),
        u,
        vendor,
        device,
        kind,
    }
}

/// Matches devices of a kernel driver, where the kernel says which it is.
pub(crate) const fn match_driver(driver: DriverId) -> verbs_match_ent {
    let driver_id = driver.0 as u64;
    entry(VERBS_MATCH_DRIVER_ID, match_key { driver_id }, 0, 0)
}

/// Matches by a shell pattern over `rdma_device:N…`.
pub(crate) const fn match_name(pattern: &'static CStr) -> verbs_match_ent {
    let modalias = pattern.as_ptr();
    entry(VERBS_MATCH_MODALIAS, match_key { modalias }, 0, 0)
}

/// Matches a PCI device.
pub(crate) const fn match_pci(vendor: u16, device: u16) -> verbs_match_ent {
    let modalias = ptr::null();
    entry(VERBS_MATCH_PCI, match_key { modalias }, vendor, device)
}

/// Ends a table.
pub(crate) const fn match_end() -> verbs_match_ent {
    entry(VERBS_MATCH_SENTINEL, match_key { driver_id: 0 }, 0, 0)
}

/// What a family registers.
pub(crate) const fn device_ops<F: Family>(
    name: &'static CStr,
    min_abi: u32,
    max_abi: u32,
    matches: *const verbs_match_ent,
) -> verbs_device_ops {
    verbs_device_ops {
        name: name.as_ptr(),
        match_min_abi_version: min_abi,
        match_max_abi_version: max_abi,
        match_table: matches,
        static_providers: ptr::null_mut(),
        match_device: Some(match_device::<F>),
        alloc_context: Some(context::alloc_context::<F>),
        import_context: if F::IMPORT.is_some() {
            Some(context::import_context::<F>)
        } else {
            None
        },
        alloc_device: Some(alloc_device),
        uninit_device: Some(uninit_device),
    }
}

/// Runs when the shared object is loaded.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = register;

extern "C" fn register() {
    door::guarded("loading", || match library::find() {
        Ok(library) => {
            let families: &[_] = if cfg!(feature = "drop-in") {
                // what libmlx5 serves
                &[&mlx5::DEVICE_OPS]
            } else {
                &[&rxe::DEVICE_OPS, &mlx5::DEVICE_OPS]
            };
            for ops in families {
                // SAFETY: the library keeps the pointer, which is to a static; the table has the layout of all releases.
                unsafe { (library.register)(&raw const ops.0) };
            }
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

/// When devices of a family are ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// Always, unless `OXVERBS_DEVICES` names others only.
    UnlessOthersAreNamed,
    /// If `OXVERBS_DEVICES` names it, or, without that variable, if a file of this name stands beside the plug-in
    /// (`cargo xtask install` makes it on request).
    #[allow(
        dead_code,
        reason = "for mlx5 devices, whose room is not furnished yet"
    )]
    OnRequest(&'static str),
}

impl Claim {
    fn takes(self, device: &[u8], named: Option<&OsStr>, beside: impl Fn(&str) -> bool) -> bool {
        match (named, self) {
            (Some(names), _) => names.as_bytes().split(|b| *b == b',').any(|n| n == device),
            (None, Self::UnlessOthersAreNamed) => true,
            (None, Self::OnRequest(file)) => beside(file),
        }
    }
}

/// Whether a file stands in the directory that this code was loaded from.
fn stands_beside_us(file: &str) -> bool {
    library::path_of(stands_beside_us as *mut c_void)
        .as_deref()
        .map(Path::new)
        .and_then(Path::parent)
        .is_some_and(|dir| dir.join(file).exists())
}

unsafe extern "C" fn match_device<F: Family>(device: *mut verbs_sysfs_dev) -> bool {
    door::guarded("match_device", || {
        // libibverbs leaves to us what an entry of the table, or none, means.
        // SAFETY: libibverbs passes a device that it found; the field's place is the same in all releases.
        if unsafe { (*device).r#match }.is_null() {
            return false;
        }
        // SAFETY: libibverbs passes a device that it found; the name's place is the same in all releases.
        let name = unsafe { &raw const (*device).ibdev_name };
        // SAFETY: NUL-terminated within 64 bytes, as libibverbs filled it.
        let name = unsafe { CStr::from_ptr(name.cast::<c_char>()) };
        let named = std::env::var_os("OXVERBS_DEVICES");
        F::CLAIM.takes(name.to_bytes(), named.as_deref(), stands_beside_us)
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

#[cfg(test)]
mod tests {
    use super::Claim;
    use std::ffi::OsStr;

    #[test]
    fn who_is_claimed() {
        let on_request = Claim::OnRequest("marker");
        let with = |present: bool| move |file: &str| present && file == "marker";
        // (claim, variable, marker is there, claimed)
        for (claim, named, marker, claimed) in [
            (Claim::UnlessOthersAreNamed, None, false, true),
            (Claim::UnlessOthersAreNamed, Some("mlx5_0"), true, false),
            (Claim::UnlessOthersAreNamed, Some("a,dev0"), false, true),
            (Claim::UnlessOthersAreNamed, Some("dev01"), false, false),
            (Claim::UnlessOthersAreNamed, Some(""), false, false),
            (on_request, None, false, false),
            (on_request, None, true, true),
            (on_request, Some("dev0"), false, true),
            (on_request, Some("dev1"), true, false),
        ] {
            let named = named.map(OsStr::new);
            assert_eq!(
                claim.takes(b"dev0", named, with(marker)),
                claimed,
                "{claim:?} {named:?} {marker}"
            );
        }
    }
}
