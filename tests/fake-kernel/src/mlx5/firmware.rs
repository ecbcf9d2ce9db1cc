//! Firmware commands that programs send over DEVX and that are more than a name here: what the device can do, how far a
//! drained queue pair is, which port of a bond it sends through, and numbers of objects. Bits are those of rdma-core's
//! `mlx5_ifc.h`, counted from the most significant one.

use std::os::fd::RawFd;

use oxverbs::sys::Errno;
use uverbs_abi::types::QpState;
use wqe_format::mlx5::firmware::bits;

use super::methods::DRIVER;
use crate::config::Mlx5;
use crate::core::objects::QpKind;
use crate::mlx5::hca::QueuePair;
use crate::request::Call;
use crate::state::State;

const EINVAL: Errno = Errno(libc::EINVAL);
const EPROTONOSUPPORT: Errno = Errno(libc::EPROTONOSUPPORT);

/// `MLX5_CMD_OP_*`
mod opcode {
    pub(super) const QUERY_HCA_CAP: u16 = 0x100;
    pub(super) const CREATE_MKEY: u16 = 0x200;
    pub(super) const RTS2RTS_QP: u16 = 0x505;
    pub(super) const QUERY_QP: u16 = 0x50b;
    pub(super) const CREATE_PSV: u16 = 0x600;
    pub(super) const CREATE_QP: u16 = 0x500;
    pub(super) const QUERY_LAG: u16 = 0x842;
    pub(super) const CREATE_TIR: u16 = 0x900;
    pub(super) const MODIFY_TIS: u16 = 0x913;
    pub(super) const QUERY_TIS: u16 = 0x915;
    pub(super) const CREATE_FLOW_TABLE: u16 = 0x930;
    pub(super) const CREATE_FLOW_GROUP: u16 = 0x933;
    pub(super) const ALLOC_FLOW_COUNTER: u16 = 0x939;
    pub(super) const ALLOC_PACKET_REFORMAT_CONTEXT: u16 = 0x93d;
    pub(super) const CREATE_GENERAL_OBJECT: u16 = 0xa00;
}

/// A field: its first bit and how many it has.
type Field = (usize, usize);

/// `query_hca_cap_out.capability`
const CAPABILITY: usize = 0x80;

/// Of `cmd_hca_cap`.
mod general {
    use super::Field;
    pub(super) const DMA_MMO_SQ: Field = (0x153, 1);
    pub(super) const DMA_MMO_QP: Field = (0x748, 1);
    pub(super) const UDP_SPORT: Field = (0x151, 1);
    pub(super) const SECOND_PAGE: Field = (0x20, 1);
    /// Bits of `general_obj_types`: `MLX5_OBJ_TYPE_RESERVED_QPN` (0x2c), `_AV_QP_MAPPING` (0x3a)
    pub(super) const RESERVED_QPN: Field = (0x400 + 63 - 0x2c, 1);
    pub(super) const ADDRESS_MAPPING: Field = (0x400 + 63 - 0x3a, 1);
    pub(super) const LAG_PORTS: Field = (0x27c, 4);
    pub(super) const LAG_AFFINITY: Field = (0x278, 1);
    pub(super) const LAG_CHANGES: Field = (0x152, 1);
    pub(super) const EXTENSION: Field = (0x122, 1);
    pub(super) const QOS: Field = (0x21b, 1);
    /// `sho`, `sigerr_domain_and_sig_type`, `sig_block_4048`, `sig_crc32c`, `sig_crc64_xp10`
    pub(super) const SIGNATURES: [Field; 5] =
        [(0x217, 1), (0x480, 1), (0x1f0, 1), (0x148, 1), (0x147, 1)];
}

/// `cmd_hca_cap_2.log_reserved_qpn_granularity`
const GRANULARITY: Field = (0x93, 5);

/// Of `qos_cap`: everything that schedules need.
const SCHEDULES: [(Field, u64); 6] = [
    ((0x8, 1), 1),
    ((0x9, 1), 1),
    ((0xa, 1), 1),
    ((0x21, 1), 1),
    ((0x100, 16), 0x11),
    ((0x110, 16), 1),
];

/// `query_lag_out.ctx`: `lag_state`, `tx_remap_affinity_1` and `_2`; each port stands in for the other.
const BOND: [(Field, u64); 3] = [((0x5d, 3), 1), ((0x7c, 4), 2), ((0x74, 4), 1)];

