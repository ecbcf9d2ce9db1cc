//! State transitions of queue pairs: which fields each takes always, and which where its
//! `opt_param_mask` names them.
//!
//! The optional ones of each transition are those of the kernel's `opt_mask` (`drivers/infiniband/
//! hw/mlx5/qp.c`), the required ones those of IBTA 11.2.5.2 table 96.

use wqe_format::mlx5::firmware::bits;
use wqe_format::mlx5::firmware::qp_modify::{Rst2initQpIn, Rst2initQpOut};

use super::qp::find;
use super::refusal::{Refusal, bad_parameter, bad_qp_state};
use super::{Reply, ece};
use crate::device::Device;
use crate::resources::{QpKind, QpState};
use crate::transport;

/// A field of `qpc`: first bit and width.
type Field = (usize, usize);

/// First bits of the primary and the secondary address path.
const PRIMARY: usize = 0xc0;
const SECONDARY: usize = 0x220;

const MTU_AND_LONGEST: Field = (0x40, 8);
const COUNTER: Field = (0x60, 8);
const REMOTE: Field = (0xa8, 0x18);
const PARTITION: Field = (PRIMARY + 0x10, 0x10);
const PORT: Field = (PRIMARY + 0x128, 8);
const ACK_TIMEOUT: Field = (PRIMARY + 0x40, 5);
const LAG: Field = (0x4, 4);
const DRAIN_MISTAKES: Field = (0x25, 1);
const MIGRATION: Field = (0x13, 2);
const ACK_FREQUENCY: Field = (0x380, 4);
const REQUESTER_DEPTH: Field = (0x388, 3);
const RETRIES: Field = (0x38d, 3);
const RNR_RETRIES: Field = (0x390, 3);
const SEND_PSN: Field = (0x3c8, 0x18);
const RESPONDER_DEPTH: Field = (0x488, 3);
const ATOMIC_MODE: Field = (0x48c, 4);
const READ: Field = (0x490, 1);
const WRITE: Field = (0x491, 1);
const ATOMIC: Field = (0x492, 1);
const RNR_TIMER: Field = (0x4a3, 5);
const RECEIVE_PSN: Field = (0x4a8, 0x18);
const Q_KEY: Field = (0x540, 0x20);
const SRQ: Field = (0x568, 0x18);
const CQ_RECEIVE: Field = (0x4e8, 0x18);
const DC_KEY: Field = (0x640, 0x40);

/// Everything of a path but what fields of their own stand for.
const PATH: [Field; 8] = [
    (PRIMARY, 2),           // force loopback, adaptive routing
    (PRIMARY + 0x28, 8),    // GRH, low bits of the source LID
    (PRIMARY + 0x30, 0x10), // LID, or the UDP port of some RoCE modes
    (PRIMARY + 0x48, 0x18), // source GID, rate, hop limit
    (PRIMARY + 0x60, 0x20), // traffic class, flow label
    (PRIMARY + 0x80, 0x40), // remote GID
    (PRIMARY + 0xc0, 0x40),
    (PRIMARY + 0x100, 0x28), // ECN, DSCP, UDP port, service level
];
const REMOTE_MAC: Field = (PRIMARY + 0x130, 0x30);

/// Bits of `opt_param_mask` (`MLX5_QP_OPTPAR_*` of the kernel's `qp.h`; 11 is rdma-core's
/// `MLX5_QPC_OPT_MASK_INIT2INIT_DRAIN_SIGERR`) and their fields.
const OPTIONAL: [(u32, &[Field]); 21] = [
    (
        1 << 0,
        &[
            (SECONDARY, 0x40),
            (SECONDARY + 0x40, 0x40),
            (SECONDARY + 0x80, 0x40),
            (SECONDARY + 0xc0, 0x40),
            (SECONDARY + 0x100, 0x40),
            (SECONDARY + 0x140, 0x20),
        ],
    ),
    (1 << 1, &[READ]),
    (1 << 2, &[ATOMIC, ATOMIC_MODE]),
    (1 << 3, &[WRITE]),
    (1 << 4, &[PARTITION]),
    (1 << 5, &[Q_KEY]),
    (1 << 6, &[RNR_TIMER]),
    (1 << 7, &PATH),
    (1 << 8, &[REQUESTER_DEPTH]),
    (1 << 9, &[RESPONDER_DEPTH]),
    (1 << 10, &[MIGRATION]),
    (1 << 11, &[DRAIN_MISTAKES]),
    (1 << 12, &[RETRIES]),
    (1 << 13, &[RNR_RETRIES]),
    (1 << 14, &[ACK_TIMEOUT]),
    (1 << 15, &[LAG]),
    (1 << 16, &[PORT]),
    (1 << 18, &[SRQ]),
    (1 << 19, &[CQ_RECEIVE]),
    (1 << 21, &[DC_KEY]),
    (1 << 25, &[COUNTER]),
];

