//! The command interface as a driver sees it: initialization segment, queue, mailboxes, events.

mod driver;

use driver::{Driver, command};
use soft_connectx::Config;
use wqe_format::mlx5::firmware::caps::CapType;
use wqe_format::mlx5::firmware::caps::command::{QueryHcaCapIn, QueryHcaCapOut};
use wqe_format::mlx5::firmware::caps::general::CmdHcaCap;
use wqe_format::mlx5::firmware::lag::{QueryLagIn, QueryLagOut};
use wqe_format::mlx5::firmware::pages::{ManagePagesIn, ManagePagesOut};
use wqe_format::mlx5::firmware::{Delivery, EventType, Opcode, Status};

#[test]
fn the_segment_names_versions_and_the_queue() {
    let mut driver = Driver::new(Config::default());
    assert_eq!(
        driver.bar(0x0) & 0xffff,
        20,
        "major version of the firmware"
    );
    assert_eq!(driver.bar(0x4) >> 16, 5, "version of the command interface");
    assert_eq!(driver.bar(0x14), 0x1056, "address, 32 slots of 64 bytes");
    assert_eq!(driver.bar(0x1fc) >> 31, 0, "it is not initializing");
    assert_eq!(driver.bar(0x238) >> 31, 0, "it asks for no reset");
    let health = driver.bar(0x1010);
    assert_ne!(driver.bar(0x1010), health, "it is alive");
    let mut byte = [0xff];
    driver.device.bar_read(0x23d, &mut byte);
    assert_eq!(byte, [0], "a driver reads the syndrome as one byte");
}

#[test]
fn commands_come_in_order_of_the_devices_stages() {
    let mut driver = Driver::new(Config::default());
    assert_eq!(
        driver.refused(&command::<16>(Opcode::QUERY_ISSI)),
        Status::BAD_SYS_STATE_ERR
    );
    driver.simple(Opcode::ENABLE_HCA);
    assert_eq!(
        driver.refused(&command::<16>(Opcode::ALLOC_PD)),
        Status::BAD_SYS_STATE_ERR
    );
    assert_eq!(
        driver.refused(&command::<32>(Opcode::INIT_HCA)),
        Status::NO_RES_ERR,
        "no pages"
    );
    driver.give_pages(1);
    driver.give_pages(2);
    driver.simple(Opcode::INIT_HCA);
    driver.simple(Opcode::ALLOC_PD);
    driver.simple(Opcode::TEARDOWN_HCA);
    assert_eq!(
        driver.refused(&command::<16>(Opcode::ALLOC_PD)),
        Status::BAD_SYS_STATE_ERR
    );
}

#[test]
fn an_unknown_opcode_is_a_bad_operation() {
    let mut driver = Driver::up(Config::default());
    assert_eq!(
        driver.refused(&command::<16>(Opcode(0xfff))),
        Status::BAD_OP_ERR
    );
    assert_eq!(
        driver.refused(&command::<8>(Opcode::DESTROY_CQ)),
        Status::BAD_INP_LEN_ERR
    );
}

/// What UCX asks each device for, and `mlx5dv_query_qp_lag_port`.
#[test]
fn a_port_is_not_aggregated_with_others() {
    let mut driver = Driver::up(Config::default());
    let query = command::<{ QueryLagIn::SIZE }>(Opcode::QUERY_LAG);
    let reply = driver.ok(&query, QueryLagOut::SIZE);
    let reply = QueryLagOut::new(&reply[..]).unwrap();
    let lag = reply.ctx();
    assert_eq!((lag.lag_state(), lag.port_select_mode()), (0, 0));
    assert_eq!(
        (lag.tx_remap_affinity_1(), lag.tx_remap_affinity_2()),
        (0, 0)
    );
}

#[test]
fn all_pages_come_back_after_teardown() {
    let mut driver = Driver::up(Config::default());
    let mut take = command::<{ ManagePagesIn::SIZE }>(Opcode::MANAGE_PAGES);
    ManagePagesIn::new(&mut take)
        .unwrap()
        .set_op_mod(2)
        .set_input_num_entries(1000);
    let none = driver.ok(&take, 16 + 8 * 1000);
    assert_eq!(
        ManagePagesOut::new(&none[..]).unwrap().output_num_entries(),
        0,
        "it needs them"
    );
    driver.simple(Opcode::TEARDOWN_HCA);
    let reply = driver.ok(&take, 16 + 8 * 1000);
    let reply = ManagePagesOut::new(&reply[..]).unwrap();
    let count = reply.output_num_entries() as usize;
    let mut pages: Vec<u64> = reply.pas().take(count).collect();
    assert_eq!(count, 528, "what was asked for at boot and init");
    pages.sort_unstable();
    pages.dedup();
    assert_eq!(pages.len(), count, "each comes back once");
    driver.simple(Opcode::DISABLE_HCA);
}

