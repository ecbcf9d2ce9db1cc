//! Rates that send queues of raw packets are held to.
//!
//! The device has a table of them, which queues name entries of; entry 0 is no limit. Queues of equal rates share an entry, and
//! each is held to its rate for itself (Linux `mlx5/core/rl.c`).

use std::sync::{Mutex, PoisonError};

use uverbs_abi::udata::mlx5::{BurstInfo, PacketPacingCapFlags, PacketPacingCaps};
use wqe_format::mlx5::firmware::Opcode;
use wqe_format::mlx5::firmware::pacing::SetPpRateLimitIn;

use super::Objects;
use crate::sys::errno::Errno;

/// A rate; that of 0 kbit/s is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Rate {
    kbits: u32,
    /// Bytes.
    burst: u32,
    packet: u16,
}

/// The entries of the device's table from number 1 on.
#[derive(Debug, Default)]
pub(super) struct Rates(Mutex<Vec<Entry>>);

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    rate: Rate,
    /// Queues that name it; it is free without.
    users: u32,
}

/// Where the entry of a rate is, if some queue names it.
fn place(entries: &[Entry], rate: Rate) -> Option<usize> {
    let is_it = |entry: &Entry| entry.users != 0 && entry.rate == rate;
    entries.iter().position(is_it)
}

impl Objects {
    /// What programs are told of it; `raw` is the bit of queue pairs of raw packets.
    pub(super) fn pacing_caps(&self, raw: u32) -> PacketPacingCaps {
        let caps = &self.caps.qos;
        if !caps.packet_pacing() {
            return PacketPacingCaps::default();
        }
        let bursts = caps.packet_pacing_burst_bound() && caps.packet_pacing_typical_size();
        PacketPacingCaps {
            qp_rate_limit_min: caps.packet_pacing_min_rate(),
            qp_rate_limit_max: caps.packet_pacing_max_rate(),
            supported_qpts: raw,
            cap_flags: match bursts {
                true => PacketPacingCapFlags::BURST,
                false => PacketPacingCapFlags::NONE,
            },
            ..PacketPacingCaps::default()
        }
    }

    /// A rate as a program asks for it. `EOPNOTSUPP` of a device without packet pacing, `EINVAL` for one out of its range and
    /// for bursts that it cannot limit.
    pub(super) fn rate(&self, kbits: u32, burst: BurstInfo) -> Result<Rate, Errno> {
        let caps = &self.caps.qos;
        if !caps.packet_pacing() {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        let range = caps.packet_pacing_min_rate()..=caps.packet_pacing_max_rate();
        let bound = burst.max_burst_sz == 0 || kbits != 0 && caps.packet_pacing_burst_bound();
        let typical = burst.typical_pkt_sz == 0 || kbits != 0 && caps.packet_pacing_typical_size();
        if kbits != 0 && !range.contains(&kbits) || !bound || !typical {
            return Err(Errno(libc::EINVAL));
        }
        Ok(Rate {
            kbits,
            burst: burst.max_burst_sz,
            packet: burst.typical_pkt_sz,
        })
    }

    /// The entry of a rate, for one more queue; `ENOSPC` if the table is full.
    pub(super) fn take_rate(&self, rate: Rate) -> Result<u16, Errno> {
        if rate.kbits == 0 {
            return Ok(0);
        }
        let mut entries = (self.rates.0.lock()).unwrap_or_else(PoisonError::into_inner);
        let place = match place(&entries, rate) {
            Some(place) => place,
            None => {
                let free = entries.iter().position(|entry| entry.users == 0);
                let place = free.unwrap_or(entries.len());
                // one of the table's is no limit
                if place + 1 >= self.caps.qos.packet_pacing_rate_table_size().into() {
                    return Err(Errno(libc::ENOSPC));
                }
                self.set_rate(place, rate)?;
                if place == entries.len() {
                    entries.push(Entry::default());
                }
                place
            }
        };
        entries[place].rate = rate;
        entries[place].users += 1;
        Ok(place as u16 + 1)
    }

    /// A queue does not name the entry of a rate any more.
    pub(super) fn leave_rate(&self, rate: Rate) {
        if rate.kbits == 0 {
            return;
        }
        let mut entries = (self.rates.0.lock()).unwrap_or_else(PoisonError::into_inner);
        let Some(place) = place(&entries, rate) else {
            return;
        };
        entries[place].users -= 1;
        if entries[place].users == 0 {
            // Where that is refused, the entry is written again before it is used.
            let _ = self.set_rate(place, Rate::default());
        }
    }

    fn set_rate(&self, place: usize, rate: Rate) -> Result<(), Errno> {
        let mut command = SetPpRateLimitIn::zeroed();
        command
            .set_opcode(Opcode::SET_PP_RATE_LIMIT.0)
            .set_rate_limit_index(place as u16 + 1);
        { command.ctx_mut() }
            .set_rate_limit(rate.kbits)
            .set_burst_upper_bound(rate.burst)
            .set_typical_packet_size(rate.packet);
        self.run_bytes::<16>(command.as_bytes()).map(drop)
    }
}
