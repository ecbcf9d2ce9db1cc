//! Write commands in both framings.

use uverbs_abi::handle;
use uverbs_abi::ioctl::{Error, Slot, wire};
use uverbs_abi::types::{AccessFlags, DriverId};
use uverbs_abi::udata::rxe;
use uverbs_abi::write::cq::{CreateCq, ExCreateCq, ReqNotifyCq};
use uverbs_abi::write::flow::{CreateFlow, FlowSpecActionDrop};
use uverbs_abi::write::frame::{FLAG_EXTENDED, PlainView};
use uverbs_abi::write::mr::RegMr;
use uverbs_abi::write::pd::{AllocPd, DeallocPd};
use uverbs_abi::write::post::PostSend;
use uverbs_abi::write::srq::ModifySrq;
use uverbs_abi::write::{COMMANDS, WriteCall, WriteCommand, find};
use zerocopy::IntoBytes;

/// Bytes of a command line by line, 4 bytes each.
fn words(bytes: &[u8]) -> Vec<u32> {
    bytes
        .chunks_exact(4)
        .map(|word| u32::from_ne_bytes(word.try_into().unwrap()))
        .collect()
}

#[test]
fn plain_without_response() {
    let mut call = WriteCall::new(DeallocPd {
        pd_handle: handle::Pd(5),
    });
    let plain = call.plain().unwrap();
    // IB_USER_VERBS_CMD_DEALLOC_PD, 3 words in, none out
    assert_eq!(words(plain.bytes), [4, 3, 5]);
    assert_eq!(plain.response_at, None);
    assert!(plain.response.is_empty());
}

#[test]
fn plain_with_response_and_driver_data() {
    let mut call = WriteCall::new(CreateCq {
        user_handle: 0x1111,
        cqe: 8,
        comp_channel: -1,
        ..CreateCq::default()
    });
    call.uhw_out::<rxe::CreateCqResp>();
    let plain = call.plain().unwrap();
    if cfg!(target_endian = "little") {
        // 10 words in, 2 + 4 words out
        let header = [18, 10 | 6 << 16];
        let core = [0, 0, 0x1111, 0, 8, 0, 0xffff_ffff, 0];
        assert_eq!(words(plain.bytes), [&header[..], &core].concat());
    }
    assert_eq!(plain.response_at, Some(8));
    assert_eq!(plain.response.len(), 8 + 16);
    plain.response[..4].copy_from_slice(&3u32.to_ne_bytes());
    plain.response[16..20].copy_from_slice(&4096u32.to_ne_bytes());
    assert_eq!(call.response().cq_handle, handle::Cq(3));
    assert_eq!(call.uhw::<rxe::CreateCqResp>().mi.size, 4096);
}

#[test]
fn plain_extended() {
    let mut call = WriteCall::new(ExCreateCq {
        user_handle: 1,
        cqe: 2,
        ..ExCreateCq::default()
    });
    call.uhw_in(&[7u8; 16]).uhw_out::<rxe::CreateCqResp>();
    let plain = call.plain().unwrap();
    if cfg!(target_endian = "little") {
        let headers = [FLAG_EXTENDED | 18, 4 | 2 << 16, 0, 0, 2 | 2 << 16, 0];
        let core = [1, 0, 2, 0, 0, 0, 0, 0];
        assert_eq!(
            words(plain.bytes),
            [&headers[..], &core, &[0x0707_0707; 4]].concat()
        );
    }
    assert_eq!((plain.response_at, plain.response.len()), (Some(8), 32));
}

