//! Queues of raw Ethernet packets: a queue that sends by a TIS, and one that receives what a TIR hands it.

use std::sync::Arc;

use wqe_format::mlx5::firmware::Opcode;
use wqe_format::mlx5::firmware::rq::{CreateRqIn, CreateRqOut, ModifyRqIn};
use wqe_format::mlx5::firmware::sq::{CreateSqIn, CreateSqOut, ModifySqIn};
use wqe_format::mlx5::firmware::tir::{CreateTirIn, CreateTirOut, Tirc};
use wqe_format::mlx5::firmware::tis::{CreateTisIn, CreateTisOut};
use wqe_format::mlx5::firmware::wq::Wq;

use super::Objects;
use super::cq::{CompletionQueue, with_pages};
use super::platform::Mapped;
use super::ring::Ring;
use crate::sys::errno::Errno;

/// `wq_type` of a queue whose entries follow each other (`mlx5_ifc.h` `MLX5_WQ_TYPE_CYCLIC`).
const CYCLIC: u8 = 1;
/// Packets are padded to whole cache lines (`MLX5_WQ_END_PAD_MODE_ALIGN`).
const PAD_TO_LINE: u8 = 1;
/// `modify_bitmask` of a send queue: its entry of the table of rates (Linux `modify_raw_packet_qp_sq`).
const RATE_LIMIT: u64 = 1;
/// Logarithm of the bytes of a block of sends.
const LOG_BLOCK: u8 = 6;
/// `ts_format` of a queue whose completions have real time.
const REAL_TIME: u8 = 2;

/// State of a queue (`MLX5_SQC_STATE_*`, `MLX5_RQC_STATE_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueueState {
    Reset = 0,
    Ready = 1,
    Error = 3,
}

/// Memory of a queue of either kind, and where it belongs.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) ring: Ring,
    pub(super) record_address: u64,
    pub(super) _record: Arc<Mapped>,
    pub(super) pd: u32,
    pub(super) cq: Arc<CompletionQueue>,
    pub(super) user_index: u32,
}

/// What is particular of a receive queue.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReceiveOptions {
    pub(super) log_entries: u8,
    /// Logarithm of the bytes of an entry.
    pub(super) log_entry: u8,
    pub(super) signature: bool,
    /// Tags of VLANs are taken out of packets.
    pub(super) strip_tags: bool,
    /// Packets keep their check.
    pub(super) with_check: bool,
    pub(super) padded: bool,
}

impl ReceiveOptions {
    /// A ring of `count` entries of 2^`shift` bytes, and its bytes. `EINVAL` if no receive queue has such a one.
    pub(super) fn ring(count: u32, shift: u32) -> Result<(Self, u64), Errno> {
        let bytes = u64::from(count).checked_shl(shift);
        match bytes {
            Some(bytes) if count.is_power_of_two() && (4..16).contains(&shift) => {
                let options = Self {
                    log_entries: count.trailing_zeros() as u8,
                    log_entry: shift as u8,
                    ..Self::default()
                };
                Ok((options, bytes))
            }
            _ => Err(Errno(libc::EINVAL)),
        }
    }
}

fn describe(wq: &mut Wq<&mut [u8]>, place: &Place) {
    wq.set_wq_type(CYCLIC)
        .set_pd(place.pd)
        .set_dbr_addr(place.record_address)
        .set_log_wq_pg_sz(place.ring.log_page_size())
        .set_page_offset(place.ring.page_offset());
}

impl Objects {
    /// The domain of this device's raw packets, made when the first queue needs it.
    pub(super) fn transport_domain(&self) -> Result<u32, Errno> {
        self.transport
            .get_or_make(|| self.run_for_number(Opcode::ALLOC_TRANSPORT_DOMAIN))
    }

    /// Makes what a send queue sends by.
    pub(super) fn create_tis(&self) -> Result<u32, Errno> {
        let mut command = CreateTisIn::zeroed();
        command.set_opcode(Opcode::CREATE_TIS.0);
        { command.ctx_mut() }.set_transport_domain(self.transport_domain()?);
        let mut output = CreateTisOut::zeroed();
        self.platform
            .execute(command.as_bytes(), output.as_bytes_mut())?;
        Ok(output.tisn())
    }

