//! A recording of uverbs calls, as `record.c` writes it, turned into text.

use std::collections::BTreeMap;

use uverbs_abi::RequestView;
use uverbs_abi::trace::{self, Memory, Show};
use uverbs_abi::write::frame::PlainView;

/// The memory of the recorded program, as far as it was recorded.
#[derive(Debug, Default)]
struct Recorded(BTreeMap<u64, Vec<u8>>);

impl Memory for Recorded {
    fn with(&self, address: u64, len: usize, f: &mut dyn FnMut(Option<&[u8]>)) {
        f(self.0.get(&address).and_then(|bytes| bytes.get(..len)));
    }
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    (0..hex.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok())
        .collect()
}

/// What has been read so far. An ioctl is complete only when its memory has been read.
struct Description {
    text: String,
    show: Show,
    pending: Option<Vec<u8>>,
    memory: Recorded,
}

impl Description {
    fn finish_ioctl(&mut self) -> Result<(), String> {
        if let Some(frame) = self.pending.take() {
            let view = RequestView::parse(&frame).map_err(|e| e.to_string())?;
            trace::ioctl(&mut self.text, &view, &self.memory, self.show)
                .map_err(|e| e.to_string())?;
        }
        self.memory = Recorded::default();
        Ok(())
    }

    fn read_line(&mut self, line: &str) -> Result<(), String> {
        let bad = || format!("not a line of a recording: {line}");
        let mut words = line.split(' ');
        match (words.next(), words.next(), words.next()) {
            (Some("I"), Some(frame), None) => {
                self.finish_ioctl()?;
                self.pending = Some(bytes(frame).ok_or_else(bad)?);
            }
            (Some("M"), Some(address), Some(value)) => {
                let address = u64::from_str_radix(address, 16).map_err(|_| bad())?;
                self.memory.0.insert(address, bytes(value).ok_or_else(bad)?);
            }
            (Some("W"), Some(command), None) => {
                self.finish_ioctl()?;
                let command = bytes(command).ok_or_else(bad)?;
                let view =
                    PlainView::parse(&command).ok_or("a write() whose lengths do not agree")?;
                trace::plain(&mut self.text, &view, self.show).map_err(|e| e.to_string())?;
            }
            _ => return Err(bad()),
        }
        Ok(())
    }
}

/// The text of a recording.
pub(crate) fn describe(recording: &str, show: Show) -> Result<String, String> {
    let mut description = Description {
        text: String::new(),
        show,
        pending: None,
        memory: Recorded::default(),
    };
    for line in recording.lines() {
        description.read_line(line)?;
    }
    description.finish_ioctl()?;
    Ok(description.text)
}