#[test]
fn long_outputs_are_spread_over_mailboxes() {
    let mut driver = Driver::up(Config::default());
    let mut query = command::<{ QueryHcaCapIn::SIZE }>(Opcode::QUERY_HCA_CAP);
    QueryHcaCapIn::new(&mut query)
        .unwrap()
        .set_op_mod(CapType::GENERAL.current());
    let reply = driver.ok(&query, QueryHcaCapOut::SIZE);
    let reply = QueryHcaCapOut::new(&reply[..]).unwrap();
    let caps = CmdHcaCap::new(reply.capability()).unwrap();
    assert!(caps.rc() && caps.log_max_qp() == 17);
    // The last of the capability's bytes was written too, over what was there before.
    assert_eq!(reply.capability().last(), Some(&0));
}

#[test]
fn a_broken_transfer_has_its_own_status() {
    let mut driver = Driver::up(Config::default());
    let input = command::<{ ManagePagesIn::SIZE + 600 }>(Opcode::MANAGE_PAGES);
    type Damage = fn(&mut [u8; 64]);
    let cases: [(Damage, Delivery); 6] = [
        (|entry| entry[0] = 6, Delivery::CMD_DESCR_ERR),
        (|entry| entry[4..8].fill(0), Delivery::IN_LENGTH_ERR),
        (|entry| entry[15] |= 4, Delivery::IN_PTR_ALIGN_ERR),
        (|entry| entry[8..16].fill(0), Delivery::IN_PTR_ALIGN_ERR),
        (|entry| entry[8] = 0x80, Delivery::FW_ERR),
        (|entry| entry[60] ^= 1, Delivery::TOK_ERR),
    ];
    for (damage, expected) in cases {
        let mut entry = driver.entry(3, &input, 16);
        damage(&mut entry.0);
        assert_eq!(Delivery(driver.ring(3, &entry)), expected);
    }
    let entry = driver.entry(3, &input, 16);
    assert_eq!(driver.ring(3, &entry), 0);
}

#[test]
fn several_slots_are_rung_at_once() {
    let mut driver = Driver::up(Config::default());
    for slot in [0, 5, 31] {
        let entry = driver.entry(slot, &command::<16>(Opcode::ALLOC_PD), 16);
        driver.put(slot, &entry);
    }
    driver
        .device
        .bar_write(0x18, &(1u32 | 1 << 5 | 1 << 31 | 1 << 7).to_be_bytes());
    let mut numbers = Vec::new();
    for slot in [0, 5, 31] {
        assert_eq!(driver.delivery(slot), 0);
        numbers.push(driver.output(slot, 16)[11]);
    }
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 3, "three PDs");
}

/// The first event queue is made, and the last destroyed, by a driver that polls.
#[test]
fn a_command_is_told_by_an_event_where_the_queue_stood_before_and_after() {
    const CMD: u8 = 0xa;
    let mut driver = Driver::up(Config::default());
    let uar = u32::from(driver.simple(Opcode::ALLOC_UAR)[11]);
    let (eqn, ring) = driver.event_queue(uar, 3, &[EventType::CMD]);
    assert_eq!(
        driver.read::<64>(ring),
        [0; 64],
        "the driver polls for CREATE_EQ"
    );
    let arm = |driver: &mut Driver, index: u32| {
        let word = u32::from(eqn) << 24 | index;
        driver
            .device
            .bar_write(u64::from(uar) * 4096 + 0x40, &word.to_be_bytes());
    };
    arm(&mut driver, 0);
    let entry = driver.entry(9, &command::<16>(Opcode::ALLOC_PD), 16);
    assert_eq!(driver.ring(9, &entry), 0);
    let event = driver.read::<64>(ring);
    assert_eq!(event[1], CMD);
    assert_eq!(
        event[0x20..0x24],
        (1u32 << 9).to_be_bytes(),
        "bitmap of slots"
    );
    assert_eq!(event[63] & 1, 0, "owner of the first turn");
    assert_eq!(*driver.vectors.0.lock().unwrap(), [3]);
    // It interrupts once until it is armed again.
    driver.simple(Opcode::ALLOC_PD);
    assert_eq!(*driver.vectors.0.lock().unwrap(), [3]);
    arm(&mut driver, 1);
    assert_eq!(
        *driver.vectors.0.lock().unwrap(),
        [3, 3],
        "one event wasn't seen yet"
    );

    let mut destroy = command::<16>(Opcode::DESTROY_EQ);
    destroy[11] = eqn;
    driver.ok(&destroy, 16);
    assert_eq!(driver.read::<64>(ring + 128), [0; 64], "nor for DESTROY_EQ");
}

