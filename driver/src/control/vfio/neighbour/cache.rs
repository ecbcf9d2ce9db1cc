//! What is known of neighbours.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Gid, Mac};
use crate::sys::errno::Errno;

/// How long what a neighbour said is believed without asking again (RFC 4861 10, `REACHABLE_TIME`).
const FRESH: Duration = Duration::from_secs(30);
/// How often is asked, and how long waited for each answer (RFC 4861 10, `MAX_MULTICAST_SOLICIT`, `RETRANS_TIMER`).
const TRIES: u32 = 3;
const PATIENCE: Duration = Duration::from_secs(1);
/// Neighbours that are remembered; beyond that the oldest are forgotten.
const ROOM: usize = 4096;

/// MAC addresses that neighbours said.
#[derive(Debug)]
pub struct Cache {
    known: Mutex<HashMap<Gid, Neighbour>>,
    changed: Condvar,
    patience: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Neighbour {
    /// `None` while it is asked for the first time.
    mac: Option<Mac>,
    heard: Instant,
    /// Who waits for it.
    waiting: u32,
}

impl Default for Cache {
    fn default() -> Self {
        Self::with_patience(PATIENCE)
    }
}

impl Cache {
    /// An empty one, that waits so long for each answer.
    pub fn with_patience(patience: Duration) -> Self {
        Self {
            known: Mutex::default(),
            changed: Condvar::new(),
            patience,
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Gid, Neighbour>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A neighbour said where it is. One that nobody here has asked for, and who asks for nothing here, is not remembered:
    /// others could fill the table.
    pub fn learn(&self, gid: Gid, mac: Mac, is_for_us: bool) {
        let mut known = self.lock();
        let now = Instant::now();
        if let Some(neighbour) = known.get_mut(&gid) {
            neighbour.mac = Some(mac);
            neighbour.heard = now;
            self.changed.notify_all();
            return;
        }
        if !is_for_us {
            return;
        }
        if known.len() >= ROOM {
            let idle = known.iter().filter(|(_, other)| other.waiting == 0);
            let oldest = idle.min_by_key(|(_, other)| other.heard);
            let Some(oldest) = oldest.map(|(gid, _)| *gid) else {
                return;
            };
            known.remove(&oldest);
        }
        known.insert(
            gid,
            Neighbour {
                mac: Some(mac),
                heard: now,
                waiting: 0,
            },
        );
    }

    /// Where a neighbour is; asks for it, if that has not been said lately. `ETIMEDOUT` if nobody answers.
    pub fn find(&self, gid: &Gid, ask: impl Fn() -> Result<(), Errno>) -> Result<Mac, Errno> {
        let start = Instant::now();
        let mut known = self.lock();
        let neighbour = known.entry(*gid).or_insert(Neighbour {
            mac: None,
            heard: start,
            waiting: 0,
        });
        if let Some(mac) = neighbour.mac
            && neighbour.heard.elapsed() < FRESH
        {
            return Ok(mac);
        }
        neighbour.waiting += 1;
        let mut result = Err(Errno(libc::ETIMEDOUT));
        for _ in 0..TRIES {
            drop(known);
            let asked = ask();
            known = self.lock();
            if let Err(errno) = asked {
                result = Err(errno);
                break;
            }
            let silent = |known: &mut HashMap<Gid, Neighbour>| answer(known, gid, start).is_none();
            (known, _) = self
                .changed
                .wait_timeout_while(known, self.patience, silent)
                .unwrap_or_else(PoisonError::into_inner);
            if let Some(mac) = answer(&known, gid, start) {
                result = Ok(mac);
                break;
            }
        }
        if let Some(neighbour) = known.get_mut(gid) {
            neighbour.waiting -= 1;
            if result.is_err() && neighbour.waiting == 0 {
                known.remove(gid);
            }
        }
        result
    }
}

/// What was heard of a neighbour since.
fn answer(known: &HashMap<Gid, Neighbour>, gid: &Gid, since: Instant) -> Option<Mac> {
    let neighbour = known.get(gid)?;
    neighbour.mac.filter(|_| neighbour.heard >= since)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    const GID: Gid = [7; 16];
    const MAC: Mac = [2; 6];

    #[test]
    fn nobody_answers() {
        let cache = Cache::with_patience(Duration::from_millis(5));
        let asked = AtomicU32::new(0);
        let found = cache.find(&GID, || {
            asked.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        assert_eq!(found, Err(Errno(libc::ETIMEDOUT)));
        assert_eq!(asked.into_inner(), TRIES);
        assert!(cache.lock().is_empty());
    }

    #[test]
    fn the_second_time_somebody_does() {
        let cache = Cache::with_patience(Duration::from_millis(50));
        let asked = AtomicU32::new(0);
        let found = cache.find(&GID, || {
            if asked.fetch_add(1, Ordering::Relaxed) == 1 {
                cache.learn(GID, MAC, false);
            }
            Ok(())
        });
        assert_eq!(found, Ok(MAC));
        let again = cache.find(&GID, || panic!("it is known"));
        assert_eq!(again, Ok(MAC));
    }

    #[test]
    fn what_was_said_long_ago_is_asked_again() {
        let cache = Cache::with_patience(Duration::from_millis(5));
        cache.learn(GID, MAC, true);
        let long_ago = Instant::now().checked_sub(FRESH);
        if let (Some(long_ago), Some(neighbour)) = (long_ago, cache.lock().get_mut(&GID)) {
            neighbour.heard = long_ago;
        }
        let moved = [4; 6];
        let found = cache.find(&GID, || {
            cache.learn(GID, moved, false);
            Ok(())
        });
        assert_eq!(found, Ok(moved));
    }

    #[test]
    fn strangers_are_not_remembered_without_end() {
        let cache = Cache::default();
        cache.learn(GID, MAC, false);
        assert!(cache.lock().is_empty());
        for number in 0..ROOM as u32 + 100 {
            let mut gid = GID;
            gid[..4].copy_from_slice(&number.to_be_bytes());
            cache.learn(gid, MAC, true);
        }
        assert_eq!(cache.lock().len(), ROOM);
    }

    #[test]
    fn a_network_that_fails_says_so() {
        let cache = Cache::default();
        let found = cache.find(&GID, || Err(Errno(libc::EIO)));
        assert_eq!(found, Err(Errno(libc::EIO)));
        assert!(cache.lock().is_empty());
    }
}
