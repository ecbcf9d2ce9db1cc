//! Asynchronous events.

use uverbs_abi::event;
use uverbs_abi::types::EventType;

use super::id::ObjectId;
use crate::error::{Error, Result};
use crate::sys::Errno;
use crate::sys::fd::UverbsFd;

/// Something that happened to an object, a port or the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncEvent {
    /// What happened.
    pub event_type: EventType,
    /// What it happened to.
    pub subject: Subject,
}

/// What an event is about. Objects are told apart by their `id()`; one that is gone by now is named too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Subject {
    /// A completion queue.
    CompletionQueue(ObjectId),
    /// A queue pair.
    QueuePair(ObjectId),
    /// A shared receive queue.
    SharedReceiveQueue(ObjectId),
    /// A port, by number.
    Port(u64),
    /// The device.
    Device,
}

impl From<event::AsyncEvent> for AsyncEvent {
    fn from(event: event::AsyncEvent) -> Self {
        let id = ObjectId(event.element);
        let subject = match event.event_type {
            EventType::CQ_ERR => Subject::CompletionQueue(id),
            EventType::QP_FATAL
            | EventType::QP_REQ_ERR
            | EventType::QP_ACCESS_ERR
            | EventType::COMM_EST
            | EventType::SQ_DRAINED
            | EventType::PATH_MIG
            | EventType::PATH_MIG_ERR
            | EventType::QP_LAST_WQE_REACHED => Subject::QueuePair(id),
            EventType::SRQ_ERR | EventType::SRQ_LIMIT_REACHED => Subject::SharedReceiveQueue(id),
            EventType::DEVICE_FATAL => Subject::Device,
            _ => Subject::Port(event.element),
        };
        Self {
            event_type: event.event_type,
            subject,
        }
    }
}

pub(super) fn read(file: &UverbsFd) -> Result<AsyncEvent> {
    let mut bytes = [0; size_of::<event::AsyncEvent>()];
    let len = read_record(file, &mut bytes)
        .map_err(|errno| Error::kernel("read an asynchronous event", errno))?;
    let record = event::AsyncEvent::parse(&bytes[..len]);
    record
        .map(|(event, _)| event.into())
        .ok_or_else(|| Error::kernel("read an asynchronous event", Errno(libc::EIO)))
}

/// Reads again after a signal.
pub(super) fn read_record(file: &UverbsFd, bytes: &mut [u8]) -> std::result::Result<usize, Errno> {
    loop {
        match file.read(bytes) {
            Err(Errno(libc::EINTR)) => {}
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_follow_types() {
        let subject = |event_type| {
            let event = event::AsyncEvent {
                element: 7,
                event_type,
                ..Default::default()
            };
            AsyncEvent::from(event).subject
        };
        assert_eq!(
            subject(EventType::SRQ_LIMIT_REACHED),
            Subject::SharedReceiveQueue(ObjectId(7))
        );
        assert_eq!(
            subject(EventType::QP_LAST_WQE_REACHED),
            Subject::QueuePair(ObjectId(7))
        );
        assert_eq!(
            subject(EventType::CQ_ERR),
            Subject::CompletionQueue(ObjectId(7))
        );
        assert_eq!(subject(EventType::PORT_ACTIVE), Subject::Port(7));
        assert_eq!(subject(EventType::DEVICE_FATAL), Subject::Device);
    }
}
