//! Devices: whether they are ours, opening, and what they can do.

use std::ffi::{c_char, c_int, c_void};
use std::{ptr, slice};

use oxverbs::ffi_core::Errno;
use oxverbs::ffi_core::mlx5_control::response::CqeVersion;
use oxverbs::ffi_core::uverbs_abi::udata::mlx5::{MpwCaps, QueryDeviceFlags};
use oxverbs::ffi_core::wqe_format::mlx5::firmware::caps::CapType;

use zerocopy::IntoBytes;

use super::caps::Caps;
use super::{EOPNOTSUPP, is_ours, ours};
use crate::abi::dv::{
    mlx5dv_clock_info, mlx5dv_context, mlx5dv_context_attr, mlx5dv_cqe_comp_caps,
    mlx5dv_crypto_caps, mlx5dv_dci_streams_caps, mlx5dv_ooo_recv_wrs_caps, mlx5dv_reg,
    mlx5dv_sig_caps, mlx5dv_striding_rq_caps, mlx5dv_sw_parsing_caps,
};
use crate::abi::objects::{ibv_context, ibv_device};
use crate::door::{control, guarded};
use crate::library::library;
use crate::mlx5::Mlx5;

#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_is_supported(device: *mut ibv_device) -> bool {
    // SAFETY: the caller's device.
    guarded("mlx5dv_is_supported", || unsafe { is_ours(device) }).unwrap_or(false)
}

/// `MLX5DV_CONTEXT_FLAGS_DEVX` of `mlx5dv_context_attr`.
const WANT_DEVX: u32 = 1;

#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_open_device(
    device: *mut ibv_device,
    attr: *const mlx5dv_context_attr,
) -> *mut ibv_context {
    control("mlx5dv_open_device", || {
        // SAFETY: the caller's device.
        if !unsafe { is_ours(device) } {
            return Err(EOPNOTSUPP);
        }
        // SAFETY: null, or the caller's attributes.
        let (flags, mask) = unsafe { attr.as_ref() }
            .map(|attr| (attr.flags, attr.comp_mask))
            .unwrap_or_default();
        // The descriptors of release 57's control contexts are not handed on.
        if flags & !WANT_DEVX != 0 || mask != 0 {
            return Err(Errno(libc::EINVAL));
        }
        let open = library().and_then(|library| library.open_device());
        let open = open.ok_or(EOPNOTSUPP)?;
        // SAFETY: libibverbs' own function for its own device; our `alloc_context` does not look at the second argument.
        let context = unsafe { open(device, ptr::null_mut()) };
        if context.is_null() {
            return Err(Errno::last());
        }
        // SAFETY: just opened.
        let opened = unsafe { ours(context) };
        if flags & WANT_DEVX != 0 && !opened.is_ok_and(|ours| ours.context().has_devx()) {
            if let Some(close) = library().and_then(|library| library.close_device()) {
                // SAFETY: the new context, which nobody else knows.
                unsafe { close(context) };
            }
            return Err(EOPNOTSUPP);
        }
        Ok(context)
    })
}

/// `enum mlx5dv_context_flags`.
mod flag {
    pub(super) const CQE_V1: u64 = 1;
    pub(super) const MPW_ALLOWED: u64 = 1 << 2;
    pub(super) const ENHANCED_MPW: u64 = 1 << 3;
    pub(super) const CQE_128B_COMP: u64 = 1 << 4;
    pub(super) const CQE_128B_PAD: u64 = 1 << 5;
    pub(super) const PACKET_BASED_CREDIT_MODE: u64 = 1 << 6;
    pub(super) const REAL_TIME_TS: u64 = 1 << 7;
    /// Since release 58.
    pub(super) const BLUEFLAME: u64 = 1 << 8;
}

/// `enum mlx5dv_context_comp_mask`.
mod mask {
    pub(super) const CQE_COMPRESION: u64 = 1;
    pub(super) const SWP: u64 = 1 << 1;
    pub(super) const STRIDING_RQ: u64 = 1 << 2;
    pub(super) const TUNNEL_OFFLOADS: u64 = 1 << 3;
    pub(super) const DYN_BFREGS: u64 = 1 << 4;
    pub(super) const CLOCK_INFO_UPDATE: u64 = 1 << 5;
    pub(super) const FLOW_ACTION_FLAGS: u64 = 1 << 6;
    pub(super) const DC_ODP_CAPS: u64 = 1 << 7;
    pub(super) const HCA_CORE_CLOCK: u64 = 1 << 8;
    pub(super) const NUM_LAG_PORTS: u64 = 1 << 9;
    pub(super) const SIGNATURE_OFFLOAD: u64 = 1 << 10;
    pub(super) const DCI_STREAMS: u64 = 1 << 11;
    pub(super) const WR_MEMCPY_LENGTH: u64 = 1 << 12;
    pub(super) const CRYPTO_OFFLOAD: u64 = 1 << 13;
    pub(super) const MAX_DC_RD_ATOM: u64 = 1 << 14;
    pub(super) const REG_C0: u64 = 1 << 15;
    pub(super) const OOO_RECV_WRS: u64 = 1 << 16;
    /// What only the firmware tells, as general capabilities.
    pub(super) const GENERAL: u64 = NUM_LAG_PORTS
        | SIGNATURE_OFFLOAD
        | WR_MEMCPY_LENGTH
        | CRYPTO_OFFLOAD
        | MAX_DC_RD_ATOM
        | OOO_RECV_WRS;
}

