//! Making a context.

use std::os::fd::RawFd;

use oxverbs::sys::Errno;
use uverbs_abi::udata::mlx5 as udata;
use zerocopy::{FromBytes, IntoBytes};

use super::clock;
use super::device;
use super::uar::Uars;
use crate::config::Link;
use crate::request::Uhw;
use crate::state::State;

const EINVAL: Errno = Errno(libc::EINVAL);
const EOPNOTSUPP: Errno = Errno(libc::EOPNOTSUPP);

/// Bytes of the request before `max_cqe_version` was added.
const REQUEST_V1: usize = 8;

/// What mlx5 keeps of an open device file.
#[derive(Debug, Default)]
pub(crate) struct Ucontext {
    pub(crate) uars: Uars,
    /// Whether DEVX objects may be made.
    pub(crate) has_devx: bool,
    /// What was answered, for a process that is given the file.
    pub(crate) answer: udata::AllocUcontextResp,
    /// The page with the clock, which this side writes.
    pub(crate) clock: Option<clock::Page>,
}

/// `mlx5_ib_alloc_ucontext`.
pub(crate) fn alloc(st: &mut State, fd: RawFd, uhw: &Uhw<'_>) -> Result<Vec<u8>, Errno> {
    let config = st.config.mlx5;
    let (request, knows_cqe_version) = parse_request(uhw.input)?;
    if request.comp_mask != 0 || !udata::AllocUcontextFlags::DEVX.contains(request.flags) {
        return Err(EOPNOTSUPP);
    }
    let has_devx = request.flags.contains(udata::AllocUcontextFlags::DEVX);
    if has_devx && !config.has_devx {
        return Err(EINVAL);
    }
    let asked = request.total_num_bfregs.next_multiple_of(2);
    if asked == 0 || asked > 512 * 2 || request.num_low_latency_bfregs > asked - 1 {
        return Err(EINVAL);
    }
    let mut ucontext = Ucontext {
        has_devx,
        ..Ucontext::default()
    };
    let is_dynamic =
        config.tot_bfregs.is_none() && request.lib_caps.contains(udata::LibCaps::DYN_UAR);
    let mut tot_bfregs = 0;
    if !is_dynamic {
        let most = config.tot_bfregs.unwrap_or(asked).next_multiple_of(2);
        tot_bfregs = asked.min(most.max(2));
        for _ in 0..tot_bfregs / 2 {
            let page_id = st.device(fd)?.mlx5.next_uar();
            ucontext.uars.add_fixed(fd, page_id)?;
        }
        ucontext.uars.low_latency = request.num_low_latency_bfregs.min(tot_bfregs - 1);
        // As many as virtual functions of the device (`calc_dynamic_bfregs`).
        ucontext.uars.most_added = 256;
    }
    let mut answer = udata::AllocUcontextResp {
        qp_tab_size: 1 << 18,
        bf_reg_size: if config.has_blue_flame { 512 } else { 0 },
        tot_bfregs,
        cache_line_size: config.cache_line,
        max_sq_desc_sz: device::MAX_SQ_DESC,
        max_rq_desc_sz: device::MAX_RQ_DESC,
        max_send_wqebb: device::MAX_SEND_WQEBB,
        max_recv_wr: device::MAX_RECV_WR,
        max_srq_recv_wr: device::MAX_RECV_WR,
        num_ports: 1,
        comp_mask: udata::AllocUcontextRespMask::ECE
            | udata::AllocUcontextRespMask::SQD2RTS
            | udata::AllocUcontextRespMask::MKEY_UPDATE_TAG,
        response_length: size_of::<udata::AllocUcontextResp>() as u32,
        cmds_supp_uhw: udata::CmdsSuppUhw::QUERY_DEVICE,
        log_uar_size: 12,
        num_uars_per_page: 1,
        num_dyn_bfregs: ucontext.uars.most_added * 2,
        ..Default::default()
    };
    if knows_cqe_version {
        answer.cqe_version = request.max_cqe_version.min(config.cqe_version);
    }
    if config.has_ah_udata {
        answer.cmds_supp_uhw |= udata::CmdsSuppUhw::CREATE_AH;
    }
    if config.link == Link::Ethernet {
        answer.eth_min_inline = udata::InlineMode(config.eth_min_inline);
    }
    if config.has_clock {
        answer.comp_mask |= udata::AllocUcontextRespMask::CORE_CLOCK_OFFSET;
        answer.comp_mask |= udata::AllocUcontextRespMask::REAL_TIME_TS;
        answer.hca_core_clock_offset = clock::CORE_CLOCK_OFFSET;
        answer.clock_info_versions = 1 << udata::CLOCK_INFO_V1;
        ucontext.clock = Some(clock::Page::new(fd)?);
    }
    if config.has_dump_fill_mkey {
        answer.comp_mask |= udata::AllocUcontextRespMask::DUMP_FILL_MKEY;
        answer.dump_fill_mkey = DUMP_FILL_MKEY;
    }
    ucontext.answer = answer;
    st.context(fd)?.mlx5 = ucontext;
    // A program with a shorter struct gets what fits (`min(udata->outlen, sizeof(resp))`).
    let mut bytes = answer.as_bytes().to_vec();
    bytes.truncate(uhw.room);
    Ok(bytes)
}

/// A key that reads as a fill pattern and swallows writes.
pub(crate) const DUMP_FILL_MKEY: u32 = 0x0000_0700;

/// The request in whichever length, and whether it is so young as to know versions of completions.
fn parse_request(input: &[u8]) -> Result<(udata::AllocUcontextReqV2, bool), Errno> {
    let full = size_of::<udata::AllocUcontextReqV2>();
    let least = udata::AllocUcontextReqV2::LENGTHS[2] + 1;
    if input.len() != REQUEST_V1 && input.len() < least {
        return Err(EINVAL);
    }
    let mut bytes = input.to_vec();
    // What this kernel does not know must be zero (`ib_is_udata_cleared`).
    if bytes.iter().skip(full).any(|byte| *byte != 0) {
        return Err(EOPNOTSUPP);
    }
    bytes.resize(full, 0);
    let request = udata::AllocUcontextReqV2::read_from_bytes(&bytes).map_err(|_| EINVAL)?;
    let is_clear =
        request.reserved0.is_zero() && request.reserved1.is_zero() && request.reserved2.is_zero();
    if !is_clear {
        return Err(EOPNOTSUPP);
    }
    Ok((request, input.len() != REQUEST_V1))
}
