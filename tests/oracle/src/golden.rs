//! The golden corpus: runs recorded from libmlx5, so that the encoders are proved where no libmlx5 is.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use crate::c::device::QpSpec;
use crate::call::{Arena, Outcome};
use crate::campaign::POISONS;
use crate::compare::{Findings, Two, compare};
use crate::native::NativeSubject;
use crate::pass::{self, Left, Pass, Posted, Tracing};
use crate::script::{Script, Step};
use crate::subject::{Completion, Polling, Subject as _};

/// A recorded run: the first line of a file. The others are [`Recorded`], one a step.
#[derive(Debug, Serialize, Deserialize)]
struct Header {
    /// File name of the library.
    libmlx5: String,
    /// Of the arena.
    seed: u64,
    /// The queue pair.
    spec: QpSpec,
    /// Blocks of its ring.
    ring: u32,
}

/// A step and what libmlx5 left.
#[derive(Debug, Serialize, Deserialize)]
struct Recorded {
    step: Step,
    left: Kept,
}

/// Bytes as hexadecimal digits; `..` where libmlx5 wrote nothing.
#[derive(Debug, Serialize, Deserialize)]
enum Kept {
    Posted {
        outcome: Outcome,
        bytes: String,
        record: [u32; 2],
        /// Which half, and its bytes as far as there are any.
        register: Option<(usize, String)>,
    },
    Completed(Option<Completion>),
}

fn to_text(one: &[u8], other: &[u8]) -> String {
    let pairs = one.iter().zip(other);
    pairs
        .map(|(one, other)| match one == other {
            true => format!("{one:02x}"),
            false => "..".to_owned(),
        })
        .collect()
}

fn of_text(text: &str, poison: u8) -> Result<Vec<u8>> {
    let digits = text.as_bytes().chunks_exact(2);
    digits
        .map(|pair| match pair {
            b".." => Ok(poison),
            pair => Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?),
        })
        .collect()
}

/// Writes a run down.
///
/// # Errors
///
/// The file cannot be written.
pub fn write(
    file: &Path,
    libmlx5: &str,
    seed: u64,
    spec: QpSpec,
    script: Script,
    truth: &Two,
) -> Result<()> {
    let mut text = serde_json::to_string(&Header {
        libmlx5: libmlx5.to_owned(),
        seed,
        spec,
        ring: script.ring,
    })?;
    text.push('\n');
    let lefts = truth.one.steps.iter().zip(&truth.other.steps);
    for (step, lefts) in script.steps.into_iter().zip(lefts) {
        let left = match lefts {
            (Left::Posted(one), Left::Posted(other)) => Kept::Posted {
                outcome: one.outcome,
                bytes: to_text(
                    &truth.one.bytes[one.bytes.clone()],
                    &truth.other.bytes[other.bytes.clone()],
                ),
                record: one.record,
                register: match (&one.register, &other.register) {
                    (Some((half, one)), Some((_, other))) => Some((
                        *half,
                        to_text(
                            &truth.one.bytes[one.clone()],
                            &truth.other.bytes[other.clone()],
                        )
                        .trim_end_matches("..")
                        .to_owned(),
                    )),
                    _ => None,
                },
            },
            (Left::Completed(completion), _) => Kept::Completed(*completion),
            _ => continue,
        };
        text.push_str(&serde_json::to_string(&Recorded { step, left })?);
        text.push('\n');
    }
    Ok(fs::write(file, text)?)
}

/// A recorded run, as if libmlx5 had just done it.
#[derive(Debug)]
pub struct Golden {
    header: Header,
    script: Script,
    truth: Two,
}

impl Golden {
    /// Reads one.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn read(file: &Path) -> Result<Self> {
        let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let mut lines = text.lines();
        let header: Header = serde_json::from_str(lines.next().context("no header")?)?;
        let mut script = Script {
            steps: Vec::new(),
            wqes: 0,
            ring: header.ring,
        };
        let mut passes = [Pass::default(), Pass::default()];
        for line in lines {
            let recorded: Recorded = serde_json::from_str(line)?;
            if let Step::Post(posting) = &recorded.step {
                script.wqes += posting.wqes.len() as u64;
            }
            for (pass, poison) in passes.iter_mut().zip(POISONS) {
                pass.name = "libmlx5";
                let left = match &recorded.left {
                    Kept::Completed(completion) => Left::Completed(*completion),
                    Kept::Posted {
                        outcome,
                        bytes,
                        record,
                        register,
                    } => {
                        let mut keep = |text: &str| -> Result<_> {
                            let at = pass.bytes.len();
                            pass.bytes.extend(of_text(text, poison)?);
                            Ok(at..pass.bytes.len())
                        };
                        Left::Posted(Posted {
                            outcome: *outcome,
                            bytes: keep(bytes)?,
                            record: *record,
                            register: match register {
                                Some((half, text)) => {
                                    Some((*half, keep(&format!("{text:.<512}"))?))
                                }
                                None => None,
                            },
                            strays: Vec::new(),
                            trace: None,
                        })
                    }
                };
                pass.steps.push(left);
            }
            script.steps.push(recorded.step);
        }
        let [one, other] = passes;
        Ok(Self {
            header,
            script,
            truth: Two { one, other },
        })
    }

    /// Its WQEs.
    pub fn wqes(&self) -> u64 {
        self.script.wqes
    }

    /// Does the same with our queues. What inline data comes from is mapped meanwhile, so one at a time.
    ///
    /// # Errors
    ///
    /// No memory.
    pub fn replay(&self) -> Result<Two> {
        let _arena = Arena::new(self.header.seed)?;
        let Header { spec, ring, .. } = self.header;
        let mut subject = NativeSubject::new(spec, ring, 64, Polling::Array)?;
        subject.restart()?;
        let mut run = |poison| pass::run(&mut subject, &self.script, poison, Tracing { one_of: 0 });
        Ok(Two {
            one: run(POISONS[0])?,
            other: run(POISONS[1])?,
        })
    }

    /// Compares.
    pub fn compare(&self, ours: &Two) -> Findings {
        compare(&self.script, &self.truth, ours)
    }
}