fn flags(device: &Mlx5) -> u64 {
    let context = device.context();
    let (limits, attr) = (context.limits(), context.device());
    let mpw = attr.mlx5_ib_support_multi_pkt_send_wqes;
    // The bit is reserved before release 58, and programs look at it from then on.
    let since_58 = library().is_some_and(|library| library.layout.release >= 58);
    [
        (limits.cqe_version == CqeVersion::V1, flag::CQE_V1),
        (mpw.contains(MpwCaps::ALLOW_MPW), flag::MPW_ALLOWED),
        (mpw.contains(MpwCaps::SUPPORT_EMPW), flag::ENHANCED_MPW),
        (
            attr.flags.contains(QueryDeviceFlags::CQE_128B_COMP),
            flag::CQE_128B_COMP,
        ),
        (
            attr.flags.contains(QueryDeviceFlags::CQE_128B_PAD),
            flag::CQE_128B_PAD,
        ),
        (
            attr.flags
                .contains(QueryDeviceFlags::PACKET_BASED_CREDIT_MODE),
            flag::PACKET_BASED_CREDIT_MODE,
        ),
        (limits.real_time_ts, flag::REAL_TIME_TS),
        (since_58 && limits.bf_reg_size != 0, flag::BLUEFLAME),
    ]
    .into_iter()
    .filter_map(|(has, flag)| has.then_some(flag))
    .sum()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_query_device(
    context: *mut ibv_context,
    attrs: *mut mlx5dv_context,
) -> c_int {
    control("mlx5dv_query_device", || {
        // SAFETY: an open context by the verb's contract.
        let device = unsafe { ours(context) }?;
        // Older programs have less room; what the mask does not ask for is not touched.
        // SAFETY: the caller's struct, whose mask is in all releases.
        let asked = unsafe { (*attrs).comp_mask };
        let mut given = 0;
        // SAFETY: as above.
        unsafe { (*attrs).version = 0 };
        // SAFETY: as above.
        unsafe { (*attrs).flags = flags(device) };
        macro_rules! give {
            ($bit:ident, $($field:ident = $value:expr),* $(,)?) => {
                if asked & mask::$bit != 0 {
                    $({
                        let value = $value;
                        // SAFETY: the caller asked for the field, so has room for it.
                        unsafe { (*attrs).$field = value };
                    })*
                    given |= mask::$bit;
                }
            };
        }
        let core = device.context();
        let (limits, attr) = (core.limits(), core.device());
        give!(
            CQE_COMPRESION,
            cqe_comp_caps = mlx5dv_cqe_comp_caps {
                max_num: attr.cqe_comp_caps.max_num,
                supported_format: attr.cqe_comp_caps.supported_format.0,
            }
        );
        give!(
            SWP,
            sw_parsing_caps = mlx5dv_sw_parsing_caps {
                sw_parsing_offloads: attr.sw_parsing_caps.sw_parsing_offloads.0,
                supported_qpts: attr.sw_parsing_caps.supported_qpts,
            }
        );
        let striding = &attr.striding_rq_caps;
        give!(
            STRIDING_RQ,
            striding_rq_caps = mlx5dv_striding_rq_caps {
                min_single_stride_log_num_of_bytes: striding.min_single_stride_log_num_of_bytes,
                max_single_stride_log_num_of_bytes: striding.max_single_stride_log_num_of_bytes,
                min_single_wqe_log_num_of_strides: striding.min_single_wqe_log_num_of_strides,
                max_single_wqe_log_num_of_strides: striding.max_single_wqe_log_num_of_strides,
                supported_qpts: striding.supported_qpts,
            }
        );
        give!(
            TUNNEL_OFFLOADS,
            tunnel_offloads_caps = attr.tunnel_offloads_caps.0
        );
        give!(
            DCI_STREAMS,
            dci_streams_caps = mlx5dv_dci_streams_caps {
                max_log_num_concurent: attr.dci_streams_caps.max_log_num_concurent,
                max_log_num_errored: attr.dci_streams_caps.max_log_num_errored,
            }
        );
        give!(DYN_BFREGS, max_dynamic_bfregs = limits.num_dyn_bfregs);
        if let Some((page, _mapping)) = core.clock_page() {
            give!(
                CLOCK_INFO_UPDATE,
                max_clock_info_update_nsec = page.overflow_period()
            );
        }
        give!(
            FLOW_ACTION_FLAGS,
            flow_action_flags = limits.flow_actions.0.into()
        );
        give!(DC_ODP_CAPS, dc_odp_caps = dc_odp_caps(device));
        if let Some(clock) = core.clock_register() {
            give!(
                HCA_CORE_CLOCK,
                hca_core_clock = clock.as_ptr().cast::<c_void>()
            );
        }
        if attr.reg_c0.mask != 0 {
            give!(
                REG_C0,
                reg_c0 = mlx5dv_reg {
                    value: attr.reg_c0.value,
                    mask: attr.reg_c0.mask,
                }
            );
        }
        if asked & mask::GENERAL != 0 {
            let general = General::of(device);
            if general.num_lag_ports != 0 {
                give!(NUM_LAG_PORTS, num_lag_ports = general.num_lag_ports);
            }
            give!(SIGNATURE_OFFLOAD, sig_caps = general.signature);
            give!(WR_MEMCPY_LENGTH, max_wr_memcpy_length = general.max_copy);
            give!(CRYPTO_OFFLOAD, crypto_caps = NO_CRYPTO);
            give!(
                MAX_DC_RD_ATOM,
                max_dc_rd_atom = general.max_dc_rd_atom,
                max_dc_init_rd_atom = general.max_dc_init_rd_atom,
            );
            if attr.flags.contains(QueryDeviceFlags::OOO_DP) {
                // None of ours takes receives out of order yet.
                give!(OOO_RECV_WRS, ooo_recv_wrs_caps = NO_DISORDER);
            }
        }
        // SAFETY: the caller's struct.
        unsafe { (*attrs).comp_mask = given };
        Ok(())
    })
}

/// Encryption is not offered, whatever the device can do.
const NO_CRYPTO: mlx5dv_crypto_caps = mlx5dv_crypto_caps {
    failed_selftests: 0,
    crypto_engines: 0,
    wrapped_import_method: 0,
    log_max_num_deks: 0,
    flags: 0,
};
const NO_DISORDER: mlx5dv_ooo_recv_wrs_caps = mlx5dv_ooo_recv_wrs_caps {
    max_rc: 0,
    max_xrc: 0,
    max_dct: 0,
    max_ud: 0,
    max_uc: 0,
};

/// General capabilities as `mlx5dv.h` has them.
#[derive(Debug)]
struct General {
    num_lag_ports: u8,
    signature: mlx5dv_sig_caps,
    /// Bytes that the device copies by one work request.
    max_copy: usize,
    max_dc_rd_atom: u64,
    max_dc_init_rd_atom: u64,
}

/// How work requests copy memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Copying {
    /// Bytes that one copies at most; 0 if none does.
    pub(crate) max: usize,
    /// Whether a queue pair copies only once the firmware is told of it.
    pub(crate) enabled_by_queue_pair: bool,
}

