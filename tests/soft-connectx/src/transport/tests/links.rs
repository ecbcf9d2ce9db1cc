//! Two devices and a link that loses packets.

use std::sync::Mutex;

use super::*;
use crate::Link;
use crate::cable::{Faults, Lane};

/// One way of the cable. Time does not pass on it: what is sent has arrived.
#[derive(Clone)]
struct Way(Arc<Mutex<Lane>>);

impl Link for Way {
    fn send(&mut self, frame: &[u8]) {
        self.0.lock().unwrap().send(Duration::ZERO, frame);
    }
}

struct Two {
    ends: [Bench; 2],
    ways: [Way; 2],
}

impl Two {
    fn new(faults: Faults) -> Two {
        let mut ends = [Bench::new(1), Bench::new(2)];
        let ways = [0, 1].map(|number| Way(Arc::new(Mutex::new(Lane::new(faults, number)))));
        for (number, (end, way)) in ends.iter_mut().zip(&ways).enumerate() {
            end.qp(0x41, QpKind::Rc, 2 - number as u16, 0x41);
            let qp = end.device.resources.qps.get_mut(0x41).unwrap();
            qp.limits.retry_count = 7;
            end.device.plug(1, Box::new(way.clone()));
            end.up(0x41);
        }
        Two { ends, ways }
    }

    /// Carries frames until nothing moves, with time passing.
    fn settle(&mut self) {
        for _ in 0..400 {
            for side in 0..2 {
                loop {
                    // One that waits to be overtaken waits no longer than this.
                    let later = Duration::from_secs(1);
                    let frame = self.ways[side].0.lock().unwrap().arrive(later);
                    let Some(frame) = frame else { break };
                    self.ends[1 - side].device.receive(&frame);
                }
            }
            for end in &mut self.ends {
                end.wait(Duration::from_micros(300));
            }
        }
    }
}

#[test]
fn lost_packets_are_sent_again() {
    let bad = |loss: &str, reorder: &str, seed| Faults {
        loss: loss.parse().unwrap(),
        reorder: reorder.parse().unwrap(),
        seed,
        ..Faults::default()
    };
    for faults in [
        Faults::default(),
        bad("20%", "0%", 1),
        bad("10%", "10%", 2),
        bad("3%", "30%", 3),
        bad("0%", "50%", 4),
    ] {
        let mut two = Two::new(faults);
        let sent = two.ends[0].fill(0x1_0000, 3000);
        two.ends[1].ram.write(0x5000, &[0; 8]).unwrap();
        for turn in 0..4u64 {
            two.ends[1].post_receive(0x41, &[data(0x2_0000 + turn * 0x1000, 3000)]);
            let list = data(0x1_0000, 3000);
            two.ends[0].post(0x41, Opcode::SEND, 0, &[list.as_bytes()]);
            let add = wqe_format::mlx5::AtomicSegment::fetch_add(1);
            let (to, back) = (remote(0x5000), data(0x6000, 8));
            let parts = [to.as_bytes(), add.as_bytes(), back.as_bytes()];
            two.ends[0].post(0x41, Opcode::ATOMIC_FA, 0, &parts);
            two.settle();
            let back = data(0x3_0000, 3000);
            let body = [remote(0x2_0000 + turn * 0x1000).as_bytes(), back.as_bytes()].concat();
            two.ends[0].post(0x41, Opcode::RDMA_READ, 0, &[&body]);
            two.settle();
            two.ends[1].done(0x41, CqeOpcode::RESP_SEND);
            for _ in 0..3 {
                two.ends[0].done(0x41, CqeOpcode::REQ);
            }
            assert_eq!(two.ends[1].bytes(0x2_0000 + turn * 0x1000, 3000), sent);
            assert_eq!(two.ends[0].bytes(0x3_0000, 3000), sent);
            two.ends[0].ram.write(0x3_0000, &[0; 3000]).unwrap();
            // Once each, though requests and answers were lost.
            assert_eq!(two.ends[0].bytes(0x6000, 8), turn.to_le_bytes());
            assert_eq!(two.ends[1].bytes(0x5000, 8), (turn + 1).to_le_bytes());
        }
    }
}

#[test]
fn a_cut_link_is_noticed() {
    let mut two = Two::new(Faults::default());
    for way in &two.ways {
        way.0.lock().unwrap().set_cut(true);
    }
    two.ends[0].post(0x41, Opcode::SEND, 0, &[data(0x1000, 600).as_bytes()]);
    two.settle();
    two.ends[0].failed(0x41, Syndrome::TRANSPORT_RETRY_EXC_ERR);
}
