//! Downloads: resumable, verified before they get their final name, with progress and errors that say what to do.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use indicatif::{ProgressBar, ProgressStyle};
use sha2::{Digest, Sha256};

use super::sources::MIRROR_VARIABLE;

/// Attempts per file; a mirror that drops connections costs a resumed request, not the run.
const ATTEMPTS: u32 = 4;

/// Client of one process.
#[derive(Debug)]
pub struct Fetcher {
    agent: ureq::Agent,
}

/// A file with known content.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// Bytes, if known.
    pub size: Option<u64>,
    /// SHA-256 in hexadecimal, if known.
    pub sha256: Option<&'a str>,
}

impl Default for Fetcher {
    fn default() -> Self {
        Self::new()
    }
}

impl Fetcher {
    /// A client that uses apt's `Acquire::http::Proxy` if set, else the usual environment variables.
    pub fn new() -> Self {
        let mut config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(Duration::from_secs(20)))
            .timeout_recv_response(Some(Duration::from_secs(60)))
            .user_agent(concat!("oxverbs-lab/", env!("CARGO_PKG_VERSION")));
        if let Some(proxy) = apt_proxy().and_then(|uri| ureq::Proxy::new(&uri).ok()) {
            config = config.proxy(Some(proxy));
        }
        Self {
            agent: config.build().new_agent(),
        }
    }

    /// Fetches `uri` to `target`, unless it is there already; a partial download is continued.
    pub fn fetch(
        &self,
        uri: &str,
        target: &Path,
        wanted: Wanted<'_>,
        bar: &ProgressBar,
    ) -> Result<()> {
        if wanted.sha256.is_some() && target.is_file() {
            if let Some(size) = wanted.size {
                bar.inc(size);
            }
            return Ok(());
        }
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent).map_err(|error| disk(error, parent))?;
        }
        let part = partial_name(target);
        let mut attempt = 1;
        loop {
            let before = bar.position();
            let outcome = self.download(uri, &part, wanted, bar).and_then(|()| {
                verify(&part, wanted)
                    .with_context(|| format!("{uri} is not what the index promised"))
            });
            match outcome {
                Ok(()) => break,
                Err(error) if attempt < ATTEMPTS && is_transient(&error) => {
                    bar.set_position(before);
                    std::thread::sleep(Duration::from_secs(u64::from(attempt)));
                    attempt += 1;
                }
                Err(error) => return Err(error),
            }
        }
        fs::rename(&part, target).map_err(|error| disk(error, target))
    }

    fn download(
        &self,
        uri: &str,
        part: &Path,
        wanted: Wanted<'_>,
        bar: &ProgressBar,
    ) -> Result<()> {
        match uri.split_once(':').map(|(scheme, _)| scheme) {
            Some("http") => self.download_http(uri, part, wanted, bar),
            Some("file") => {
                let path = uri.trim_start_matches("file:").trim_start_matches("//");
                fs::copy(path, part).with_context(|| format!("copying {path}"))?;
                Ok(())
            }
            // TLS, credentials and apt's other transports are apt's business.
            _ => download_with_apt(uri, part),
        }
    }

    fn download_http(
        &self,
        uri: &str,
        part: &Path,
        wanted: Wanted<'_>,
        bar: &ProgressBar,
    ) -> Result<()> {
        let have = match (wanted.size, fs::metadata(part)) {
            (Some(size), Ok(meta)) if meta.len() <= size => meta.len(),
            _ => 0,
        };
        if have > 0 && Some(have) == wanted.size {
            bar.inc(have);
            return Ok(());
        }
        let mut request = self.agent.get(uri);
        if have > 0 {
            request = request.header("Range", format!("bytes={have}-"));
        }
        let response = request.call().map_err(|error| {
            anyhow!(Transient).context(format!(
                "{uri}: {error} (no network? the mirror is taken from the host's apt configuration or from {MIRROR_VARIABLE})"
            ))
        })?;
        let status = response.status().as_u16();
        let mut file = match status {
            206 => {
                bar.inc(have);
                File::options().append(true).open(part)
            }
            200 => File::create(part),
            404 | 410 => return Err(anyhow!(Gone).context(format!("{uri}: HTTP {status}"))),
            500.. => return Err(anyhow!(Transient).context(format!("{uri}: HTTP {status}"))),
            _ => bail!("{uri}: HTTP {status}"),
        }
        .map_err(|error| disk(error, part))?;
        let mut body = response.into_body().into_reader();
        let mut buffer = vec![0; 1 << 16];
        loop {
            crate::interrupt::check()?;
            let got = body.read(&mut buffer).map_err(|error| {
                anyhow!(Transient).context(format!("{uri}: {error} (the connection broke)"))
            })?;
            if got == 0 {
                return Ok(());
            }
            file.write_all(&buffer[..got])
                .map_err(|error| disk(error, part))?;
            bar.inc(got as u64);
        }
    }
}

/// Marks an error after which another attempt makes sense.
#[derive(Debug, Clone, Copy)]
struct Transient;

impl std::fmt::Display for Transient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("download interrupted")
    }
}

impl std::error::Error for Transient {}

/// The archive no longer has the file (a newer version replaced it): resolve again.
#[derive(Debug, Clone, Copy)]
pub struct Gone;

impl std::fmt::Display for Gone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the archive does not have this file (any more)")
    }
}

impl std::error::Error for Gone {}

fn is_transient(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.is::<Transient>()) || error.is::<Transient>()
}

fn partial_name(target: &Path) -> PathBuf {
    let mut name = target.as_os_str().to_owned();
    name.push(".part");
    PathBuf::from(name)
}

