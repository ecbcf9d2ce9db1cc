//! Management datagrams that the firmware answers: the subnet management of the node itself.
//!
//! Offsets are those of IBTA 13.4.3 (the common header), 14.2.1 (`SMP`) and 14.2.5 (attributes).

use wqe_format::mlx5::firmware::mad::{MadIfcIn, MadIfcOut};

use super::Reply;
use super::refusal::bad_parameter;
use crate::device::Device;
use crate::port::{GIDS, MTU, PKEYS};

/// Bytes of a datagram.
const MAD_LEN: usize = 256;
/// Where a subnet management attribute lies in it.
const ATTRIBUTE: usize = 64;

const CLASS_SUBNET: u8 = 0x01;
const CLASS_SUBNET_DIRECTED: u8 = 0x81;
const METHOD_GET: u8 = 0x01;
const METHOD_SET: u8 = 0x02;
const METHOD_RESPONSE: u8 = 0x81;
/// Status of an answer: the method with this attribute is not supported (IBTA 13.4.7).
const UNSUPPORTED: u16 = 3 << 2;

const NODE_DESCRIPTION: u16 = 0x10;
const NODE_INFO: u16 = 0x11;
const GUID_INFO: u16 = 0x14;
const PORT_INFO: u16 = 0x15;
const PKEY_TABLE: u16 = 0x16;

pub(super) fn interface(device: &mut Device, input: &[u8]) -> Reply {
    let view = MadIfcIn::new(input)?;
    let mut mad = [0; MAD_LEN];
    mad.copy_from_slice(view.mad());
    let (class, method) = (mad[1], mad[3]);
    if !matches!(method, METHOD_GET | METHOD_SET) {
        return Err(bad_parameter("only requests are answered"));
    }
    let attribute = u16::from_be_bytes([mad[16], mad[17]]);
    let modifier = u32::from_be_bytes([mad[20], mad[21], mad[22], mad[23]]);
    let value = match class {
        CLASS_SUBNET | CLASS_SUBNET_DIRECTED if method == METHOD_GET => {
            attribute_value(device, attribute, modifier)
        }
        _ => None,
    };
    mad[3] = METHOD_RESPONSE;
    let status = if value.is_some() { 0 } else { UNSUPPORTED };
    // The highest bit of a directed answer's status is its direction.
    let direction = if class == CLASS_SUBNET_DIRECTED {
        0x8000
    } else {
        0
    };
    mad[4..6].copy_from_slice(&(status | direction).to_be_bytes());
    if let Some(value) = value {
        mad[ATTRIBUTE..ATTRIBUTE + 64].copy_from_slice(&value);
    }
    let mut output = MadIfcOut::zeroed();
    output.response_mad_packet_mut().copy_from_slice(&mad);
    Ok(output.into_inner().to_vec())
}

fn attribute_value(device: &Device, attribute: u16, modifier: u32) -> Option<[u8; 64]> {
    let port = &device.port;
    let mut value = [0; 64];
    match attribute {
        NODE_DESCRIPTION => value = port.description,
        NODE_INFO => {
            value[..4].copy_from_slice(&[1, 1, 1, 1]); // versions, a channel adapter, one port
            value[4..12].copy_from_slice(&port.node_guid.to_be_bytes());
            value[12..20].copy_from_slice(&port.node_guid.to_be_bytes());
            value[20..28].copy_from_slice(&port.guid.to_be_bytes());
            value[28..30].copy_from_slice(&PKEYS.to_be_bytes());
            value[30..32].copy_from_slice(&0x101bu16.to_be_bytes());
            value[36..40].copy_from_slice(&0x0100_02c9u32.to_be_bytes()); // port 1, vendor
        }
        PORT_INFO if modifier <= 1 => {
            value[8..16].copy_from_slice(&port.prefix.to_be_bytes());
            value[16..18].copy_from_slice(&port.lid.to_be_bytes());
            value[18..20].copy_from_slice(&port.sm_lid.to_be_bytes());
            value[28] = 1; // local port
            value[29..32].copy_from_slice(&[3, 3, 2]); // widths: 1x and 4x; 4x now
            let state = if port.up { 4 } else { 1 };
            let physical = if port.up { 5 } else { 2 };
            value[32] = 1 << 4 | state; // 2.5 GT/s and up
            value[33] = physical << 4 | 2;
            value[36] = (MTU.trailing_zeros() as u8 - 7) << 4; // neighbour's MTU
            value[37] = 4 << 4; // eight lanes
            value[41] = MTU.trailing_zeros() as u8 - 7;
            value[50] = GIDS as u8;
        }
        GUID_INFO if modifier == 0 => value[..8].copy_from_slice(&port.guid.to_be_bytes()),
        PKEY_TABLE if modifier & 0xffff < u32::from(PKEYS) / 32 => {
            let first = modifier as u16 * 32;
            for (index, entry) in (first..).zip(value.chunks_exact_mut(2)) {
                entry.copy_from_slice(&port.pkey(index).to_be_bytes());
            }
        }
        _ => return None,
    }
    Some(value)
}
