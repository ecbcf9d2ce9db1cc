//! Compressed completions, by the bytes of `struct mlx5_mini_cqe8` of Linux' `include/linux/mlx5/device.h`.
//!
//! Unproven on hardware. What a reader should make of them is in `wqe_format::mlx5`, which is not used here.

use super::cq::{CompletionQueue, Refused};
use super::cqe::{COMPRESSED, Cqe};

/// What differs from completion to completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mini(pub [u8; 8]);

impl Mini {
    fn new(first: u32, byte_count: u32) -> Self {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&first.to_be_bytes());
        bytes[4..].copy_from_slice(&byte_count.to_be_bytes());
        Self(bytes)
    }

    /// Of a receive, with the hash of its headers.
    pub fn hash(hash: u32, byte_count: u32) -> Self {
        Self::new(hash, byte_count)
    }

    /// Of a receive, with the checksum of its payload, and the stride where the format has one.
    pub fn checksum(checksum: u16, stride: u16, byte_count: u32) -> Self {
        Self::new((u32::from(checksum) << 16) | u32::from(stride), byte_count)
    }

    /// Of a send request: the counter of its first block, and its opcode.
    pub fn send(counter: u16, opcode: u8, byte_count: u32) -> Self {
        Self::new(
            (u32::from(counter) << 16) | (u32::from(opcode) << 8),
            byte_count,
        )
    }
}

/// Mini completions of an entry.
const PER_ENTRY: usize = 8;
/// The same of an entry that says of itself how many there are.
const PER_ENHANCED: usize = 7;

impl CompletionQueue {
    /// Writes a block of the basic layout: a title whose byte count is the number of completions, then the mini
    /// completions, the title's own first: eight in the next entry, further ones in every eighth. The block takes as
    /// many entries as there are completions; those between keep what was there.
    ///
    /// # Errors
    ///
    /// If there is no room for all of them, or no queue any more.
    ///
    /// # Panics
    ///
    /// If there are none, or more than entries.
    pub fn push_compressed(&self, title: &Cqe, minis: &[Mini]) -> Result<(), Refused> {
        let count = self.buffer().count;
        let n = minis.len() as u32;
        assert!(n > 0 && n <= count);
        let start = self.producer();
        self.reserve(n)?;
        for (i, entry) in minis.chunks(PER_ENTRY).enumerate() {
            let at = match i {
                0 => start.wrapping_add(1),
                i => start.wrapping_add((i * PER_ENTRY) as u32),
            };
            let bytes: Vec<u8> = entry.iter().flat_map(|mini| mini.0).collect();
            // The array of a block of one lies in the entry behind it, which is not the block's own.
            self.poke(at, &bytes);
        }
        let mut title = title.clone().with_byte_count(n);
        title.bytes[63] = (title.bytes[63] & 0xf0) | COMPRESSED;
        self.write_at(start, &title);
        self.advance(n);
        Ok(())
    }

    /// Writes an ordinary completion into a queue of the enhanced layout: the number of the turn stands in the byte
    /// before the last.
    ///
    /// # Errors
    ///
    /// If there is no room, or no queue any more.
    pub fn push_with_turn(&self, cqe: &Cqe) -> Result<(), Refused> {
        let turn = self.turn();
        self.push(&cqe.clone().with(62, &[turn]))
    }

    /// Writes a block of the enhanced layout behind an ordinary completion: up to seven mini completions and their
    /// number less one. It takes as many entries as there are completions.
    ///
    /// # Errors
    ///
    /// If there is no room for all of them, or no queue any more.
    ///
    /// # Panics
    ///
    /// If there are none, or more than seven.
    pub fn push_enhanced(&self, minis: &[Mini]) -> Result<(), Refused> {
        assert!((1..=PER_ENHANCED).contains(&minis.len()));
        let start = self.producer();
        let n = minis.len() as u32;
        self.reserve(n)?;
        let mut block = Cqe::new(n as u8 - 1).with(62, &[self.turn()]);
        for (i, mini) in minis.iter().enumerate() {
            block = block.with(i * 8, &mini.0);
        }
        block.bytes[63] |= COMPRESSED;
        self.write_at(start, &block);
        self.advance(n);
        Ok(())
    }

