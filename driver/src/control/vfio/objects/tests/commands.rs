//! Bytes of commands.

use uverbs_abi::types::{AccessFlags, MwType, QpAttrMask, QpState, QpType};
use uverbs_abi::udata::mlx5 as udata;
use uverbs_abi::write::qp::{ExModifyQp, ModifyQp};
use wqe_format::mlx5::firmware::Opcode;
use wqe_format::mlx5::firmware::cq::CreateCqIn;
use wqe_format::mlx5::firmware::mkey::CreateMkeyIn;

use super::{Recorder, cq, cq_by, objects, objects_of, pd, queue_pair};
use crate::control::kernel::UserMr;
use crate::sys::errno::Errno;

const ALL: AccessFlags = AccessFlags(0xf);

#[test]
fn a_region_of_more_than_4_gib_takes_large_pages() {
    let (device, objects) = objects();
    let request = UserMr {
        pd: pd(&objects),
        start: 0x40_0000_0000,
        length: 5 << 30,
        hca_va: 0x40_0000_0000,
        access: ALL,
    };
    // SAFETY: nobody looks at the memory.
    let keys = unsafe { objects.reg_mr(&request) }.unwrap();
    let bytes = device.last();
    let command = CreateMkeyIn::new(&bytes[..]).unwrap();
    let key = command.memory_key_mkey_entry();
    assert_eq!((key.start_addr(), key.len()), (request.hca_va, 5 << 30));
    assert_eq!(key.log_page_size(), 31);
    assert_eq!(key.translations_octword_size(), 2);
    assert_eq!(command.translations_octword_actual_size(), 2);
    assert!(key.a() && key.rw() && key.rr() && key.lw() && key.lr());
    let pages: Vec<_> = (bytes[CreateMkeyIn::SIZE..].chunks_exact(8))
        .map(|page| u64::from_be_bytes(page.try_into().unwrap()))
        .collect();
    assert_eq!(pages, [0x40_0000_0000, 0x40_8000_0000, 0x41_0000_0000, 0]);
    assert_eq!(keys.lkey, super::NUMBER << 8 | u32::from(key.mkey_7_0()));
}

#[test]
fn a_region_that_is_named_otherwise_takes_the_pages_that_both_names_have() {
    let (device, objects) = objects();
    let request = UserMr {
        pd: pd(&objects),
        start: 0x40_0000_0000,
        length: 1 << 20,
        // alike in the lower 16 bits
        hca_va: 0x1_0000,
        access: AccessFlags::LOCAL_WRITE,
    };
    // SAFETY: nobody looks at the memory.
    unsafe { objects.reg_mr(&request) }.unwrap();
    let bytes = device.last();
    let command = CreateMkeyIn::new(&bytes[..]).unwrap();
    let key = command.memory_key_mkey_entry();
    assert_eq!(key.log_page_size(), 16);
    assert_eq!(key.translations_octword_size(), 8);
    let zero_based = UserMr {
        hca_va: 0x10,
        ..request
    };
    // SAFETY: nobody looks at the memory.
    assert!(unsafe { objects.reg_mr(&zero_based) }.is_err());
}

#[test]
fn each_key_has_another_low_byte() {
    let (_, objects) = objects();
    let domain = pd(&objects);
    let one = objects.alloc_mw(domain, MwType::TYPE_1).unwrap();
    let two = objects.alloc_mw(domain, MwType::TYPE_2).unwrap();
    assert_ne!(one.rkey, two.rkey);
    assert_eq!(one.rkey >> 8, two.rkey >> 8);
}

#[test]
fn doorbell_records_of_a_page_share_its_mapping() {
    let (device, objects) = objects();
    let one = cq(&objects, 0x20_0000, 63).unwrap();
    assert_eq!(device.mappings(), 2);
    let ring = super::super::ring::RECORD_PAGE;
    let (address, record) = objects.record(0x7000_0ff8).unwrap();
    assert_eq!(address, 0x7000_0ff8);
    assert_eq!(device.mappings(), 2);
    let (_, other) = objects.record(0x7000_0000 + ring).unwrap();
    assert_eq!(device.mappings(), 3);
    drop((record, other));
    objects.destroy_cq(one).unwrap();
    assert_eq!(device.mappings(), 0);
}

