//! Commands of whose end the device tells, and how many of those are not read yet.
//!
//! The device says in an event queue that a command has ended. Who waits for one mostly sees its entry come back before
//! that is read, and could have thousands more run meanwhile. A queue that is full is the end of all its events, so
//! commands wait for the thread that reads it.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

/// Ends of commands that are not read.
#[derive(Debug, Default)]
pub(super) struct Unread {
    state: Mutex<State>,
    /// Less of them than before, or nobody reads any more.
    read: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Commands that were run since the queue was last found empty.
    count: u32,
    /// Who reads, and how many there may be.
    reader: Option<(ThreadId, u32)>,
}

impl State {
    /// Whether a command of this thread has to wait. What the reader itself runs can't.
    fn is_full(&self) -> bool {
        (self.reader)
            .is_some_and(|(reader, most)| self.count >= most && reader != thread::current().id())
    }
}

impl Unread {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This thread reads from now on, a queue that has room for `most` and for as many as run at a time.
    pub(super) fn start(&self, most: u32) {
        self.lock().reader = Some((thread::current().id(), most));
    }

    /// Nobody reads any more.
    pub(super) fn end(&self) {
        self.lock().reader = None;
        self.read.notify_all();
    }

    /// A command is about to run.
    pub(super) fn add(&self) {
        let mut state = self.lock();
        state.count = state.count.saturating_add(1);
    }

    /// Waits until there is room for one more. After `time` it is run nevertheless: the queue has more room than that, and
    /// a command that is refused is a loss for certain.
    pub(super) fn wait(&self, time: Duration) {
        let end = Instant::now() + time;
        let mut state = self.lock();
        while state.is_full() {
            let Some(left) = end.checked_duration_since(Instant::now()) else {
                return;
            };
            let waited = self.read.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// How many there are before the queue is read ..
    pub(super) fn count(&self) -> u32 {
        self.lock().count
    }

    /// .. which are none of them there any more once it was found empty.
    pub(super) fn take(&self, count: u32) {
        let mut state = self.lock();
        state.count = state.count.saturating_sub(count);
        drop(state);
        if count > 0 {
            self.read.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    const SOON: Duration = Duration::from_millis(30);

    fn waits(unread: &Unread, time: Duration) -> bool {
        let started = Instant::now();
        unread.wait(time);
        started.elapsed() >= time
    }

    #[test]
    fn commands_wait_for_the_reader_and_only_for_it() {
        let unread = Arc::new(Unread::default());
        for _ in 0..4 {
            unread.add();
        }
        assert!(!waits(&unread, SOON), "nobody reads");
        let of_reader = unread.clone();
        let (go, told) = std::sync::mpsc::channel();
        let (tell, started) = std::sync::mpsc::channel();
        let reader = thread::spawn(move || {
            of_reader.start(4);
            assert!(!waits(&of_reader, SOON), "the reader itself");
            tell.send(()).unwrap();
            while let Ok(count) = told.recv() {
                of_reader.take(count);
            }
            of_reader.end();
        });
        started.recv().unwrap();
        assert!(waits(&unread, SOON), "four of four");
        let count = unread.count();
        unread.add();
        go.send(count).unwrap();
        // one was run while the queue was read
        assert!(!waits(&unread, Duration::from_secs(60)));
        assert_eq!(unread.count(), 1);
        for _ in 0..3 {
            unread.add();
        }
        assert!(waits(&unread, SOON), "four once more");
        drop(go);
        assert!(
            !waits(&unread, Duration::from_secs(60)),
            "the reader has ended"
        );
        reader.join().unwrap();
    }
}
