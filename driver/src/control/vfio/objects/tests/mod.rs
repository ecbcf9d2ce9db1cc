//! Objects over a device that records what it is told.

mod commands;
mod golden;
mod golden_roce;
mod golden_xrc;
mod pacing;
mod refusals;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use uverbs_abi::handle::{Cq, Pd};
use uverbs_abi::types::QpType;
use uverbs_abi::udata::mlx5 as udata;
use wqe_format::mlx5::firmware::caps::CapType;
use wqe_format::mlx5::firmware::caps::command::{QueryHcaCapIn, QueryHcaCapOut};
use wqe_format::mlx5::firmware::caps::general::CmdHcaCap;
use wqe_format::mlx5::firmware::caps::qos::QosCap;
use wqe_format::mlx5::firmware::caps::roce::RoceCap;
use wqe_format::mlx5::firmware::nic_vport::QueryNicVportContextOut;
use wqe_format::mlx5::firmware::{Opcode, Status};

use super::{DriverUsage, Identity, Mapped, Objects, Platform};
use crate::control::kernel::{CreateCq, CreateQp};
use crate::control::vfio::clock::Clock;
use crate::control::vfio::command::{CommandError, Commands};
use crate::control::vfio::pci::BarMapping;
use crate::sys::errno::Errno;

/// A device that does nothing but count, and remembers commands. It sees memory where the process sees it.
#[derive(Debug, Default)]
struct Recorder {
    seen: Mutex<Vec<Vec<u8>>>,
    /// Commands that are refused the next time, and how.
    refusals: Mutex<VecDeque<(Opcode, Status)>>,
    /// Numbers of the next objects.
    numbers: Mutex<VecDeque<u32>>,
    mapped: Arc<()>,
    ethernet: bool,
    /// Whether it compresses completions of 64 bytes, and whether those may name their strides.
    compresses: (bool, bool),
    /// The options of enhanced connection establishment that it knows.
    options: u32,
}

/// The number of every object that nothing else was said of.
const NUMBER: u32 = 0x1234;

impl Recorder {
    /// The last command.
    fn last(&self) -> Vec<u8> {
        self.seen.lock().unwrap().last().unwrap().clone()
    }

    /// The last command of a kind.
    fn last_of(&self, opcode: Opcode) -> Vec<u8> {
        let seen = self.seen.lock().unwrap();
        let is_one = |input: &&Vec<u8>| input[..2] == opcode.0.to_be_bytes();
        let last = seen.iter().rev().find(is_one);
        last.unwrap_or_else(|| panic!("no {opcode:?}")).clone()
    }

    fn opcodes(&self) -> Vec<Opcode> {
        let seen = self.seen.lock().unwrap();
        let opcode = |input: &Vec<u8>| Opcode(u16::from_be_bytes([input[0], input[1]]));
        seen.iter().map(opcode).collect()
    }

    fn forget(&self) {
        self.seen.lock().unwrap().clear();
    }

    fn refuse(&self, opcode: Opcode, status: Status) {
        self.refusals.lock().unwrap().push_back((opcode, status));
    }

    /// What the next object is called.
    fn call(&self, number: u32) {
        self.numbers.lock().unwrap().push_back(number);
    }

    /// Ranges that are mapped now.
    fn mappings(&self) -> usize {
        Arc::strong_count(&self.mapped) - 1
    }

    fn caps(&self) -> CmdHcaCap<[u8; CmdHcaCap::SIZE]> {
        let mut caps = CmdHcaCap::zeroed();
        caps.set_log_max_cq_sz(22)
            .set_log_max_qp_sz(15)
            .set_log_max_srq_sz(15)
            .set_max_wqe_sz_rq(512)
            .set_max_wqe_sz_sq(1024)
            .set_log_max_ra_req_qp(4)
            .set_log_max_ra_res_qp(4)
            .set_log_max_msg(30)
            .set_max_qp_cnt(254)
            .set_num_ports(1)
            .set_cqe_version(1)
            .set_cq_resize(true)
            .set_cq_moderation(true)
            .set_imaicl(true)
            .set_sctr_data_cqe(true)
            .set_dct(true)
            .set_port_type(self.ethernet.into())
            .set_eth_net_offloads(self.ethernet)
            .set_nic_flow_table(self.ethernet)
            .set_roce(self.ethernet)
            .set_qos(self.ethernet)
            .set_ece_support(self.options != 0)
            .set_cqe_compression(self.compresses.0)
            .set_cqe_compression_max_num(64)
            .set_mini_cqe_resp_stride_index(self.compresses.1);
        caps
    }
}

