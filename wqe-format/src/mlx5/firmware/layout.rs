//! How layouts are declared, and what is known of them at run time.

use core::fmt;

/// A structure that the firmware reads or writes.
#[derive(Debug)]
pub struct Layout {
    /// Name here.
    pub name: &'static str,
    /// Name in Linux' `mlx5_ifc.h`, without `mlx5_ifc_` and `_bits`.
    pub kernel: &'static str,
    /// Bytes, without the array of any length at the end that some have.
    pub size: usize,
    /// Everything that is not reserved, in the order of declaration. Fields of unions overlap.
    pub fields: &'static [Field],
}

/// A field of a [`Layout`].
#[derive(Debug)]
pub struct Field {
    /// Name, as in `mlx5_ifc.h`.
    pub name: &'static str,
    /// First bit; bit 0 is the most significant bit of the first byte.
    pub offset: usize,
    /// Bits, of one element if it is an array.
    pub width: usize,
    /// Whether it stands several times.
    pub count: Count,
    /// What is in it, if it is a structure.
    pub nested: Option<&'static Layout>,
}

/// How often a [`Field`] stands in its layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    /// It is no array.
    One,
    /// An array.
    Times(usize),
    /// An array to the end of the message.
    Rest,
}

/// There are fewer bytes than the layout has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Short {
    /// Name of the layout.
    pub layout: &'static str,
    /// Bytes that it has.
    pub needed: usize,
    /// Bytes that there are.
    pub got: usize,
}

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            layout,
            needed,
            got,
        } = self;
        write!(f, "{layout} has {needed:#x} bytes, here are {got:#x}")
    }
}

impl core::error::Error for Short {}

impl Layout {
    /// Whether `bytes` begin with the layout.
    pub const fn check(&'static self, bytes: &[u8]) -> Result<(), Short> {
        if bytes.len() < self.size {
            return Err(Short {
                layout: self.name,
                needed: self.size,
                got: bytes.len(),
            });
        }
        Ok(())
    }

    /// The first bit that is set and reserved, that is, part of no field.
    pub fn reserved_bit_set(&self, bytes: &[u8]) -> Option<usize> {
        let fixed = bytes.get(..self.size).unwrap_or(bytes);
        for (index, byte) in fixed.iter().enumerate() {
            let mut left = *byte;
            while left != 0 {
                let bit = left.leading_zeros() as usize;
                let offset = index * 8 + bit;
                if !self.knows(offset) {
                    return Some(offset);
                }
                left &= !(0x80 >> bit);
            }
        }
        None
    }

    /// Whether a bit is part of a field.
    pub fn knows(&self, bit: usize) -> bool {
        self.fields.iter().any(|field| {
            let times = match field.count {
                Count::One => 1,
                Count::Times(times) => times,
                Count::Rest => usize::MAX / field.width.max(1),
            };
            let Some(inside) = bit.checked_sub(field.offset) else {
                return false;
            };
            inside / field.width.max(1) < times
                && field
                    .nested
                    .is_none_or(|nested| nested.knows(inside % field.width.max(1)))
        })
    }

    /// `bytes` to be printed: the fields that are not zero.
    pub fn view<'a>(&'static self, bytes: &'a [u8]) -> impl fmt::Debug + use<'a> {
        Printed {
            layout: self,
            bytes,
        }
    }

    /// Writes the fields that are not zero.
    pub(super) fn print(&self, bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut printed = f.debug_struct(self.name);
        for field in self.fields {
            let times = match field.count {
                Count::One => 1,
                Count::Times(times) => times,
                Count::Rest => {
                    bytes.len().saturating_sub(field.offset / 8) * 8 / field.width.max(1)
                }
            };
            for index in 0..times {
                let offset = field.offset + index * field.width;
                let whole = offset.is_multiple_of(8) && field.width.is_multiple_of(8);
                let part = match whole {
                    true => super::bits::part(bytes, offset, field.width),
                    false => &[],
                };
                if field.width <= 64 && field.nested.is_none() {
                    let value = super::bits::get(bytes, offset, field.width);
                    if value != 0 {
                        printed.field(field.name, &format_args!("{value:#x}"));
                    }
                } else if part.iter().any(|byte| *byte != 0) {
                    match field.nested {
                        Some(layout) => printed.field(
                            field.name,
                            &Printed {
                                layout,
                                bytes: part,
                            },
                        ),
                        None => printed.field(field.name, &format_args!("{part:02x?}")),
                    };
                }
            }
        }
        printed.finish_non_exhaustive()
    }
}

