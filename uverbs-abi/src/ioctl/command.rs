//! A request being built, and after the call its answer.

use core::fmt;
use core::marker::PhantomData;

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::handle::{FdObject, Handle};
use crate::types::DriverId;

use super::Error;
use super::attribute::{
    Attribute, Const, DestroyHandle, EnumIn, FdIn, Flags, HandleIn, HandlesIn, In, NewFd,
    NewHandle, Out, SliceIn, SliceOut,
};
use super::spec::{HasUhw, Method};
use super::wire::{
    ATTR_F_MANDATORY, ATTR_F_VALID_OUTPUT, ATTR_UHW_IN, ATTR_UHW_OUT, Attr, Frame, INLINE_MAX,
    MAX_ATTRS,
};

/// Words of a command's own memory for inputs over 8 bytes: room for every core struct and the
/// longest driver request of mlx5 (152 bytes) at once.
pub const INPUT_WORDS: usize = 64;
/// Words of a command's own memory for outputs.
pub const OUTPUT_WORDS: usize = 64;

/// Where an attribute's payload is.
#[derive(Debug)]
pub enum Slot<'a> {
    /// In the attribute itself, or nowhere.
    Inline,
    /// In the command's input memory.
    Input {
        /// Bytes from the start of [`Raw::input`]; a multiple of 8.
        offset: usize,
        /// Bytes of the payload.
        len: usize,
    },
    /// In the command's output memory.
    Output {
        /// Bytes from the start of [`Raw::output`]; a multiple of 8.
        offset: usize,
        /// Bytes of the payload.
        len: usize,
    },
    /// In the caller's memory.
    ExternIn(&'a [u8]),
    /// In the caller's memory.
    ExternOut(&'a mut [u8]),
}

#[derive(Debug)]
struct Entry<'a> {
    id: u16,
    slot: Slot<'a>,
}

impl Entry<'_> {
    const EMPTY: Self = Entry {
        id: 0,
        slot: Slot::Inline,
    };
}

/// A request for method `M`.
///
/// Setters take an attribute's constant and its value, in any order, and may be chained. What does
/// not fit is remembered and reported once, by [`prepare`](Self::prepare). An optional attribute is one
/// that is not set. All attributes are sent as mandatory, as libibverbs does, except those after
/// which [`optional`](Self::optional) is called.
///
/// The memory for payloads belongs to the command and is zeroed when the command is made: what a
/// kernel leaves out of a short answer reads as zero. `'a` is the lifetime of slices of the caller's
/// that the command points to.
pub struct Command<'a, M> {
    frame: Frame,
    entries: [Entry<'a>; MAX_ATTRS],
    count: usize,
    input: [u64; INPUT_WORDS],
    input_used: usize,
    output: [u64; OUTPUT_WORDS],
    output_used: usize,
    error: Option<Error>,
    method: PhantomData<fn() -> M>,
}

/// A finished request: the frame, and where each attribute's payload is.
///
/// Whoever makes the system call writes an address into `frame.attrs[i].data` for each `slots[i]`
/// that is not [`Slot::Inline`], and passes the frame's address to ioctl(2). All of it stays borrowed
/// meanwhile; the memory is 8-aligned.
pub struct Raw<'c, 'a> {
    /// Header and attributes.
    pub frame: &'c mut Frame,
    /// Payloads of inputs.
    pub input: &'c mut [u64],
    /// Room for payloads of outputs, zeroed.
    pub output: &'c mut [u64],
    entries: &'c mut [Entry<'a>],
}

impl<'a> Raw<'_, 'a> {
    /// For each attribute in order: the attribute and where its payload is.
    pub fn attrs(&mut self) -> impl Iterator<Item = (&mut Attr, &mut Slot<'a>)> {
        let slots = self.entries.iter_mut().map(|entry| &mut entry.slot);
        self.frame.attrs.iter_mut().zip(slots)
    }

    /// Everything at once, for a caller that needs addresses of memory and attributes together.
    pub fn split(
        &mut self,
    ) -> (
        &mut Frame,
        &mut [u64],
        &mut [u64],
        impl Iterator<Item = &mut Slot<'a>>,
    ) {
        let slots = self.entries.iter_mut().map(|entry| &mut entry.slot);
        (self.frame, self.input, self.output, slots)
    }
}

