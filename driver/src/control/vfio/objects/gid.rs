//! GIDs: the table of an InfiniBand port is the subnet manager's, that of a RoCE port ours to fill.
//!
//! Without a network device there are no IP addresses to take from, so a RoCE port has what each port has,
//! the link-local address of its MAC address, for RoCE v1 at index 0 and v2 at index 1, and what
//! [`Objects::add_gid`] adds.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Mutex, PoisonError};

use uverbs_abi::types::{GidEntry, GidType};
use wqe_format::mlx5::firmware::Opcode;
use wqe_format::mlx5::firmware::hca_vport::{QueryHcaVportGidIn, QueryHcaVportGidOut};
use wqe_format::mlx5::firmware::nic_vport::ModifyNicVportContextIn;
use wqe_format::mlx5::firmware::roce::SetRoceAddressIn;

use super::Objects;
use crate::control::vfio::neighbour::{GROUPS, solicited};
use crate::sys::errno::Errno;

/// `roce_version` and `roce_l3_type` of an entry (Linux `mlx5/device.h` `MLX5_ROCE_VERSION_*`,
/// `MLX5_ROCE_L3_TYPE_*`).
const VERSION_1: u8 = 0;
const VERSION_2: u8 = 2;
const L3_IPV4: u8 = 0;
const L3_IPV6: u8 = 1;

/// `allowed_list_type` of the port's own addresses, and of groups (Linux `mlx5/vport.h` `MLX5_NVPRT_LIST_TYPE_UC`, `_MC`).
const OWN_LIST: u8 = 0;
const GROUP_LIST: u8 = 1;

/// The first bytes of an IPv4 address in a GID.
const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
/// The first bytes of a link-local GID.
const LINK_LOCAL: [u8; 8] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0];

/// The entries of a RoCE port.
#[derive(Debug, Default)]
pub(super) struct GidTable(Mutex<Vec<Option<Address>>>);

/// A GID and its kind.
type Address = ([u8; 16], GidType);

/// A link-local address of a MAC address (RFC 4291 appendix A).
pub(super) fn link_local(mac: [u8; 6]) -> [u8; 16] {
    let mut gid = [0; 16];
    gid[..8].copy_from_slice(&LINK_LOCAL);
    gid[8..11].copy_from_slice(&mac[..3]);
    gid[8] ^= 2;
    gid[11..13].copy_from_slice(&[0xff, 0xfe]);
    gid[13..].copy_from_slice(&mac[3..]);
    gid
}

/// And the MAC address of such a link-local address.
pub(super) fn mac_of_link_local(gid: &[u8; 16]) -> Option<[u8; 6]> {
    let is = gid[..8] == LINK_LOCAL && gid[11..13] == [0xff, 0xfe];
    is.then(|| [gid[8] ^ 2, gid[9], gid[10], gid[13], gid[14], gid[15]])
}

impl Objects {
    /// How many GIDs a port has room for.
    pub(super) fn gid_count(&self) -> u32 {
        if self.caps.is_ethernet() {
            self.caps.roce.roce_address_table_size().into()
        } else {
            // `mlx5_get_gid_table_len`: 8 << n, up to 8 << 4
            8 << self.caps.general.gid_table_size().min(4)
        }
    }

    /// The MAC address of the port: its own or, of a virtual function that nobody gave one, one that is chosen by chance when
    /// it is first asked for.
    pub fn mac(&self) -> Result<[u8; 6], Errno> {
        match self.permanent_address()? {
            [0, 0, 0, 0, 0, 0] => Ok(*self.chosen_address.get_or_init(by_chance)),
            address => Ok(address),
        }
    }

    fn permanent_address(&self) -> Result<[u8; 6], Errno> {
        let output = self.nic_vport()?;
        let address = output.nic_vport_context();
        let address = address.permanent_address();
        let [a, b] = address.mac_addr_47_32().to_be_bytes();
        let [c, d, e, f] = address.mac_addr_31_0().to_be_bytes();
        Ok([a, b, c, d, e, f])
    }

