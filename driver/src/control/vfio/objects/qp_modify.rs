//! Changing a queue pair: which command a change of state is, and which fields it means.

use std::sync::PoisonError;

use uverbs_abi::types::{AccessFlags, QpAttrMask, QpState, QpType};
use uverbs_abi::udata::mlx5::{ModifyQp as DriverInput, ModifyQpResp};
use uverbs_abi::write::qp::{ExModifyQp, ModifyQp};
use wqe_format::mlx5::firmware::Opcode;
use wqe_format::mlx5::firmware::qp_modify::{Rst2initQpIn, Rst2initQpOut};
use wqe_format::mlx5::firmware::qpc::Qpc;

use super::Objects;
use super::qp_create::{MIGRATED, QueuePair, Service, State};
use crate::control::qp_state;
use crate::sys::errno::Errno;

/// Bits of `opt_param_mask` (Linux `mlx5/qp.h` `MLX5_QP_OPTPAR_*`).
mod optional {
    pub(super) const ALT_ADDR_PATH: u32 = 1 << 0;
    pub(super) const RRE: u32 = 1 << 1;
    pub(super) const RAE: u32 = 1 << 2;
    pub(super) const RWE: u32 = 1 << 3;
    pub(super) const PKEY_INDEX: u32 = 1 << 4;
    pub(super) const Q_KEY: u32 = 1 << 5;
    pub(super) const RNR_TIMEOUT: u32 = 1 << 6;
    pub(super) const PRIMARY_ADDR_PATH: u32 = 1 << 7;
    pub(super) const SRA_MAX: u32 = 1 << 8;
    pub(super) const RRA_MAX: u32 = 1 << 9;
    pub(super) const PM_STATE: u32 = 1 << 10;
    pub(super) const RETRY_COUNT: u32 = 1 << 12;
    pub(super) const RNR_RETRY: u32 = 1 << 13;
    pub(super) const ACK_TIMEOUT: u32 = 1 << 14;
    pub(super) const PRI_PORT: u32 = 1 << 16;
    pub(super) const RIGHTS: u32 = RRE | RAE | RWE;
}
use optional::*;

/// The longest run of packets without a request for an answer: 2^8 (`MLX5_IB_ACK_REQ_FREQ`).
const ACK_FREQUENCY: u8 = 8;
/// Path MTU of datagrams, and the logarithm of their longest message: 4096 bytes (`IB_MTU_4096`).
const UD_MTU: u8 = 5;
const UD_LOG_MESSAGE: u8 = 12;
/// Atomics as IBTA has them (`MLX5_ATOMIC_MODE_IB_COMP`).
const ATOMIC_MODE: u8 = 1;
/// The operations of the atomic capability that those need: compare and swap, fetch and add.
const ATOMIC_OPERATIONS: u16 = 0b11;

/// The command of a change of state; `EINVAL` if the device has none.
fn command(from: QpState, to: QpState) -> Result<Opcode, Errno> {
    use QpState as S;
    Ok(match (from, to) {
        (_, S::RESET) => Opcode::QP_2RST,
        (_, S::ERR) => Opcode::QP_2ERR,
        (S::RESET, S::INIT) => Opcode::RST2INIT_QP,
        (S::INIT, S::INIT) => Opcode::INIT2INIT_QP,
        (S::INIT, S::RTR) => Opcode::INIT2RTR_QP,
        (S::RTR, S::RTS) => Opcode::RTR2RTS_QP,
        (S::RTS, S::RTS) => Opcode::RTS2RTS_QP,
        (S::SQE, S::RTS) => Opcode::SQERR2RTS_QP,
        (S::SQD, S::RTS) => Opcode::SQD_RTS_QP,
        _ => return Err(Errno(libc::EINVAL)),
    })
}

/// Whether a change takes options of enhanced connection establishment, and answers which the device accepts (Linux
/// `mlx5_core_qp_modify`). What they mean is the vendor's own.
fn takes_ece(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::RST2INIT_QP
            | Opcode::INIT2INIT_QP
            | Opcode::INIT2RTR_QP
            | Opcode::RTR2RTS_QP
            | Opcode::RTS2RTS_QP
    )
}

