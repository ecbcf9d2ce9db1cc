//! One call: its inputs read from the program's memory, its outputs written there.

use oxverbs::sys::Errno;
use uverbs_abi::ioctl::attribute::{
    Attribute, Const, DestroyHandle, FdIn, Flags, HandleIn, In, NewFd, NewHandle, Out, SliceIn,
    SliceOut,
};
use uverbs_abi::ioctl::wire::{ATTR_F_VALID_OUTPUT, Attr};
use uverbs_abi::ioctl::{AttrView, RequestView};
use uverbs_abi::object::device::invoke_write;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::raw;

/// An ioctl under way.
#[derive(Debug)]
pub(crate) struct Call<'b> {
    /// Where the program has the request.
    base: u64,
    view: RequestView<'b>,
    /// Whether outputs stay unwritten.
    is_short: bool,
}

impl<'b> Call<'b> {
    pub(crate) fn new(base: u64, view: RequestView<'b>, is_short: bool) -> Self {
        Self {
            base,
            view,
            is_short,
        }
    }

    pub(crate) fn view(&self) -> &RequestView<'b> {
        &self.view
    }

    fn payload(attr: &AttrView) -> Result<Vec<u8>, Errno> {
        match attr.inline_input() {
            Some(bytes) => Ok(bytes.as_ref().to_vec()),
            None => raw::copy_in(attr.data, attr.len.into()),
        }
    }

    /// The bytes of input `id`; empty if it is absent.
    pub(crate) fn bytes(&self, id: u16) -> Result<Vec<u8>, Errno> {
        self.view
            .find(id)
            .map_or(Ok(Vec::new()), |attr| Self::payload(&attr))
    }

    pub(crate) fn slice<M, T>(&self, attr: SliceIn<M, T>) -> Result<Vec<u8>, Errno> {
        self.bytes(attr.id())
    }

    pub(crate) fn input<M, T: FromBytes>(&self, attr: In<M, T>) -> Result<T, Errno> {
        T::read_from_bytes(&self.bytes(attr.id())?).map_err(|_| Errno(libc::EINVAL))
    }

    /// An input that may be absent.
    pub(crate) fn optional<M, T: FromBytes>(&self, attr: In<M, T>) -> Result<Option<T>, Errno> {
        match self.view.find(attr.id()) {
            Some(_) => self.input(attr).map(Some),
            None => Ok(None),
        }
    }

    pub(crate) fn constant<M, T>(&self, attr: Const<M, T>) -> u64 {
        self.view.find(attr.id()).map_or(0, |attr| attr.data)
    }

    pub(crate) fn flags<M, T>(&self, attr: Flags<M, T>) -> u64 {
        match self.view.find(attr.id()) {
            Some(attr) if attr.len == 4 => attr.data & u64::from(u32::MAX),
            Some(attr) => attr.data,
            None => 0,
        }
    }

    /// `data` of an attribute of a driver's, by number: a constant, or a handle.
    pub(crate) fn raw_constant(&self, id: u16) -> Option<u64> {
        self.view.find(id).map(|attr| attr.data)
    }

    /// Answers a number in `data` of an attribute of a driver's.
    pub(crate) fn put_raw_number(&self, id: u16, number: u64) -> Result<(), Errno> {
        self.put_number(id, number)
    }

    pub(crate) fn handle<M, H>(&self, attr: HandleIn<M, H>) -> Result<Option<u32>, Errno> {
        self.number(attr.id())
    }

    pub(crate) fn doomed<M, H>(&self, attr: DestroyHandle<M, H>) -> Result<u32, Errno> {
        self.number(attr.id())?.ok_or(Errno(libc::EINVAL))
    }

    pub(crate) fn fd<M, O>(&self, attr: FdIn<M, O>) -> Result<Option<i32>, Errno> {
        let attr = self.view.find(attr.id());
        attr.map(|attr| i32::try_from(attr.data.cast_signed()).map_err(|_| Errno(libc::EINVAL)))
            .transpose()
    }

    fn number(&self, id: u16) -> Result<Option<u32>, Errno> {
        let attr = self.view.find(id);
        attr.map(|attr| u32::try_from(attr.data).map_err(|_| Errno(libc::ENOENT)))
            .transpose()
    }

    /// Bytes that the program has for output `id`; `None` if it does not want it.
    pub(crate) fn room(&self, id: u16) -> Option<usize> {
        self.view.find(id).map(|attr| attr.len.into())
    }

    /// Writes an output, and zero behind it, and marks it as written.
    pub(crate) fn put_bytes(&self, id: u16, bytes: &[u8]) -> Result<(), Errno> {
        let Some((index, attr)) = self.view.position(id) else {
            return Ok(());
        };
        let mut padded = bytes.to_vec();
        if self.is_short {
            let is_invoke = self.view.spec().map(|spec| spec.name) == Some(invoke_write::SPEC.name);
            padded = shorten(is_invoke && id == invoke_write::CORE_OUT.id(), padded);
        }
        padded.resize(attr.len.into(), 0);
        raw::copy_out(attr.data, &padded)?;
        if self.is_short {
            return Ok(());
        }
        let flags = attr.flags | ATTR_F_VALID_OUTPUT;
        let at = RequestView::attr_offset(index) + std::mem::offset_of!(Attr, flags);
        raw::copy_out(self.base + at as u64, &flags.to_ne_bytes())
    }

    pub(crate) fn put<M, T: IntoBytes + Immutable>(
        &self,
        attr: Out<M, T>,
        value: T,
    ) -> Result<(), Errno> {
        self.put_bytes(attr.id(), value.as_bytes())
    }

    pub(crate) fn put_slice<M, T>(&self, attr: SliceOut<M, T>, bytes: &[u8]) -> Result<(), Errno> {
        self.put_bytes(attr.id(), bytes)
    }

    pub(crate) fn put_handle<M, H>(&self, attr: NewHandle<M, H>, handle: u32) -> Result<(), Errno> {
        self.put_number(attr.id(), handle.into())
    }

    pub(crate) fn put_fd<M, O>(&self, attr: NewFd<M, O>, fd: i32) -> Result<(), Errno> {
        self.put_number(attr.id(), i64::from(fd).cast_unsigned())
    }

    fn put_number(&self, id: u16, number: u64) -> Result<(), Errno> {
        let Some((index, _)) = self.view.position(id) else {
            return Ok(());
        };
        let at = RequestView::attr_offset(index) + std::mem::offset_of!(Attr, data);
        raw::copy_out(self.base + at as u64, &number.to_ne_bytes())
    }
}

