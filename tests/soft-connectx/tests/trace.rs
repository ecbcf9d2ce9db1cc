//! Commands' trace, and capabilities as a driver puts them in force.

mod driver;

use std::io::Write;
use std::sync::{Arc, Mutex};

use driver::Driver;
use soft_connectx::trace::{self, Direction};
use soft_connectx::{Config, LinkLayer};
use wqe_format::mlx5::firmware::caps::CapType;
use wqe_format::mlx5::firmware::caps::command::{QueryHcaCapIn, QueryHcaCapOut, SetHcaCapIn};
use wqe_format::mlx5::firmware::caps::general::CmdHcaCap;
use wqe_format::mlx5::firmware::command::MboxOut;
use wqe_format::mlx5::firmware::{Opcode, Status};

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

fn query(driver: &mut Driver, op_mod: u16) -> Vec<u8> {
    let mut input = QueryHcaCapIn::zeroed();
    input.set_opcode(Opcode::QUERY_HCA_CAP.0).set_op_mod(op_mod);
    driver.ok(input.as_bytes(), QueryHcaCapOut::SIZE)
}

#[test]
fn the_device_comes_up_and_its_commands_are_traced() {
    let mut driver = Driver::new(Config::default());
    let log = Log::default();
    driver.device.trace(Box::new(log.clone()));
    driver.again();
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
        let mut driver = Driver::new(config);
        driver.simple(Opcode::ENABLE_HCA);
        let possible = query(&mut driver, CapType::GENERAL.maximum());
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
            let output = driver.send(&bytes, 16);
            assert_eq!(MboxOut::new(&output).unwrap().status(), status.0);
        }
        let current = query(&mut driver, CapType::GENERAL.current());
        let current = QueryHcaCapOut::new(&current).unwrap();
        let caps = CmdHcaCap::new(current.capability()).unwrap();
        assert_eq!(caps.log_max_qp(), 9);
    }
}
