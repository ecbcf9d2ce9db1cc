//! Faults: the k-th call from now fails, or answers less than it should.

/// What happens to the call that was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call does nothing and fails with this errno.
    Errno(i32),
    /// The call does what it should, and its answer reads as zero, with no output marked as written.
    /// Handles and descriptors are still there, since the kernel made the object.
    Short,
}

/// Counts calls and chooses one.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    calls: u64,
    chosen: Option<(u64, Fault)>,
    hit: bool,
}

impl Faults {
    /// Counts one call and gives the fault that it is to have.
    pub(crate) fn next(&mut self) -> Option<Fault> {
        self.calls += 1;
        let (at, fault) = self.chosen?;
        if at != self.calls {
            return None;
        }
        self.chosen = None;
        self.hit = true;
        Some(fault)
    }

    pub(crate) fn choose(&mut self, k: u64, fault: Fault) {
        self.chosen = Some((self.calls + k, fault));
        self.hit = false;
    }

    /// Forgets what was chosen; says whether it has happened.
    pub(crate) fn clear(&mut self) -> bool {
        self.chosen = None;
        std::mem::take(&mut self.hit)
    }

    pub(crate) fn calls(&self) -> u64 {
        self.calls
    }
}
