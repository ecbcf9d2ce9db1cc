//! An open device and the objects that the comparison needs on it.

use std::ffi::{CStr, c_int, c_void};
use std::{io, ptr};

use anyhow::{Context as _, Result, bail};
use oxverbs_ffi::abi::attr::{
    ibv_ah_attr, ibv_cq_init_attr_ex, ibv_global_route, ibv_qp_attr, ibv_qp_cap,
    ibv_qp_init_attr_ex, ibv_srq_attr, ibv_srq_init_attr_ex,
};
use oxverbs_ffi::abi::objects::{
    ibv_ah, ibv_comp_channel, ibv_context, ibv_cq, ibv_cq_ex, ibv_gid, ibv_pd, ibv_qp, ibv_qp_ex,
    ibv_srq,
};

use serde::{Deserialize, Serialize};

use super::dv::Direct;
use super::library::{Library, Slot, slot, slot_types};
use super::post::{PostRecv, PostSend, context_op, slot as ops};
use crate::call::Service;

/// errno of the last call, or of the return value if the verb returns it.
fn failed<T>(what: &str) -> Result<T> {
    Err(io::Error::last_os_error()).with_context(|| what.to_owned())
}

fn made<T>(object: *mut T, what: &str) -> Result<*mut T> {
    if object.is_null() {
        return failed(what);
    }
    Ok(object)
}

fn done(errno: c_int, what: &str) -> Result<()> {
    if errno == 0 {
        return Ok(());
    }
    Err(io::Error::from_raw_os_error(errno)).with_context(|| what.to_owned())
}

/// Bits of `ibv_modify_qp`'s mask that the transitions of each service need.
mod mask {
    pub(super) const STATE: c_int = 1;
    pub(super) const ACCESS: c_int = 1 << 3;
    pub(super) const PKEY: c_int = 1 << 4;
    pub(super) const PORT: c_int = 1 << 5;
    pub(super) const QKEY: c_int = 1 << 6;
    pub(super) const AV: c_int = 1 << 7;
    pub(super) const MTU: c_int = 1 << 8;
    pub(super) const TIMEOUT: c_int = 1 << 9;
    pub(super) const RETRY: c_int = 1 << 10;
    pub(super) const RNR_RETRY: c_int = 1 << 11;
    pub(super) const RQ_PSN: c_int = 1 << 12;
    pub(super) const MAX_RD: c_int = 1 << 13;
    pub(super) const MIN_RNR: c_int = 1 << 15;
    pub(super) const SQ_PSN: c_int = 1 << 16;
    pub(super) const MAX_DEST_RD: c_int = 1 << 17;
    pub(super) const DEST_QPN: c_int = 1 << 20;
    use std::ffi::c_int;
}

/// The address of this index, in RoCE's form of IPv4.
fn address(index: u8) -> ibv_ah_attr {
    let mut raw = [0; 16];
    raw[10..].copy_from_slice(&[0xff, 0xff, 127, 0, 0, index + 1]);
    ibv_ah_attr {
        grh: ibv_global_route {
            dgid: ibv_gid { raw },
            flow_label: 0x1_2345 * u32::from(index),
            sgid_index: index,
            hop_limit: 64 - index,
            traffic_class: index << 3,
        },
        dlid: 0,
        sl: index,
        src_path_bits: 0,
        static_rate: 0,
        is_global: 1,
        port_num: 1,
    }
}

/// Addresses that datagrams are sent to: the handle's index chooses one.
pub fn addresses() -> Vec<ibv_ah_attr> {
    (0..4).map(address).collect()
}

/// A queue pair as asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QpSpec {
    /// Service type.
    pub service: Service,
    /// `cap`.
    pub send_wr: u32,
    /// `cap`.
    pub recv_wr: u32,
    /// `cap`.
    pub send_sge: u32,
    /// `cap`.
    pub recv_sge: u32,
    /// `cap`.
    pub inline: u32,
    /// Bytes of headers that TSO may give.
    pub tso_header: u16,
    /// Whether every work request completes.
    pub signals_all: bool,
    /// With the builder interface.
    pub has_builder: bool,
}

/// A pointer to a live object of libibverbs; the functions of [`CDevice`] that destroy one say so.
#[derive(Debug)]
pub struct Object<T>(pub(crate) *mut T);

