//! A recorded call taken apart into values.

use fake_kernel::record::Recorded;
use zerocopy::FromBytes;

/// C name of the method, or of the write command.
pub(crate) fn name(call: &Recorded) -> &str {
    match call {
        Recorded::Ioctl {
            method, command, ..
        } => command.as_deref().unwrap_or(method),
        Recorded::Write { command, .. } => command,
    }
}

/// The values of one ioctl call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Values<'a>(pub(crate) &'a Recorded);

impl Values<'_> {
    fn find(&self, suffix: &str) -> Option<&fake_kernel::record::RecordedAttr> {
        match self.0 {
            Recorded::Ioctl { attrs, .. } => attrs.iter().find(|attr| attr.name.ends_with(suffix)),
            Recorded::Write { .. } => None,
        }
    }

    /// Whether there is an attribute whose name ends so.
    pub(crate) fn has(&self, suffix: &str) -> bool {
        self.find(suffix).is_some()
    }

    /// Bytes of an attribute, and how many there are.
    pub(crate) fn bytes(&self, suffix: &str) -> Vec<u8> {
        self.find(suffix).map_or(Vec::new(), |attr| {
            (0..attr.data.len() / 2)
                .map(|at| u8::from_str_radix(&attr.data[2 * at..2 * at + 2], 16).expect("digits"))
                .collect()
        })
    }

    /// The element of an enumeration.
    pub(crate) fn element(&self, suffix: &str) -> u8 {
        self.find(suffix).map_or(0, |attr| attr.elem_id)
    }

    /// Bytes of room for an output.
    pub(crate) fn room(&self, suffix: &str) -> usize {
        self.find(suffix).map_or(0, |attr| attr.len.into())
    }

    /// A value; all zero if it is absent.
    pub(crate) fn get<T: FromBytes>(&self, suffix: &str) -> T {
        let mut bytes = self.bytes(suffix);
        bytes.resize(bytes.len().max(size_of::<T>()), 0);
        let (value, _) = T::read_from_prefix(&bytes).unwrap_or_else(|_| panic!("{suffix}"));
        value
    }

    /// Values one after the other.
    pub(crate) fn list<T: FromBytes>(&self, suffix: &str) -> Vec<T> {
        let bytes = self.bytes(suffix);
        let chunks = bytes.chunks_exact(size_of::<T>());
        chunks
            .map(|bytes| T::read_from_bytes(bytes).unwrap_or_else(|_| panic!("{suffix}")))
            .collect()
    }

    /// A handle.
    pub(crate) fn handle<H: From<u32>>(&self, suffix: &str) -> H {
        let number = self
            .find(suffix)
            .map_or(0, |attr| attr.data.parse().expect("a number"));
        number.into()
    }

    /// A handle that may be absent.
    pub(crate) fn maybe<H: From<u32>>(&self, suffix: &str) -> Option<H> {
        self.has(suffix).then(|| self.handle(suffix))
    }

    /// The request of a write command, and what follows it.
    pub(crate) fn request<T: FromBytes>(&self) -> (T, Vec<u8>) {
        let bytes = self.bytes("_CORE_IN");
        let (value, rest) = T::read_from_prefix(&bytes)
            .unwrap_or_else(|_| panic!("{}: {} bytes", name(self.0), bytes.len()));
        (value, rest.to_vec())
    }

    /// The driver's data.
    pub(crate) fn input<T: FromBytes>(&self) -> T {
        let bytes = self.bytes("_UHW_IN");
        T::read_from_bytes(&bytes)
            .unwrap_or_else(|_| panic!("{}: {} bytes", name(self.0), bytes.len()))
    }
}
