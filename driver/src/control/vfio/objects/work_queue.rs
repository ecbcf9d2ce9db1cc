//! Receive work queues, and the tables that spread packets over them.

use std::sync::{Arc, Mutex, PoisonError};

use uverbs_abi::handle::{RwqIndTbl, Wq};
use uverbs_abi::types::{WqFlags, WqType};
use uverbs_abi::udata::mlx5::{
    CreateWq as DriverInput, CreateWqFlags as DriverFlags, CreateWqMask, CreateWqResp,
};
use uverbs_abi::write::wq::ExModifyWq;
use wqe_format::mlx5::firmware::Opcode;
use wqe_format::mlx5::firmware::rqt::{CreateRqtIn, CreateRqtOut};

use super::Objects;
use super::domain::Pdn;
use super::raw_queue::{Place, QueueState, ReceiveOptions};
use super::ring::Ring;
use crate::control::kernel::{CreateWq, RwqIndTableCreated, WqCreated};
use crate::sys::errno::Errno;

/// A work queue.
#[derive(Debug)]
pub(super) struct WorkQueue {
    number: u32,
    state: Mutex<QueueState>,
    _pd: Arc<Pdn>,
    _place: Place,
}

/// A table of work queues.
#[derive(Debug)]
pub(super) struct SpreadTable {
    number: u32,
    queues: Vec<Arc<WorkQueue>>,
}

impl SpreadTable {
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn len(&self) -> usize {
        self.queues.len()
    }
}

/// Bits of a modify (`IB_WQ_STATE`, `IB_WQ_CUR_STATE` of the kernel's `ib_verbs.h`).
const STATE: u32 = 1 << 0;
const CURRENT_STATE: u32 = 1 << 1;

/// States of verbs (`enum ib_wq_state`).
fn state(number: u32) -> Result<QueueState, Errno> {
    Ok(match number {
        0 => QueueState::Reset,
        1 => QueueState::Ready,
        2 => QueueState::Error,
        _ => return Err(Errno(libc::EINVAL)),
    })
}

impl Objects {
    /// Makes a work queue, in RESET. `EOPNOTSUPP` for entries that hold many packets, and on InfiniBand.
    ///
    /// # Safety
    ///
    /// As for [`Uctx::create_wq_with`](crate::control::kernel::Uctx::create_wq_with).
    pub unsafe fn create_wq(
        &self,
        request: &CreateWq,
        input: &DriverInput,
    ) -> Result<WqCreated<CreateWqResp>, Errno> {
        if request.wq_type != WqType::RQ {
            return Err(Errno(libc::EINVAL));
        }
        let strides = input.comp_mask.contains(CreateWqMask::STRIDING_RQ);
        if strides
            || !self.caps.general.eth_net_offloads()
            || request.flags.contains(WqFlags::DELAY_DROP)
        {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        let (entries, bytes) = ReceiveOptions::ring(input.rq_wqe_count, input.rq_wqe_shift)?;
        let has = |flag| request.flags.contains(flag);
        let options = ReceiveOptions {
            signature: input.flags.contains(DriverFlags::SIGNATURE),
            strip_tags: has(WqFlags::CVLAN_STRIPPING),
            with_check: has(WqFlags::SCATTER_FCS),
            padded: has(WqFlags::PCI_WRITE_END_PADDING),
            ..entries
        };
        self.can_receive(options)?;
        let pd = self.pds.get(request.pd.0)?;
        let (record_address, record) = self.record(input.db_addr)?;
        let place = Place {
            ring: Ring::of_work_queue(&*self.platform, input.buf_addr, bytes)?,
            record_address,
            _record: record,
            pd: pd.0,
            cq: self.cqs.get(request.cq.0)?,
            user_index: input.user_index,
        };
        let number = self.create_rq(&place, options)?;
        let handle = self.work_queues.insert(WorkQueue {
            number,
            state: Mutex::new(QueueState::Reset),
            _pd: pd,
            _place: place,
        });
        Ok(WqCreated {
            handle: Wq(handle),
            wq_num: number,
            max_wr: request.max_wr,
            max_sge: request.max_sge,
            udata: CreateWqResp {
                response_length: size_of::<CreateWqResp>() as u32,
                ..CreateWqResp::default()
            },
        })
    }

    /// Changes the state of a work queue. `EINVAL` if it is in another one than the change says, `EOPNOTSUPP` for a change of
    /// flags.
    pub fn modify_wq(&self, attr: &ExModifyWq) -> Result<(), Errno> {
        let queue = self.work_queues.get(attr.wq_handle.0)?;
        if attr.attr_mask & !(STATE | CURRENT_STATE) != 0 {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        let mut now = queue.state.lock().unwrap_or_else(PoisonError::into_inner);
        let from = match attr.attr_mask & CURRENT_STATE {
            0 => *now,
            _ => state(attr.curr_wq_state)?,
        };
        let to = match attr.attr_mask & STATE {
            0 => from,
            _ => state(attr.wq_state)?,
        };
        // what the kernel's core lets through (`ib_modify_wq`)
        let possible = match to {
            QueueState::Reset | QueueState::Error => true,
            QueueState::Ready => from != QueueState::Error,
        };
        if !possible {
            return Err(Errno(libc::EINVAL));
        }
        self.modify_rq(queue.number, from, to)?;
        *now = to;
        Ok(())
    }

    /// Destroys a work queue, `EBUSY` while a table has it; answers how many of its events were told.
    pub fn destroy_wq(&self, handle: Wq) -> Result<u32, Errno> {
        self.work_queues
            .remove(handle.0, |queue| {
                self.run_on(Opcode::DESTROY_RQ, queue.number)
            })
            .map(|()| 0)
    }

    /// Makes a table of work queues, as many as a power of two that the device has room for (else `EINVAL`).
    pub fn create_rwq_ind_table(&self, queues: &[Wq]) -> Result<RwqIndTableCreated<()>, Errno> {
        let most = 1usize << self.caps.general.log_max_rqt_size().min(31);
        if !queues.len().is_power_of_two() || queues.len() > most {
            return Err(Errno(libc::EINVAL));
        }
        let queues: Result<Vec<_>, _> = queues
            .iter()
            .map(|queue| self.work_queues.get(queue.0))
            .collect();
        let queues = queues?;
        let mut bytes = vec![0; CreateRqtIn::SIZE + queues.len() * 4];
        for (place, queue) in bytes[CreateRqtIn::SIZE..].chunks_exact_mut(4).zip(&queues) {
            place.copy_from_slice(&queue.number.to_be_bytes());
        }
        let mut command = CreateRqtIn::new(&mut bytes[..]).map_err(|_| Errno(libc::EINVAL))?;
        command.set_opcode(Opcode::CREATE_RQT.0);
        let count = queues.len() as u16;
        { command.rqt_context_mut() }
            .set_rqt_max_size(count)
            .set_rqt_actual_size(count);
        let mut output = CreateRqtOut::zeroed();
        self.platform.execute(&bytes, output.as_bytes_mut())?;
        let number = output.rqtn();
        let handle = self.spreads.insert(SpreadTable { number, queues });
        Ok(RwqIndTableCreated {
            handle: RwqIndTbl(handle),
            number,
            udata: (),
        })
    }

    /// Destroys a table. `EBUSY` while queue pairs receive by it.
    pub fn destroy_rwq_ind_table(&self, handle: RwqIndTbl) -> Result<(), Errno> {
        self.spreads.remove(handle.0, |table| {
            self.run_on(Opcode::DESTROY_RQT, table.number)
        })
    }
}
