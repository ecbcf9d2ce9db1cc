//! What the kernel answers when a context is made, checked.
//!
//! Sizes and counts from here go into address arithmetic, so each is compared with what any device can
//! have. A kernel that answers something else is refused in words: libmlx5 divides by a zero
//! `cache_line_size`.

use std::fmt;

use uverbs_abi::udata::mlx5::{
    AllocUcontextResp, AllocUcontextRespMask, CLOCK_INFO_V1, CmdsSuppUhw, FlowActionFlags,
    InlineMode,
};

use super::environment::{BFREGS_PER_UAR, UAR_SIZE};
use super::geometry::Limits;
use crate::sys::errno::Errno;

/// Bytes of an Ethernet header that devices want inside of a WQE, without a VLAN tag's last two
/// (`MLX5_ETH_L2_INLINE_HEADER_SIZE`).
const ETH_L2_INLINE: u32 = 18;

/// An answer of the kernel that no device can mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadResponse {
    /// The field, as `uapi rdma/mlx5-abi.h` calls it.
    pub field: &'static str,
    /// What it holds.
    pub value: u64,
}

impl fmt::Display for BadResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, value } = self;
        write!(f, "the kernel's mlx5 driver answered {field} = {value}")
    }
}

impl std::error::Error for BadResponse {}

impl From<BadResponse> for Errno {
    fn from(_: BadResponse) -> Self {
        Self(libc::EPROTO)
    }
}

/// How completions name their queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CqeVersion {
    /// By the queue's number.
    V0,
    /// By a number that the program chose.
    V1,
}

/// What a context can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextLimits {
    /// Of queues.
    pub limits: Limits,
    /// Bytes of a doorbell register, both halves; 0 without BlueFlame.
    pub bf_reg_size: u32,
    /// Registers that came with the context; 0 if they are made on demand.
    pub tot_bfregs: u32,
    /// Registers beyond those that thread domains may have.
    pub num_dyn_bfregs: u32,
    /// UARs in a page of the system.
    pub uars_per_page: u32,
    /// Bytes of a cache line, as the device sees it.
    pub cache_line_size: u32,
    /// Ports.
    pub num_ports: u8,
    /// How completions name their queues.
    pub cqe_version: CqeVersion,
    /// Bytes of an Ethernet header that must be inline.
    pub eth_min_inline: u32,
    /// Whether create_ah answers a MAC address, query_device the driver's part.
    pub commands: CmdsSuppUhw,
    /// Key of memory that is not there.
    pub dump_fill_mkey: Option<u32>,
    /// Where the device's clock is in its page.
    pub core_clock_offset: Option<u64>,
    /// Whether there is a page for turning its time into wall-clock time.
    pub clock_info: bool,
    /// Enhanced connection establishment.
    pub ece: bool,
    /// A queue pair can be drained and go on (signature pipelining needs it).
    pub sqd2rts: bool,
    /// Completion queues may have real-time timestamps.
    pub real_time_ts: bool,
    /// Memory keys may have their tag updated.
    pub mkey_update_tag: bool,
    /// Encryption in flow rules.
    pub flow_actions: FlowActionFlags,
}

