//! Where a packet goes: local and global route headers of InfiniBand, Ethernet and IP headers of RoCE.

use super::bth::{take, word};
use super::{Malformed, check};

/// Ethernet type of RoCE v1 (IBTA annex 16).
const ETHERTYPE_ROCE: u16 = 0x8915;
const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPE_VLAN: u16 = 0x8100;
/// UDP port of RoCE v2 (IBTA annex 17).
pub const ROCE_V2_PORT: u16 = 4791;
const UDP: u8 = 17;
/// Next header of a global route header before a base transport header (IBTA 8.3).
const NEXT_BTH: u8 = 0x1b;
/// Bytes that stand before a datagram in its receive buffer.
pub const NETWORK_HEADER: usize = 40;

/// The global part of a route; of RoCE v2 in the IP header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Global {
    /// Sender's GID.
    pub source: [u8; 16],
    /// Receiver's GID.
    pub destination: [u8; 16],
    /// Traffic class.
    pub tclass: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
}

/// A route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// On InfiniBand.
    InfiniBand {
        /// Sender's LID.
        slid: u16,
        /// Receiver's LID.
        dlid: u16,
        /// Service level.
        sl: u8,
        /// Global route header.
        global: Option<Global>,
    },
    /// On Ethernet.
    Ethernet {
        /// Receiver's MAC.
        destination: [u8; 6],
        /// Sender's MAC.
        source: [u8; 6],
        /// Tag control information of the VLAN, if it is in one.
        vlan: Option<u16>,
        /// GIDs.
        global: Global,
        /// UDP source port of RoCE v2; none is RoCE v1.
        udp: Option<u16>,
    },
}

impl Route {
    /// The global part.
    pub fn global(&self) -> Option<&Global> {
        match self {
            Self::InfiniBand { global, .. } => global.as_ref(),
            Self::Ethernet { global, .. } => Some(global),
        }
    }

    /// The way back, for answers.
    #[must_use]
    pub fn reversed(&self) -> Self {
        let back = |global: Global| Global {
            source: global.destination,
            destination: global.source,
            hop_limit: 64,
            ..global
        };
        match *self {
            Self::InfiniBand {
                slid,
                dlid,
                sl,
                global,
            } => Self::InfiniBand {
                slid: dlid,
                dlid: slid,
                sl,
                global: global.map(back),
            },
            Self::Ethernet {
                destination,
                source,
                vlan,
                global,
                udp,
            } => Self::Ethernet {
                destination: source,
                source: destination,
                vlan,
                global: back(global),
                udp,
            },
        }
    }

    /// Writes the headers in front of `length` bytes (base transport header to the invariant check), and the bytes over which
    /// that check is made: the same with everything that changes on the way set to ones (IBTA 7.8.1, annex 17).
    pub(super) fn emit(&self, length: usize, to: &mut Vec<u8>, invariant: &mut Vec<u8>) {
        match self {
            Self::InfiniBand {
                slid,
                dlid,
                sl,
                global,
            } => {
                let above = if global.is_some() { NETWORK_HEADER } else { 0 };
                // In words of 4 bytes, from this header to the invariant check.
                let words = ((8 + above + length) / 4) as u16 & 0x7ff;
                let next = if global.is_some() { 3 } else { 2 };
                let mut header = vec![0, sl << 4 | next];
                header.extend(dlid.to_be_bytes());
                header.extend(words.to_be_bytes());
                header.extend(slid.to_be_bytes());
                to.extend(&header);
                match global {
                    Some(global) => {
                        invariant.extend([0xff; 8]);
                        ip6(global, NEXT_BTH, length, to, invariant);
                    }
                    None => {
                        // The virtual lane changes.
                        header[0] |= 0xf0;
                        invariant.extend(&header);
                    }
                }
            }
            Self::Ethernet {
                destination,
                source,
                vlan,
                global,
                udp,
            } => {
                to.extend(destination);
                to.extend(source);
                if let Some(tag) = vlan {
                    to.extend(ETHERTYPE_VLAN.to_be_bytes());
                    to.extend(tag.to_be_bytes());
                }
                invariant.extend([0xff; 8]);
                match (udp, ipv4(&global.source), ipv4(&global.destination)) {
                    (None, ..) => {
                        to.extend(ETHERTYPE_ROCE.to_be_bytes());
                        ip6(global, NEXT_BTH, length, to, invariant);
                    }
                    (Some(port), Some(from), Some(dest)) => {
                        to.extend(ETHERTYPE_IPV4.to_be_bytes());
                        ip4(global, from, dest, 8 + length, to, invariant);
                        udp_header(*port, length, to, invariant);
                    }
                    (Some(port), ..) => {
                        to.extend(ETHERTYPE_IPV6.to_be_bytes());
                        ip6(global, UDP, 8 + length, to, invariant);
                        udp_header(*port, length, to, invariant);
                    }
                }
            }
        }
    }

