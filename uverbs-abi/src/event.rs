//! Event records, as read from a completion channel or an asynchronous event file.

use zerocopy::FromBytes;

use crate::Reserved;
use crate::types::EventType;

abi_structs! {
    /// What `read()` of an asynchronous event file returns, one or more at a time.
    "ib_uverbs_async_event_desc" AsyncEvent [16] {
        /// The `user_handle` of the object that the event is about; the port number for port and
        /// device events.
        0 element: u64,
        /// What happened.
        8 event_type: EventType,
        12 reserved: Reserved<4>,
    }

    /// What `read()` of a completion channel returns, one or more at a time.
    "ib_uverbs_comp_event_desc" CompletionEvent [8] {
        /// The `user_handle` of the completion queue.
        0 cq_handle: u64,
    }
}

impl AsyncEvent {
    /// The first record of `bytes` and the rest; `None` when less than a record is left.
    pub fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        Self::read_from_prefix(bytes).ok()
    }
}

impl CompletionEvent {
    /// The first record of `bytes` and the rest; `None` when less than a record is left.
    pub fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        Self::read_from_prefix(bytes).ok()
    }
}