impl fmt::Debug for Raw<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Raw")
            .field("header", &self.frame.header)
            .field("entries", &self.entries)
            .finish_non_exhaustive()
    }
}

impl<'a, M: Method> Command<'a, M> {
    /// A command without attributes.
    pub fn new() -> Self {
        let mut frame = Frame::empty();
        frame.header.object_id = M::SPEC.object.0;
        frame.header.method_id = M::SPEC.id;
        Self {
            frame,
            entries: [const { Entry::EMPTY }; MAX_ATTRS],
            count: 0,
            input: [0; INPUT_WORDS],
            input_used: 0,
            output: [0; OUTPUT_WORDS],
            output_used: 0,
            error: None,
            method: PhantomData,
        }
    }

    // ---- setters ----

    /// Sends a value.
    pub fn input<T>(&mut self, attr: In<M, T>, value: T) -> &mut Self
    where
        T: IntoBytes + Immutable,
    {
        self.copy_in(attr.id(), 0, value.as_bytes())
    }

    /// Sends a number.
    pub fn constant<T: Into<u64>>(&mut self, attr: Const<M, T>, value: T) -> &mut Self {
        let value: u64 = value.into();
        self.copy_in(attr.id(), 0, value.as_bytes())
    }

    /// Sends flags.
    pub fn flags<T>(&mut self, attr: Flags<M, T>, value: T) -> &mut Self
    where
        T: IntoBytes + Immutable,
    {
        const { assert!(size_of::<T>() == 4) };
        self.copy_in(attr.id(), 0, value.as_bytes())
    }

    /// Sends flags as 8 bytes: kernels take both, and some programs send these.
    pub fn flags_as_u64<T>(&mut self, attr: Flags<M, T>, value: T) -> &mut Self
    where
        T: IntoBytes + Immutable,
    {
        const { assert!(size_of::<T>() == 4) };
        let mut wide = 0_u64;
        // the ABI's integers are the machine's
        let at = if cfg!(target_endian = "big") { 4 } else { 0 };
        wide.as_mut_bytes()[at..at + 4].copy_from_slice(value.as_bytes());
        self.copy_in(attr.id(), 0, wide.as_bytes())
    }

    /// Sends an element number with its payload (which may be `()`).
    pub fn enumerated<E, T>(&mut self, attr: EnumIn<M, E>, element: E, value: T) -> &mut Self
    where
        E: Into<u64>,
        T: IntoBytes + Immutable,
    {
        match u8::try_from(element.into()) {
            Ok(element) => self.copy_in(attr.id(), element, value.as_bytes()),
            Err(_) => self.fail(Error::TooLong),
        }
    }

