//! Finds hex dumps in text.
//!
//! Understood are, with whatever stands in front of them (time stamps, names, offsets):
//!
//! * rows of 32-bit words as libmlx5 writes them to its debug file and older kernels to their log;
//! * rows of bytes with an offset as the kernel's `print_hex_dump`, `xxd` and `hexdump -C` make them, squeezed lines (`*`)
//!   included;
//! * words of 2, 4 or 8 bytes with or without `0x`, and rows without blanks (`xxd -p`).

use std::fmt;

/// The most that one squeezed dump may stand for.
const MAX_BYTES: u64 = 16 << 20;

/// Bytes that stood together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    /// Number of the first line, from 1.
    pub(crate) line: usize,
    /// The last other line in front of it.
    pub(crate) context: String,
    /// The bytes, in the order in which they were printed.
    pub(crate) bytes: Vec<u8>,
}

/// A dump that cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BadDump {
    line: usize,
    what: String,
}

impl fmt::Display for BadDump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl std::error::Error for BadDump {}

/// How words were printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Words {
    /// As they stand in memory, or as big-endian numbers: the same for what the device reads and writes
    #[default]
    Memory,
    /// As 16-bit numbers of a little-endian machine (`hexdump`, `od -x`)
    Le16,
    /// As 32-bit numbers of a little-endian machine (`od -tx4`, gdb's `x/16xw`)
    Le32,
    /// As 64-bit numbers of a little-endian machine (gdb's `x/8xg`)
    Le64,
}

impl Words {
    fn reorder(self, bytes: &mut [u8]) {
        let size = match self {
            Self::Memory => return,
            Self::Le16 => 2,
            Self::Le32 => 4,
            Self::Le64 => 8,
        };
        for word in bytes.chunks_mut(size) {
            word.reverse();
        }
    }
}

/// The dumps in `text`, in order.
pub(crate) fn records(text: &str, words: Words) -> Result<Vec<Record>, BadDump> {
    let mut finder = Finder::default();
    for (number, line) in text.lines().enumerate() {
        finder.line(number + 1, line)?;
    }
    finder.end();
    for record in &mut finder.records {
        words.reorder(&mut record.bytes);
    }
    Ok(finder.records)
}

#[derive(Default)]
struct Finder {
    records: Vec<Record>,
    current: Record,
    /// Offset of the first row, where rows have offsets.
    base: Option<u64>,
    /// Rows were left out after the last one.
    squeezed: bool,
    context: String,
}

impl Finder {
    fn line(&mut self, number: usize, line: &str) -> Result<(), BadDump> {
        let trimmed = line.trim();
        if trimmed == "*" && !self.current.bytes.is_empty() {
            self.squeezed = true;
            return Ok(());
        }
        let Some(row) = row(line) else {
            // A squeezed dump ends with the bare offset of its end.
            if self.squeezed
                && let Ok(end) = u64::from_str_radix(trimmed.trim_end_matches(':'), 16)
            {
                self.fill(number, end)?;
            }
            self.end();
            if !trimmed.is_empty() {
                self.context = trimmed.to_owned();
            }
            return Ok(());
        };
        match row.offset {
            Some(offset) if self.squeezed => self.fill(number, offset)?,
            // Another dump begins: its offset does not go on.
            Some(offset) if self.next_offset() != Some(offset) => self.end(),
            None if self.base.is_some() => self.end(),
            _ => {}
        }
        if self.current.bytes.is_empty() {
            self.current.line = number;
            self.current.context.clone_from(&self.context);
            self.base = row.offset;
        }
        self.current.bytes.extend_from_slice(&row.bytes);
        Ok(())
    }

    fn next_offset(&self) -> Option<u64> {
        self.base.map(|base| base + self.current.bytes.len() as u64)
    }

