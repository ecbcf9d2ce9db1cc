//! Files that programs read events from: pipes that carry the records that the kernel's files would.

use std::fs::{File, OpenOptions};
use std::io::{PipeWriter, Read, Write, pipe};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::sync::{Arc, Mutex, PoisonError};

use uverbs_abi::event::{AsyncEvent, CompletionEvent};
use uverbs_abi::types::EventType;
use zerocopy::{FromBytes, IntoBytes};

use crate::sys::errno::Errno;
use crate::sys::fd::UverbsFd;
use crate::sys::kernel::KernelRef;

/// What a file is read for. Records of one kind have another size than those of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A completion channel.
    Completions,
    /// Asynchronous events.
    Events,
}

/// The end of a pipe that the driver has.
#[derive(Debug)]
pub(super) struct EventFile {
    writer: PipeWriter,
    purpose: Purpose,
    /// What the pipe is to the kernel: both ends have it, so a descriptor that a program gives back finds
    /// its other end, whatever number it has by now.
    inode: u64,
    /// Records that did not fit into the pipe; the next event takes them along.
    waiting: Mutex<Vec<u8>>,
}

impl EventFile {
    /// A pipe: the end to write to, and the one for the program.
    fn new(purpose: Purpose) -> Result<(Self, OwnedFd), Errno> {
        let (reader, writer) = pipe()?;
        // nobody who reads slowly holds up the events of others
        UverbsFd::borrowed(KernelRef::Linux, writer.as_raw_fd()).set_nonblocking(true)?;
        let file = Self {
            inode: inode_of(writer.as_raw_fd())?,
            writer,
            purpose,
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
        self.flush(&mut waiting, record.len());
    }

    /// Writes as many records as fit.
    fn flush(&self, waiting: &mut Vec<u8>, size: usize) {
        // whole records only: a write of fewer than PIPE_BUF bytes is all or nothing
        let mut done = 0;
        while done < waiting.len() {
            let part = &waiting[done..][..size];
            if !matches!((&self.writer).write(part), Ok(len) if len == part.len()) {
                break;
            }
            done += part.len();
        }
        waiting.drain(..done);
    }

    /// Takes unread records back, as the kernel does with those of an object that is destroyed; answers how many, up to
    /// `most`. Others stay in their order.
    fn take_back(&self, size: usize, most: u32, is_its: impl Fn(&[u8]) -> bool) -> u32 {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(mut reader) = self.reader() else {
            return 0;
        };
        let mut unread = Vec::new();
        // until it would block: a record is read whole
        let _ = reader.read_to_end(&mut unread);
        unread.append(&mut waiting);
        let mut taken = 0;
        for record in unread.chunks_exact(size) {
            if taken < most && is_its(record) {
                taken += 1;
            } else {
                waiting.extend_from_slice(record);
            }
        }
        self.flush(&mut waiting, size);
        taken
    }

    /// The other end once more.
    fn reader(&self) -> std::io::Result<File> {
        OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(format!("/proc/self/fd/{}", self.writer.as_raw_fd()))
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
    pub(super) fn make(&self, purpose: Purpose) -> Result<OwnedFd, Errno> {
        let (file, reader) = EventFile::new(purpose)?;
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

    /// Tells each reader of asynchronous events, as the kernel does of what is no object's.
    pub(super) fn tell_all(&self, event_type: EventType, element: u64) {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        for file in files.iter() {
            if file.purpose == Purpose::Events {
                file.tell(event_type, element);
            }
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

    /// Of `told` events of an object that is gone, those that the program read. It need not acknowledge others, and does
    /// not get them.
    pub(super) fn read_of(&self, element: u64, told: u32, of_its_kind: &[EventType]) -> u32 {
        if told == 0 {
            return 0;
        }
        told - self.take_back(size_of::<AsyncEvent>(), told, |record| {
            AsyncEvent::read_from_bytes(record).is_ok_and(|record| {
                record.element == element && of_its_kind.contains(&record.event_type)
            })
        })
    }

    /// As [`read_of`](Self::read_of), of completions.
    pub(super) fn completions_read_of(&self, user_handle: u64, told: u32) -> u32 {
        if told == 0 {
            return 0;
        }
        told - self.take_back(size_of::<CompletionEvent>(), told, |record| {
            CompletionEvent::read_from_bytes(record)
                .is_ok_and(|record| record.cq_handle == user_handle)
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    fn read(reader: &OwnedFd) -> Vec<u64> {
        let mut file = File::from(reader.try_clone().unwrap());
        let mut records = vec![0; 64 * size_of::<CompletionEvent>()];
        let len = file.read(&mut records).unwrap();
        let records = records[..len].chunks_exact(size_of::<CompletionEvent>());
        records
            .map(|record| CompletionEvent::read_from_bytes(record).unwrap().cq_handle)
            .collect()
    }

    #[test]
    fn unread_records_go_with_their_object() {
        let (file, reader) = EventFile::new(Purpose::Completions).unwrap();
        for handle in [1, 2, 1, 3, 1] {
            file.completion(handle);
        }
        assert_eq!(file.completions_read_of(4, 9), 9);
        assert_eq!(file.completions_read_of(1, 2), 0);
        assert_eq!(read(&reader), [2, 3, 1]);
        assert_eq!(file.completions_read_of(1, 3), 3);
        file.completion(5);
        assert_eq!(read(&reader), [5]);
    }

    /// More than the pipe holds: what waits outside of it is looked at too, and follows in its place.
    #[test]
    fn records_that_wait_for_room_are_taken_back_too() {
        let (file, reader) = EventFile::new(Purpose::Completions).unwrap();
        for handle in 0..20_000 {
            file.completion(handle % 2);
        }
        assert_eq!(file.completions_read_of(0, 10_001), 1);
        file.completion(7);
        let mut left = Vec::new();
        while left.last() != Some(&7) {
            left.extend(read(&reader));
            file.completions_read_of(9, 1);
        }
        assert_eq!(left.len(), 10_001);
        assert!(left[..10_000].iter().all(|handle| *handle == 1));
    }

    #[test]
    fn events_of_another_kind_stay() {
        let (file, _reader) = EventFile::new(Purpose::Events).unwrap();
        file.tell(EventType::CQ_ERR, 1);
        file.tell(EventType::COMM_EST, 1);
        assert_eq!(file.read_of(1, 2, &[EventType::CQ_ERR]), 1);
        assert_eq!(file.read_of(1, 1, &[EventType::CQ_ERR]), 1);
        assert_eq!(file.read_of(1, 1, &[EventType::COMM_EST]), 0);
    }

    /// Who waits for completions does not read of the port: the record would be taken for a completion's.
    #[test]
    fn events_of_the_device_come_to_no_completion_channel() {
        let files = EventFiles::default();
        let channel = files.make(Purpose::Completions).unwrap();
        let events = files.make(Purpose::Events).unwrap();
        files.tell_all(EventType::PORT_ERR, 1);
        let unread = |reader: &OwnedFd| {
            let file = files.find(reader.as_raw_fd()).unwrap();
            file.take_back(1, u32::MAX, |_| true)
        };
        let record = size_of::<AsyncEvent>() as u32;
        assert_eq!((unread(&channel), unread(&events)), (0, record));
    }
}
