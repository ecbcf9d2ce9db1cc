//! Our mlx5 data path on the loopback device: random work requests between two queue pairs of the process, and what
//! memory and completions must be after them.
//!
//! The device reads the rings by the offsets of C headers (`fake_kernel::hca`), so it is a witness apart from the
//! format crate; masked atomics, which libmlx5 cannot post, have no other.

use std::sync::Arc;

use fake_kernel::hca::Hca;
use fake_kernel::{Config, FakeKernel, Family, Mlx5};
use oxverbs::control::mlx5::cq::{CqObject, CqRequest};
use oxverbs::control::mlx5::domain::PdObject;
use oxverbs::control::mlx5::environment::Environment;
use oxverbs::control::mlx5::geometry::Transport;
use oxverbs::control::mlx5::qp::{MadeQp, QpRequest};
use oxverbs::control::mlx5::{Mlx5Context, context};
use oxverbs::data::mlx5::{
    Completion, CompletionQueue, InlinePiece, Operation, Remote, SendFlags, SendQueue,
};
use oxverbs::sys::fd::UverbsFd;
use uverbs_abi::types::{AccessFlags, GidEntry, GidType, QpAttrMask, QpCap, QpState};
use uverbs_abi::write::qp::{ExModifyQp, ModifyQp};
use wqe_format::rxe::Sge;
use zerocopy::IntoBytes;
use zerocopy::byteorder::big_endian::U32;

/// Bytes of each side's memory.
const SIDE: usize = 1 << 14;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// Two connected queue pairs, of which the first sends, and memory that both sides may use.
struct World {
    hca: Hca,
    // Before what they complete into.
    qps: [MadeQp; 2],
    queue: CompletionQueue,
    _cq: CqObject,
    _pd: PdObject,
    _context: Arc<Mlx5Context>,
    /// What the device writes; words, so that atomics are aligned.
    memory: Box<[u64]>,
    /// What it should be.
    model: Vec<u8>,
    key: u32,
}

fn bring(qp: &mut MadeQp, state: QpState, peer: u32, gid: [u8; 16]) {
    let mask = match state {
        QpState::INIT => QpAttrMask(0x39),
        QpState::RTR => QpAttrMask(0x12_9181),
        QpState::RTS => QpAttrMask(0x1_2e01),
        _ => QpAttrMask::STATE,
    };
    let mut base = ModifyQp {
        attr_mask: mask,
        qp_state: state,
        port_num: 1,
        path_mtu: 3,
        dest_qp_num: peer,
        rnr_retry: 7,
        retry_cnt: 1,
        timeout: 8,
        qp_access_flags: AccessFlags(0xf),
        ..ModifyQp::default()
    };
    base.dest.is_global = 1;
    base.dest.port_num = 1;
    base.dest.sgid_index = 1;
    base.dest.dgid = gid;
    let request = ExModifyQp {
        base,
        ..ExModifyQp::default()
    };
    let change = qp.object.modify(&request).expect("a change of state");
    change.apply_to_send(qp.send.as_mut().expect("sends"));
    change.apply_to_receive(qp.receive.as_mut().expect("receives"));
}

