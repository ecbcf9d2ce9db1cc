//! What is refused, and how; and that nothing is left of what was refused.

use uverbs_abi::types::{AccessFlags, QpAttrMask, QpState, QpType, SrqAttrMask};
use uverbs_abi::udata::mlx5 as udata;
use uverbs_abi::write::qp::{ExModifyQp, ModifyQp};
use wqe_format::mlx5::firmware::{Opcode, Status};

use super::super::Objects;
use super::{cq, objects, pd, queue_pair};
use crate::control::kernel::{CreateSrq, UserMr};
use crate::sys::errno::Errno;

fn region(objects: &Objects, access: AccessFlags) -> Result<(), Errno> {
    let request = UserMr {
        pd: pd(objects),
        start: 0x10_0000,
        length: 0x1000,
        hca_va: 0x10_0000,
        access,
    };
    // SAFETY: nobody looks at the memory.
    unsafe { objects.reg_mr(&request) }.map(drop)
}

#[test]
fn what_is_in_use_stays() {
    let (device, objects) = objects();
    let domain = pd(&objects);
    let queue = cq(&objects, 0x20_0000, 63).unwrap();
    let request = queue_pair(QpType::UD, domain, queue);
    let input = udata::CreateQp {
        buf_addr: 0x30_0000,
        db_addr: 0x7000_0080,
        sq_wqe_count: 64,
        rq_wqe_count: 32,
        rq_wqe_shift: 6,
        flags: udata::CreateQpFlags::UAR_PAGE_INDEX,
        bfreg_index: 0x11,
        ..udata::CreateQp::default()
    };
    // SAFETY: nobody looks at the memory.
    let qp = unsafe { objects.create_qp(&request, &input) }
        .unwrap()
        .handle;
    // both rings, and one page of doorbell records
    assert_eq!(device.mappings(), 3);
    assert_eq!(objects.dealloc_pd(domain), Err(Errno(libc::EBUSY)));
    assert_eq!(objects.destroy_cq(queue).unwrap_err(), Errno(libc::EBUSY));

    objects.attach_mcast(qp, [0xff; 16]).unwrap();
    assert_eq!(objects.destroy_qp(qp), Err(Errno(libc::EBUSY)));
    let one = [0xfe; 16];
    assert_eq!(objects.attach_mcast(qp, one), Err(Errno(libc::EINVAL)));
    objects.detach_mcast(qp, [0xff; 16]).unwrap();
    let again = objects.detach_mcast(qp, [0xff; 16]);
    assert_eq!(again, Err(Errno(libc::EINVAL)));

    assert_eq!(objects.destroy_qp(qp), Ok(0));
    objects.destroy_cq(queue).unwrap();
    objects.dealloc_pd(domain).unwrap();
    assert_eq!(device.mappings(), 0);
    assert_eq!(objects.destroy_qp(qp), Err(Errno(libc::EINVAL)));
}

#[test]
fn the_firmware_s_refusals_are_the_kernel_s_errnos_and_leave_nothing() {
    let (device, objects) = objects();
    for (status, errno) in [
        (Status::LIM_ERR, libc::ENOMEM),
        (Status::NO_RES_ERR, libc::EAGAIN),
        (Status::BAD_PARAM_ERR, libc::EINVAL),
        (Status::RES_BUSY, libc::EBUSY),
        (Status::INT_ERR, libc::EIO),
    ] {
        device.refuse(Opcode::CREATE_CQ, status);
        assert_eq!(cq(&objects, 0x20_0000, 63), Err(Errno(errno)));
        assert_eq!(device.mappings(), 0);
    }
    let queue = cq(&objects, 0x20_0000, 63).unwrap();
    device.refuse(Opcode::DESTROY_CQ, Status::INT_ERR);
    assert_eq!(objects.destroy_cq(queue).unwrap_err(), Errno(libc::EIO));
    // it may still be written to, so its memory stays, and a second try is another chance
    assert_eq!(device.mappings(), 2);
    objects.destroy_cq(queue).unwrap();
    assert_eq!(device.mappings(), 0);
}

#[test]
fn rights_that_make_no_sense() {
    let (_, objects) = objects();
    let refused = Err(Errno(libc::EINVAL));
    assert_eq!(region(&objects, AccessFlags::REMOTE_WRITE), refused);
    assert_eq!(region(&objects, AccessFlags::REMOTE_ATOMIC), refused);
    assert_eq!(region(&objects, AccessFlags::ON_DEMAND), refused);
    assert_eq!(region(&objects, AccessFlags(1 << 15)), refused);
    assert_eq!(region(&objects, AccessFlags(1 << 29)), Ok(()));
    assert_eq!(region(&objects, AccessFlags::REMOTE_READ), Ok(()));
}