/// `opt_param_mask_95_32` of `RTS2RTS_QP` (rdma-core providers/mlx5/mlx5_ifc.h `rts2rts_qp_in`; Linux calls it reserved).
const UPPER_MASK: Field = (0x840, 0x40);
/// Its bits (`MLX5_QPC_OPT_MASK_32_*` there) and their fields: the UDP port that packets come from.
const UPPER: [(u64, &[Field]); 1] = [(1 << 2, &[(PRIMARY + 0x110, 0x10)])];

/// What a transition takes.
struct Transition {
    from: QpState,
    to: QpState,
    required: &'static [&'static [Field]],
}

const TO_INIT: Transition = Transition {
    from: QpState::Rst,
    to: QpState::Init,
    required: &[&[
        MIGRATION,
        PARTITION,
        PORT,
        READ,
        WRITE,
        ATOMIC,
        ATOMIC_MODE,
        Q_KEY,
        COUNTER,
    ]],
};
const INIT_TO_INIT: Transition = Transition {
    from: QpState::Init,
    to: QpState::Init,
    required: &[],
};
const TO_RTR: Transition = Transition {
    from: QpState::Init,
    to: QpState::Rtr,
    required: &[
        &PATH,
        &[
            REMOTE_MAC,
            MTU_AND_LONGEST,
            REMOTE,
            RECEIVE_PSN,
            RESPONDER_DEPTH,
            RNR_TIMER,
        ],
        &[ACK_FREQUENCY],
    ],
};
const TO_RTS: Transition = Transition {
    from: QpState::Rtr,
    to: QpState::Rts,
    required: &[&[
        SEND_PSN,
        ACK_TIMEOUT,
        RETRIES,
        RNR_RETRIES,
        REQUESTER_DEPTH,
        ACK_FREQUENCY,
    ]],
};
const RTS_TO_RTS: Transition = Transition {
    from: QpState::Rts,
    to: QpState::Rts,
    required: &[],
};
const FROM_SQ_ERROR: Transition = Transition {
    from: QpState::SqEr,
    to: QpState::Rts,
    required: &[],
};
const FROM_DRAINED: Transition = Transition {
    from: QpState::Sqd,
    to: QpState::Rts,
    required: &[],
};

pub(super) fn rst_to_init(device: &mut Device, input: &[u8]) -> Reply {
    modify(device, input, &TO_INIT)
}

pub(super) fn init_to_init(device: &mut Device, input: &[u8]) -> Reply {
    modify(device, input, &INIT_TO_INIT)
}

pub(super) fn init_to_rtr(device: &mut Device, input: &[u8]) -> Reply {
    modify(device, input, &TO_RTR)
}

pub(super) fn rtr_to_rts(device: &mut Device, input: &[u8]) -> Reply {
    modify(device, input, &TO_RTS)
}

pub(super) fn rts_to_rts(device: &mut Device, input: &[u8]) -> Reply {
    modify(device, input, &RTS_TO_RTS)
}

pub(super) fn sq_error_to_rts(device: &mut Device, input: &[u8]) -> Reply {
    modify(device, input, &FROM_SQ_ERROR)
}

pub(super) fn sqd_to_rts(device: &mut Device, input: &[u8]) -> Reply {
    modify(device, input, &FROM_DRAINED)
}

pub(super) fn to_error(device: &mut Device, input: &[u8]) -> Reply {
    leave(device, input, QpState::Err)
}

pub(super) fn to_reset(device: &mut Device, input: &[u8]) -> Reply {
    leave(device, input, QpState::Rst)
}

/// Any state is left for reset or error.
fn leave(device: &mut Device, input: &[u8], to: QpState) -> Reply {
    // All transitions begin alike.
    const HEADER: usize = 16;
    let mut header = [0; Rst2initQpIn::SIZE];
    let input = input
        .get(..HEADER)
        .ok_or(bad_parameter("the command is too short"))?;
    header[..HEADER].copy_from_slice(input);
    let number = Rst2initQpIn::new(&header)?.qpn();
    let qp = find(device, input, number)?;
    let from = std::mem::replace(&mut qp.state, to);
    transport::state_changed(device, number, from, to);
    super::done()
}

