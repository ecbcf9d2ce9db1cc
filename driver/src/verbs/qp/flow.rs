//! Which packets a queue pair of raw packets gets.

use std::net::Ipv4Addr;
use std::sync::Arc;

use uverbs_abi::handle;
use uverbs_abi::write::flow::{
    EthFilter, FlowAttr, FlowSpecEth, FlowSpecHdr, FlowSpecIpv4, FlowSpecTcpUdp, Ipv4Filter,
    TcpUdpFilter,
};
use zerocopy::IntoBytes;

use super::{QpInner, QueuePair, RawPacket};
use crate::error::{Error, Result};
use crate::sys::errno::Errno;
use crate::verbs::context::Family;

/// `IB_FLOW_SPEC_ETH`, `_IPV4`, `_TCP` and `_UDP` (`include/rdma/ib_verbs.h`, which uapi has no names for).
const ETH: u32 = 0x20;
const IPV4: u32 = 0x30;
const TCP: u32 = 0x40;
const UDP: u32 = 0x41;

/// What packets have in common: whatever is not said matches all.
#[derive(Clone, Copy, Debug, Default)]
pub struct FlowMatch {
    mac: Option<[u8; 6]>,
    ether_type: Option<u16>,
    source: Option<Ipv4Addr>,
    destination: Option<Ipv4Addr>,
    port: Option<(u32, u16)>,
}

impl FlowMatch {
    /// All packets.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            mac: None,
            ether_type: None,
            source: None,
            destination: None,
            port: None,
        }
    }

    /// Destination in the Ethernet header.
    #[must_use]
    pub const fn mac(mut self, mac: [u8; 6]) -> Self {
        self.mac = Some(mac);
        self
    }

    /// Type in the Ethernet header.
    #[must_use]
    pub const fn ether_type(mut self, ether_type: u16) -> Self {
        self.ether_type = Some(ether_type);
        self
    }

    /// Source in the IPv4 header.
    #[must_use]
    pub const fn source(mut self, address: Ipv4Addr) -> Self {
        self.source = Some(address);
        self
    }

    /// Destination in the IPv4 header.
    #[must_use]
    pub const fn destination(mut self, address: Ipv4Addr) -> Self {
        self.destination = Some(address);
        self
    }

    /// Destination port in the UDP header.
    #[must_use]
    pub const fn udp_port(mut self, port: u16) -> Self {
        self.port = Some((UDP, port));
        self
    }

    /// Destination port in the TCP header.
    #[must_use]
    pub const fn tcp_port(mut self, port: u16) -> Self {
        self.port = Some((TCP, port));
        self
    }

    /// The kernel's specifications, and how many there are: Ethernet always, so that the rule has a layer to stand on.
    fn specifications(&self) -> (Vec<u8>, u8) {
        let header = |kind, size: usize| FlowSpecHdr {
            r#type: kind,
            size: size as u16,
            ..FlowSpecHdr::default()
        };
        let mask = |is_set: bool| if is_set { u32::MAX } else { 0 };
        let mut bytes = Vec::new();
        let eth = FlowSpecEth {
            hdr: header(ETH, size_of::<FlowSpecEth>()),
            val: EthFilter {
                dst_mac: self.mac.unwrap_or_default(),
                ether_type: self.ether_type.unwrap_or_default().into(),
                ..EthFilter::default()
            },
            mask: EthFilter {
                dst_mac: self.mac.map_or([0; 6], |_| [0xff; 6]),
                ether_type: self.ether_type.map_or(0, |_| u16::MAX).into(),
                ..EthFilter::default()
            },
        };
        bytes.extend_from_slice(eth.as_bytes());
        let mut count = 1;
        if self.source.is_some() || self.destination.is_some() || self.port.is_some() {
            let number = |address: Option<Ipv4Addr>| address.map_or(0, u32::from).into();
            let ip = FlowSpecIpv4 {
                hdr: header(IPV4, size_of::<FlowSpecIpv4>()),
                val: Ipv4Filter {
                    src_ip: number(self.source),
                    dst_ip: number(self.destination),
                    ..Ipv4Filter::default()
                },
                mask: Ipv4Filter {
                    src_ip: mask(self.source.is_some()).into(),
                    dst_ip: mask(self.destination.is_some()).into(),
                    ..Ipv4Filter::default()
                },
            };
            bytes.extend_from_slice(ip.as_bytes());
            count += 1;
        }
        if let Some((kind, port)) = self.port {
            let ports = FlowSpecTcpUdp {
                hdr: header(kind, size_of::<FlowSpecTcpUdp>()),
                val: TcpUdpFilter {
                    dst_port: port.into(),
                    ..TcpUdpFilter::default()
                },
                mask: TcpUdpFilter {
                    dst_port: u16::MAX.into(),
                    ..TcpUdpFilter::default()
                },
            };
            bytes.extend_from_slice(ports.as_bytes());
            count += 1;
        }
        (bytes, count)
    }
}

/// A rule that gives packets to a queue pair, until it is dropped.
#[derive(Debug)]
pub struct FlowRule {
    qp: Arc<QpInner>,
    handle: handle::Flow,
}

impl Drop for FlowRule {
    fn drop(&mut self) {
        let context = &self.qp.pd.context;
        if context.is_ours() {
            // A destructor has nobody to tell.
            let _ = context.uctx().destroy_flow(self.handle);
        }
    }
}

impl QueuePair<RawPacket> {
    /// Lets packets in that arrive on `port`.
    ///
    /// ```no_run
    /// use oxverbs::{Context, FlowMatch, RawPacket};
    ///
    /// # fn main() -> oxverbs::Result<()> {
    /// let context = Context::open("mlx5_0")?;
    /// let pd = context.protection_domain()?;
    /// let cq = context.completion_queue(64)?;
    /// let mut qp = pd.queue_pair::<RawPacket>(&cq).create()?;
    /// qp.to_ready(1)?;
    /// let rule = qp.steer(1, &FlowMatch::new().udp_port(4789))?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// The kernel's: `EPERM` without `CAP_NET_RAW`, `EOPNOTSUPP` on InfiniBand.
    pub fn steer(&self, port: u8, packets: &FlowMatch) -> Result<FlowRule> {
        let (specs, num_of_specs) = packets.specifications();
        let attr = FlowAttr {
            num_of_specs,
            port,
            ..FlowAttr::default()
        };
        let qp = Arc::clone(&self.send.shared);
        let uctx = qp.pd.context.uctx();
        let made = match &qp.pd.context.family {
            Family::Mlx5(_) => uctx.create_flow_mlx5(qp.handle, &attr, &specs, None),
            Family::Rxe(_) => uctx.create_flow(qp.handle, &attr, &specs),
        };
        let handle =
            made.map_err(|errno| Error::kernel(format!("let packets in by {packets:?}"), errno))?;
        Ok(FlowRule { qp, handle })
    }

    /// Lets ARP and neighbour discovery in, of a port that this process drives, as far as no other rule takes them.
    pub(in crate::verbs) fn steer_neighbours(&self) -> Result<FlowRule> {
        let failed = |errno| Error::kernel("let ARP and neighbour discovery in", errno);
        let qp = Arc::clone(&self.send.shared);
        let objects = qp.pd.context.uctx().objects();
        let objects = objects.ok_or(failed(Errno(libc::EOPNOTSUPP)))?;
        let handle = objects.steer_neighbours(qp.handle).map_err(failed)?;
        Ok(FlowRule { qp, handle })
    }
}
