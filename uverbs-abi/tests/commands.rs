//! What a command looks like on the wire, and what happens at its edges.

use uverbs_abi::ioctl::attribute::{HandlesIn, In, Out, SliceIn, SliceOut};
use uverbs_abi::ioctl::spec::{HasUhw, Refusal};
use uverbs_abi::ioctl::wire::{self, ATTR_F_MANDATORY, Attr, INLINE_MAX, MAX_ATTRS};
use uverbs_abi::ioctl::{Error, Kind, Malformed, Method, MethodSpec, Slot};
use uverbs_abi::object::{self, Object, cq, flow_action, mr, qp};
use uverbs_abi::types::{
    AccessFlags, CreateQpFlags, DriverId, EspKeymat, EspKeymatAesGcm, EspReplay, QpCap, QpType, Sge,
};
use uverbs_abi::{Command, RequestView, handle};
use zerocopy::IntoBytes;

const DRIVER: DriverId = DriverId::RXE;

/// A method of a driver, as another crate would declare it.
#[derive(Debug)]
enum Driver {}

impl Method for Driver {
    const SPEC: &'static MethodSpec = &MethodSpec {
        object: Object(0x1000),
        id: 0x1003,
        name: "DRIVER_METHOD",
        has_uhw: true,
        attributes: &[],
    };
}

impl HasUhw for Driver {}

/// The attributes of a finished command.
fn attrs<M: Method>(cmd: &mut Command<'_, M>) -> Vec<Attr> {
    let raw = cmd.prepare(DRIVER).unwrap();
    let count = usize::from(raw.frame.header.num_attrs);
    raw.frame.attrs[..count].to_vec()
}

#[test]
fn the_header() {
    let mut cmd = Command::<cq::destroy::Method>::new();
    cmd.destroy(cq::destroy::HANDLE, handle::Cq(3))
        .output(cq::destroy::RESP);
    let raw = cmd.prepare(DRIVER).unwrap();
    let h = raw.frame.header;
    assert_eq!(
        (h.length, h.object_id, h.method_id, h.num_attrs),
        (56, 3, 1, 2)
    );
    assert_eq!((h.driver_id, h.reserved1, h.reserved2), (14, 0, 0));
}

#[test]
fn inputs_up_to_8_bytes_travel_inside() {
    for len in 0..=INLINE_MAX + 1 {
        let bytes = vec![0xa5; len];
        let mut cmd = Command::<Driver>::new();
        cmd.slice(SliceIn::new(1), &bytes);
        let attr = attrs(&mut cmd)[0];
        let mut raw = cmd.prepare(DRIVER).unwrap();
        let (_, slot) = raw.attrs().next().unwrap();
        assert_eq!(usize::from(attr.len), len);
        if len <= INLINE_MAX {
            let mut data = [0; 8];
            data[..len].fill(0xa5);
            assert_eq!(attr.data.to_ne_bytes(), data, "the rest is zero");
            assert!(matches!(slot, Slot::Inline));
        } else {
            assert!(matches!(slot, Slot::ExternIn(slice) if **slice == bytes[..]));
        }
    }
}

