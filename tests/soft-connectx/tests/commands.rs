//! Commands through the queue in memory, as a driver sends them, and their trace.

mod rig;

use std::io::Write;
use std::sync::{Arc, Mutex};

use rig::Rig;
use soft_connectx::trace::{self, Direction};
use soft_connectx::{Config, LinkLayer};
use wqe_format::mlx5::firmware::caps::CapType;
use wqe_format::mlx5::firmware::caps::command::{QueryHcaCapIn, QueryHcaCapOut, SetHcaCapIn};
use wqe_format::mlx5::firmware::caps::general::CmdHcaCap;
use wqe_format::mlx5::firmware::command::MboxOut;
use wqe_format::mlx5::firmware::{Delivery, Opcode, Status};

/// A sink whose content can be read.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn query(rig: &mut Rig, op_mod: u16) -> Vec<u8> {
    let mut input = QueryHcaCapIn::zeroed();
    input.set_opcode(Opcode::QUERY_HCA_CAP.0).set_op_mod(op_mod);
    rig.run(input.as_bytes(), QueryHcaCapOut::SIZE).unwrap()
}

#[test]
fn the_device_comes_up_and_its_commands_are_traced() {
    let mut rig = Rig::new(Config::default());
    let log = Log::default();
    rig.device.trace(Box::new(log.clone()));
    rig.up();
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let dumps = trace::parse(&text);
    let opcodes: Vec<Opcode> = dumps
        .iter()
        .filter(|dump| dump.direction == Direction::Input)
        .map(|dump| dump.opcode)
        .collect();
    assert_eq!(
        opcodes,
        [
            Opcode::ENABLE_HCA,
            Opcode::SET_ISSI,
            Opcode::QUERY_PAGES,
            Opcode::MANAGE_PAGES,
            Opcode::QUERY_PAGES,
            Opcode::MANAGE_PAGES,
            Opcode::INIT_HCA
        ]
    );
    assert_eq!(dumps.len(), 2 * opcodes.len());
    let printed: String = dumps.iter().map(|dump| dump.to_string()).collect();
    assert_eq!(printed, text);
}

#[test]
fn a_driver_puts_capabilities_in_force() {
    for link in [LinkLayer::InfiniBand, LinkLayer::Ethernet] {
        let config = Config {
            link,
            ..Config::default()
        };
        let mut rig = Rig::new(config);
        rig.simple(Opcode::ENABLE_HCA, 0);
        let possible = query(&mut rig, CapType::GENERAL.maximum());
        let possible = QueryHcaCapOut::new(&possible).unwrap();
        let caps = CmdHcaCap::new(possible.capability()).unwrap();
        assert_eq!(caps.port_type() == 1, link == LinkLayer::Ethernet);

        // A smaller table of queue pairs is granted, a larger one is not.
        for (log_max_qp, status) in [(9, Status::OK), (31, Status::BAD_PARAM_ERR)] {
            let mut bytes = vec![0; SetHcaCapIn::SIZE];
            let mut input = SetHcaCapIn::new(&mut bytes[..]).unwrap();
            input
                .set_opcode(Opcode::SET_HCA_CAP.0)
                .set_op_mod(CapType::GENERAL.maximum());
            let place = input.capability_mut();
            place.copy_from_slice(possible.capability());
            CmdHcaCap::new(place).unwrap().set_log_max_qp(log_max_qp);
            let output = rig.run(&bytes, 16).unwrap();
            assert_eq!(MboxOut::new(&output).unwrap().status(), status.0);
        }
        let current = query(&mut rig, CapType::GENERAL.current());
        let current = QueryHcaCapOut::new(&current).unwrap();
        let caps = CmdHcaCap::new(current.capability()).unwrap();
        assert_eq!(caps.log_max_qp(), 9);
    }
}

#[test]
fn commands_that_nobody_knows_are_refused_and_change_nothing() {
    let mut rig = Rig::new(Config::default());
    let mut input = [0; 16];
    input[..2].copy_from_slice(&0x0fff_u16.to_be_bytes());
    let output = rig.run(&input, 16).unwrap();
    let reply = MboxOut::new(&output).unwrap();
    assert_eq!(reply.status(), Status::BAD_OP_ERR.0);
    assert_ne!(reply.syndrome(), 0);
    // Too short to be a command at all.
    assert_eq!(rig.run(&input[..4], 16), Err(Delivery::IN_LENGTH_ERR.0));
    rig.up();
}