/// Bytes copied by one work request where the firmware does not say (rdma-core `MLX5_DMA_MMO_MAX_SIZE`).
const MAX_COPY: usize = 1 << 31;

impl Copying {
    /// From `mlx5_ifc.h`, `cmd_hca_cap`: `dma_mmo_sq`, `dma_mmo_qp`, `log_dma_mmo_max_size`.
    fn from(caps: Option<&Caps>) -> Self {
        let has = |bit| caps.is_some_and(|caps| caps.has(bit));
        let enabled_by_queue_pair = has(0x748);
        let max = match (
            has(0x153) || enabled_by_queue_pair,
            caps.map_or(0, |caps| caps.bits(0x6b, 5)),
        ) {
            (false, _) => 0,
            (true, 0) => MAX_COPY,
            (true, log) => 1 << log,
        };
        Self {
            max,
            enabled_by_queue_pair,
        }
    }

    /// What a device can.
    pub(crate) fn of(device: &Mlx5) -> Self {
        Self::from(Caps::of(device.context().uctx(), CapType::GENERAL).as_ref())
    }
}

impl General {
    /// All from `mlx5_ifc.h`, `cmd_hca_cap`; nothing without DEVX.
    fn of(device: &Mlx5) -> Self {
        let caps = Caps::of(device.context().uctx(), CapType::GENERAL);
        let bits = |first, width| caps.as_ref().map_or(0, |caps| caps.bits(first, width));
        let has = |bit| caps.as_ref().is_some_and(|caps| caps.has(bit));
        Self {
            num_lag_ports: bits(0x27c, 4),
            signature: if caps.as_ref().is_some_and(Caps::have_signatures) {
                mlx5dv_sig_caps {
                    // 512, 520, 4096 and 4160 bytes always; 4048
                    block_size: 0b11011 | u64::from(has(0x1f0)) << 2,
                    // T10-DIF and CRC, the former's guard as CRC or checksum
                    block_prot: 0b11,
                    t10dif_bg: 0b11,
                    // CRC32 always; CRC32C, CRC64-XP10
                    crc_type: 1 | u16::from(has(0x148)) << 1 | u16::from(has(0x147)) << 2,
                }
            } else {
                mlx5dv_sig_caps {
                    block_size: 0,
                    block_prot: 0,
                    t10dif_bg: 0,
                    crc_type: 0,
                }
            },
            max_copy: Copying::from(caps.as_ref()).max,
            // Without capabilities, none; with them, at least one.
            max_dc_rd_atom: u64::from(caps.is_some()) << bits(0x12a, 6).min(63),
            max_dc_init_rd_atom: u64::from(caps.is_some()) << bits(0x13a, 6).min(63),
        }
    }
}