/// `query_qp_out.qpc`, and in it `state` (`MLX5_QPC_STATE_SQDRAINED`), `lag_tx_port_affinity` and `hw_sq_wqebb_counter`
const QPC: usize = 0xc0;
const STATE: Field = (QPC, 4);
const DRAINED: u64 = 5;
const PORT: Field = (QPC + 4, 4);
const SEND_COUNTER: Field = (QPC + 0x5a0, 16);
/// `query_tis_out.tis_context.lag_tx_port_affinity`
const TIS_PORT: Field = (0x84, 4);

/// `create_tir_out.icm_address_63_40`, `_39_32`, `_31_0`: an address whose bytes are all different.
const TIR_ADDRESS: [(Field, u64); 3] = [
    ((0x08, 24), 0x01_0203),
    ((0x40, 8), 0x04),
    ((0x60, 32), 0x0506_0708),
];

/// What a program asked.
fn command(call: &Call<'_>, id: u16) -> Option<(u16, Vec<u8>)> {
    let command = call.bytes(id).ok()?;
    let bytes = *command.first_chunk()?;
    Some((u16::from_be_bytes(bytes), command))
}

/// Answers fields into output `id`, zeros beside them.
fn answer(call: &Call<'_>, id: u16, fields: &[(Field, u64)]) -> Result<(), Errno> {
    let mut answer = vec![0; call.room(id).unwrap_or(0)];
    for &((first, width), value) in fields {
        bits::set(&mut answer, first, width, value);
    }
    call.put_bytes(id, &answer)
}

/// Refuses a command whose output is `id`, if this firmware does.
pub(super) fn refuse(device: &Mlx5, call: &Call<'_>, id: u16) -> Result<(), Errno> {
    let Some(status) = device.refusal else {
        return Ok(());
    };
    answer(call, id, &[((0, 8), status.into())])?;
    Err(Errno(libc::EREMOTEIO))
}

/// What of a page of capabilities is not zero.
fn capabilities(device: &Mlx5, page: &[u8]) -> Vec<(Field, u64)> {
    match page {
        [0, 0 | 1] => [
            (device.has_copy, general::DMA_MMO_SQ, 1),
            (
                device.has_copy && device.has_traffic,
                general::DMA_MMO_QP,
                1,
            ),
            (device.has_numbers, general::UDP_SPORT, 1),
            (device.has_numbers, general::SECOND_PAGE, 1),
            (device.has_numbers, general::RESERVED_QPN, 1),
            (device.has_traffic, general::ADDRESS_MAPPING, 1),
            (device.has_traffic, general::LAG_PORTS, 2),
            (device.has_traffic, general::LAG_AFFINITY, 1),
            (device.has_traffic, general::LAG_CHANGES, 1),
            (device.has_traffic, general::EXTENSION, 1),
            (device.has_traffic, general::QOS, 1),
        ]
        .into_iter()
        .chain(general::SIGNATURES.map(|field| (device.has_signatures, field, 1)))
        .filter_map(|(has, field, value)| has.then_some((field, value)))
        .collect(),
        [0, 0x40 | 0x41] if device.has_numbers => vec![(GRANULARITY, 2)],
        [0, 0x18 | 0x19] if device.has_traffic => SCHEDULES.to_vec(),
        _ => Vec::new(),
    }
}

/// `MLX5_IB_METHOD_DEVX_OTHER`: command in, command out. Capabilities, and the bond's state.
pub(super) fn other(st: &State, call: &Call<'_>) -> Result<(), Errno> {
    let device = &st.config.mlx5;
    let (opcode, command) = command(call, DRIVER).ok_or(EINVAL)?;
    match opcode {
        opcode::QUERY_HCA_CAP => {
            let page = command.get(6..8).unwrap_or_default();
            let mut fields = capabilities(device, page);
            if fields.is_empty() {
                return Err(EPROTONOSUPPORT);
            }
            for ((first, _), _) in &mut fields {
                *first += CAPABILITY;
            }
            answer(call, DRIVER + 1, &fields)
        }
        opcode::QUERY_LAG if device.has_traffic => {
            refuse(device, call, DRIVER + 1)?;
            answer(call, DRIVER + 1, &BOND)
        }
        _ => Err(EPROTONOSUPPORT),
    }
}

