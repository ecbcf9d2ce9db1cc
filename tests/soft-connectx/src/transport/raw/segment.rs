//! Large sends: one request whose payload goes out in many frames.

use super::headers::{Headers, TCP, UDP};

/// Flags of TCP that only the first frame has, and that only the last one has (RFC 9293, RFC 3168).
const CWR: u8 = 0x80;
const FIN_AND_PSH: u8 = 0x09;

fn put(frame: &mut [u8], at: usize, value: u16) {
    if let Some(place) = frame.get_mut(at..at + 2) {
        place.copy_from_slice(&value.to_be_bytes());
    }
}

/// The frames of a header and `payload`, `mss` bytes of it in each: lengths, numbers and flags are those of each frame, check
/// sums are still to be made. `None` if the header is not one of TCP or UDP over IP.
pub(super) fn frames(header: &[u8], payload: &[u8], mss: usize) -> Option<Vec<Vec<u8>>> {
    if mss == 0 || payload.is_empty() {
        return None;
    }
    let count = payload.len().div_ceil(mss);
    let frames = payload.chunks(mss).enumerate().map(|(index, part)| {
        let mut frame = [header, part].concat();
        // The length that the header names may be anything: it is not yet that of a frame.
        let network = Headers::parse(&frame)?.network;
        let is_v6 = frame.get(network)? >> 4 == 6;
        let above = frame.len() - network;
        if is_v6 {
            put(&mut frame, network + 4, above.checked_sub(40)? as u16);
        } else {
            put(&mut frame, network + 2, above as u16);
            let id = frame.get(network + 4..)?.first_chunk::<2>()?;
            let id = u16::from_be_bytes(*id).wrapping_add(index as u16);
            put(&mut frame, network + 4, id);
        }
        let ip = Headers::parse(&frame)?.ip?;
        let at = ip.transport;
        match ip.protocol {
            TCP => {
                let number = frame.get_mut(at + 4..)?.first_chunk_mut::<4>()?;
                let done = (index * mss) as u32;
                *number = u32::from_be_bytes(*number).wrapping_add(done).to_be_bytes();
                let flags = frame.get_mut(at + 13)?;
                if index != 0 {
                    *flags &= !CWR;
                }
                if index + 1 != count {
                    *flags &= !FIN_AND_PSH;
                }
            }
            UDP => {
                let length = frame.len() - at;
                put(&mut frame, at + 4, length as u16);
            }
            _ => return None,
        }
        Some(frame)
    });
    frames.collect()
}
