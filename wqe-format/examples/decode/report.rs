//! Says what the bytes of a dump are.

use std::fmt::Write as _;

use wqe_format::mlx5::compressed::{Block, Title};
use wqe_format::mlx5::request::{SendRequest, Service, scatter_list};
use wqe_format::mlx5::{Cqe64, CqeFormat, CqeOpcode, DS_UNIT, MiniArray, MiniFormat, Opcode};
use wqe_format::mlx5::{SrqNextSegment, compressed};
use zerocopy::FromBytes;

use crate::dump::{Record, Words, records};

/// What a dump holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    /// Guess from the bytes and from the line in front of them
    #[default]
    Auto,
    /// Completions of 64 bytes
    Cqe,
    /// Completions of 128 bytes
    Cqe128,
    /// Send requests
    Wqe,
    /// A receive request: a scatter list
    Recv,
    /// A receive request of a shared queue
    Srq,
}

/// What the queue of a send request is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Queue {
    /// Guess from the bytes
    #[default]
    Auto,
    /// RC or UC
    Rc,
    /// UD or DC
    Ud,
    /// XRC
    Xrc,
    /// Raw Ethernet
    Raw,
}

/// What mini entries of compressed receives hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Mini {
    /// Hash of the headers
    #[default]
    Hash,
    /// Checksum
    Csum,
    /// Checksum and stride
    CsumStride,
    /// Flow tag and stride
    FlowTagStride,
    /// Header types and stride
    L34Stride,
}

/// How completions are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Compression {
    /// A title and arrays behind it
    #[default]
    Basic,
    /// Arrays behind an ordinary completion
    Enhanced,
}

/// What the reader of the dump knows about it.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct Options {
    /// What the dump holds
    #[arg(long = "as", value_enum, default_value_t, value_name = "KIND")]
    pub(crate) kind: Kind,
    /// The queue that send requests are of
    #[arg(long, value_enum, default_value_t, value_name = "QUEUE")]
    pub(crate) queue: Queue,
    /// How words are printed
    #[arg(long, value_enum, default_value_t, value_name = "ORDER")]
    pub(crate) words: Words,
    /// How completions are compressed
    #[arg(long, value_enum, default_value_t, value_name = "LAYOUT")]
    pub(crate) compression: Compression,
    /// What mini entries of compressed receives hold
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) mini: Mini,
}

/// Everything in `text`, in words; `name` is where it comes from.
///
/// # Errors
///
/// There is no dump in it, or one that cannot be read.
pub(crate) fn report(name: &str, text: &str, options: Options) -> Result<String, String> {
    let records = records(text, options.words).map_err(|e| format!("{name}: {e}"))?;
    if records.is_empty() {
        return Err(format!(
            "{name}: no hex dump in it; rows like \"00000000 93005204 0a0019a1 c0921cd2\" or \
             \"00000000: 00 00 93 00 …\" are understood"
        ));
    }
    let mut out = String::new();
    for record in &records {
        one(&mut out, name, record, options);
    }
    Ok(out)
}

fn one(out: &mut String, name: &str, record: &Record, options: Options) {
    let bytes = &record.bytes;
    let kind = match options.kind {
        Kind::Auto => guess(record),
        kind => kind,
    };
    let what = match kind {
        Kind::Cqe | Kind::Cqe128 => "completions",
        Kind::Wqe => "send requests",
        Kind::Recv => "receive request",
        Kind::Srq => "receive request of a shared queue",
        Kind::Auto => "not a completion nor a request that is known",
    };
    line(
        out,
        0,
        format_args!("{name}:{}: {} bytes, {what}", record.line, bytes.len()),
    );
    match kind {
        Kind::Cqe => completions(out, bytes.chunks(64), options),
        Kind::Cqe128 => {
            let halves = bytes
                .chunks(128)
                .map(|entry| entry.get(64..).unwrap_or(&[]));
            completions(out, halves, options);
        }
        Kind::Wqe => requests(out, bytes, options.queue),
        Kind::Recv => scatter(out, bytes),
        Kind::Srq => match SrqNextSegment::read_from_prefix(bytes) {
            Ok((link, list)) => {
                line(
                    out,
                    1,
                    format_args!("next slot {:#x}", link.next_wqe_index.get()),
                );
                scatter(out, list);
            }
            Err(_) => line(
                out,
                1,
                format_args!("cut short: a slot has 16 bytes and more"),
            ),
        },
        Kind::Auto => line(
            out,
            1,
            format_args!("say what it is with --as, or how its words are printed with --words"),
        ),
    }
}

fn line(out: &mut String, depth: usize, text: std::fmt::Arguments<'_>) {
    let _ = writeln!(out, "{:1$}{text}", "", depth * 2);
}

/// Kind of a dump: what the line in front says, else what the bytes look like.
fn guess(record: &Record) -> Kind {
    let context = record.context.to_ascii_lowercase();
    let bytes = &record.bytes;
    if context.contains("wqe") && looks_like_request(bytes) {
        return Kind::Wqe;
    }
    if bytes.len().is_multiple_of(64) && (context.contains("cqe") || context.contains("completion"))
    {
        return Kind::Cqe;
    }
    if looks_like_request(bytes) {
        return Kind::Wqe;
    }
    let fresh_or_used = |entry: &[u8]| {
        Cqe64::read_from_bytes(entry)
            .is_ok_and(|cqe| cqe.opcode().name().is_some() || cqe.format() == CqeFormat::COMPRESSED)
    };
    if bytes.len().is_multiple_of(64) && bytes.chunks(64).all(fresh_or_used) {
        return Kind::Cqe;
    }
    Kind::Auto
}

