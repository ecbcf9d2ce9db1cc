//! A device that this process drives.

use std::sync::Arc;

use super::command::{CommandError, Commands};
use super::pci::Pci;

/// A ConnectX that is up.
#[derive(Debug)]
pub struct Hca {
    pci: Arc<dyn Pci>,
    commands: Arc<dyn Commands>,
}

impl Hca {
    /// The function.
    pub fn pci(&self) -> &Arc<dyn Pci> {
        &self.pci
    }

    /// Runs a firmware command.
    pub fn execute(&self, input: &[u8], output: &mut [u8]) -> Result<(), CommandError> {
        self.commands.execute(input, output)
    }
}
