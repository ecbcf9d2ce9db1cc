//! Striding receive queues: a request takes several packets, each from a stride of its own on.
//!
//! A packet that the rest of a request has no room for goes into the next one; a completion without a packet, a filler, says
//! that the rest is done with (Linux include/linux/mlx5/device.h `mpwrq_is_filler_cqe`).

use super::super::receive::{self as requests, Nothing, Taken};
use super::super::{complete, timestamp};
use crate::completion::Cqe;
use crate::completion::cqe::{RawPacket, Strode};
use crate::device::Device;
use crate::resources::Strides;

/// Bytes that `two_byte_shift_en` leaves free.
const SHIFT: u64 = 2;

/// The request that packets go into.
#[derive(Debug)]
pub(in crate::transport) struct Open {
    taken: Taken,
    used: u32,
}

/// Where a packet goes.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) taken: Taken,
    /// In the request's buffers.
    pub(super) offset: u64,
    pub(super) strode: Option<Strode>,
}

impl Place {
    /// Into a request of its own.
    pub(super) fn whole(taken: Taken) -> Place {
        Place {
            taken,
            offset: 0,
            strode: None,
        }
    }
}

/// Where a packet of `len` bytes goes. One that is longer than a request never has a place.
pub(super) fn place(
    device: &mut Device,
    rqn: u32,
    strides: Strides,
    len: u64,
) -> Result<Place, Nothing> {
    let count = 1u32 << strides.log_count.min(16);
    let shift = if strides.shifts { SHIFT } else { 0 };
    let needed = (len + shift).div_ceil(1 << strides.log_size).max(1);
    let needed = u32::try_from(needed).unwrap_or(u32::MAX);
    if needed > count {
        return Err(Nothing::Empty);
    }
    let qp = device.resources.qps.get_mut(rqn).ok_or(Nothing::Broken)?;
    let mut open = qp.data.striding.take();
    if let Some(full) = open.take_if(|open| count - open.used < needed) {
        let strode = Strode {
            first: full.used as u16,
            count: (count - full.used) as u16,
            filler: true,
        };
        let nothing = RawPacket::default();
        let cqe = Cqe::raw(full.taken.owner, 0, &nothing, timestamp(device));
        let cqe = cqe.strode(full.taken.owner.counter, strode);
        complete(device, rqn, full.taken.cqn, &cqe);
    }
    let open = match open {
        Some(open) => open,
        None => Open {
            taken: requests::take(device, rqn, None)?,
            used: 0,
        },
    };
    let Open { taken, used } = open;
    let offset = (u64::from(used) << strides.log_size) + shift;
    let strode = Strode {
        first: used as u16,
        count: needed as u16,
        filler: false,
    };
    let used = used + needed;
    if used < count {
        let qp = device.resources.qps.get_mut(rqn).ok_or(Nothing::Broken)?;
        let taken = taken.clone();
        qp.data.striding = Some(Open { taken, used });
    }
    Ok(Place {
        taken,
        offset,
        strode: Some(strode),
    })
}
