//! How work is posted and completed.
