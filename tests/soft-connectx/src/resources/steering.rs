//! Where raw packets leave and arrive: TIS, TIR, tables of receive queues.

use super::Table;

/// A transport interface for sending.
#[derive(Debug)]
pub(crate) struct Tis {
    pub(crate) uid: u16,
    /// `tisc`.
    pub(crate) context: Vec<u8>,
    pub(crate) transport_domain: u32,
}

/// Where a receiving transport interface hands packets to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dispatch {
    /// One receive queue.
    Queue(u32),
    /// One of a table's queues, by hash.
    Table(u32),
}

/// A transport interface for receiving.
#[derive(Debug)]
pub(crate) struct Tir {
    pub(crate) uid: u16,
    /// `tirc`.
    pub(crate) context: Vec<u8>,
    pub(crate) dispatch: Dispatch,
    pub(crate) transport_domain: u32,
}

/// A table of receive queues.
#[derive(Debug)]
pub(crate) struct Rqt {
    pub(crate) uid: u16,
    /// `rqt_max_size`.
    pub(crate) largest: u16,
    pub(crate) queues: Vec<u32>,
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Steering {
    pub(crate) tiss: Table<Tis>,
    pub(crate) tirs: Table<Tir>,
    pub(crate) rqts: Table<Rqt>,
}

impl Steering {
    pub(crate) fn new() -> Steering {
        Steering {
            tiss: Table::new(1, 1 << 16),
            tirs: Table::new(1, 1 << 16),
            rqts: Table::new(1, 1 << 16),
        }
    }

    /// Whether packets are handed to a receive queue.
    pub(crate) fn receives(&self, rqn: u32) -> bool {
        self.tirs
            .iter()
            .any(|(_, tir)| tir.dispatch == Dispatch::Queue(rqn))
            || self.rqts.iter().any(|(_, rqt)| rqt.queues.contains(&rqn))
    }
}
