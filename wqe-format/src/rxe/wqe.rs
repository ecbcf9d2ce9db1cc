//! Work requests as they stand in send and receive queues.

use core::mem::offset_of;

use zerocopy::byteorder::big_endian::U32 as Be32;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::operation::{Access, BindMw, Flush, Operation, SendFlags, WrOpcode};

/// A piece of registered local memory (`struct rxe_sge`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[doc(alias = "rxe_sge")]
pub struct Sge {
    /// Address.
    pub addr: u64,
    /// Bytes.
    pub length: u32,
    /// Local key.
    pub lkey: u32,
}

/// State of a transfer (`struct rxe_dma_info`), followed in the entry by its scatter/gather elements, inline bytes
/// or the 8 bytes of an atomic write.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[doc(alias = "rxe_dma_info")]
pub struct DmaInfo {
    /// Bytes in all.
    pub length: u32,
    /// Bytes left.
    pub resid: u32,
    /// Element being transferred.
    pub cur_sge: u32,
    /// Number of elements.
    pub num_sge: u32,
    /// Bytes of that element that are done.
    pub sge_offset: u32,
    /// Padding.
    pub reserved: u32,
}

impl DmaInfo {
    /// A transfer that has not begun.
    #[inline]
    pub const fn new(length: u32, num_sge: u32) -> Self {
        Self {
            length,
            resid: length,
            cur_sge: 0,
            num_sge,
            sge_offset: 0,
            reserved: 0,
        }
    }
}

/// Which address family a path uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum NetworkType {
    /// IPv4: both GIDs are IPv4-mapped.
    Ipv4 = 1,
    /// IPv6.
    Ipv6 = 2,
}

/// A path to a remote port (`struct rxe_av`), for kernels that do not keep address handles themselves.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[doc(alias = "rxe_av")]
pub struct AddressVector {
    /// Local port.
    pub port_num: u8,
    /// [`NetworkType`].
    pub network_type: u8,
    /// MAC address of the next hop.
    pub dmac: [u8; 6],
    /// Destination GID.
    pub dgid: [u8; 16],
    /// Flow label.
    pub flow_label: u32,
    /// Index of the source GID.
    pub sgid_index: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Padding.
    pub reserved: u8,
    /// Source: `struct sockaddr_in` or `sockaddr_in6`.
    pub sgid_addr: [u8; 28],
    /// Destination, likewise.
    pub dgid_addr: [u8; 28],
}

impl AddressVector {
    /// The GID's network type: IPv4 for `::ffff:a.b.c.d`.
    pub const fn network_type_of(gid: &[u8; 16]) -> NetworkType {
        if matches!(gid, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, ..]) {
            NetworkType::Ipv4
        } else {
            NetworkType::Ipv6
        }
    }

    /// The socket address that stands for a GID: family, port 0, address (and zero flow label and scope).
    pub fn socket_address(gid: &[u8; 16]) -> [u8; 28] {
        // linux/socket.h
        const AF_INET: u16 = 2;
        const AF_INET6: u16 = 10;
        let mut address = [0; 28];
        match Self::network_type_of(gid) {
            NetworkType::Ipv4 => {
                address[..2].copy_from_slice(&AF_INET.to_ne_bytes());
                address[4..8].copy_from_slice(&gid[12..]);
            }
            NetworkType::Ipv6 => {
                address[..2].copy_from_slice(&AF_INET6.to_ne_bytes());
                address[8..24].copy_from_slice(gid);
            }
        }
        address
    }

    /// A path from one GID to another.
    pub fn new(
        port_num: u8,
        sgid: &[u8; 16],
        sgid_index: u8,
        dgid: &[u8; 16],
        dmac: [u8; 6],
    ) -> Self {
        Self {
            port_num,
            network_type: Self::network_type_of(dgid) as u8,
            dmac,
            dgid: *dgid,
            sgid_index,
            sgid_addr: Self::socket_address(sgid),
            dgid_addr: Self::socket_address(dgid),
            ..Self::default()
        }
    }
}

