//! Whatever an entry says.
