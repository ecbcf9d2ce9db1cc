//! Our queues, on plain memory: no kernel object, no C.

use anyhow::Result;
use oxverbs::control::mlx5::av::{Wire, address_vector};
use oxverbs::data::mlx5::{
    AtomicOperands, Bind, Completion as NativeCompletion, CompletionQueue, Destination, Draft,
    InlinePiece, KeyLayout, KeyUpdate, Operation, PatternPiece, QueueKind, Remote, Segmentation,
    SendFlags, SendLimits, SendQueue, SendRequest, Verb, WrOpcode,
};
use oxverbs_ffi::abi::attr::ibv_ah_attr;
use uverbs_abi::write::ah::{AhAttr, GlobalRoute};
use wqe_format::mlx5::{Cqe64, DatagramSegment};
use wqe_format::rxe::Sge;
use zerocopy::byteorder::big_endian::U32;

use crate::c::device::{QpSpec, addresses};
use crate::call::{Api, Opcode, Outcome, Piece, Post, Service, Wr, flags};
use crate::campaign::Maker;
use crate::direct::{KEY_ENTRIES, Layout, Turn, raw_of};
use crate::ours::{Ours, Shape};
use crate::ring::{BLOCK, CqWriter};
use crate::shape::inline_header;
use crate::subject::{
    Completing, Completion, Polling, RecvMemory, SendMemory, Subject, mac, requester,
};

/// The address vector of an address: GID indices alternate between RoCE v1 and v2 on the fake kernel.
fn vector(attr: &ibv_ah_attr) -> DatagramSegment {
    let wire = match attr.grh.sgid_index % 2 {
        0 => Wire::RoceV1,
        _ => Wire::RoceV2,
    };
    let attr = AhAttr {
        grh: GlobalRoute {
            dgid: attr.grh.dgid.raw,
            flow_label: attr.grh.flow_label,
            sgid_index: attr.grh.sgid_index,
            hop_limit: attr.grh.hop_limit,
            traffic_class: attr.grh.traffic_class,
            ..GlobalRoute::default()
        },
        dlid: attr.dlid,
        sl: attr.sl,
        src_path_bits: attr.src_path_bits,
        static_rate: attr.static_rate,
        is_global: attr.is_global,
        port_num: attr.port_num,
        ..AhAttr::default()
    };
    address_vector(&attr, wire, mac(0))
}

const fn kind(service: Service) -> QueueKind {
    match service {
        Service::Rc | Service::Direct => QueueKind::Rc,
        Service::Dci => QueueKind::Dci,
        Service::Uc => QueueKind::Uc,
        Service::Ud => QueueKind::Ud,
        Service::Xrc => QueueKind::XrcSend,
        Service::Raw => QueueKind::RawPacket,
    }
}

/// What the queue pair's kernel side would say, as the fake kernel does.
fn limits(spec: &QpSpec) -> SendLimits {
    SendLimits {
        max_wr: spec.send_wr,
        max_sge: spec.send_sge,
        max_inline: spec.inline,
        min_inline_header: inline_header(),
        max_tso: 1 << 18,
        max_tso_header: spec.tso_header.into(),
        checksums: true,
        atomics: true,
        max_copy: 1 << 31,
    }
}

fn sge(piece: &Piece) -> Sge {
    Sge {
        addr: piece.address,
        length: piece.len,
        lkey: piece.lkey,
    }
}

fn inline_piece(piece: &Piece) -> InlinePiece {
    InlinePiece::of_sge(&sge(piece))
}

fn send_flags(wr: &Wr) -> SendFlags {
    let inline = if wr.is_inline { flags::INLINE } else { 0 };
    SendFlags(u32::from(wr.flags | inline))
}

fn bind(wr: &Wr) -> Bind {
    Bind {
        type_1: !wr.bind.is_type_2,
        old_rkey: wr.bind.window_rkey,
        new_rkey: wr.rkey,
        addr: wr.bind.address,
        length: wr.bind.len,
        lkey: wr.bind.mr_lkey,
        access: wr.bind.access,
    }
}

