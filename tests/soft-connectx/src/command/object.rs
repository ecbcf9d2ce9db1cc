//! General objects: of all the kinds that there are, ranges of queue pairs' numbers that no queue pair gets, for connections
//! whose other end lives elsewhere (`mlx5dv_reserved_qpn_alloc`).

use wqe_format::mlx5::firmware::object::{
    GeneralObjCreateParam, GeneralObjInCmdHdr, GeneralObjOutCmdHdr,
};

use super::owner::{self, uid};
use super::refusal::{Refusal, bad_operation, bad_parameter, bad_resource, no_resources};
use super::{Reply, done};
use crate::caps::{LOG_RESERVED_QPNS, RESERVED_QPN};
use crate::device::Device;
use crate::resources::ReservedQpns;

/// The first number behind those of queue pairs.
const FIRST: u32 = 0x40 + (1 << 17);

/// The only kind.
fn check_kind(view: &GeneralObjInCmdHdr<&[u8]>) -> Result<(), Refusal> {
    match view.obj_type() {
        RESERVED_QPN => Ok(()),
        _ => Err(bad_parameter("there are no objects of this kind")),
    }
}

pub(super) fn create(device: &mut Device, input: &[u8]) -> Reply {
    let view = GeneralObjInCmdHdr::new(input)?;
    check_kind(&view)?;
    let bytes = view.op_param().to_be_bytes();
    let parameters = GeneralObjCreateParam::new(&bytes[..])?;
    if parameters.alias_object() {
        return Err(bad_operation(
            "there is no other function to have objects of",
        ));
    }
    // The range may be left out (Linux' driver), or is the one that capabilities tell (libmlx5).
    if ![0, LOG_RESERVED_QPNS].contains(&parameters.log_obj_range()) {
        return Err(bad_parameter("numbers are reserved in ranges of one size"));
    }
    let table = &mut device.resources.reserved_qpns;
    let number = table
        .free_number()
        .ok_or(no_resources("no range of numbers is left"))?;
    table.insert(number, ReservedQpns { uid: uid(input) });
    let mut output = GeneralObjOutCmdHdr::zeroed();
    output.set_obj_id(FIRST + (number << LOG_RESERVED_QPNS));
    Ok(output.into_inner().to_vec())
}

pub(super) fn destroy(device: &mut Device, input: &[u8]) -> Reply {
    let view = GeneralObjInCmdHdr::new(input)?;
    check_kind(&view)?;
    let number = number(view.obj_id())?;
    let range = device.resources.reserved_qpns.get(number);
    owner::check(input, range.map(|range| range.uid))?;
    device.resources.reserved_qpns.remove(number);
    done()
}

pub(super) fn query(device: &mut Device, input: &[u8]) -> Reply {
    let view = GeneralObjInCmdHdr::new(input)?;
    check_kind(&view)?;
    let range = device.resources.reserved_qpns.get(number(view.obj_id())?);
    owner::check(input, range.map(|range| range.uid))?;
    let mut output = GeneralObjOutCmdHdr::zeroed();
    output.set_obj_id(view.obj_id());
    Ok(output.into_inner().to_vec())
}

/// The range that begins with a number.
fn number(qpn: u32) -> Result<u32, Refusal> {
    let unknown = bad_resource("there is no such object");
    let inside = qpn.checked_sub(FIRST).ok_or(unknown)?;
    if inside % (1 << LOG_RESERVED_QPNS) != 0 {
        return Err(unknown);
    }
    Ok(inside >> LOG_RESERVED_QPNS)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use wqe_format::mlx5::firmware::{Opcode, Status};

    use super::*;
    use crate::resources::Uctx;
    use crate::{Config, Interrupts, Ram};

    struct Silent;
    impl Interrupts for Silent {
        fn raise(&self, _: u16) {}
    }

    /// Status and object of a command as libmlx5 builds it.
    fn run(
        device: &mut Device,
        opcode: Opcode,
        uid: u16,
        kind: u16,
        words: [u32; 2],
    ) -> (Status, u32) {
        let mut input = GeneralObjInCmdHdr::zeroed();
        input
            .set_opcode(opcode.0)
            .set_uid(uid)
            .set_obj_type(kind)
            .set_obj_id(words[0])
            .set_op_param(words[1]);
        let output = crate::command::execute(device, input.as_bytes());
        let output = GeneralObjOutCmdHdr::new(&output[..]).unwrap();
        (Status(output.status()), output.obj_id())
    }

    #[test]
    fn ranges_are_apart_from_each_other_and_from_queue_pairs() {
        let mut device = Device::new(Config::default(), Arc::new(Ram::new(0)), Box::new(Silent));
        device.hca.stage = crate::command::Stage::Initialized;
        for uid in [1, 2] {
            device.resources.uctxs.insert(uid, Uctx);
        }
        let range = u32::from(LOG_RESERVED_QPNS) << 24;
        let create = Opcode::CREATE_GENERAL_OBJECT;
        let (status, first) = run(&mut device, create, 1, 0x2c, [0, range]);
        let (_, second) = run(&mut device, create, 2, 0x2c, [0, range]);
        assert_eq!(status, Status::OK);
        assert!(first >= 0x40 + (1 << 17), "{first:#x}");
        assert_eq!(second - first, 1 << LOG_RESERVED_QPNS);
        let bad = Status::BAD_PARAM_ERR;
        assert_eq!(run(&mut device, create, 1, 0x2d, [0, range]).0, bad);
        assert_eq!(run(&mut device, create, 1, 0x2c, [0, range * 2]).0, bad);
        let destroy = Opcode::DESTROY_GENERAL_OBJECT;
        let absent = Status::BAD_RES_ERR;
        assert_eq!(run(&mut device, destroy, 2, 0x2c, [first, 0]).0, absent);
        assert_eq!(run(&mut device, destroy, 1, 0x2c, [first + 1, 0]).0, absent);
        assert_eq!(run(&mut device, destroy, 1, 0x2c, [7, 0]).0, absent);
        assert_eq!(run(&mut device, destroy, 1, 0x2c, [first, 0]).0, Status::OK);
        assert_eq!(run(&mut device, destroy, 1, 0x2c, [first, 0]).0, absent);
        let query = Opcode::QUERY_GENERAL_OBJECT;
        assert_eq!(
            run(&mut device, query, 2, 0x2c, [second, 0]),
            (Status::OK, second)
        );
        for _ in 0..1023 {
            assert_eq!(run(&mut device, create, 1, 0x2c, [0, range]).0, Status::OK);
        }
        let full = run(&mut device, create, 1, 0x2c, [0, range]);
        assert_eq!(full.0, Status::NO_RES_ERR);
    }
}
