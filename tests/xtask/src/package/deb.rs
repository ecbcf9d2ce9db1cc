//! Writing a Debian binary package: `deb(5)`, `deb-control(5)`, Debian Policy chapters 5 and 6.
//!
//! Done here and not by `dpkg-deb`, so that the packages can be built where there is no dpkg. The same content gives the same
//! bytes.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use anyhow::{Context as _, Result};
use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{Builder, EntryType, Header};

/// A file of a package. Paths have no leading slash.
#[derive(Clone, Debug)]
pub(super) enum Content {
    Bytes(Vec<u8>),
    /// A symbolic link that says this.
    Link(String),
}

/// A package.
#[derive(Clone, Debug)]
pub(super) struct Deb {
    pub(super) name: &'static str,
    pub(super) version: String,
    pub(super) architecture: &'static str,
    pub(super) depends: String,
    /// One line, then the paragraph.
    pub(super) description: (&'static str, &'static str),
    /// Path and content of each file.
    pub(super) files: Vec<(String, Content)>,
    /// Maintainer scripts and other members of the control archive: name, text, whether it is run.
    pub(super) control: Vec<(&'static str, String, bool)>,
    /// Seconds since 1970 that files say.
    pub(super) time: u64,
}

impl Deb {
    pub(super) fn file_name(&self) -> String {
        format!("{}_{}_{}.deb", self.name, self.version, self.architecture)
    }

    fn control_text(&self) -> String {
        let bytes: usize = self
            .files
            .iter()
            .map(|(_, content)| match content {
                Content::Bytes(bytes) => bytes.len(),
                Content::Link(_) => 0,
            })
            .sum();
        let (line, paragraph) = self.description;
        let mut text = format!(
            "Package: {}\nVersion: {}\nArchitecture: {}\nMaintainer: The oxverbs developers\nInstalled-Size: {}\n\
             Depends: {}\nSection: net\nPriority: optional\nDescription: {line}\n",
            self.name,
            self.version,
            self.architecture,
            bytes.div_ceil(1024),
            self.depends,
        );
        for line in paragraph.lines() {
            let line = if line.is_empty() { "." } else { line };
            text.push_str(&format!(" {line}\n"));
        }
        text
    }

    /// Writes the package into a directory and gives its path.
    pub(super) fn write(&self, dir: &Path) -> Result<std::path::PathBuf> {
        let path = dir.join(self.file_name());
        let mut control = Archive::new(self.time);
        control.add("control", self.control_text().as_bytes(), 0o644)?;
        for (name, text, run) in &self.control {
            control.add(name, text.as_bytes(), if *run { 0o755 } else { 0o644 })?;
        }
        let mut data = Archive::new(self.time);
        let mut files = self.files.clone();
        files.sort_by(|(a, _), (b, _)| a.cmp(b));
        for (path, content) in &files {
            match content {
                Content::Bytes(bytes) => data.add(path, bytes, 0o644)?,
                Content::Link(target) => data.link(path, target)?,
            }
        }
        let file = File::create(&path).with_context(|| path.display().to_string())?;
        let mut deb = ar::Builder::new(file);
        for (name, bytes) in [
            ("debian-binary", b"2.0\n".to_vec()),
            ("control.tar.gz", control.finish()?),
            ("data.tar.gz", data.finish()?),
        ] {
            let mut header = ar::Header::new(name.into(), bytes.len() as u64);
            header.set_mode(0o100_644);
            header.set_mtime(self.time);
            deb.append(&header, bytes.as_slice())
                .with_context(|| path.display().to_string())?;
        }
        deb.into_inner()?.flush()?;
        Ok(path)
    }
}

/// A compressed tar with the directories that its files need, all owned by root.
struct Archive {
    tar: Builder<GzEncoder<Vec<u8>>>,
    directories: Vec<String>,
    time: u64,
}

impl Archive {
    fn new(time: u64) -> Self {
        // flate2 writes no time and no name of its own into the header.
        let gz = GzEncoder::new(Vec::new(), Compression::best());
        Self {
            tar: Builder::new(gz),
            directories: Vec::new(),
            time,
        }
    }

    fn header(&self, kind: EntryType, mode: u32, size: u64) -> Result<Header> {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(size);
        header.set_mtime(self.time);
        header.set_uid(0);
        header.set_gid(0);
        header.set_username("root")?;
        header.set_groupname("root")?;
        Ok(header)
    }

    /// `./` and each directory above a file, once.
    fn parents(&mut self, path: &str) -> Result<()> {
        let slashes = path.match_indices('/').map(|(at, _)| at + 1);
        for end in std::iter::once(0).chain(slashes).collect::<Vec<_>>() {
            let dir = format!("./{}", &path[..end]);
            if !self.directories.contains(&dir) {
                let mut header = self.header(EntryType::Directory, 0o755, 0)?;
                self.tar.append_data(&mut header, &dir, std::io::empty())?;
                self.directories.push(dir);
            }
        }
        Ok(())
    }

    fn add(&mut self, path: &str, bytes: &[u8], mode: u32) -> Result<()> {
        self.parents(path)?;
        let mut header = self.header(EntryType::Regular, mode, bytes.len() as u64)?;
        self.tar
            .append_data(&mut header, format!("./{path}"), bytes)?;
        Ok(())
    }

    fn link(&mut self, path: &str, target: &str) -> Result<()> {
        self.parents(path)?;
        let mut header = self.header(EntryType::Symlink, 0o777, 0)?;
        self.tar
            .append_link(&mut header, format!("./{path}"), target)?;
        Ok(())
    }

    fn finish(self) -> Result<Vec<u8>> {
        Ok(self.tar.into_inner()?.finish()?)
    }
}