fn segmentation(wr: &Wr) -> Segmentation {
    Segmentation {
        header: std::ptr::with_exposed_provenance(wr.header.address as usize),
        header_len: wr.header.len as u16,
        mss: wr.mss,
    }
}

fn remote(wr: &Wr) -> Remote {
    Remote {
        addr: wr.remote,
        rkey: wr.rkey,
    }
}

/// A work request of a list.
#[derive(Clone, Copy, Debug)]
struct Request<'a> {
    index: usize,
    wr: &'a Wr,
    sges: &'a [Sge],
    vectors: &'a [DatagramSegment],
}

// SAFETY: inline pieces and headers are in the arena, or longer than any limit.
unsafe impl SendRequest for Request<'_> {
    fn wr_id(&self) -> u64 {
        self.wr.id
    }

    fn opcode(&self) -> WrOpcode {
        WrOpcode(self.wr.opcode.number())
    }

    fn flags(&self) -> SendFlags {
        send_flags(self.wr)
    }

    fn sges(&self) -> &[Sge] {
        self.sges
    }

    fn imm(&self) -> U32 {
        // The caller's is in network order already.
        U32::from_bytes(self.wr.imm.to_ne_bytes())
    }

    fn invalidate_rkey(&self) -> u32 {
        self.wr.rkey
    }

    fn remote(&self) -> Remote {
        remote(self.wr)
    }

    fn atomic(&self) -> AtomicOperands {
        AtomicOperands {
            compare_add: self.wr.compare_add,
            swap: self.wr.swap,
        }
    }

    fn destination(&self) -> Option<Destination<'_>> {
        Some(Destination {
            av: &self.vectors[self.wr.handle],
            qpn: self.wr.remote_qpn,
            qkey: self.wr.remote_qkey,
        })
    }

    fn remote_srqn(&self) -> u32 {
        self.wr.srqn
    }

    fn bind(&self) -> Option<Bind> {
        Some(bind(self.wr))
    }

    fn segmentation(&self) -> Option<Segmentation> {
        Some(segmentation(self.wr))
    }
}

/// Our queue pair.
#[derive(Debug)]
pub struct NativeSubject {
    spec: QpSpec,
    ours: Ours,
    recv_memory: RecvMemory,
    polling: Polling,
    writer: CqWriter,
    vectors: Vec<DatagramSegment>,
    memory: SendMemory,
}

/// Where copies keep their state: key and address, as they are in a work request.
fn copy_state() -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&STATE_KEY.to_be_bytes());
    bytes[4..].copy_from_slice(&STATE.to_be_bytes());
    bytes
}

/// Puts one of mlx5dv's that is no [`Operation`] into a batch; an error stays in the draft.
fn put_direct(queue: &SendQueue, draft: &mut Draft, wr: &Wr) {
    if wr.opcode == Opcode::Raw {
        let _ = queue.raw(draft, wr.id, &raw_of(wr, QPN, false));
        return;
    }
    let list: Vec<Sge>;
    let pattern: Vec<PatternPiece>;
    let layout = match &wr.more.key.layout {
        None => None,
        Some(Layout::List(pieces)) => {
            list = pieces.iter().map(sge).collect();
            Some(KeyLayout::List(&list))
        }
        Some(Layout::Pattern(repeat, turns)) => {
            let piece = |turn: &Turn| PatternPiece {
                addr: turn.address,
                length: turn.len,
                skip: turn.skip,
                lkey: turn.lkey,
            };
            pattern = turns.iter().map(piece).collect();
            Some(KeyLayout::Pattern {
                repeat: *repeat,
                pieces: &pattern,
            })
        }
    };
    let update = KeyUpdate {
        key: wr.more.key.key,
        entries: KEY_ENTRIES,
        access: wr.more.key.access,
        layout,
        signature: None,
    };
    let _ = queue.configure_key(draft, wr.id, send_flags(wr), &update);
}

/// Any numbers that are no others'.
const QPN: u32 = 0x5a_5a5a;
const USER_INDEX: u32 = 0x12_3456;
const CQ_ENTRIES: u32 = 256;
const STATE_KEY: u32 = 0x6162_6364;
const STATE: u64 = 0x7172_7374_7576_7778;

