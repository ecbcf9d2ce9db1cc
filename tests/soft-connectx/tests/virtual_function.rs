//! A virtual function: what it may not say, and how the userspace driver does without.

#![cfg(feature = "in-process")]

mod driver;
#[expect(dead_code, reason = "for other tests")]
mod ends;
#[path = "../../../driver/tests/traffic/mod.rs"]
#[expect(dead_code, reason = "for other tests")]
mod traffic;

use std::io::Write;
use std::sync::{Arc, Mutex};

use driver::{Driver, command};
use ends::{connected, open};
use oxverbs::control::vfio::pci::Pci;
use oxverbs::{Context, WcOpcode};
use soft_connectx::in_process::{Cable, InProcess};
use soft_connectx::trace::{self, Direction};
use soft_connectx::{Config, LinkLayer};
use wqe_format::mlx5::firmware::hca::EnableHcaIn;
use wqe_format::mlx5::firmware::hca_vport::{ModifyHcaVportContextIn, QueryHcaVportContextOut};
use wqe_format::mlx5::firmware::nic_vport::{ModifyNicVportContextIn, QueryNicVportContextOut};
use wqe_format::mlx5::firmware::pages::ManagePagesIn;
use wqe_format::mlx5::firmware::register::RegisterId;
use wqe_format::mlx5::firmware::register::access::AccessRegisterIn;
use wqe_format::mlx5::firmware::register::port::PaosReg;
use wqe_format::mlx5::firmware::{Opcode, Status};

const LINKS: [LinkLayer; 2] = [LinkLayer::InfiniBand, LinkLayer::Ethernet];

fn config(link: LinkLayer, serial: u16, virtual_function: bool) -> Config {
    Config {
        link,
        serial,
        virtual_function,
        ..Config::default()
    }
}

/// ACCESS_REG of 64 bytes of a register.
fn register(id: RegisterId, op_mod: u16) -> Vec<u8> {
    let mut input = vec![0; AccessRegisterIn::SIZE + 64];
    let mut view = AccessRegisterIn::new(&mut input[..]).unwrap();
    view.set_opcode(Opcode::ACCESS_REG.0)
        .set_op_mod(op_mod)
        .set_register_id(id.0);
    input
}

/// A change of an Ethernet port.
fn nic(select: impl Fn(&mut ModifyNicVportContextIn<&mut [u8]>)) -> Vec<u8> {
    let mut input = command::<{ ModifyNicVportContextIn::SIZE }>(Opcode::MODIFY_NIC_VPORT_CONTEXT);
    select(&mut ModifyNicVportContextIn::new(&mut input[..]).unwrap());
    input.to_vec()
}

/// What a virtual function may not say and a physical one may, and the status of the refusal.
fn forbidden() -> Vec<(&'static str, Vec<u8>, Status)> {
    const WRITE: u16 = 0;
    let who = nic(|view| {
        view.field_select_mut().set_permanent_address(true);
    });
    let guid = nic(|view| {
        view.field_select_mut().set_node_guid(true);
    });
    let mut port =
        command::<{ ModifyHcaVportContextIn::SIZE }>(Opcode::MODIFY_HCA_VPORT_CONTEXT).to_vec();
    ModifyHcaVportContextIn::new(&mut port[..])
        .unwrap()
        .hca_vport_context_mut()
        .set_field_select(1);
    let refused = Status::BAD_OP_ERR;
    vec![
        (
            "byte order",
            register(RegisterId::HOST_ENDIANNESS, WRITE),
            refused,
        ),
        ("pauses", register(RegisterId::PFCC, WRITE), refused),
        ("address", who, Status::BAD_PARAM_ERR),
        ("node's GUID", guid, Status::BAD_PARAM_ERR),
        ("port's GUID", port, Status::BAD_PARAM_ERR),
    ]
}

#[test]
fn what_belongs_to_the_physical_function_is_refused() {
    for (what, input, status) in forbidden() {
        let mut whole = Driver::up(config(LinkLayer::Ethernet, 1, false));
        whole.ok(&input, 80);
        let mut part = Driver::up(config(LinkLayer::Ethernet, 1, true));
        assert_eq!(part.refused(&input), status, "{what}");
    }
}

#[test]
fn what_it_may_say_is_done() {
    const READ: u16 = 1;
    const WRITE: u16 = 0;
    let mut part = Driver::up(config(LinkLayer::Ethernet, 1, true));
    for id in [RegisterId::PAOS, RegisterId::PTYS, RegisterId::PMTU] {
        part.ok(&register(id, READ), 80);
        part.ok(&register(id, WRITE), 80);
    }
    // down, as Linux says it: done, without effect on a port that others have too
    let mut down = register(RegisterId::PAOS, WRITE);
    let mut view = PaosReg::new(&mut down[AccessRegisterIn::SIZE..]).unwrap();
    view.set_local_port(1).set_admin_status(2).set_ase(true);
    for (is_virtual, status) in [(false, 2), (true, 1)] {
        let mut driver = Driver::up(config(LinkLayer::Ethernet, 1, is_virtual));
        driver.ok(&down, 80);
        let reply = driver.ok(&register(RegisterId::PAOS, READ), 80);
        let state = PaosReg::new(&reply[16..]).unwrap();
        assert_eq!(state.oper_status(), status, "virtual: {is_virtual}");
    }
    let roce = nic(|view| {
        view.field_select_mut().set_roce_en(true);
        view.nic_vport_context_mut().set_roce_en(true);
    });
    part.ok(&roce, 16);
    let query = command::<16>(Opcode::QUERY_NIC_VPORT_CONTEXT);
    let reply = part.ok(&query, QueryNicVportContextOut::SIZE);
    let reply = QueryNicVportContextOut::new(&reply[..]).unwrap();
    let context = reply.nic_vport_context();
    assert!(context.roce_en());
    let address = context.permanent_address();
    let address = (address.mac_addr_47_32(), address.mac_addr_31_0());
    assert_eq!(address, (0, 0), "nobody gave it one");

    let mut part = Driver::up(config(LinkLayer::InfiniBand, 1, true));
    let query = command::<16>(Opcode::QUERY_HCA_VPORT_CONTEXT);
    let reply = part.ok(&query, QueryHcaVportContextOut::SIZE);
    let reply = QueryHcaVportContextOut::new(&reply[..]).unwrap();
    let context = reply.hca_vport_context();
    assert!(!context.has_smi());
    assert_ne!(context.port_guid(), 0);
    let mads = command::<272>(Opcode::MAD_IFC);
    assert_eq!(part.refused(&mads), Status::BAD_OP_ERR);
}

