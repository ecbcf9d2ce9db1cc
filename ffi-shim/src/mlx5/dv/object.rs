//! Commands on objects of the firmware's that Linux knows nothing of.

use oxverbs::ffi_core::wqe_format::mlx5::firmware::Opcode;
use oxverbs::ffi_core::wqe_format::mlx5::firmware::object::GeneralObjInCmdHdr;

/// Bytes of a command's head.
pub(crate) const HEAD: usize = GeneralObjInCmdHdr::SIZE;

/// A command of `LEN` bytes on an object of a kind, of this number if there is one: its head, and nothing behind it yet.
pub(crate) fn command<const LEN: usize>(
    opcode: Opcode,
    kind: u16,
    number: u32,
    parameter: u32,
) -> [u8; LEN] {
    const { assert!(LEN >= HEAD) };
    let mut head = GeneralObjInCmdHdr::zeroed();
    head.set_opcode(opcode.0)
        .set_obj_type(kind)
        .set_obj_id(number)
        .set_op_param(parameter);
    let mut input = [0; LEN];
    input[..HEAD].copy_from_slice(head.as_bytes());
    input
}