impl World {
    fn new(mlx5: Mlx5, entry: u32, inline: u32, all: bool) -> Self {
        let kernel = FakeKernel::new(Config {
            family: Family::Mlx5,
            mlx5,
            ..Config::default()
        });
        let fd = UverbsFd::open(kernel.kernel_ref(), c"/dev/infiniband/uverbs0").expect("the node");
        let mut environment = Environment::default();
        environment.cqe_size = entry.cast_signed();
        let uctx = context::uctx(fd).expect("a device file");
        let opened = Mlx5Context::open(uctx, environment).expect("a context");
        let context = opened.context;
        let pd = context.alloc_pd().expect("a protection domain");
        let request = CqRequest {
            cqe: 63,
            ..CqRequest::default()
        };
        let (cq, queue) = context.create_cq(&request).expect("a completion queue");
        let memory = vec![0_u64; 2 * SIDE / 8].into_boxed_slice();
        let start = memory.as_ptr().expose_provenance() as u64;
        let region = oxverbs::control::kernel::UserMr {
            pd: pd.handle(),
            start,
            length: 2 * SIDE as u64,
            hca_va: start,
            access: AccessFlags(0xf),
        };
        // SAFETY: the memory lives as long as the world, and is read and written by the device only between posts.
        let keys = unsafe { context.uctx().reg_mr(&region) }.expect("a memory region");
        let mut table = [GidEntry::default(); 16];
        let found = context.uctx().query_gid_table(&mut table).expect("it");
        let gid = table[..found]
            .iter()
            .find(|entry| entry.gid_type == GidType::ROCE_V2)
            .expect("an entry")
            .gid;
        let make = || {
            let request = QpRequest {
                pd: pd.handle(),
                send_cq: cq.handle(),
                recv_cq: cq.handle(),
                cap: QpCap {
                    max_send_wr: 20,
                    max_recv_wr: 20,
                    max_send_sge: 5,
                    max_recv_sge: 3,
                    max_inline_data: inline,
                },
                sq_sig_all: all,
                ..QpRequest::new(Transport::Rc)
            };
            context.create_qp(&request).expect("a queue pair")
        };
        let mut qps = [make(), make()];
        let numbers = [qps[0].object.number(), qps[1].object.number()];
        for state in [QpState::INIT, QpState::RTR, QpState::RTS] {
            bring(&mut qps[0], state, numbers[1], gid);
            bring(&mut qps[1], state, numbers[0], gid);
        }
        Self {
            hca: kernel.hca(0),
            qps,
            queue,
            _cq: cq,
            _pd: pd,
            _context: context,
            memory,
            model: vec![0; 2 * SIDE],
            key: keys.lkey,
        }
    }

    fn address(&self, offset: usize) -> u64 {
        self.memory.as_ptr().expose_provenance() as u64 + offset as u64
    }

    /// Up to `n` pieces of one side, apart from each other, with their offsets.
    fn pieces(&self, random: &mut Random, side: usize, n: u64, most: u64) -> Vec<(usize, Sge)> {
        let n = 1 + random.below(n) as usize;
        let room = SIDE / n;
        (0..n)
            .map(|i| {
                let length = match random.below(4) {
                    0 => 0,
                    1 => random.below(64.min(most) + 1),
                    _ => random.below(most.min(room as u64 / 2) + 1),
                };
                let slack = room as u64 - length;
                let offset = side * SIDE + i * room + random.below(slack) as usize;
                let sge = Sge {
                    addr: self.address(offset),
                    length: length as u32,
                    lkey: self.key,
                };
                (offset, sge)
            })
            .collect()
    }

    fn gathered(&self, pieces: &[(usize, Sge)]) -> Vec<u8> {
        let bytes = |(at, sge): &(usize, Sge)| self.model[*at..*at + sge.length as usize].to_vec();
        pieces.iter().flat_map(bytes).collect()
    }

    fn scatter(&mut self, pieces: &[(usize, Sge)], mut bytes: &[u8]) {
        for (at, sge) in pieces {
            let (now, later) = bytes.split_at(bytes.len().min(sge.length as usize));
            self.model[*at..*at + now.len()].copy_from_slice(now);
            bytes = later;
        }
        assert!(bytes.is_empty());
    }

    fn poll(&mut self) -> Vec<Completion> {
        let mut all = [Completion::default(); 5];
        let mut got = Vec::new();
        loop {
            match self.queue.poll(&mut all) {
                0 => return got,
                n => got.extend_from_slice(&all[..n]),
            }
        }
    }
}