    /// Takes the headers off an InfiniBand packet.
    pub(super) fn parse_infiniband(bytes: &mut &[u8]) -> Result<Self, Malformed> {
        let header = take::<8>(bytes)?;
        let number = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let global = match header[1] & 3 {
            2 => None,
            3 => Some(parse_ip6(bytes, NEXT_BTH)?),
            _ => return Err(Malformed::Header),
        };
        Ok(Self::InfiniBand {
            slid: number(6),
            dlid: number(2),
            sl: header[1] >> 4,
            global,
        })
    }

    /// Takes the headers off an Ethernet frame; `None` if it is not RoCE.
    pub(super) fn parse_ethernet(bytes: &mut &[u8]) -> Result<Option<Self>, Malformed> {
        let destination = take::<6>(bytes)?;
        let source = take::<6>(bytes)?;
        let mut kind = u16::from_be_bytes(take(bytes)?);
        let mut vlan = None;
        if kind == ETHERTYPE_VLAN {
            vlan = Some(u16::from_be_bytes(take(bytes)?));
            kind = u16::from_be_bytes(take(bytes)?);
        }
        let (global, udp) = match kind {
            ETHERTYPE_ROCE => (parse_ip6(bytes, NEXT_BTH)?, None),
            ETHERTYPE_IPV4 => match parse_ip4(bytes)? {
                Some(global) => match parse_udp(bytes)? {
                    Some(port) => (global, Some(port)),
                    None => return Ok(None),
                },
                None => return Ok(None),
            },
            ETHERTYPE_IPV6 => match parse_ip6(bytes, UDP) {
                Ok(global) => match parse_udp(bytes)? {
                    Some(port) => (global, Some(port)),
                    None => return Ok(None),
                },
                Err(_) => return Ok(None),
            },
            _ => return Ok(None),
        };
        Ok(Some(Self::Ethernet {
            destination,
            source,
            vlan,
            global,
            udp,
        }))
    }

    /// What stands before a datagram in its receive buffer: the global route header, or the IP header, IPv4 in the last 20
    /// bytes (IBTA annex 17). Zeros where there is none.
    pub fn network_header(&self, length: usize) -> [u8; NETWORK_HEADER] {
        let mut header = [0; NETWORK_HEADER];
        let Some(global) = self.global() else {
            return header;
        };
        let (mut all, mut rest) = (Vec::new(), Vec::new());
        match self {
            Self::Ethernet { udp: Some(_), .. } => {
                match (ipv4(&global.source), ipv4(&global.destination)) {
                    (Some(from), Some(to)) => {
                        ip4(global, from, to, 8 + length, &mut all, &mut rest);
                    }
                    _ => ip6(global, UDP, 8 + length, &mut all, &mut rest),
                }
            }
            _ => ip6(global, NEXT_BTH, length, &mut all, &mut rest),
        }
        header[NETWORK_HEADER - all.len()..].copy_from_slice(&all);
        header
    }
}

