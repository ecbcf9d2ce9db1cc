//! Pages given to the device and taken back.

/// The pages the device has; it keeps nothing in them, but counts like one that does.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    pub(crate) given: Vec<u64>,
}
