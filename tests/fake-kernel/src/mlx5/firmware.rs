//! Firmware commands that programs send over DEVX and that are more than a name here: what the device can do, and how far
//! a drained queue pair is. Bits are those of `mlx5_ifc.h`, counted from the most significant one.

use std::os::fd::RawFd;

use oxverbs::sys::Errno;

use super::methods::DRIVER;
use crate::core::objects::QpKind;
use crate::request::Call;
use crate::state::State;

const EINVAL: Errno = Errno(libc::EINVAL);
const EPROTONOSUPPORT: Errno = Errno(libc::EPROTONOSUPPORT);

/// `MLX5_CMD_OP_QUERY_HCA_CAP`
const QUERY_HCA_CAP: u16 = 0x100;
/// `MLX5_CMD_OP_QUERY_QP`
const QUERY_QP: u16 = 0x50b;
/// `query_hca_cap_out.capability`
const CAPABILITY: usize = 0x80;
/// `cmd_hca_cap.dma_mmo_sq`
const DMA_MMO_SQ: usize = 0x153;
/// `cmd_hca_cap.rts2rts_qp_udp_sport`, `hca_cap_2`, and the bit of `general_obj_types` for `MLX5_OBJ_TYPE_RESERVED_QPN` (0x2c)
const UDP_SPORT: usize = 0x151;
const SECOND_PAGE: usize = 0x20;
const RESERVED_QPN: usize = 0x400 + 63 - 0x2c;
/// Bits of `cmd_hca_cap_2.log_reserved_qpn_granularity` (five, from 0x93) that make it 2
const GRANULARITY: [usize; 1] = [0x93 + 3];
/// `query_qp_out.qpc`, and in it `state` (`MLX5_QPC_STATE_SQDRAINED`) and `hw_sq_wqebb_counter`
const QPC: usize = 0xc0;
const STATE: (usize, u16) = (0, 5 << 12);
const SEND_COUNTER: usize = 0x5a0;

fn opcode(command: &[u8]) -> Option<u16> {
    let bytes = command.first_chunk()?;
    Some(u16::from_be_bytes(*bytes))
}

/// `MLX5_IB_METHOD_DEVX_OTHER`: command in, command out. General capabilities only, both pages.
pub(super) fn other(st: &State, call: &Call<'_>) -> Result<(), Errno> {
    let command = call.bytes(DRIVER)?;
    let device = &st.config.mlx5;
    let wanted: Vec<usize> = match command.get(6..8) {
        Some([0, 0 | 1]) => [
            (device.has_copy, DMA_MMO_SQ),
            (device.has_numbers, UDP_SPORT),
            (device.has_numbers, SECOND_PAGE),
            (device.has_numbers, RESERVED_QPN),
        ]
        .into_iter()
        .filter_map(|(has, bit)| has.then_some(bit))
        .collect(),
        Some([0, 0x40 | 0x41]) if device.has_numbers => GRANULARITY.to_vec(),
        _ => Vec::new(),
    };
    if opcode(&command) != Some(QUERY_HCA_CAP) || wanted.is_empty() {
        return Err(EPROTONOSUPPORT);
    }
    let mut answer = vec![0; call.room(DRIVER + 1).unwrap_or(0)];
    for bit in wanted {
        let bit = CAPABILITY + bit;
        *answer.get_mut(bit / 8).ok_or(EINVAL)? |= 0x80 >> (bit % 8);
    }
    call.put_bytes(DRIVER + 1, &answer)
}

/// `MLX5_IB_METHOD_DEVX_OBJ_QUERY` of a queue pair; `None` if it is another object.
pub(super) fn query(st: &mut State, fd: RawFd, call: &Call<'_>) -> Option<Result<(), Errno>> {
    let command = call.bytes(DRIVER + 1).ok()?;
    if opcode(&command) != Some(QUERY_QP) {
        return None;
    }
    let handle = call.raw_constant(DRIVER)? as u32;
    Some(query_qp(st, fd, handle, call))
}

fn query_qp(st: &mut State, fd: RawFd, handle: u32, call: &Call<'_>) -> Result<(), Errno> {
    let qpn = st.qp_number(fd, handle)?;
    let QpKind::Mlx5(qp) = &st.device(fd)?.qps.get(&qpn).ok_or(EINVAL)?.kind else {
        return Err(EINVAL);
    };
    let mut answer = vec![0; call.room(DRIVER + 2).unwrap_or(0)];
    if let Some(counter) = qp.drained() {
        let mut put = |bit: usize, value: u16| -> Result<(), Errno> {
            let at = (QPC + bit) / 8;
            let place = answer.get_mut(at..at + 2).ok_or(EINVAL)?;
            place.copy_from_slice(&value.to_be_bytes());
            Ok(())
        };
        put(STATE.0, STATE.1)?;
        put(SEND_COUNTER, counter)?;
    }
    call.put_bytes(DRIVER + 2, &answer)
}
