//! Good commands about memory on the device, missing pages and general objects.

use soft_connectx::BAR0_SIZE;
use wqe_format::mlx5::firmware::Opcode;
use wqe_format::mlx5::firmware::memic::{AllocMemicIn, DeallocMemicIn, ModifyMemicIn};
use wqe_format::mlx5::firmware::mkey::CreateMkeyIn;
use wqe_format::mlx5::firmware::object::GeneralObjInCmdHdr;
use wqe_format::mlx5::firmware::page_fault::PageFaultResumeIn;

use super::objects;

/// Bytes of memory on the device and of its operations, at the end of BAR0.
const MEMIC: u64 = 3 * (256 << 10);

/// An offset in BAR0: in its first pages or in memory on the device.
pub(crate) fn register(at: u16) -> u64 {
    match u64::from(at) {
        at @ 0..0x8000 => at << 2,
        at => BAR0_SIZE - MEMIC + (at - 0x8000) * 24,
    }
}

/// A key of two pages, of which the second is missing.
fn lazy(pd: u32) -> Vec<u8> {
    let mut bytes = objects::mkey(pd);
    bytes.resize(CreateMkeyIn::SIZE + 16, 0);
    bytes[CreateMkeyIn::SIZE + 5] = 0x10;
    bytes[CreateMkeyIn::SIZE + 7] = 3;
    let mut input = CreateMkeyIn::new(&mut bytes[..]).unwrap();
    input
        .set_pg_access(true)
        .set_translations_octword_actual_size(1);
    let mut context = input.memory_key_mkey_entry_mut();
    context
        .set_access_mode_1_0(1)
        .set_translations_octword_size(1)
        .set_log_page_size(12)
        .set_length64(false)
        .set_len(0x2000);
    bytes
}

/// A key of memory on the device.
fn memic_key(pd: u32, start: u64) -> Vec<u8> {
    let mut bytes = objects::mkey(pd);
    let mut input = CreateMkeyIn::new(&mut bytes[..]).unwrap();
    let mut context = input.memory_key_mkey_entry_mut();
    context
        .set_access_mode_1_0(1)
        .set_access_mode_4_2(1)
        .set_length64(false)
        .set_start_addr(start)
        .set_len(64);
    bytes
}

/// All of them.
pub(crate) fn good(pd: u32) -> Vec<Vec<u8>> {
    let start = BAR0_SIZE - MEMIC;
    let mut alloc = AllocMemicIn::zeroed();
    alloc
        .set_opcode(Opcode::ALLOC_MEMIC.0)
        .set_range_start_addr(start)
        .set_range_size(4096)
        .set_memic_size(128);
    let mut dealloc = DeallocMemicIn::zeroed();
    dealloc
        .set_opcode(Opcode::DEALLOC_MEMIC.0)
        .set_memic_start_addr(start)
        .set_memic_size(128);
    let operation = |kind, op_mod| {
        let mut modify = ModifyMemicIn::zeroed();
        modify
            .set_opcode(Opcode::MODIFY_MEMIC.0)
            .set_op_mod(op_mod)
            .set_memic_operation_type(kind)
            .set_memic_start_addr(start);
        modify.as_bytes().to_vec()
    };
    let mut resume = PageFaultResumeIn::zeroed();
    resume.set_opcode(Opcode::PAGE_FAULT_RESUME.0);
    let mut object = GeneralObjInCmdHdr::zeroed();
    object
        .set_opcode(Opcode::CREATE_GENERAL_OBJECT.0)
        .set_obj_type(0x2c);
    vec![
        alloc.as_bytes().to_vec(),
        memic_key(pd, start),
        operation(0, 0),
        operation(1, 0),
        operation(1, 1),
        dealloc.as_bytes().to_vec(),
        lazy(pd),
        resume.as_bytes().to_vec(),
        object.as_bytes().to_vec(),
    ]
}
