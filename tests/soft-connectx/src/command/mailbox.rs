//! Command entries and mailboxes: how input comes and output goes.
//!
//! `mlx5_ifc_cmd_queue_entry_bits` of `mlx5_ifc.h`; `struct mlx5_cmd_layout` and
//! `struct mlx5_cmd_prot_block` of the kernel's `device.h`.

use wqe_format::mlx5::firmware::{Delivery, Opcode};

use crate::host::GuestMemory;

/// Bytes of an entry of the queue.
pub(crate) const ENTRY_LEN: usize = 64;
/// Bytes of a mailbox.
const BLOCK_LEN: usize = 576;
/// Bytes of data in a mailbox.
const BLOCK_DATA: usize = 512;
/// Bytes of input and of output in the entry itself.
const INLINE: usize = 16;
/// `MLX5_PCI_CMD_XPORT`.
const TRANSPORT: u8 = 7;
/// Longest input and output: a memory key lists its pages in the command that makes it, 8 bytes each, where the kernel's
/// driver has no UMR for so many; this is 16 GiB in pages of 4 KiB. A bound keeps a chain that never ends from taking all
/// memory.
const LONGEST: usize = 1 << 25;

/// An entry that the device owns.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) bytes: [u8; ENTRY_LEN],
}

impl Entry {
    fn dword(&self, at: usize) -> u32 {
        let b = &self.bytes[at..at + 4];
        u32::from_be_bytes([b[0], b[1], b[2], b[3]])
    }

    fn pointer(&self, at: usize) -> u64 {
        u64::from(self.dword(at)) << 32 | u64::from(self.dword(at + 4))
    }

    /// What is asked for, before the input is gathered.
    pub(crate) fn opcode(&self) -> Opcode {
        Opcode(u16::from_be_bytes([
            self.bytes[INLINE],
            self.bytes[INLINE + 1],
        ]))
    }

    pub(crate) fn owned_by_device(&self) -> bool {
        self.bytes[63] & 1 != 0
    }

    pub(crate) fn token(&self) -> u8 {
        self.bytes[60]
    }

    pub(crate) fn input_len(&self) -> usize {
        self.dword(4) as usize
    }

    pub(crate) fn output_len(&self) -> usize {
        self.dword(56) as usize
    }

    /// The input, gathered from entry and mailboxes.
    pub(crate) fn input(
        &self,
        memory: &dyn GuestMemory,
        signed: bool,
    ) -> Result<Vec<u8>, Delivery> {
        if self.bytes[0] != TRANSPORT {
            return Err(Delivery::CMD_DESCR_ERR);
        }
        if signed && xor(&self.bytes) != 0xff {
            return Err(Delivery::SIGNAT_ERR);
        }
        let len = self.input_len();
        if !(8..=LONGEST).contains(&len) {
            return Err(Delivery::IN_LENGTH_ERR);
        }
        let mut input = self.bytes[16..16 + len.min(INLINE)].to_vec();
        let mut chain = Chain::new(self.pointer(8), self.token(), Delivery::IN_PTR_ALIGN_ERR);
        while input.len() < len {
            let (_, block) = chain.next(memory)?;
            if signed && xor(&block) != 0xff {
                return Err(Delivery::SIGNAT_ERR);
            }
            let part = (len - input.len()).min(BLOCK_DATA);
            input.extend_from_slice(&block[..part]);
        }
        Ok(input)
    }

    /// Scatters the output over entry and mailboxes, and leaves the entry in memory but for the
    /// byte that gives it back.
    pub(crate) fn output(
        &mut self,
        memory: &dyn GuestMemory,
        at: u64,
        output: &[u8],
        signed: bool,
    ) -> Result<(), Delivery> {
        let len = output.len().min(self.output_len());
        let inline = len.min(INLINE);
        self.bytes[32..32 + inline].copy_from_slice(&output[..inline]);
        let mut chain = Chain::new(self.pointer(48), self.token(), Delivery::OUT_PTR_ALIGN_ERR);
        for part in output[inline..len].chunks(BLOCK_DATA) {
            let (address, mut block) = chain.next(memory)?;
            block[..part.len()].copy_from_slice(part);
            memory.write(address, part).map_err(|_| Delivery::FW_ERR)?;
            if signed {
                let signatures = sign(&mut block);
                memory
                    .write(address + 0x23e, &signatures)
                    .map_err(|_| Delivery::FW_ERR)?;
            }
        }
        memory
            .write(at + 32, &self.bytes[32..48])
            .map_err(|_| Delivery::FW_ERR)
    }

    /// Gives the entry back: its last byte is written last.
    pub(crate) fn give_back(
        &mut self,
        memory: &dyn GuestMemory,
        at: u64,
        delivery: Delivery,
        signed: bool,
    ) {
        self.bytes[63] = delivery.0 << 1;
        if signed {
            self.bytes[61] = 0;
            self.bytes[61] = !xor(&self.bytes);
        }
        // Where the queue is not mapped any more nobody waits for an answer.
        let _ = memory.write(at + 61, &self.bytes[61..62]);
        let _ = memory.write(at + 63, &self.bytes[63..64]);
    }
}

/// A chain of mailboxes.
struct Chain {
    next: u64,
    token: u8,
    number: u32,
    misaligned: Delivery,
}

impl Chain {
    fn new(first: u64, token: u8, misaligned: Delivery) -> Chain {
        Chain {
            next: first,
            token,
            number: 0,
            misaligned,
        }
    }

    fn next(&mut self, memory: &dyn GuestMemory) -> Result<(u64, [u8; BLOCK_LEN]), Delivery> {
        let address = self.next;
        // Bits 8 to 0 of a pointer don't exist; the driver aligns blocks to 1024 bytes.
        if address == 0 || address & 0x1ff != 0 {
            return Err(self.misaligned);
        }
        let mut block = [0; BLOCK_LEN];
        memory
            .read(address, &mut block)
            .map_err(|_| Delivery::FW_ERR)?;
        let field = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|byte| block[at + byte]));
        if block[0x23d] != self.token {
            return Err(Delivery::TOK_ERR);
        }
        if field(0x238) != self.number {
            return Err(Delivery::BAD_BLK_NUM_ERR);
        }
        self.next = u64::from(field(0x230)) << 32 | u64::from(field(0x234));
        self.number += 1;
        Ok((address, block))
    }
}

fn xor(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, byte| sum ^ byte)
}

/// The control and the whole signature of a block (`calc_block_sig` covers the last 64 bytes but
/// two in the first, everything in the second).
fn sign(block: &mut [u8; BLOCK_LEN]) -> [u8; 2] {
    block[0x23e] = 0;
    block[0x23f] = 0;
    block[0x23e] = !xor(&block[0x200..0x23e]);
    block[0x23f] = !xor(&block[..0x23f]);
    [block[0x23e], block[0x23f]]
}