#[test]
fn event_queues_wrap_and_overrun() {
    let mut driver = Driver::up(Config::default());
    let uar = u32::from(driver.simple(Opcode::ALLOC_UAR)[11]);
    let (eqn, ring) = driver.event_queue(uar, 1, &[EventType::CMD]);
    for _ in 0..64 {
        driver.simple(Opcode::ALLOC_PD);
    }
    // Half of them were seen.
    let word = u32::from(eqn) << 24 | 32;
    driver
        .device
        .bar_write(u64::from(uar) * 4096 + 0x48, &word.to_be_bytes());
    driver.simple(Opcode::ALLOC_PD);
    assert_eq!(
        driver.read::<64>(ring)[63] & 1,
        1,
        "owner of the second turn"
    );
    assert_eq!(
        driver.read::<64>(ring + 64)[63] & 1,
        0,
        "of the first still"
    );
    for _ in 0..32 {
        driver.simple(Opcode::ALLOC_PD);
    }
    assert_eq!(
        driver.read::<64>(ring + 32 * 64)[63] & 1,
        0,
        "an overrun overwrites nothing"
    );
}

#[test]
fn a_reset_forgets_everything() {
    let mut driver = Driver::up(Config::default());
    // PCI Express device control, function level reset.
    driver.device.config_write(0x68, &0x8000u16.to_le_bytes());
    assert_eq!(driver.bar(0x14), 0x56);
    driver.device.bar_write(0x14, &0x1000u32.to_be_bytes());
    assert_eq!(
        driver.refused(&command::<16>(Opcode::ALLOC_PD)),
        Status::BAD_SYS_STATE_ERR
    );
    driver.simple(Opcode::ENABLE_HCA);
}

/// Nobody enables memory space again, which a reset disables.
#[test]
fn a_reset_that_nobody_asked_for_leaves_registers_that_read_as_ones() {
    let mut driver = Driver::up(Config::default());
    driver.device.config_write(0x4, &0x6u16.to_le_bytes());
    driver.device.reset_unasked();
    assert_eq!(driver.bar(0x230), u32::MAX, "no version of firmware");
    driver.device.bar_write(0x14, &0x1700u32.to_be_bytes());
    // Its address may be written back before.
    driver.device.config_write(0x10, &[0; 8]);
    assert_eq!(driver.bar(0x14), u32::MAX);
    driver.device.config_write(0x4, &0x6u16.to_le_bytes());
    assert_eq!(driver.bar(0x14), 0x56);
}

/// `nic_interface` 1 is disabled, 7 asks for a reset (`MLX5_NIC_IFC_*`).
#[test]
fn a_disabled_interface_takes_no_commands() {
    let mut driver = Driver::up(Config::default());
    driver.device.bar_write(0x14, &0x1100u32.to_be_bytes());
    let entry = driver.entry(0, &command::<16>(Opcode::ALLOC_PD), 16);
    assert_eq!(driver.ring(0, &entry), 0xff, "it is the device's for ever");
    driver.device.bar_write(0x14, &0x1700u32.to_be_bytes());
    assert_eq!(driver.bar(0x14) >> 8 & 7, 1, "disabled after a reset");
}

/// `MLX5_PORT_CHANGE_SUBTYPE_DOWN` 1 and `_ACTIVE` 4.
#[test]
fn a_cut_link_is_told_once_and_its_return_too() {
    let mut driver = Driver::up(Config::default());
    let uar = u32::from(driver.simple(Opcode::ALLOC_UAR)[11]);
    let (_, ring) = driver.event_queue(uar, 2, &[EventType::PORT_CHANGE]);
    driver.device.set_link(false);
    driver.device.set_link(false);
    driver.device.set_link(true);
    for (at, change) in [(0, 1), (64, 4)] {
        let event = driver.read::<64>(ring + at);
        assert_eq!(event[1], EventType::PORT_CHANGE.0);
        assert_eq!((event[3], event[0x28] >> 4), (change, 1));
    }
    assert_eq!(driver.read::<64>(ring + 128), [0; 64]);
}

#[test]
fn a_failed_device_takes_no_commands_until_it_is_reset() {
    let mut driver = Driver::up(Config::default());
    driver.device.fail(1);
    assert_eq!(driver.bar(0x238) >> 31, 1, "it asks for a reset");
    assert_eq!(driver.bar(0x23c) >> 16 & 0xff, 1, "syndrome");
    let health = driver.bar(0x1010);
    assert_eq!(driver.bar(0x1010), health, "its heart stands still");
    let entry = driver.entry(0, &command::<16>(Opcode::ALLOC_PD), 16);
    assert_eq!(driver.ring(0, &entry), 0xff);
    assert_eq!(driver.bar(0x1fc), 1 << 30, "it can be reset by software");
    driver.device.config_write(0x4, &0x6u16.to_le_bytes());
    driver.device.bar_write(0x14, &0x1700u32.to_be_bytes());
    assert_eq!(driver.bar(0x238) >> 31, 0, "no more");
    driver.device.bar_write(0x14, &0x1000u32.to_be_bytes());
    driver.simple(Opcode::ENABLE_HCA);
    let mut command = [0; 2];
    driver.device.config_read(0x4, &mut command);
    assert_eq!(command, [6, 0], "the function is as it was");
}
