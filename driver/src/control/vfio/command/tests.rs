//! The command queue against firmware of the tests' own, which reads entries and mailboxes by their offsets
//! (`mlx5_ifc.h` `cmd_queue_entry`, `cmd_if_box`; the kernel's `device.h` `struct mlx5_cmd_layout`, `mlx5_cmd_prot_block`).

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::{iter, thread};

use wqe_format::mlx5::firmware::{Delivery, Opcode, Status};

use super::*;
use crate::control::vfio::memory::Iommu;
use crate::control::vfio::pci::Pci;
use crate::control::vfio::test_device::TestPci;
use crate::sys::errno::Errno;

fn queue(pci: &Arc<TestPci>, time: Duration) -> CommandQueue {
    let iommu = Iommu::new(pci.clone()).unwrap();
    CommandQueue::new(pci.clone(), &iommu, time).unwrap()
}

const LONG: Duration = Duration::from_secs(60);

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn pointer(bytes: &[u8], at: usize) -> u64 {
    u64::from(be32(bytes, at)) << 32 | u64::from(be32(bytes, at + 4))
}

fn xor(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, byte| sum ^ byte)
}

/// The boxes of a chain, each checked.
fn boxes(pci: &TestPci, first: u64, token: u8, count: usize) -> Vec<u64> {
    let mut next = first;
    let mut all = Vec::new();
    for number in 0..count {
        assert_eq!(next % 1024, 0);
        assert_ne!(next, 0, "the chain ends at box {number}");
        let block: [u8; 576] = pci.read(next);
        assert_eq!(be32(&block, 0x238), number as u32, "block number");
        assert_eq!(block[0x23d], token, "token");
        assert_eq!(xor(&block[0x200..0x23f]), 0xff, "control signature");
        assert_eq!(xor(&block), 0xff, "signature");
        all.push(next);
        next = pointer(&block, 0x230);
    }
    assert_eq!(next, 0, "the chain is longer than {count}");
    all
}

/// A command as the firmware sees it.
struct Received {
    slot: u32,
    input: Vec<u8>,
    output_len: usize,
    answer: Vec<u64>,
}

fn receive(pci: &TestPci, slot: u32) -> Received {
    let entry: [u8; 64] = pci.read(pci.slot(slot));
    assert_eq!(entry[0], 7, "type");
    assert_eq!(entry[63], 1, "owned by the device");
    assert_eq!(xor(&entry), 0xff, "signature");
    let (len, output_len) = (be32(&entry, 4) as usize, be32(&entry, 56) as usize);
    let token = entry[60];
    assert_ne!(token, 0);
    let count = |len: usize| len.saturating_sub(16).div_ceil(512);
    let mut input = entry[16..16 + len.min(16)].to_vec();
    for at in boxes(pci, pointer(&entry, 8), token, count(len)) {
        let data: [u8; 512] = pci.read(at);
        input.extend(&data[..(len - input.len()).min(512)]);
    }
    let answer = boxes(pci, pointer(&entry, 48), token, count(output_len));
    Received {
        slot,
        input,
        output_len,
        answer,
    }
}

/// Writes an answer, and gives the entry back.
fn answer(pci: &TestPci, received: &Received, output: &[u8], delivery: u8) {
    assert!(output.len() <= received.output_len);
    let at = pci.slot(received.slot);
    let inline = output.len().min(16);
    pci.write(at + 32, &output[..inline]);
    for (part, to) in output[inline..].chunks(512).zip(&received.answer) {
        pci.write(*to, part);
    }
    pci.write(at + 63, &[delivery << 1]);
}

fn slots(rung: u32) -> impl Iterator<Item = u32> {
    (0..32).filter(move |slot| rung >> slot & 1 != 0)
}

/// A command of so many bytes.
fn command(opcode: u16, len: usize) -> Vec<u8> {
    let rest = (0..len - 2).map(|at| (at * 7 + len) as u8);
    opcode.to_be_bytes().into_iter().chain(rest).collect()
}