fn looks_like_request(bytes: &[u8]) -> bool {
    SendRequest::new(bytes).is_some_and(|request| {
        let ctrl = request.ctrl();
        let known = ctrl.opcode().name().is_some();
        // The byte of flags has reserved bits, and nobody but a DCI has a stream.
        let plain = ctrl.fm_ce_se.0 & 0x11 == 0 && ctrl.opmod() < 0x20;
        let nop = ctrl.opcode() == Opcode::NOP;
        known && plain && ctrl.qpn() != 0 && (!nop || ctrl.ds() == 1)
    })
}

fn completions<'a>(out: &mut String, entries: impl Iterator<Item = &'a [u8]>, options: Options) {
    let entries: Vec<&[u8]> = entries.collect();
    let mut title = None;
    let mut i = 0;
    while let Some(entry) = entries.get(i) {
        let Ok(cqe) = Cqe64::read_from_bytes(entry) else {
            line(
                out,
                1,
                format_args!("[{i}] cut short: {} of 64 bytes", entry.len()),
            );
            return;
        };
        if cqe.format() == CqeFormat::COMPRESSED {
            i += compressed(out, &entries, i, &cqe, title, options);
            continue;
        }
        line(out, 1, format_args!("[{i}] {cqe}"));
        if let Some(error) = cqe.error() {
            let cause = error.likely_cause();
            line(out, 2, format_args!("meaning: {}", cause.meaning));
            line(out, 2, format_args!("look at: {}", cause.look_at));
            if let Some(vendor) = cause.vendor {
                line(out, 2, format_args!("vendor byte: {vendor}"));
            }
        }
        if cqe.opcode() != CqeOpcode::INVALID {
            title = Some(cqe);
        }
        i += 1;
    }
}

/// A compressed block that starts with entry `i`; returns how many entries it takes.
fn compressed(
    out: &mut String,
    entries: &[&[u8]],
    i: usize,
    cqe: &Cqe64,
    title: Option<Cqe64>,
    options: Options,
) -> usize {
    let format = match options.mini {
        Mini::Hash => MiniFormat::HASH,
        Mini::Csum => MiniFormat::CSUM,
        Mini::CsumStride => MiniFormat::CSUM_STRIDX,
        Mini::FlowTagStride => MiniFormat::FTAG_STRIDX,
        Mini::L34Stride => MiniFormat::L34H_STRIDX,
    };
    // The ring's size is not known: any that holds the dump does.
    let (index, log_size) = (i as u32, 24);
    let block = match options.compression {
        Compression::Basic => Block::basic(cqe, index, log_size, format),
        Compression::Enhanced => {
            let title = title
                .and_then(|title| Title::new(&title, compressed::Layout::Enhanced, format).ok());
            Block::enhanced(title, cqe.op_own, index, log_size)
        }
    };
    let mut block = match block {
        Ok(block) => block,
        Err(error) => {
            line(out, 1, format_args!("[{i}] {error}"));
            return 1;
        }
    };
    line(
        out,
        1,
        format_args!("[{i}] compressed block of {} completions", block.count()),
    );
    while let Some(at) = block.array_index() {
        let array = entries
            .get(at as usize)
            .and_then(|entry| MiniArray::read_from_bytes(entry).ok());
        let Some(array) = array else {
            line(
                out,
                2,
                format_args!("the dump ends before the other {}", block.remaining()),
            );
            return entries.len() - i;
        };
        let at = block.consumer_index();
        if let Some(cqe) = block.next(&array) {
            line(out, 2, format_args!("[{at}] {cqe}"));
        }
    }
    block.count() as usize
}

fn requests(out: &mut String, bytes: &[u8], queue: Queue) {
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let Some(request) = SendRequest::new(rest) else {
            if rest.iter().all(|byte| *byte == 0) {
                line(out, 1, format_args!("{at:#06x}: {} bytes of 0", rest.len()));
                return;
            }
            line(
                out,
                1,
                format_args!("{at:#06x}: no request: its length is 0 or it is cut short"),
            );
            return;
        };
        line(out, 1, format_args!("{at:#06x}: {}", request.ctrl()));
        let service = match queue {
            Queue::Auto => Service::guess(rest),
            Queue::Rc => Service::Connected,
            Queue::Ud => Service::Datagram,
            Queue::Xrc => Service::Xrc,
            Queue::Raw => Service::RawEthernet,
        };
        for segment in request.segments(service) {
            line(out, 2, format_args!("{segment}"));
        }
        if request.is_truncated() {
            let has = request.body().len() + DS_UNIT;
            line(
                out,
                2,
                format_args!("cut short: {has} of {} bytes", request.len()),
            );
        }
        at += request.ring_len();
    }
}

fn scatter(out: &mut String, bytes: &[u8]) {
    let mut total = 0u64;
    let mut n = 0;
    for segment in scatter_list(bytes) {
        line(out, 2, format_args!("{segment}"));
        total += u64::from(segment.byte_count.get());
        n += 1;
    }
    line(out, 1, format_args!("{n} buffers, {total} bytes"));
}