/// What a change may take beyond what it needs (`opt_mask` of the kernel's `qp.c`).
fn allowed(from: QpState, to: QpState, service: Service) -> u32 {
    use QpState as S;
    let connected = matches!(service, Service::Rc | Service::Xrc | Service::Dci);
    let rights = if connected { RIGHTS } else { RWE };
    let datagram = service == Service::Ud;
    match (from, to) {
        (S::INIT, S::INIT) if datagram => PKEY_INDEX | Q_KEY | PRI_PORT,
        (S::INIT, S::INIT) => rights | PKEY_INDEX | PRI_PORT,
        (S::INIT, S::RTR) if datagram => PKEY_INDEX | Q_KEY,
        (S::INIT, S::RTR) => ALT_ADDR_PATH | rights | PKEY_INDEX,
        (S::RTR | S::RTS | S::SQE | S::SQD, S::RTS) if datagram => Q_KEY,
        (S::RTR | S::RTS, S::RTS) if connected => ALT_ADDR_PATH | rights | PM_STATE | RNR_TIMEOUT,
        (S::RTR | S::RTS, S::RTS) => ALT_ADDR_PATH | rights | PM_STATE,
        (S::SQE | S::SQD, S::RTS) if connected => rights | RNR_TIMEOUT,
        (S::SQE | S::SQD, S::RTS) => rights,
        _ => 0,
    }
}

/// Attributes in the firmware's bits.
fn meant(mask: QpAttrMask) -> u32 {
    [
        (QpAttrMask::ACCESS_FLAGS, RIGHTS),
        (QpAttrMask::PKEY_INDEX, PKEY_INDEX),
        (QpAttrMask::PORT, PRI_PORT),
        (QpAttrMask::QKEY, Q_KEY),
        (QpAttrMask::AV, PRIMARY_ADDR_PATH | PRI_PORT),
        (QpAttrMask::PATH_MTU, PRIMARY_ADDR_PATH),
        (QpAttrMask::TIMEOUT, ACK_TIMEOUT),
        (QpAttrMask::RETRY_CNT, RETRY_COUNT),
        (QpAttrMask::RNR_RETRY, RNR_RETRY),
        (QpAttrMask::MAX_QP_RD_ATOMIC, SRA_MAX),
        (QpAttrMask::MIN_RNR_TIMER, RNR_TIMEOUT),
        (QpAttrMask::MAX_DEST_RD_ATOMIC, RRA_MAX | RIGHTS),
        (QpAttrMask::PATH_MIG_STATE, PM_STATE),
        (QpAttrMask::ALT_PATH, ALT_ADDR_PATH),
    ]
    .into_iter()
    .filter(|(attribute, _)| mask.contains(*attribute))
    .fold(0, |bits, (_, means)| bits | means)
}

