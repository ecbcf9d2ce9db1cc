//! Event queues.

use crate::device::Device;

/// Bytes of an entry.
pub(crate) const EQE_LEN: usize = 64;

/// Types of events (`MLX5_EVENT_TYPE_*` of `mlx5_ifc.h` and `device.h`).
pub(crate) mod kind {
    pub(crate) const COMPLETION: u8 = 0x00;
    pub(crate) const PATH_MIGRATED: u8 = 0x01;
    pub(crate) const COMMUNICATION_ESTABLISHED: u8 = 0x02;
    pub(crate) const SEND_QUEUE_DRAINED: u8 = 0x03;
    pub(crate) const CQ_ERROR: u8 = 0x04;
    pub(crate) const QP_CATASTROPHIC: u8 = 0x05;
    pub(crate) const PORT_CHANGE: u8 = 0x09;
    pub(crate) const COMMAND: u8 = 0x0a;
    pub(crate) const PAGE_REQUEST: u8 = 0x0b;
    pub(crate) const PAGE_FAULT: u8 = 0x0c;
    pub(crate) const INVALID_REQUEST: u8 = 0x10;
    pub(crate) const ACCESS_ERROR: u8 = 0x11;
    pub(crate) const SRQ_CATASTROPHIC: u8 = 0x12;
    pub(crate) const SRQ_LAST_WQE: u8 = 0x13;
    pub(crate) const SRQ_LIMIT: u8 = 0x14;
    pub(crate) const DCT_DRAINED: u8 = 0x1c;
}

/// Tells of an event on one queue, if it takes events of this type. `data` is what lies from
/// byte 0x20 of the entry on, at most 28 bytes.
pub(crate) fn raise(_device: &mut Device, _eqn: u32, _kind: u8, _data: &[u8]) {}

/// Tells of an event on the first queue that takes its type.
pub(crate) fn raise_async(_device: &mut Device, _kind: u8, _data: &[u8]) {}

/// The 4 bytes written to a page's event registers: queue number and consumer index; arming where
/// the register is the first.
pub(crate) fn consumer(_device: &mut Device, _uar: u32, _word: [u8; 4], _arm: bool) {}
