//! Decoders take any bytes; encoders send nothing that was not put in.

use std::hint::black_box;

use proptest::collection::vec;
use proptest::prelude::*;
use uverbs_abi::event::{AsyncEvent, CompletionEvent};
use uverbs_abi::ioctl::attribute::{In, Out, SliceIn};
use uverbs_abi::ioctl::{Method, MethodSpec};
use uverbs_abi::netlink::{self, nldev};
use uverbs_abi::object::{self, Object, cq, qp};
use uverbs_abi::trace::{self, Show};
use uverbs_abi::types::{DriverId, QpCap, QpType};
use uverbs_abi::write::frame::PlainView;
use uverbs_abi::write::qp::{ModifyQp, QueryQp};
use uverbs_abi::write::{WriteCall, WriteCommand};
use uverbs_abi::{Command, RequestView, handle};
use zerocopy::{FromBytes, IntoBytes};

/// Memory whose every address holds the same bytes.
struct Anywhere<'m>(&'m [u8]);

impl trace::Memory for Anywhere<'_> {
    fn with(&self, _: u64, len: usize, f: &mut dyn FnMut(Option<&[u8]>)) {
        f(self.0.get(..len));
    }
}

#[derive(Debug)]
enum Any {}

impl Method for Any {
    const SPEC: &'static MethodSpec = &MethodSpec {
        object: Object(7),
        id: 9,
        name: "ANY",
        has_uhw: false,
        attributes: &[],
    };
}

/// Reads everything that a netlink datagram can be taken for.
fn read_netlink(bytes: &[u8]) {
    for message in netlink::messages(bytes) {
        let Ok(message) = message else { break };
        black_box((message.body(), message.command()));
        read_payload(message.payload);
    }
    read_payload(bytes);
}

fn read_payload(payload: &[u8]) {
    for attribute in netlink::attributes(payload).flatten() {
        black_box((attribute.any_number().ok(), attribute.string().ok()));
        black_box(attribute.nested().flatten().count());
    }
    let _ = black_box(nldev::Device::parse(payload));
    let _ = black_box(nldev::Port::parse(payload));
    let _ = black_box(nldev::Chardev::parse(payload).map(|c| (c.major(), c.minor())));
    let _ = black_box(nldev::System::parse(payload));
    black_box(nldev::summary(payload).count());
    for kind in nldev::ResourceKind::ALL {
        black_box(nldev::resources(kind, payload).count());
    }
}

