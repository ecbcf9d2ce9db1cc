//! What is timed.

use std::fmt;

/// Operations in one timed region.
pub const OPS: usize = 256;

/// Interface of a posting case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Via {
    /// `ibv_post_send`.
    Chain,
    /// `ibv_wr_*`.
    Builder,
}

/// Whose completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// Of send work requests.
    Requester,
    /// Of receives.
    Responder,
}

/// Interface of a polling case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Poll {
    /// `ibv_poll_cq`.
    Array,
    /// `ibv_start_poll` and its siblings; whether opcode and length are read too.
    Lazy {
        /// Opcode and byte count are read.
        reads: bool,
        /// The queue was made for one thread.
        single: bool,
    },
}

/// One row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Case {
    /// Send work requests.
    Send {
        /// Interface.
        via: Via,
        /// RDMA WRITE rather than SEND.
        write: bool,
        /// 16 bytes inline rather than one SGE.
        inline: bool,
        /// One of so many is signalled.
        signalled: usize,
        /// Work requests a call.
        batch: usize,
    },
    /// Receive work requests with one SGE.
    Recv {
        /// Work requests a call.
        batch: usize,
    },
    /// Completions.
    Poll {
        /// Interface.
        poll: Poll,
        /// Whose.
        side: Side,
        /// Completions a call.
        batch: usize,
    },
    /// Nothing there.
    Empty {
        /// Interface.
        poll: Poll,
    },
    /// Post 16, complete, poll.
    Loop {
        /// One of so many is signalled.
        signalled: usize,
    },
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let start = |poll: &Poll| match poll {
            Poll::Array => "poll_cq",
            Poll::Lazy { single: false, .. } => "start_poll",
            Poll::Lazy { single: true, .. } => "start_poll1T",
        };
        match self {
            Self::Send {
                via,
                write,
                inline,
                signalled,
                batch,
            } => {
                let via = match via {
                    Via::Chain => "post_send",
                    Via::Builder => "ibv_wr",
                };
                let operation = if *write { "WRITE" } else { "SEND" };
                let data = if *inline { "inl16" } else { "1sge" };
                let signalled = match signalled {
                    1 => "sig".to_owned(),
                    n => format!("sig/{n}"),
                };
                write!(f, "{via} {operation} {data} {signalled} b{batch}")
            }
            Self::Recv { batch } => write!(f, "post_recv b{batch}"),
            Self::Poll { poll, side, batch } => {
                let side = match side {
                    Side::Requester => "REQ",
                    Side::Responder => "RECV",
                };
                let reads = match poll {
                    Poll::Array => "",
                    Poll::Lazy { reads: true, .. } => " (+opc,len)",
                    Poll::Lazy { reads: false, .. } => " bare",
                };
                write!(f, "{} {side} b{batch}{reads}", start(poll))
            }
            Self::Empty { poll } => write!(f, "{} EMPTY", start(poll)),
            Self::Loop { signalled: 1 } => f.write_str("LOOP post16+poll16 1sge sig"),
            Self::Loop { signalled } => write!(f, "LOOP post16+poll1 1sge sig/{signalled}"),
        }
    }
}

impl Case {
    /// Every row.
    pub fn all() -> Vec<Self> {
        let mut cases = Vec::new();
        for write in [true, false] {
            for inline in [true, false] {
                for signalled in [1, 16] {
                    for via in [Via::Chain, Via::Builder] {
                        for batch in [1, 16] {
                            cases.push(Self::Send {
                                via,
                                write,
                                inline,
                                signalled,
                                batch,
                            });
                        }
                    }
                }
            }
        }
        cases.extend([1, 16].map(|batch| Self::Recv { batch }));
        let lazy = |reads, single| Poll::Lazy { reads, single };
        for (poll, side) in [
            (Poll::Array, Side::Requester),
            (Poll::Array, Side::Responder),
            (lazy(true, false), Side::Requester),
            (lazy(false, false), Side::Requester),
            (lazy(true, true), Side::Requester),
            (lazy(false, true), Side::Requester),
            (lazy(true, false), Side::Responder),
            (lazy(true, true), Side::Responder),
        ] {
            cases.extend([1, 16].map(|batch| Self::Poll { poll, side, batch }));
        }
        for poll in [Poll::Array, lazy(false, false), lazy(false, true)] {
            cases.push(Self::Empty { poll });
        }
        cases.extend([1, 16].map(|signalled| Self::Loop { signalled }));
        cases
    }

    /// Operations that one call (or round of a loop) does.
    pub fn batch(&self) -> usize {
        match self {
            Self::Send { batch, .. } | Self::Recv { batch } | Self::Poll { batch, .. } => *batch,
            Self::Empty { .. } => 1,
            Self::Loop { .. } => 16,
        }
    }
}
