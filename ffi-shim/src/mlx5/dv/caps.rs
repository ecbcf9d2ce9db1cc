//! Capabilities that the firmware tells by QUERY_HCA_CAP, through DEVX; a context without DEVX has none of them.

use oxverbs::ffi_core::Uctx;
use oxverbs::ffi_core::wqe_format::mlx5::firmware::caps::CapType;

/// Opcode of QUERY_HCA_CAP (PRM, "Commands").
const QUERY_HCA_CAP: u16 = 0x100;
/// Bytes of the answer before the capability (`mlx5_ifc.h`, `query_hca_cap_out`).
const HEAD: usize = 16;

/// One kind of capabilities.
pub(crate) struct Caps(Box<[u8; HEAD + 0x1000]>);

impl Caps {
    /// Those that are in force; none if the firmware or the kernel does not say.
    pub(crate) fn of(uctx: &Uctx, kind: CapType) -> Option<Self> {
        let mut input = [0; 16];
        input[..2].copy_from_slice(&QUERY_HCA_CAP.to_be_bytes());
        input[6..8].copy_from_slice(&kind.current().to_be_bytes());
        let mut output = Box::new([0; HEAD + 0x1000]);
        uctx.devx_command(&input, &mut output[..]).ok()?;
        Some(Self(output))
    }

    /// The capability itself, for the layouts of `wqe_format`.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0[HEAD..]
    }

    /// A field of up to 8 bits, by its first bit within the capability as `mlx5_ifc.h` counts them.
    pub(crate) fn bits(&self, first: usize, width: usize) -> u8 {
        (first..first + width).fold(0, |value, bit| {
            let byte = self.0[HEAD + bit / 8];
            value << 1 | byte >> (7 - bit % 8) & 1
        })
    }

    pub(crate) fn has(&self, bit: usize) -> bool {
        self.bits(bit, 1) != 0
    }

    /// Of general capabilities: whether the firmware has objects of a kind (`general_obj_types`, a mask of 64 bits).
    pub(crate) fn has_object(&self, kind: u16) -> bool {
        self.has(0x400 + 63 - usize::from(kind))
    }
}
