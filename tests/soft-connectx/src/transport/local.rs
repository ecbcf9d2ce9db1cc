//! Requests that concern nobody else.

use wqe_format::mlx5::request::{Segment, SendRequest, Service};
use wqe_format::mlx5::{Opcode, Syndrome, opmod};

use super::work::{Piece, Request};
use crate::device::Device;
use crate::memory::umr::{self, Editor, Refusal};
use crate::memory::{self, Right};
use crate::resources::QpKind;

/// Bytes that are copied at once.
const CHUNK: u64 = 1 << 16;

/// Does it.
pub(super) fn execute(device: &mut Device, qpn: u32, request: &Request) -> Result<(), Syndrome> {
    match request.opcode {
        Opcode::UMR => update(device, qpn, request),
        Opcode::SET_PSV => set_state(device, qpn, request),
        Opcode::TAG_MATCHING => super::tags::change(device, qpn, request),
        Opcode::MMO if request.opmod == opmod::MMO_DMA => copy(device, qpn, request),
        Opcode::MMO => Err(Syndrome::LOCAL_QP_OP_ERR),
        _ => Ok(()),
    }
}

fn update(device: &mut Device, qpn: u32, request: &Request) -> Result<(), Syndrome> {
    let wrong = Syndrome::LOCAL_QP_OP_ERR;
    let qp = device.resources.qps.get(qpn).ok_or(wrong)?;
    let editor = Editor {
        who: qp.who(),
        privileged: qp.kind == QpKind::RegUmr,
    };
    let parsed = SendRequest::new(&request.bytes).ok_or(wrong)?;
    umr::update(device, editor, &parsed).map_err(|refusal| {
        log::debug!("a key's change on queue {qpn:#x} is refused: {refusal:?}");
        match refusal {
            Refusal::Malformed => wrong,
            Refusal::List => Syndrome::LOCAL_PROT_ERR,
            Refusal::Key => Syndrome::MW_BIND_ERR,
        }
    })
}

/// A state of a signature gets its first value, which the format of keys says too (`BsfSegment`).
fn set_state(device: &mut Device, qpn: u32, request: &Request) -> Result<(), Syndrome> {
    let wrong = Syndrome::LOCAL_QP_OP_ERR;
    let qp = device.resources.qps.get(qpn).ok_or(wrong)?;
    let parsed = SendRequest::new(&request.bytes).ok_or(wrong)?;
    let mut segments = parsed.segments(Service::Connected);
    let Some(Segment::SetPsv(segment)) = segments.next() else {
        return Err(wrong);
    };
    let psv = device.resources.psvs.get(segment.psv_index.get());
    match psv {
        Some(psv) if psv.pd == qp.pd => Ok(()),
        _ => Err(Syndrome::LOCAL_PROT_ERR),
    }
}

/// Copies from the first buffer to the second.
fn copy(device: &mut Device, qpn: u32, request: &Request) -> Result<(), Syndrome> {
    let wrong = Syndrome::LOCAL_QP_OP_ERR;
    let qp = device.resources.qps.get(qpn).ok_or(wrong)?;
    let [
        Piece::Memory { key, va, len },
        Piece::Memory {
            key: to_key,
            va: to,
            ..
        },
    ] = request.data.as_slice()
    else {
        return Err(wrong);
    };
    let who = qp.who();
    let mut done = 0;
    while done < *len {
        let mut part = vec![0; CHUNK.min(len - done) as usize];
        let from = (*key, va.wrapping_add(done));
        let to = (*to_key, to.wrapping_add(done));
        memory::read(device, &who, from, Right::LocalRead, &mut part)
            .and_then(|()| memory::write(device, &who, to, Right::LocalWrite, &part))
            .map_err(|_| Syndrome::LOCAL_PROT_ERR)?;
        done += part.len() as u64;
    }
    Ok(())
}
