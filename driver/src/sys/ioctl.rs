//! A command of [`uverbs_abi`] handed to the kernel.
//!
//! `uverbs_abi` keeps offsets into memory that the command owns; here they become addresses, for the
//! time of the call. What the kernel answers is read back by the command itself, from that memory
//! and by lengths that it remembers, never by lengths that came back.

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

impl From<Error> for Errno {
    /// A command that cannot be sent is `EINVAL`; an impossible answer is `EPROTO`.
    fn from(error: Error) -> Self {
        match error {
            Error::BadNumber(_) => Self(libc::EPROTO),
            _ => Self(libc::EINVAL),
        }
    }
}
