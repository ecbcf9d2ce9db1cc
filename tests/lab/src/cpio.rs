//! The `newc` cpio format, in which Linux takes its initial file system
//! (kernel documentation, `driver-api/early-userspace/buffer-format`).

const REGULAR: u32 = 0o100_000;
const DIRECTORY: u32 = 0o040_000;
const SYMLINK: u32 = 0o120_000;
const CHARACTER: u32 = 0o020_000;

/// An archive under construction.
#[derive(Debug, Default)]
pub struct Archive {
    bytes: Vec<u8>,
    inode: u32,
}

impl Archive {
    /// A directory; parents must have been added before.
    pub fn directory(&mut self, path: &str) {
        self.entry(path, DIRECTORY | 0o755, (0, 0), b"");
    }

    /// A regular file.
    pub fn file(&mut self, path: &str, permissions: u32, content: &[u8]) {
        self.entry(path, REGULAR | permissions, (0, 0), content);
    }

    /// A symbolic link.
    pub fn symlink(&mut self, path: &str, target: &str) {
        self.entry(path, SYMLINK | 0o777, (0, 0), target.as_bytes());
    }

    /// A character device.
    pub fn character_device(&mut self, path: &str, permissions: u32, major: u32, minor: u32) {
        self.entry(path, CHARACTER | permissions, (major, minor), b"");
    }

    /// The finished archive.
    pub fn finish(mut self) -> Vec<u8> {
        self.inode = 0;
        self.entry("TRAILER!!!", 0, (0, 0), b"");
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, device: (u32, u32), content: &[u8]) {
        self.inode += 1;
        let name_size = path.len() as u32 + 1;
        let fields = [
            self.inode,
            mode,
            0, // uid
            0, // gid
            1, // nlink
            0, // mtime: the same input gives the same archive
            content.len() as u32,
            0, // device major
            0, // device minor
            device.0,
            device.1,
            name_size,
            0, // check, unused in newc
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes
                .extend_from_slice(format!("{field:08X}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        while !self.bytes.len().is_multiple_of(4) {
            self.bytes.push(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_file_byte_for_byte() {
        let mut archive = Archive::default();
        archive.file("ab", 0o644, b"xyz");
        let expected = "070701\
            00000001\
            000081A4\
            00000000\
            00000000\
            00000001\
            00000000\
            00000003\
            00000000\
            00000000\
            00000000\
            00000000\
            00000003\
            00000000\
            ab\0\0\0\0xyz\0";
        let bytes = archive.finish();
        let first = &bytes[..expected.len()];
        // 110 bytes of header + "ab\0" = 113, padded to 116; three bytes of content padded to four.
        assert_eq!(String::from_utf8_lossy(first), expected);
        assert_eq!(bytes.len() % 4, 0);
        assert!(String::from_utf8_lossy(&bytes).contains("TRAILER!!!"));
    }
}