#[test]
fn as_invoke_write() {
    let mut call = WriteCall::new(RegMr {
        start: 0x1000,
        access_flags: AccessFlags::LOCAL_WRITE,
        ..RegMr::default()
    });
    let mut command = call.invoke().unwrap();
    let mut raw = command.prepare(DriverId::RXE).unwrap();
    assert_eq!(raw.frame.header.method_id, 0);
    let seen: Vec<_> = raw
        .attrs()
        .map(|(attr, slot)| {
            let place = match slot {
                Slot::Inline => "inline",
                Slot::ExternIn(_) => "in",
                Slot::ExternOut(_) => "out",
                _ => "own",
            };
            (attr.attr_id, attr.len, place)
        })
        .collect();
    // WRITE_CMD, CORE_IN, CORE_OUT
    assert_eq!(seen, [(2, 8, "inline"), (0, 40, "in"), (1, 12, "out")]);
    assert_eq!(raw.frame.attrs[0].data, 9);
}

#[test]
fn short_parts_travel_inside_invoke_write() {
    let mut call = WriteCall::new(ReqNotifyCq {
        cq_handle: handle::Cq(2),
        solicited_only: 1,
    });
    let mut command = call.invoke().unwrap();
    let raw = command.prepare(DriverId::RXE).unwrap();
    let core_in = raw.frame.attrs[1];
    assert_eq!(core_in.len, 8);
    assert_eq!(words(core_in.data.as_bytes()), [2, 1]);
    assert_eq!(raw.frame.header.num_attrs, 2, "no response, no CORE_OUT");

    let mut call = WriteCall::new(ModifySrq::default());
    call.uhw_in(&rxe::ModifySrqCmd {
        mmap_info_addr: 0x55,
    });
    let mut command = call.invoke().unwrap();
    let raw = command.prepare(DriverId::RXE).unwrap();
    let uhw = raw.frame.attrs[2];
    assert_eq!(
        (uhw.attr_id, uhw.len, uhw.data),
        (wire::ATTR_UHW_IN, 8, 0x55)
    );
}

#[test]
fn extended_commands_say_so_in_invoke_write() {
    let mut call = WriteCall::new(ExCreateCq::default());
    let mut command = call.invoke().unwrap();
    let raw = command.prepare(DriverId::RXE).unwrap();
    assert_eq!(raw.frame.attrs[0].data, 0x8000_0012);
}

#[test]
fn the_doorbell_of_rxe_has_32_bytes() {
    let mut call = WriteCall::new(PostSend {
        qp_handle: handle::Qp(7),
        ..PostSend::default()
    });
    let plain = call.plain().unwrap();
    assert_eq!(plain.bytes.len(), 32);
}

#[test]
fn variable_parts_follow_the_core() {
    let mut call = WriteCall::new(CreateFlow::default());
    call.tail(FlowSpecActionDrop::default().as_bytes());
    let plain = call.plain().unwrap();
    assert_eq!(plain.bytes.len(), 24 + 24 + 8);
    let view = PlainView::parse(plain.bytes).unwrap();
    assert_eq!((view.request.len(), view.response_len), (32, 8));
}

#[test]
fn what_does_not_fit_is_an_error() {
    let mut call = WriteCall::new(AllocPd::default());
    call.uhw_in(&[0u8; 400]);
    assert_eq!(call.plain().unwrap_err(), Error::InputFull);
    assert_eq!(call.invoke().unwrap_err(), Error::InputFull);
    let mut call = WriteCall::new(AllocPd::default());
    call.uhw_out_len(500);
    assert_eq!(call.plain().unwrap_err(), Error::OutputFull);
    let mut call = WriteCall::<AllocPd, 64, 128>::with_capacity(AllocPd::default());
    call.uhw_in(&[0u8; 400]).uhw_out_len(500);
    assert!(call.plain().is_ok());
    // lengths count in words
    let mut call = WriteCall::new(AllocPd::default());
    call.uhw_in(&[0u8; 3]);
    assert_eq!(call.plain().unwrap_err(), Error::TooLong);
}

#[test]
fn what_the_kernel_did_not_write_is_zero() {
    let mut call = WriteCall::new(AllocPd::default());
    call.uhw_out::<u64>();
    assert_eq!(call.response().pd_handle, handle::Pd(0));
    assert_eq!(call.uhw::<u64>(), 0);
    // no room was made for so much
    assert_eq!(call.uhw::<[u64; 2]>(), [0, 0]);
}

