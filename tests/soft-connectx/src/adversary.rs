//! The freedoms of a real device, used on purpose.
