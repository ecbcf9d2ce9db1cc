//! Just enough of a Debian archive's client: find the mirror, trust an index, resolve, fetch, unpack.
//!
//! The lab needs packages of other suites than the host's, and unpacks them without root; `apt` and `debootstrap` want
//! root or a matching host. The formats are small and documented: Debian Policy §5 (control data), §7 (relationships),
//! `deb(5)`, `sources.list(5)`, <https://wiki.debian.org/DebianRepository/Format>.

pub mod control;
pub mod fetch;
pub mod index;
pub mod resolve;
pub mod sources;
pub mod unpack;
pub mod version;