#[test]
fn longer_inputs_are_copied_aligned() {
    let mut cmd = Command::<Driver>::new();
    cmd.input(In::new(1), [1u8; 9]).input(In::new(2), [2u8; 20]);
    let mut raw = cmd.prepare(DRIVER).unwrap();
    let (_, input, _, slots) = raw.split();
    let places: Vec<_> = slots
        .map(|slot| match slot {
            Slot::Input { offset, len } => (*offset, *len),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(places, [(0, 9), (16, 20)]);
    assert_eq!(input.as_bytes()[16..36], [2; 20]);
}

#[test]
fn outputs_always_have_memory() {
    let mut cmd = Command::<Driver>::new();
    cmd.output(Out::<_, u8>::new(1))
        .output(Out::<_, u32>::new(2));
    let mut raw = cmd.prepare(DRIVER).unwrap();
    let (_, _, output, slots) = raw.split();
    let places: Vec<_> = slots
        .map(|slot| match slot {
            Slot::Output { offset, len } => (*offset, *len),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(places, [(0, 1), (8, 4)]);
    output[1] = 0x0102_0304_0506_0708_u64;
    let seen = cmd.get(Out::<_, u32>::new(2)).unwrap();
    assert_eq!(
        seen.to_ne_bytes(),
        0x0102_0304_0506_0708_u64.to_ne_bytes()[..4]
    );
}

#[test]
fn numbers_of_objects() {
    let mut cmd = Command::<qp::create::Method>::new();
    cmd.object(qp::create::PD_HANDLE, handle::Pd(u32::MAX))
        .fd(qp::create::EVENT_FD, -1)
        .new_handle(qp::create::HANDLE)
        .constant(qp::create::TYPE, QpType::DRIVER)
        .flags(qp::create::FLAGS, CreateQpFlags::SQ_SIG_ALL);
    let attrs = attrs(&mut cmd);
    let seen: Vec<_> = attrs.iter().map(|a| (a.attr_id, a.len, a.data)).collect();
    let flags = u64::from_ne_bytes({
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&0x1000_u32.to_ne_bytes());
        bytes
    });
    assert_eq!(
        seen,
        [
            (2, 0, 0xffff_ffff),
            (12, 0, u64::MAX),
            (0, 0, 0),
            (9, 8, 0xff),
            (10, 4, flags)
        ]
    );
    assert!(attrs.iter().all(|a| a.flags == ATTR_F_MANDATORY));
}

#[test]
fn only_the_attribute_set_last_becomes_optional() {
    let mut cmd = Command::<cq::create::Method>::new();
    cmd.optional(); // of nothing
    cmd.new_handle(cq::create::HANDLE)
        .fd(cq::create::EVENT_FD, 4)
        .optional()
        .input(cq::create::CQE, 1);
    let flags: Vec<_> = attrs(&mut cmd).iter().map(|a| a.flags).collect();
    assert_eq!(flags, [1, 0, 1]);
}

#[test]
fn elements_of_enumerations() {
    use flow_action::esp_create as esp;
    let key = EspKeymatAesGcm::default();
    let mut cmd = Command::<esp::Method>::new();
    cmd.enumerated(esp::KEYMAT, EspKeymat::AES_GCM, key)
        .enumerated(esp::REPLAY, EspReplay::BMP, 64u32);
    let attrs = attrs(&mut cmd);
    assert_eq!((attrs[0].len, attrs[0].elem_id), (56, 0));
    assert_eq!(
        (attrs[1].len, attrs[1].elem_id, attrs[1].reserved),
        (4, 1, 0)
    );
}

#[test]
fn everything_optional_at_once_fits() {
    use qp::create;
    let mut cmd = Command::<create::Method>::new();
    cmd.new_handle(create::HANDLE)
        .object(create::XRCD_HANDLE, handle::Xrcd(1))
        .object(create::PD_HANDLE, handle::Pd(1))
        .object(create::SRQ_HANDLE, handle::Srq(1))
        .object(create::SEND_CQ_HANDLE, handle::Cq(1))
        .object(create::RECV_CQ_HANDLE, handle::Cq(1))
        .object(create::IND_TABLE_HANDLE, handle::RwqIndTbl(1))
        .input(create::USER_HANDLE, 1)
        .input(create::CAP, QpCap::default())
        .constant(create::TYPE, QpType::RC)
        .flags(create::FLAGS, CreateQpFlags::NONE)
        .input(create::SOURCE_QPN, 1)
        .fd(create::EVENT_FD, 1)
        .output(create::RESP_CAP)
        .output(create::RESP_QP_NUM)
        .uhw_in(&[1u8; 152])
        .uhw_out::<[u8; 40]>();
    let raw = cmd.prepare(DRIVER).unwrap();
    let view = RequestView::parse(raw.frame.bytes()).unwrap();
    assert_eq!(view.len(), create::SPEC.attributes.len() + 2);
    assert_eq!(create::SPEC.check(&view), Ok(()));
}

#[test]
fn every_method_of_the_core_fits() {
    for (_, methods) in object::OBJECTS {
        for method in *methods {
            let uhw = if method.has_uhw { 2 } else { 0 };
            // mlx5 adds up to 8 attributes of its own to a method
            assert!(
                method.attributes.len() + uhw + 8 <= MAX_ATTRS,
                "{}",
                method.name
            );
        }
    }
}

#[test]
fn what_does_not_fit_is_an_error_and_no_panic() {
    let mut cmd = Command::<Driver>::new();
    for id in 0..=MAX_ATTRS as u16 {
        cmd.input(In::new(id), id);
    }
    assert_eq!(cmd.prepare(DRIVER).unwrap_err(), Error::TooManyAttributes);
    // the first error stays
    cmd.input(In::new(0), 0u8);
    assert_eq!(cmd.prepare(DRIVER).unwrap_err(), Error::TooManyAttributes);

    let mut cmd = Command::<Driver>::new();
    cmd.input(In::new(1), [0u8; 500])
        .input(In::new(2), [0u8; 9]);
    assert_eq!(cmd.prepare(DRIVER).unwrap_err(), Error::InputFull);

    let mut cmd = Command::<Driver>::new();
    cmd.output(Out::<_, [u8; 500]>::new(1))
        .output(Out::<_, [u8; 16]>::new(2));
    assert_eq!(cmd.prepare(DRIVER).unwrap_err(), Error::OutputFull);

    let long = vec![0u8; 65_536];
    let mut cmd = Command::<Driver>::new();
    cmd.slice(SliceIn::new(1), &long);
    assert_eq!(cmd.prepare(DRIVER).unwrap_err(), Error::TooLong);
    let mut long = vec![0u8; 65_536];
    let mut cmd = Command::<Driver>::new();
    cmd.output_slice(SliceOut::new(1), &mut long);
    assert_eq!(cmd.prepare(DRIVER).unwrap_err(), Error::TooLong);

    let mut cmd = Command::<cq::create::Method>::new();
    cmd.input(cq::create::CQE, 1).input(cq::create::CQE, 2);
    assert_eq!(cmd.prepare(DRIVER).unwrap_err(), Error::Duplicate(1));
}

#[test]
fn the_longest_slice_goes() {
    let values = vec![Sge::default(); 65_535 / 16];
    let mut cmd = Command::<mr::advise::Method>::new();
    cmd.slice(mr::advise::SGE_LIST, &values);
    assert_eq!(attrs(&mut cmd)[0].len, 65_520);
}

#[test]
fn arrays_of_handles() {
    let handles = [handle::Cq(1), handle::Cq(2), handle::Cq(3)];
    let attr = HandlesIn::new(5);
    let mut cmd = Command::<Driver>::new();
    cmd.objects(attr, &handles[..2]);
    let two = attrs(&mut cmd)[0];
    assert_eq!((two.len, two.data.as_bytes()), (8, handles[..2].as_bytes()));
    let mut cmd = Command::<Driver>::new();
    cmd.objects(attr, &handles);
    assert_eq!(attrs(&mut cmd)[0].len, 12);
}

#[test]
fn answers_that_are_impossible() {
    let mut cmd = Command::<qp::create::Method>::new();
    cmd.new_handle(qp::create::HANDLE);
    let raw = cmd.prepare(DRIVER).unwrap();
    raw.frame.attrs[0].data = 1 << 32;
    assert_eq!(cmd.handle(qp::create::HANDLE), Err(Error::BadNumber(0)));
    assert_eq!(cmd.get(qp::create::RESP_CAP), Err(Error::Absent(13)));

    use object::async_event::alloc;
    let mut cmd = Command::<alloc::Method>::new();
    cmd.new_fd(alloc::FD_HANDLE);
    for (number, fd) in [
        (7, Ok(7)),
        (-1, Err(Error::BadNumber(0))),
        (1 << 31, Err(Error::BadNumber(0))),
    ] {
        let raw = cmd.prepare(DRIVER).unwrap();
        raw.frame.attrs[0].data = number as u64;
        assert_eq!(cmd.raw_fd(alloc::FD_HANDLE), fd);
    }
}

/// A kernel that overwrites ids, lengths and counts does not move where answers are read from.
#[test]
fn what_comes_back_in_the_frame_is_not_trusted() {
    let mut cmd = Command::<qp::create::Method>::new();
    cmd.new_handle(qp::create::HANDLE)
        .output(qp::create::RESP_CAP)
        .output(qp::create::RESP_QP_NUM);
    let raw = cmd.prepare(DRIVER).unwrap();
    raw.frame.header.num_attrs = u16::MAX;
    for attr in &mut raw.frame.attrs {
        attr.attr_id = u16::MAX;
        attr.len = u16::MAX;
    }
    raw.frame.attrs[0].data = 5;
    raw.output[3] = u64::from_ne_bytes([9, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(cmd.handle(qp::create::HANDLE), Ok(handle::Qp(5)));
    assert_eq!(
        cmd.get(qp::create::RESP_QP_NUM).unwrap().to_ne_bytes()[0],
        9
    );
    assert_eq!(cmd.get(qp::create::RESP_CAP), Ok(QpCap::default()));
}

#[test]
fn what_the_kernel_says_it_wrote() {
    let mut cmd = Command::<qp::create::Method>::new();
    cmd.output(qp::create::RESP_CAP);
    assert!(!cmd.written(&qp::create::RESP_CAP));
    let raw = cmd.prepare(DRIVER).unwrap();
    raw.frame.attrs[0].flags |= wire::ATTR_F_VALID_OUTPUT;
    assert!(cmd.written(&qp::create::RESP_CAP));
    assert!(!cmd.written(&qp::create::RESP_QP_NUM));
}

#[test]
fn the_drivers_answer() {
    let mut bytes = [0u8; 12];
    let mut cmd = Command::<qp::create::Method>::new();
    cmd.uhw_out::<[u8; 12]>();
    let raw = cmd.prepare(DRIVER).unwrap();
    raw.output[0] = u64::MAX;
    assert_eq!(
        cmd.uhw::<[u8; 12]>().unwrap()[..9],
        [255, 255, 255, 255, 255, 255, 255, 255, 0]
    );
    let mut cmd = Command::<qp::create::Method>::new();
    assert_eq!(cmd.uhw::<u32>(), Err(Error::Absent(wire::ATTR_UHW_OUT)));
    cmd.uhw_out_bytes(&mut bytes);
    let mut raw = cmd.prepare(DRIVER).unwrap();
    let Some((_, Slot::ExternOut(room))) = raw.attrs().next() else {
        panic!("no room");
    };
    room[11] = 1;
    assert_eq!(bytes[11], 1);
}

// ---- the other side ----

#[test]
fn a_request_taken_apart() {
    let mut cmd = Command::<mr::dm_reg::Method>::new();
    cmd.new_handle(mr::dm_reg::HANDLE)
        .input(mr::dm_reg::LENGTH, 77)
        .flags(mr::dm_reg::ACCESS_FLAGS, AccessFlags::ZERO_BASED);
    let raw = cmd.prepare(DRIVER).unwrap();
    let bytes = raw.frame.bytes().to_vec();
    let view = RequestView::parse(&bytes).unwrap();
    assert_eq!(view.method(), (Object::MR, 0));
    assert_eq!(view.spec().unwrap().name, "UVERBS_METHOD_DM_MR_REG");
    let (place, length) = view.position(2).unwrap();
    assert_eq!(place, 1);
    assert_eq!(length.inline_input().unwrap().as_ref(), 77u64.as_bytes());
    assert_eq!(
        bytes[RequestView::attr_offset(1)..][..2],
        2u16.to_ne_bytes(),
        "where the kernel writes back"
    );
    assert_eq!(
        mr::dm_reg::SPEC.check(&view),
        Err(Refusal::Missing("UVERBS_ATTR_REG_DM_MR_OFFSET"))
    );
}

#[test]
fn requests_that_the_kernel_refuses_unseen() {
    let mut cmd = Command::<cq::destroy::Method>::new();
    cmd.destroy(cq::destroy::HANDLE, handle::Cq(1))
        .output(cq::destroy::RESP);
    let raw = cmd.prepare(DRIVER).unwrap();
    let good = raw.frame.bytes().to_vec();
    let broken = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] ^= value;
        bytes
    };
    assert_eq!(RequestView::length(&good), Ok(56));
    assert!(RequestView::parse(&good).is_ok());
    let parse = |bytes: &[u8]| RequestView::parse(bytes).map(drop);
    assert_eq!(parse(&good[..23]), Err(Malformed::Short));
    assert_eq!(parse(&good[..55]), Err(Malformed::Short));
    assert_eq!(parse(&broken(0, 1)), Err(Malformed::Length));
    assert_eq!(parse(&broken(6, 1)), Err(Malformed::Length));
    assert_eq!(parse(&broken(8, 1)), Err(Malformed::Reserved));
    assert_eq!(parse(&broken(20, 1)), Err(Malformed::Reserved));
    let check = |bytes: &[u8]| cq::destroy::SPEC.check(&RequestView::parse(bytes).unwrap());
    assert_eq!(check(&good), Ok(()));
    assert_eq!(check(&broken(2, 1)), Err(Refusal::OtherMethod));
    assert_eq!(check(&broken(24, 64)), Err(Refusal::Unknown(64)));
    assert_eq!(
        check(&broken(24, 1)),
        Err(Refusal::Length("UVERBS_ATTR_DESTROY_CQ_RESP"))
    );
    assert_eq!(
        check(&broken(26, 4)),
        Err(Refusal::Length("UVERBS_ATTR_DESTROY_CQ_HANDLE"))
    );
    assert_eq!(
        check(&broken(31, 1)),
        Err(Refusal::Reserved("UVERBS_ATTR_DESTROY_CQ_HANDLE"))
    );
    assert_eq!(
        check(&broken(40, 1)),
        Err(Refusal::Duplicate("UVERBS_ATTR_DESTROY_CQ_HANDLE"))
    );
    // an attribute that the kernel does not know and need not know is passed over
    let mut optional = broken(24, 64);
    optional[28] = 0;
    assert_eq!(
        check(&optional),
        Err(Refusal::Missing("UVERBS_ATTR_DESTROY_CQ_HANDLE"))
    );
}

#[test]
fn kinds_say_what_they_are() {
    let spec = qp::create::SPEC;
    let kind = |id| spec.attribute(id).unwrap().kind;
    assert_eq!(kind(0), Kind::NewHandle);
    assert!(kind(0).is_object() && !kind(0).is_output());
    assert!(kind(13).is_output() && !kind(13).is_object());
    assert!(spec.attribute(15).is_none());
}
