use zerocopy::IntoBytes;

use super::{Header, NLM_F_REQUEST, nldev, put_attribute};

/// Bytes of the longest request: a link with its names, none longer than `IB_DEVICE_NAME_MAX` (64).
const CAPACITY: usize = 512;

/// A request, built in its own memory.
#[derive(Clone, Debug)]
pub struct Request {
    bytes: [u8; CAPACITY],
    len: usize,
    fits: bool,
}

impl Request {
    /// A request of NLDEV. `flags` are added to [`NLM_F_REQUEST`]; `seq` comes back in answers.
    pub fn new(command: nldev::Command, flags: u16, seq: u32) -> Self {
        let mut request = Self {
            bytes: [0; CAPACITY],
            len: size_of::<Header>(),
            fits: true,
        };
        let header = Header {
            nlmsg_len: request.len as u32,
            nlmsg_type: (nldev::CLIENT << 10) + command.0,
            nlmsg_flags: NLM_F_REQUEST | flags,
            nlmsg_seq: seq,
            nlmsg_pid: 0,
        };
        request.bytes[..request.len].copy_from_slice(header.as_bytes());
        request
    }

    /// Adds a number.
    pub fn u32(mut self, attr: nldev::Attr, value: u32) -> Self {
        self.put(attr, value.as_bytes());
        self
    }

    /// Adds a string, ended by a zero byte. Of a string that does not fit nothing is added, and
    /// [`fits`](Self::fits) becomes false.
    pub fn string(mut self, attr: nldev::Attr, value: &str) -> Self {
        let mut text = [0; CAPACITY];
        match text[..CAPACITY - 1].get_mut(..value.len()) {
            Some(room) => {
                room.copy_from_slice(value.as_bytes());
                self.put(attr, &text[..=value.len()]);
            }
            None => self.fits = false,
        }
        self
    }

    /// Whether everything that was added is in the request.
    pub fn fits(&self) -> bool {
        self.fits
    }

    /// What to send.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn put(&mut self, attr: nldev::Attr, value: &[u8]) {
        match put_attribute(&mut self.bytes, self.len, attr.0, value) {
            Some(end) => {
                self.len = end;
                self.bytes[..4].copy_from_slice((end as u32).as_bytes());
            }
            None => self.fits = false,
        }
    }
}