impl NativeSubject {
    /// A queue pair with exactly these limits and a ring of `blocks` blocks.
    ///
    /// # Errors
    ///
    /// No memory.
    pub fn new(spec: QpSpec, blocks: u32, entry: u32, polling: Polling) -> Result<Self> {
        Self::with_receives(spec, blocks, entry, polling, (16, 64))
    }

    /// The same with a receive ring of so many entries of so many bytes.
    ///
    /// # Errors
    ///
    /// No memory.
    pub fn with_receives(
        spec: QpSpec,
        blocks: u32,
        entry: u32,
        polling: Polling,
        receives: (u32, u32),
    ) -> Result<Self> {
        let ours = Ours::new(&Shape {
            kind: kind(spec.service),
            qpn: QPN,
            user_index: USER_INDEX,
            blocks,
            limits: limits(&spec),
            signal_all: spec.signals_all,
            receives: receives.0,
            receive_size: receives.1,
            max_recv_wr: receives.0.min(spec.recv_wr.max(16)),
            max_recv_sge: if receives == (16, 64) {
                4
            } else {
                spec.recv_sge
            },
            entries: CQ_ENTRIES,
            entry_size: entry,
        })?;
        let memory = SendMemory {
            ring: ours.memory.send_ring,
            record: ours.memory.record,
            register: ours.memory.register,
            qpn: QPN,
            user_index: USER_INDEX,
            mac: mac(0),
            copy_state: Some(copy_state()),
        };
        let recv_memory = RecvMemory {
            ring: ours.memory.recv_ring,
            entry: receives.1 as usize,
            record: ours.memory.record,
        };
        Ok(Self {
            recv_memory,
            spec,
            polling,
            writer: CqWriter::new(ours.memory.cq_ring, CQ_ENTRIES, entry as usize),
            ours,
            vectors: addresses().iter().map(vector).collect(),
            memory,
        })
    }

    fn chain(&mut self, wrs: &[Wr]) -> Outcome {
        let sges: Vec<Vec<Sge>> = wrs
            .iter()
            .map(|wr| wr.pieces.iter().map(sge).collect())
            .collect();
        let vectors = &self.vectors;
        let requests = wrs.iter().zip(&sges).enumerate();
        let requests = requests.map(|(index, (wr, sges))| Request {
            index,
            wr,
            sges,
            vectors,
        });
        match self.ours.send.post(requests) {
            Ok(_) => Outcome::DONE,
            Err(refused) => Outcome {
                errno: refused.error.errno(Verb::PostSend).0,
                refused: Some(refused.request.index),
            },
        }
    }

