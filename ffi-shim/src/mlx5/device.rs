//! Device attributes and the device's clock.

use std::ffi::c_int;

use oxverbs::ffi_core::Errno;
use oxverbs::ffi_core::uverbs_abi::udata::mlx5::QueryDeviceResp;

use crate::abi::attr::{ibv_device_attr_ex, ibv_values_ex};
use crate::abi::objects::ibv_context;
use crate::common::device::{attributes, give_attributes, put_text, query};
use crate::context::family;
use crate::door::control;
use crate::mlx5::Mlx5;

pub(crate) unsafe extern "C" fn query_device_ex(
    context: *mut ibv_context,
    input: *const u32,
    attr: *mut ibv_device_attr_ex,
    attr_size: usize,
) -> c_int {
    control("query_device", || {
        // SAFETY: the caller's arguments.
        let (core, driver) = unsafe { query::<QueryDeviceResp>(context, input, attr_size) }?;
        let mut to = attributes(&core);
        let version = core.base.fw_ver;
        put_text(
            &mut to.orig_attr.fw_ver,
            format_args!(
                "{}.{}.{:04}",
                version >> 32 & 0xffff,
                version >> 16 & 0xffff,
                version & 0xffff
            ),
        );
        to.tso_caps.max_tso = driver.tso_caps.max_tso;
        to.tso_caps.supported_qpts = driver.tso_caps.supported_qpts;
        to.rss_caps.rx_hash_fields_mask = driver.rss_caps.rx_hash_fields_mask.0;
        to.rss_caps.rx_hash_function = driver.rss_caps.rx_hash_function.0;
        let pacing = &driver.packet_pacing_caps;
        to.packet_pacing_caps.qp_rate_limit_min = pacing.qp_rate_limit_min;
        to.packet_pacing_caps.qp_rate_limit_max = pacing.qp_rate_limit_max;
        to.packet_pacing_caps.supported_qpts = pacing.supported_qpts;
        // SAFETY: the caller has `attr_size` bytes; `attributes` zeroes what it returns.
        unsafe { give_attributes(&to, attr, attr_size) };
        Ok(())
    })
}

/// `IBV_VALUES_MASK_RAW_CLOCK`.
const RAW_CLOCK: u32 = 1;

pub(crate) unsafe extern "C" fn query_rt_values(
    context: *mut ibv_context,
    values: *mut ibv_values_ex,
) -> c_int {
    control("query_rt_values", || {
        // SAFETY: the caller's memory.
        let values = unsafe { &mut *values };
        if values.comp_mask & !RAW_CLOCK != 0 {
            return Err(Errno(libc::EINVAL));
        }
        if values.comp_mask & RAW_CLOCK == 0 {
            return Ok(());
        }
        // SAFETY: an open mlx5 device.
        let device = unsafe { family::<Mlx5>(context) }?;
        let Some(cycles) = device.context().read_clock() else {
            values.comp_mask = 0;
            return Err(Errno(libc::EOPNOTSUPP));
        };
        values.raw_clock.tv_sec = 0;
        values.raw_clock.tv_nsec = cycles as libc::c_long;
        Ok(())
    })
}
