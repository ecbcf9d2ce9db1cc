//! What the pingpongs of one queue pair have in common.

use std::error::Error;
use std::time::Instant;

use oxverbs::{Completion, CompletionChannel, CompletionQueue, Context};

pub(crate) const RECV: u64 = 1;
pub(crate) const SEND: u64 = 2;

/// A completion queue, and the channel to sleep on if the user wants to.
#[derive(Debug)]
pub(crate) struct Completions {
    cq: CompletionQueue,
    channel: Option<CompletionChannel>,
}

impl Completions {
    pub(crate) fn new(context: &Context, entries: u32, events: bool) -> oxverbs::Result<Self> {
        if !events {
            return Ok(Self {
                cq: context.completion_queue(entries)?,
                channel: None,
            });
        }
        let channel = context.completion_channel()?;
        let cq = channel.completion_queue(entries)?;
        cq.request_notify(false)?;
        Ok(Self {
            cq,
            channel: Some(channel),
        })
    }

    pub(crate) fn cq(&self) -> &CompletionQueue {
        &self.cq
    }

    /// Waits until there are completions and gives them to `take`.
    pub(crate) fn wait(
        &mut self,
        mut take: impl FnMut(Completion) -> Result<(), Box<dyn Error>>,
    ) -> Result<(), Box<dyn Error>> {
        if let Some(channel) = &self.channel {
            let id = channel.wait()?;
            if id != self.cq.id() {
                return Err("an event of an unknown completion queue".into());
            }
            self.cq.request_notify(false)?;
        }
        loop {
            let mut any = false;
            for completion in self.cq.poll() {
                any = true;
                check(&completion)?;
                take(completion)?;
            }
            if any || self.channel.is_some() {
                return Ok(());
            }
            std::hint::spin_loop();
        }
    }
}

fn check(completion: &Completion) -> Result<(), Box<dyn Error>> {
    if completion.is_success() {
        return Ok(());
    }
    let status = completion.status();
    let name = status.name().unwrap_or("unknown");
    let wr_id = completion.wr_id();
    Err(format!("Failed status {name} ({}) for wr_id {wr_id}", status.0).into())
}

/// Prints the two lines that end a run.
pub(crate) fn report(start: Instant, size: usize, iters: u32) {
    let seconds = start.elapsed().as_secs_f64();
    let micros = seconds * 1e6;
    let bytes = size as u64 * u64::from(iters) * 2;
    println!(
        "{bytes} bytes in {seconds:.2} seconds = {:.2} Mbit/sec",
        bytes as f64 * 8. / micros
    );
    println!(
        "{iters} iters in {seconds:.2} seconds = {:.2} usec/iter",
        micros / f64::from(iters)
    );
}

/// The state of one queue pair's exchange: who has to wait for what before the next send.
#[derive(Debug, Default)]
pub(crate) struct Exchange {
    pub(crate) sent: u32,
    pub(crate) received: u32,
    /// Bits [`RECV`] and [`SEND`] that are outstanding.
    pub(crate) pending: u64,
}

/// What a run does with its queue pair.
pub(crate) trait Link {
    /// Posts one send.
    fn send(&mut self) -> Result<(), Box<dyn Error>>;
    /// Posts so many receives.
    fn receive(&mut self, count: u32) -> Result<(), Box<dyn Error>>;
}

/// Sends back and forth `iters` times.
pub(crate) fn run(
    link: &mut impl Link,
    completions: &mut Completions,
    client: bool,
    iters: u32,
    rx_depth: u32,
) -> Result<Instant, Box<dyn Error>> {
    let mut state = Exchange {
        pending: RECV,
        ..Exchange::default()
    };
    let mut posted = rx_depth;
    if client {
        link.send()?;
        state.pending |= SEND;
    }
    let start = Instant::now();
    while state.received < iters || state.sent < iters {
        completions.wait(|completion| {
            match completion.wr_id() {
                SEND => state.sent += 1,
                RECV => {
                    state.received += 1;
                    posted -= 1;
                    if posted <= 1 {
                        link.receive(rx_depth - posted)?;
                        posted = rx_depth;
                    }
                }
                other => return Err(format!("Completion for unknown wr_id {other}").into()),
            }
            state.pending &= !completion.wr_id();
            if state.sent < iters && state.pending == 0 {
                link.send()?;
                state.pending = RECV | SEND;
            }
            Ok(())
        })?;
    }
    Ok(start)
}