    /// Makes a send queue of so many blocks, in RESET.
    pub(super) fn create_sq(
        &self,
        place: &Place,
        tis: u32,
        uar: u32,
        log_blocks: u8,
    ) -> Result<u32, Errno> {
        let mut bytes = with_pages(CreateSqIn::SIZE, &place.ring);
        let mut command = CreateSqIn::new(&mut bytes[..]).map_err(|_| Errno(libc::EINVAL))?;
        command.set_opcode(Opcode::CREATE_SQ.0);
        let mut context = command.ctx_mut();
        context
            .set_flush_in_error_en(true)
            .set_cqn(place.cq.number)
            .set_user_index(place.user_index)
            .set_tis_lst_sz(1)
            .set_tis_num_0(tis);
        if self.caps.ethernet.multi_pkt_send_wqe() != 0 {
            context.set_allow_multi_pkt_send_wqe(true);
        }
        if self.caps.ethernet.swp() {
            context.set_allow_swp(true);
        }
        if place.cq.real_time {
            context.set_ts_format(REAL_TIME);
        }
        let mut wq = context.wq_mut();
        describe(&mut wq, place);
        wq.set_uar_page(uar)
            .set_log_wq_stride(LOG_BLOCK)
            .set_log_wq_sz(log_blocks);
        let mut output = CreateSqOut::zeroed();
        self.platform.execute(&bytes, output.as_bytes_mut())?;
        Ok(output.sqn())
    }

    /// Makes a receive queue, in RESET.
    pub(super) fn create_rq(&self, place: &Place, options: ReceiveOptions) -> Result<u32, Errno> {
        let mut bytes = with_pages(CreateRqIn::SIZE, &place.ring);
        let mut command = CreateRqIn::new(&mut bytes[..]).map_err(|_| Errno(libc::EINVAL))?;
        command.set_opcode(Opcode::CREATE_RQ.0);
        let mut context = command.ctx_mut();
        context
            .set_vsd(!options.strip_tags)
            .set_scatter_fcs(options.with_check)
            .set_flush_in_error_en(true)
            .set_cqn(place.cq.number)
            .set_user_index(place.user_index);
        if place.cq.real_time {
            context.set_ts_format(REAL_TIME);
        }
        let mut wq = context.wq_mut();
        describe(&mut wq, place);
        wq.set_wq_signature(options.signature)
            .set_log_wq_stride(options.log_entry)
            .set_log_wq_sz(options.log_entries);
        if options.padded {
            wq.set_end_padding_mode(PAD_TO_LINE);
        }
        let mut output = CreateRqOut::zeroed();
        self.platform.execute(&bytes, output.as_bytes_mut())?;
        Ok(output.rqn())
    }

    /// Takes a send queue from one state to another, and to an entry of the table of rates, if one is given.
    pub(super) fn modify_sq(
        &self,
        number: u32,
        from: QueueState,
        to: QueueState,
        rate: Option<u16>,
    ) -> Result<(), Errno> {
        let mut command = ModifySqIn::zeroed();
        command
            .set_opcode(Opcode::MODIFY_SQ.0)
            .set_sqn(number)
            .set_sq_state(from as u8);
        { command.ctx_mut() }.set_state(to as u8);
        if let Some(entry) = rate {
            command.set_modify_bitmask(RATE_LIMIT);
            { command.ctx_mut() }.set_packet_pacing_rate_limit_index(entry);
        }
        self.run_bytes::<16>(command.as_bytes()).map(drop)
    }

    /// Takes a receive queue from one state to another.
    pub(super) fn modify_rq(
        &self,
        number: u32,
        from: QueueState,
        to: QueueState,
    ) -> Result<(), Errno> {
        let mut command = ModifyRqIn::zeroed();
        command
            .set_opcode(Opcode::MODIFY_RQ.0)
            .set_rqn(number)
            .set_rq_state(from as u8);
        { command.ctx_mut() }.set_state(to as u8);
        self.run_bytes::<16>(command.as_bytes()).map(drop)
    }

    /// Makes what rules hand packets to; `describe` says which queues those go to.
    pub(super) fn create_tir(
        &self,
        describe: impl FnOnce(&mut Tirc<&mut [u8]>),
    ) -> Result<u32, Errno> {
        let mut command = CreateTirIn::zeroed();
        command.set_opcode(Opcode::CREATE_TIR.0);
        let mut context = command.ctx_mut();
        context.set_transport_domain(self.transport_domain()?);
        describe(&mut context);
        let mut output = CreateTirOut::zeroed();
        self.platform
            .execute(command.as_bytes(), output.as_bytes_mut())?;
        Ok(output.tirn())
    }
}
