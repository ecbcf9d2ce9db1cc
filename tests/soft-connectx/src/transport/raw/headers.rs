//! Headers of Ethernet frames: where they lie, and what they say.

use wqe_format::mlx5::firmware::flow::matching::FteMatchParam;
use wqe_format::mlx5::{L3_IPV4, L3_IPV6};

use crate::resources::MATCH_LEN;

pub(super) const VLAN: u16 = 0x8100;
/// The outer tag of two (IEEE 802.1ad).
const SERVICE_VLAN: u16 = 0x88a8;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;

/// An IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ip {
    pub(super) is_v6: bool,
    /// IPv4 in the last four bytes.
    pub(super) source: [u8; 16],
    pub(super) destination: [u8; 16],
    traffic_class: u8,
    hop_limit: u8,
    pub(super) is_fragment: bool,
    pub(super) protocol: u8,
    /// Where the header of TCP or UDP begins.
    pub(super) transport: usize,
    /// Behind the packet; what follows pads the frame.
    pub(super) end: usize,
}

/// The headers of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Headers {
    pub(super) destination: [u8; 6],
    pub(super) source: [u8; 6],
    /// Kind and control information of each VLAN tag, the outer one first.
    pub(super) tags: Vec<(u16, u16)>,
    kind: u16,
    /// Where the network header begins.
    pub(super) network: usize,
    pub(super) ip: Option<Ip>,
}

fn number(bytes: &[u8], at: usize) -> Option<u16> {
    let pair = bytes.get(at..)?.first_chunk::<2>()?;
    Some(u16::from_be_bytes(*pair))
}

fn address(bytes: &[u8]) -> [u8; 16] {
    let mut address = [0; 16];
    address[16 - bytes.len()..].copy_from_slice(bytes);
    address
}

impl Ip {
    fn parse_v4(frame: &[u8], at: usize) -> Option<Ip> {
        let header = frame.get(at..)?.first_chunk::<20>()?;
        let length = usize::from(header[0] & 0xf) * 4;
        let total = usize::from(number(header, 2)?);
        if header[0] >> 4 != 4 || length < 20 || total < length {
            return None;
        }
        Some(Ip {
            is_v6: false,
            source: address(&header[12..16]),
            destination: address(&header[16..]),
            traffic_class: header[1],
            hop_limit: header[8],
            // More to come, or not from the start.
            is_fragment: number(header, 6)? & 0x3fff != 0,
            protocol: header[9],
            transport: at + length,
            end: frame.len().min(at + total),
        })
    }

    fn parse_v6(frame: &[u8], at: usize) -> Option<Ip> {
        const HOP_BY_HOP: u8 = 0;
        const ROUTING: u8 = 43;
        const FRAGMENT: u8 = 44;
        const OPTIONS: u8 = 60;
        let header = frame.get(at..)?.first_chunk::<40>()?;
        if header[0] >> 4 != 6 {
            return None;
        }
        let mut ip = Ip {
            is_v6: true,
            source: address(&header[8..24]),
            destination: address(&header[24..]),
            traffic_class: header[0] << 4 | header[1] >> 4,
            hop_limit: header[7],
            is_fragment: false,
            protocol: header[6],
            transport: at + 40,
            end: frame.len().min(at + 40 + usize::from(number(header, 4)?)),
        };
        while matches!(ip.protocol, HOP_BY_HOP | ROUTING | FRAGMENT | OPTIONS) {
            let [next, length] = *frame.get(ip.transport..ip.end)?.first_chunk::<2>()?;
            let is_fragment = ip.protocol == FRAGMENT;
            ip.is_fragment |= is_fragment;
            ip.transport += if is_fragment {
                8
            } else {
                (usize::from(length) + 1) * 8
            };
            ip.protocol = next;
        }
        Some(ip)
    }

    /// Source and destination port of TCP or UDP.
    pub(super) fn ports(&self, frame: &[u8]) -> Option<(u16, u16)> {
        if self.is_fragment || !matches!(self.protocol, TCP | UDP) {
            return None;
        }
        let ports = frame.get(self.transport..self.end)?;
        Some((number(ports, 0)?, number(ports, 2)?))
    }

    /// Flags of TCP, nine bits, and how many bytes follow its header.
    pub(super) fn tcp(&self, frame: &[u8]) -> Option<(u16, usize)> {
        if self.is_fragment || self.protocol != TCP {
            return None;
        }
        let header = frame.get(self.transport..self.end)?;
        let word = number(header, 12)?;
        let payload = header.len().checked_sub(usize::from(word >> 12) * 4)?;
        Some((word & 0x1ff, payload))
    }
}

