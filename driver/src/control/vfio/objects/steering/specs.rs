//! Specifications of packets as verbs have them, turned into the bits that flow table entries compare.

use uverbs_abi::write::flow::{
    EthFilter, FlowSpecActionTag, FlowSpecEth, FlowSpecHdr, FlowSpecIpv4, FlowSpecIpv6,
    FlowSpecTcpUdp, Ipv4Filter, Ipv6Filter, TcpUdpFilter,
};
use wqe_format::mlx5::firmware::flow::matching::{FteMatchParam, FteMatchSetLyr24};
use zerocopy::{FromBytes, IntoBytes};

use crate::sys::errno::Errno;

/// Kinds of specifications (`enum ib_flow_spec_type` of the kernel's `rdma/ib_verbs.h`).
const ETHERNET: u32 = 0x20;
const IPV4: u32 = 0x30;
const IPV6: u32 = 0x31;
const TCP: u32 = 0x40;
const UDP: u32 = 0x41;
const TAG: u32 = 0x1000;
const DROP: u32 = 0x1001;

/// Ethertypes (IEEE), protocols (IANA) and versions of IP.
const TYPE_IPV4: u16 = 0x0800;
const TYPE_IPV6: u16 = 0x86dd;
const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_UDP: u8 = 17;

/// `match_criteria_enable`: outer headers, fields beside the headers (`MLX5_MATCH_*`).
const OUTER: u8 = 1 << 0;
const MISC: u8 = 1 << 1;

/// Most specifications of a rule, as the kernel takes them (`IB_FLOW_SPEC_SUPPORT_LAYERS`).
const MOST: u8 = 10;

/// Bytes of a match.
const BYTES: usize = FteMatchParam::SIZE;

/// Bits that packets have to have.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Match {
    /// Which parts of the bits count, a bit for 64 bytes each.
    pub(super) enable: u8,
    pub(super) mask: Box<[u8; BYTES]>,
    pub(super) value: Box<[u8; BYTES]>,
}

impl std::fmt::Debug for Match {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let used = (self.mask.iter().zip(&*self.value)).enumerate();
        let used = used.filter(|(_, (mask, _))| **mask != 0);
        f.debug_map().entries(used).finish()
    }
}

/// All that the specifications of a rule say.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) matches: Match,
    /// Comes back with completions.
    pub(super) tag: u32,
    /// Whether nobody gets the packets.
    pub(super) drop: bool,
}

impl Match {
    /// All packets.
    pub(super) fn all() -> Self {
        Self {
            enable: 0,
            mask: Box::new([0; BYTES]),
            value: Box::new([0; BYTES]),
        }
    }

    /// Packets for more than one: the address' first byte is odd (IEEE 802 9.2).
    pub(super) fn groups() -> Self {
        let mut all = Self::all();
        all.destination([1, 0, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0]);
        all
    }

    /// Packets of a type.
    pub(super) fn ether_type(value: u16) -> Self {
        let mut all = Self::all();
        all.set(|set, mask| {
            set.set_ethertype(if mask { u16::MAX } else { value });
        });
        all
    }

    /// Packets of IPv6 with this protocol.
    pub(super) fn ipv6_protocol(value: u8) -> Self {
        let mut all = Self::all();
        all.version(6);
        all.protocol(value);
        all
    }

    /// Whether only groups' packets match.
    pub(super) fn only_groups(&self) -> bool {
        let at = |bytes: &[u8; BYTES]| {
            let param = FteMatchParam::new(&bytes[..]).ok();
            param.is_some_and(|param| param.outer_headers().dmac_47_16() >> 24 & 1 != 0)
        };
        at(&self.mask) && at(&self.value)
    }

    /// Writes fields of the outer headers: of the value, then of the mask.
    fn set(&mut self, write: impl Fn(&mut FteMatchSetLyr24<&mut [u8]>, bool)) {
        for (bytes, is_mask) in [(&mut self.value, false), (&mut self.mask, true)] {
            if let Ok(mut param) = FteMatchParam::new(&mut bytes[..]) {
                write(&mut param.outer_headers_mut(), is_mask);
            }
        }
        self.enable |= OUTER;
    }

    fn destination(&mut self, value: [u8; 6], mask: [u8; 6]) {
        self.set(|set, is_mask| {
            let (high, low) = halves(if is_mask { mask } else { value });
            set.set_dmac_47_16(high).set_dmac_15_0(low);
        });
    }

    fn version(&mut self, version: u8) {
        self.set(|set, is_mask| {
            set.set_ip_version(if is_mask { 0xf } else { version });
        });
    }

    fn protocol(&mut self, protocol: u8) {
        self.set(|set, is_mask| {
            set.set_ip_protocol(if is_mask { 0xff } else { protocol });
        });
    }

    fn ethernet(&mut self, spec: &FlowSpecEth) {
        let one = |set: &mut FteMatchSetLyr24<&mut [u8]>, of: &EthFilter| {
            let (high, low) = halves(of.dst_mac);
            set.set_dmac_47_16(high).set_dmac_15_0(low);
            let (high, low) = halves(of.src_mac);
            set.set_smac_47_16(high).set_smac_15_0(low);
            set.set_ethertype(of.ether_type.get());
            if spec.mask.vlan_tag.get() != 0 {
                let tag = of.vlan_tag.get();
                set.set_cvlan_tag(true)
                    .set_first_vid(tag & 0xfff)
                    .set_first_cfi(tag >> 12 & 1 != 0)
                    .set_first_prio((tag >> 13) as u8);
            }
        };
        self.set(|set, is_mask| one(set, if is_mask { &spec.mask } else { &spec.val }));
    }