/// What a new object's command answers: the next number, where this kind of object has it.
pub(super) fn numbers(st: &mut State, fd: RawFd, call: &Call<'_>) -> Result<(), Errno> {
    let Some((opcode, _)) = command(call, DRIVER + 1) else {
        return Ok(());
    };
    // `general_obj_out_cmd_hdr.obj_id`, `alloc_flow_counter_out.flow_counter_id` and its like; `create_psv_out.psv0_index`;
    // `create_mkey_out.mkey_index` and its like.
    let field = match opcode {
        opcode::CREATE_GENERAL_OBJECT
        | opcode::ALLOC_FLOW_COUNTER
        | opcode::ALLOC_PACKET_REFORMAT_CONTEXT => (0x40, 32),
        opcode::CREATE_PSV => (0x88, 24),
        opcode::CREATE_MKEY
        | opcode::CREATE_QP
        | opcode::CREATE_TIR
        | opcode::CREATE_FLOW_TABLE
        | opcode::CREATE_FLOW_GROUP => (0x48, 24),
        _ => return Ok(()),
    };
    let number = st.device(fd)?.mlx5.next_firmware_object();
    let mut fields = vec![(field, number.into())];
    if opcode == opcode::CREATE_TIR {
        fields.extend(TIR_ADDRESS);
    }
    answer(call, DRIVER + 2, &fields)
}

/// Remembers the port of a bond that `MLX5_IB_METHOD_DEVX_OBJ_MODIFY` gives a queue pair, which is asked for later.
pub(super) fn modified(st: &mut State, fd: RawFd, call: &Call<'_>) -> Result<(), Errno> {
    let Some((opcode, command)) = command(call, DRIVER + 1) else {
        return Ok(());
    };
    // `rts2rts_qp_in.opt_param_mask`, `.qpc.lag_tx_port_affinity`; `modify_tis_in.bitmask`, `.ctx.lag_tx_port_affinity`
    let port = match opcode {
        opcode::RTS2RTS_QP if bits::get(&command, 0x80, 32) == 1 << 15 => PORT,
        opcode::MODIFY_TIS if bits::get(&command, 0xbd, 1) == 1 => (0x104, 4),
        _ => return Ok(()),
    };
    let handle = call.raw_constant(DRIVER).ok_or(EINVAL)? as u32;
    queue_pair(st, fd, handle, |qp, _| {
        qp.set_port(bits::get(&command, port.0, port.1) as u8);
    })
}

fn queue_pair<T>(
    st: &mut State,
    fd: RawFd,
    handle: u32,
    run: impl FnOnce(&QueuePair, QpState) -> T,
) -> Result<T, Errno> {
    let qpn = st.qp_number(fd, handle)?;
    let found = st.device(fd)?.qps.get(&qpn).ok_or(EINVAL)?;
    match &found.kind {
        QpKind::Mlx5(qp) => Ok(run(qp, found.state)),
        _ => Err(EINVAL),
    }
}

/// `MLX5_IB_METHOD_DEVX_OBJ_QUERY` of a queue pair; `None` if it is another object.
pub(super) fn query(st: &mut State, fd: RawFd, call: &Call<'_>) -> Option<Result<(), Errno>> {
    let (opcode, _) = command(call, DRIVER + 1)?;
    if !matches!(opcode, opcode::QUERY_QP | opcode::QUERY_TIS) {
        return None;
    }
    let handle = call.raw_constant(DRIVER)? as u32;
    Some(query_qp(st, fd, handle, opcode, call))
}

fn query_qp(
    st: &mut State,
    fd: RawFd,
    handle: u32,
    opcode: u16,
    call: &Call<'_>,
) -> Result<(), Errno> {
    refuse(&st.config.mlx5, call, DRIVER + 2)?;
    let fields = queue_pair(st, fd, handle, |qp, state| {
        let port = u64::from(qp.port());
        if opcode == opcode::QUERY_TIS {
            return vec![(TIS_PORT, port)];
        }
        let mut fields = vec![(PORT, port)];
        let next = qp.drained().or((state == QpState::SQD).then(|| qp.sent()));
        if let Some(next) = next {
            fields.extend([(STATE, DRAINED), (SEND_COUNTER, next.into())]);
        }
        fields
    })?;
    answer(call, DRIVER + 2, &fields)
}
