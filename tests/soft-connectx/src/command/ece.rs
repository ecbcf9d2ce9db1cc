//! Options of enhanced connection establishment. What a card's options mean is its vendor's own; these mean nothing, and are
//! there so that drivers and connection managers have some to carry.

/// The version of the options, in the upper bits (`0x1000_0000` of what rdma-core's provider asks a new queue pair for), and the
/// options of it that the device knows.
const VERSION: u32 = 0xf000_0000;
const VERSION_1: u32 = 0x1000_0000;
const KNOWN: u32 = 0b101;

/// What is offered to a new queue pair of a driver that knows a version.
pub(super) fn offered(asked: u32) -> u32 {
    match asked & VERSION {
        VERSION_1 => VERSION_1 | KNOWN,
        _ => 0,
    }
}

/// What is accepted of what both ends want.
pub(super) fn accepted(asked: u32) -> u32 {
    asked & offered(asked)
}