    fn ipv4(&mut self, spec: &FlowSpecIpv4) -> Result<(), Errno> {
        if spec.mask.ttl != 0 || spec.mask.flags != 0 {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        self.version(4);
        self.set(|set, is_mask| {
            let of: &Ipv4Filter = if is_mask { &spec.mask } else { &spec.val };
            // the last 4 of 16 bytes (`ipv4_layout`)
            set.src_ipv4_src_ipv6_mut()[12..].copy_from_slice(of.src_ip.as_bytes());
            set.dst_ipv4_dst_ipv6_mut()[12..].copy_from_slice(of.dst_ip.as_bytes());
            set.set_ip_ecn(of.tos & 3)
                .set_ip_dscp(of.tos >> 2)
                .set_ip_protocol(of.proto);
        });
        Ok(())
    }

    fn ipv6(&mut self, spec: &FlowSpecIpv6) -> Result<(), Errno> {
        if spec.mask.hop_limit != 0 {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        self.version(6);
        self.set(|set, is_mask| {
            let of: &Ipv6Filter = if is_mask { &spec.mask } else { &spec.val };
            set.src_ipv4_src_ipv6_mut().copy_from_slice(&of.src_ip);
            set.dst_ipv4_dst_ipv6_mut().copy_from_slice(&of.dst_ip);
            set.set_ip_ecn(of.traffic_class & 3)
                .set_ip_dscp(of.traffic_class >> 2)
                .set_ip_protocol(of.next_hdr);
        });
        if spec.mask.flow_label.get() != 0 {
            for (bytes, of) in [(&mut self.value, &spec.val), (&mut self.mask, &spec.mask)] {
                if let Ok(mut param) = FteMatchParam::new(&mut bytes[..]) {
                    { param.misc_parameters_mut() }
                        .set_outer_ipv6_flow_label(of.flow_label.get() & 0xf_ffff);
                }
            }
            self.enable |= MISC;
        }
        Ok(())
    }

    fn ports(&mut self, spec: &FlowSpecTcpUdp, is_udp: bool) {
        self.protocol(if is_udp { PROTOCOL_UDP } else { PROTOCOL_TCP });
        self.set(|set, is_mask| {
            let of: &TcpUdpFilter = if is_mask { &spec.mask } else { &spec.val };
            let (source, destination) = (of.src_port.get(), of.dst_port.get());
            match is_udp {
                true => set.set_udp_sport(source).set_udp_dport(destination),
                false => set.set_tcp_sport(source).set_tcp_dport(destination),
            };
        });
    }

    /// Bits that the mask does not look at are zero, so that equal matches are equal bytes; and parts that nothing looks at
    /// do not count.
    fn tidy(&mut self) {
        for (value, mask) in self.value.iter_mut().zip(&*self.mask) {
            *value &= mask;
        }
        let looks = |part: usize| self.mask[part * 64..][..64].iter().any(|byte| *byte != 0);
        let parts = (0..8).filter(|part| looks(*part));
        self.enable &= parts.fold(0, |all, part| all | 1 << part);
    }
}

fn halves(mac: [u8; 6]) -> (u32, u16) {
    let [a, b, c, d, e, f] = mac;
    (u32::from_be_bytes([a, b, c, d]), u16::from_be_bytes([e, f]))
}

/// The first bytes of a specification.
fn view<T: FromBytes>(bytes: &[u8]) -> Result<T, Errno> {
    match T::read_from_prefix(bytes) {
        Ok((spec, _)) => Ok(spec),
        Err(_) => Err(Errno(libc::EINVAL)),
    }
}

/// Reads the specifications of a rule.
pub(super) fn read(mut specs: &[u8], count: u8) -> Result<Said, Errno> {
    let refused = Errno(libc::EINVAL);
    if count > MOST {
        return Err(refused);
    }
    let mut said = Said {
        matches: Match::all(),
        tag: 0,
        drop: false,
    };
    let (mut ether_type, mut version) = (None, None);
    for _ in 0..count {
        let header: FlowSpecHdr = view(specs)?;
        let size = usize::from(header.size);
        if size < size_of::<FlowSpecHdr>() || size > specs.len() {
            return Err(refused);
        }
        let (spec, rest) = specs.split_at(size);
        specs = rest;
        match header.r#type {
            ETHERNET => {
                let spec: FlowSpecEth = view(spec)?;
                if spec.mask.ether_type.get() == u16::MAX {
                    ether_type = Some(spec.val.ether_type.get());
                }
                said.matches.ethernet(&spec);
            }
            IPV4 => {
                version = Some(TYPE_IPV4);
                said.matches.ipv4(&view(spec)?)?;
            }
            IPV6 => {
                version = Some(TYPE_IPV6);
                said.matches.ipv6(&view(spec)?)?;
            }
            TCP => said.matches.ports(&view(spec)?, false),
            UDP => said.matches.ports(&view(spec)?, true),
            TAG => {
                let spec: FlowSpecActionTag = view(spec)?;
                if spec.tag_id >> 24 != 0 {
                    return Err(refused);
                }
                said.tag = spec.tag_id;
            }
            DROP => said.drop = true,
            _ => return Err(Errno(libc::EOPNOTSUPP)),
        }
    }
    if let (Some(ether_type), Some(version)) = (ether_type, version)
        && ether_type != version
    {
        return Err(refused);
    }
    said.matches.tidy();
    Ok(said)
}