    /// Fills a RoCE port's table with the address that every port has.
    pub(super) fn default_gids(&self) -> Result<(), Errno> {
        if !self.caps.is_ethernet() || !self.caps.general.roce() {
            return Ok(());
        }
        let mac = self.mac()?;
        let gid = link_local(mac);
        // a card's switch gives a function the packets for addresses that it lists (`mlx5e_set_rx_mode`)
        self.list(OWN_LIST, &[mac])?;
        self.enable_roce()?;
        for kind in [GidType::ROCE_V1, GidType::ROCE_V2] {
            self.add_gid(gid, kind)?;
        }
        Ok(())
    }

    /// Lets the port do RoCE at all, as the kernel's driver does before it fills the table (`mlx5_nic_vport_enable_roce`).
    fn enable_roce(&self) -> Result<(), Errno> {
        let mut command = ModifyNicVportContextIn::zeroed();
        command.set_opcode(Opcode::MODIFY_NIC_VPORT_CONTEXT.0);
        { command.field_select_mut() }.set_roce_en(true);
        { command.nic_vport_context_mut() }.set_roce_en(true);
        self.run_bytes::<16>(command.as_bytes()).map(drop)
    }

    /// Says whose packets the port takes: of addresses of its own, or of groups beside the multicast groups that queue pairs
    /// are in.
    fn list(&self, kind: u8, addresses: &[[u8; 6]]) -> Result<(), Errno> {
        // lists are as long as they are (`mlx5_modify_nic_vport_mac_list`), and begin where the context names them
        let mut bytes = vec![0; ModifyNicVportContextIn::SIZE + addresses.len() * 8];
        for (place, mac) in bytes[ModifyNicVportContextIn::SIZE..]
            .chunks_exact_mut(8)
            .zip(addresses)
        {
            place[2..].copy_from_slice(mac);
        }
        let mut command =
            ModifyNicVportContextIn::new(&mut bytes[..]).map_err(|_| Errno(libc::EINVAL))?;
        command.set_opcode(Opcode::MODIFY_NIC_VPORT_CONTEXT.0);
        { command.field_select_mut() }.set_addresses_list(true);
        { command.nic_vport_context_mut() }
            .set_allowed_list_type(kind)
            .set_allowed_list_size(addresses.len() as u16);
        self.run_bytes::<16>(&bytes).map(drop)
    }

    /// Takes the packets by which peers ask for the port's addresses.
    pub fn listen_to_neighbours(&self) -> Result<(), Errno> {
        let mut groups = GROUPS.to_vec();
        for gid in self.own_gids() {
            groups.extend(solicited(&gid).filter(|group| !groups.contains(group)));
        }
        self.list(GROUP_LIST, &groups)
    }

    /// Whether the port is one whose peers are found by asking, and can be asked.
    pub fn has_neighbours(&self) -> bool {
        let caps = &self.caps.general;
        let frames = caps.eth_net_offloads() && caps.nic_flow_table();
        self.caps.is_ethernet() && caps.roce() && frames
    }

    /// The port's addresses, each once.
    pub fn own_gids(&self) -> Vec<[u8; 16]> {
        let table = self.gids.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut gids: Vec<_> = table.iter().flatten().map(|(gid, _)| *gid).collect();
        gids.sort_unstable();
        gids.dedup();
        gids
    }

