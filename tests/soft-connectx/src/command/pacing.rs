//! The table of rates that send queues are held to.

use wqe_format::mlx5::firmware::pacing::SetPpRateLimitIn;

use super::refusal::{bad_index, bad_parameter};
use super::{Reply, done};
use crate::LinkLayer;
use crate::caps::{RATE_ENTRIES, RATES};
use crate::device::Device;
use crate::resources::Rate;

pub(super) fn set_rate(device: &mut Device, input: &[u8]) -> Reply {
    let view = SetPpRateLimitIn::new(input)?;
    if device.config.link != LinkLayer::Ethernet {
        return Err(bad_parameter("there is no packet pacing"));
    }
    let index = view.rate_limit_index();
    if !(1..RATE_ENTRIES).contains(&index) {
        return Err(bad_index(
            "the table of rates is shorter, and begins with no limit",
        ));
    }
    let context = view.ctx();
    let rates = &mut device.resources.rates;
    match context.rate_limit() {
        0 => drop(rates.remove(&index)),
        kbits if RATES.contains(&kbits) => {
            let burst = context.burst_upper_bound();
            rates.insert(index, Rate { kbits, burst });
        }
        _ => return Err(bad_parameter("there are faster and slower rates only")),
    }
    done()
}