/// B66: chains of 0 to N boxes, with the right token, signatures and numbers, in commands and in answers.
#[test]
fn mailboxes_are_chained_numbered_and_signed() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let firmware = seen.clone();
    let pci = TestPci::new(move |pci, rung| {
        for slot in slots(rung) {
            let received = receive(pci, slot);
            let output: Vec<u8> = iter::repeat_n(0, 8)
                .chain((8..received.output_len).map(|at| (at * 3) as u8))
                .collect();
            answer(pci, &received, &output, 0);
            firmware.lock().unwrap().push(received.input);
        }
    });
    let queue = queue(&pci, LONG);
    for len in [
        16,
        17,
        32,
        527,
        528,
        529,
        1040,
        1041,
        16 + 512 * 80,
        100_000,
    ] {
        let input = command(0x100, len);
        let mut output = vec![0xee; len];
        queue.execute(&input, &mut output).unwrap();
        assert_eq!(seen.lock().unwrap().pop().unwrap(), input);
        assert_eq!(output[..8], [0; 8]);
        assert!((8..len).all(|at| output[at] == (at * 3) as u8));
    }
    drop(queue);
    assert_eq!(pci.mapped(), 0);
}

/// B66: a refusal is an error with the firmware's status and syndrome, and the output is there.
#[test]
fn a_refusal_keeps_the_output() {
    let pci = TestPci::new(|pci, rung| {
        for slot in slots(rung) {
            let received = receive(pci, slot);
            let mut output = vec![0x5a; received.output_len];
            output[..8].copy_from_slice(&[9, 0, 0, 0, 0x12, 0x34, 0x56, 0x78]);
            answer(pci, &received, &output, 0);
        }
    });
    let queue = queue(&pci, LONG);
    let mut output = [0; 64];
    let error = queue.execute(&command(0x500, 32), &mut output).unwrap_err();
    assert_eq!(
        error,
        CommandError::refused(Opcode(0x500), Status::BAD_RES_STATE_ERR, 0x1234_5678)
    );
    assert_eq!(error.raw_errno(), Errno(libc::EREMOTEIO));
    assert_eq!(error.errno(), Errno(libc::EINVAL));
    assert_eq!(
        output[4..12],
        [0x12, 0x34, 0x56, 0x78, 0x5a, 0x5a, 0x5a, 0x5a]
    );
    assert_eq!(output[16..], [0x5a; 48]);
}

/// What the command interface itself refuses never looks like success.
#[test]
fn delivery_errors_are_errors() {
    let pci = TestPci::new(|pci, rung| {
        for slot in slots(rung) {
            answer(pci, &receive(pci, slot), &[0; 16], Delivery::TOK_ERR.0);
        }
    });
    let error = queue(&pci, LONG).execute(&command(1, 16), &mut [0; 16]);
    let cause = CommandCause::NotDelivered(Delivery::TOK_ERR);
    assert_eq!(error, Err(CommandError::other(Opcode(1), cause)));
}

/// B66: the ownership bit of one command never clears. It ends with a time-out, its place is not used again, and the
/// others go on, until no place is left.
#[test]
fn a_command_without_an_answer_ends_and_keeps_its_place() {
    let used = Arc::new(Mutex::new(Vec::new()));
    let firmware = used.clone();
    let pci = TestPci::new(move |pci, rung| {
        for slot in slots(rung) {
            let received = receive(pci, slot);
            firmware.lock().unwrap().push(slot);
            if received.input[1] != 0xff {
                answer(pci, &received, &[0; 16], 0);
            }
        }
    });
    let queue = queue(&pci, Duration::from_millis(10));
    let start = Instant::now();
    let error = queue.execute(&command(0xff, 1000), &mut [0; 1000]);
    assert_eq!(error.unwrap_err().cause, CommandCause::TimedOut);
    assert_eq!(error.unwrap_err().errno(), Errno(libc::ETIMEDOUT));
    assert!(start.elapsed() >= Duration::from_millis(10));
    for _ in 0..100 {
        queue.execute(&command(1, 1000), &mut [0; 1000]).unwrap();
    }
    let lost = used.lock().unwrap()[0];
    assert!(used.lock().unwrap()[1..].iter().all(|slot| *slot != lost));
    for _ in 1..31 {
        queue.execute(&command(0xff, 16), &mut [0; 16]).unwrap_err();
    }
    let error = queue.execute(&command(1, 16), &mut [0; 16]).unwrap_err();
    assert_eq!(error.cause, CommandCause::TimedOut);
}

