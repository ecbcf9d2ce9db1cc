//! Commands that change a queue pair and leave it in its state, in the firmware's long form: Linux' own calls reserved the
//! second half of the mask of changes and what follows it.

use oxverbs::ffi_core::refusal::reason;
use oxverbs::ffi_core::uverbs_abi::handle::mlx5::Any;
use oxverbs::ffi_core::wqe_format::mlx5::firmware::Opcode;
use oxverbs::ffi_core::wqe_format::mlx5::firmware::bits;
use oxverbs::ffi_core::wqe_format::mlx5::firmware::qp_modify::{Rts2rtsQpIn, Rts2rtsQpOut};
use oxverbs::ffi_core::{Errno, Uctx};

use crate::abi::objects::ibv_qp;

/// Bytes of the command (rdma-core's providers/mlx5/mlx5_ifc.h, `rts2rts_qp_in`, as which `init2init_qp_in` is laid out).
const SIZE: usize = 0x1d0;
/// First bits and lengths of fields, same place: whether there is the extension (`qpc_ext`), both halves of the mask of
/// changes (`opt_param_mask`, `opt_param_mask_95_32`), the context (`qpc`), its extension (`qpc_data_ext`).
const EXTENDED: (usize, usize) = (0x40, 1);
const MASK_LOW: (usize, usize) = (0x80, 32);
const MASK_HIGH: (usize, usize) = (0x840, 64);
const CONTEXT: usize = 0xc0;
const EXTENSION: usize = 0x880;

/// A command.
#[derive(Debug)]
pub(crate) struct Change([u8; SIZE]);

impl Change {
    /// One that changes nothing yet: RTS2RTS_QP or INIT2INIT_QP.
    pub(crate) fn new(opcode: Opcode, qpn: u32) -> Self {
        let mut head = Rts2rtsQpIn::zeroed();
        head.set_opcode(opcode.0).set_qpn(qpn);
        let mut bytes = [0; SIZE];
        bytes[..Rts2rtsQpIn::SIZE].copy_from_slice(head.as_bytes());
        Self(bytes)
    }

    fn set(mut self, (first, width): (usize, usize), value: u64) -> Self {
        bits::set(&mut self.0, first, width, value);
        self
    }

    /// Changes what bit `changed` of the mask's first half stands for: `width` bits of the context from `first` on.
    pub(crate) fn low(self, changed: u32, (first, width): (usize, usize), value: u32) -> Self {
        self.set(MASK_LOW, changed.into())
            .set((CONTEXT + first, width), value.into())
    }

    /// The same with the mask's second half.
    pub(crate) fn high(self, changed: u64, (first, width): (usize, usize), value: u32) -> Self {
        self.set(MASK_HIGH, changed)
            .set((CONTEXT + first, width), value.into())
    }

    /// Lets a queue pair in INIT copy memory (`qpc_ext.mmo`, `MLX5_QPC_OPT_MASK_32_INIT2INIT_MMO`).
    pub(crate) fn copies(qpn: u32) -> Self {
        Self::new(Opcode::INIT2INIT_QP, qpn).extended(1 << 3, &[((0x2, 1), 1)])
    }

    /// Has a queue pair in INIT stop its sends (SQD) at an error of a signature (`qpc.drain_sigerr`,
    /// `MLX5_QPC_OPT_MASK_INIT2INIT_DRAIN_SIGERR`).
    pub(crate) fn drains_signature_errors(qpn: u32) -> Self {
        Self::new(Opcode::INIT2INIT_QP, qpn).low(1 << 11, (0x25, 1), 1)
    }

    /// Changes fields of the context's extension, which bit `changed` of the mask's second half stands for.
    pub(crate) fn extended(self, changed: u64, fields: &[((usize, usize), u32)]) -> Self {
        let with = self.set(EXTENDED, 1).set(MASK_HIGH, changed);
        fields.iter().fold(with, |with, &((first, width), value)| {
            with.set((EXTENSION + first, width), value.into())
        })
    }

    /// Has the firmware do it.
    pub(crate) fn run(&self, uctx: &Uctx, qp: &ibv_qp) -> Result<(), Errno> {
        let mut output = Rts2rtsQpOut::zeroed();
        uctx.devx_obj_modify(Any(qp.handle), &self.0, output.as_bytes_mut())
            .map_err(|errno| reason(errno, output.as_bytes()))
    }
}
