//! One write command with its memory, in either framing.

use core::fmt;
use core::marker::PhantomData;

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

use crate::ioctl::attribute::Attribute;
use crate::ioctl::wire::{ATTR_UHW_IN, ATTR_UHW_OUT};
use crate::ioctl::{Command, Error};
use crate::object::device::invoke_write;

use super::WriteCommand;
use super::frame::{CmdHeader, ExCmdHeader};

/// Room before the core request for the longer of both headers.
const HEADERS: usize = size_of::<CmdHeader>() + size_of::<ExCmdHeader>();

/// A write command: core request, driver's request, room for both responses.
///
/// `IN` and `OUT` are the words of its memory; the defaults hold every command of fixed length with
/// the longest driver data of mlx5. The response reads as zero where the kernel does not write.
pub struct WriteCall<C, const IN: usize = 48, const OUT: usize = 56> {
    /// Headers, core request, driver's request.
    request: [u64; IN],
    core_in: usize,
    uhw_in: usize,
    /// Core response, driver's response.
    response: [u64; OUT],
    uhw_out: usize,
    error: Option<Error>,
    command: PhantomData<fn() -> C>,
}

/// A command in the framing of `write()`.
///
/// Whoever makes the system call puts the address of `response` into `bytes` at `response_at`.
#[derive(Debug)]
pub struct Plain<'c> {
    /// What to write.
    pub bytes: &'c mut [u8],
    /// Offset in `bytes` of the 8-byte address of the response; `None` if there is no response.
    pub response_at: Option<usize>,
    /// Room for the response, zeroed; 8-aligned.
    pub response: &'c mut [u8],
}

impl<C: WriteCommand> WriteCall<C> {
    /// A command with memory of the default size.
    pub fn new(request: C) -> Self {
        Self::with_capacity(request)
    }
}

impl<C: WriteCommand, const IN: usize, const OUT: usize> WriteCall<C, IN, OUT> {
    /// A command with memory of the size that the type says.
    pub fn with_capacity(request: C) -> Self {
        let mut call = Self {
            request: [0; IN],
            core_in: 0,
            uhw_in: 0,
            response: [0; OUT],
            uhw_out: 0,
            error: None,
            command: PhantomData,
        };
        call.append_core(request.as_bytes());
        if C::SPEC.response_len > OUT * 8 {
            call.error = Some(Error::OutputFull);
        }
        call
    }

    /// Appends to the core request, for commands that end in an array. Before the driver's data.
    pub fn tail(&mut self, bytes: &[u8]) -> &mut Self {
        self.append_core(bytes);
        self
    }

    /// Appends the driver's request.
    pub fn uhw_in<T: IntoBytes + Immutable + ?Sized>(&mut self, value: &T) -> &mut Self {
        let bytes = value.as_bytes();
        if self.append(self.core_in + self.uhw_in, bytes) {
            self.uhw_in += bytes.len();
        }
        self
    }

    /// Makes room for `len` bytes of the driver's response.
    pub fn uhw_out_len(&mut self, len: usize) -> &mut Self {
        if C::SPEC.response_len + len > OUT * 8 {
            self.error.get_or_insert(Error::OutputFull);
        } else {
            self.uhw_out = len;
        }
        self
    }

    /// Makes room for the driver's response.
    pub fn uhw_out<T: FromBytes>(&mut self) -> &mut Self {
        self.uhw_out_len(size_of::<T>())
    }

    /// The command as `INVOKE_WRITE`, its memory borrowed.
    pub fn invoke(&mut self) -> Result<Command<'_, invoke_write::Method>, Error> {
        self.check()?;
        let request = &self.request.as_bytes()[HEADERS..];
        let (core_in, rest) = request.split_at(self.core_in);
        let uhw_in = &rest[..self.uhw_in];
        let response = self.response.as_mut_bytes();
        let (core_out, rest) = response.split_at_mut(C::SPEC.response_len);
        let uhw_out = &mut rest[..self.uhw_out];