/// Commands wait side by side, and are answered in any order; one that gives pages gets through when all others
/// wait for it.
#[test]
fn a_command_that_gives_pages_overtakes_all_that_wait_for_them() {
    let waiting = Arc::new(Mutex::new(Vec::new()));
    let firmware = waiting.clone();
    let pci = TestPci::new(move |pci, rung| {
        for slot in slots(rung) {
            let received = receive(pci, slot);
            if received.input[..2] != Opcode::MANAGE_PAGES.0.to_be_bytes() {
                firmware.lock().unwrap().push(received);
                continue;
            }
            answer(pci, &received, &[0; 16], 0);
            let (pci, firmware) = (pci.handle(), firmware.clone());
            thread::spawn(move || {
                let mut all = std::mem::take(&mut *firmware.lock().unwrap());
                all.reverse();
                for received in all {
                    let mut output = [0; 16];
                    output[15] = received.input[2];
                    answer(&pci, &received, &output, 0);
                }
            });
        }
    });
    let queue = queue(&pci, LONG);
    let ended = AtomicU32::new(0);
    thread::scope(|scope| {
        for number in 0..31u8 {
            let (queue, ended) = (&queue, &ended);
            scope.spawn(move || {
                let mut input = command(0x200, 16);
                input[2] = number;
                let mut output = [0; 16];
                queue.execute(&input, &mut output).unwrap();
                assert_eq!(output[15], number);
                ended.fetch_add(1, Ordering::Relaxed);
            });
        }
        while waiting.lock().unwrap().len() < 31 {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(ended.load(Ordering::Relaxed), 0);
        let input = command(Opcode::MANAGE_PAGES.0, 64);
        queue.execute_for_pages(&input, &mut [0; 16]).unwrap();
    });
    assert_eq!(ended.load(Ordering::Relaxed), 31);
}

/// A device that fails while a command waits ends the wait; later ones are not sent.
#[test]
fn a_failed_device_ends_all_waits() {
    let pci = TestPci::new(|_, _| {});
    let queue = queue(&pci, LONG);
    thread::scope(|scope| {
        let waits = scope.spawn(|| queue.execute(&command(1, 16), &mut [0; 16]));
        thread::sleep(Duration::from_millis(5));
        queue.fail();
        let error = waits.join().unwrap().unwrap_err();
        assert_eq!(error.cause, CommandCause::DeviceFailed);
    });
    let error = queue.execute(&command(1, 16), &mut [0; 16]).unwrap_err();
    assert_eq!(error.errno(), Errno(libc::EIO));
}

/// B66: where nobody answers on the bus, or a queue says nonsense of itself, that is an error at once.
#[test]
fn a_device_that_is_gone_or_mad_is_an_error() {
    let made = |word| {
        let pci = TestPci::new(|_, _| {});
        pci.set(0x14, word);
        let iommu = Iommu::new(pci.clone()).unwrap();
        let error = CommandQueue::new(pci as Arc<dyn Pci>, &iommu, LONG).map(drop);
        error.unwrap_err()
    };
    assert_eq!(made(u32::MAX), Errno(libc::ENODEV));
    for shape in [0x00, 0x06, 0x66, 0x55, 0xff, 0x5c] {
        assert_eq!(made(shape), Errno(libc::EPROTO), "{shape:#x}");
    }
}

/// Mailboxes that cannot be mapped are an error, and the place is free again.
#[test]
fn no_mapping_left_for_mailboxes() {
    let pci = TestPci::new(|pci, rung| {
        for slot in slots(rung) {
            answer(pci, &receive(pci, slot), &[0; 16], 0);
        }
    });
    let queue = queue(&pci, LONG);
    pci.limit(1);
    for _ in 0..40 {
        let error = queue.execute(&command(1, 64), &mut [0; 16]).unwrap_err();
        assert_eq!(error.cause, CommandCause::Process(Errno(libc::ENOSPC)));
    }
    queue.execute(&command(1, 16), &mut [0; 16]).unwrap();
    pci.limit(2);
    queue.execute(&command(1, 64), &mut [0; 16]).unwrap();
}
