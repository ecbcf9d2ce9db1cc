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
/// `query_qp_out.qpc`, and in it `state` (`MLX5_QPC_STATE_SQDRAINED`) and `hw_sq_wqebb_counter`
const QPC: usize = 0xc0;
const STATE: (usize, u16) = (0, 5 << 12);
const SEND_COUNTER: usize = 0x5a0;

fn opcode(command: &[u8]) -> Option<u16> {
    let bytes = command.first_chunk()?;
    Some(u16::from_be_bytes(*bytes))
}

/// `MLX5_IB_METHOD_DEVX_OTHER`: command in, command out. General capabilities only.
pub(super) fn other(st: &State, call: &Call<'_>) -> Result<(), Errno> {
    let command = call.bytes(DRIVER)?;
    let is_general = command.get(6) == Some(&0) && command.get(7).is_some_and(|mode| *mode < 2);
    if !st.config.mlx5.has_copy || opcode(&command) != Some(QUERY_HCA_CAP) || !is_general {
        return Err(EPROTONOSUPPORT);
    }
    let mut answer = vec![0; call.room(DRIVER + 1).unwrap_or(0)];
    let bit = CAPABILITY + DMA_MMO_SQ;
    *answer.get_mut(bit / 8).ok_or(EINVAL)? = 0x80 >> (bit % 8);
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
