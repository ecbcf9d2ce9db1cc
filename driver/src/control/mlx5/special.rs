//! Queue pairs without queues of their own: those that spread packets over work queues, targets of
//! dynamic connections, and XRC targets that somebody else made.

use std::os::fd::RawFd;
use std::sync::Arc;

use uverbs_abi::handle::{Cq, Pd, Qp, RwqIndTbl, Srq, Xrcd};
use uverbs_abi::types::{CreateQpFlags, QpAttrMask, QpState, QpType};
use uverbs_abi::udata::mlx5::{
    CreateQp as DriverInput, CreateQpFlags as DriverFlags, CreateQpResp, CreateQpRss,
    ModifyQp as DriverModify, ModifyQpResp, QueryDeviceFlags, RxHashFields, RxHashFunction,
    RxHashKey,
};
use uverbs_abi::write::qp::ExModifyQp;

use super::context::Mlx5Context;
use super::entry::{Dying, Entry, Kind};
use super::user_index::{self, UserIndex};
use crate::control::kernel::CreateQp as KernelRequest;
use crate::data::mlx5::{QueueKind, QueueRecord, ReceiveSide, SrqShared};
use crate::sys::errno::Errno;

/// Asks the kernel for enhanced connection establishment, version 1.
const ECE_VERSION_1: u32 = 0x1000_0000;

/// A queue pair that spreads packets over work queues.
#[derive(Clone, Debug, Default)]
pub struct RssRequest {
    /// Service type: of raw packets, usually.
    pub qp_type: QpType,
    /// The protection domain.
    pub pd: Pd,
    /// The table of work queues.
    pub table: RwqIndTbl,
    /// Comes back in events.
    pub user_handle: u64,
    /// How the kernel's core makes it.
    pub flags: CreateQpFlags,
    /// How the driver makes it: tunnels, self-loopback.
    pub driver_flags: DriverFlags,
    /// The hash.
    pub function: RxHashFunction,
    /// What it covers.
    pub fields: RxHashFields,
    /// Its key, at most 128 bytes.
    pub key: Vec<u8>,
    /// The file that asynchronous events go to.
    pub async_event: Option<RawFd>,
}

/// A target of dynamic connections.
#[derive(Clone, Debug)]
pub struct DctRequest {
    /// The protection domain.
    pub pd: Pd,
    /// Where receives complete.
    pub cq: Cq,
    /// Where they come from.
    pub srq: (Srq, Arc<SrqShared>),
    /// What peers have to know.
    pub access_key: u64,
    /// Comes back in events.
    pub user_handle: u64,
    /// Comes back with completions.
    pub cookie: usize,
    /// Whether short messages never arrive within completions.
    pub no_scatter_to_cqe: bool,
    /// The file that asynchronous events go to.
    pub async_event: Option<RawFd>,
}

/// A queue pair that the kernel alone knows; it is destroyed with this, unless it was before.
#[derive(Debug)]
pub struct BareQp {
    context: Arc<Mlx5Context>,
    handle: Qp,
    number: u32,
    answer: CreateQpResp,
    destroyed: bool,
}

impl Mlx5Context {
    /// Makes a queue pair that spreads packets over work queues.
    pub fn create_rss_qp(self: &Arc<Self>, asked: &RssRequest) -> Result<BareQp, Errno> {
        let mut key = RxHashKey::default();
        key.0
            .get_mut(..asked.key.len())
            .ok_or(Errno(libc::EINVAL))?
            .copy_from_slice(&asked.key);
        let input = CreateQpRss {
            rx_hash_fields_mask: asked.fields,
            rx_hash_function: asked.function,
            rx_key_len: asked.key.len() as u8,
            rx_hash_key: key,
            flags: DriverFlags(asked.driver_flags.0 & !DriverFlags::SCATTER_CQE.0),
            ..CreateQpRss::default()
        };
        let request = KernelRequest {
            qp_type: asked.qp_type,
            pd: asked.pd,
            ind_table: Some(asked.table),
            user_handle: asked.user_handle,
            flags: asked.flags,
            async_event: asked.async_event,
            ..KernelRequest::default()
        };
        // SAFETY: the input names no memory.
        let created = unsafe {
            self.uctx()
                .create_qp_with::<_, CreateQpResp>(&request, &input)
        }?;
        Ok(BareQp {
            context: self.clone(),
            handle: created.handle,
            number: created.qp_num,
            answer: created.udata,
            destroyed: false,
        })
    }

    /// Opens the XRC target that another process made in the same domain.
    pub fn open_qp(
        self: &Arc<Self>,
        xrcd: Xrcd,
        number: u32,
        user_handle: u64,
    ) -> Result<BareQp, Errno> {
        let handle = self.uctx().open_qp(xrcd, number, user_handle)?;
        Ok(BareQp {
            context: self.clone(),
            handle,
            number,
            answer: CreateQpResp::default(),
            destroyed: false,
        })
    }
}

impl BareQp {
    /// The kernel's handle.
    pub fn handle(&self) -> Qp {
        self.handle
    }

    /// The queue pair's number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// What the kernel answered: numbers of the device's objects.
    pub fn answer(&self) -> &CreateQpResp {
        &self.answer
    }

    /// The context.
    pub fn context(&self) -> &Arc<Mlx5Context> {
        &self.context
    }

    /// Destroys it in the kernel; answers how many of its events were delivered.
    pub fn destroy(&mut self) -> Result<u32, Errno> {
        if self.destroyed {
            return Ok(0);
        }
        let events = self.context.uctx().destroy_qp(self.handle)?;
        self.destroyed = true;
        Ok(events)
    }
}

