//! ARP and neighbour discovery as frames.

use super::checksum::sum;
use super::{Gid, Mac, ipv4, mapped, solicited};

/// Ethertypes (IEEE), and the next header of ICMPv6 (IANA).
pub(in crate::control::vfio) const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;
pub(in crate::control::vfio) const ICMPV6: u8 = 58;

/// Bytes of an Ethernet header, of an ARP packet of Ethernet and IPv4 (RFC 826), of an IPv6 header, and of a solicitation
/// or advertisement without options (RFC 4861 4.3, 4.4).
const ETHERNET: usize = 14;
const ARP_PACKET: usize = 28;
const IPV6_HEADER: usize = 40;
const NEIGHBOUR: usize = 24;
/// The shortest frame without its check (IEEE 802.3 3.2.7).
const SHORTEST: usize = 60;

/// Hardware of Ethernet, protocol IPv4, and lengths of their addresses.
const ARP_HEADER: [u8; 6] = [0, 1, 0x08, 0, 6, 4];
const REQUEST: u16 = 1;
const REPLY: u16 = 2;
/// Types of ICMPv6, the hop limit that proves that a packet is a neighbour's, options and flags (RFC 4861).
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
const HOPS: u8 = 255;
const SOURCE_ADDRESS: u8 = 1;
const TARGET_ADDRESS: u8 = 2;
const FLAG_SOLICITED: u8 = 1 << 6;
const FLAG_OVERRIDE: u8 = 1 << 5;

const EVERYBODY: Mac = [0xff; 6];
const ALL_NODES: Gid = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const ALL_NODES_MAC: Mac = [0x33, 0x33, 0, 0, 0, 1];

/// What we say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said<'a> {
    /// Who has `wanted`? I am `source`. Both are of IPv4, or both of IPv6.
    Ask {
        /// Whom to tell.
        source: &'a Gid,
        /// Whose MAC address is wanted.
        wanted: &'a Gid,
    },
    /// I have `address`, to one who asked.
    Answer {
        /// What is ours.
        address: &'a Gid,
        /// Who asked; `None` for one without an address.
        to: Option<&'a Gid>,
        /// The MAC address of who asked.
        at: Mac,
    },
    /// I have `address`, to everybody.
    Announce {
        /// What is ours.
        address: &'a Gid,
    },
}

/// What somebody else said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Who has `wanted`? I am `source`.
    Ask {
        /// Who asks; `None` for one without an address.
        source: Option<Gid>,
        /// The MAC address of who asks.
        at: Mac,
        /// Whose MAC address is wanted.
        wanted: Gid,
    },
    /// I have `address`.
    Answer {
        /// Whose.
        address: Gid,
        /// The MAC address.
        at: Mac,
    },
}

impl Said<'_> {
    /// The frame, from a port with this MAC address. `None` to ask from an address of one kind for one of the other.
    pub fn frame(&self, mac: Mac) -> Option<Vec<u8>> {
        match *self {
            Self::Ask { source, wanted } => match (ipv4(source), ipv4(wanted)) {
                (Some(source), Some(wanted)) => {
                    Some(arp(EVERYBODY, REQUEST, (mac, source), ([0; 6], wanted)))
                }
                (None, None) => {
                    let to = solicited(wanted)?;
                    let mut group = ALL_NODES;
                    group[11] = 1;
                    group[12..].copy_from_slice(&to[2..]);
                    Some(discovery(
                        (mac, source),
                        (to, &group),
                        SOLICITATION,
                        0,
                        wanted,
                    ))
                }
                _ => None,
            },
            Self::Answer { address, to, at } => match (ipv4(address), to.map(ipv4)) {
                (Some(address), asker) => {
                    let asker = asker.flatten().unwrap_or_default();
                    Some(arp(at, REPLY, (mac, address), (at, asker)))
                }
                (None, _) => {
                    let (to, at, flags) = match to {
                        Some(to) => (to, at, FLAG_SOLICITED | FLAG_OVERRIDE),
                        None => (&ALL_NODES, ALL_NODES_MAC, FLAG_OVERRIDE),
                    };
                    Some(discovery(
                        (mac, address),
                        (at, to),
                        ADVERTISEMENT,
                        flags,
                        address,
                    ))
                }
            },
            Self::Announce { address } => match ipv4(address) {
                // as Linux has it by default (`arp_notify`): a request for the own address (RFC 5227 3)
                Some(own) => Some(arp(EVERYBODY, REQUEST, (mac, own), ([0; 6], own))),
                None => Self::Answer {
                    address,
                    to: None,
                    at: mac,
                }
                .frame(mac),
            },
        }
    }
}

fn ethernet(to: Mac, from: Mac, kind: u16) -> Vec<u8> {
    [&to[..], &from, &kind.to_be_bytes()].concat()
}

