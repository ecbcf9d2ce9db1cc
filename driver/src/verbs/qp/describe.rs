//! Work requests in the words of a device family.

use wqe_format::rxe::{Operation, SendFlags, Sge};

use crate::data::{mlx5, rxe};
use crate::verbs::address::To;

/// What a work request carries.
#[derive(Clone, Copy)]
pub(super) enum Payload<'a> {
    Sges(&'a [Sge]),
    Inline(&'a [u8]),
    AtomicValue([u8; 8]),
}

#[inline(always)]
pub(super) fn describe_rxe(
    sq: &rxe::SendQueue,
    draft: &mut rxe::Draft,
    payload: Payload<'_>,
) -> Result<(), rxe::PostError> {
    match payload {
        Payload::Sges(sges) => sq.set_sges(draft, sges),
        Payload::Inline(bytes) => {
            let piece = rxe::InlinePiece {
                addr: bytes.as_ptr(),
                len: bytes.len(),
            };
            // SAFETY: the piece is a slice, which is readable.
            unsafe { sq.set_inline(draft, std::iter::once(piece)) }
        }
        Payload::AtomicValue(value) => sq.set_atomic_value(draft, value),
    }
}

#[inline(always)]
pub(super) fn describe_mlx5(
    sq: &mlx5::SendQueue,
    draft: &mut mlx5::Draft,
    wr_id: u64,
    flags: SendFlags,
    operation: &Operation,
    to: Option<&To>,
    payload: Payload<'_>,
) -> Result<(), mlx5::PostError> {
    let Some(described) = mlx5_operation(operation) else {
        draft.refuse(mlx5::PostError::Opcode);
        return Err(mlx5::PostError::Opcode);
    };
    // the numbers of the flags are libibverbs' in both
    let flags = mlx5::SendFlags(flags.0);
    // SAFETY: of the operations above, none has headers in memory.
    unsafe { sq.open(draft, wr_id, flags, &described) }?;
    match to {
        Some(To::Mlx5 { av, qpn, qkey }) => {
            let to = mlx5::Destination {
                av,
                qpn: *qpn,
                qkey: *qkey,
            };
            sq.set_datagram(draft, &to);
        }
        Some(To::Xrc(srq)) => sq.set_srqn(draft, *srq),
        // a handle of another device: the queue misses the destination
        Some(To::Rxe(_)) | None => {}
    }
    let local = !matches!(operation, Operation::LocalInv { .. } | Operation::BindMw(_));
    match payload {
        Payload::Sges([]) if !local => Ok(()),
        // SAFETY: queues of raw packets read what is readable by the promise of who began the request; others read nothing.
        Payload::Sges(sges) => unsafe { sq.set_sges(draft, sges) },
        Payload::Inline(bytes) => {
            let piece = mlx5::InlinePiece {
                addr: bytes.as_ptr(),
                len: bytes.len(),
            };
            // SAFETY: the piece is a slice, which is readable.
            unsafe { sq.set_inline(draft, piece) }
        }
        Payload::AtomicValue(_) => {
            draft.refuse(mlx5::PostError::Opcode);
            Err(mlx5::PostError::Opcode)
        }
    }
}

/// The operation in mlx5's words; `None` if it has no such operation.
#[inline(always)]
fn mlx5_operation(operation: &Operation) -> Option<mlx5::Operation> {
    let remote = |addr, rkey| mlx5::Remote { addr, rkey };
    Some(match *operation {
        Operation::Send => mlx5::Operation::Send,
        Operation::SendWithImm { imm } => mlx5::Operation::SendWithImm { imm },
        Operation::SendWithInv { rkey } => mlx5::Operation::SendWithInv { rkey },
        Operation::RdmaWrite { remote_addr, rkey } => {
            mlx5::Operation::RdmaWrite(remote(remote_addr, rkey))
        }
        Operation::RdmaWriteWithImm {
            remote_addr,
            rkey,
            imm,
        } => mlx5::Operation::RdmaWriteWithImm {
            remote: remote(remote_addr, rkey),
            imm,
        },
        Operation::RdmaRead { remote_addr, rkey } => {
            mlx5::Operation::RdmaRead(remote(remote_addr, rkey))
        }
        Operation::AtomicCmpAndSwp {
            remote_addr,
            rkey,
            compare,
            swap,
        } => mlx5::Operation::AtomicCmpAndSwp {
            remote: remote(remote_addr, rkey),
            compare,
            swap,
        },
        Operation::AtomicFetchAndAdd {
            remote_addr,
            rkey,
            add,
        } => mlx5::Operation::AtomicFetchAndAdd {
            remote: remote(remote_addr, rkey),
            add,
        },
        Operation::LocalInv { rkey } => mlx5::Operation::LocalInv { rkey },
        Operation::BindMw(bind) => mlx5::Operation::BindMw(mlx5::Bind {
            // a window of type 1 is bound by the kernel's rules, not by the program's key
            type_1: false,
            old_rkey: bind.mw_rkey,
            new_rkey: bind.rkey,
            addr: bind.addr,
            length: bind.length,
            lkey: bind.mr_lkey,
            access: bind.access.0,
        }),
        _ => return None,
    })
}
