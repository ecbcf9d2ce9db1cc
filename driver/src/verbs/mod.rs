//! The nouns a user types: devices, contexts, queue pairs.