fn arp(to: Mac, operation: u16, sender: (Mac, [u8; 4]), target: (Mac, [u8; 4])) -> Vec<u8> {
    let mut frame = ethernet(to, sender.0, ARP);
    frame.extend(ARP_HEADER);
    frame.extend(operation.to_be_bytes());
    for (mac, address) in [sender, target] {
        frame.extend(mac);
        frame.extend(address);
    }
    frame.resize(SHORTEST, 0);
    frame
}

/// A solicitation or advertisement of `target`, with the sender's MAC address as its option.
fn discovery(
    (mac, source): (Mac, &Gid),
    (to, destination): (Mac, &Gid),
    kind: u8,
    flags: u8,
    target: &Gid,
) -> Vec<u8> {
    let option = match kind {
        SOLICITATION => SOURCE_ADDRESS,
        _ => TARGET_ADDRESS,
    };
    let mut message = vec![kind, 0, 0, 0, flags, 0, 0, 0];
    message.extend(target);
    message.extend([option, 1]);
    message.extend(mac);
    let sum = checksum(source, destination, &message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut frame = ethernet(to, mac, IPV6);
    frame.extend([0x60, 0, 0, 0]);
    frame.extend((message.len() as u16).to_be_bytes());
    frame.extend([ICMPV6, HOPS]);
    frame.extend(source);
    frame.extend(destination);
    frame.extend(message);
    frame
}

/// The checksum of a message with its pseudo-header (RFC 8200 8.1).
fn checksum(source: &Gid, destination: &Gid, message: &[u8]) -> u16 {
    let length = (message.len() as u32).to_be_bytes();
    sum(&[source, destination, &length, &[0, 0, 0, ICMPV6], message])
}

/// `N` bytes at a place.
fn at<const N: usize>(bytes: &[u8], place: usize) -> Option<[u8; N]> {
    bytes.get(place..)?.first_chunk().copied()
}

impl Heard {
    /// What a frame says; `None` if it says nothing about addresses, or not as it should.
    pub fn parse(frame: &[u8]) -> Option<Self> {
        let kind = u16::from_be_bytes(at(frame, 12)?);
        let packet = frame.get(ETHERNET..)?;
        match kind {
            ARP => Self::arp(packet.get(..ARP_PACKET)?),
            IPV6 => Self::ipv6(packet),
            _ => None,
        }
    }

    fn arp(packet: &[u8]) -> Option<Self> {
        if packet[..6] != ARP_HEADER {
            return None;
        }
        let sender: Mac = at(packet, 8)?;
        let address: [u8; 4] = at(packet, 14)?;
        let target: [u8; 4] = at(packet, 24)?;
        if !is_of_one(sender) {
            return None;
        }
        match u16::from_be_bytes(at(packet, 6)?) {
            // a request for the own address tells others of it
            REQUEST if address == target => Some(Self::Answer {
                address: mapped(address),
                at: sender,
            }),
            REQUEST => Some(Self::Ask {
                source: (address != [0; 4]).then(|| mapped(address)),
                at: sender,
                wanted: mapped(target),
            }),
            REPLY if address != [0; 4] => Some(Self::Answer {
                address: mapped(address),
                at: sender,
            }),
            _ => None,
        }
    }

    fn ipv6(packet: &[u8]) -> Option<Self> {
        let header: [u8; IPV6_HEADER] = at(packet, 0)?;
        let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
        let message = packet.get(IPV6_HEADER..)?.get(..length)?;
        let is_neighbours = header[0] >> 4 == 6 && header[6] == ICMPV6 && header[7] == HOPS;
        if !is_neighbours || message.len() < NEIGHBOUR || message[1] != 0 {
            return None;
        }
        let (source, destination): (Gid, Gid) = (at(&header, 8)?, at(&header, 24)?);
        if checksum(&source, &destination, message) != 0 {
            return None;
        }
        let target: Gid = at(message, 8)?;
        if target[0] == 0xff {
            return None;
        }
        let options = &message[NEIGHBOUR..];
        match message[0] {
            SOLICITATION if source == [0; 16] => Some(Self::Ask {
                // who does not have an address yet wants to know whether it is free
                source: None,
                at: [0; 6],
                wanted: target,
            }),
            SOLICITATION => Some(Self::Ask {
                source: Some(source),
                at: option(options, SOURCE_ADDRESS)?,
                wanted: target,
            }),
            ADVERTISEMENT => Some(Self::Answer {
                address: target,
                at: option(options, TARGET_ADDRESS)?,
            }),
            _ => None,
        }
    }
}

/// Whether an address is one port's, not a group's.
fn is_of_one(mac: Mac) -> bool {
    mac[0] & 1 == 0 && mac != [0; 6]
}

/// The MAC address of an option; options are multiples of 8 bytes, and one of no length makes the packet invalid.
fn option(mut options: &[u8], wanted: u8) -> Option<Mac> {
    let mut found = None;
    while let [kind, length, ..] = *options {
        let length = usize::from(length) * 8;
        if length == 0 {
            return None;
        }
        let option = options.get(..length)?;
        if kind == wanted && found.is_none() {
            found = at(option, 2).filter(|mac| is_of_one(*mac));
        }
        options = &options[length..];
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Mac = [2, 0, 0, 0, 0, 1];
    const B: Mac = [2, 0, 0, 0, 0, 2];
    const V4: [Gid; 2] = [
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 0, 0, 1],
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 0, 0, 2],
    ];
    const V6: [Gid; 2] = [
        [0xfd, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x11, 0x22, 0x33],
        [0xfd, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x44, 0x55, 0x66],
    ];

    /// A request as every packet capture shows it.
    #[test]
    fn a_request_of_arp() {
        let [source, wanted] = &V4;
        let frame = Said::Ask { source, wanted }.frame(A).unwrap();
        let expected = [
            0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 8, 6, // Ethernet
            0, 1, 8, 0, 6, 4, 0, 1, // a request of Ethernet and IPv4
            2, 0, 0, 0, 0, 1, 10, 0, 0, 1, // sender
            0, 0, 0, 0, 0, 0, 10, 0, 0, 2, // target
        ];
        assert_eq!(frame[..expected.len()], expected);
        assert_eq!(frame.len(), 60);
    }

    /// Places of fields as RFC 8200 3 and RFC 4861 4.3 draw them.
    #[test]
    fn a_solicitation() {
        let [source, wanted] = &V6;
        let frame = Said::Ask { source, wanted }.frame(A).unwrap();
        assert_eq!(frame[..6], [0x33, 0x33, 0xff, 0x44, 0x55, 0x66]);
        assert_eq!(frame[12..22], [0x86, 0xdd, 0x60, 0, 0, 0, 0, 32, 58, 255]);
        assert_eq!(frame[22..38], *source);
        let group = [
            0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0x44, 0x55, 0x66,
        ];
        assert_eq!(frame[38..54], group);
        assert_eq!(frame[54..56], [135, 0]);
        assert_eq!(frame[62..78], *wanted);
        assert_eq!(frame[78..86], [1, 1, 2, 0, 0, 0, 0, 1]);
        assert_eq!(frame.len(), 86);
    }

    #[test]
    fn what_is_said_is_heard() {
        for [source, wanted] in [&V4, &V6] {
            let asked = Said::Ask { source, wanted }.frame(A).unwrap();
            let heard = Heard::parse(&asked);
            assert_eq!(
                heard,
                Some(Heard::Ask {
                    source: Some(*source),
                    at: A,
                    wanted: *wanted
                })
            );
            for said in [
                Said::Announce { address: wanted },
                Said::Answer {
                    address: wanted,
                    to: Some(source),
                    at: A,
                },
            ] {
                let frame = said.frame(B).unwrap();
                let answer = Heard::Answer {
                    address: *wanted,
                    at: B,
                };
                assert_eq!(Heard::parse(&frame), Some(answer));
            }
            let answer = Said::Answer {
                address: wanted,
                to: Some(source),
                at: A,
            };
            assert_eq!(answer.frame(B).unwrap()[..12], [A, B].concat());
        }
    }

    #[test]
    fn kinds_do_not_mix() {
        let ask = Said::Ask {
            source: &V4[0],
            wanted: &V6[1],
        };
        assert_eq!(ask.frame(A), None);
    }

    /// Every bit of what counts: a frame that lost one says nothing, or something else, and none makes the reader fail.
    #[test]
    fn damaged_frames_are_not_believed() {
        let [source, wanted] = &V6;
        let good = Said::Ask { source, wanted }.frame(A).unwrap();
        for bit in 14 * 8..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            // traffic class and flow label are no part of what is said
            let is_label = bit / 8 == 14 && bit % 8 < 4 || (15..18).contains(&(bit / 8));
            let heard = Heard::parse(&bad);
            assert_eq!(heard.is_some(), is_label, "bit {bit}: {heard:?}");
        }
        for len in 0..good.len() {
            assert_eq!(Heard::parse(&good[..len]), None);
        }
        let [source, wanted] = &V4;
        let good = Said::Ask { source, wanted }.frame(A).unwrap();
        for len in 0..42 {
            assert_eq!(Heard::parse(&good[..len]), None);
        }
        let mut group = good.clone();
        group[22] |= 1;
        assert_eq!(Heard::parse(&group), None);
        // an option without length
        let [source, wanted] = &V6;
        let mut endless = Said::Ask { source, wanted }.frame(A).unwrap();
        endless[79] = 0;
        let sum = u16::from_be_bytes([endless[56], endless[57]]) + 1;
        endless[56..58].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(Heard::parse(&endless), None);
    }
}
