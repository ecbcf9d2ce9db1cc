//! Verbs as a C program calls them: exported functions of libibverbs, and the inline functions of `infiniband/verbs.h`,
//! which call through tables in the objects.

pub mod device;
pub mod dv;
pub mod library;
pub mod locate;
pub mod pool;
pub mod post;
pub mod subject;
