//! mlx5dv: what programs that are linked with libmlx5 itself call. Structs are those of `infiniband/mlx5dv.h`.

use std::ffi::{c_int, c_void};

use anyhow::{Result, ensure};
use oxverbs_ffi::abi::attr::ibv_qp_init_attr_ex;
use oxverbs_ffi::abi::objects::{ibv_ah, ibv_context, ibv_pd, ibv_qp, ibv_qp_ex};
use oxverbs_ffi::abi::work::ibv_sge;

use super::library::{load, symbol};
use crate::call::{Opcode, Piece, Service, Wr};
use crate::direct::{self, KEY_ENTRIES, KeyCall, Layout};

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct mlx5dv_dc_init_attr {
    dc_type: u32,
    dct_access_key: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct mlx5dv_qp_init_attr {
    comp_mask: u64,
    create_flags: u32,
    dc_init_attr: mlx5dv_dc_init_attr,
    send_ops_flags: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct mlx5dv_mkey_init_attr {
    pd: *mut ibv_pd,
    create_flags: u32,
    max_entries: u16,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct mlx5dv_mkey {
    lkey: u32,
    rkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct mlx5dv_mkey_conf_attr {
    conf_flags: u32,
    comp_mask: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct mlx5dv_mr_interleaved {
    addr: u64,
    bytes_count: u32,
    bytes_skip: u32,
    lkey: u32,
}

type Qp = *mut mlx5dv_qp_ex;

#[repr(C)]
#[derive(Debug)]
struct mlx5dv_qp_ex {
    comp_mask: u64,
    wr_set_dc_addr: Option<unsafe extern "C" fn(Qp, *mut ibv_ah, u32, u64)>,
    wr_mr_interleaved: Option<
        unsafe extern "C" fn(Qp, *mut mlx5dv_mkey, u32, u32, u16, *mut mlx5dv_mr_interleaved),
    >,
    wr_mr_list: Option<unsafe extern "C" fn(Qp, *mut mlx5dv_mkey, u32, u16, *mut ibv_sge)>,
    wr_mkey_configure:
        Option<unsafe extern "C" fn(Qp, *mut mlx5dv_mkey, u8, *mut mlx5dv_mkey_conf_attr)>,
    wr_set_mkey_access_flags: Option<unsafe extern "C" fn(Qp, u32)>,
    wr_set_mkey_layout_list: Option<unsafe extern "C" fn(Qp, u16, *const ibv_sge)>,
    wr_set_mkey_layout_interleaved:
        Option<unsafe extern "C" fn(Qp, u32, u16, *const mlx5dv_mr_interleaved)>,
    wr_set_mkey_sig_block: *const c_void,
    wr_raw_wqe: Option<unsafe extern "C" fn(Qp, *const c_void)>,
    wr_set_dc_addr_stream: Option<unsafe extern "C" fn(Qp, *mut ibv_ah, u32, u64, u16)>,
    wr_memcpy: Option<unsafe extern "C" fn(Qp, u32, u64, u32, u64, usize)>,
    wr_set_mkey_crypto: *const c_void,
}

const _: () = {
    assert!(size_of::<mlx5dv_qp_init_attr>() == 40);
    assert!(size_of::<mlx5dv_mr_interleaved>() == 24);
    assert!(size_of::<mlx5dv_qp_ex>() == 13 * 8);
};

/// `MLX5DV_QP_INIT_ATTR_MASK_DC`, `_SEND_OPS_FLAGS`, `_DCI_STREAMS`
const MASK_DC: u64 = 1 << 1;
const MASK_SEND_OPS: u64 = 1 << 2;
const MASK_STREAMS: u64 = 1 << 3;
/// `MLX5DV_DCTYPE_DCI`
const DCI: u32 = 2;
/// Two streams and two that may fail, as powers of two (`struct mlx5dv_dci_streams`).
const STREAMS: u64 = 0x0101;
/// `MLX5DV_QP_EX_WITH_*`: all five; those that an initiator may have are the last two (RAW_WQE, MEMCPY).
const OPS_ALL: u64 = 0x1f;
const OPS_DCI: u64 = 0x18;
/// `MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT`
const INDIRECT: u32 = 1;

type CreateKey = unsafe extern "C" fn(*mut mlx5dv_mkey_init_attr) -> *mut mlx5dv_mkey;
type CreateQp = unsafe extern "C" fn(
    *mut ibv_context,
    *mut ibv_qp_init_attr_ex,
    *mut mlx5dv_qp_init_attr,
) -> *mut ibv_qp;
type QpEx = unsafe extern "C" fn(*mut ibv_qp_ex) -> Qp;
type Cancel = unsafe extern "C" fn(Qp, u64) -> c_int;

/// mlx5dv's functions and a key to configure.
#[derive(Debug)]
pub struct Direct {
    create_qp: CreateQp,
    qp_ex: QpEx,
    cancel: Cancel,
    key: *mut mlx5dv_mkey,
}

impl Direct {
    /// Finds the functions, and makes a key of [`KEY_ENTRIES`].
    ///
    /// # Errors
    ///
    /// libmlx5 lacks one of them, or makes no key.
    ///
    /// # Safety
    ///
    /// `pd` is a protection domain of libmlx5's that outlives what is returned.
    pub unsafe fn new(pd: *mut ibv_pd) -> Result<Self> {
        let library = load("libmlx5.so.1")?;
        macro_rules! function {
            ($name:literal, $type:ty) => {{
                let address = symbol(library, $name)?;
                // SAFETY: the symbol has this type in mlx5dv.h; both sides are one pointer.
                unsafe { std::mem::transmute::<*mut c_void, $type>(address) }
            }};
        }
        let create_key = function!(c"mlx5dv_create_mkey", CreateKey);
        let mut attr = mlx5dv_mkey_init_attr {
            pd,
            create_flags: INDIRECT,
            max_entries: KEY_ENTRIES as u16,
        };
        // SAFETY: filled attributes.
        let key = unsafe { create_key(&raw mut attr) };
        ensure!(
            !key.is_null(),
            "mlx5dv_create_mkey: {}",
            std::io::Error::last_os_error()
        );
        ensure!(u32::from(attr.max_entries) == KEY_ENTRIES, "{attr:?}");
        Ok(Self {
            create_qp: function!(c"mlx5dv_create_qp", CreateQp),
            qp_ex: function!(c"mlx5dv_qp_ex_from_ibv_qp_ex", QpEx),
            cancel: function!(c"mlx5dv_qp_cancel_posted_send_wrs", Cancel),
            key,
        })
    }

    /// `mlx5dv_create_qp`, for everything that the service has.
    ///
    /// # Safety
    ///
    /// `context` is an open device of libmlx5's.
    pub unsafe fn create(
        &self,
        context: *mut ibv_context,
        attr: &mut ibv_qp_init_attr_ex,
        service: Service,
    ) -> *mut ibv_qp {
        let mut own = mlx5dv_qp_init_attr {
            comp_mask: MASK_SEND_OPS,
            send_ops_flags: OPS_ALL,
            ..Default::default()
        };
        if service == Service::Dci {
            own.comp_mask |= MASK_DC | MASK_STREAMS;
            own.dc_init_attr.dc_type = DCI;
            own.dc_init_attr.dct_access_key = STREAMS;
            own.send_ops_flags = OPS_DCI;
        }
        // SAFETY: an open device and filled attributes.
        unsafe { (self.create_qp)(context, attr, &raw mut own) }
    }

    /// What it adds to a queue pair of its making.
    ///
    /// # Safety
    ///
    /// `qp` is the extended view of such a queue pair.
    pub unsafe fn of(&self, qp: *mut ibv_qp_ex, qpn: u32, signals_all: bool) -> DirectQp {
        DirectQp {
            // SAFETY: the caller's queue pair.
            qp: unsafe { (self.qp_ex)(qp) },
            cancel: self.cancel,
            key: self.key,
            qpn,
            signals_all,
        }
    }
}

/// A queue pair with mlx5dv's operations.
#[derive(Clone, Copy, Debug)]
pub struct DirectQp {
    qp: Qp,
    cancel: Cancel,
    key: *mut mlx5dv_mkey,
    qpn: u32,
    signals_all: bool,
}

/// Calls a slot that the service's queue pair must have.
macro_rules! call {
    ($qp:expr, $slot:ident $(, $argument:expr)*) => {{
        // SAFETY: the queue pair lives while its wrapper is used.
        let function = unsafe { (*$qp).$slot };
        let function = function.expect(concat!("libmlx5 fills ", stringify!($slot)));
        // SAFETY: the slot's own function, with arguments as mlx5dv.h documents them.
        unsafe { function($qp $(, $argument)*) }
    }};
}

fn sge(piece: &Piece) -> ibv_sge {
    ibv_sge {
        addr: piece.address,
        length: piece.len,
        lkey: piece.lkey,
    }
}

impl DirectQp {
    /// `mlx5dv_wr_set_dc_addr`, or `_stream`.
    ///
    /// # Safety
    ///
    /// `ah` is an address handle of the device.
    pub unsafe fn set_address(&self, wr: &Wr, ah: *mut ibv_ah) {
        match wr.more.stream {
            None => call!(self.qp, wr_set_dc_addr, ah, wr.remote_qpn, wr.more.dc_key),
            Some(stream) => call!(
                self.qp,
                wr_set_dc_addr_stream,
                ah,
                wr.remote_qpn,
                wr.more.dc_key,
                stream
            ),
        }
    }

    /// `mlx5dv_qp_cancel_posted_send_wrs`: how many, or an errno below zero.
    pub fn cancel(&self, wr_id: u64) -> i32 {
        // SAFETY: the queue pair lives while its wrapper is used.
        unsafe { (self.cancel)(self.qp, wr_id) }
    }

    /// One of mlx5dv's operations.
    pub fn build(&self, wr: &Wr) {
        match wr.opcode {
            Opcode::Key | Opcode::KeyList | Opcode::KeyPattern => self.configure(wr),
            Opcode::Memcpy => call!(
                self.qp,
                wr_memcpy,
                wr.pieces[0].lkey,
                wr.pieces[0].address,
                wr.pieces[1].lkey,
                wr.pieces[1].address,
                wr.pieces[0].len as usize
            ),
            _ => {
                let bytes = direct::raw_of(wr, self.qpn, self.signals_all);
                call!(self.qp, wr_raw_wqe, bytes.as_ptr().cast());
            }
        }
    }

    fn configure(&self, wr: &Wr) {
        let KeyCall {
            key,
            access,
            layout,
            access_first,
        } = &wr.more.key;
        // SAFETY: the key of `Direct::new`; its number is the program's to change, as the key's low byte is.
        unsafe { (*self.key).lkey = *key };
        let mut list = Vec::new();
        let mut pattern = Vec::new();
        let mut repeat = 0;
        match layout {
            None => {}
            Some(Layout::List(pieces)) => list = pieces.iter().map(sge).collect(),
            Some(Layout::Pattern(turns, pieces)) => {
                repeat = *turns;
                pattern = pieces
                    .iter()
                    .map(|piece| mlx5dv_mr_interleaved {
                        addr: piece.address,
                        bytes_count: piece.len,
                        bytes_skip: piece.skip,
                        lkey: piece.lkey,
                    })
                    .collect();
            }
        }
        let (lists, patterns) = (list.len() as u16, pattern.len() as u16);
        let all = access.unwrap_or(0);
        match wr.opcode {
            Opcode::KeyList => {
                call!(self.qp, wr_mr_list, self.key, all, lists, list.as_mut_ptr());
                return;
            }
            Opcode::KeyPattern => {
                call!(
                    self.qp,
                    wr_mr_interleaved,
                    self.key,
                    all,
                    repeat,
                    patterns,
                    pattern.as_mut_ptr()
                );
                return;
            }
            _ => {}
        }
        let setters = u8::from(access.is_some()) + u8::from(layout.is_some());
        let mut attr = mlx5dv_mkey_conf_attr::default();
        call!(self.qp, wr_mkey_configure, self.key, setters, &raw mut attr);
        let set_access = |now: bool| {
            if let Some(access) = access
                && now
            {
                call!(self.qp, wr_set_mkey_access_flags, *access);
            }
        };
        set_access(*access_first);
        match layout {
            None => {}
            Some(Layout::List(_)) => {
                call!(self.qp, wr_set_mkey_layout_list, lists, list.as_ptr());
            }
            Some(Layout::Pattern(..)) => call!(
                self.qp,
                wr_set_mkey_layout_interleaved,
                repeat,
                patterns,
                pattern.as_ptr()
            ),
        }
        set_access(!*access_first);
    }
}
