//! The types of attributes: what travels, in which direction, in which method.
//!
//! Each attribute of a method is a constant of one of these types; [`Command`](super::Command) has one
//! setter per type, so an output cannot be sent as an input, nor an attribute to a method that it
//! does not belong to. Drivers' own attributes are declared in the same way, by `new`.

use core::fmt;
use core::marker::PhantomData;
use core::mem::size_of;

use super::spec::Kind;

/// What every type of attribute says about itself.
pub trait Attribute {
    /// Kind of the attribute.
    const KIND: Kind;
    /// Bytes of the value; of one element for slices; 0 for objects and file descriptors.
    const LEN: usize;

    /// The attribute's number in its method.
    fn id(&self) -> u16;
}

macro_rules! attribute_types {
    ($( $(#[$meta:meta])* $name:ident<$method:ident, $value:ident> = $kind:ident, $len:expr; )*) => {$(
        $(#[$meta])*
        pub struct $name<$method, $value> {
            id: u16,
            marker: PhantomData<fn() -> ($method, $value)>,
        }

        impl<$method, $value> $name<$method, $value> {
            /// The attribute with number `id`.
            pub const fn new(id: u16) -> Self {
                Self { id, marker: PhantomData }
            }
        }

        impl<$method, $value> Attribute for $name<$method, $value> {
            const KIND: Kind = Kind::$kind;
            const LEN: usize = $len;

            fn id(&self) -> u16 {
                self.id
            }
        }

        impl<$method, $value> Clone for $name<$method, $value> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<$method, $value> Copy for $name<$method, $value> {}

        impl<$method, $value> fmt::Debug for $name<$method, $value> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:#x})"), self.id)
            }
        }
    )*};
}

attribute_types! {
    /// A value for the kernel (`UVERBS_ATTR_PTR_IN`).
    In<M, T> = In, size_of::<T>();
    /// A value from the kernel (`UVERBS_ATTR_PTR_OUT`).
    Out<M, T> = Out, size_of::<T>();
    /// A number for the kernel, always as 8 bytes (`UVERBS_ATTR_CONST_IN`).
    Const<M, T> = Const, 8;
    /// Flags for the kernel, 4 bytes (`UVERBS_ATTR_FLAGS_IN`; the kernel takes 8 as well).
    Flags<M, T> = Flags, 4;
    /// An element number with a payload that depends on it (`UVERBS_ATTR_ENUM_IN`); `T` is the
    /// element's type.
    EnumIn<M, T> = EnumIn, 0;
    /// Any number of elements for the kernel.
    SliceIn<M, T> = SliceIn, size_of::<T>();
    /// Room for any number of elements from the kernel.
    SliceOut<M, T> = SliceOut, size_of::<T>();
    /// An existing object (`UVERBS_ATTR_IDR` with read or write access).
    HandleIn<M, H> = Handle, 0;
    /// An object that the method makes (`UVERBS_ACCESS_NEW`).
    NewHandle<M, H> = NewHandle, 0;
    /// An object that the method destroys (`UVERBS_ACCESS_DESTROY`).
    DestroyHandle<M, H> = DestroyHandle, 0;
    /// Existing objects (`UVERBS_ATTR_IDRS_ARR`).
    HandlesIn<M, H> = Handles, 4;
    /// An existing object that is a file descriptor (`UVERBS_ATTR_FD`).
    FdIn<M, O> = Fd, 0;
    /// A file descriptor that the method makes.
    NewFd<M, O> = NewFd, 0;
}