struct Printed<'a> {
    layout: &'static Layout,
    bytes: &'a [u8],
}

impl fmt::Debug for Printed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.layout.print(self.bytes, f)
    }
}

/// Declares the layouts of a module, and `LAYOUTS`, the list of them.
///
/// `KIND name: offset, width;` declares a field by its first bit and its number of bits, both as `mlx5_ifc.h` counts
/// them. Kinds: `bool`, `u8` to `u64`; `bytes` (whole bytes); `(Layout)`, another layout; `[u32; 6]`, `[(Layout); 6]`
/// (arrays; the width is that of an element); `[u64]`, `[(Layout)]` (arrays to the end of the message), `[bytes]` (such an
/// array whose elements have several forms).
macro_rules! layouts {
    ($(
        $(#[$doc:meta])*
        $name:ident = $kernel:literal, $size:literal {
            $( $kind:tt $field:ident: $offset:literal, $width:literal; )*
        }
    )*) => {
        /// The layouts of this module.
        pub(in $crate::mlx5::firmware) const LAYOUTS: &[&$crate::mlx5::firmware::Layout] = &[$($name::LAYOUT),*];

        $(
            $(#[$doc])*
            ///
            #[doc = concat!("`mlx5_ifc.h`: `", $kernel, "`, ", $size, " bytes.")]
            #[doc(alias = $kernel)]
            #[derive(Clone, Copy, PartialEq, Eq)]
            pub struct $name<B>(B);

            impl $name<()> {
                /// Bytes, without an array at the end.
                pub const SIZE: usize = $size;
                /// Its fields.
                pub const LAYOUT: &'static $crate::mlx5::firmware::Layout =
                    &$crate::mlx5::firmware::Layout {
                        name: stringify!($name),
                        kernel: $kernel,
                        size: $size,
                        fields: &[$(
                            $crate::mlx5::firmware::layout::field!(
                                @describe $kind $field $offset $width
                            )
                        ),*],
                    };
            }

            impl $name<[u8; $size]> {
                /// All zero.
                pub const fn zeroed() -> Self {
                    Self([0; $size])
                }
            }

            impl<B> $name<B> {
                /// A view that was cut out of another layout, and so has the right length.
                #[allow(dead_code)]
                pub(in $crate::mlx5::firmware) const fn of(bytes: B) -> Self {
                    Self(bytes)
                }

                /// What it looked at.
                pub fn into_inner(self) -> B {
                    self.0
                }
            }

            #[allow(clippy::len_without_is_empty, reason = "a field may be called so")]
            impl<B: AsRef<[u8]>> $name<B> {
                /// Looks at `bytes` as this layout; more bytes than it has are the array at its end, if any.
                pub fn new(bytes: B) -> Result<Self, $crate::mlx5::firmware::Short> {
                    $name::LAYOUT.check(bytes.as_ref())?;
                    Ok(Self(bytes))
                }

                /// All bytes.
                pub fn as_bytes(&self) -> &[u8] {
                    self.0.as_ref()
                }

                /// The first bit that is set and reserved.
                pub fn reserved_bit_set(&self) -> Option<usize> {
                    $name::LAYOUT.reserved_bit_set(self.0.as_ref())
                }

                $($crate::mlx5::firmware::layout::field!(@get $kind $field $offset $width);)*
            }

            impl<B: AsMut<[u8]>> $name<B> {
                /// All bytes.
                pub fn as_bytes_mut(&mut self) -> &mut [u8] {
                    self.0.as_mut()
                }

                $($crate::mlx5::firmware::layout::field!(@set $kind $field $offset $width);)*
            }

            impl<B: AsRef<[u8]>> core::fmt::Debug for $name<B> {
                fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                    $name::LAYOUT.print(self.0.as_ref(), f)
                }
            }
        )*
    };
}

/// One field: its description, what reads it, what writes it.
macro_rules! field {
    (@describe [$kind:tt; $count:literal] $field:ident $offset:literal $width:literal) => {
        $crate::mlx5::firmware::layout::field!(
            @field $field $offset $width (Times($count)) ($crate::mlx5::firmware::layout::nested!($kind))
        )
    };
    (@describe [$kind:tt] $field:ident $offset:literal $width:literal) => {
        $crate::mlx5::firmware::layout::field!(
            @field $field $offset $width (Rest) ($crate::mlx5::firmware::layout::nested!($kind))
        )
    };
    (@describe $kind:tt $field:ident $offset:literal $width:literal) => {
        $crate::mlx5::firmware::layout::field!(
            @field $field $offset $width (One) ($crate::mlx5::firmware::layout::nested!($kind))
        )
    };
    (@field $field:ident $offset:literal $width:literal ($($count:tt)*) ($nested:expr)) => {
        $crate::mlx5::firmware::Field {
            name: stringify!($field),
            offset: $offset,
            width: $width,
            count: $crate::mlx5::firmware::Count::$($count)*,
            nested: $nested,
        }
    };

    (@get bool $field:ident $offset:literal $width:literal) => {
        #[doc = concat!("Bit ", $offset, ".")]
        pub fn $field(&self) -> bool {
            $crate::mlx5::firmware::bits::get(self.0.as_ref(), $offset, $width) != 0
        }
    };
    (@get bytes $field:ident $offset:literal $width:literal) => {
        #[doc = concat!("Bytes: ", $width, " bits from bit ", $offset, ".")]
        pub fn $field(&self) -> &[u8] {
            $crate::mlx5::firmware::bits::part(self.0.as_ref(), $offset, $width)
        }
    };
    (@get ($nested:ident) $field:ident $offset:literal $width:literal) => {
        #[doc = concat!("[`", stringify!($nested), "`] from bit ", $offset, ".")]
        pub fn $field(&self) -> $nested<&[u8]> {
            $nested::of($crate::mlx5::firmware::bits::part(self.0.as_ref(), $offset, $width))
        }
    };
    (@get [($nested:ident); $count:literal] $field:ident $offset:literal $width:literal) => {
        #[doc = concat!("Element `index` of ", $count, " [`", stringify!($nested), "`] from bit ", $offset, ".")]
        pub fn $field(&self, index: usize) -> Option<$nested<&[u8]>> {
            let elements = $crate::mlx5::firmware::bits::part(self.0.as_ref(), $offset, $width * $count);
            elements.chunks_exact($width / 8).nth(index).map($nested::of)
        }
    };
    (@get [($nested:ident)] $field:ident $offset:literal $width:literal) => {
        #[doc = concat!("Elements ([`", stringify!($nested), "`]) from bit ", $offset, " to the end.")]
        pub fn $field(&self) -> impl ExactSizeIterator<Item = $nested<&[u8]>> {
            let elements = $crate::mlx5::firmware::bits::rest(self.0.as_ref(), $offset);
            elements.chunks_exact($width / 8).map($nested::of)
        }
    };
    (@get [$number:tt; $count:literal] $field:ident $offset:literal $width:literal) => {
        #[doc = concat!("Element `index` of ", $count, ", ", $width, " bits each from bit ", $offset, ".")]
        pub fn $field(&self, index: usize) -> Option<$number> {
            (index < $count).then(|| {
                let offset = $offset + index * $width;
                $crate::mlx5::firmware::bits::get(self.0.as_ref(), offset, $width) as $number
            })
        }
    };
    (@get [bytes] $field:ident $offset:literal $width:literal) => {
        #[doc = concat!("Bytes from bit ", $offset, " to the end.")]
        pub fn $field(&self) -> &[u8] {
            $crate::mlx5::firmware::bits::rest(self.0.as_ref(), $offset)
        }
    };
    (@get [$number:tt] $field:ident $offset:literal $width:literal) => {
        #[doc = concat!("Elements of ", $width, " bits each from bit ", $offset, " to the end.")]
        pub fn $field(&self) -> impl ExactSizeIterator<Item = $number> {
            let elements = $crate::mlx5::firmware::bits::rest(self.0.as_ref(), $offset);
            elements
                .chunks_exact($width / 8)
                .map(|element| $crate::mlx5::firmware::bits::get(element, 0, $width) as $number)
        }
    };
    (@get $number:tt $field:ident $offset:literal $width:literal) => {
        #[doc = concat!($width, " bits from bit ", $offset, ".")]
        pub fn $field(&self) -> $number {
            const { assert!($width <= $number::BITS) };
            $crate::mlx5::firmware::bits::get(self.0.as_ref(), $offset, $width) as $number
        }
    };

    (@set bool $field:ident $offset:literal $width:literal) => {
        pastey::paste! {
            #[doc = concat!("Sets [`", stringify!($field), "`](Self::", stringify!($field), ").")]
            pub fn [<set_ $field>](&mut self, value: bool) -> &mut Self {
                $crate::mlx5::firmware::bits::set(self.0.as_mut(), $offset, $width, value.into());
                self
            }
        }
    };
    (@set bytes $field:ident $offset:literal $width:literal) => {
        pastey::paste! {
            #[doc = concat!("[`", stringify!($field), "`](Self::", stringify!($field), "), to be written.")]
            pub fn [<$field _mut>](&mut self) -> &mut [u8] {
                $crate::mlx5::firmware::bits::part_mut(self.0.as_mut(), $offset, $width)
            }
        }
    };
    (@set ($nested:ident) $field:ident $offset:literal $width:literal) => {
        pastey::paste! {
            #[doc = concat!("[`", stringify!($field), "`](Self::", stringify!($field), "), to be written.")]
            pub fn [<$field _mut>](&mut self) -> $nested<&mut [u8]> {
                $nested::of($crate::mlx5::firmware::bits::part_mut(self.0.as_mut(), $offset, $width))
            }
        }
    };
    (@set [($nested:ident); $count:literal] $field:ident $offset:literal $width:literal) => {
        pastey::paste! {
            #[doc = concat!("An element of [`", stringify!($field), "`](Self::", stringify!($field), "), to be written.")]
            pub fn [<$field _mut>](&mut self, index: usize) -> Option<$nested<&mut [u8]>> {
                let bytes = self.0.as_mut();
                let elements = $crate::mlx5::firmware::bits::part_mut(bytes, $offset, $width * $count);
                elements.chunks_exact_mut($width / 8).nth(index).map($nested::of)
            }
        }
    };
    (@set [($nested:ident)] $field:ident $offset:literal $width:literal) => {
        pastey::paste! {
            #[doc = concat!("Elements of [`", stringify!($field), "`](Self::", stringify!($field), "), to be written.")]
            pub fn [<$field _mut>](&mut self) -> impl ExactSizeIterator<Item = $nested<&mut [u8]>> {
                let elements = $crate::mlx5::firmware::bits::rest_mut(self.0.as_mut(), $offset);
                elements.chunks_exact_mut($width / 8).map($nested::of)
            }
        }
    };
    (@set [$number:tt; $count:literal] $field:ident $offset:literal $width:literal) => {
        pastey::paste! {
            #[doc = concat!("Sets element `index` of [`", stringify!($field), "`](Self::", stringify!($field), "), if there is one.")]
            pub fn [<set_ $field>](&mut self, index: usize, value: $number) -> &mut Self {
                if index < $count {
                    let offset = $offset + index * $width;
                    $crate::mlx5::firmware::bits::set(self.0.as_mut(), offset, $width, value.into());
                }
                self
            }
        }
    };
    (@set [bytes] $field:ident $offset:literal $width:literal) => {
        pastey::paste! {
            #[doc = concat!("[`", stringify!($field), "`](Self::", stringify!($field), "), to be written.")]
            pub fn [<$field _mut>](&mut self) -> &mut [u8] {
                $crate::mlx5::firmware::bits::rest_mut(self.0.as_mut(), $offset)
            }
        }
    };
    (@set [$number:tt] $field:ident $offset:literal $width:literal) => {
        pastey::paste! {
            #[doc = concat!("Sets element `index` of [`", stringify!($field), "`](Self::", stringify!($field), "), if there is room for it.")]
            pub fn [<set_ $field>](&mut self, index: usize, value: $number) -> &mut Self {
                let elements = $crate::mlx5::firmware::bits::rest_mut(self.0.as_mut(), $offset);
                if let Some(element) = elements.chunks_exact_mut($width / 8).nth(index) {
                    $crate::mlx5::firmware::bits::set(element, 0, $width, value.into());
                }
                self
            }
        }
    };
    (@set $number:tt $field:ident $offset:literal $width:literal) => {
        pastey::paste! {
            #[doc = concat!("Sets [`", stringify!($field), "`](Self::", stringify!($field), "); what does not fit is cut off.")]
            pub fn [<set_ $field>](&mut self, value: $number) -> &mut Self {
                $crate::mlx5::firmware::bits::set(self.0.as_mut(), $offset, $width, value.into());
                self
            }
        }
    };
}

/// The layout of a nested field.
macro_rules! nested {
    (($nested:ident)) => {
        Some($nested::LAYOUT)
    };
    ($other:tt) => {
        None
    };
}

pub(super) use {field, layouts, nested};