impl ContextLimits {
    /// Checks an answer.
    pub fn new(resp: &AllocUcontextResp, page_size: usize) -> Result<Self, BadResponse> {
        let check = |good: bool, field: &'static str, value: u64| {
            good.then_some(()).ok_or(BadResponse { field, value })
        };
        let line = resp.cache_line_size;
        check(
            line.is_power_of_two() && line >= 8 && line as usize <= page_size,
            "cache_line_size",
            line.into(),
        )?;
        // halves are whole basic blocks, and both registers lie in the second half of the UAR
        let register = resp.bf_reg_size;
        check(
            register == 0 || register.is_power_of_two() && (128..=1024).contains(&register),
            "bf_reg_size",
            register.into(),
        )?;
        // longest WQEs known are 1024 and 2048 bytes; `ds` counts 63 units of 16 bytes
        check(
            (64..=4096).contains(&resp.max_sq_desc_sz),
            "max_sq_desc_sz",
            resp.max_sq_desc_sz.into(),
        )?;
        check(
            (32..=32768).contains(&resp.max_rq_desc_sz),
            "max_rq_desc_sz",
            resp.max_rq_desc_sz.into(),
        )?;
        for (field, value) in [
            ("max_send_wqebb", resp.max_send_wqebb),
            ("max_recv_wr", resp.max_recv_wr),
            ("max_srq_recv_wr", resp.max_srq_recv_wr),
        ] {
            check((1..=1 << 24).contains(&value), field, value.into())?;
        }
        let ports = u8::try_from(resp.num_ports).ok().filter(|ports| *ports > 0);
        let ports = ports.ok_or(BadResponse {
            field: "num_ports",
            value: resp.num_ports.into(),
        })?;
        let uars = match (resp.log_uar_size, resp.num_uars_per_page) {
            // a kernel that does not know the fields: one page of the system is one UAR
            (0, 0) => 1,
            (log, uars) => {
                check(
                    log as usize == UAR_SIZE.ilog2() as usize || uars == 1,
                    "log_uar_size",
                    log.into(),
                )?;
                let bytes = u64::from(uars) * UAR_SIZE as u64;
                check(
                    uars > 0 && bytes <= page_size as u64,
                    "num_uars_per_page",
                    uars.into(),
                )?;
                uars
            }
        };
        check(
            resp.tot_bfregs <= 1 << 10 && resp.tot_bfregs.is_multiple_of(uars * BFREGS_PER_UAR),
            "tot_bfregs",
            resp.tot_bfregs.into(),
        )?;
        let cqe_version = match resp.cqe_version {
            0 => CqeVersion::V0,
            1 => CqeVersion::V1,
            other => {
                return Err(BadResponse {
                    field: "cqe_version",
                    value: other.into(),
                });
            }
        };
        let has = |bit| resp.comp_mask.contains(bit);
        let core_clock_offset = has(AllocUcontextRespMask::CORE_CLOCK_OFFSET)
            // the page is mapped by a command of its own; what counts is the place in it
            .then_some(resp.hca_core_clock_offset % page_size as u64)
            .filter(|offset| offset.is_multiple_of(8));
        Ok(Self {
            limits: Limits {
                max_sq_desc_sz: resp.max_sq_desc_sz.into(),
                max_rq_desc_sz: resp.max_rq_desc_sz.into(),
                max_send_wqebb: resp.max_send_wqebb,
                max_recv_wr: resp.max_recv_wr,
                max_srq_recv_wr: resp.max_srq_recv_wr,
            },
            bf_reg_size: register,
            tot_bfregs: resp.tot_bfregs,
            num_dyn_bfregs: resp.num_dyn_bfregs,
            uars_per_page: uars,
            cache_line_size: line,
            num_ports: ports,
            cqe_version,
            eth_min_inline: match resp.eth_min_inline {
                InlineMode::NONE => 0,
                _ => ETH_L2_INLINE,
            },
            commands: resp.cmds_supp_uhw,
            dump_fill_mkey: has(AllocUcontextRespMask::DUMP_FILL_MKEY)
                .then_some(resp.dump_fill_mkey),
            core_clock_offset,
            clock_info: resp.clock_info_versions & (1 << CLOCK_INFO_V1) != 0,
            ece: has(AllocUcontextRespMask::ECE),
            sqd2rts: has(AllocUcontextRespMask::SQD2RTS),
            real_time_ts: has(AllocUcontextRespMask::REAL_TIME_TS),
            mkey_update_tag: has(AllocUcontextRespMask::MKEY_UPDATE_TAG),
            flow_actions: resp.flow_action_flags,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use zerocopy::FromBytes;

    use super::*;

    /// What Linux answers on a ConnectX-5.
    fn usual() -> AllocUcontextResp {
        AllocUcontextResp {
            qp_tab_size: 1 << 18,
            bf_reg_size: 512,
            cache_line_size: 64,
            max_sq_desc_sz: 1024,
            max_rq_desc_sz: 512,
            max_send_wqebb: 1 << 15,
            max_recv_wr: 1 << 15,
            max_srq_recv_wr: 1 << 15,
            num_ports: 1,
            comp_mask: AllocUcontextRespMask(0x3f),
            response_length: 72,
            cqe_version: 1,
            cmds_supp_uhw: CmdsSuppUhw(3),
            eth_min_inline: InlineMode::NONE,
            clock_info_versions: 1,
            hca_core_clock_offset: 0x1008,
            log_uar_size: 12,
            num_uars_per_page: 1,
            dump_fill_mkey: 0x4711,
            ..AllocUcontextResp::default()
        }
    }

    #[test]
    fn the_usual_answer() {
        let limits = ContextLimits::new(&usual(), 4096).unwrap();
        assert_eq!(limits.core_clock_offset, Some(8));
        assert_eq!(limits.dump_fill_mkey, Some(0x4711));
        assert_eq!((limits.eth_min_inline, limits.uars_per_page), (0, 1));
        assert!(limits.ece && limits.clock_info);
    }

    #[test]
    fn older_kernels() {
        let old = AllocUcontextResp {
            comp_mask: AllocUcontextRespMask::NONE,
            log_uar_size: 0,
            num_uars_per_page: 0,
            tot_bfregs: 16,
            cqe_version: 0,
            eth_min_inline: InlineMode::NA,
            clock_info_versions: 0,
            ..usual()
        };
        let limits = ContextLimits::new(&old, 65536).unwrap();
        assert_eq!(limits.cqe_version, CqeVersion::V0);
        assert_eq!((limits.uars_per_page, limits.eth_min_inline), (1, 18));
        assert_eq!(
            (limits.core_clock_offset, limits.dump_fill_mkey),
            (None, None)
        );
        // no BlueFlame is no error
        let none = AllocUcontextResp {
            bf_reg_size: 0,
            ..old
        };
        assert_eq!(ContextLimits::new(&none, 4096).unwrap().bf_reg_size, 0);
    }

    #[test]
    fn what_no_device_can_mean_is_refused() {
        let refused = |change: fn(&mut AllocUcontextResp)| {
            let mut resp = usual();
            change(&mut resp);
            ContextLimits::new(&resp, 4096).unwrap_err().field
        };
        assert_eq!(refused(|r| r.cache_line_size = 0), "cache_line_size");
        assert_eq!(refused(|r| r.cache_line_size = 96), "cache_line_size");
        assert_eq!(refused(|r| r.bf_reg_size = 500), "bf_reg_size");
        assert_eq!(refused(|r| r.bf_reg_size = 1 << 20), "bf_reg_size");
        assert_eq!(refused(|r| r.max_sq_desc_sz = 16), "max_sq_desc_sz");
        assert_eq!(refused(|r| r.max_rq_desc_sz = 0), "max_rq_desc_sz");
        assert_eq!(refused(|r| r.max_send_wqebb = 0), "max_send_wqebb");
        assert_eq!(refused(|r| r.max_recv_wr = u32::MAX), "max_recv_wr");
        assert_eq!(refused(|r| r.num_ports = 0), "num_ports");
        assert_eq!(refused(|r| r.num_ports = 256), "num_ports");
        assert_eq!(refused(|r| r.num_uars_per_page = 2), "num_uars_per_page");
        assert_eq!(refused(|r| r.tot_bfregs = 3), "tot_bfregs");
        assert_eq!(refused(|r| r.tot_bfregs = 1 << 20), "tot_bfregs");
        assert_eq!(refused(|r| r.cqe_version = 2), "cqe_version");
        let error = ContextLimits::new(&AllocUcontextResp::default(), 4096).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the kernel's mlx5 driver answered cache_line_size = 0"
        );
        assert_eq!(Errno::from(error), Errno(libc::EPROTO));
    }

    proptest! {
        /// No answer makes the check itself fail.
        #[test]
        fn any_answer_is_checked(bytes in any::<[u8; 32]>(), more in any::<[u8; 32]>(), last in any::<[u8; 8]>()) {
            let all = [&bytes[..], &more[..], &last[..]].concat();
            let resp = AllocUcontextResp::read_from_bytes(&all).unwrap();
            let _ = ContextLimits::new(&resp, 4096);
        }
    }
}