impl<T> Clone for Object<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Object<T> {}

impl<T> Object<T> {
    /// No object.
    pub const NONE: Self = Self(ptr::null_mut());

    /// C's pointer.
    pub fn pointer(self) -> *mut T {
        self.0
    }
}

impl From<Object<ibv_cq_ex>> for Object<ibv_cq> {
    fn from(cq: Object<ibv_cq_ex>) -> Self {
        // `ibv_cq` is the head of `ibv_cq_ex`.
        Self(cq.0.cast())
    }
}

/// A device opened through libibverbs.
#[derive(Debug)]
pub struct CDevice {
    library: Library,
    /// Its context.
    pub context: *mut ibv_context,
    /// A protection domain.
    pub pd: *mut ibv_pd,
    /// Address handles for [`addresses`].
    pub handles: Vec<*mut ibv_ah>,
    /// mlx5dv, if [`CDevice::direct`] was called.
    pub direct: Option<Direct>,
}

impl CDevice {
    /// Opens the device of this name.
    ///
    /// # Errors
    ///
    /// Discovery does not find it, or a call fails.
    pub fn open(library: Library, name: &str) -> Result<Self> {
        let exports = library.exports;
        let mut count = 0;
        // SAFETY: a place for the count.
        let list = unsafe { (exports.ibv_get_device_list)(&raw mut count) };
        let list = made(list, "ibv_get_device_list")?;
        let mut names = Vec::new();
        for index in 0..count as usize {
            // SAFETY: the list has `count` entries.
            let device = unsafe { list.add(index) };
            // SAFETY: as above.
            let device = unsafe { device.read() };
            // SAFETY: a device of the list.
            let text = unsafe { (exports.ibv_get_device_name)(device) };
            // SAFETY: C string in the device.
            let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
            if text != name {
                names.push(text.into_owned());
                continue;
            }
            // SAFETY: a device of the list.
            let context = made(
                unsafe { (exports.ibv_open_device)(device) },
                "ibv_open_device",
            )?;
            // SAFETY: an open device.
            let pd = made(unsafe { (exports.ibv_alloc_pd)(context) }, "ibv_alloc_pd")?;
            return Ok(Self {
                library,
                context,
                pd,
                handles: Vec::new(),
                direct: None,
            });
        }
        bail!("no device {name} among {names:?}")
    }

    /// Makes the address handles.
    ///
    /// # Errors
    ///
    /// `ibv_create_ah`'s.
    pub fn make_handles(&mut self) -> Result<()> {
        for mut address in addresses() {
            // SAFETY: the device's domain and a filled address.
            let ah = unsafe { (self.library.exports.ibv_create_ah)(self.pd, &raw mut address) };
            self.handles.push(made(ah, "ibv_create_ah")?);
        }
        Ok(())
    }

    /// Finds mlx5dv: this is a device of libmlx5's.
    ///
    /// # Errors
    ///
    /// As [`Direct::new`].
    pub fn direct(&mut self) -> Result<()> {
        // SAFETY: the device's domain, which is never given up.
        self.direct = Some(unsafe { Direct::new(self.pd) }?);
        Ok(())
    }

    /// Legacy completion queue.
    ///
    /// # Errors
    ///
    /// `ibv_create_cq`'s.
    pub fn cq(&self, cqe: u32) -> Result<Object<ibv_cq>> {
        self.cq_on(cqe, Object::NONE)
    }

    /// The same with a channel for its events.
    ///
    /// # Errors
    ///
    /// `ibv_create_cq`'s.
    pub fn cq_on(&self, cqe: u32, channel: Object<ibv_comp_channel>) -> Result<Object<ibv_cq>> {
        // SAFETY: an open device.
        let cq = unsafe {
            (self.library.exports.ibv_create_cq)(
                self.context,
                cqe as c_int,
                ptr::null_mut(),
                channel.0,
                0,
            )
        };
        made(cq, "ibv_create_cq").map(Object)
    }

    /// Extended completion queue.
    ///
    /// # Errors
    ///
    /// `ibv_create_cq_ex`'s.
    pub fn cq_ex(
        &self,
        cqe: u32,
        wc_flags: u64,
        single_threaded: bool,
    ) -> Result<Object<ibv_cq_ex>> {
        self.cq_ex_on(cqe, wc_flags, single_threaded, Object::NONE)
    }