    /// Adds an address to a RoCE port's table; answers its index. `ENOSPC` if it is full.
    pub fn add_gid(&self, gid: [u8; 16], kind: GidType) -> Result<u32, Errno> {
        if !self.caps.is_ethernet() {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        let mac = self.mac()?;
        let mut table = self.gids.0.lock().unwrap_or_else(PoisonError::into_inner);
        let free = table.iter().position(Option::is_none);
        let index = free.unwrap_or(table.len());
        if index >= self.gid_count() as usize {
            return Err(Errno(libc::ENOSPC));
        }
        self.run_bytes::<16>(set_address(index as u16, gid, kind, mac).as_bytes())?;
        if index == table.len() {
            table.push(None);
        }
        table[index] = Some((gid, kind));
        drop(table);
        if let Some(network) = self.neighbours.network() {
            self.listen_to_neighbours()?;
            network.announce(&gid);
        }
        Ok(index as u32)
    }

    /// One GID. `ENODATA` if the entry is empty, `EINVAL` if there is no such port or index.
    pub fn query_gid_entry(&self, port: u32, index: u32) -> Result<GidEntry, Errno> {
        let ports = u32::from(self.caps.general.num_ports());
        if !(1..=ports).contains(&port) || index >= self.gid_count() {
            return Err(Errno(libc::EINVAL));
        }
        let (gid, gid_type) = if self.caps.is_ethernet() {
            let table = self.gids.0.lock().unwrap_or_else(PoisonError::into_inner);
            let entry = table.get(index as usize).copied().flatten();
            entry.ok_or(Errno(libc::ENODATA))?
        } else {
            let gid = self.hca_vport_gid(index)?;
            if gid[8..] == [0; 8] {
                return Err(Errno(libc::ENODATA));
            }
            (gid, GidType::IB)
        };
        Ok(GidEntry {
            gid,
            gid_index: index,
            port_num: port,
            gid_type,
            netdev_ifindex: 0,
        })
    }

    /// The GIDs there are, into `entries`; answers how many. `EINVAL` if they are more than there is room for.
    pub fn query_gid_table(&self, entries: &mut [GidEntry]) -> Result<usize, Errno> {
        let mut count = 0;
        for port in 1..=u32::from(self.caps.general.num_ports()) {
            for index in 0..self.gid_count() {
                match self.query_gid_entry(port, index) {
                    Ok(entry) => {
                        *entries.get_mut(count).ok_or(Errno(libc::EINVAL))? = entry;
                        count += 1;
                    }
                    Err(Errno(libc::ENODATA)) => {}
                    Err(errno) => return Err(errno),
                }
            }
        }
        Ok(count)
    }

    fn hca_vport_gid(&self, index: u32) -> Result<[u8; 16], Errno> {
        let mut input = QueryHcaVportGidIn::zeroed();
        input
            .set_opcode(Opcode::QUERY_HCA_VPORT_GID.0)
            .set_port_num(1)
            .set_gid_index(index as u16);
        let mut bytes = [0; QueryHcaVportGidOut::SIZE + 16];
        self.platform.execute(input.as_bytes(), &mut bytes)?;
        let mut gid = [0; 16];
        gid.copy_from_slice(&bytes[QueryHcaVportGidOut::SIZE..]);
        Ok(gid)
    }

    /// Whether a GID is one of this port's.
    pub fn is_own(&self, gid: &[u8; 16]) -> bool {
        let table = self.gids.0.lock().unwrap_or_else(PoisonError::into_inner);
        table.iter().flatten().any(|(own, _)| own == gid)
    }
}

/// An address that nobody else has, as far as chance goes (IEEE 802: administered locally, of one port).
fn by_chance() -> [u8; 6] {
    let number = RandomState::new().build_hasher().finish();
    let [first, b, c, d, e, f, ..] = number.to_be_bytes();
    [first & !1 | 2, b, c, d, e, f]
}

/// SET_ROCE_ADDRESS of an entry.
fn set_address(
    index: u16,
    gid: [u8; 16],
    kind: GidType,
    mac: [u8; 6],
) -> SetRoceAddressIn<[u8; SetRoceAddressIn::SIZE]> {
    let mut input = SetRoceAddressIn::zeroed();
    input
        .set_opcode(Opcode::SET_ROCE_ADDRESS.0)
        .set_roce_address_index(index);
    let mut address = input.roce_address_mut();
    address
        .set_source_mac_47_32(u16::from_be_bytes([mac[0], mac[1]]))
        .set_source_mac_31_0(u32::from_be_bytes([mac[2], mac[3], mac[4], mac[5]]));
    if kind == GidType::ROCE_V2 {
        address
            .set_roce_version(VERSION_2)
            .set_roce_l3_type(match gid[..12] == MAPPED {
                true => L3_IPV4,
                false => L3_IPV6,
            });
    } else {
        address.set_roce_version(VERSION_1);
    }
    address.source_l3_address_mut().copy_from_slice(&gid);
    input
}
