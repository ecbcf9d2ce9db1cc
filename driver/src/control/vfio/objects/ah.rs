//! Address handles and multicast groups.
//!
//! On Ethernet a path needs the peer's MAC address. It is taken from the GID where that tells it, as those of ports that
//! nobody gave an address do: a link-local GID made of the MAC address, our own GIDs, multicast groups. For others
//! [`Objects::add_neighbour`] says it, or the network is [asked](Network).

use std::collections::{HashMap, HashSet};
use std::net::Ipv6Addr;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use uverbs_abi::handle::{Ah, Pd, Qp};
use uverbs_abi::types::QpType;
use uverbs_abi::udata::mlx5::CreateAhResp;
use uverbs_abi::write::ah::AhAttr;
use wqe_format::mlx5::firmware::Opcode;
use wqe_format::mlx5::firmware::multicast::AttachToMcgIn;

use super::Objects;
use super::domain::Pdn;
use super::gid::mac_of_link_local;
use crate::control::vfio::neighbour::Network;
use crate::sys::errno::Errno;

/// An address handle: nothing of the device's.
#[derive(Debug)]
pub(super) struct AddressHandle {
    _pd: Arc<Pdn>,
}

/// MAC addresses that the program said, and who asks for others.
#[derive(Debug, Default)]
pub(super) struct Neighbours {
    said: Mutex<HashMap<[u8; 16], [u8; 6]>>,
    network: Mutex<Option<Weak<dyn Network>>>,
}

impl Neighbours {
    /// Who asks the network.
    pub(super) fn network(&self) -> Option<Arc<dyn Network>> {
        let network = self.network.lock().unwrap_or_else(PoisonError::into_inner);
        network.as_ref().and_then(Weak::upgrade)
    }
}

/// Multicast groups of queue pairs.
#[derive(Debug, Default)]
pub(super) struct Groups(Mutex<HashSet<(u32, [u8; 16])>>);

impl Groups {
    /// Whether a queue pair is in one.
    pub(super) fn has(&self, qp: u32) -> bool {
        let groups = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        groups.iter().any(|(member, _)| *member == qp)
    }
}

/// Whether an address is a group's: of IPv6, or of IPv4 as IPv6 writes it.
fn is_group(address: Ipv6Addr) -> bool {
    let mapped = address.to_ipv4_mapped();
    address.is_multicast() || mapped.is_some_and(|address| address.is_multicast())
}

impl Objects {
    /// Says at which MAC address a GID, or the router to it, is.
    pub fn add_neighbour(&self, gid: [u8; 16], mac: [u8; 6]) {
        let said = &self.neighbours.said;
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        said.insert(gid, mac);
    }

    /// Says who asks the network for MAC addresses.
    pub fn set_network(&self, network: Weak<dyn Network>) {
        let place = &self.neighbours.network;
        *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(network);
    }

    /// The MAC address of a destination on Ethernet. `ETIMEDOUT` if nobody in the network says it, `EHOSTUNREACH` if there
    /// is nobody to ask.
    pub(super) fn resolve(&self, attr: &AhAttr) -> Result<[u8; 6], Errno> {
        let gid = &attr.grh.dgid;
        let said = &self.neighbours.said;
        let said = said.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mac) = said.get(gid) {
            return Ok(*mac);
        }
        drop(said);
        if self.is_own(gid) {
            return self.mac();
        }
        if gid[0] == 0xff {
            // IPv6 multicast (RFC 2464, 7); IPv4 groups are `ff0e::ffff:a.b.c.d`, with RFC 1112's addresses
            return Ok(match gid[10..12] {
                [0xff, 0xff] => [0x01, 0x00, 0x5e, gid[13] & 0x7f, gid[14], gid[15]],
                _ => [0x33, 0x33, gid[12], gid[13], gid[14], gid[15]],
            });
        }
        if let Some(mac) = mac_of_link_local(gid) {
            return Ok(mac);
        }
        let network = self.neighbours.network();
        let network = network.ok_or(Errno(libc::EHOSTUNREACH))?;
        let index = attr.grh.sgid_index.into();
        let source = self.query_gid_entry(attr.port_num.into(), index)?;
        network.ask(&source.gid, gid)
    }

    /// Makes an address handle; on Ethernet with the MAC address of the destination.
    pub fn create_ah(&self, pd: Pd, attr: &AhAttr) -> Result<(Ah, CreateAhResp), Errno> {
        let pd = self.pds.get(pd.0)?;
        let ports = self.caps.general.num_ports();
        if !(1..=ports).contains(&attr.port_num) {
            return Err(Errno(libc::EINVAL));
        }
        let mut answer = CreateAhResp::default();
        if self.caps.is_ethernet() {
            if attr.is_global == 0 {
                return Err(Errno(libc::EINVAL));
            }
            self.query_gid_entry(attr.port_num.into(), attr.grh.sgid_index.into())?;
            answer.response_length = size_of::<CreateAhResp>() as u32;
            answer.dmac = self.resolve(attr)?;
        }
        let handle = self.ahs.insert(AddressHandle { _pd: pd });
        Ok((Ah(handle), answer))
    }

    /// Destroys an address handle.
    pub fn destroy_ah(&self, handle: Ah) -> Result<(), Errno> {
        self.ahs.remove(handle.0, |_| Ok(()))
    }

    /// Attaches a queue pair of datagrams to a multicast group; again is nothing new. `EINVAL` for other queue pairs, and
    /// for an address that is no group's.
    pub fn attach_mcast(&self, qp: Qp, gid: [u8; 16]) -> Result<(), Errno> {
        self.group(Opcode::ATTACH_TO_MCG, qp, gid, |groups, member| {
            groups.insert(member)
        })
    }

    /// Detaches a queue pair from a multicast group. `EINVAL` if it is not in it.
    pub fn detach_mcast(&self, qp: Qp, gid: [u8; 16]) -> Result<(), Errno> {
        self.group(Opcode::DETACH_FROM_MCG, qp, gid, |groups, member| {
            groups.remove(&member)
        })
    }

    fn group(
        &self,
        opcode: Opcode,
        qp: Qp,
        gid: [u8; 16],
        change: impl FnOnce(&mut HashSet<(u32, [u8; 16])>, (u32, [u8; 16])) -> bool,
    ) -> Result<(), Errno> {
        let pair = self.qps.get(qp.0)?;
        // what the kernel's core refuses (`ib_attach_mcast`, `rdma_is_multicast_addr`)
        if pair.qp_type != QpType::UD || !is_group(Ipv6Addr::from(gid)) {
            return Err(Errno(libc::EINVAL));
        }
        let number = pair.number;
        let mut groups = self.groups.0.lock().unwrap_or_else(PoisonError::into_inner);
        let attach = opcode == Opcode::ATTACH_TO_MCG;
        if groups.contains(&(number, gid)) == attach {
            return match attach {
                true => Ok(()),
                false => Err(Errno(libc::EINVAL)),
            };
        }
        // both commands look alike
        let mut command = AttachToMcgIn::zeroed();
        command.set_opcode(opcode.0).set_qpn(number);
        command.multicast_gid_mut().copy_from_slice(&gid);
        self.run_bytes::<16>(command.as_bytes())?;
        change(&mut groups, (number, gid));
        Ok(())
    }
}
