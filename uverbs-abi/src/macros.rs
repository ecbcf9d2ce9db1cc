//! How the tables of this crate are written down: each struct with its offsets, each method with
//! its attributes, once, and everything else (asserts, tables for tests and emulators) from that.

/// Structs of the ABI. Each line is `offset field: type`, checked by `const` asserts here and against
/// the C headers by `tests/layout.rs`; the list of all of them becomes the module's `LAYOUTS`.
macro_rules! abi_structs {
    ($(
        $(#[$meta:meta])*
        $c_name:literal $name:ident [$size:literal] {
            $( $(#[$field_meta:meta])* $offset:literal $field:ident : $ty:ty ),* $(,)?
        }
    )*) => {
        $(
            $(#[$meta])*
            #[doc = ""]
            #[doc = concat!("`struct ", $c_name, "`, ", $size, " bytes.")]
            #[doc(alias = $c_name)]
            #[repr(C)]
            #[derive(
                Clone, Copy, Debug, Default, PartialEq, Eq,
                zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable,
            )]
            pub struct $name {
                $(
                    $(#[$field_meta])*
                    #[doc = concat!("Offset ", $offset, ".")]
                    pub $field: $ty,
                )*
            }

            const _: () = {
                assert!(core::mem::size_of::<$name>() == $size);
                $( assert!(core::mem::offset_of!($name, $field) == $offset); )*
            };
        )*

        $(
            impl crate::layout::HasLayout for $name {
                const LAYOUT: &'static crate::layout::Layout = &crate::layout::Layout {
                    c_name: $c_name,
                    size: $size,
                    fields: &[
                        $( crate::layout::Field {
                            name: stringify!($field),
                            offset: $offset,
                            size: core::mem::size_of::<$ty>(),
                        } ),*
                    ],
                };
            }
        )*

        /// Layouts of this module's structs, for tests against C and for tools.
        pub const LAYOUTS: &[&crate::layout::Layout] =
            &[$( <$name as crate::layout::HasLayout>::LAYOUT ),*];
    };
}

/// An enumeration that the kernel may extend: any number is allowed, the known ones have names.
macro_rules! open_enums {
    ($(
        $(#[$meta:meta])*
        $c_name:literal $name:ident($repr:ty) {
            $( $(#[$value_meta:meta])* $c_value:literal $value:ident = $number:expr ),* $(,)?
        }
    )*) => {$(
        $(#[$meta])*
        #[doc(alias = $c_name)]
        #[repr(transparent)]
        #[derive(
            Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash,
            zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable,
        )]
        pub struct $name(pub $repr);

        impl $name {
            $(
                $(#[$value_meta])*
                #[doc = concat!("`", $c_value, "`")]
                #[doc(alias = $c_value)]
                pub const $value: Self = Self($number);
            )*

            /// Known values and their C names.
            pub const NAMES: &'static [(&'static str, u64)] = &[$( ($c_value, Self::$value.0 as u64) ),*];
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match *self {
                    $( Self::$value => f.write_str(stringify!($value)), )*
                    #[allow(unreachable_patterns)]
                    Self(other) => write!(f, concat!(stringify!($name), "({})"), other),
                }
            }
        }

        impl From<$name> for u64 {
            fn from(value: $name) -> u64 {
                u64::from(value.0)
            }
        }
    )*};
}

/// A set of flags; unknown bits are kept.
macro_rules! flag_sets {
    ($(
        $(#[$meta:meta])*
        $c_name:literal $name:ident($repr:ty) {
            $( $(#[$value_meta:meta])* $c_value:literal $value:ident = $number:expr ),* $(,)?
        }
    )*) => {$(
        $(#[$meta])*
        #[doc(alias = $c_name)]
        #[repr(transparent)]
        #[derive(
            Clone, Copy, Default, PartialEq, Eq, Hash,
            zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable,
        )]
        pub struct $name(pub $repr);

        impl $name {
            $(
                $(#[$value_meta])*
                #[doc = concat!("`", $c_value, "`")]
                #[doc(alias = $c_value)]
                pub const $value: Self = Self($number);
            )*

            /// No flag.
            pub const NONE: Self = Self(0);

            /// Known values and their C names.
            pub const NAMES: &'static [(&'static str, u64)] = &[$( ($c_value, Self::$value.0 as u64) ),*];

            /// Whether every flag of `other` is set.
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// The bits as a number.
            pub const fn bits(self) -> $repr {
                self.0
            }

            /// Whether no flag is set.
            pub const fn is_empty(self) -> bool {
                self.0 == 0
            }

            /// Both sets, for constants.
            pub const fn with(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }
        }

        impl core::ops::BitOr for $name {
            type Output = Self;
            fn bitor(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }
        }

        impl core::ops::BitOrAssign for $name {
            fn bitor_assign(&mut self, other: Self) {
                self.0 |= other.0;
            }
        }

        impl core::ops::BitAnd for $name {
            type Output = Self;
            fn bitand(self, other: Self) -> Self {
                Self(self.0 & other.0)
            }
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                let mut rest = self.0;
                let mut first = true;
                $(
                    if Self::$value.0 != 0 && self.contains(Self::$value) {
                        if !core::mem::take(&mut first) {
                            f.write_str(" | ")?;
                        }
                        f.write_str(stringify!($value))?;
                        rest &= !Self::$value.0;
                    }
                )*
                if rest != 0 || first {
                    if !first {
                        f.write_str(" | ")?;
                    }
                    write!(f, "{rest:#x}")?;
                }
                Ok(())
            }
        }
    )*};
}

/// The methods of one object. Each becomes a module with a type `Method`, one constant per attribute,
/// and its [`MethodSpec`](crate::ioctl::MethodSpec); the list of all becomes `METHODS`.
macro_rules! methods {
    (
        $object:ident;
        $(
            $(#[$meta:meta])*
            $c_name:literal $module:ident = $number:literal $(with $uhw:ident)? {
                $(
                    $(#[$attr_meta:meta])*
                    $attr_c_name:literal $attr:ident = $id:literal : $kind:ident<$ty:ty>, $need:ident;
                )*
            }
        )*
    ) => {
        $(
            $(#[$meta])*
            #[doc = ""]
            #[doc = concat!("`", $c_name, "`, method ", $number, ".")]
            #[doc(alias = $c_name)]
            pub mod $module {
                #[allow(unused_imports, reason = "one list for all methods")]
                use crate::{handle, ioctl::attribute::*, types, write};

                /// The method; see the module.
                #[derive(Clone, Copy, Debug)]
                pub enum Method {}

                $(
                    $(#[$attr_meta])*
                    #[doc = ""]
                    #[doc = concat!("`", $attr_c_name, "`, ", stringify!($need), ".")]
                    #[doc(alias = $attr_c_name)]
                    pub const $attr: $kind<Method, $ty> = $kind::new($id);
                )*

                impl crate::ioctl::Method for Method {
                    const SPEC: &'static crate::ioctl::MethodSpec = &SPEC;
                }

                $( with!($uhw Method); )?

                /// The method as data.
                pub const SPEC: crate::ioctl::MethodSpec = crate::ioctl::MethodSpec {
                    object: crate::object::Object::$object,
                    id: $number,
                    name: $c_name,
                    has_uhw: with!($($uhw)?),
                    attributes: &[
                        $( crate::ioctl::AttributeSpec {
                            id: $id,
                            name: $attr_c_name,
                            kind: <$kind<Method, $ty> as Attribute>::KIND,
                            required: need!($need),
                            len: <$kind<Method, $ty> as Attribute>::LEN,
                        } ),*
                    ],
                };
            }
        )*

        /// The object's methods, ordered by number.
        pub const METHODS: &[&crate::ioctl::MethodSpec] = &[$( &$module::SPEC ),*];
    };
}

macro_rules! with {
    () => {
        false
    };
    (uhw) => {
        true
    };
    (uhw $method:ident) => {
        impl crate::ioctl::spec::HasUhw for $method {}
    };
}

macro_rules! need {
    (required) => {
        true
    };
    (optional) => {
        false
    };
}

/// Implements [`WriteCommand`](crate::write::WriteCommand) for request structs, and lists them.
macro_rules! write_commands {
    ($( $c_name:literal $number:literal $($extended:ident)? : $request:ty => $response:ty; )*) => {
        $(
            impl crate::write::WriteCommand for $request {
                const SPEC: &'static crate::write::WriteSpec = &crate::write::WriteSpec {
                    number: $number,
                    extended: extended!($($extended)?),
                    name: $c_name,
                    request: <$request as crate::layout::HasLayout>::LAYOUT,
                    request_len: core::mem::size_of::<$request>(),
                    response_len: core::mem::size_of::<$response>(),
                };
                type Response = $response;
            }
        )*

        /// The commands of this module.
        pub const COMMANDS: &[&crate::write::WriteSpec] =
            &[$( <$request as crate::write::WriteCommand>::SPEC ),*];
    };
}

macro_rules! extended {
    () => {
        false
    };
    (extended) => {
        true
    };
}