impl Commands for Recorder {
    fn execute(&self, input: &[u8], output: &mut [u8]) -> Result<(), CommandError> {
        let opcode = Opcode(u16::from_be_bytes([input[0], input[1]]));
        let mut refusals = self.refusals.lock().unwrap();
        if refusals.front().is_some_and(|(which, _)| *which == opcode) {
            let (_, status) = refusals.pop_front().unwrap();
            return Err(CommandError::refused(opcode, status, 0xabc));
        }
        if opcode == Opcode::QUERY_HCA_CAP {
            let asked = QueryHcaCapIn::new(input).unwrap();
            let mut answer = QueryHcaCapOut::new(output).unwrap();
            match CapType::of_op_mod(asked.op_mod()).0 {
                CapType::GENERAL => {
                    let caps = self.caps();
                    answer.capability_mut()[..CmdHcaCap::SIZE].copy_from_slice(caps.as_bytes());
                }
                CapType::ROCE => {
                    let mut caps = RoceCap::zeroed();
                    caps.set_roce_address_table_size(16);
                    answer.capability_mut()[..RoceCap::SIZE].copy_from_slice(caps.as_bytes());
                }
                CapType::QOS => {
                    let mut caps = QosCap::zeroed();
                    caps.set_packet_pacing(true)
                        .set_packet_pacing_min_rate(100)
                        .set_packet_pacing_max_rate(1_000_000)
                        .set_packet_pacing_burst_bound(true)
                        .set_packet_pacing_rate_table_size(3);
                    answer.capability_mut()[..QosCap::SIZE].copy_from_slice(caps.as_bytes());
                }
                _ => {}
            }
            return Ok(());
        }
        if opcode == Opcode::QUERY_NIC_VPORT_CONTEXT {
            let mut answer = QueryNicVportContextOut::new(output).unwrap();
            let mut port = answer.nic_vport_context_mut();
            port.permanent_address_mut()
                .set_mac_addr_47_32(2)
                .set_mac_addr_31_0(0xc900_0001);
            return Ok(());
        }
        self.seen.lock().unwrap().push(input.to_vec());
        // where all that make something answer its number
        let number = self.numbers.lock().unwrap().pop_front().unwrap_or(NUMBER);
        output[9..12].copy_from_slice(&number.to_be_bytes()[1..]);
        if let (Some(asked), Some(place)) = (input.get(20..24), output.get_mut(12..16)) {
            // where commands on queue pairs have options, and answer them
            let asked = u32::from_be_bytes([asked[0], asked[1], asked[2], asked[3]]);
            place.copy_from_slice(&(asked & self.options).to_be_bytes());
        }
        Ok(())
    }
}

impl Platform for Recorder {
    fn map(&self, address: u64, _bytes: u64) -> Result<Mapped, Errno> {
        Ok(Mapped {
            iova: address,
            keep: Box::new(self.mapped.clone()),
        })
    }

    fn event_queue(&self, vector: u32) -> Option<u32> {
        (vector < 2).then_some(vector + 2)
    }

    fn completion_vectors(&self) -> u32 {
        2
    }

    fn write_combining(&self) -> bool {
        false
    }

    fn timer(&self) -> Result<u64, Errno> {
        Ok(7)
    }

    fn visits(&self) -> Arc<Mutex<()>> {
        Arc::default()
    }

    fn clock(&self) -> Option<Arc<Clock>> {
        None
    }

    fn doorbell_page(&self, _number: u32) -> Result<BarMapping, Errno> {
        Err(Errno(libc::ENODEV))
    }

    fn is_ours(&self) -> bool {
        true
    }

    fn usage(&self) -> DriverUsage {
        DriverUsage::default()
    }

    fn identity(&self) -> Identity {
        Identity::default()
    }
}

fn objects() -> (Arc<Recorder>, Objects) {
    objects_of(Recorder::default())
}

fn objects_of(recorder: Recorder) -> (Arc<Recorder>, Objects) {
    let recorder = Arc::new(recorder);
    let objects = Objects::new(recorder.clone()).unwrap();
    recorder.forget();
    (recorder, objects)
}

fn pd(objects: &Objects) -> Pd {
    objects.alloc_pd().unwrap().0
}

/// A queue pair that has one completion queue.
fn queue_pair(qp_type: QpType, pd: Pd, queue: Cq) -> CreateQp {
    CreateQp {
        qp_type,
        pd,
        send_cq: queue,
        recv_cq: queue,
        ..CreateQp::default()
    }
}

/// A completion queue whose ring begins at `ring`.
fn cq(objects: &Objects, ring: u64, cqe: u32) -> Result<Cq, Errno> {
    cq_by(objects, ring, cqe, udata::CreateCq::default())
}

/// The same, of which the driver's part says more.
fn cq_by(objects: &Objects, ring: u64, cqe: u32, more: udata::CreateCq) -> Result<Cq, Errno> {
    let request = CreateCq {
        cqe,
        comp_vector: 1,
        ..CreateCq::default()
    };
    let input = udata::CreateCq {
        buf_addr: ring,
        db_addr: 0x7000_0040,
        cqe_size: 64,
        uar_page_index: 0x11,
        flags: udata::CreateCqFlags::UAR_PAGE_INDEX,
        ..more
    };
    // SAFETY: nobody looks at the memory.
    unsafe { objects.create_cq(&request, &input) }.map(|made| made.handle)
}
