//! What it means that the firmware refuses a command.

use wqe_format::mlx5::firmware::Status;

use crate::sys::errno::Errno;

/// The errno that the kernel's verbs give for a refusal (`drivers/net/ethernet/mellanox/mlx5/core/cmd.c`,
/// `cmd_status_to_err`).
pub fn errno_of(status: Status) -> Errno {
    Errno(match status {
        Status::RES_BUSY => libc::EBUSY,
        Status::LIM_ERR => libc::ENOMEM,
        Status::NO_RES_ERR | Status::NOT_READY => libc::EAGAIN,
        Status::BAD_OP_ERR
        | Status::BAD_PARAM_ERR
        | Status::BAD_RES_ERR
        | Status::BAD_RES_STATE_ERR
        | Status::IX_ERR
        | Status::BAD_QP_STATE_ERR
        | Status::BAD_PKT_ERR
        | Status::BAD_SIZE_OUTS_CQES_ERR => libc::EINVAL,
        _ => libc::EIO,
    })
}

/// Why a command failed that was sent through DEVX: for a refusal, of which the kernel says no more than `EREMOTEIO`, what
/// the firmware says of it in its output.
pub fn reason(errno: Errno, output: &[u8]) -> Errno {
    match (errno, output.first()) {
        (Errno(libc::EREMOTEIO), Some(&status)) if !Status(status).is_ok() => {
            errno_of(Status(status))
        }
        _ => errno,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_firmware_gives_the_reason_of_a_refusal_only() {
        let refused = Errno(libc::EREMOTEIO);
        assert_eq!(reason(refused, &[9, 0]), Errno(libc::EINVAL));
        assert_eq!(reason(refused, &[6]), Errno(libc::EBUSY));
        assert_eq!(reason(refused, &[0x77]), Errno(libc::EIO));
        assert_eq!(reason(refused, &[0]), refused);
        assert_eq!(reason(refused, &[]), refused);
        assert_eq!(reason(Errno(libc::EPERM), &[9]), Errno(libc::EPERM));
    }
}
