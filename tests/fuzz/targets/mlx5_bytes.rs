//! Any bytes read as mlx5's requests and completions: nothing panics, and every reader ends.

#![no_main]

use libfuzzer_sys::fuzz_target;
use wqe_format::mlx5::compressed::{Block, Layout};
use wqe_format::mlx5::request::{SendRequest, Service, scatter_list};
use wqe_format::mlx5::{Cqe64, ErrorCqe, MiniArray, MiniFormat};
use zerocopy::FromBytes;

/// Log of the entries of the ring that blocks lie in.
const LOG_SIZE: u32 = 4;

fn request(bytes: &[u8]) {
    let Some(request) = SendRequest::new(bytes) else {
        return;
    };
    for service in [
        Service::guess(bytes),
        Service::Connected,
        Service::Datagram,
        Service::Xrc,
        Service::RawEthernet,
    ] {
        // A request has at most 63 units of 16 bytes; what is not understood is one segment.
        let mut segments = 0;
        for segment in request.segments(service) {
            assert!(!segment.to_string().is_empty());
            segments += 1;
        }
        assert!(segments <= 64);
    }
}

/// A ring whose entries are the input, over and over.
fn read(bytes: &[u8], index: u32) -> MiniArray {
    let mut entry = [0; 64];
    let start = (index % (1 << LOG_SIZE)) as usize * 64;
    for (i, byte) in entry.iter_mut().enumerate() {
        *byte = bytes[(start + i) % bytes.len()];
    }
    MiniArray::read_from_bytes(&entry).expect("64 bytes")
}

fn block(bytes: &[u8], cqe: &Cqe64) {
    let start = cqe.byte_cnt.get();
    for format in [MiniFormat::HASH, MiniFormat::CSUM, MiniFormat(bytes[0])] {
        let mut last = None;
        if let Ok(block) = Block::basic(cqe, start, LOG_SIZE, format) {
            let count = block.count() as usize;
            assert!(count <= 1 << LOG_SIZE);
            assert_eq!(block.expand(|index| read(bytes, index)).count(), count);
            last = Some(block.title());
        }
        if let Ok(block) = Block::enhanced(last, cqe.op_own, start, LOG_SIZE) {
            let expanded = block.expand(|index| read(bytes, index));
            assert!(expanded.count() <= Block::ENHANCED_MAX as usize);
        }
    }
    for layout in [Layout::Basic, Layout::Enhanced] {
        let _ = wqe_format::mlx5::compressed::Title::new(cqe, layout, MiniFormat(bytes[0]));
    }
}

fuzz_target!(|bytes: &[u8]| {
    request(bytes);
    assert!(scatter_list(bytes).count() <= bytes.len() / 16);
    if let Ok((cqe, _)) = Cqe64::read_from_prefix(bytes) {
        assert!(!cqe.to_string().is_empty());
        block(bytes, &cqe);
    }
    if let Ok((error, _)) = ErrorCqe::read_from_prefix(bytes) {
        let _ = error.syndrome;
        let _ = format!("{error} {:?}", error.likely_cause());
    }
});