/// Posts one work request.
fn post(
    queue: &mut SendQueue,
    wr_id: u64,
    flags: SendFlags,
    operation: &Operation,
    pieces: &[(usize, Sge)],
) {
    let sges: Vec<Sge> = pieces.iter().map(|(_, sge)| *sge).collect();
    let mut draft = queue.begin();
    // SAFETY: no headers are read.
    unsafe { queue.open(&mut draft, wr_id, flags, operation) }.expect("room");
    if flags.contains(SendFlags::INLINE) {
        let list = sges.iter().map(InlinePiece::of_sge);
        // SAFETY: the pieces lie in the world's memory.
        unsafe { queue.set_inline_list(&mut draft, list) }.expect("within the limit");
    } else if !matches!(operation, Operation::Nop) {
        // SAFETY: not a raw packet queue, so nothing is read.
        unsafe { queue.set_sges(&mut draft, &sges) }.expect("a list");
    }
    queue.commit(&mut draft).expect("room");
}

fn add_fields(old: u64, add: u64, ends: u64, bits: u32) -> u64 {
    // Field by field, by shifting a field's bits to the top.
    let mut result = 0;
    let mut low = 0;
    while low < bits {
        let mut high = low;
        while high + 1 < bits && (ends >> high) & 1 == 0 {
            high += 1;
        }
        let mask = (u64::MAX >> (63 - (high - low))) << low;
        result |= ((old & mask).wrapping_add(add & mask)) & mask;
        low = high + 1;
    }
    result
}

/// What an atomic is to do: the operation, bytes, and what it makes of a value.
fn atomic(random: &mut Random, remote: Remote, old: u64) -> (Operation, usize, u64) {
    let add = random.next();
    // Half of the comparisons hold.
    let compare = old ^ (random.below(2) << random.below(32));
    let (swap, swap_mask, compare_mask) = (random.next(), random.next(), random.next());
    let short = old as u32;
    match random.below(6) {
        0 => (
            Operation::AtomicFetchAndAdd { remote, add },
            8,
            old.wrapping_add(add),
        ),
        1 => (
            Operation::AtomicCmpAndSwp {
                remote,
                compare,
                swap,
            },
            8,
            if compare == old { swap } else { old },
        ),
        2 => {
            let holds = (old ^ compare) & compare_mask == 0;
            let new = (old & !swap_mask) | (swap & swap_mask);
            let operation = Operation::MaskedCmpAndSwp8 {
                remote,
                compare,
                compare_mask,
                swap,
                swap_mask,
            };
            (operation, 8, if holds { new } else { old })
        }
        3 => {
            let boundaries = random.next() & random.next();
            let operation = Operation::MaskedFetchAndAdd8 {
                remote,
                add,
                boundaries,
            };
            (operation, 8, add_fields(old, add, boundaries, 64))
        }
        4 => {
            let (compare, compare_mask) = (compare as u32, compare_mask as u32);
            let (swap, swap_mask) = (swap as u32, swap_mask as u32);
            let holds = (short ^ compare) & compare_mask == 0;
            let new = (short & !swap_mask) | (swap & swap_mask);
            let operation = Operation::MaskedCmpAndSwp4 {
                remote,
                compare,
                compare_mask,
                swap,
                swap_mask,
            };
            (operation, 4, if holds { new } else { short }.into())
        }
        _ => {
            let (add, boundaries) = (add as u32, (random.next() & random.next()) as u32);
            let operation = Operation::MaskedFetchAndAdd4 {
                remote,
                add,
                boundaries,
            };
            let new = add_fields(short.into(), add.into(), boundaries.into(), 32);
            (operation, 4, new)
        }
    }
}