/// Checks size and hash; a file that fails is removed, so that the next attempt starts anew.
fn verify(part: &Path, wanted: Wanted<'_>) -> Result<()> {
    let size = fs::metadata(part).map_err(|error| disk(error, part))?.len();
    if let Some(expected) = wanted.size
        && size != expected
    {
        if size > expected {
            let _ = fs::remove_file(part);
        }
        return Err(anyhow!(Transient).context(format!("{size} bytes instead of {expected}")));
    }
    if let Some(expected) = wanted.sha256 {
        let actual = sha256_of_file(part)?;
        if !actual.eq_ignore_ascii_case(expected) {
            let _ = fs::remove_file(part);
            bail!("SHA-256 is {actual}, expected {expected}");
        }
    }
    Ok(())
}

/// SHA-256 of a file, in hexadecimal.
pub fn sha256_of_file(path: &Path) -> Result<String> {
    let mut file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let got = file
            .read(&mut buffer)
            .with_context(|| format!("reading {}", path.display()))?;
        if got == 0 {
            return Ok(hex(&hash.finalize()));
        }
        hash.update(&buffer[..got]);
    }
}

/// SHA-256 of bytes, in hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Wraps a file error with its path, and says so when the disk is full.
pub fn disk(error: io::Error, path: &Path) -> anyhow::Error {
    let hint = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            " (the lab's cache wants up to 3 GB; set XDG_CACHE_HOME to a file system with space; \
             what is there stays usable)"
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            " (set XDG_CACHE_HOME to a directory that you may write)"
        }
        _ => "",
    };
    anyhow!("{}: {error}{hint}", path.display())
}

fn apt_proxy() -> Option<String> {
    let output = Command::new("apt-config")
        .args(["shell", "P", "Acquire::http::Proxy"])
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let value = text
        .trim()
        .strip_prefix("P='")?
        .strip_suffix('\'')?
        .to_owned();
    (!value.is_empty() && value != "DIRECT").then_some(value)
}

fn download_with_apt(uri: &str, part: &Path) -> Result<()> {
    let helper = "/usr/lib/apt/apt-helper";
    let output = Command::new(helper)
        .args(["-q", "download-file", uri])
        .arg(part)
        .output()
        .with_context(|| {
            format!("{uri} needs {helper}; or name an http mirror in {MIRROR_VARIABLE}")
        })?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let error = anyhow!("{uri}: {}", text.trim());
        return Err(if text.contains("404") {
            error.context(Gone)
        } else {
            error
        });
    }
    Ok(())
}

/// A progress bar for `total` bytes (a spinner's text when unknown); hidden when stderr is no terminal.
pub fn bytes_bar(total: u64, what: &str) -> ProgressBar {
    let bar = ProgressBar::new(total);
    let style = ProgressStyle::with_template(
        "{msg:32!} {bar:30} {bytes:>11} / {total_bytes:11} {bytes_per_sec}, {eta}",
    );
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message(what.to_owned());
    bar
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::net::TcpListener;

    use super::*;

    /// Serves `content` once per connection; the first connection breaks after `cut` bytes.
    fn serve(
        content: &'static [u8],
        cut: usize,
        connections: usize,
    ) -> (String, std::thread::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let uri = format!("http://{}/file", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let mut ranges = Vec::new();
            for number in 0..connections {
                let (mut stream, _) = listener.accept().unwrap();
                let lines: Vec<String> = BufReader::new(stream.try_clone().unwrap())
                    .lines()
                    .map_while(Result::ok)
                    .take_while(|line| !line.is_empty())
                    .collect();
                let range = lines.iter().find_map(|line| {
                    line.to_ascii_lowercase()
                        .strip_prefix("range: bytes=")
                        .map(str::to_owned)
                });
                let from: usize = range
                    .as_deref()
                    .and_then(|r| r.trim_end_matches('-').parse().ok())
                    .unwrap_or(0);
                let status = if range.is_some() {
                    "206 Partial Content"
                } else {
                    "200 OK"
                };
                let rest = &content[from..];
                write!(
                    stream,
                    "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                    rest.len()
                )
                .unwrap();
                let end = if number == 0 {
                    cut.min(rest.len())
                } else {
                    rest.len()
                };
                stream.write_all(&rest[..end]).unwrap();
                ranges.push(range.unwrap_or_default());
            }
            ranges
        });
        (uri, server)
    }

    #[test]
    fn a_broken_connection_is_resumed_and_verified() {
        let content: &'static [u8] = b"0123456789abcdef";
        let (uri, server) = serve(content, 6, 2);
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("sub/file");
        let hash = sha256(content);
        let wanted = Wanted {
            size: Some(16),
            sha256: Some(&hash),
        };
        Fetcher::new()
            .fetch(&uri, &target, wanted, &ProgressBar::hidden())
            .unwrap();
        assert_eq!(fs::read(&target).unwrap(), content);
        assert_eq!(server.join().unwrap(), ["", "6-"]);
        assert!(!partial_name(&target).exists());
    }

    #[test]
    fn wrong_content_never_gets_its_name() {
        let (uri, server) = serve(b"tampered", 8, 1);
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("file");
        let hash = sha256(b"original");
        let wanted = Wanted {
            size: Some(8),
            sha256: Some(&hash),
        };
        let error = Fetcher::new()
            .fetch(&uri, &target, wanted, &ProgressBar::hidden())
            .unwrap_err();
        assert!(format!("{error:#}").contains("SHA-256"), "{error:#}");
        assert!(!target.exists() && !partial_name(&target).exists());
        server.join().unwrap();
    }

    #[test]
    fn a_full_disk_says_what_to_do() {
        let error = disk(
            io::Error::from(io::ErrorKind::StorageFull),
            Path::new("/cache/x"),
        );
        assert!(error.to_string().contains("XDG_CACHE_HOME"));
    }
}