/// What a short answer has of a response: of a write command's the handle or descriptor with which it
/// begins, since the kernel made the object; of others nothing.
pub(crate) fn shorten(is_write: bool, mut response: Vec<u8>) -> Vec<u8> {
    response.truncate(if is_write { 4 } else { 0 });
    response
}

/// What a program sends to the driver beside a command's own part, and what it has for the answer.
#[derive(Debug)]
pub(crate) struct Uhw<'a> {
    pub(crate) input: &'a [u8],
    /// Bytes.
    pub(crate) room: usize,
}

/// A write command in either framing, with the answer that grows.
#[derive(Debug, Default)]
pub(crate) struct WriteRequest {
    pub(crate) command: u32,
    pub(crate) core: Vec<u8>,
    pub(crate) uhw: Vec<u8>,
    /// Bytes that the program has for the driver's answer.
    pub(crate) uhw_room: usize,
    pub(crate) response: Vec<u8>,
    pub(crate) uhw_response: Vec<u8>,
}

impl WriteRequest {
    /// The request struct; longer requests are cut, as the kernel does.
    pub(crate) fn get<T: FromBytes>(&self) -> Result<T, Errno> {
        T::read_from_prefix(&self.core)
            .map(|(value, _)| value)
            .map_err(|_| Errno(libc::ENOSPC))
    }

    pub(crate) fn uhw(&self) -> Uhw<'_> {
        Uhw {
            input: &self.uhw,
            room: self.uhw_room,
        }
    }

    pub(crate) fn answer<T: IntoBytes + Immutable>(&mut self, value: T) {
        self.response = value.as_bytes().to_vec();
    }

    pub(crate) fn answer_uhw<T: IntoBytes + Immutable>(&mut self, value: T) {
        self.uhw_response = value.as_bytes().to_vec();
    }
}