impl Drop for BareQp {
    fn drop(&mut self) {
        if self.context.is_ours() {
            // Nobody is left to tell.
            let _ = self.destroy();
        }
    }
}

/// A target of dynamic connections. The device makes it, and gives it its number, when it becomes ready
/// to receive.
#[derive(Debug)]
pub struct DctObject {
    qp: BareQp,
    cookie: usize,
    srq: Arc<SrqShared>,
    /// Until it is entered.
    index: Option<UserIndex>,
    entry: Option<Entry>,
    state: QpState,
    ece: (u32, u32),
}

impl Mlx5Context {
    /// Makes a target of dynamic connections.
    pub fn create_dct(self: &Arc<Self>, asked: &DctRequest) -> Result<DctObject, Errno> {
        let scatter = self.environment().scatter_to_cqe
            && !asked.no_scatter_to_cqe
            && self.device().flags.contains(QueryDeviceFlags::SCAT2CQE_DCT);
        let index = self
            .names_queues_by_index()
            .then(|| self.indices().take())
            .transpose()?;
        let mut flags = DriverFlags::TYPE_DCT;
        if scatter {
            flags |= DriverFlags::SCATTER_CQE;
        }
        let input = DriverInput {
            flags,
            // a union with the address of a send queue, which a target does not have
            sq_buf_addr: asked.access_key,
            uidx: index.as_ref().map_or(user_index::NONE, UserIndex::get),
            ece_options: if self.limits().ece { ECE_VERSION_1 } else { 0 },
            ..DriverInput::default()
        };
        let request = KernelRequest {
            qp_type: QpType::DRIVER,
            pd: asked.pd,
            send_cq: asked.cq,
            recv_cq: asked.cq,
            srq: Some(asked.srq.0),
            user_handle: asked.user_handle,
            async_event: asked.async_event,
            ..KernelRequest::default()
        };
        // SAFETY: the input names no memory.
        let created = unsafe {
            self.uctx()
                .create_qp_with::<_, CreateQpResp>(&request, &input)
        }?;
        Ok(DctObject {
            qp: BareQp {
                context: self.clone(),
                handle: created.handle,
                number: created.qp_num,
                answer: created.udata,
                destroyed: false,
            },
            cookie: asked.cookie,
            srq: asked.srq.1.clone(),
            index,
            entry: None,
            state: QpState::RESET,
            ece: (created.udata.ece_options, 0),
        })
    }
}

impl DctObject {
    /// The kernel's handle.
    pub fn handle(&self) -> Qp {
        self.qp.handle
    }

    /// Its number, once it is ready to receive.
    pub fn number(&self) -> u32 {
        self.qp.number
    }

    /// The context.
    pub fn context(&self) -> &Arc<Mlx5Context> {
        &self.qp.context
    }

    /// The state that it was brought to.
    pub fn state(&self) -> QpState {
        self.state
    }

    /// What completions call it; `None` before it is ready to receive.
    pub fn key(&self) -> Option<u32> {
        self.entry.as_ref().map(Entry::key)
    }

    /// Options of enhanced connection establishment that the device offers or has accepted.
    pub fn ece(&self) -> u32 {
        self.ece.0
    }

    /// Options that the next [`modify`](Self::modify) asks for. `EOPNOTSUPP` if the kernel has none.
    pub fn set_ece(&mut self, options: u32) -> Result<(), Errno> {
        if !self.qp.context.limits().ece {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        self.ece = (0, options);
        Ok(())
    }

    /// Changes attributes, as far as `attr.base.attr_mask` goes; whose handle is set here.
    pub fn modify(&mut self, attr: &ExModifyQp) -> Result<(), Errno> {
        let mut request = *attr;
        request.base.qp_handle = self.qp.handle;
        let input = DriverModify {
            ece_options: self.ece.1,
            ..DriverModify::default()
        };
        let to = attr
            .base
            .attr_mask
            .contains(QpAttrMask::STATE)
            .then_some(attr.base.qp_state);
        let making = self.qp.context.making(Kind::Queue);
        let answer: ModifyQpResp = self.qp.context.uctx().modify_qp_ex_with(&request, &input)?;
        self.state = to.unwrap_or(self.state);
        if to != Some(QpState::RTR) || self.entry.is_some() {
            return Ok(());
        }
        let reaches = std::mem::offset_of!(ModifyQpResp, dctn) + size_of::<u32>();
        if (answer.response_length as usize) < reaches {
            return Err(Errno(libc::EINVAL));
        }
        self.qp.number = answer.dctn;
        if self.ece.1 != 0 {
            self.ece = (answer.ece_options, 0);
        }
        // SAFETY: there are no rings.
        let record = unsafe {
            QueueRecord::new(
                QueueKind::Dct,
                answer.dctn,
                self.cookie,
                None,
                ReceiveSide::shared(self.srq.clone()),
                None,
            )
        };
        let index = self.index.take();
        self.entry = Some(making.enter(index, answer.dctn, Arc::new(record), false)?);
        Ok(())
    }

    /// Destroys it in the kernel. Nothing has happened if that fails. Its completions are to be cleaned
    /// before the answer is dropped.
    pub fn destroy(&mut self) -> Result<Dying<'_>, Errno> {
        let making = self.qp.context.making(Kind::Queue);
        let events = if self.qp.destroyed {
            0
        } else {
            self.qp.context.uctx().destroy_qp(self.qp.handle)?
        };
        self.qp.destroyed = true;
        Ok(Dying::new(events, self.entry.as_mut(), making))
    }
}