impl Caps {
    /// General ones: whether work requests say how keys' data are signed (`mlx5_ifc.h`, `cmd_hca_cap`: `sho`,
    /// `sigerr_domain_and_sig_type`).
    fn have_signatures(&self) -> bool {
        self.has(0x217) && self.has(0x480)
    }
}

/// Whether keys may have signatures.
pub(super) fn has_signatures(device: &Mlx5) -> bool {
    Caps::of(device.context().uctx(), CapType::GENERAL).is_some_and(|caps| caps.have_signatures())
}

/// On-demand paging of dynamic connections, as `enum ibv_odp_transport_cap_bits`: send, receive, write, read, atomic, SRQ
/// receive are its bits 0 to 5; the device counts send, receive, write, read, atomic, SRQ receive from bit 0x100 of the ODP
/// capabilities on (`mlx5_ifc.h`, `odp_per_transport_service_cap`).
fn dc_odp_caps(device: &Mlx5) -> u32 {
    let Some(caps) = Caps::of(device.context().uctx(), CapType::ODP) else {
        return 0;
    };
    (0..6)
        .filter(|bit| caps.has(0x100 + bit))
        .map(|bit| 1 << bit)
        .sum()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_get_clock_info(
    context: *mut ibv_context,
    info: *mut mlx5dv_clock_info,
) -> c_int {
    control("mlx5dv_get_clock_info", || {
        // SAFETY: an open context by the verb's contract.
        let device = unsafe { ours(context) }?;
        let (page, _mapping) = device.context().clock_page().ok_or(Errno(libc::EINVAL))?;
        let read = page.read().map_err(|_| Errno(libc::EBUSY))?;
        let answer = mlx5dv_clock_info {
            nsec: read.nsec,
            last_cycles: read.last_cycles,
            frac: read.frac,
            mult: read.mult,
            shift: read.shift,
            mask: read.mask,
        };
        // SAFETY: the caller's memory; the struct has not grown.
        unsafe { info.write(answer) };
        Ok(())
    })
}

/// A port as the eswitch knows it (`struct mlx5dv_port`, which is the kernel's `mlx5_ib_uapi_query_port`).
#[unsafe(no_mangle)]
unsafe extern "C" fn _mlx5dv_query_port(
    context: *mut ibv_context,
    port: u32,
    info: *mut c_void,
    len: usize,
) -> c_int {
    control("mlx5dv_query_port", || {
        // SAFETY: an open context by the verb's contract.
        let device = unsafe { ours(context) }?;
        let answer = device.context().uctx().query_port_mlx5(port)?;
        let bytes = answer.as_bytes();
        let room = bytes.len().min(len);
        // SAFETY: the caller has `len` bytes, and no more are written.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), info.cast(), room) };
        // What the kernel does not know is not there.
        // SAFETY: as above; the rest of them.
        unsafe { ptr::write_bytes(info.cast::<u8>().wrapping_add(room), 0, len - room) };
        Ok(())
    })
}

/// Where in sysfs the device's own path to memory is (release 56).
#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_get_data_direct_sysfs_path(
    context: *mut ibv_context,
    path: *mut c_char,
    len: usize,
) -> c_int {
    control("mlx5dv_get_data_direct_sysfs_path", || {
        // SAFETY: an open context by the verb's contract.
        let device = unsafe { ours(context) }?;
        if path.is_null() {
            return Err(Errno(libc::EINVAL));
        }
        // SAFETY: the caller's memory, of that length, which it does not use meanwhile.
        let path = unsafe { slice::from_raw_parts_mut(path.cast::<u8>(), len) };
        device.context().uctx().data_direct_path(path)
    })
}
