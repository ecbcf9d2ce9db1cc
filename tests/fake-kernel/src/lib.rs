//! Answers uverbs calls in process.