#[test]
fn plain_commands_taken_apart() {
    let mut call = WriteCall::new(CreateCq {
        response: 0x7000,
        cqe: 3,
        ..CreateCq::default()
    });
    call.uhw_out::<rxe::CreateCqResp>();
    let bytes = call.plain().unwrap().bytes.to_vec();
    let view = PlainView::parse(&bytes).unwrap();
    assert_eq!(view.spec.unwrap().name, "IB_USER_VERBS_CMD_CREATE_CQ");
    assert_eq!(view.response, 0x7000);
    assert_eq!((view.request.len(), view.uhw_in.len()), (32, 0));
    assert_eq!((view.response_len, view.uhw_out_len), (8, 16));
    // lengths that disagree
    assert_eq!(PlainView::parse(&bytes[..bytes.len() - 4]), None);
    assert_eq!(PlainView::parse(&bytes[..7]), None);
}

#[test]
fn numbers_are_unique_and_found() {
    let all: Vec<_> = COMMANDS.iter().flat_map(|module| module.iter()).collect();
    for spec in &all {
        assert_eq!(find(spec.command()), Some(**spec));
        assert_eq!(spec.request_len % 4, 0, "{}", spec.name);
        if spec.extended {
            assert_eq!(
                (spec.request_len % 8, spec.response_len % 8),
                (0, 0),
                "{}",
                spec.name
            );
        }
    }
    assert_eq!(find(10), None, "REG_SMR was never made");
    assert_eq!(RegMr::SPEC.command(), 9);
}

/// Every command that has a response has its address first, unless it is extended.
#[test]
fn response_pointers_come_first() {
    use uverbs_abi::layout;
    let structs: Vec<_> = layout::ALL
        .iter()
        .flat_map(|(_, layouts)| *layouts)
        .collect();
    for spec in COMMANDS.iter().flat_map(|module| module.iter()) {
        let tag = spec
            .name
            .trim_start_matches("IB_USER_VERBS_")
            .to_lowercase();
        let tag = tag.replace("ex_cmd_", "ex_").replace("cmd_", "");
        let candidates = [
            format!("ib_uverbs_{tag}"),
            format!("ib_uverbs_{tag}").replace("rwq_ind_tbl", "rwq_ind_table"),
            format!("ib_uverbs_{tag}").replace("ex_", ""),
        ];
        let layout = candidates
            .iter()
            .find_map(|name| structs.iter().find(|layout| layout.c_name == name))
            .unwrap_or_else(|| panic!("no struct for {}", spec.name));
        assert_eq!(layout.size, spec.request_len, "{}", spec.name);
        let first = layout.fields[0].name;
        assert_eq!(
            first == "response",
            spec.has_response_pointer(),
            "{}",
            spec.name
        );
    }
}

/// The older create_qp is made from the newer by one copy.
#[test]
fn the_older_create_qp_has_the_newer_ones_fields() {
    use uverbs_abi::layout::HasLayout;
    use uverbs_abi::write::qp::{CreateQp, ExCreateQp};
    for old in &CreateQp::LAYOUT.fields[1..] {
        let new = ExCreateQp::LAYOUT.fields.iter();
        let new = new.clone().find(|new| new.name == old.name).unwrap();
        assert_eq!((new.offset + 8, new.size), (old.offset, old.size));
    }
    let new = ExCreateQp {
        user_handle: 1,
        is_srq: 1,
        max_inline_data: 2,
        source_qpn: 3,
        ..ExCreateQp::default()
    };
    let old = CreateQp {
        user_handle: 1,
        is_srq: 1,
        max_inline_data: 2,
        ..CreateQp::default()
    };
    assert_eq!(new.legacy(), old);
}
