//! The table of rates, and who names which entry.

use uverbs_abi::handle::Qp;
use uverbs_abi::types::{QpAttrMask, QpCap, QpState, QpType};
use uverbs_abi::udata::mlx5 as udata;
use uverbs_abi::write::qp::{ExModifyQp, ModifyQp};
use wqe_format::mlx5::firmware::Opcode;
use wqe_format::mlx5::firmware::pacing::SetPpRateLimitIn;
use wqe_format::mlx5::firmware::sq::ModifySqIn;

use super::super::Objects;
use super::{Recorder, cq, objects_of, pd, queue_pair};
use crate::control::kernel::CreateQp;
use crate::sys::errno::Errno;

/// A queue pair of raw packets that only sends, in RTS.
fn sender(objects: &Objects) -> Qp {
    let queue = cq(objects, 0x20_0000, 63).unwrap();
    let request = CreateQp {
        cap: QpCap {
            max_send_wr: 8,
            max_send_sge: 1,
            ..QpCap::default()
        },
        ..queue_pair(QpType::RAW_PACKET, pd(objects), queue)
    };
    let input = udata::CreateQp {
        sq_buf_addr: 0x30_0000,
        db_addr: 0x7000_0080,
        sq_wqe_count: 8,
        flags: udata::CreateQpFlags::UAR_PAGE_INDEX,
        bfreg_index: 0x11,
        ..udata::CreateQp::default()
    };
    // SAFETY: nobody looks at the memory.
    let qp = unsafe { objects.create_qp(&request, &input) }.unwrap();
    for state in [QpState::INIT, QpState::RTR, QpState::RTS] {
        let port = match state {
            QpState::INIT => QpAttrMask::PORT,
            _ => QpAttrMask::NONE,
        };
        let attr = ModifyQp {
            attr_mask: QpAttrMask::STATE | port,
            qp_state: state,
            port_num: 1,
            ..ModifyQp::default()
        };
        super::golden::modify(objects, qp.handle, attr);
    }
    qp.handle
}

fn limit(objects: &Objects, qp: Qp, kbits: u32, burst: u32) -> Result<(), Errno> {
    let attr = ExModifyQp {
        base: ModifyQp {
            qp_handle: qp,
            attr_mask: QpAttrMask::RATE_LIMIT,
            ..ModifyQp::default()
        },
        rate_limit: kbits,
        ..ExModifyQp::default()
    };
    let input = udata::ModifyQp {
        burst_info: udata::BurstInfo {
            max_burst_sz: burst,
            ..udata::BurstInfo::default()
        },
        ..udata::ModifyQp::default()
    };
    objects.modify_qp(&attr, &input).map(drop)
}

/// Entry, rate and burst of the last change of the table.
fn written(device: &Recorder) -> (u16, u32, u32) {
    let bytes = device.last_of(Opcode::SET_PP_RATE_LIMIT);
    let command = SetPpRateLimitIn::new(&bytes[..]).unwrap();
    let rate = command.ctx();
    (
        command.rate_limit_index(),
        rate.rate_limit(),
        rate.burst_upper_bound(),
    )
}

/// The entry that a queue was last given: the change is to READY, and of this field only.
fn named(device: &Recorder) -> u16 {
    let bytes = device.last_of(Opcode::MODIFY_SQ);
    let command = ModifySqIn::new(&bytes[..]).unwrap();
    assert_eq!((command.sq_state(), command.ctx().state()), (1, 1));
    assert_eq!(command.modify_bitmask(), 1);
    command.ctx().packet_pacing_rate_limit_index()
}

fn ethernet() -> (std::sync::Arc<Recorder>, Objects) {
    objects_of(Recorder {
        ethernet: true,
        ..Recorder::default()
    })
}

#[test]
fn equal_rates_share_an_entry_until_nobody_has_it() {
    let (device, objects) = ethernet();
    let [one, other] = [0x51, 0x52].map(|number| {
        device.call(number);
        sender(&objects)
    });
    limit(&objects, one, 5000, 3000).unwrap();
    assert_eq!((written(&device), named(&device)), ((1, 5000, 3000), 1));
    device.forget();
    limit(&objects, other, 5000, 3000).unwrap();
    assert_eq!(device.opcodes(), [Opcode::MODIFY_SQ]);
    assert_eq!(named(&device), 1);
    // nothing new
    device.forget();
    limit(&objects, other, 5000, 3000).unwrap();
    assert_eq!(device.opcodes(), []);

    limit(&objects, other, 700, 0).unwrap();
    assert_eq!((written(&device), named(&device)), ((2, 700, 0), 2));
    limit(&objects, one, 0, 0).unwrap();
    assert_eq!((written(&device), named(&device)), ((1, 0, 0), 0));
    // the first one is free again, and the second goes with its queue
    limit(&objects, one, 800, 0).unwrap();
    assert_eq!((written(&device), named(&device)), ((1, 800, 0), 1));
    objects.destroy_qp(other).unwrap();
    assert_eq!(written(&device), (2, 0, 0));
}

#[test]
fn rates_that_cannot_be_are_refused_and_leave_the_table_alone() {
    let (device, objects) = ethernet();
    let queues = [0x51, 0x52, 0x53].map(|number| {
        device.call(number);
        sender(&objects)
    });
    device.forget();
    for (kbits, burst) in [(99, 0), (1_000_001, 0), (0, 3000)] {
        let refused = limit(&objects, queues[0], kbits, burst);
        assert_eq!(refused, Err(Errno(libc::EINVAL)), "{kbits} kbit/s");
    }
    assert_eq!(device.opcodes(), []);
    limit(&objects, queues[0], 1000, 0).unwrap();
    limit(&objects, queues[1], 2000, 0).unwrap();
    let full = limit(&objects, queues[2], 3000, 0);
    assert_eq!(full, Err(Errno(libc::ENOSPC)));
    // a queue that is not told keeps its rate, and the table has no entry of the other
    device.refuse(
        Opcode::MODIFY_SQ,
        wqe_format::mlx5::firmware::Status::BAD_PARAM_ERR,
    );
    limit(&objects, queues[0], 2000, 0).unwrap_err();
    objects.destroy_qp(queues[1]).unwrap();
    assert_eq!(written(&device), (2, 0, 0));
    limit(&objects, queues[2], 1000, 0).unwrap();
    assert_eq!(named(&device), 1);
}