    /// Repeats the last 16 bytes up to `offset`.
    fn fill(&mut self, line: usize, offset: u64) -> Result<(), BadDump> {
        self.squeezed = false;
        let bad = |what: &str| BadDump {
            line,
            what: what.to_owned(),
        };
        let next = self
            .next_offset()
            .ok_or_else(|| bad("rows are left out of a dump that has no offsets"))?;
        let missing = offset
            .checked_sub(next)
            .filter(|missing| *missing <= MAX_BYTES)
            .ok_or_else(|| bad("the rows that were left out do not fit the offsets"))?;
        let length = self.current.bytes.len();
        let last = self.current.bytes[length.saturating_sub(16)..].to_vec();
        let fill = last.iter().cycle().take(missing as usize).copied();
        self.current.bytes.extend(fill);
        Ok(())
    }

    fn end(&mut self) {
        self.base = None;
        self.squeezed = false;
        if !self.current.bytes.is_empty() {
            self.records.push(std::mem::take(&mut self.current));
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Row {
    offset: Option<u64>,
    bytes: Vec<u8>,
}

/// The hex words of a line, if it is a row of a dump.
fn row(line: &str) -> Option<Row> {
    // `hexdump -C` prints the text between bars.
    let line = line.split('|').next().unwrap_or_default();
    let tokens = tokens(line);
    let mut best: Option<(usize, Vec<u8>)> = None;
    let mut start = 0;
    while start < tokens.len() {
        let run = run(&tokens[start..]);
        let bytes: Vec<u8> = run.iter().flat_map(|token| bytes(token.text)).collect();
        let enough = match offset(&tokens, start) {
            Some(_) => 1,
            None => 8,
        };
        if bytes.len() >= enough && best.as_ref().is_none_or(|(_, b)| bytes.len() > b.len()) {
            best = Some((start, bytes));
        }
        start += run.len().max(1);
    }
    let (start, bytes) = best?;
    Some(Row {
        offset: offset(&tokens, start),
        bytes,
    })
}

struct Token<'a> {
    text: &'a str,
    /// Blanks in front of it.
    gap: usize,
}

fn tokens(line: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut gap = 0;
    for piece in line.split([' ', '\t']) {
        if piece.is_empty() {
            gap += 1;
            continue;
        }
        tokens.push(Token {
            text: piece,
            gap: gap + 1,
        });
        gap = 0;
    }
    tokens
}

fn digits(text: &str) -> Option<&str> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let all = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    all.then_some(digits)
}

/// Words of one width from the start of `tokens`.
fn run<'a, 'b>(tokens: &'b [Token<'a>]) -> &'b [Token<'a>] {
    let Some(width) = tokens.first().and_then(|token| digits(token.text)) else {
        return &[];
    };
    let width = width.len();
    if width > 16 && width.is_multiple_of(2) {
        // `xxd -p`: the whole row is one word.
        return &tokens[..1];
    }
    if ![2, 4, 8, 16].contains(&width) {
        return &[];
    }
    let mut n = 1;
    while let Some(token) = tokens.get(n) {
        // A wider gap is in the middle of a row of 16 bytes, or in front of the row's text.
        let middle = width == 2 && n == 8;
        let same = digits(token.text).is_some_and(|digits| digits.len() == width);
        if !same || n * width >= 64 || token.gap > 1 && !middle {
            break;
        }
        n += 1;
    }
    &tokens[..n]
}

/// The offset in front of the words that start at `start`.
fn offset(tokens: &[Token<'_>], start: usize) -> Option<u64> {
    let before = tokens.get(start.checked_sub(1)?)?;
    let text = match before.text.strip_suffix(':') {
        Some(text) => text,
        // No colon: two blanks behind it (`hexdump -C`), or a width that no word has (`hexdump`, `od`).
        None if tokens.get(start)?.gap == 2 || ![8, 16].contains(&before.text.len()) => before.text,
        None => return None,
    };
    let text = digits(text).filter(|text| text.len() > 4 || before.text.ends_with(':'))?;
    u64::from_str_radix(text, 16).ok()
}

fn bytes(word: &str) -> Vec<u8> {
    let digits = digits(word).unwrap_or_default();
    (0..digits.len())
        .step_by(2)
        .filter_map(|i| u8::from_str_radix(digits.get(i..i + 2)?, 16).ok())
        .collect()
}
