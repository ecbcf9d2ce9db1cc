//! A run of one queue pair as steps, made before anything is carried out, so that every implementation does the same.

use rand::Rng;
use rand::rngs::StdRng;

use serde::{Deserialize, Serialize};

use crate::c::device::QpSpec;
use crate::call::{Api, Arena, Opcode, Service};
use crate::coverage::Coverage;
use crate::direct;
use crate::generate::{Generator, Made, Place};
use crate::heads::Heads;
use crate::shape::{Cell, blocks, inline_header, units};

/// One thing to do.
#[derive(Debug, Serialize, Deserialize)]
pub enum Step {
    /// A posting call.
    Post(Posting),
    /// What the device has not begun is canceled.
    Cancel(Canceling),
    /// The device completes everything posted so far.
    Complete {
        /// First block of the last WQE.
        counter: u16,
        /// Its operation.
        opcode: Opcode,
        /// The same by the device's number.
        device: u8,
    },
}

/// Canceling among the work requests of the call before.
#[derive(Debug, Serialize, Deserialize)]
pub struct Canceling {
    /// Of work requests with this number.
    pub id: u64,
    /// The first block that the device has not executed.
    pub next: u16,
    /// How many there are.
    pub count: u32,
    /// Blocks posted before the call.
    pub start: u32,
    /// Blocks posted after it.
    pub end: u32,
    /// Its WQEs, as in [`Posting`].
    pub wqes: Vec<(u32, u32)>,
    /// First blocks of those of them that libmlx5 misses: see `divergence::LOST_CANCEL`.
    #[serde(default)]
    pub lost: Vec<u32>,
}

/// A posting call and where it must end up.
#[derive(Debug, Serialize, Deserialize)]
pub struct Posting {
    /// Of the queue pair.
    pub service: Service,
    /// The call.
    pub post: crate::call::Post,
    /// Blocks posted before it.
    pub start: u32,
    /// Blocks posted after it.
    pub end: u32,
    /// First block, counted from the start of the run, and size in 16-byte units of each WQE that must be there after it.
    pub wqes: Vec<(u32, u32)>,
    /// It must be refused, for this reason.
    pub mistake: Option<String>,
}

impl Posting {
    /// Whether libmlx5 sends a work request's only piece twice: see `divergence::TWICE`.
    pub fn is_sent_twice(&self, index: usize) -> bool {
        let wr = &self.post.wrs[index];
        wr.opcode == Opcode::Send
            && self.post.api == Api::Builder
            && self.service == Service::Raw
            && !wr.uses_list
            && matches!(wr.pieces[..], [piece] if piece.len == inline_header())
    }
}

/// A run.
#[derive(Debug)]
pub struct Script {
    /// What to do.
    pub steps: Vec<Step>,
    /// WQEs in it.
    pub wqes: u64,
    /// Blocks of the ring.
    pub ring: u32,
}

fn note_list(coverage: &mut Coverage, len: usize) {
    coverage.note(match len {
        1 => "list of 1",
        2..16 => "list of 2 to 15",
        16 => "list of 16",
        _ => "list of 17 or more",
    });
}

/// Chooses what to cancel of a call. All of its numbers may become one. (What libmlx5 does by words that it never wrote is
/// left to the core's own tests.)
fn canceling(
    rng: &mut StdRng,
    post: &mut crate::call::Post,
    [start, end]: [u32; 2],
    wqes: &[(u32, u32)],
    heads: &Heads,
) -> Option<Canceling> {
    let first = rng.random_range(0..wqes.len());
    let (next, _) = wqes[first];
    if post.wrs.iter().any(|wr| direct::long_list(wr).is_some()) {
        return None;
    }
    let found = heads.walk(next)?;
    let is_found = |block: u32| found.contains(&heads.place(block));
    if rng.random() {
        let id = post.wrs[0].id;
        post.wrs.iter_mut().for_each(|wr| wr.id = id);
    }
    let id = post.wrs[rng.random_range(0..post.wrs.len())].id;
    let with_blocks = wqes.iter().map(|(block, _)| *block).zip(&post.wrs);
    let hit: Vec<u32> = with_blocks
        .skip(first)
        .filter(|(_, wr)| wr.id == id)
        .map(|(block, _)| block)
        .collect();
    let lost: Vec<u32> = hit.iter().copied().filter(|b| !is_found(*b)).collect();
    // The device completes the last one, as what it then is.
    if lost.last() == wqes.last().map(|(block, _)| block) && !lost.is_empty() {
        return None;
    }
    Some(Canceling {
        id,
        next: next as u16,
        count: hit.len() as u32,
        start,
        end,
        wqes: wqes.to_vec(),
        lost,
    })
}

/// Remembers where a call's work requests are, also those that are not posted.
fn remember(heads: &mut Heads, service: Service, made: &Made, start: u32, posts: u32) {
    let mut firsts: Vec<u32> = Vec::new();
    let mut at = start;
    for wr in &made.post.wrs {
        firsts.push(at);
        at += blocks(service, wr);
    }
    let refused = made.mistake.and_then(|_| firsts.pop());
    heads.write(firsts);
    if let Some(refused) = refused {
        heads.refuse(refused);
    }
    heads.post(posts);
}