/// No function enables another here, and pages are given to the one that asked.
#[test]
fn other_functions_are_nobody() {
    for (is_virtual, own) in [(false, 0), (true, 1)] {
        let mut driver = Driver::new(config(LinkLayer::InfiniBand, 1, is_virtual));
        let mut enable = command::<{ EnableHcaIn::SIZE }>(Opcode::ENABLE_HCA);
        EnableHcaIn::new(&mut enable[..])
            .unwrap()
            .set_function_id(2);
        assert_eq!(driver.refused(&enable), Status::BAD_PARAM_ERR);
        driver.simple(Opcode::ENABLE_HCA);
        for function in [0, 1, 2] {
            let mut take = command::<{ ManagePagesIn::SIZE }>(Opcode::MANAGE_PAGES);
            let mut view = ManagePagesIn::new(&mut take[..]).unwrap();
            view.set_op_mod(2).set_function_id(function);
            match function == own {
                true => drop(driver.ok(&take, 16)),
                false => assert_eq!(driver.refused(&take), Status::BAD_PARAM_ERR),
            }
        }
    }
}

/// What a device was told, and answered.
#[derive(Clone, Debug, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// Commands that were refused.
    fn refused(&self) -> Vec<Opcode> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        let answers = trace::parse(&text);
        let answers = answers
            .iter()
            .filter(|dump| dump.direction == Direction::Output);
        (answers.filter(|dump| dump.bytes[0] != Status::OK.0))
            .map(|dump| dump.opcode)
            .collect()
    }
}

fn device(link: LinkLayer, serial: u16, virtual_function: bool) -> Arc<InProcess> {
    InProcess::new(config(link, serial, virtual_function))
}

/// Nothing that the driver says is refused, from the first command to the last; data goes both ways, whatever the peer is.
#[test]
fn the_driver_says_nothing_that_it_may_not() {
    for link in LINKS {
        for peer_is_virtual in [false, true] {
            let devices = [device(link, 1, true), device(link, 2, peer_is_virtual)];
            let _cable = Cable::new(&devices[0], &devices[1]);
            let log = Log::default();
            let trace = Box::new(log.clone());
            devices[0].with(|device| device.trace(trace));
            {
                let [one, other] = open(&devices);
                let mut ends = connected(&one, &other);
                for turn in 0..4u8 {
                    let [from, to] = &mut ends;
                    let bytes = vec![turn ^ 0x5a; 9000];
                    from.region.copy_in(0, &bytes);
                    let part = from.region.slice(0..9000);
                    from.qp
                        .send_half()
                        .write(part, to.region.remote(100))
                        .unwrap();
                    assert_eq!(from.done().opcode(), WcOpcode::RDMA_WRITE);
                    assert_eq!(to.region.to_vec(100..9100), bytes);
                    ends.swap(0, 1);
                }
                one.query_port(1).unwrap();
                let counters = one.port_counters(1).unwrap();
                assert!(counters["counters/port_xmit_packets"] > 0);
            }
            assert_eq!(log.refused(), [], "{link:?}");
            assert_eq!((devices[0].mappings(), devices[0].mapped_pages()), (0, 0));
        }
    }
}

/// The first address of an Ethernet port, of its MAC address.
fn address(context: &Context) -> [u8; 6] {
    match context.query_gid(1, 0).unwrap().unwrap().gid.0 {
        [0xfe, 0x80, .., a, b, c, 0xff, 0xfe, d, e, f] => [a ^ 2, b, c, d, e, f],
        other => panic!("no link-local address: {other:?}"),
    }
}

#[test]
fn a_port_without_an_address_gets_one_by_chance() {
    let devices = [1, 2].map(|serial| device(LinkLayer::Ethernet, serial, true));
    let [one, other] = open(&devices);
    let (a, b) = (address(&one), address(&other));
    assert_ne!(a, b);
    for [first, ..] in [a, b] {
        assert_eq!(first & 3, 2, "local, of one port");
    }
    // the same as long as it is open
    one.add_address([10, 0, 0, 1].into()).unwrap();
    assert_eq!(address(&one), a);
}

/// VFIO answers with the id of the card's virtual functions, which the driver knows the function by.
#[test]
fn it_says_what_it_is() {
    for (is_virtual, id) in [(false, 0x101b), (true, 0x101c)] {
        let function = device(LinkLayer::InfiniBand, 1, is_virtual);
        let mut bytes = [0; 4];
        function.config_read(0, &mut bytes).unwrap();
        assert_eq!(u32::from_le_bytes(bytes), id << 16 | 0x15b3);
    }
}
