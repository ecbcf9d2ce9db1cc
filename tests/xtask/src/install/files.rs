//! Files that are written, linked and removed, with errors that say what to do.

use std::fs;
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Result, bail};

/// Refuses to replace a file that `ours` does not know.
pub(super) fn foreign(path: &Path, ours: impl Fn(&Path) -> io::Result<bool>) -> Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(explain(error, path)),
        Ok(_) if ours(path).unwrap_or(false) => Ok(()),
        Ok(_) => bail!(
            "{} exists and is not ours; move it away or choose another --prefix",
            path.display()
        ),
    }
}

/// Whether a symbolic link says `target`.
pub(super) fn leads_to(path: &Path, target: &Path) -> io::Result<bool> {
    Ok(fs::read_link(path)? == target)
}

/// Makes a symbolic link, if it is not there.
pub(super) fn link(path: &Path, target: &Path) -> Result<()> {
    if leads_to(path, target).unwrap_or(false) {
        return Ok(());
    }
    symlink(target, path).map_err(|error| explain(error, path))
}

/// Makes the directory of a file, and those above it.
pub(super) fn make_parent(path: &Path) -> Result<()> {
    let Some(dir) = path.parent() else {
        return Ok(());
    };
    fs::create_dir_all(dir).map_err(|error| explain(error, dir))
}

/// Writes beside and renames: a program that has the old file mapped keeps it whole.
pub(super) fn write_anew(path: &Path, bytes: &[u8]) -> Result<()> {
    make_parent(path)?;
    let new = path.with_extension("new");
    let write = || -> io::Result<()> {
        let mut file = fs::File::create(&new)?;
        file.write_all(bytes)?;
        drop(file);
        fs::rename(&new, path)
    };
    write().map_err(|error| {
        let _ = fs::remove_file(&new);
        explain(error, path)
    })
}

/// Removes a file that may not be there, and tells whether it was.
pub(super) fn remove(path: &Path) -> Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(explain(error, path)),
    }
}

/// An error of the file system with what helps against it.
pub(super) fn explain(error: io::Error, path: &Path) -> anyhow::Error {
    let advice = match error.kind() {
        ErrorKind::PermissionDenied => "; run it as root, or choose a --prefix of your own",
        ErrorKind::ReadOnlyFilesystem => "; choose a --prefix on a file system that is writable",
        _ => "",
    };
    anyhow::anyhow!("{}: {error}{advice}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_what_to_do() {
        let error = explain(ErrorKind::PermissionDenied.into(), Path::new("/usr/x")).to_string();
        assert!(
            error.starts_with("/usr/x: ") && error.ends_with("or choose a --prefix of your own"),
            "{error}"
        );
    }
}
