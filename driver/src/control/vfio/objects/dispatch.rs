//! What the device says happened, to whom it concerns.

use std::os::fd::OwnedFd;

use uverbs_abi::types::EventType;
use wqe_format::mlx5::firmware::eqe::{CqError, DctEvents, PortStateChangeEvent, QpEvents};
use wqe_format::mlx5::firmware::{EventType as Happened, PortChange};

use super::Objects;
use super::events::Purpose;
use crate::sys::errno::Errno;

/// Kinds of queues that events are about (Linux `mlx5/device.h` `MLX5_EVENT_QUEUE_TYPE_*`).
const QUEUE_PAIR: u8 = 0;

impl Objects {
    /// Makes a completion channel.
    pub fn create_comp_channel(&self) -> Result<OwnedFd, Errno> {
        self.files.make(Purpose::Completions)
    }

    /// Makes a file of asynchronous events.
    pub fn alloc_async_event(&self) -> Result<OwnedFd, Errno> {
        self.files.make(Purpose::Events)
    }

    /// An entry of the asynchronous event queue: its type, what kind of a change, its data.
    pub fn async_event(&self, happened: Happened, sub: u8, data: &[u8]) {
        match happened {
            Happened::CQ_ERROR => {
                if let Ok(data) = CqError::new(data) {
                    self.cq_error(data.cqn());
                }
            }
            Happened::PORT_CHANGE => {
                if let (Ok(data), Some(told)) = (PortStateChangeEvent::new(data), of_port(sub)) {
                    self.files.tell_all(told, data.port_num().into());
                }
            }
            Happened::DCT_DRAINED => {
                if let Ok(data) = DctEvents::new(data) {
                    self.drained.tell(data.dct_number());
                }
            }
            Happened::SRQ_RQ_LIMIT => self.about_srq(data, EventType::SRQ_LIMIT_REACHED),
            Happened::SRQ_CATAS_ERROR => self.about_srq(data, EventType::SRQ_ERR),
            _ => {
                if let (Ok(data), Some(told)) = (QpEvents::new(data), of_queue_pair(happened)) {
                    // raw packets' queues have numbers of their own, and no events that programs see
                    if data.type_() == QUEUE_PAIR {
                        self.qp_event(data.qpn_rqn_sqn(), told);
                    }
                }
            }
        }
    }

    /// The device has failed: nothing works any more.
    pub fn device_fatal(&self) {
        self.files.tell_all(EventType::DEVICE_FATAL, 1);
    }

    fn about_srq(&self, data: &[u8], told: EventType) {
        if let Ok(data) = QpEvents::new(data) {
            self.srq_event(data.qpn_rqn_sqn(), told);
        }
    }
}

fn of_queue_pair(happened: Happened) -> Option<EventType> {
    Some(match happened {
        Happened::PATH_MIG => EventType::PATH_MIG,
        Happened::COMM_EST => EventType::COMM_EST,
        Happened::SQ_DRAINED => EventType::SQ_DRAINED,
        Happened::SRQ_LAST_WQE => EventType::QP_LAST_WQE_REACHED,
        Happened::WQ_CATAS_ERROR => EventType::QP_FATAL,
        Happened::PATH_MIG_FAILED => EventType::PATH_MIG_ERR,
        Happened::WQ_INVAL_REQ_ERROR => EventType::QP_REQ_ERR,
        Happened::WQ_ACCESS_ERROR => EventType::QP_ACCESS_ERR,
        _ => return None,
    })
}

fn of_port(change: u8) -> Option<EventType> {
    Some(match PortChange(change) {
        PortChange::DOWN => EventType::PORT_ERR,
        PortChange::ACTIVE => EventType::PORT_ACTIVE,
        PortChange::LID => EventType::LID_CHANGE,
        PortChange::PKEY => EventType::PKEY_CHANGE,
        PortChange::GUID => EventType::GID_CHANGE,
        PortChange::CLIENT_REREG => EventType::CLIENT_REREGISTER,
        _ => return None,
    })
}
