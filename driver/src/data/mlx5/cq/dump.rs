//! What is written about a completion in error, if the program's user asked for it.
//!
//! libmlx5 prints every error completion but the common ones into the file that `MLX5_DEBUG_FILE` names, and nothing
//! without it. People and their scripts know that text, so ours is the same.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use wqe_format::mlx5::{ErrorCqe, Syndrome};
use zerocopy::IntoBytes;

/// Where a context writes about completions in error.
#[derive(Debug, Default)]
pub struct ErrorLog {
    file: Option<Mutex<File>>,
    host: String,
    freeze: bool,
}

impl ErrorLog {
    /// A log that appends to `path` if there is one; `host` starts each report. With `freeze` (`MLX5_FREEZE_ON_ERROR_CQE`)
    /// the thread that meets such a completion stops for ever, to be looked at with a debugger.
    ///
    /// # Errors
    ///
    /// The file can't be opened. libmlx5 goes on without it.
    pub fn new(path: Option<&Path>, host: impl Into<String>, freeze: bool) -> io::Result<Self> {
        let file = path
            .map(|path| OpenOptions::new().append(true).create(true).open(path))
            .transpose()?
            .map(Mutex::new);
        Ok(Self {
            file,
            host: host.into(),
            freeze,
        })
    }

    /// Whether reports go anywhere.
    pub fn is_on(&self) -> bool {
        self.file.is_some() || self.freeze
    }

    /// Reports a completion in error, unless it is of a common kind: flushed, peer silent, page fault.
    #[cold]
    pub(super) fn error_completion(&self, cqe: &ErrorCqe) {
        if !self.is_on() || !is_reported(cqe) {
            return;
        }
        self.write(&report(&self.host, cqe));
        if self.freeze {
            self.write("mlx5: freezing at poll cq...");
            loop {
                std::thread::sleep(Duration::from_secs(10));
            }
        }
    }

    fn write(&self, text: &str) {
        if let Some(file) = &self.file {
            let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
            // Nobody to tell: the log is the place for it.
            let _ = file.write_all(text.as_bytes());
        }
    }
}

/// Whether libmlx5 reports it (providers/mlx5/cq.c, `mlx5_parse_cqe`).
fn is_reported(cqe: &ErrorCqe) -> bool {
    cqe.syndrome != Syndrome::WR_FLUSH_ERR
        && cqe.syndrome != Syndrome::TRANSPORT_RETRY_EXC_ERR
        && !cqe.is_odp_page_fault()
}

/// A line that names the host, and the entry as four lines of four words.
fn report(host: &str, cqe: &ErrorCqe) -> String {
    let mut text = format!("mlx5: {host}: got completion with error:\n");
    for line in cqe.as_bytes().chunks_exact(16) {
        let words: Vec<String> = line
            .chunks_exact(4)
            .map(|word| {
                format!(
                    "{:08x}",
                    u32::from_be_bytes([word[0], word[1], word[2], word[3]])
                )
            })
            .collect();
        text.push_str(&words.join(" "));
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromBytes;

    /// The completion of SPDK issue 961, with the words as its reporter's libmlx5 printed them.
    fn spdk_961() -> ErrorCqe {
        let mut bytes = [0u8; 64];
        bytes[32..36].copy_from_slice(&0xb3u32.to_be_bytes());
        bytes[52] = 0x93;
        bytes[54] = 0x52;
        bytes[55] = 0x04;
        bytes[56..60].copy_from_slice(&0x0a00_19a1u32.to_be_bytes());
        bytes[60..62].copy_from_slice(&0xc092u16.to_be_bytes());
        bytes[62] = 0x1c;
        bytes[63] = 0xd2;
        ErrorCqe::read_from_bytes(&bytes).unwrap()
    }

    /// B48: the text of libmlx5, word by word.
    #[test]
    fn text_is_libmlx5s() {
        let expected = "mlx5: node7: got completion with error:\n\
                        00000000 00000000 00000000 00000000\n\
                        00000000 00000000 00000000 00000000\n\
                        000000b3 00000000 00000000 00000000\n\
                        00000000 93005204 0a0019a1 c0921cd2\n";
        assert_eq!(report("node7", &spdk_961()), expected);
    }

    /// B48: flushes, silent peers and page faults are too common to be reported; nothing is without a file.
    #[test]
    fn common_kinds_are_silent() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        std::fs::write(&path, "before\n").unwrap();
        let log = ErrorLog::new(Some(&path), "node7", false).unwrap();
        let mut cqe = spdk_961();
        for (syndrome, vendor) in [(0x05, 0xf9), (0x15, 0x81), (0x22, 0x93)] {
            cqe.syndrome = Syndrome(syndrome);
            cqe.vendor_err_synd = vendor;
            log.error_completion(&cqe);
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "before\n");
        cqe.syndrome = Syndrome(0x22);
        cqe.vendor_err_synd = 0x92;
        log.error_completion(&cqe);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(
            text.starts_with("before\nmlx5: node7: got completion with error:\n"),
            "{text}"
        );
        assert_eq!(text.lines().count(), 6);
        ErrorLog::default().error_completion(&cqe);
    }
}