impl Objects {
    /// Changes attributes; the rate limit too, of a queue pair of raw packets where the device has packet pacing
    /// (`EOPNOTSUPP`).
    pub fn modify_qp(&self, attr: &ExModifyQp, input: &DriverInput) -> Result<ModifyQpResp, Errno> {
        let options = input.ece_options;
        if options != 0 && !self.caps.general.ece_support() {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        if let Some(answer) = self.modify_raw(attr, input)? {
            return Ok(answer);
        }
        let attr = &attr.base;
        if let Some(answer) = self.modify_dct(attr, options)? {
            return Ok(answer);
        }
        let qp = self.qps.get(attr.qp_handle.0)?;
        let mut state = qp.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mask = attr.attr_mask;
        let from = match mask.contains(QpAttrMask::CUR_STATE) {
            true => attr.cur_qp_state,
            false => state.state,
        };
        let to = match mask.contains(QpAttrMask::STATE) {
            true => attr.qp_state,
            false => from,
        };
        self.check(&qp, attr, from, to)?;
        if from == QpState::RESET && to == QpState::RESET {
            return Ok(ModifyQpResp::default());
        }
        let opcode = command(from, to)?;
        if matches!(opcode, Opcode::QP_2RST | Opcode::QP_2ERR) {
            self.run_on(opcode, qp.number)?;
            *state = State {
                state: to,
                ..*state
            };
            return Ok(ModifyQpResp::default());
        }
        let mut input = Rst2initQpIn::zeroed();
        input
            .set_opcode(opcode.0)
            .set_qpn(qp.number)
            .set_opt_param_mask(meant(mask) & allowed(from, to, qp.service));
        if takes_ece(opcode) {
            input.set_ece(options);
        }
        if let (Some(record), QpState::RESET) = (qp.record, from) {
            // said again, as the kernel does
            input.qpc_mut().set_dbr_addr(record);
        }
        if from == QpState::RESET {
            input.qpc_mut().set_counter_set_id(self.counter_set());
        }
        let next = self.describe(&mut input.qpc_mut(), &qp, attr, *state)?;
        let output = self.run_bytes::<{ Rst2initQpOut::SIZE }>(input.as_bytes())?;
        *state = State { state: to, ..next };
        let accepted = match (takes_ece(opcode), Rst2initQpOut::new(output)) {
            (true, Ok(output)) => output.ece(),
            _ => 0,
        };
        Ok(ModifyQpResp {
            response_length: size_of::<ModifyQpResp>() as u32,
            ece_options: accepted,
            ..ModifyQpResp::default()
        })
    }

    /// What the kernel refuses before it asks the device: attributes that the change does not take, and numbers
    /// beyond what there is.
    fn check(
        &self,
        qp: &QueuePair,
        attr: &ModifyQp,
        from: QpState,
        to: QpState,
    ) -> Result<(), Errno> {
        let caps = &self.caps.general;
        let mask = attr.attr_mask;
        let rules = qp_state::check(qp.qp_type, from, to, mask);
        let port = |port: u8| (1..=caps.num_ports()).contains(&port);
        let bad = rules.is_err()
            || mask.contains(QpAttrMask::PORT) && !port(attr.port_num)
            || mask.contains(QpAttrMask::AV) && !port(attr.dest.port_num)
            || mask.contains(QpAttrMask::ALT_PATH)
                && !(port(attr.alt_port_num) && port(attr.alt_dest.port_num))
            || mask.contains(QpAttrMask::PKEY_INDEX) && attr.pkey_index >= self.pkey_count()
            || mask.contains(QpAttrMask::PATH_MTU) && !(1..=5).contains(&attr.path_mtu)
            || mask.contains(QpAttrMask::MAX_QP_RD_ATOMIC)
                && u32::from(attr.max_rd_atomic) > 1 << caps.log_max_ra_res_qp()
            || mask.contains(QpAttrMask::MAX_DEST_RD_ATOMIC)
                && u32::from(attr.max_dest_rd_atomic) > 1 << caps.log_max_ra_req_qp();
        if bad {
            Err(Errno(libc::EINVAL))
        } else {
            Ok(())
        }
    }

    /// Writes all that attributes say. What is not meant the device ignores.
    fn describe(
        &self,
        context: &mut Qpc<&mut [u8]>,
        qp: &QueuePair,
        attr: &ModifyQp,
        mut state: State,
    ) -> Result<State, Errno> {
        let has = |bit| attr.attr_mask.contains(bit);
        context
            .set_st(qp.service as u8)
            .set_pd(qp.pd.as_ref().map_or(0, |pd| pd.0))
            .set_cqn_snd(qp.send_cq.as_ref().map_or(0, |cq| cq.number))
            .set_cqn_rcv(qp.recv_cq.as_ref().map_or(0, |cq| cq.number))
            .set_log_ack_req_freq(ACK_FREQUENCY)
            .set_pm_state(match has(QpAttrMask::PATH_MIG_STATE) {
                true => migration(attr.path_mig_state)?,
                false => MIGRATED,
            });
        if qp.service == Service::Ud {
            context.set_mtu(UD_MTU).set_log_msg_max(UD_LOG_MESSAGE);
        } else if has(QpAttrMask::PATH_MTU) {
            context
                .set_mtu(attr.path_mtu)
                .set_log_msg_max(self.caps.general.log_max_msg());
        }
        if has(QpAttrMask::DEST_QPN) {
            context.set_remote_qpn(attr.dest_qp_num);
        }
        let mut path = context.primary_address_path_mut();
        if has(QpAttrMask::AV) {
            let numbers = (qp.number, attr.dest_qp_num);
            self.set_path(&mut path, &attr.dest, qp.qp_type, numbers)?;
        }
        Self::set_of_path(&mut path, attr);
        if has(QpAttrMask::ALT_PATH) {
            let numbers = (qp.number, attr.dest_qp_num);
            let mut path = context.secondary_address_path_mut();
            self.set_path(&mut path, &attr.alt_dest, qp.qp_type, numbers)?;
            path.set_pkey_index(attr.alt_pkey_index)
                .set_vhca_port_num(attr.alt_port_num)
                .set_ack_timeout(attr.alt_timeout);
        }
        if has(QpAttrMask::RNR_RETRY) {
            context.set_rnr_retry(attr.rnr_retry);
        }
        if has(QpAttrMask::RETRY_CNT) {
            context.set_retry_count(attr.retry_cnt);
        }
        if has(QpAttrMask::MAX_QP_RD_ATOMIC) {
            context.set_log_sra_max(log(attr.max_rd_atomic));
        }
        if has(QpAttrMask::SQ_PSN) {
            context.set_next_send_psn(attr.sq_psn);
        }
        if has(QpAttrMask::MAX_DEST_RD_ATOMIC) {
            context.set_log_rra_max(log(attr.max_dest_rd_atomic));
            state.responder_depth = attr.max_dest_rd_atomic;
        }
        if has(QpAttrMask::ACCESS_FLAGS) {
            state.access = attr.qp_access_flags;
        }
        if has(QpAttrMask::ACCESS_FLAGS) || has(QpAttrMask::MAX_DEST_RD_ATOMIC) {
            self.set_rights(context, qp, &state)?;
        }
        if has(QpAttrMask::MIN_RNR_TIMER) {
            context.set_min_rnr_nak(attr.min_rnr_timer);
        }
        if has(QpAttrMask::RQ_PSN) {
            context.set_next_rcv_psn(attr.rq_psn);
        }
        if has(QpAttrMask::QKEY) {
            context.set_q_key(attr.qkey);
        }
        Ok(state)
    }

    /// What the peer may do. Reads and atomics need room for their answers, which comes later than the
    /// rights: without, only writes.
    fn set_rights(
        &self,
        context: &mut Qpc<&mut [u8]>,
        qp: &QueuePair,
        state: &State,
    ) -> Result<(), Errno> {
        let may = |right| state.access.contains(right);
        let answers = state.responder_depth > 0;
        let atomics = answers && may(AccessFlags::REMOTE_ATOMIC);
        if atomics && matches!(qp.qp_type, QpType::RC | QpType::XRC_TGT | QpType::XRC_INI) {
            let does = self.caps.atomic.atomic_operations() & ATOMIC_OPERATIONS;
            if !self.caps.general.atomic() || does != ATOMIC_OPERATIONS {
                return Err(Errno(libc::EOPNOTSUPP));
            }
            context.set_rae(true).set_atomic_mode(ATOMIC_MODE);
        }
        context
            .set_rre(answers && may(AccessFlags::REMOTE_READ))
            .set_rwe(may(AccessFlags::REMOTE_WRITE));
        Ok(())
    }
}

/// The logarithm of a depth, upwards; contexts have no 0.
fn log(depth: u8) -> u8 {
    depth.max(1).next_power_of_two().trailing_zeros() as u8
}

/// `qpc.pm_state` of `enum ibv_mig_state`.
fn migration(state: u8) -> Result<u8, Errno> {
    match state {
        0 => Ok(MIGRATED),
        // to be armed again, armed (`MLX5_QP_PM_REARM`, `MLX5_QP_PM_ARMED`)
        1 => Ok(1),
        2 => Ok(0),
        _ => Err(Errno(libc::EINVAL)),
    }
}