/// One random work request, what it changes, and its completions in order.
fn step(world: &mut World, random: &mut Random, wr_id: u64, inline: u64, all: bool) {
    let asks = random.below(3) != 0 || wr_id.is_multiple_of(8);
    let is_signaled = asks || all;
    let mut flags = match asks {
        true => SendFlags::SIGNALED,
        false => SendFlags::NONE,
    };
    if random.below(5) == 0 {
        flags = flags.with(SendFlags::FENCE);
    }
    let kind = random.below(8);
    let wants_inline = kind < 4 && random.below(2) == 0 && inline > 0;
    let most = if wants_inline { inline / 5 } else { 3000 };
    let local = world.pieces(random, 0, 5, most);
    if wants_inline {
        flags = flags.with(SendFlags::INLINE);
    }
    let total: u32 = local.iter().map(|(_, sge)| sge.length).sum();
    let to = SIDE + random.below(SIDE as u64 - u64::from(total)) as usize;
    let remote = Remote {
        addr: world.address(to),
        rkey: world.key,
    };
    let imm = U32::new(random.next() as u32);
    let data = world.gathered(&local);
    let mut expected = Vec::new();
    let mut receive = |world: &mut World, length: u32| {
        let mut list = world.pieces(random, 1, 2, 200);
        let room: u32 = list.iter().map(|(_, sge)| sge.length).sum();
        if room < length {
            let (at, addr) = (SIDE, world.address(SIDE));
            let sge = Sge {
                addr,
                length: SIDE as u32,
                lkey: world.key,
            };
            list = vec![(at, sge)];
        }
        let sges: Vec<Sge> = list.iter().map(|(_, sge)| *sge).collect();
        let queue = world.qps[1].receive.as_mut().expect("receives");
        queue.post([(1_000_000 + wr_id, &sges[..])]).expect("room");
        list
    };
    let (operation, pieces) = match kind {
        0 | 1 => {
            let list = receive(world, total);
            world.scatter(&list, &data);
            expected.push((1_000_000 + wr_id, Some(total)));
            match kind {
                0 => (Operation::Send, local),
                _ => (Operation::SendWithImm { imm }, local),
            }
        }
        2 => {
            world.model[to..to + data.len()].copy_from_slice(&data);
            (Operation::RdmaWrite(remote), local)
        }
        3 => {
            receive(world, 0);
            world.model[to..to + data.len()].copy_from_slice(&data);
            expected.push((1_000_000 + wr_id, Some(total)));
            (Operation::RdmaWriteWithImm { remote, imm }, local)
        }
        4 => {
            let read = world.model[to..to + total as usize].to_vec();
            world.scatter(&local, &read);
            (Operation::RdmaRead(remote), local)
        }
        5 | 6 => {
            let at = to & !7;
            let old = u64::from_ne_bytes(world.model[at..at + 8].try_into().expect("8 bytes"));
            let remote = Remote {
                addr: world.address(at),
                ..remote
            };
            let (operation, width, new) = atomic(random, remote, old);
            let back = random.below(SIDE as u64 - 8) as usize;
            let sge = Sge {
                addr: world.address(back),
                length: width as u32,
                lkey: world.key,
            };
            let (old, new) = (old.to_ne_bytes(), new.to_ne_bytes());
            world.model[at..at + width].copy_from_slice(&new[..width]);
            world.model[back..back + width].copy_from_slice(&old[..width]);
            (operation, vec![(back, sge)])
        }
        _ => (Operation::Nop, Vec::new()),
    };
    let answered = match kind {
        4 => Some(total),
        // As libmlx5 has it for every atomic, whatever the device says.
        5 | 6 => Some(8),
        _ => None,
    };
    if is_signaled {
        expected.push((wr_id, answered));
    }
    let send = world.qps[0].send.as_mut().expect("sends");
    post(send, wr_id, flags, &operation, &pieces);
    world.hca.run();
    let got = world.poll();
    let told: Vec<_> = got.iter().map(|one| (one.wr_id, one.status)).collect();
    let ids: Vec<_> = expected.iter().map(|(wr_id, _)| (*wr_id, 0)).collect();
    assert_eq!(told, ids, "{operation:?} of {total} bytes, {flags:?}");
    for (one, (_, length)) in got.iter().zip(&expected) {
        if let Some(length) = length {
            assert_eq!(one.byte_len, *length, "{operation:?}");
        }
        let has_imm = kind == 1 || kind == 3;
        if one.wr_id >= 1_000_000 && has_imm {
            assert_eq!(one.immediate(), Some(imm.get()));
        }
    }
    let memory = world.memory.as_bytes();
    if memory != world.model {
        let differs = memory
            .iter()
            .zip(&world.model)
            .position(|(is, should)| is != should);
        panic!("byte {differs:?}: {operation:?} of {total} bytes, {flags:?}, {pieces:?}");
    }
}

