//! Event files: completion channels and asynchronous event files, as pipes.
//!
//! A pipe can be polled, made non-blocking and read by anyone, with no help from this side. When its
//! reader is gone the write end says so: descriptors are often closed past the seam.

use std::collections::VecDeque;
use std::os::fd::RawFd;

use oxverbs::sys::Errno;
use uverbs_abi::event::{AsyncEvent, CompletionEvent};
use uverbs_abi::types::EventType;
use zerocopy::{FromBytes, IntoBytes};

use crate::raw;

/// What an event file reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventKind {
    Completion,
    Async,
}

#[derive(Debug)]
pub(crate) struct EventFile {
    pub(crate) kind: EventKind,
    /// The number that the program was given.
    pub(crate) fd: RawFd,
    inode: Option<u64>,
    write_end: raw::Owned,
    /// What did not fit into the pipe.
    backlog: VecDeque<Vec<u8>>,
}

impl EventFile {
    pub(crate) fn new(kind: EventKind) -> Result<Self, Errno> {
        let (fd, write_end) = raw::pipe()?;
        Ok(Self {
            kind,
            fd,
            inode: raw::inode(fd),
            write_end,
            backlog: VecDeque::new(),
        })
    }

    /// Bytes of one record.
    pub(crate) fn record_len(&self) -> usize {
        match self.kind {
            EventKind::Completion => size_of::<CompletionEvent>(),
            EventKind::Async => size_of::<AsyncEvent>(),
        }
    }

    /// Whether the program's descriptor `fd` is this file.
    pub(crate) fn is(&self, fd: RawFd) -> bool {
        self.fd == fd && raw::inode(fd) == self.inode
    }

    /// Whether the program has closed it.
    pub(crate) fn is_closed(&self) -> bool {
        raw::is_broken_pipe(self.write_end.0)
    }

    pub(crate) fn push(&mut self, record: &[u8]) {
        self.backlog.push_back(record.to_vec());
        if self.is_closed() {
            self.backlog.clear();
        }
        while let Some(record) = self.backlog.front() {
            // Records are far below PIPE_BUF, so that a write is all or nothing (`pipe(7)`).
            if raw::write(self.write_end.0, record).is_err() {
                break;
            }
            self.backlog.pop_front();
        }
    }

    /// Takes back the records about the object with `user_handle` that nobody has read; says how many.
    pub(crate) fn withdraw(&mut self, user_handle: u64) -> u32 {
        let mut records = Vec::new();
        if raw::inode(self.fd) == self.inode
            && let Ok(reader) = raw::reopen_nonblocking(self.fd)
        {
            let mut record = vec![0; self.record_len()];
            while raw::read(reader.0, &mut record) == Ok(record.len()) {
                records.push(record.clone());
            }
        }
        records.extend(self.backlog.drain(..));
        let before = records.len();
        records.retain(|record| !is_about(record, user_handle));
        let withdrawn = before - records.len();
        for record in records {
            self.push(&record);
        }
        withdrawn as u32
    }
}

fn is_about(record: &[u8], user_handle: u64) -> bool {
    if let Ok(event) = AsyncEvent::read_from_bytes(record) {
        return is_object_event(event.event_type) && event.element == user_handle;
    }
    CompletionEvent::read_from_bytes(record).is_ok_and(|event| event.cq_handle == user_handle)
}

/// Whether the event's element is an object's handle; a port's number otherwise.
fn is_object_event(event: EventType) -> bool {
    matches!(
        event,
        EventType::CQ_ERR
            | EventType::QP_FATAL
            | EventType::QP_REQ_ERR
            | EventType::QP_ACCESS_ERR
            | EventType::COMM_EST
            | EventType::SQ_DRAINED
            | EventType::PATH_MIG
            | EventType::PATH_MIG_ERR
            | EventType::SRQ_ERR
            | EventType::SRQ_LIMIT_REACHED
            | EventType::QP_LAST_WQE_REACHED
            | EventType::WQ_FATAL
    )
}

/// The bytes of an asynchronous event.
pub(crate) fn async_record(element: u64, event_type: EventType) -> Vec<u8> {
    AsyncEvent {
        element,
        event_type,
        ..AsyncEvent::default()
    }
    .as_bytes()
    .to_vec()
}