    fn build(&mut self, post: &Post) -> Outcome {
        let mut draft = self.ours.send.begin();
        for wr in &post.wrs {
            let imm = U32::from_bytes(wr.imm.to_ne_bytes());
            let operation = match wr.opcode {
                Opcode::Send => Operation::Send,
                Opcode::SendImm => Operation::SendWithImm { imm },
                Opcode::SendInv => Operation::SendWithInv { rkey: wr.rkey },
                Opcode::Write => Operation::RdmaWrite(remote(wr)),
                Opcode::WriteImm => Operation::RdmaWriteWithImm {
                    remote: remote(wr),
                    imm,
                },
                Opcode::Read => Operation::RdmaRead(remote(wr)),
                Opcode::CompareSwap => Operation::AtomicCmpAndSwp {
                    remote: remote(wr),
                    compare: wr.compare_add,
                    swap: wr.swap,
                },
                Opcode::FetchAdd => Operation::AtomicFetchAndAdd {
                    remote: remote(wr),
                    add: wr.compare_add,
                },
                Opcode::LocalInv => Operation::LocalInv { rkey: wr.rkey },
                Opcode::BindMw => Operation::BindMw(bind(wr)),
                Opcode::Tso => Operation::Tso(segmentation(wr)),
                Opcode::Memcpy => Operation::Memcpy {
                    to_lkey: wr.pieces[0].lkey,
                    to: wr.pieces[0].address,
                    from_lkey: wr.pieces[1].lkey,
                    from: wr.pieces[1].address,
                    length: wr.pieces[0].len.into(),
                    state_lkey: STATE_KEY,
                    state: STATE,
                },
                Opcode::MaskedSwap8 => Operation::MaskedCmpAndSwp8 {
                    remote: remote(wr),
                    compare: wr.compare_add,
                    compare_mask: wr.more.compare_mask,
                    swap: wr.swap,
                    swap_mask: wr.more.swap_mask,
                },
                Opcode::MaskedAdd8 => Operation::MaskedFetchAndAdd8 {
                    remote: remote(wr),
                    add: wr.compare_add,
                    boundaries: wr.more.swap_mask,
                },
                Opcode::MaskedSwap4 => Operation::MaskedCmpAndSwp4 {
                    remote: remote(wr),
                    compare: wr.compare_add as u32,
                    compare_mask: wr.more.compare_mask as u32,
                    swap: wr.swap as u32,
                    swap_mask: wr.more.swap_mask as u32,
                },
                Opcode::MaskedAdd4 => Operation::MaskedFetchAndAdd4 {
                    remote: remote(wr),
                    add: wr.compare_add as u32,
                    boundaries: wr.more.swap_mask as u32,
                },
                Opcode::Key | Opcode::KeyList | Opcode::KeyPattern | Opcode::Raw => {
                    put_direct(&self.ours.send, &mut draft, wr);
                    continue;
                }
            };
            let flags = SendFlags(wr.flags.into());
            // SAFETY: headers are in the arena.
            let opened = unsafe { self.ours.send.open(&mut draft, wr.id, flags, &operation) };
            if opened.is_err() || !wr.opcode.has_data() {
                continue;
            }
            let address = |queue: &SendQueue, draft: &mut _| match self.spec.service {
                Service::Ud => queue.set_datagram(
                    draft,
                    &Destination {
                        av: &self.vectors[wr.handle],
                        qpn: wr.remote_qpn,
                        qkey: wr.remote_qkey,
                    },
                ),
                Service::Xrc => queue.set_srqn(draft, wr.srqn),
                Service::Dci => queue.set_dct(
                    draft,
                    &self.vectors[wr.handle],
                    wr.remote_qpn,
                    wr.more.dc_key,
                    wr.more.stream.unwrap_or(0),
                ),
                _ => {}
            };
            if wr.address_first {
                address(&self.ours.send, &mut draft);
            }
            // An error stays in the draft.
            let _ = match (&wr.pieces[..], wr.is_inline) {
                ([one], false) if !wr.uses_list => {
                    // SAFETY: memory that nothing is sent from in truth.
                    unsafe { self.ours.send.set_sge(&mut draft, &sge(one)) }
                }
                (pieces, false) => {
                    let sges: Vec<Sge> = pieces.iter().map(sge).collect();
                    // SAFETY: as above.
                    unsafe { self.ours.send.set_sges(&mut draft, &sges) }
                }
                ([one], true) if !wr.uses_list => {
                    // SAFETY: in the arena, or longer than the limit.
                    unsafe { self.ours.send.set_inline(&mut draft, inline_piece(one)) }
                }
                (pieces, true) => {
                    let pieces = pieces.iter().map(inline_piece);
                    // SAFETY: as above.
                    unsafe { self.ours.send.set_inline_list(&mut draft, pieces) }
                }
            };
            if !wr.address_first {
                address(&self.ours.send, &mut draft);
            }
        }
        if post.aborts {
            return Outcome::DONE;
        }
        let errno = match self.ours.send.commit(&mut draft) {
            Ok(_) => 0,
            Err(error) => error.errno(Verb::WrComplete).0,
        };
        Outcome {
            errno,
            refused: None,
        }
    }
}

