//! Memory keys and their translation.