/// The IPv4 address of a GID that maps one.
pub fn ipv4(gid: &[u8; 16]) -> Option<[u8; 4]> {
    let (prefix, address) = gid.split_last_chunk::<4>()?;
    (prefix == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]).then_some(*address)
}

fn mapped(address: &[u8]) -> [u8; 16] {
    let mut gid = [0; 16];
    gid[10..12].fill(0xff);
    gid[12..].copy_from_slice(address);
    gid
}

fn ip6(global: &Global, next: u8, length: usize, to: &mut Vec<u8>, invariant: &mut Vec<u8>) {
    let mut header = [0; NETWORK_HEADER];
    let first = 6 << 28 | u32::from(global.tclass) << 20 | global.flow_label & 0xf_ffff;
    header[..4].copy_from_slice(&first.to_be_bytes());
    header[4..6].copy_from_slice(&(length as u16).to_be_bytes());
    header[6] = next;
    header[7] = global.hop_limit;
    header[8..24].copy_from_slice(&global.source);
    header[24..].copy_from_slice(&global.destination);
    to.extend(header);
    header[0] |= 0x0f;
    header[1..4].fill(0xff);
    header[7] = 0xff;
    invariant.extend(header);
}

fn ip4(
    global: &Global,
    from: [u8; 4],
    dest: [u8; 4],
    length: usize,
    to: &mut Vec<u8>,
    invariant: &mut Vec<u8>,
) {
    let mut header = [0; 20];
    header[0] = 0x45;
    header[1] = global.tclass;
    header[2..4].copy_from_slice(&((20 + length) as u16).to_be_bytes());
    // Don't fragment.
    header[6] = 0x40;
    header[8] = global.hop_limit;
    header[9] = UDP;
    header[12..16].copy_from_slice(&from);
    header[16..].copy_from_slice(&dest);
    let sum = !check::fold(check::add(&header, 0));
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    to.extend(header);
    header[1] = 0xff;
    header[8] = 0xff;
    header[10..12].fill(0xff);
    invariant.extend(header);
}

fn udp_header(source: u16, length: usize, to: &mut Vec<u8>, invariant: &mut Vec<u8>) {
    let mut header = [0; 8];
    header[..2].copy_from_slice(&source.to_be_bytes());
    header[2..4].copy_from_slice(&ROCE_V2_PORT.to_be_bytes());
    header[4..6].copy_from_slice(&((8 + length) as u16).to_be_bytes());
    // The check sum of RoCE v2 is 0: the invariant check does its work.
    to.extend(header);
    header[6..].fill(0xff);
    invariant.extend(header);
}

fn parse_ip6(bytes: &mut &[u8], next: u8) -> Result<Global, Malformed> {
    let header = take::<NETWORK_HEADER>(bytes)?;
    if header[0] >> 4 != 6 || header[6] != next {
        return Err(Malformed::Header);
    }
    let first = word(&header);
    let mut global = Global {
        tclass: (first >> 20) as u8,
        flow_label: first & 0xf_ffff,
        hop_limit: header[7],
        ..Global::default()
    };
    global.source.copy_from_slice(&header[8..24]);
    global.destination.copy_from_slice(&header[24..]);
    Ok(global)
}

fn parse_ip4(bytes: &mut &[u8]) -> Result<Option<Global>, Malformed> {
    let header = take::<20>(bytes)?;
    if header[0] != 0x45 || header[9] != UDP {
        return Ok(None);
    }
    Ok(Some(Global {
        source: mapped(&header[12..16]),
        destination: mapped(&header[16..]),
        tclass: header[1],
        flow_label: 0,
        hop_limit: header[8],
    }))
}

/// The source port, of packets to RoCE's port.
fn parse_udp(bytes: &mut &[u8]) -> Result<Option<u16>, Malformed> {
    let header = take::<8>(bytes)?;
    let port = u16::from_be_bytes([header[2], header[3]]);
    Ok((port == ROCE_V2_PORT).then(|| u16::from_be_bytes([header[0], header[1]])))
}
