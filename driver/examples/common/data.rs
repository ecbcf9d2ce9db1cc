//! What goes over the wire, and whether it came.

use std::error::Error;

use oxverbs::{AccessFlags, MemoryRegion, ProtectionDomain};

/// What the C programs fill their buffers with.
const C_FILL: [u8; 2] = [0x7b, 0];
const PAGE: usize = 4096;

/// The client sends from `out` and receives the echo into `inp`, so that an echo that never came shows. The server
/// has one buffer for both, like the C programs.
#[derive(Debug)]
pub(crate) struct Buffers {
    pub(crate) out: MemoryRegion,
    inp: Option<MemoryRegion>,
    /// Bytes before the payload of what is received: a datagram's global route header.
    header: usize,
    size: usize,
}

impl Buffers {
    /// Buffers for messages of `size` bytes.
    pub(crate) fn new(
        pd: &ProtectionDomain,
        size: usize,
        header: usize,
        client: bool,
        access: AccessFlags,
    ) -> oxverbs::Result<Self> {
        let access = access | AccessFlags::LOCAL_WRITE;
        let out = pd.allocate(header + size, access)?;
        let inp = client
            .then(|| pd.allocate(header + size, access))
            .transpose()?;
        if client {
            out.copy_in(header, &pattern(size));
        }
        Ok(Self {
            out,
            inp,
            header,
            size,
        })
    }

    /// Where messages are received.
    pub(crate) fn inp(&self) -> &MemoryRegion {
        self.inp.as_ref().unwrap_or(&self.out)
    }

    /// Checks what was received last. Every byte is known: what a client of ours sends, or what a C one sends.
    pub(crate) fn check(&self) -> Result<(), Box<dyn Error>> {
        let came = self.inp().to_vec(self.header..self.header + self.size);
        let expected = pattern(self.size);
        let (right, from) = if self.inp.is_some() {
            (came == expected, "the echo of what we sent")
        } else {
            (
                came == expected || is_of_c(&came),
                "what a pingpong client sends",
            )
        };
        if right {
            return Ok(());
        }
        let at = came
            .iter()
            .zip(&expected)
            .position(|(a, b)| a != b)
            .unwrap_or(0);
        Err(format!(
            "invalid data in page {}: byte {at} is not {from}",
            at / PAGE
        )
        .into())
    }
}

/// The first byte of each page is 0, which is what the C programs check; the others depend on their place.
fn pattern(size: usize) -> Vec<u8> {
    let byte = |at: usize| {
        if at.is_multiple_of(PAGE) {
            0
        } else {
            (at ^ at >> 8 ^ at >> 16) as u8 | 1
        }
    };
    (0..size).map(byte).collect()
}

/// A C client's message: one value throughout, with 0 at the start of each page if it was told to check.
fn is_of_c(came: &[u8]) -> bool {
    C_FILL.iter().any(|&fill| {
        came.iter()
            .enumerate()
            .all(|(at, &byte)| byte == fill || at % PAGE == 0 && byte == 0)
    })
}
