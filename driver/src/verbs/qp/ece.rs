//! Enhanced connection establishment: options that both ends of a connection agree on, whose meaning is the vendor's own.

use std::sync::PoisonError;

use super::{Kernel, QueuePair, Service};
use crate::error::{Error, Result};
use crate::sys::errno::Errno;

/// Options of a vendor's, which peers exchange with their other addresses (IBTA A19, as rdma_cm's messages carry them).
#[doc(alias = "ibv_ece")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ece {
    /// PCI vendor id of who knows what they mean.
    pub vendor: u32,
    /// The options.
    pub options: u32,
}

/// Mellanox (PCI).
const VENDOR: u32 = 0x15b3;

impl<T: Service> QueuePair<T> {
    /// The options that the device offers, before a change of state has asked for some; then, those that it accepted. None of
    /// a device that has no such options.
    #[doc(alias = "ibv_query_ece")]
    pub fn ece(&self) -> Option<Ece> {
        let Kernel::Mlx5 { object, .. } = &self.shared().kernel else {
            return None;
        };
        let object = object.lock().unwrap_or_else(PoisonError::into_inner);
        let options = object.as_ref()?.ece();
        (options != 0).then_some(Ece {
            vendor: VENDOR,
            options,
        })
    }

    /// Asks for options with the next change of state: the peer's, as far as it has accepted them. Which of them are in force
    /// [`ece`](Self::ece) says afterwards.
    ///
    /// # Errors
    ///
    /// `EINVAL` for options of another vendor's, `EOPNOTSUPP` of a device that has none.
    #[doc(alias = "ibv_set_ece")]
    pub fn set_ece(&mut self, ece: Ece) -> Result<()> {
        let refused = |number| Error::kernel(format!("ask for {ece:x?}"), Errno(number));
        let Kernel::Mlx5 { object, .. } = &self.shared().kernel else {
            return Err(refused(libc::EOPNOTSUPP));
        };
        if ece.vendor != VENDOR {
            return Err(refused(libc::EINVAL));
        }
        let mut object = object.lock().unwrap_or_else(PoisonError::into_inner);
        let object = object.as_mut().ok_or(refused(libc::EINVAL))?;
        let asked = object.set_ece(ece.options);
        asked.map_err(|errno| refused(errno.0))
    }
}
