//! Files that programs read events from: pipes that carry the records that the kernel's files would.

use std::io::{PipeWriter, Write, pipe};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, PoisonError};

use uverbs_abi::event::{AsyncEvent, CompletionEvent};
use uverbs_abi::types::EventType;
use zerocopy::IntoBytes;

use crate::sys::errno::Errno;
use crate::sys::fd::UverbsFd;
use crate::sys::kernel::KernelRef;

/// The end of a pipe that the driver has.
#[derive(Debug)]
pub(super) struct EventFile {
    writer: PipeWriter,
    /// What the pipe is to the kernel: both ends have it, so a descriptor that a program gives back finds
    /// its other end, whatever number it has by now.
    inode: u64,
    /// Records that did not fit into the pipe; the next event takes them along.
    waiting: Mutex<Vec<u8>>,
}

impl EventFile {
    /// A pipe: the end to write to, and the one for the program.
    fn new() -> Result<(Self, OwnedFd), Errno> {
        let (reader, writer) = pipe()?;
        // nobody who reads slowly holds up the events of others
        UverbsFd::borrowed(KernelRef::Linux, writer.as_raw_fd()).set_nonblocking(true)?;
        let file = Self {
            inode: inode_of(writer.as_raw_fd())?,
            writer,
            waiting: Mutex::default(),
        };
        Ok((file, reader.into()))
    }

    fn push(&self, record: &[u8]) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.extend_from_slice(record);
        if self.is_closed() {
            // a write would raise SIGPIPE
            return waiting.clear();
        }
        // whole records only: a write of fewer than PIPE_BUF bytes is all or nothing
        let mut done = 0;
        while done < waiting.len() {
            let part = &waiting[done..][..record.len()];
            if !matches!((&self.writer).write(part), Ok(len) if len == part.len()) {
                break;
            }
            done += part.len();
        }
        waiting.drain(..done);
    }

    /// Whether nobody can read it any more.
    fn is_closed(&self) -> bool {
        crate::sys::poll::has_error(&self.writer)
    }
}

/// All event files of a context.
#[derive(Debug, Default)]
pub(super) struct EventFiles {
    files: Mutex<Vec<Arc<EventFile>>>,
}

impl EventFiles {
    /// Makes one; the answer is the program's.
    pub(super) fn make(&self) -> Result<OwnedFd, Errno> {
        let (file, reader) = EventFile::new()?;
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.retain(|file| !file.is_closed());
        files.push(Arc::new(file));
        Ok(reader)
    }

    /// The one that a program's descriptor reads; `EBADF` if it is none of ours.
    pub(super) fn find(&self, reader: RawFd) -> Result<Arc<EventFile>, Errno> {
        let inode = inode_of(reader)?;
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let file = files.iter().find(|file| file.inode == inode);
        file.cloned().ok_or(Errno(libc::EBADF))
    }

    /// Tells all of them, as the kernel tells each reader of what is no object's.
    pub(super) fn tell_all(&self, event_type: EventType, element: u64) {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        for file in files.iter() {
            file.tell(event_type, element);
        }
    }
}

impl EventFile {
    /// A record of an asynchronous event.
    pub(super) fn tell(&self, event_type: EventType, element: u64) {
        let record = AsyncEvent {
            element,
            event_type,
            ..AsyncEvent::default()
        };
        self.push(record.as_bytes());
    }

    /// A record of a completion event.
    pub(super) fn completion(&self, user_handle: u64) {
        let record = CompletionEvent {
            cq_handle: user_handle,
        };
        self.push(record.as_bytes());
    }
}

fn inode_of(fd: RawFd) -> Result<u64, Errno> {
    let metadata = std::fs::metadata(format!("/proc/self/fd/{fd}"));
    metadata
        .map(|metadata| metadata.ino())
        .map_err(|_| Errno(libc::EBADF))
}