        let mut command = Command::new();
        command.constant(invoke_write::WRITE_CMD, C::SPEC.command());
        if !core_in.is_empty() {
            command.extern_in(invoke_write::CORE_IN.id(), core_in);
        }
        if !core_out.is_empty() {
            command.extern_out(invoke_write::CORE_OUT.id(), core_out);
        }
        if !uhw_in.is_empty() {
            command.extern_in(ATTR_UHW_IN, uhw_in);
        }
        if !uhw_out.is_empty() {
            command.extern_out(ATTR_UHW_OUT, uhw_out);
        }
        Ok(command)
    }

    /// The command as bytes for `write()`, its memory borrowed.
    pub fn plain(&mut self) -> Result<Plain<'_>, Error> {
        self.check()?;
        let out = C::SPEC.response_len + self.uhw_out;
        let end = HEADERS + self.core_in + self.uhw_in;
        let words = |bytes: usize, word: usize| {
            // a multiple for every struct of the ABI; driver data is the caller's
            if bytes.is_multiple_of(word) {
                u16::try_from(bytes / word).map_err(|_| Error::TooLong)
            } else {
                Err(Error::TooLong)
            }
        };
        let (start, response_at) = if C::SPEC.extended {
            let header = CmdHeader {
                command: C::SPEC.command(),
                in_words: words(self.core_in, 8)?,
                out_words: words(C::SPEC.response_len, 8)?,
            };
            let ex = ExCmdHeader {
                provider_in_words: words(self.uhw_in, 8)?,
                provider_out_words: words(self.uhw_out, 8)?,
                ..ExCmdHeader::default()
            };
            let (first, second) = self.request.as_mut_bytes()[..HEADERS].split_at_mut(8);
            first.copy_from_slice(header.as_bytes());
            second.copy_from_slice(ex.as_bytes());
            (0, (out > 0).then_some(size_of::<CmdHeader>()))
        } else {
            let start = HEADERS - size_of::<CmdHeader>();
            let header = CmdHeader {
                command: C::SPEC.command(),
                in_words: words(end - start, 4)?,
                out_words: words(out, 4)?,
            };
            self.request.as_mut_bytes()[start..HEADERS].copy_from_slice(header.as_bytes());
            (start, (out > 0).then_some(size_of::<CmdHeader>()))
        };
        Ok(Plain {
            bytes: &mut self.request.as_mut_bytes()[start..end],
            response_at,
            response: &mut self.response.as_mut_bytes()[..out],
        })
    }

    /// The kernel's response; zero where it did not write.
    pub fn response(&self) -> C::Response {
        let bytes = self.response.as_bytes();
        match C::Response::read_from_prefix(bytes) {
            Ok((response, _)) => response,
            // `check` refused the call, so nobody has a response to ask for
            Err(_) => C::Response::new_zeroed(),
        }
    }

    /// The driver's response; zero where it did not write, or if no room was made for it.
    pub fn uhw<T: FromBytes>(&self) -> T {
        let start = C::SPEC.response_len;
        let bytes = self.response.as_bytes().get(start..start + self.uhw_out);
        match bytes.map(T::read_from_prefix) {
            Some(Ok((value, _))) => value,
            _ => T::new_zeroed(),
        }
    }

    fn append_core(&mut self, bytes: &[u8]) {
        if self.append(self.core_in, bytes) {
            self.core_in += bytes.len();
        }
    }

    fn append(&mut self, at: usize, bytes: &[u8]) -> bool {
        let room = self.request.as_mut_bytes().get_mut(HEADERS + at..);
        match room.and_then(|room| room.get_mut(..bytes.len())) {
            Some(room) => {
                room.copy_from_slice(bytes);
                true
            }
            None => {
                self.error.get_or_insert(Error::InputFull);
                false
            }
        }
    }

    fn check(&self) -> Result<(), Error> {
        self.error.map_or(Ok(()), Err)
    }
}

impl<C: WriteCommand, const IN: usize, const OUT: usize> fmt::Debug for WriteCall<C, IN, OUT> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteCall")
            .field("command", &C::SPEC.name)
            .field("core_in", &self.core_in)
            .field("uhw_in", &self.uhw_in)
            .field("uhw_out", &self.uhw_out)
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}