#[test]
fn sizes_beyond_the_device() {
    let (_, objects) = objects();
    let refused = Errno(libc::EINVAL);
    assert_eq!(cq(&objects, 0x20_0000, 0), Err(refused));
    assert_eq!(cq(&objects, 0x20_0000, 1 << 22), Err(refused));
    assert!(cq(&objects, 0x40_0000, (1 << 22) - 1).is_ok());
    // a ring at no multiple of 64
    assert_eq!(cq(&objects, 0x20_0020, 63), Err(refused));
    let request = CreateSrq {
        pd: pd(&objects),
        max_wr: 1 << 15,
        max_sge: 1,
        ..CreateSrq::default()
    };
    let input = udata::CreateSrq::default();
    // SAFETY: nobody looks at the memory.
    let made = unsafe { objects.create_srq(&request, &input) };
    assert_eq!(made.unwrap_err(), refused);
}

#[test]
fn a_limit_above_the_queue() {
    let (_, objects) = objects();
    let request = CreateSrq {
        pd: pd(&objects),
        max_wr: 63,
        max_sge: 1,
        ..CreateSrq::default()
    };
    let input = udata::CreateSrq {
        buf_addr: 0x20_0000,
        db_addr: 0x7000_0040,
        ..udata::CreateSrq::default()
    };
    // SAFETY: nobody looks at the memory.
    let srq = unsafe { objects.create_srq(&request, &input) }
        .unwrap()
        .handle;
    let refused = Err(Errno(libc::EINVAL));
    let limit = |limit| objects.modify_srq(srq, SrqAttrMask::LIMIT, limit);
    assert_eq!(limit(64), refused);
    assert_eq!(limit(63), Ok(()));
    assert_eq!(objects.modify_srq(srq, SrqAttrMask::MAX_WR, 0), refused);
}

#[test]
fn states_and_attributes_out_of_order() {
    let (device, objects) = objects();
    let queue = cq(&objects, 0x20_0000, 63).unwrap();
    let request = queue_pair(QpType::RC, pd(&objects), queue);
    let input = udata::CreateQp {
        db_addr: 0x7000_0080,
        ..udata::CreateQp::default()
    };
    // SAFETY: nobody looks at the memory.
    let qp = unsafe { objects.create_qp(&request, &input) }
        .unwrap()
        .handle;
    let modify = |attr: ModifyQp| {
        let attr = ExModifyQp {
            base: ModifyQp {
                qp_handle: qp,
                ..attr
            },
            ..ExModifyQp::default()
        };
        objects.modify_qp(&attr, &Default::default()).map(drop)
    };
    let refused = Err(Errno(libc::EINVAL));
    device.forget();
    let to_rts = ModifyQp {
        attr_mask: QpAttrMask::STATE,
        qp_state: QpState::RTS,
        ..ModifyQp::default()
    };
    assert_eq!(modify(to_rts), refused);
    let to_init = ModifyQp {
        attr_mask: QpAttrMask::STATE
            | QpAttrMask::PKEY_INDEX
            | QpAttrMask::PORT
            | QpAttrMask::ACCESS_FLAGS,
        qp_state: QpState::INIT,
        port_num: 1,
        ..ModifyQp::default()
    };
    let elsewhere = ModifyQp {
        port_num: 2,
        ..to_init
    };
    assert_eq!(modify(elsewhere), refused);
    let no_key = ModifyQp {
        pkey_index: 0xffff,
        ..to_init
    };
    assert_eq!(modify(no_key), refused);
    // nothing of that came to the device
    assert!(device.opcodes().is_empty());
    assert_eq!(modify(to_init), Ok(()));
    device.refuse(Opcode::QP_2ERR, Status::BAD_QP_STATE_ERR);
    let to_error = ModifyQp {
        qp_state: QpState::ERR,
        ..to_rts
    };
    assert_eq!(modify(to_error), refused);
    assert_eq!(modify(to_error), Ok(()));
    let commands = [
        Opcode::ALLOC_Q_COUNTER,
        Opcode::RST2INIT_QP,
        Opcode::QP_2ERR,
    ];
    assert_eq!(device.opcodes(), commands);
}
