//! The queue pair that changes of a list of tags are posted to.
//!
//! It belongs to the shared receive queue: its receives come from there, and it is connected with itself, since all that
//! is ever posted to it is for the device (`MLX5_OPCODE_TAG_MATCHING`).

use uverbs_abi::types::{AccessFlags, QpAttrMask, QpState};
use uverbs_abi::write::qp::{ExModifyQp, ModifyQp, QpDest};

use super::geometry::{Limits, SendGeometry, SendRequest, Transport};
use super::qp::QpObject;
use crate::data::mlx5::{MAX_TAGS, SendQueue, TagList};
use crate::sys::errno::Errno;

/// The list of tags of a shared receive queue to make.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tags {
    /// Tags in the list at a time.
    pub max_num_tags: u32,
    /// Changes of it that are posted and not complete.
    pub max_ops: u32,
}

impl Tags {
    /// Gather entries of a change: a tag has one buffer.
    pub const MAX_SGE: u32 = 1;

    /// The program's side of the list. `EINVAL` for more than the device can do.
    pub(super) fn list(&self, limits: &Limits, concurrent: bool) -> Result<TagList, Errno> {
        if self.max_num_tags == 0 || self.max_num_tags > MAX_TAGS {
            return Err(Errno(libc::EINVAL));
        }
        let queue = SendGeometry::new(
            limits,
            &SendRequest {
                transport: Transport::Rc,
                ops: None,
                device_ops: Default::default(),
                max_wr: self.max_ops,
                max_sge: Self::MAX_SGE,
                max_inline: 0,
                max_tso_header: 0,
            },
        )?;
        // Without changes there would be no queue to post them to.
        if queue.wqe_cnt == 0 {
            return Err(Errno(libc::EINVAL));
        }
        Ok(TagList::new(self.max_num_tags, queue.wqe_cnt, concurrent))
    }
}

/// The port that the queue pair is bound to; nothing leaves it.
const PORT: u8 = 1;
/// `IBV_MTU_256`.
const MTU_256: u8 = 1;

impl QpObject {
    /// Connects the queue pair with itself and brings it to where it takes changes of a list of tags: the steps and attributes
    /// are libmlx5's (rdma-core providers/mlx5/verbs.c `create_cmd_qp`).
    ///
    /// `EINVAL` from the kernel on Ethernet, where a path needs a GID and libmlx5 names none.
    pub fn connect_for_tags(&mut self, queue: &mut SendQueue) -> Result<(), Errno> {
        let port = self.context.uctx().query_port(PORT)?.legacy_resp;
        let dest = QpDest {
            dlid: port.lid,
            port_num: PORT,
            ..QpDest::default()
        };
        let init = ModifyQp {
            attr_mask: QpAttrMask::STATE
                | QpAttrMask::PKEY_INDEX
                | QpAttrMask::PORT
                | QpAttrMask::ACCESS_FLAGS,
            qp_state: QpState::INIT,
            port_num: PORT,
            qp_access_flags: AccessFlags::NONE,
            ..ModifyQp::default()
        };
        let receive = ModifyQp {
            attr_mask: QpAttrMask::STATE
                | QpAttrMask::AV
                | QpAttrMask::PATH_MTU
                | QpAttrMask::DEST_QPN
                | QpAttrMask::RQ_PSN
                | QpAttrMask::MAX_DEST_RD_ATOMIC
                | QpAttrMask::MIN_RNR_TIMER,
            qp_state: QpState::RTR,
            path_mtu: MTU_256,
            dest_qp_num: self.number,
            dest,
            ..init
        };
        let send = ModifyQp {
            attr_mask: QpAttrMask::STATE
                | QpAttrMask::TIMEOUT
                | QpAttrMask::RETRY_CNT
                | QpAttrMask::RNR_RETRY
                | QpAttrMask::SQ_PSN
                | QpAttrMask::MAX_QP_RD_ATOMIC,
            qp_state: QpState::RTS,
            ..receive
        };
        for base in [init, receive, send] {
            let change = self.modify(&ExModifyQp {
                base,
                ..ExModifyQp::default()
            })?;
            change.apply_to_send(queue);
        }
        Ok(())
    }
}