    /// The same with a channel for its events.
    ///
    /// # Errors
    ///
    /// `ibv_create_cq_ex`'s.
    pub fn cq_ex_on(
        &self,
        cqe: u32,
        wc_flags: u64,
        single_threaded: bool,
        channel: Object<ibv_comp_channel>,
    ) -> Result<Object<ibv_cq_ex>> {
        // SAFETY: an open device.
        let create = unsafe { slot(self.context, Slot::CreateCqEx) }?;
        // SAFETY: the slot's type.
        let create =
            unsafe { std::mem::transmute::<*const c_void, slot_types::CreateCqEx>(create) };
        let mut attr = ibv_cq_init_attr_ex {
            cqe,
            cq_context: ptr::null_mut(),
            channel: channel.0,
            comp_vector: 0,
            wc_flags,
            // IBV_CQ_INIT_ATTR_MASK_FLAGS, IBV_CREATE_CQ_ATTR_SINGLE_THREADED
            comp_mask: u32::from(single_threaded),
            flags: u32::from(single_threaded),
            parent_domain: ptr::null_mut(),
        };
        // SAFETY: an open device and filled attributes.
        made(
            unsafe { create(self.context, &raw mut attr) },
            "ibv_create_cq_ex",
        )
        .map(Object)
    }

    /// Channel for completion events, whose descriptor does not block.
    ///
    /// # Errors
    ///
    /// `ibv_create_comp_channel`'s.
    pub fn channel(&self) -> Result<Object<ibv_comp_channel>> {
        // SAFETY: an open device.
        let channel = unsafe { (self.library.exports.ibv_create_comp_channel)(self.context) };
        let channel = made(channel, "ibv_create_comp_channel")?;
        // SAFETY: made just now.
        let fd = unsafe { (*channel).fd };
        // SAFETY: numbers.
        if unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK) } != 0 {
            return failed("O_NONBLOCK");
        }
        Ok(Object(channel))
    }

    /// Takes an event of a completion queue and acknowledges it, if there is one.
    pub fn event(&self, channel: Object<ibv_comp_channel>) -> bool {
        let (mut cq, mut of) = (ptr::null_mut(), ptr::null_mut());
        let exports = &self.library.exports;
        // SAFETY: a channel of this device, and places for the answer.
        if unsafe { (exports.ibv_get_cq_event)(channel.0, &raw mut cq, &raw mut of) } != 0 {
            return false;
        }
        // SAFETY: the queue that the event is about, which lives.
        unsafe { (exports.ibv_ack_cq_events)(cq, 1) };
        true
    }

    /// Changes a completion queue's size; errno.
    pub fn resize_cq(&self, cq: Object<ibv_cq>, cqe: u32) -> c_int {
        // SAFETY: a completion queue of this device.
        match unsafe { (self.library.exports.ibv_resize_cq)(cq.0, cqe as c_int) } {
            -1 => io::Error::last_os_error().raw_os_error().unwrap_or(-1),
            errno => errno,
        }
    }

    /// Destroys a channel.
    ///
    /// # Errors
    ///
    /// `ibv_destroy_comp_channel`'s.
    pub fn destroy_channel(&self, channel: Object<ibv_comp_channel>) -> Result<()> {
        // SAFETY: a channel of this device that the caller gives up.
        let errno = unsafe { (self.library.exports.ibv_destroy_comp_channel)(channel.0) };
        done(errno, "ibv_destroy_comp_channel")
    }

    /// Queue pair in the state RESET, and what it was given: at least what was asked for.
    ///
    /// # Errors
    ///
    /// `ibv_create_qp_ex`'s.
    pub fn qp(
        &self,
        spec: &QpSpec,
        cq: Object<ibv_cq>,
        srq: Object<ibv_srq>,
    ) -> Result<(Object<ibv_qp>, QpSpec)> {
        // SAFETY: an open device.
        let create = unsafe { slot(self.context, Slot::CreateQpEx) }?;
        // SAFETY: the slot's type.
        let create =
            unsafe { std::mem::transmute::<*const c_void, slot_types::CreateQpEx>(create) };
        let builder = spec.service.opcodes().iter();
        let builder = builder.map(|opcode| opcode.builder_flag()).sum();
        // IBV_QP_INIT_ATTR_PD, _MAX_TSO_HEADER, _SEND_OPS_FLAGS
        let comp_mask = 1
            | if spec.tso_header > 0 { 1 << 3 } else { 0 }
            | if spec.has_builder { 1 << 6 } else { 0 };
        let mut attr = ibv_qp_init_attr_ex {
            qp_context: ptr::null_mut(),
            send_cq: cq.0,
            recv_cq: cq.0,
            srq: srq.0,
            cap: ibv_qp_cap {
                max_send_wr: spec.send_wr,
                max_recv_wr: spec.recv_wr,
                max_send_sge: spec.send_sge,
                max_recv_sge: spec.recv_sge,
                max_inline_data: spec.inline,
            },
            qp_type: spec.service.number(),
            sq_sig_all: spec.signals_all.into(),
            comp_mask,
            pd: self.pd,
            xrcd: ptr::null_mut(),
            create_flags: 0,
            max_tso_header: spec.tso_header,
            rwq_ind_tbl: ptr::null_mut(),
            rx_hash_function: 0,
            rx_hash_key_len: 0,
            rx_hash_key: ptr::null_mut(),
            rx_hash_fields_mask: 0,
            source_qpn: 0,
            send_ops_flags: if spec.has_builder { builder } else { 0 },
        };
        let qp = if spec.service.is_direct() {
            let direct = self.direct.as_ref().context("opened without mlx5dv")?;
            // SAFETY: the same device.
            unsafe { direct.create(self.context, &mut attr, spec.service) }
        } else {
            // SAFETY: an open device and filled attributes.
            unsafe { create(self.context, &raw mut attr) }
        };
        let qp = made(qp, "ibv_create_qp_ex")?;
        let given = QpSpec {
            send_wr: attr.cap.max_send_wr,
            recv_wr: attr.cap.max_recv_wr,
            send_sge: attr.cap.max_send_sge,
            recv_sge: attr.cap.max_recv_sge,
            inline: attr.cap.max_inline_data,
            ..*spec
        };
        Ok((Object(qp), given))
    }

    /// Shared receive queue.
    ///
    /// # Errors
    ///
    /// `ibv_create_srq_ex`'s.
    pub fn srq(&self, max_wr: u32, max_sge: u32) -> Result<Object<ibv_srq>> {
        // SAFETY: an open device.
        let create = unsafe { slot(self.context, Slot::CreateSrqEx) }?;
        // SAFETY: the slot's type.
        let create =
            unsafe { std::mem::transmute::<*const c_void, slot_types::CreateSrqEx>(create) };
        let mut attr = ibv_srq_init_attr_ex {
            srq_context: ptr::null_mut(),
            attr: ibv_srq_attr {
                max_wr,
                max_sge,
                srq_limit: 0,
            },
            // IBV_SRQ_INIT_ATTR_TYPE and _PD; IBV_SRQT_BASIC
            comp_mask: 0b11,
            srq_type: 0,
            pd: self.pd,
            xrcd: ptr::null_mut(),
            cq: ptr::null_mut(),
            max_num_tags: 0,
            max_ops: 0,
        };
        // SAFETY: an open device and filled attributes.
        made(
            unsafe { create(self.context, &raw mut attr) },
            "ibv_create_srq_ex",
        )
        .map(Object)
    }

    fn modify(&self, qp: Object<ibv_qp>, attr: &mut ibv_qp_attr, mask: c_int) -> Result<()> {
        // SAFETY: a queue pair of this device and filled attributes.
        let errno = unsafe { (self.library.exports.ibv_modify_qp)(qp.0, attr, mask | mask::STATE) };
        done(errno, &format!("ibv_modify_qp to {}", attr.qp_state))
    }

    /// Takes a queue pair from any state by RESET to RTS.
    ///
    /// # Errors
    ///
    /// `ibv_modify_qp`'s.
    pub fn restart(&self, qp: Object<ibv_qp>, service: Service) -> Result<()> {
        // SAFETY: all fields are numbers.
        let mut attr = unsafe { std::mem::zeroed() };
        self.modify(qp, &mut attr, 0)?;
        self.connect(qp, service)
    }

    /// Takes a queue pair from RESET to RTS.
    ///
    /// # Errors
    ///
    /// `ibv_modify_qp`'s.
    pub fn connect(&self, qp: Object<ibv_qp>, service: Service) -> Result<()> {
        let mut attr = ibv_qp_attr {
            ah_attr: address(0),
            // SAFETY: all fields are numbers.
            ..unsafe { std::mem::zeroed() }
        };
        attr.qp_state = 1;
        attr.port_num = 1;
        attr.qkey = 0x1111_1111;
        let is_rc = matches!(service, Service::Rc | Service::Direct);
        let connected = is_rc || matches!(service, Service::Uc | Service::Xrc);
        let reliable = is_rc || matches!(service, Service::Xrc | Service::Dci);
        let init = match service {
            Service::Raw => mask::PORT,
            Service::Dci => mask::PKEY | mask::PORT,
            Service::Ud => mask::PKEY | mask::PORT | mask::QKEY,
            _ => mask::PKEY | mask::PORT | mask::ACCESS,
        };
        self.modify(qp, &mut attr, init)?;
        attr.qp_state = 2;
        attr.path_mtu = 3;
        attr.dest_qp_num = 0x77;
        attr.max_dest_rd_atomic = 1;
        attr.min_rnr_timer = 12;
        let mut rtr = 0;
        if connected {
            rtr |= mask::AV | mask::MTU | mask::DEST_QPN | mask::RQ_PSN;
        }
        if service == Service::Dci {
            rtr |= mask::AV | mask::MTU;
        }
        if is_rc {
            rtr |= mask::MAX_DEST_RD | mask::MIN_RNR;
        }
        self.modify(qp, &mut attr, rtr)?;
        attr.qp_state = 3;
        attr.timeout = 14;
        attr.retry_cnt = 7;
        attr.rnr_retry = 7;
        attr.max_rd_atomic = 1;
        let mut rts = 0;
        if service != Service::Raw {
            rts |= mask::SQ_PSN;
        }
        if reliable {
            rts |= mask::TIMEOUT | mask::RETRY | mask::RNR_RETRY | mask::MAX_RD;
        }
        self.modify(qp, &mut attr, rts)
    }

    /// The extended view of a queue pair.
    pub fn qp_ex(&self, qp: Object<ibv_qp>) -> *mut ibv_qp_ex {
        // SAFETY: a queue pair of this device.
        unsafe { (self.library.exports.ibv_qp_to_qp_ex)(qp.0) }
    }

    /// The context's `post_send`.
    pub fn post_send(&self) -> PostSend {
        // SAFETY: an open device, and the slot's type.
        unsafe { context_op(self.context, ops::POST_SEND) }
    }

    /// The context's `post_recv`.
    pub fn post_recv(&self) -> PostRecv {
        // SAFETY: an open device, and the slot's type.
        unsafe { context_op(self.context, ops::POST_RECV) }
    }

    /// The context's `post_srq_recv`.
    pub fn post_srq_recv(&self) -> PostRecv {
        // SAFETY: an open device, and the slot's type.
        unsafe { context_op(self.context, ops::POST_SRQ_RECV) }
    }

    /// Destroys a queue pair.
    ///
    /// # Errors
    ///
    /// `ibv_destroy_qp`'s.
    pub fn destroy_qp(&self, qp: Object<ibv_qp>) -> Result<()> {
        // SAFETY: a queue pair of this device that the caller gives up.
        done(
            unsafe { (self.library.exports.ibv_destroy_qp)(qp.0) },
            "ibv_destroy_qp",
        )
    }

    /// Destroys a completion queue.
    ///
    /// # Errors
    ///
    /// `ibv_destroy_cq`'s.
    pub fn destroy_cq(&self, cq: Object<ibv_cq>) -> Result<()> {
        // SAFETY: a completion queue of this device that the caller gives up.
        done(
            unsafe { (self.library.exports.ibv_destroy_cq)(cq.0) },
            "ibv_destroy_cq",
        )
    }

    /// The library it was opened with.
    pub fn library(&self) -> &Library {
        &self.library
    }
}
