//! Targets of dynamic connections. CREATE_DCT needs all of their attributes, so it is sent when they become
//! ready to receive.

use std::sync::{Arc, Mutex, PoisonError};

use uverbs_abi::handle::Qp;
use uverbs_abi::types::{AccessFlags, QpAttrMask, QpState};
use uverbs_abi::udata::mlx5::{CreateQp as DriverInput, CreateQpFlags, CreateQpResp, ModifyQpResp};
use uverbs_abi::write::qp::{ModifyQp, QueryQpResp};
use wqe_format::mlx5::firmware::Opcode;
use wqe_format::mlx5::firmware::dct::{CreateDctIn, CreateDctOut};

use super::Objects;
use super::cq::CompletionQueue;
use super::domain::Pdn;
use super::srq::SharedQueue;
use crate::control::kernel::{CreateQp, QpCreated};
use crate::sys::errno::Errno;

/// A target.
#[derive(Debug)]
pub(super) struct Target {
    state: Mutex<TargetState>,
    key: u64,
    user_index: u32,
    scatter: bool,
    pd: Arc<Pdn>,
    cq: Arc<CompletionQueue>,
    srq: Arc<SharedQueue>,
}

#[derive(Debug)]
struct TargetState {
    state: QpState,
    number: u32,
    attr: ModifyQp,
}

/// Data in completions of a target (`MLX5_RES_SCAT_DATA32_CQE`, `_DATA64_CQE`).
const SCATTER: [u8; 2] = [0x1, 0x2];

impl Objects {
    pub(super) fn create_dct(
        &self,
        request: &CreateQp,
        input: &DriverInput,
    ) -> Result<QpCreated<CreateQpResp>, Errno> {
        if !self.caps.general.dct() {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        let srq = request.srq.ok_or(Errno(libc::EINVAL))?;
        let handle = self.targets.insert(Target {
            state: Mutex::new(TargetState {
                state: QpState::RESET,
                number: 0,
                attr: ModifyQp::default(),
            }),
            key: input.sq_buf_addr,
            user_index: input.uidx,
            scatter: input.flags.contains(CreateQpFlags::SCATTER_CQE),
            pd: self.pds.get(request.pd.0)?,
            cq: self.cqs.get(request.recv_cq.0)?,
            srq: self.srqs.get(srq.0)?,
        });
        Ok(QpCreated {
            handle: Qp(handle),
            qp_num: 0,
            cap: request.cap,
            udata: CreateQpResp::default(),
        })
    }

    /// Changes a target; `None` if the handle is another queue pair's.
    pub(super) fn modify_dct(
        &self,
        attr: &ModifyQp,
        options: u32,
    ) -> Result<Option<ModifyQpResp>, Errno> {
        let Ok(target) = self.targets.get(attr.qp_handle.0) else {
            return Ok(None);
        };
        let mut state = target.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mask = attr.attr_mask;
        if !mask.contains(QpAttrMask::STATE) {
            return Err(Errno(libc::EINVAL));
        }
        match (state.state, attr.qp_state) {
            (QpState::RESET, QpState::INIT) => {
                let needed = QpAttrMask::ACCESS_FLAGS | QpAttrMask::PKEY_INDEX | QpAttrMask::PORT;
                if !mask.contains(needed) || attr.pkey_index >= self.pkey_count() {
                    return Err(Errno(libc::EINVAL));
                }
                state.attr = *attr;
                state.state = QpState::INIT;
                Ok(Some(ModifyQpResp::default()))
            }
            (QpState::INIT, QpState::RTR) => {
                let needed = QpAttrMask::MIN_RNR_TIMER | QpAttrMask::AV | QpAttrMask::PATH_MTU;
                if !mask.contains(needed) {
                    return Err(Errno(libc::EINVAL));
                }
                let mut command = self.dct_command(&target, &state.attr, attr);
                { command.dct_context_entry_mut() }.set_ece(options);
                let mut output = CreateDctOut::zeroed();
                self.platform
                    .execute(command.as_bytes(), output.as_bytes_mut())?;
                state.number = output.dctn();
                state.state = QpState::RTR;
                Ok(Some(ModifyQpResp {
                    response_length: size_of::<ModifyQpResp>() as u32,
                    dctn: state.number,
                    ece_options: output.ece(),
                    ..ModifyQpResp::default()
                }))
            }
            _ => Err(Errno(libc::EINVAL)),
        }
    }

    fn dct_command(
        &self,
        target: &Target,
        init: &ModifyQp,
        rtr: &ModifyQp,
    ) -> CreateDctIn<[u8; CreateDctIn::SIZE]> {
        let mut command = CreateDctIn::zeroed();
        command.set_opcode(Opcode::CREATE_DCT.0);
        let mut context = command.dct_context_entry_mut();
        let may = |right| init.qp_access_flags.contains(right);
        context
            .set_pd(target.pd.0)
            .set_cqn(target.cq.number)
            .set_srqn_xrqn(target.srq.number)
            .set_counter_set_id(self.counter_set())
            .set_dc_access_key(target.key)
            .set_rre(may(AccessFlags::REMOTE_READ))
            .set_rwe(may(AccessFlags::REMOTE_WRITE))
            .set_pkey_index(init.pkey_index)
            .set_port(init.port_num)
            .set_mtu(rtr.path_mtu)
            .set_min_rnr_nak(rtr.min_rnr_timer)
            .set_my_addr_index(rtr.dest.sgid_index)
            .set_hop_limit(rtr.dest.hop_limit)
            .set_tclass(rtr.dest.traffic_class)
            .set_flow_label(rtr.dest.flow_label)
            .set_eth_prio(rtr.dest.sl & 7);
        if may(AccessFlags::REMOTE_ATOMIC) && self.caps.general.atomic() {
            context.set_rae(true).set_atomic_mode(1);
        }
        if target.scatter {
            context.set_cs_res(SCATTER[usize::from(target.cq.entry_size == 128)]);
        }
        if self.caps.user_indices() {
            context.set_user_index(target.user_index);
        }
        command
    }

    /// Attributes of a target; `None` if the handle is another queue pair's.
    pub(super) fn query_dct(&self, handle: Qp) -> Result<Option<QueryQpResp>, Errno> {
        let Ok(target) = self.targets.get(handle.0) else {
            return Ok(None);
        };
        let state = target.state.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Some(QueryQpResp {
            qp_state: state.state,
            cur_qp_state: state.state,
            qp_access_flags: state.attr.qp_access_flags,
            pkey_index: state.attr.pkey_index,
            port_num: state.attr.port_num,
            ..QueryQpResp::default()
        }))
    }

    /// Destroys a target, which the device drains first; `None` if the handle is another queue pair's.
    pub(super) fn destroy_dct(&self, handle: Qp) -> Result<Option<u32>, Errno> {
        if self.targets.look(handle.0, |_| ()).is_none() {
            return Ok(None);
        }
        self.targets.remove(handle.0, |target| {
            let state = target.state.lock().unwrap_or_else(PoisonError::into_inner);
            if state.state == QpState::RTR {
                self.run_on(Opcode::DRAIN_DCT, state.number)?;
                self.drained.wait(state.number)?;
                self.run_on(Opcode::DESTROY_DCT, state.number)?;
            }
            Ok(Some(0))
        })
    }
}
