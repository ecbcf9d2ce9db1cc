//! The other side: a request taken apart.
//!
//! For a stand-in kernel, a supervisor of a sandbox, or a tracer. Any bytes are taken without a
//! panic; addresses in the result are the client's and mean nothing here.

use core::fmt;

use zerocopy::{FromBytes, IntoBytes};

use crate::object::Object;
use crate::types::DriverId;

use super::spec::MethodSpec;
use super::wire::{ATTR_F_MANDATORY, ATTR_F_VALID_OUTPUT, Attr, Header, INLINE_MAX};

const HEADER: usize = size_of::<Header>();
const ATTR: usize = size_of::<Attr>();

/// A request that passes the kernel's first checks: the lengths agree, reserved words are zero.
#[derive(Clone, Copy)]
pub struct RequestView<'b> {
    header: Header,
    attrs: &'b [u8],
}

/// Why bytes are not a request (`ib_uverbs_ioctl`; the errno is what the kernel answers).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Malformed {
    /// Fewer bytes than the header, or than the header says (`EFAULT`).
    Short,
    /// `length` and `num_attrs` do not agree (`EINVAL`).
    Length,
    /// A reserved word is set (`EPROTONOSUPPORT`).
    Reserved,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Short => "the request ends before its header says",
            Self::Length => "the request's length and number of attributes do not agree",
            Self::Reserved => "a reserved word of the request's header is set",
        })
    }
}

impl core::error::Error for Malformed {}

/// One attribute of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttrView {
    /// Number in the method.
    pub id: u16,
    /// Bytes of the payload.
    pub len: u16,
    /// [`ATTR_F_MANDATORY`] and, after the call, [`ATTR_F_VALID_OUTPUT`].
    pub flags: u16,
    /// Element of an enumeration.
    pub elem_id: u8,
    /// Zero in a correct request.
    pub reserved: u8,
    /// The payload, its address, or a number.
    pub data: u64,
}

impl AttrView {
    /// Whether the kernel must know it.
    pub fn mandatory(&self) -> bool {
        self.flags & ATTR_F_MANDATORY != 0
    }

    /// Whether the kernel wrote it.
    pub fn valid_output(&self) -> bool {
        self.flags & ATTR_F_VALID_OUTPUT != 0
    }

    /// The payload of an input that travels in the attribute; `None` if `data` is an address.
    pub fn inline_input(&self) -> Option<InlineBytes> {
        (usize::from(self.len) <= INLINE_MAX).then(|| InlineBytes {
            bytes: self.data.to_ne_bytes(),
            len: self.len as u8,
        })
    }
}

impl From<Attr> for AttrView {
    fn from(attr: Attr) -> Self {
        Self {
            id: attr.attr_id,
            len: attr.len,
            flags: attr.flags,
            elem_id: attr.elem_id,
            reserved: attr.reserved,
            data: attr.data,
        }
    }
}

/// Up to 8 bytes that travelled inside an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InlineBytes {
    bytes: [u8; INLINE_MAX],
    len: u8,
}

impl AsRef<[u8]> for InlineBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len).min(INLINE_MAX)]
    }
}

impl<'b> RequestView<'b> {
    /// How many bytes the request has in all, from at least the first 24 of them.
    pub fn length(bytes: &[u8]) -> Result<usize, Malformed> {
        let (header, _) = Header::read_from_prefix(bytes).map_err(|_| Malformed::Short)?;
        Ok(usize::from(header.length))
    }

    /// Takes a request apart; bytes after its length are not looked at.
    pub fn parse(bytes: &'b [u8]) -> Result<Self, Malformed> {
        let (header, rest) = Header::read_from_prefix(bytes).map_err(|_| Malformed::Short)?;
        let attrs = usize::from(header.num_attrs) * ATTR;
        if usize::from(header.length) != HEADER + attrs {
            return Err(Malformed::Length);
        }
        if header.reserved1 != 0 || header.reserved2 != 0 {
            return Err(Malformed::Reserved);
        }
        let attrs = rest.get(..attrs).ok_or(Malformed::Short)?;
        Ok(Self { header, attrs })
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The object, and the method's number in it.
    pub fn method(&self) -> (Object, u16) {
        (Object(self.header.object_id), self.header.method_id)
    }

    /// The method's description, if it is one of the core's or of a driver that this crate knows.
    pub fn spec(&self) -> Option<&'static MethodSpec> {
        let (object, method) = self.method();
        crate::object::find_of(self.driver(), object, method)
    }

    /// The driver that the request is for.
    pub fn driver(&self) -> DriverId {
        DriverId(self.header.driver_id)
    }

    /// Number of attributes.
    pub fn len(&self) -> usize {
        self.attrs.len() / ATTR
    }

    /// Whether there is no attribute.
    pub fn is_empty(&self) -> bool {
        self.attrs.is_empty()
    }

    /// The attributes in the order in which they came.
    pub fn attrs(&self) -> impl Iterator<Item = AttrView> + Clone + use<'b> {
        self.attrs.chunks_exact(ATTR).map(|bytes| {
            let mut attr = Attr::default();
            attr.as_mut_bytes().copy_from_slice(bytes);
            attr.into()
        })
    }

    /// The first attribute with number `id`, and its place.
    pub fn position(&self, id: u16) -> Option<(usize, AttrView)> {
        self.attrs().enumerate().find(|(_, attr)| attr.id == id)
    }

    /// The first attribute with number `id`.
    pub fn find(&self, id: u16) -> Option<AttrView> {
        self.position(id).map(|(_, attr)| attr)
    }

    /// Offset of attribute `index` from the start of the request, where a kernel writes `flags` and
    /// `data` back.
    pub const fn attr_offset(index: usize) -> usize {
        HEADER + index * ATTR
    }
}

impl fmt::Debug for RequestView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("RequestView");
        match self.spec() {
            Some(spec) => out.field("method", &spec.name),
            None => out
                .field("object", &self.header.object_id)
                .field("method", &self.header.method_id),
        };
        out.field("driver_id", &self.header.driver_id)
            .field("attrs", &AttrList(*self))
            .finish()
    }
}

struct AttrList<'b>(RequestView<'b>);

impl fmt::Debug for AttrList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.attrs()).finish()
    }
}