    fn turn(&self) -> u8 {
        let log = self.buffer().count.trailing_zeros();
        (self.producer() >> log) as u8
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::AtomicBool;

    use wqe_format::mlx5::compressed::{Block, Layout, Title};
    use wqe_format::mlx5::{Cqe64, MiniArray, MiniFormat};
    use zerocopy::FromBytes;

    use super::super::cq::Inner;
    use super::super::{Buffer, CompletionQueue, Cqe};
    use super::Mini;

    /// A queue over memory of the test's own, which outlives it.
    fn queue(memory: &mut [u64], count: u32) -> CompletionQueue {
        let address = memory.as_mut_ptr().expose_provenance() as u64;
        CompletionQueue {
            cqn: 1,
            user_handle: 0,
            // Behind the entries: the consumer's counter, 0.
            dbrec: address + u64::from(count) * 64,
            uar: None,
            compression: Some(1),
            ignores_overrun: true,
            is_alive: AtomicBool::new(true),
            inner: Mutex::new(Inner {
                buffer: Buffer {
                    address,
                    count,
                    entry: 64,
                },
                producer: 0,
                spent_arm: 0,
                spent_bell: [0; 8],
                last_solicited: 0,
                is_broken: false,
            }),
        }
    }

    /// What this side writes, the reader of `wqe-format` reads: blocks of every length, over the end of the ring.
    #[test]
    fn blocks_are_read_back() {
        let mut memory = vec![0_u64; 16 * 8 + 1];
        let cq = queue(&mut memory, 16);
        let mut start = 0;
        for n in 1..=16_u32 {
            let minis: Vec<Mini> = (0..n).map(|i| Mini::hash(i * 3, 100 + i)).collect();
            let title = Cqe::new(super::super::cqe::opcode::RESP_SEND).with_counter(7);
            cq.push_compressed(&title, &minis).expect("room");
            let entry = |index| cq.peek(index);
            let cqe = Cqe64::read_from_bytes(&entry(start)).expect("64 bytes");
            let block = Block::basic(&cqe, start, 4, MiniFormat::HASH).expect("a block");
            assert_eq!(block.count(), n);
            let read = |index| MiniArray::read_from_bytes(&entry(index)).expect("64 bytes");
            let got: Vec<(u32, u32)> = block
                .expand(read)
                .map(|cqe| (cqe.rx_hash_result.get(), cqe.byte_cnt.get()))
                .collect();
            let expected: Vec<(u32, u32)> = (0..n).map(|i| (i * 3, 100 + i)).collect();
            assert_eq!(got, expected, "{n}");
            start += n;
            assert_eq!(cq.producer(), start);
        }
    }

    /// The same of the enhanced layout.
    #[test]
    fn enhanced_blocks_are_read_back() {
        let mut memory = vec![0_u64; 16 * 8 + 1];
        let cq = queue(&mut memory, 16);
        for n in 1..=7_u32 {
            let title = Cqe::new(super::super::cqe::opcode::RESP_SEND).with_byte_count(5);
            cq.push_with_turn(&title).expect("room");
            let at = cq.producer();
            let title = Cqe64::read_from_bytes(&cq.peek(at - 1)).expect("64 bytes");
            assert_eq!(u32::from(title.signature), (at - 1) >> 4);
            let minis: Vec<Mini> = (0..n).map(|i| Mini::checksum(9, 0, 200 + i)).collect();
            cq.push_enhanced(&minis).expect("room");
            let entry = cq.peek(at);
            let cqe = Cqe64::read_from_bytes(&entry).expect("64 bytes");
            let title = Title::new(&title, Layout::Enhanced, MiniFormat::CSUM).ok();
            let block = Block::enhanced(title, cqe.op_own, at, 4).expect("a block");
            let array = MiniArray::read_from_bytes(&entry).expect("64 bytes");
            let got: Vec<u32> = block
                .expand(|_| array)
                .map(|cqe| cqe.byte_cnt.get())
                .collect();
            assert_eq!(got, (0..n).map(|i| 200 + i).collect::<Vec<_>>());
        }
    }
}