/// Where a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Remote queue pair.
    pub remote_qpn: u32,
    /// Its key.
    pub remote_qkey: u32,
    /// Number of the kernel's address handle; 0 where the kernel keeps none and reads `av`.
    pub ah_num: u32,
    /// Path, if `ah_num` is 0; zero otherwise.
    pub av: AddressVector,
}

/// The request itself (`struct rxe_send_wr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[doc(alias = "rxe_send_wr")]
pub struct SendWr {
    /// The caller's number.
    pub wr_id: u64,
    reserved: u32,
    /// [`WrOpcode`].
    pub raw_opcode: u32,
    /// [`SendFlags`].
    pub raw_flags: u32,
    /// Immediate data (network byte order) or key to invalidate.
    pub ex: [u8; 4],
    /// The operation's arguments: a union in C.
    arguments: [u64; 15],
}

impl Default for SendWr {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RdmaArguments {
    remote_addr: u64,
    rkey: u32,
    reserved: u32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct AtomicArguments {
    remote_addr: u64,
    compare_add: u64,
    swap: u64,
    rkey: u32,
    reserved: u32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct DatagramArguments {
    remote_qpn: u32,
    remote_qkey: u32,
    pkey_index: u16,
    reserved: u16,
    ah_num: u32,
    pad: [u32; 4],
    av: AddressVector,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct BindArguments {
    addr: u64,
    length: u64,
    mr_lkey: u32,
    mw_rkey: u32,
    rkey: u32,
    access: u32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct FlushArguments {
    remote_addr: u64,
    length: u32,
    rkey: u32,
    placement: u8,
    selectivity: u8,
    reserved: [u8; 6],
}

/// A send queue entry (`struct rxe_send_wqe`), without what follows its [`DmaInfo`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[doc(alias = "rxe_send_wqe")]
pub struct SendWqe {
    /// The request.
    pub wr: SendWr,
    /// The kernel's.
    pub status: u32,
    /// The kernel's; 0 is "posted".
    pub state: u32,
    /// Remote address at which the transfer starts.
    pub iova: u64,
    /// The kernel's.
    pub mask: u32,
    /// The kernel's.
    pub first_psn: u32,
    /// The kernel's.
    pub last_psn: u32,
    /// The kernel's.
    pub ack_length: u32,
    /// Send sequence number, counted by the poster.
    pub ssn: u32,
    /// The kernel's.
    pub has_rd_atomic: u32,
    /// The transfer.
    pub dma: DmaInfo,
}

/// A receive queue entry (`struct rxe_recv_wqe`), without its scatter elements.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[doc(alias = "rxe_recv_wqe")]
pub struct RecvWqe {
    /// The caller's number.
    pub wr_id: u64,
    reserved: [u32; 2],
    /// The transfer.
    pub dma: DmaInfo,
}

const _: () = {
    assert!(size_of::<Sge>() == 16);
    assert!(size_of::<DmaInfo>() == 24 && offset_of!(DmaInfo, num_sge) == 12);
    assert!(size_of::<AddressVector>() == 88);
    assert!(offset_of!(AddressVector, dgid) == 8);
    assert!(offset_of!(AddressVector, sgid_addr) == 32);
    assert!(offset_of!(AddressVector, dgid_addr) == 60);
    assert!(size_of::<SendWr>() == 144);
    assert!(offset_of!(SendWr, raw_opcode) == 12);
    assert!(offset_of!(SendWr, ex) == 20);
    assert!(offset_of!(SendWr, arguments) == 24);
    assert!(size_of::<DatagramArguments>() == 120);
    assert!(offset_of!(DatagramArguments, ah_num) == 12);
    assert!(offset_of!(DatagramArguments, av) == 32);
    assert!(size_of::<SendWqe>() == 208);
    assert!(offset_of!(SendWqe, status) == 144);
    assert!(offset_of!(SendWqe, iova) == 152);
    assert!(offset_of!(SendWqe, ssn) == 176);
    assert!(offset_of!(SendWqe, dma) == 184);
    assert!(size_of::<RecvWqe>() == 40 && offset_of!(RecvWqe, dma) == 16);
};

impl SendWr {
    /// A request without a datagram's destination. Every byte that the operation does not use is zero.
    #[inline]
    pub fn new(wr_id: u64, flags: SendFlags, operation: &Operation) -> Self {
        let mut wr = Self {
            wr_id,
            reserved: 0,
            raw_opcode: operation.opcode() as u32,
            raw_flags: flags.0,
            ex: [0; 4],
            arguments: [0; 15],
        };
        match *operation {
            Operation::Send => {}
            Operation::SendWithImm { imm } => wr.ex = imm.to_bytes(),
            Operation::SendWithInv { rkey } | Operation::LocalInv { rkey } => {
                wr.ex = rkey.to_ne_bytes();
            }
            Operation::RdmaWrite { remote_addr, rkey }
            | Operation::RdmaRead { remote_addr, rkey }
            | Operation::AtomicWrite { remote_addr, rkey } => wr.put(RdmaArguments {
                remote_addr,
                rkey,
                reserved: 0,
            }),
            Operation::RdmaWriteWithImm {
                remote_addr,
                rkey,
                imm,
            } => {
                wr.ex = imm.to_bytes();
                wr.put(RdmaArguments {
                    remote_addr,
                    rkey,
                    reserved: 0,
                });
            }
            Operation::AtomicCmpAndSwp {
                remote_addr,
                rkey,
                compare,
                swap,
            } => wr.put(AtomicArguments {
                remote_addr,
                compare_add: compare,
                swap,
                rkey,
                reserved: 0,
            }),
            Operation::AtomicFetchAndAdd {
                remote_addr,
                rkey,
                add,
            } => wr.put(AtomicArguments {
                remote_addr,
                compare_add: add,
                swap: 0,
                rkey,
                reserved: 0,
            }),
            Operation::BindMw(bind) => wr.put(BindArguments {
                addr: bind.addr,
                length: bind.length,
                mr_lkey: bind.mr_lkey,
                mw_rkey: bind.mw_rkey,
                rkey: bind.rkey,
                access: bind.access.0,
            }),
            Operation::Flush(flush) => wr.put(FlushArguments {
                remote_addr: flush.remote_addr,
                length: flush.length,
                rkey: flush.rkey,
                placement: flush.placement,
                selectivity: flush.selectivity,
                reserved: [0; 6],
            }),
        }
        wr
    }

    /// Adds the destination of a datagram.
    #[inline]
    pub fn set_datagram(&mut self, to: &Datagram) {
        self.put(DatagramArguments {
            remote_qpn: to.remote_qpn,
            remote_qkey: to.remote_qkey,
            pkey_index: 0,
            reserved: 0,
            ah_num: to.ah_num,
            pad: [0; 4],
            av: to.av,
        });
    }

    #[inline]
    fn put<T: IntoBytes + Immutable>(&mut self, arguments: T) {
        let bytes = arguments.as_bytes();
        self.arguments.as_mut_bytes()[..bytes.len()].copy_from_slice(bytes);
    }

    fn get<T: FromBytes>(&self) -> T {
        let bytes = &self.arguments.as_bytes()[..size_of::<T>()];
        T::read_from_bytes(bytes).unwrap_or_else(|_| T::new_zeroed())
    }

    /// The opcode, if rxe has it.
    pub const fn opcode(&self) -> Option<WrOpcode> {
        WrOpcode::from_number(self.raw_opcode)
    }

    /// The flags.
    pub const fn flags(&self) -> SendFlags {
        SendFlags(self.raw_flags)
    }

    /// Reads the operation back; `None` for an opcode that rxe does not have.
    pub fn operation(&self) -> Option<Operation> {
        let imm = Be32::from_bytes(self.ex);
        let key = u32::from_ne_bytes(self.ex);
        let rdma = |make: fn(u64, u32) -> Operation| {
            let RdmaArguments {
                remote_addr, rkey, ..
            } = self.get();
            make(remote_addr, rkey)
        };
        Some(match self.opcode()? {
            WrOpcode::Send => Operation::Send,
            WrOpcode::SendWithImm => Operation::SendWithImm { imm },
            WrOpcode::SendWithInv => Operation::SendWithInv { rkey: key },
            WrOpcode::LocalInv => Operation::LocalInv { rkey: key },
            WrOpcode::RdmaWrite => {
                rdma(|remote_addr, rkey| Operation::RdmaWrite { remote_addr, rkey })
            }
            WrOpcode::RdmaRead => {
                rdma(|remote_addr, rkey| Operation::RdmaRead { remote_addr, rkey })
            }
            WrOpcode::AtomicWrite => {
                rdma(|remote_addr, rkey| Operation::AtomicWrite { remote_addr, rkey })
            }
            WrOpcode::RdmaWriteWithImm => {
                let RdmaArguments {
                    remote_addr, rkey, ..
                } = self.get();
                Operation::RdmaWriteWithImm {
                    remote_addr,
                    rkey,
                    imm,
                }
            }
            WrOpcode::AtomicCmpAndSwp => {
                let a: AtomicArguments = self.get();
                Operation::AtomicCmpAndSwp {
                    remote_addr: a.remote_addr,
                    rkey: a.rkey,
                    compare: a.compare_add,
                    swap: a.swap,
                }
            }
            WrOpcode::AtomicFetchAndAdd => {
                let a: AtomicArguments = self.get();
                Operation::AtomicFetchAndAdd {
                    remote_addr: a.remote_addr,
                    rkey: a.rkey,
                    add: a.compare_add,
                }
            }
            WrOpcode::BindMw => {
                let b: BindArguments = self.get();
                Operation::BindMw(BindMw {
                    addr: b.addr,
                    length: b.length,
                    mr_lkey: b.mr_lkey,
                    mw_rkey: b.mw_rkey,
                    rkey: b.rkey,
                    access: Access(b.access),
                })
            }
            WrOpcode::Flush => {
                let f: FlushArguments = self.get();
                Operation::Flush(Flush {
                    remote_addr: f.remote_addr,
                    length: f.length,
                    rkey: f.rkey,
                    placement: f.placement,
                    selectivity: f.selectivity,
                })
            }
        })
    }

    /// Reads the arguments as a datagram's destination, which only the queue pair's kind tells them to be.
    pub fn datagram(&self) -> Datagram {
        let d: DatagramArguments = self.get();
        Datagram {
            remote_qpn: d.remote_qpn,
            remote_qkey: d.remote_qkey,
            ah_num: d.ah_num,
            av: d.av,
        }
    }
}

impl SendWqe {
    /// Offset of elements, inline bytes or the value of an atomic write.
    pub const PAYLOAD: usize = size_of::<Self>();

    /// An entry as a poster leaves it to the kernel.
    #[inline]
    pub const fn new(wr: SendWr, iova: u64, ssn: u32, dma: DmaInfo) -> Self {
        Self {
            wr,
            status: 0,
            state: 0,
            iova,
            mask: 0,
            first_psn: 0,
            last_psn: 0,
            ack_length: 0,
            ssn,
            has_rd_atomic: 0,
            dma,
        }
    }
}

impl RecvWqe {
    /// Offset of the scatter elements.
    pub const PAYLOAD: usize = size_of::<Self>();

    /// An entry for a transfer.
    #[inline]
    pub const fn new(wr_id: u64, dma: DmaInfo) -> Self {
        Self {
            wr_id,
            reserved: [0; 2],
            dma,
        }
    }
}
