//! Two guests whose software ConnectX are joined by a cable.

use std::thread;

use anyhow::{Context, Result, bail};

use crate::config::{Config, Device, Peer};
use crate::guest::Guest;

/// Two guests. Each has one device; a network card joins them too, for programs that first exchange addresses over TCP.
///
/// In each, `$LAB_GUEST` is its number, 0 or 1, and `$LAB_PEER` the other one's address.
#[derive(Debug)]
pub struct Pair {
    /// They are as any other guest.
    pub guests: [Guest; 2],
    _sockets: tempfile::TempDir,
}

impl Pair {
    /// Boots both at once.
    pub fn boot(config: &Config) -> Result<Self> {
        if config.device != Device::Mlx5 || config.connectx.two {
            bail!("two guests have an mlx5 device each");
        }
        let sockets = tempfile::Builder::new().prefix("oxverbs-lab-").tempdir()?;
        let [first, second] = [0, 1].map(|number| Config {
            peer: Some(Peer {
                number,
                sockets: sockets.path().to_owned(),
            }),
            ..config.clone()
        });
        let other = thread::spawn(move || Guest::boot(&second));
        let first = Guest::boot(&first).context("guest 0");
        let second = match other.join() {
            Ok(second) => second.context("guest 1"),
            Err(panic) => std::panic::resume_unwind(panic),
        };
        Ok(Self {
            guests: [first?, second?],
            _sockets: sockets,
        })
    }
}