/// Random work requests of every kind, many turns of every ring.
fn traffic(mlx5: Mlx5, entry: u32, inline: u32, all: bool) {
    for seed in 0..3 {
        let mut random = Random(seed);
        let mut world = World::new(mlx5, entry, inline, all);
        for i in 0..world.memory.len() {
            let word = random.next();
            world.memory[i] = word;
            world.model[8 * i..8 * i + 8].copy_from_slice(&word.to_ne_bytes());
        }
        for wr_id in 1..400 {
            step(&mut world, &mut random, wr_id, inline.into(), all);
        }
    }
}

#[test]
fn memory_is_as_it_should_be() {
    traffic(Mlx5::default(), 64, 0, false);
    traffic(Mlx5::default(), 64, 300, false);
}

#[test]
fn with_completions_of_128_bytes() {
    traffic(Mlx5::default(), 128, 100, false);
}

/// Where all sends are signaled the device may put what was read into the completion, in the first 32 bytes or in the
/// 64 bytes before it.
#[test]
fn with_answers_in_completions() {
    traffic(Mlx5::default(), 64, 100, true);
    traffic(Mlx5::default(), 128, 100, true);
}

#[test]
fn on_older_devices() {
    let old = Mlx5 {
        tot_bfregs: Some(16),
        cqe_version: 0,
        ..Mlx5::default()
    };
    traffic(old, 64, 100, false);
    let without = Mlx5 {
        has_blue_flame: false,
        ..Mlx5::default()
    };
    traffic(without, 64, 100, false);
}

/// Whatever stands in the rings and doorbell records, the device neither panics nor loops nor writes beyond what keys allow;
/// the poller takes whatever comes.
#[test]
fn garbage_in_rings() {
    let mut random = Random(7);
    for _ in 0..150 {
        let mut world = World::new(Mlx5::default(), 64, 100, false);
        let device = world.hca.qp(world.qps[0].object.number()).expect("there");
        let (send, recv) = (device.send.expect("sends"), device.recv.expect("receives"));
        for ring in [send, recv] {
            for at in (0..ring.len()).step_by(8) {
                let mut word = random.next();
                if at % 64 == 0 && ring == send && random.below(4) != 0 {
                    // A control segment that is nearly right.
                    let opcodes = [
                        0x00, 0x01, 0x08, 0x09, 0x0a, 0x0b, 0x10, 0x11, 0x12, 0x14, 0x15, 0x25,
                        0x2f,
                    ];
                    let opcode = opcodes[random.below(13) as usize];
                    let first = ((at as u64 / 64) << 8 | opcode) << 32;
                    let second = u64::from(device.qpn) << 8 | (random.below(16) + 1);
                    word = (first | second).to_be();
                } else if at % 16 == 0 && random.below(2) == 0 {
                    let length = random.below(100) << 32;
                    word = (length | u64::from(world.key)).to_be();
                } else if at % 16 == 8 && random.below(2) == 0 {
                    word = world
                        .address(random.below(2 * SIDE as u64) as usize)
                        .to_be();
                }
                let to = std::ptr::with_exposed_provenance_mut::<u64>(ring.address as usize + at);
                // SAFETY: the ring is this process's memory, aligned, and no one uses it at this moment.
                unsafe { to.write_volatile(word) };
            }
        }
        let (sent, received) = (random.next() as u32, random.next() as u32);
        for (at, count) in [(0, received & 0x1f), (4, sent & 0x7f)] {
            let to = std::ptr::with_exposed_provenance_mut::<u32>(device.dbrec as usize + at);
            // SAFETY: as above.
            unsafe { to.write_volatile(count.to_be()) };
        }
        world.hca.run();
        world.poll();
    }
}
