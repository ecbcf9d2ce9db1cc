//! Check sums of IP, TCP and UDP (RFC 1071): made when frames are sent, looked at when they come.

use super::headers::{Headers, Ip, TCP, UDP};
use crate::wire::check::{add, fold};

/// The sum over all bytes of an IP packet, as completions carry it.
pub(super) fn packet(frame: &[u8], headers: &Headers) -> u16 {
    let packet = headers.ip.and_then(|ip| frame.get(headers.network..ip.end));
    packet.map_or(0, |packet| fold(add(packet, 0)))
}

/// The sum over TCP or UDP with the header that stands for IP's (RFC 9293 3.1); `None` if there is neither.
fn transport(frame: &[u8], ip: &Ip) -> Option<u16> {
    if ip.is_fragment || !matches!(ip.protocol, TCP | UDP) {
        return None;
    }
    let bytes = frame.get(ip.transport..ip.end)?;
    let start = u64::from(ip.protocol) + bytes.len() as u64;
    let sum = add(&ip.source, add(&ip.destination, start));
    Some(fold(add(bytes, sum)))
}

/// Where TCP or UDP have their check sum.
fn place(ip: &Ip) -> usize {
    ip.transport + if ip.protocol == TCP { 16 } else { 6 }
}

fn put(frame: &mut [u8], at: usize, value: u16) {
    if let Some(place) = frame.get_mut(at..at + 2) {
        place.copy_from_slice(&value.to_be_bytes());
    }
}

/// Makes the check sums that a request asks for.
pub(super) fn fill(frame: &mut [u8], network: bool, above: bool) {
    let Some(headers) = Headers::parse(frame) else {
        return;
    };
    let Some(ip) = &headers.ip else { return };
    if network && !ip.is_v6 {
        let at = headers.network + 10;
        put(frame, at, 0);
        let sum = fold(add(&frame[headers.network..ip.transport.min(ip.end)], 0));
        put(frame, at, !sum);
    }
    if above && transport(frame, ip).is_some() {
        put(frame, place(ip), 0);
        let sum = transport(frame, ip).map_or(0, |sum| !sum);
        // A sum of UDP that is 0 would say that there is none (RFC 768).
        let is_none = ip.protocol == UDP && sum == 0;
        put(frame, place(ip), if is_none { 0xffff } else { sum });
    }
}

/// Whether the check sum of IP is right, and that of TCP or UDP. IPv6 has none that could be wrong.
pub(super) fn are_right(frame: &[u8], headers: &Headers) -> (bool, bool) {
    let Some(ip) = &headers.ip else {
        return (false, false);
    };
    let header = frame.get(headers.network..ip.transport);
    let network = ip.is_v6 || header.is_some_and(|header| fold(add(header, 0)) == 0xffff);
    let is_absent =
        ip.protocol == UDP && !ip.is_v6 && frame.get(place(ip)..place(ip) + 2) == Some(&[0, 0]);
    let above = transport(frame, ip).is_some_and(|sum| is_absent || sum == 0xffff);
    (network, above)
}
