//! Verbs as firmware commands.

use std::sync::Arc;

use super::hca::Hca;

/// The objects of one open device, with the handles that [`Uctx`](crate::control::kernel::Uctx) gives out.
#[derive(Debug)]
pub struct Objects {
    hca: Arc<Hca>,
}

impl Objects {
    /// None yet.
    pub fn new(hca: Arc<Hca>) -> Self {
        Self { hca }
    }

    /// The device.
    pub fn hca(&self) -> &Arc<Hca> {
        &self.hca
    }
}