/// mlx5dv has a bit for a format of mini entries and the device a number (Linux `mlx5/device.h`, `MLX5_CQE_FORMAT_CSUM` = 1,
/// `MLX5_CQE_FORMAT_CSUM_STRIDX` = 3).
#[test]
fn formats_of_mini_entries_have_the_device_s_numbers() {
    let compressed = |compresses, bit| {
        let (device, objects) = objects_of(Recorder {
            compresses,
            ..Recorder::default()
        });
        let more = udata::CreateCq {
            cqe_comp_en: 1,
            cqe_comp_res_format: bit,
            ..udata::CreateCq::default()
        };
        cq_by(&objects, 0x20_0000, 63, more)?;
        let bytes = device.last();
        let command = CreateCqIn::new(&bytes[..]).unwrap();
        let context = command.cq_context();
        assert!(context.cqe_comp_en());
        Ok(context.mini_cqe_res_format())
    };
    let all = (true, true);
    for (bit, number) in [(1 << 0, 0), (1 << 1, 1), (1 << 2, 3)] {
        assert_eq!(compressed(all, bit), Ok(number));
    }
    for bit in [0, 3, 1 << 3] {
        assert_eq!(compressed(all, bit), Err(Errno(libc::EINVAL)));
    }
    let lacks = Err(Errno(libc::EOPNOTSUPP));
    assert_eq!(compressed((true, false), 1 << 2), lacks);
    assert_eq!(compressed((true, false), 1 << 1), Ok(1));
    assert_eq!(compressed((false, true), 1 << 0), lacks);
}

#[test]
fn formats_of_mini_entries_are_told_as_far_as_the_device_has_them() {
    for (compresses, formats) in [((false, true), 0), ((true, false), 3), ((true, true), 7)] {
        let (_, objects) = objects_of(Recorder {
            compresses,
            ..Recorder::default()
        });
        let told = objects.query_device_ex().unwrap().udata.cqe_comp_caps;
        assert_eq!(told.supported_format.0, formats);
        assert_eq!(told.max_num != 0, compresses.0);
    }
}

/// Options go with the commands that Linux sends them with (`mlx5_core_qp_modify`), and what the device accepts comes back.
#[test]
fn options_of_connections_are_the_device_s_to_accept() {
    const ASKED: u32 = 0x1000_00ff;
    let ask = |known: u32| {
        let (device, objects) = objects_of(Recorder {
            options: known,
            ..Recorder::default()
        });
        let queue = cq(&objects, 0x20_0000, 63).unwrap();
        let request = queue_pair(QpType::UD, pd(&objects), queue);
        let input = udata::CreateQp {
            db_addr: 0x7000_0080,
            ece_options: ASKED,
            ..udata::CreateQp::default()
        };
        // SAFETY: nobody looks at the memory.
        let made = unsafe { objects.create_qp(&request, &input) }.unwrap();
        let told = device.last_of(Opcode::CREATE_QP)[20..24].to_vec();
        let attr = ExModifyQp {
            base: ModifyQp {
                qp_handle: made.handle,
                attr_mask: QpAttrMask::STATE
                    | QpAttrMask::PKEY_INDEX
                    | QpAttrMask::PORT
                    | QpAttrMask::QKEY,
                qp_state: QpState::INIT,
                port_num: 1,
                ..ModifyQp::default()
            },
            ..ExModifyQp::default()
        };
        let input = udata::ModifyQp {
            ece_options: ASKED,
            ..udata::ModifyQp::default()
        };
        let changed = objects.modify_qp(&attr, &input);
        let changed = changed.map(|answer| {
            let bytes = device.last_of(Opcode::RST2INIT_QP);
            (bytes[20..24].to_vec(), answer.ece_options)
        });
        let attributes = objects.get_context(&Default::default()).unwrap();
        let mask = attributes.info.udata.comp_mask;
        let offered = mask.contains(udata::AllocUcontextRespMask::ECE);
        (offered, told, made.udata.ece_options, changed)
    };
    let asked = ASKED.to_be_bytes().to_vec();
    let known = 0x1000_0003;
    let carried = (true, asked.clone(), known, Ok((asked, known)));
    assert_eq!(ask(known), carried);
    let refused = Err(Errno(libc::EOPNOTSUPP));
    assert_eq!(ask(0), (false, vec![0; 4], 0, refused));
}
