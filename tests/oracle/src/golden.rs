//! The golden corpus: runs recorded from libmlx5, so that the encoders are proved where no libmlx5 is.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use crate::c::device::QpSpec;
use crate::call::{Arena, Outcome, Service, Wr};
use crate::campaign::POISONS;
use crate::compare::{Findings, Two, compare};
use crate::direct;
use crate::native::NativeSubject;
use crate::pass::{self, Left, Pass, Posted, Tracing};
use crate::ring::BLOCK;
use crate::script::{Posting, Script, Step};
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
    Canceled {
        count: i32,
        bytes: String,
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
            (Left::Canceled(count, one), Left::Canceled(_, other)) => Kept::Canceled {
                count: *count,
                bytes: to_text(
                    &truth.one.bytes[one.clone()],
                    &truth.other.bytes[other.clone()],
                ),
            },
            (Left::Completed(completion), _) => Kept::Completed(*completion),
            _ => continue,
        };
        text.push_str(&serde_json::to_string(&Recorded { step, left })?);
        text.push('\n');
    }
    Ok(fs::write(file, text)?)
}

/// The kind of a long list.
const LONG: &str = "long";
/// The kind of a step that cancels.
const CANCEL: &str = "cancel";

/// Operations of a service, by each of its interfaces, and canceling where it has that.
pub fn kinds(service: Service) -> impl Iterator<Item = String> {
    let apis = service.interfaces().iter();
    let operations = apis.flat_map(move |api| {
        let opcodes = service.opcodes().iter();
        opcodes.map(move |opcode| format!("{api:?} {opcode:?}"))
    });
    let cancel = (service == Service::Direct).then(|| CANCEL.to_owned());
    operations.chain(cancel)
}

fn posting_kinds(posting: &Posting) -> Vec<String> {
    let api = posting.post.api;
    // The length of a long list is a named divergence, so not all of its bytes are compared.
    let kind = |wr: &Wr| match direct::long_list(wr) {
        None => format!("{api:?} {:?}", wr.opcode),
        Some(_) => LONG.to_owned(),
    };
    posting.post.wrs.iter().map(kind).collect()
}

/// The kinds that a script has.
pub fn kinds_of(script: &Script) -> BTreeSet<String> {
    let kinds = script.steps.iter().flat_map(|step| match step {
        Step::Post(posting) if posting.mistake.is_none() && !posting.post.aborts => {
            posting_kinds(posting)
        }
        Step::Cancel(step) if step.count > 0 => vec![CANCEL.to_owned()],
        _ => Vec::new(),
    });
    kinds.collect()
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
                    Kept::Canceled { count, bytes } => {
                        let at = pass.bytes.len();
                        pass.bytes.extend(of_text(bytes, poison)?);
                        Left::Canceled(*count, at..pass.bytes.len())
                    }
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

    /// For each operation by each interface, and for canceling: places in our bytes (one in eight) that libmlx5 writes in the
    /// first work request of the kind.
    pub fn places(&self, ours: &Two) -> BTreeMap<String, Vec<usize>> {
        let mut places = BTreeMap::new();
        let passes = self.truth.one.steps.iter().zip(&ours.one.steps);
        for (step, lefts) in self.script.steps.iter().zip(passes) {
            let (kinds, wqes, theirs, ours) = match (step, lefts) {
                (Step::Post(posting), (Left::Posted(theirs), Left::Posted(ours)))
                    if posting.mistake.is_none() =>
                {
                    (
                        posting_kinds(posting),
                        &posting.wqes,
                        &theirs.bytes,
                        &ours.bytes,
                    )
                }
                (Step::Cancel(step), (Left::Canceled(_, theirs), Left::Canceled(_, ours))) => {
                    (vec![CANCEL.to_owned()], &step.wqes, theirs, ours)
                }
                _ => continue,
            };
            for (kind, (first, units)) in kinds.into_iter().zip(wqes) {
                if kind == LONG {
                    continue;
                }
                let start = (first - wqes[0].0) as usize * BLOCK;
                let written = (start..start + *units as usize * 16).filter(|at| {
                    let at = theirs.start + at;
                    self.truth.one.bytes[at] == self.truth.other.bytes[at]
                });
                let written = written.filter(|at| at % BLOCK < 12 || at % BLOCK >= 16);
                let kept = written.step_by(8).map(|at| ours.start + at);
                places.entry(kind).or_insert_with(|| kept.collect());
            }
        }
        places
    }

    /// What its service has: see [`kinds`].
    pub fn kinds(&self) -> impl Iterator<Item = String> {
        kinds(self.header.spec.service)
    }

    /// Compares.
    pub fn compare(&self, ours: &Two) -> Findings {
        compare(&self.script, &self.truth, ours)
    }
}
