//! Methods as data: for emulators, tracers and tests.

use crate::object::{Object, mlx5};
use crate::types::DriverId;

use super::request::RequestView;
use super::wire;

/// A method of an object.
pub trait Method {
    /// What the method is.
    const SPEC: &'static MethodSpec;
}

/// A method that takes and gives the driver's own data ([`wire::ATTR_UHW_IN`], [`wire::ATTR_UHW_OUT`]).
pub trait HasUhw: Method {}

/// Description of a method.
#[derive(Clone, Copy, Debug)]
pub struct MethodSpec {
    /// The object.
    pub object: Object,
    /// The method's number in the object.
    pub id: u16,
    /// The C name.
    pub name: &'static str,
    /// Whether the driver's attributes `UHW_IN` and `UHW_OUT` belong to it.
    pub has_uhw: bool,
    /// Its attributes, ordered by number.
    pub attributes: &'static [AttributeSpec],
}

/// Description of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttributeSpec {
    /// The attribute's number in its method.
    pub id: u16,
    /// The C name.
    pub name: &'static str,
    /// What travels.
    pub kind: Kind,
    /// Whether the kernel refuses the method without it (`UA_MANDATORY`).
    pub required: bool,
    /// Bytes of the value; of one element for slices; 0 for objects and file descriptors.
    pub len: usize,
}

/// What travels in an attribute; see [`attribute`](super::attribute) for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "named and documented by the attribute types")]
pub enum Kind {
    In,
    Out,
    Const,
    Flags,
    EnumIn,
    SliceIn,
    SliceOut,
    Handle,
    NewHandle,
    DestroyHandle,
    Handles,
    Fd,
    NewFd,
}

impl Kind {
    /// Whether the attribute holds a number of an object rather than a payload.
    pub const fn is_object(self) -> bool {
        matches!(
            self,
            Self::Handle | Self::NewHandle | Self::DestroyHandle | Self::Fd | Self::NewFd
        )
    }

    /// Whether the kernel writes the payload.
    pub const fn is_output(self) -> bool {
        matches!(self, Self::Out | Self::SliceOut)
    }
}

/// Why a kernel would refuse a request before the method runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The header names another object or method.
    OtherMethod,
    /// An attribute of the method that it requires is absent (`EINVAL`).
    Missing(&'static str),
    /// The method has no such attribute, and the caller insists on it (`EPROTONOSUPPORT`).
    Unknown(u16),
    /// An attribute appears twice (`EINVAL`).
    Duplicate(&'static str),
    /// The payload's length does not fit the attribute (`EINVAL`).
    Length(&'static str),
    /// Reserved bytes are not zero (`EINVAL`).
    Reserved(&'static str),
}

impl MethodSpec {
    /// The attribute with number `id`.
    pub fn attribute(&self, id: u16) -> Option<&'static AttributeSpec> {
        self.attributes.iter().find(|a| a.id == id)
    }

    /// The attribute with number `id`, the method's own or one that the driver adds.
    pub fn attribute_of(&self, driver: DriverId, id: u16) -> Option<&'static AttributeSpec> {
        let extra = || match driver {
            DriverId::MLX5 => mlx5::extra_attribute(self.object, self.id, id),
            _ => None,
        };
        self.attribute(id).or_else(extra)
    }

    /// Checks a request as the kernel does before it runs the method. Payloads may be shorter or
    /// longer than this crate's struct only for the driver's data and slices.
    pub fn check(&self, request: &RequestView<'_>) -> Result<(), Refusal> {
        let header = request.header();
        if header.object_id != self.object.0 || header.method_id != self.id {
            return Err(Refusal::OtherMethod);
        }
        for (index, attr) in request.attrs().enumerate() {
            let uhw =
                self.has_uhw && (attr.id == wire::ATTR_UHW_IN || attr.id == wire::ATTR_UHW_OUT);
            let Some(spec) = self.attribute_of(request.driver(), attr.id) else {
                if !uhw && attr.mandatory() {
                    return Err(Refusal::Unknown(attr.id));
                }
                continue;
            };
            if request
                .attrs()
                .take(index)
                .any(|earlier| earlier.id == attr.id)
            {
                return Err(Refusal::Duplicate(spec.name));
            }
            if attr.reserved != 0 || (spec.kind != Kind::EnumIn && attr.elem_id != 0) {
                return Err(Refusal::Reserved(spec.name));
            }
            let len = usize::from(attr.len);
            let fits = match spec.kind {
                Kind::EnumIn => true,
                Kind::SliceIn | Kind::SliceOut | Kind::Handles => len % spec.len.max(1) == 0,
                Kind::Flags => len == 4 || len == 8,
                Kind::In | Kind::Out | Kind::Const => len == spec.len,
                _ => len == 0,
            };
            if !fits {
                return Err(Refusal::Length(spec.name));
            }
        }
        for spec in self.attributes {
            if spec.required && request.find(spec.id).is_none() {
                return Err(Refusal::Missing(spec.name));
            }
        }
        Ok(())
    }
}