/// Attributes with lengths that agree, so that parsers get past the framing.
fn attributes() -> impl Strategy<Value = Vec<u8>> {
    let leaf =
        (0u16..104, vec(any::<u8>(), 0..20)).prop_map(|(kind, value)| attribute(kind, &value));
    leaf.prop_recursive(3, 40, 8, |inner| {
        (0u16..104, vec(inner, 0..8)).prop_map(|(kind, inner)| attribute(kind, &inner.concat()))
    })
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let len = 4 + value.len() as u16;
    let mut bytes = [len.to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend_from_slice(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

proptest! {
    #[test]
    fn netlink_takes_any_bytes(bytes in vec(any::<u8>(), 0..300)) {
        read_netlink(&bytes);
    }

    #[test]
    fn netlink_takes_any_attributes(all in vec(attributes(), 0..6)) {
        let payload = all.concat();
        read_payload(&payload);
        let len = 16 + payload.len() as u32;
        let mut bytes = len.to_ne_bytes().to_vec();
        bytes.extend_from_slice(&[0; 12]);
        bytes.extend_from_slice(&payload);
        read_netlink(&bytes);
    }

    #[test]
    fn a_device_comes_back(index: u32, ports: u32, guid: u64, name in "[a-z0-9_]{1,63}") {
        let text = [name.as_bytes(), &[0]].concat();
        let payload = [
            attribute(1, index.as_bytes()),
            attribute(2, &text),
            attribute(3, ports.as_bytes()),
            attribute(14, &[1]),
            attribute(6, guid.as_bytes()),
        ];
        let concat = payload.concat();
        let device = nldev::Device::parse(&concat).unwrap();
        prop_assert_eq!((device.index, device.name, device.ports), (index, &*name, ports));
        prop_assert_eq!((device.node_guid, device.node_type), (guid, nldev::NodeType::IB_CA));
        for absent in 0..payload.len() {
            let mut rest = payload.to_vec();
            rest.remove(absent);
            prop_assert!(nldev::Device::parse(&rest.concat()).is_err());
        }
    }

    #[test]
    fn events_take_any_bytes(bytes in vec(any::<u8>(), 0..64)) {
        let mut rest = &bytes[..];
        let mut count = 0;
        while let Some((event, next)) = AsyncEvent::parse(rest) {
            black_box(event);
            rest = next;
            count += 1;
        }
        prop_assert_eq!(count, bytes.len() / 16);
        prop_assert_eq!(CompletionEvent::parse(&bytes).is_some(), bytes.len() >= 8);
    }

    #[test]
    fn requests_take_any_bytes(bytes in vec(any::<u8>(), 0..200)) {
        if let Ok(view) = RequestView::parse(&bytes) {
            black_box(format!("{view:?}"));
        }
        let _ = black_box(RequestView::length(&bytes));
        let _ = black_box(PlainView::parse(&bytes));
    }

    /// Frames whose lengths agree, of methods that exist, the core's and mlx5's.
    #[test]
    fn requests_take_any_attributes(
        object in prop_oneof![0u16..18, 0x1000u16..0x100a],
        method in prop_oneof![0u16..8, 0x1000u16..0x1006],
        driver in prop_oneof![Just(DriverId::MLX5), Just(DriverId::RXE)],
        attrs in vec(
            (
                prop_oneof![0u16..20, 0x1000u16..0x1010],
                0u16..70,
                any::<u16>(),
                any::<u16>(),
                any::<u64>(),
            ),
            0..20,
        ),
        memory in vec(any::<u8>(), 0..70),
    ) {
        let length = (24 + 16 * attrs.len()) as u16;
        let mut bytes = [length, object, method, attrs.len() as u16].as_bytes().to_vec();
        bytes.extend_from_slice([0_u32, 0, driver.0, 0].as_bytes());
        for (id, len, flags, element, data) in &attrs {
            bytes.extend_from_slice([*id, *len, *flags, *element].as_bytes());
            bytes.extend_from_slice(data.as_bytes());
        }
        let view = RequestView::parse(&bytes).unwrap();
        prop_assert_eq!(view.len(), attrs.len());
        for attr in view.attrs() {
            black_box(attr.inline_input());
        }
        if let Some(spec) = object::find_of(driver, Object(object), method) {
            let _ = black_box(spec.check(&view));
        }
        for show in [Show::All, Show::Portable] {
            let mut text = String::new();
            trace::ioctl(&mut text, &view, &Anywhere(&memory), show).unwrap();
        }
        black_box(format!("{view:?}"));
    }

    /// What was put into a command is what is taken out of its bytes.
    #[test]
    fn a_command_comes_back(values in vec((any::<u16>(), vec(any::<u8>(), 0..24)), 0..20)) {
        let mut cmd = Command::<Any>::new();
        for (id, value) in &values {
            cmd.slice(SliceIn::new(*id), value);
        }
        let mut ids: Vec<_> = values.iter().map(|(id, _)| *id).collect();
        ids.sort_unstable();
        ids.dedup();
        let Ok(raw) = cmd.prepare(DriverId(3)) else {
            prop_assert!(ids.len() < values.len(), "only a duplicate is refused");
            return Ok(());
        };
        let view = RequestView::parse(raw.frame.bytes()).unwrap();
        prop_assert_eq!(view.header().driver_id, 3);
        for ((id, value), attr) in values.iter().zip(view.attrs()) {
            prop_assert_eq!((attr.id, usize::from(attr.len)), (*id, value.len()));
            if let Some(inline) = attr.inline_input() {
                prop_assert_eq!(inline.as_ref(), &value[..]);
            }
        }
    }

    /// Any bytes in the output memory are some answer.
    #[test]
    fn answers_take_any_bytes(bytes in vec(any::<u8>(), 512), data: u64) {
        let mut cmd = Command::<qp::create::Method>::new();
        cmd.new_handle(qp::create::HANDLE)
            .output(qp::create::RESP_CAP)
            .output(qp::create::RESP_QP_NUM)
            .uhw_out::<[u8; 40]>();
        let raw = cmd.prepare(DriverId::RXE).unwrap();
        raw.output.as_mut_bytes().copy_from_slice(&bytes);
        raw.frame.attrs[0].data = data;
        let cap = cmd.get(qp::create::RESP_CAP).unwrap();
        prop_assert_eq!(cap.as_bytes(), &bytes[..20]);
        prop_assert_eq!(&cmd.uhw::<[u8; 40]>().unwrap()[..], &bytes[32..72]);
        prop_assert_eq!(cmd.handle(qp::create::HANDLE).is_ok(), data <= u64::from(u32::MAX));
    }

    #[test]
    fn plain_and_invoke_carry_the_same(bytes in vec(any::<u8>(), 112), uhw: [u8; 16]) {
        let request = ModifyQp::read_from_bytes(&bytes).unwrap();
        let mut call = WriteCall::new(request);
        call.uhw_in(&uhw);
        let plain = call.plain().unwrap().bytes.to_vec();
        let view = PlainView::parse(&plain).unwrap();
        prop_assert_eq!(view.command, ModifyQp::SPEC.number);
        prop_assert_eq!((view.request, view.uhw_in), (&bytes[..], &uhw[..]));
    }
}

// ---- nothing from the stack ----

/// Leaves `value` in the stack below the caller, where the next call's locals will be.
#[inline(never)]
fn poison(value: u8) {
    let mut page = [value; 32 * 1024];
    black_box(&mut page);
}

#[inline(never)]
fn create_qp() -> Vec<u8> {
    let mut cmd = Command::<qp::create::Method>::new();
    cmd.new_handle(qp::create::HANDLE)
        .constant(qp::create::TYPE, QpType::RC)
        .input(qp::create::CAP, QpCap::default())
        .input(qp::create::SOURCE_QPN, 5)
        .fd(qp::create::EVENT_FD, 3)
        .output(qp::create::RESP_CAP)
        .uhw_in(&[1u8; 3]);
    everything(&mut cmd)
}

#[inline(never)]
fn create_cq() -> Vec<u8> {
    let mut cmd = Command::<cq::create::Method>::new();
    cmd.input(cq::create::CQE, 5).output(cq::create::RESP_CQE);
    everything(&mut cmd)
}

#[inline(never)]
fn odd_sizes() -> Vec<u8> {
    let mut cmd = Command::<Any>::new();
    cmd.input(In::new(1), [1u8; 3])
        .input(In::new(2), [2u8; 9])
        .input(In::new(3), [3u8; 11])
        .output(Out::<_, [u8; 5]>::new(4));
    everything(&mut cmd)
}

/// All bytes that a kernel could see: the frame, the inputs, and the outputs it leaves alone.
fn everything<M: Method>(cmd: &mut Command<'_, M>) -> Vec<u8> {
    let raw = cmd.prepare(DriverId::RXE).unwrap();
    [
        raw.frame.as_bytes(),
        raw.input.as_bytes(),
        raw.output.as_bytes(),
    ]
    .concat()
}

#[inline(never)]
fn query_qp() -> Vec<u8> {
    let mut call = WriteCall::new(QueryQp {
        qp_handle: handle::Qp(1),
        ..QueryQp::default()
    });
    call.uhw_in(&[1u8; 4]).uhw_out::<u32>();
    let plain = call.plain().unwrap();
    [&plain.bytes[..], plain.response].concat()
}

#[test]
fn bytes_do_not_depend_on_the_stack() {
    for build in [create_qp, create_cq, odd_sizes, query_qp] {
        let seen = [0xa5, 0x5a, 0x00, 0xff].map(|value| {
            poison(value);
            build()
        });
        assert!(seen.iter().all(|bytes| *bytes == seen[0]));
        assert!(!seen[0].windows(2).any(|two| two == [0xa5, 0xa5]));
    }
}