/// Makes a run of about `wqes` WQEs, and of `least` blocks at least, on a queue pair with a ring of `ring` blocks.
pub fn script(
    rng: &mut StdRng,
    arena: &Arena,
    spec: QpSpec,
    ring: u32,
    wqes: u64,
    least: u32,
    coverage: &mut Coverage,
) -> Script {
    let mut generator = Generator::new(rng, arena, spec);
    let mut script = Script {
        steps: Vec::new(),
        wqes: 0,
        ring,
    };
    let mut position = 0;
    let mut outstanding = 0;
    let mut last: Option<(u16, Opcode, u8)> = None;
    let mut invalidated = false;
    let mut heads = Heads::new(ring);
    loop {
        let place = Place {
            position,
            ring,
            free: spec.send_wr - outstanding,
        };
        let ends = script.wqes >= wqes && position >= least;
        // The last one leaves no fence to be remembered over a restart.
        let made = if ends {
            generator.plain(place)
        } else {
            generator.next(coverage, place)
        };
        let Some(mut made) = made else {
            let Some((counter, opcode, device)) = last else {
                unreachable!("an empty queue has room");
            };
            script.steps.push(Step::Complete {
                counter,
                opcode,
                device,
            });
            outstanding = 0;
            continue;
        };
        let start = position;
        let posts = match (made.mistake, made.post.api) {
            (None, _) if made.post.aborts => 0,
            (None, _) => made.post.wrs.len(),
            (Some(_), Api::Chain) => made.post.wrs.len() - 1,
            (Some(_), Api::Builder) => 0,
        };
        let mut sizes = Vec::new();
        for (wr, shape) in made.post.wrs.iter_mut().zip(&made.shapes).take(posts) {
            let size = blocks(spec.service, wr);
            let offset = position % ring;
            coverage.hit(Cell {
                service: spec.service,
                api: made.post.api,
                opcode: wr.opcode,
                flags: wr.flags,
                shape: *shape,
                wraps: offset + size > ring,
            });
            let unit = units(spec.service, wr);
            if unit > 16 {
                coverage.note("more than 256 bytes in one WQE");
            }
            if invalidated {
                coverage.note("small fence after an invalidation");
            }
            wr.more.small_fence = invalidated && wr.opcode.is_masked();
            invalidated = wr.opcode.changes_keys();
            if matches!(wr.opcode, Opcode::Key) {
                coverage.note(wr.more.key.what());
            }
            if spec.service == Service::Dci && wr.opcode.has_data() {
                coverage.note(match wr.more.stream {
                    Some(_) => "stream chosen",
                    None => "stream not chosen",
                });
            }
            let has_address = matches!(spec.service, Service::Ud | Service::Xrc | Service::Dci);
            if has_address && wr.opcode.has_data() && !wr.address_first {
                coverage.note("datagram address after the data");
            }
            last = Some((position as u16, wr.opcode, wr.device()));
            sizes.push((position, unit));
            position += size;
        }
        if let Some(mistake) = made.mistake {
            coverage.note(mistake);
        }
        if made.post.aborts {
            coverage.note("builder aborted");
        }
        if posts > 0 {
            note_list(coverage, posts);
            if position % ring < start % ring {
                coverage.note("list over the end of the ring");
            }
            if position >> 16 != start >> 16 {
                coverage.note("index over 16 bits");
            }
            if spec.signals_all {
                coverage.note("every work request signalled");
            }
        }
        outstanding += posts as u32;
        script.wqes += posts as u64;
        remember(&mut heads, spec.service, &made, start, posts as u32);
        let cancels = spec.service == Service::Direct && posts > 0 && made.mistake.is_none();
        let canceled = if cancels && generator.rng().random_ratio(1, 16) {
            let blocks = [start, position];
            canceling(generator.rng(), &mut made.post, blocks, &sizes, &heads)
        } else {
            None
        };
        if let Some(canceled) = &canceled {
            coverage.note(match canceled.count {
                0 => "canceled: none",
                1 => "canceled: one",
                _ => "canceled: several",
            });
            if let (Some(last), Some(wr)) = (&mut last, made.post.wrs.last())
                && canceled.count > 0
                && wr.id == canceled.id
            {
                // NOP
                last.2 = 0;
            }
        }
        script.steps.push(Step::Post(Posting {
            service: spec.service,
            post: made.post,
            start,
            end: position,
            wqes: sizes,
            mistake: made.mistake.map(str::to_owned),
        }));
        script.steps.extend(canceled.map(Step::Cancel));
        if ends {
            if let Some((counter, opcode, device)) = last {
                script.steps.push(Step::Complete {
                    counter,
                    opcode,
                    device,
                });
            }
            return script;
        }
    }
}
