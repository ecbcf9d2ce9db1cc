//! What the device can do, as it says itself.

use wqe_format::mlx5::firmware::caps::CapType;
use wqe_format::mlx5::firmware::caps::atomic::AtomicCaps;
use wqe_format::mlx5::firmware::caps::command::{QueryHcaCapIn, QueryHcaCapOut};
use wqe_format::mlx5::firmware::caps::ethernet::PerProtocolNetworkingOffloadCaps;
use wqe_format::mlx5::firmware::caps::general::CmdHcaCap;
use wqe_format::mlx5::firmware::caps::qos::QosCap;
use wqe_format::mlx5::firmware::caps::roce::RoceCap;
use wqe_format::mlx5::firmware::{Opcode, Short};

use super::platform::Platform;
use crate::sys::errno::Errno;

/// Bytes of the part of a capability that layouts here describe.
const PART: usize = 0x100;

/// Capabilities in force. What the device does not have reads as zero.
#[derive(Debug)]
pub struct Caps {
    /// General ones.
    pub general: CmdHcaCap<[u8; PART]>,
    /// Of atomic operations.
    pub atomic: AtomicCaps<[u8; PART]>,
    /// Of Ethernet offloads.
    pub ethernet: PerProtocolNetworkingOffloadCaps<[u8; PART]>,
    /// Of RoCE.
    pub roce: RoceCap<[u8; PART]>,
    /// Of quality of service.
    pub qos: QosCap<[u8; PART]>,
}

/// Port types (`mlx5_ifc.h` `MLX5_CAP_PORT_TYPE_*`).
const PORT_TYPE_ETHERNET: u8 = 1;

impl Caps {
    /// Asks the device.
    pub(super) fn query(platform: &dyn Platform) -> Result<Self, Errno> {
        let general = view(CmdHcaCap::new(ask(platform, CapType::GENERAL)?))?;
        let ask_if = |has: bool, kind| match has {
            true => ask(platform, kind),
            false => Ok([0; PART]),
        };
        let atomic = ask_if(general.atomic(), CapType::ATOMIC)?;
        let ethernet = ask_if(general.eth_net_offloads(), CapType::ETHERNET_OFFLOADS)?;
        let roce = ask_if(general.roce(), CapType::ROCE)?;
        let qos = ask_if(general.qos(), CapType::QOS)?;
        Ok(Self {
            qos: view(QosCap::new(qos))?,
            atomic: view(AtomicCaps::new(atomic))?,
            ethernet: view(PerProtocolNetworkingOffloadCaps::new(ethernet))?,
            roce: view(RoceCap::new(roce))?,
            general,
        })
    }

    /// Whether the ports are Ethernet.
    pub fn is_ethernet(&self) -> bool {
        self.general.port_type() == PORT_TYPE_ETHERNET
    }

    /// Whether completions name queues by a number of ours.
    pub fn user_indices(&self) -> bool {
        self.general.cqe_version() != 0
    }
}

fn ask(platform: &dyn Platform, kind: CapType) -> Result<[u8; PART], Errno> {
    let mut input = QueryHcaCapIn::zeroed();
    input
        .set_opcode(Opcode::QUERY_HCA_CAP.0)
        .set_op_mod(kind.current());
    let mut output = QueryHcaCapOut::zeroed();
    platform.execute(input.as_bytes(), output.as_bytes_mut())?;
    let mut part = [0; PART];
    part.copy_from_slice(&output.capability()[..PART]);
    Ok(part)
}

/// Views over arrays of the right size do not fail.
fn view<T>(made: Result<T, Short>) -> Result<T, Errno> {
    made.map_err(|_| Errno(libc::EIO))
}