fn modify(device: &mut Device, input: &[u8], transition: &Transition) -> Reply {
    let view = Rst2initQpIn::new(input)?;
    let (number, mask) = (view.qpn(), view.opt_param_mask());
    let qp = find(device, input, number)?;
    if qp.state != transition.from {
        return Err(bad_qp_state("the queue pair is in another state"));
    }
    let new = view.qpc();
    let mut context = qp.context.clone();
    let optional = OPTIONAL
        .iter()
        .filter(|(bit, _)| mask & bit != 0)
        .map(|(_, fields)| *fields);
    let (first, width) = UPPER_MASK;
    let has_more = transition.from == QpState::Rts && input.len() * 8 >= first + width;
    let upper = if has_more {
        bits::get(input, first, width)
    } else {
        0
    };
    let more = UPPER
        .iter()
        .filter(|(bit, _)| upper & bit != 0)
        .map(|(_, fields)| *fields);
    for (offset, width) in transition
        .required
        .iter()
        .copied()
        .chain(optional)
        .chain(more)
        .flatten()
    {
        let value = bits::get(new.as_bytes(), *offset, *width);
        bits::set(&mut context, *offset, *width, value);
    }
    check(qp.kind, transition.to, &context)?;
    qp.context = context;
    qp.load();
    qp.state = transition.to;
    transport::state_changed(device, number, transition.from, transition.to);
    let mut output = Rst2initQpOut::zeroed();
    if transition.takes_options() {
        output.set_ece(ece::accepted(view.ece()));
    }
    Ok(output.into_inner().to_vec())
}

impl Transition {
    /// Whether the command has options of connections: not where a queue pair recovers or goes on.
    fn takes_options(&self) -> bool {
        !matches!(self.from, QpState::SqEr | QpState::Sqd)
    }
}

/// Whether a context can be in a state.
fn check(kind: QpKind, state: QpState, context: &[u8]) -> Result<(), Refusal> {
    let connected = matches!(kind, QpKind::Rc | QpKind::Uc | QpKind::Xrc);
    let ready = matches!(state, QpState::Rtr | QpState::Rts);
    if connected && ready && !(1..=5).contains(&bits::get(context, 0x40, 3)) {
        return Err(bad_parameter("there is no such MTU"));
    }
    if bits::get(context, 0x43, 5) > 30 {
        return Err(bad_parameter("messages are too long"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use wqe_format::mlx5::firmware::Opcode;

    use super::*;
    use crate::resources::Qp;
    use crate::{Config, Interrupts, Ram};

    /// A device with queue pair 0x41, of packets of 256 bytes.
    fn device() -> Device {
        struct Silent;
        impl Interrupts for Silent {
            fn raise(&self, _: u16) {}
        }
        let mut device = Device::new(Config::default(), Arc::new(Ram::new(0)), Box::new(Silent));
        device.hca.stage = crate::command::Stage::Initialized;
        let mut qp = Qp::new(0x41, 0, QpKind::Rc, vec![0; 232]);
        bits::set(&mut qp.context, 0x40, 3, 1);
        device.resources.qps.insert(0x41, qp);
        device
    }

    #[test]
    fn a_doorbell_record_in_registered_memory_stays_there() {
        let mut device = device();
        device.resources.qps.get_mut(0x41).unwrap().dbr = 0x5a8;
        let mut input = vec![0; 0x120];
        input[..2].copy_from_slice(&Opcode::RST2INIT_QP.0.to_be_bytes());
        input[8..12].copy_from_slice(&0x41_u32.to_be_bytes());
        assert_eq!(crate::command::execute(&mut device, &input)[0], 0);
        let qp = device.resources.qps.get(0x41).unwrap();
        assert_eq!((qp.state, qp.dbr), (QpState::Init, 0x5a8));
    }

    #[test]
    fn the_upper_mask_names_the_udp_port_once_a_queue_pair_sends() {
        let mut device = device();
        // As `mlx5dv_modify_qp_udp_sport` builds it: the port's place and the mask's are libmlx5's.
        let mut change = |opcode: Opcode, state, mask: u8, port: u16| {
            let qp = device.resources.qps.get_mut(0x41).unwrap();
            qp.state = state;
            let mut input = vec![0; 0x120];
            input[..2].copy_from_slice(&opcode.0.to_be_bytes());
            input[8..12].copy_from_slice(&0x41_u32.to_be_bytes());
            input[0x18 + (0xc0 + 0x110) / 8..][..2].copy_from_slice(&port.to_be_bytes());
            input[0x840 / 8 + 7] = mask;
            let status = crate::command::execute(&mut device, &input)[0];
            (
                status,
                device.resources.qps.get(0x41).unwrap().path.udp_sport,
            )
        };
        let rts = Opcode::RTS2RTS_QP;
        assert_eq!(change(rts, QpState::Rts, 4, 55555), (0, 55555));
        assert_eq!(change(rts, QpState::Rts, 0, 1), (0, 55555));
        assert_eq!(change(rts, QpState::Rtr, 4, 1), (0x10, 55555));
        let init = Opcode::INIT2INIT_QP;
        assert_eq!(change(init, QpState::Init, 4, 1), (0, 55555));
    }
}