    /// Sends elements from the caller's memory.
    pub fn slice<T>(&mut self, attr: SliceIn<M, T>, values: &'a [T]) -> &mut Self
    where
        T: IntoBytes + Immutable,
    {
        self.extern_in(attr.id(), values.as_bytes())
    }

    /// Names an existing object.
    pub fn object<H: Handle>(&mut self, attr: HandleIn<M, H>, handle: H) -> &mut Self {
        self.number(attr.id(), u64::from(handle.into()))
    }

    /// Names the object that the method destroys.
    pub fn destroy<H: Handle>(&mut self, attr: DestroyHandle<M, H>, handle: H) -> &mut Self {
        self.number(attr.id(), u64::from(handle.into()))
    }

    /// Names existing objects.
    pub fn objects<H>(&mut self, attr: HandlesIn<M, H>, handles: &'a [H]) -> &mut Self
    where
        H: Handle + IntoBytes + Immutable,
    {
        self.extern_in(attr.id(), handles.as_bytes())
    }

    /// Asks for the handle of the object that the method makes; read it with [`handle`](Self::handle).
    pub fn new_handle<H: Handle>(&mut self, attr: NewHandle<M, H>) -> &mut Self {
        self.number(attr.id(), 0)
    }

    /// Names an existing object by its file descriptor.
    pub fn fd<O: FdObject>(&mut self, attr: FdIn<M, O>, fd: i32) -> &mut Self {
        self.number(attr.id(), i64::from(fd) as u64)
    }

    /// Asks for the file descriptor that the method makes; read it with
    /// [`raw_fd`](Self::raw_fd).
    pub fn new_fd<O: FdObject>(&mut self, attr: NewFd<M, O>) -> &mut Self {
        self.number(attr.id(), 0)
    }

    /// Asks for a value; read it with [`get`](Self::get).
    pub fn output<T: FromBytes>(&mut self, attr: Out<M, T>) -> &mut Self {
        self.room_out(attr.id(), size_of::<T>())
    }

    /// Asks for elements, into the caller's memory. How many came is another attribute's business.
    pub fn output_slice<T>(&mut self, attr: SliceOut<M, T>, values: &'a mut [T]) -> &mut Self
    where
        T: FromBytes + IntoBytes,
    {
        self.extern_out(attr.id(), values.as_mut_bytes())
    }

    /// Sends the driver's part of the request.
    pub fn uhw_in<T>(&mut self, value: &T) -> &mut Self
    where
        M: HasUhw,
        T: IntoBytes + Immutable,
    {
        self.copy_in(ATTR_UHW_IN, 0, value.as_bytes())
    }

    /// Sends the driver's part of the request from the caller's memory.
    pub fn uhw_in_bytes(&mut self, bytes: &'a [u8]) -> &mut Self
    where
        M: HasUhw,
    {
        self.extern_in(ATTR_UHW_IN, bytes)
    }

    /// Asks for the driver's part of the response; read it with [`uhw`](Self::uhw).
    pub fn uhw_out<T: FromBytes>(&mut self) -> &mut Self
    where
        M: HasUhw,
    {
        self.room_out(ATTR_UHW_OUT, size_of::<T>())
    }

    /// Asks for the driver's part of the response, into the caller's memory.
    pub fn uhw_out_bytes(&mut self, bytes: &'a mut [u8]) -> &mut Self
    where
        M: HasUhw,
    {
        self.extern_out(ATTR_UHW_OUT, bytes)
    }

    /// Lets a kernel that does not know the attribute set last ignore it.
    pub fn optional(&mut self) -> &mut Self {
        if self.error.is_none()
            && let Some(last) = self.count.checked_sub(1)
        {
            self.frame.attrs[last].flags &= !ATTR_F_MANDATORY;
        }
        self
    }

    // ---- the call ----

    /// Finishes the request. The first error of any setter comes out here.
    pub fn prepare(&mut self, driver_id: DriverId) -> Result<Raw<'_, 'a>, Error> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let header = &mut self.frame.header;
        header.num_attrs = self.count as u16;
        header.length = (size_of_val(header) + self.count * size_of::<Attr>()) as u16;
        header.reserved1 = 0;
        header.driver_id = driver_id.0;
        header.reserved2 = 0;
        Ok(Raw {
            frame: &mut self.frame,
            input: &mut self.input,
            output: &mut self.output,
            entries: &mut self.entries[..self.count],
        })
    }

    // ---- answers ----

    /// The value that the kernel wrote; bytes that it did not write are zero.
    pub fn get<T: FromBytes>(&self, attr: Out<M, T>) -> Result<T, Error> {
        self.read(attr.id())
    }

    /// The handle of the new object.
    pub fn handle<H: Handle>(&self, attr: NewHandle<M, H>) -> Result<H, Error> {
        let number = self.frame.attrs[self.find(attr.id())?].data;
        let number = u32::try_from(number).map_err(|_| Error::BadNumber(attr.id()))?;
        Ok(number.into())
    }

    /// The new file descriptor. It is the caller's to own and to close.
    pub fn raw_fd<O: FdObject>(&self, attr: NewFd<M, O>) -> Result<i32, Error> {
        let number = self.frame.attrs[self.find(attr.id())?].data as i64;
        match i32::try_from(number) {
            Ok(fd) if fd >= 0 => Ok(fd),
            _ => Err(Error::BadNumber(attr.id())),
        }
    }

    /// The driver's part of the response; bytes that the driver did not write are zero.
    pub fn uhw<T: FromBytes>(&self) -> Result<T, Error>
    where
        M: HasUhw,
    {
        self.read(ATTR_UHW_OUT)
    }

    /// Whether the kernel said that it wrote an output. Attributes that a method requires are
    /// written whenever it succeeds.
    pub fn written(&self, attr: &impl Attribute) -> bool {
        self.find(attr.id())
            .is_ok_and(|index| self.frame.attrs[index].flags & ATTR_F_VALID_OUTPUT != 0)
    }

    // ---- plumbing; also used by the write commands, whose payloads have no fixed type ----

    pub(crate) fn copy_in(&mut self, id: u16, element: u8, bytes: &[u8]) -> &mut Self {
        let Some(index) = self.add(id, bytes.len()) else {
            return self;
        };
        let attr = &mut self.frame.attrs[index];
        attr.elem_id = element;
        if bytes.len() <= INLINE_MAX {
            attr.data.as_mut_bytes()[..bytes.len()].copy_from_slice(bytes);
            return self;
        }
        let offset = self.input_used;
        let room = &mut self.input.as_mut_bytes()[offset..];
        match room.get_mut(..bytes.len()) {
            Some(room) => {
                room.copy_from_slice(bytes);
                self.input_used += bytes.len().next_multiple_of(8);
                let len = bytes.len();
                self.entries[index].slot = Slot::Input { offset, len };
                self
            }
            None => self.fail(Error::InputFull),
        }
    }

    pub(crate) fn extern_in(&mut self, id: u16, bytes: &'a [u8]) -> &mut Self {
        if bytes.len() <= INLINE_MAX {
            return self.copy_in(id, 0, bytes);
        }
        if let Some(index) = self.add(id, bytes.len()) {
            self.entries[index].slot = Slot::ExternIn(bytes);
        }
        self
    }

    pub(crate) fn extern_out(&mut self, id: u16, bytes: &'a mut [u8]) -> &mut Self {
        if let Some(index) = self.add(id, bytes.len()) {
            self.entries[index].slot = Slot::ExternOut(bytes);
        }
        self
    }

    fn room_out(&mut self, id: u16, len: usize) -> &mut Self {
        let Some(index) = self.add(id, len) else {
            return self;
        };
        let offset = self.output_used;
        if len > OUTPUT_WORDS * 8 - offset {
            return self.fail(Error::OutputFull);
        }
        self.output_used += len.next_multiple_of(8);
        self.entries[index].slot = Slot::Output { offset, len };
        self
    }

    fn number(&mut self, id: u16, number: u64) -> &mut Self {
        if let Some(index) = self.add(id, 0) {
            self.frame.attrs[index].data = number;
        }
        self
    }

    fn add(&mut self, id: u16, len: usize) -> Option<usize> {
        if self.error.is_some() {
            return None;
        }
        let Ok(len) = u16::try_from(len) else {
            self.fail(Error::TooLong);
            return None;
        };
        if self.find(id).is_ok() {
            self.fail(Error::Duplicate(id));
            return None;
        }
        let index = self.count;
        let Some(attr) = self.frame.attrs.get_mut(index) else {
            self.fail(Error::TooManyAttributes);
            return None;
        };
        attr.attr_id = id;
        attr.len = len;
        attr.flags = ATTR_F_MANDATORY;
        self.entries[index].id = id;
        self.count += 1;
        Some(index)
    }

    fn fail(&mut self, error: Error) -> &mut Self {
        self.error.get_or_insert(error);
        self
    }

    /// Looks in the command's own list: the frame is the kernel's to overwrite.
    fn find(&self, id: u16) -> Result<usize, Error> {
        self.entries[..self.count]
            .iter()
            .position(|entry| entry.id == id)
            .ok_or(Error::Absent(id))
    }

    fn read<T: FromBytes>(&self, id: u16) -> Result<T, Error> {
        let Slot::Output { offset, len } = self.entries[self.find(id)?].slot else {
            return Err(Error::Absent(id));
        };
        self.output
            .as_bytes()
            .get(offset..offset + len)
            .and_then(|bytes| T::read_from_prefix(bytes).ok())
            .map(|(value, _)| value)
            .ok_or(Error::Absent(id))
    }
}

impl<M: Method> Default for Command<'_, M> {
    fn default() -> Self {
        Self::new()
    }
}

impl<M: Method> fmt::Debug for Command<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Command")
            .field("method", &M::SPEC.name)
            .field("attrs", &&self.frame.attrs[..self.count])
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}
