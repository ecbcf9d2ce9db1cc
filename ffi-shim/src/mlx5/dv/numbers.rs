//! Numbers of queue pairs that no queue pair of the device gets, for connections whose end is something else: rdma_cm wants a
//! number for each, and dynamic targets have one for all.

use std::collections::BTreeSet;
use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};

use oxverbs::ffi_core::refusal::reason;
use oxverbs::ffi_core::uverbs_abi::handle::mlx5::DevxObj;
use oxverbs::ffi_core::wqe_format::mlx5::firmware::Opcode;
use oxverbs::ffi_core::wqe_format::mlx5::firmware::bits;
use oxverbs::ffi_core::wqe_format::mlx5::firmware::caps::CapType;
use oxverbs::ffi_core::wqe_format::mlx5::firmware::object::{
    GeneralObjCreateParam, GeneralObjOutCmdHdr,
};
use oxverbs::ffi_core::{Errno, Uctx};

use super::caps::Caps;
use super::object::{self, HEAD};
use super::{EOPNOTSUPP, ours};
use crate::abi::objects::ibv_context;
use crate::door::control;

/// Kind of the firmware's object (rdma-core's providers/mlx5/mlx5_ifc.h, `MLX5_OBJ_TYPE_RESERVED_QPN`).
const KIND: u16 = 0x2c;
/// In the second page of capabilities (same place): how many numbers an object has, as a logarithm
/// (`log_reserved_qpn_granularity`).
const GRANULARITY: (usize, usize) = (0x93, 5);
/// Bytes of the command behind its head (`reserved_qpn`), which say nothing.
const BODY: usize = 0x10;

/// The numbers of a device that a program has, and that it will have.
#[derive(Debug, Default)]
pub(crate) struct Reserved(Mutex<Vec<Range>>);

/// One of the firmware's objects.
#[derive(Debug)]
struct Range {
    object: DevxObj,
    first: u32,
    /// As many numbers.
    length: u32,
    /// Given out ever. A number is not given out twice, so that nothing that was meant for a connection of before finds a
    /// new one.
    given: u32,
    /// The program has them.
    held: BTreeSet<u32>,
}

/// What the firmware's objects hold, as a logarithm; none if it has none.
fn granularity(uctx: &Uctx) -> Option<u8> {
    let general = Caps::of(uctx, CapType::GENERAL)?;
    general.has_object(KIND).then(|| {
        Caps::of(uctx, CapType::GENERAL_2).map_or(0, |caps| caps.bits(GRANULARITY.0, GRANULARITY.1))
    })
}

/// CREATE_GENERAL_OBJECT.
fn command(log: u8) -> [u8; HEAD + BODY] {
    let mut parameter = GeneralObjCreateParam::zeroed();
    parameter.set_log_obj_range(log);
    let parameter = u32::from_be_bytes(parameter.into_inner());
    object::command(Opcode::CREATE_GENERAL_OBJECT, KIND, 0, parameter)
}

impl Reserved {
    fn ranges(&self) -> std::sync::MutexGuard<'_, Vec<Range>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number.
    fn take(&self, uctx: &Uctx) -> Result<u32, Errno> {
        let log = granularity(uctx).ok_or(EOPNOTSUPP)?;
        let mut ranges = self.ranges();
        if ranges
            .last()
            .is_none_or(|range| range.given == range.length)
        {
            let mut output = GeneralObjOutCmdHdr::zeroed().into_inner();
            let object = uctx
                .devx_obj_create(&command(log), &mut output)
                .map_err(|errno| reason(errno, &output))?;
            ranges.push(Range {
                object,
                first: bits::get(&output, 0x40, 0x20) as u32,
                length: 1 << log,
                given: 0,
                held: BTreeSet::new(),
            });
        }
        let range = ranges.last_mut().ok_or(Errno(libc::ENOMEM))?;
        let number = range.first + range.given;
        range.given += 1;
        range.held.insert(number);
        Ok(number)
    }

    /// Gives a number back; the firmware's object goes once all of its numbers were given out and came back.
    fn give_back(&self, uctx: &Uctx, number: u32) -> Result<(), Errno> {
        let mut ranges = self.ranges();
        let of = |range: &mut Range| range.held.remove(&number);
        let index = ranges.iter_mut().position(of).ok_or(Errno(libc::EINVAL))?;
        if ranges[index].given == ranges[index].length && ranges[index].held.is_empty() {
            let object = ranges.remove(index).object;
            uctx.devx_obj_destroy(object)?;
        }
        Ok(())
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_reserved_qpn_alloc(context: *mut ibv_context, qpn: *mut u32) -> c_int {
    control("mlx5dv_reserved_qpn_alloc", || {
        // SAFETY: an open context by the verb's contract.
        let device = unsafe { ours(context) }?;
        let number = device.reserved().take(device.context().uctx())?;
        // SAFETY: the caller's memory.
        unsafe { qpn.write(number) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_reserved_qpn_dealloc(context: *mut ibv_context, qpn: u32) -> c_int {
    control("mlx5dv_reserved_qpn_dealloc", || {
        // SAFETY: an open context by the verb's contract.
        let device = unsafe { ours(context) }?;
        device.reserved().give_back(device.context().uctx(), qpn)
    })
}