impl Headers {
    /// Takes a frame apart; `None` if it is too short to be one.
    pub(super) fn parse(frame: &[u8]) -> Option<Headers> {
        let mut it = Headers {
            destination: *frame.first_chunk()?,
            source: *frame.get(6..)?.first_chunk()?,
            tags: Vec::new(),
            kind: number(frame, 12)?,
            network: 14,
            ip: None,
        };
        while matches!(it.kind, VLAN | SERVICE_VLAN) && it.tags.len() < 2 {
            it.tags.push((it.kind, number(frame, it.network)?));
            it.kind = number(frame, it.network + 2)?;
            it.network += 4;
        }
        it.ip = match it.kind {
            IPV4 => Ip::parse_v4(frame, it.network),
            IPV6 => Ip::parse_v6(frame, it.network),
            _ => None,
        };
        Some(it)
    }

    /// Whether it is for many.
    pub(super) fn is_multicast(&self) -> bool {
        self.destination[0] & 1 != 0
    }

    /// Kind of the network header, as completions have it (`l4_hdr_type_etc`).
    pub(super) fn l3(&self) -> u8 {
        match &self.ip {
            None => 0,
            Some(ip) if ip.is_v6 => L3_IPV6,
            Some(_) => L3_IPV4,
        }
    }

    /// Kind of the header above, as completions have it (`CQE_L4_HDR_TYPE_*` of Linux include/linux/mlx5/device.h).
    pub(super) fn l4(&self, frame: &[u8]) -> u8 {
        const ACK: u16 = 0x10;
        let Some(ip) = &self.ip else { return 0 };
        match (ip.tcp(frame), ip.ports(frame)) {
            (Some((flags, 0)), _) if flags & ACK != 0 => 3,
            (Some((flags, _)), _) if flags & ACK != 0 => 4,
            (Some(_), _) => 1,
            (None, Some(_)) if ip.protocol == UDP => 2,
            _ => 0,
        }
    }

    /// What flow tables look at.
    pub(super) fn matching(&self, frame: &[u8]) -> [u8; MATCH_LEN] {
        let mut all = FteMatchParam::zeroed();
        if let Some((_, tci)) = self.tags.get(1) {
            let mut misc = all.misc_parameters_mut();
            misc.set_outer_second_prio((tci >> 13) as u8)
                .set_outer_second_cfi(tci >> 12 & 1 != 0)
                .set_outer_second_vid(tci & 0xfff);
        }
        let mut it = all.outer_headers_mut();
        let [a, b, c, d, e, f] = self.source;
        it.set_smac_47_16(u32::from_be_bytes([a, b, c, d]))
            .set_smac_15_0(u16::from_be_bytes([e, f]));
        let [a, b, c, d, e, f] = self.destination;
        it.set_dmac_47_16(u32::from_be_bytes([a, b, c, d]))
            .set_dmac_15_0(u16::from_be_bytes([e, f]));
        it.set_ethertype(self.kind);
        if let Some((kind, tci)) = self.tags.first() {
            it.set_first_prio((tci >> 13) as u8)
                .set_first_cfi(tci >> 12 & 1 != 0)
                .set_first_vid(tci & 0xfff)
                .set_cvlan_tag(*kind == VLAN)
                .set_svlan_tag(*kind == SERVICE_VLAN);
        }
        if let Some(ip) = &self.ip {
            it.set_ip_version(if ip.is_v6 { 6 } else { 4 })
                .set_ip_protocol(ip.protocol)
                .set_ip_dscp(ip.traffic_class >> 2)
                .set_ip_ecn(ip.traffic_class & 3)
                .set_frag(ip.is_fragment)
                .set_ttl_hoplimit(ip.hop_limit);
            if !ip.is_v6 {
                it.set_ipv4_ihl(((ip.transport - self.network) / 4) as u8);
            }
            it.src_ipv4_src_ipv6_mut().copy_from_slice(&ip.source);
            it.dst_ipv4_dst_ipv6_mut().copy_from_slice(&ip.destination);
            match (ip.protocol, ip.ports(frame)) {
                (TCP, Some((from, to))) => {
                    it.set_tcp_sport(from).set_tcp_dport(to);
                }
                (_, Some((from, to))) => {
                    it.set_udp_sport(from).set_udp_dport(to);
                }
                _ => {}
            }
            if let Some((flags, _)) = ip.tcp(frame) {
                it.set_tcp_flags(flags);
            }
        }
        all.into_inner()
    }
}
