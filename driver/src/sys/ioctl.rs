//! A command of [`uverbs_abi`] handed to the kernel.
//!
//! `uverbs_abi` keeps offsets into memory that the command owns; here they become addresses, for the
//! time of the call. What the kernel answers is read back by the command itself, from that memory
//! and by lengths that it remembers, never by lengths that came back.

use std::os::fd::{FromRawFd, OwnedFd};

use uverbs_abi::ioctl::wire::RDMA_VERBS_IOCTL;
use uverbs_abi::ioctl::{Error, Method, Slot};
use uverbs_abi::types::DriverId;
use uverbs_abi::write::{WriteCall, WriteCommand};
use uverbs_abi::{Command, ioctl::Raw};

use super::errno::Errno;
use super::fd::UverbsFd;

/// How a kernel takes write commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteFraming {
    /// Inside the ioctl, by `INVOKE_WRITE`.
    Invoke,
    /// As the bytes of `write()`.
    Plain,
}

/// Runs an ioctl method.
///
/// Not repeated on `EINTR`: the kernel undid the method then, and the caller decides.
///
/// # Errors
///
/// The kernel's errno, or `EINVAL` for a command that cannot be sent ([`uverbs_abi::ioctl::Error`]).
///
/// # Safety
///
/// Values in the command that the method takes for addresses are valid for what it does with them.
pub unsafe fn execute<M: Method>(
    fd: &UverbsFd,
    driver: DriverId,
    command: &mut Command<'_, M>,
) -> Result<(), Errno> {
    let mut raw = command.prepare(driver)?;
    let frame = resolve(&mut raw);
    // SAFETY: `frame` is a header with its attributes, whose addresses `resolve` made from memory
    // of `command`, which stays borrowed until after the call (K2); other addresses are the caller's.
    unsafe { fd.ioctl(RDMA_VERBS_IOCTL, frame) }.map(drop)
}

/// Writes addresses into the attributes whose payload is outside of them, and gives the address of
/// the frame.
fn resolve(raw: &mut Raw<'_, '_>) -> *mut u8 {
    let (frame, input, output, slots) = raw.split();
    // exposed, since the kernel gets them as numbers
    let input = input.as_ptr().expose_provenance();
    let output = output.as_mut_ptr().expose_provenance();
    for (attr, slot) in frame.attrs.iter_mut().zip(slots) {
        let address = match slot {
            Slot::Inline => continue,
            Slot::Input { offset, .. } => input + *offset,
            Slot::Output { offset, .. } => output + *offset,
            Slot::ExternIn(bytes) => bytes.as_ptr().expose_provenance(),
            Slot::ExternOut(bytes) => bytes.as_mut_ptr().expose_provenance(),
        };
        attr.data = address as u64;
    }
    std::ptr::from_mut(frame).cast()
}

/// Runs a write command in the given framing.
///
/// # Errors
///
/// As for [`execute`]; `EIO` if the kernel took only a part of a plain command, which it never does.
///
/// # Safety
///
/// Values in the command that it takes for addresses, other than the response's, are valid for
/// what it does with them.
pub unsafe fn execute_write<C, const IN: usize, const OUT: usize>(
    fd: &UverbsFd,
    driver: DriverId,
    framing: WriteFraming,
    call: &mut WriteCall<C, IN, OUT>,
) -> Result<(), Errno>
where
    C: WriteCommand,
{
    match framing {
        WriteFraming::Invoke => {
            let mut command = call.invoke()?;
            // SAFETY: the caller vouches for addresses in the command.
            unsafe { execute(fd, driver, &mut command) }
        }
        WriteFraming::Plain => {
            let plain = call.plain()?;
            if let Some(at) = plain.response_at {
                let address = plain.response.as_mut_ptr().expose_provenance() as u64;
                plain.bytes[at..at + 8].copy_from_slice(&address.to_ne_bytes());
            }
            // SAFETY: the response's address is that of memory of the response's length, borrowed
            // until after the call (K2); the caller vouches for others.
            let taken = unsafe { fd.write(plain.bytes) }?;
            if taken == plain.bytes.len() {
                Ok(())
            } else {
                Err(Errno(libc::EIO))
            }
        }
    }
}

/// Takes descriptors that a command answers.
///
/// Made before the command: an answer that leaves the number out reads as 0, which must not be taken
/// for a descriptor, and closed as one, while the program has its own under that number.
#[derive(Debug)]
pub struct FdTaker {
    zero_is_open: bool,
}

impl FdTaker {
    /// Looks at descriptor 0.
    pub fn new() -> Self {
        // SAFETY: `F_GETFD` takes no argument and any number is allowed.
        let flags = unsafe { libc::fcntl(0, libc::F_GETFD) };
        Self {
            zero_is_open: flags >= 0,
        }
    }

    /// Takes ownership of the descriptor that the kernel answered; `EPROTO` if it can be none.
    pub fn take(self, fd: i32) -> Result<OwnedFd, Errno> {
        if fd < 0 || (fd == 0 && self.zero_is_open) {
            return Err(Errno(libc::EPROTO));
        }
        // SAFETY: the kernel has just made the descriptor for this call and nobody else knows it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

impl Default for FdTaker {
    fn default() -> Self {
        Self::new()
    }
}

impl From<Error> for Errno {
    /// A command that cannot be sent is `EINVAL`; an impossible answer is `EPROTO`.
    fn from(error: Error) -> Self {
        match error {
            Error::BadNumber(_) => Self(libc::EPROTO),
            _ => Self(libc::EINVAL),
        }
    }
}
