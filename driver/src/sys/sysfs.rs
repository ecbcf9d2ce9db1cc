//! Small reads of `/sys`.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Where sysfs is mounted: `SYSFS_PATH` as libibverbs reads it (not in a set-user-id program,
/// trailing slashes ignored), else `/sys`.
pub fn root() -> PathBuf {
    // SAFETY: neither call has preconditions.
    let user = unsafe { libc::getuid() };
    // SAFETY: as above.
    let effective_user = unsafe { libc::geteuid() };
    let from_environment = (user == effective_user)
        .then(|| env::var_os("SYSFS_PATH"))
        .flatten();
    without_trailing_slashes(from_environment.unwrap_or_else(|| "/sys".into())).into()
}

fn without_trailing_slashes(path: OsString) -> OsString {
    let bytes = path.as_bytes();
    let len = bytes
        .iter()
        .rposition(|&byte| byte != b'/')
        .map_or(0, |last| last + 1);
    OsString::from_vec(bytes[..len].to_vec())
}

/// An attribute file without its final newline.
pub fn read(path: &Path) -> io::Result<String> {
    let mut text = fs::read_to_string(path)?;
    text.truncate(text.trim_end().len());
    Ok(text)
}

/// An attribute file that holds one decimal number, or begins with one (`1: CA`).
pub fn read_number(path: &Path) -> io::Result<u64> {
    let text = read(path)?;
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    text[..end].parse().map_err(|_| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{} is no number", path.display()),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailing_slashes_go() {
        for (path, kept) in [
            ("/sys", "/sys"),
            ("/fake/sys///", "/fake/sys"),
            ("/", ""),
            ("", ""),
        ] {
            assert_eq!(without_trailing_slashes(path.into()), OsString::from(kept));
        }
    }

    #[test]
    fn numbers_may_be_followed_by_a_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("node_type");
        fs::write(&path, "1: CA\n").unwrap();
        assert_eq!(read_number(&path).unwrap(), 1);
        fs::write(&path, "CA\n").unwrap();
        assert!(read_number(&path).is_err());
        assert!(read_number(&directory.path().join("missing")).is_err());
    }
}