impl Subject for NativeSubject {
    fn name(&self) -> &'static str {
        "native"
    }

    fn restart(&mut self) -> Result<()> {
        self.ours.send.reset();
        self.ours.send.set_accepting(true);
        self.ours.recv.reset();
        self.ours.recv.set_accepting(true);
        Ok(())
    }

    fn memory(&self) -> SendMemory {
        self.memory
    }

    fn spec(&self) -> QpSpec {
        self.spec
    }

    fn post(&mut self, post: &Post) -> Outcome {
        match post.api {
            Api::Chain => self.chain(&post.wrs),
            Api::Builder => self.build(post),
        }
    }

    fn cancel(&mut self, next: u16, id: u64) -> i32 {
        // SAFETY: there is no device.
        unsafe { self.ours.send.cancel(next, id) as i32 }
    }

    fn complete(&mut self, counter: u16, opcode: u8) -> Option<Completion> {
        let cqe = requester(&self.memory, counter, opcode);
        self.write(&[], cqe);
        Completing::poll(self, 0)
    }
}

impl Completing for NativeSubject {
    fn receive(&mut self, id: u64, pieces: &[Piece]) {
        let sges: Vec<Sge> = pieces.iter().map(sge).collect();
        let posted = self.ours.recv.post([(id, &sges[..])]);
        assert!(posted.is_ok(), "{posted:?}");
    }

    fn post_receives(&mut self, list: &[(u64, Vec<Piece>)]) -> Outcome {
        let sges: Vec<Vec<Sge>> = list
            .iter()
            .map(|(_, pieces)| pieces.iter().map(sge).collect())
            .collect();
        let requests = list
            .iter()
            .zip(&sges)
            .map(|((id, _), sges)| (*id, &sges[..]));
        let before = self.ours.recv.head();
        match self.ours.recv.post(requests) {
            Ok(_) => Outcome::DONE,
            Err(refused) => Outcome {
                errno: refused.error.errno(Verb::PostRecv).0,
                refused: Some(self.ours.recv.head().wrapping_sub(before) as usize),
            },
        }
    }

    fn recv_memory(&self) -> Result<RecvMemory> {
        Ok(self.recv_memory)
    }

    fn write(&mut self, before: &[u8], cqe: Cqe64) {
        self.writer.write(before, cqe);
    }

    fn poll(&mut self, poison: u8) -> Option<Completion> {
        let (mut found, qpn) = poll(&mut self.ours.cq, self.polling, poison)?;
        found.is_own_qpn = qpn == QPN;
        Some(found)
    }
}

/// Polls one completion into memory full of `poison`, and its queue pair's number.
pub fn poll(cq: &mut CompletionQueue, polling: Polling, poison: u8) -> Option<(Completion, u32)> {
    if polling == Polling::Array {
        let mut found = [NativeCompletion::default()];
        let n = cq.poll(&mut found);
        return (n == 1).then(|| (Completion::of_native(&found[0], 0), found[0].qp_num));
    }
    cq.start_poll().ok()?;
    let qpn = cq.read_qp_num();
    let mut found = Completion::poison(poison);
    found.wr_id = cq.wr_id();
    found.status = cq.status();
    if found.status == 0 {
        found.opcode = cq.read_opcode();
        found.byte_len = cq.read_byte_len();
        found.wc_flags = cq.read_wc_flags();
        found.src_qp = cq.read_src_qp();
        found.slid = cq.read_slid() as u16;
        found.sl = cq.read_sl();
        found.dlid_path_bits = cq.read_dlid_path_bits();
        if found.wc_flags & 0b1010 != 0 {
            found.imm_data = cq.read_imm_or_rkey();
        }
    } else {
        found.vendor_err = cq.read_vendor_err();
    }
    cq.end_poll();
    Some((found, qpn))
}

/// Makes them.
#[derive(Debug)]
pub struct NativeMaker;

impl Maker for NativeMaker {
    fn name(&self) -> &'static str {
        "native"
    }

    fn has(&self, _: Service) -> bool {
        true
    }

    fn make<'a>(&'a self, _: &QpSpec, witness: &dyn Subject) -> Result<Box<dyn Subject + 'a>> {
        let blocks = (witness.memory().ring.len() / BLOCK) as u32;
        let subject = NativeSubject::new(witness.spec(), blocks, 64, Polling::Array)?;
        Ok(Box::new(subject))
    }
}
