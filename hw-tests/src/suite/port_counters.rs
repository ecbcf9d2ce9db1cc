//! What the port counts: nothing of trouble while all goes well, nothing backwards, and requests and errors one by one.

use std::time::Duration;

use super::{Need, Suite};
use crate::check::{Check, ensure, equal};
use crate::counters::OF_TROUBLE;
use crate::fixture::{Env, Pair, Setup};
use crate::verbs::types::*;

pub(super) fn cases(suite: &mut Suite) {
    for transport in Transport::ALL {
        suite.case(
            format!("counters/{transport}/healthy_traffic"),
            &[Need::Loopback, Need::Counters],
            move |env| healthy(env, transport),
        );
    }
    for (counter, count) in [
        ("hw_counters/rx_write_requests", 5),
        ("hw_counters/rx_read_requests", 3),
        ("hw_counters/rx_atomic_requests", 2),
    ] {
        suite.case(
            format!("counters/rc/{}", short(counter)),
            &[Need::Loopback, Need::Atomics, Need::Counter(counter)],
            move |env| requests(env, counter, count),
        );
    }
    for counter in [
        "hw_counters/req_remote_access_errors",
        "hw_counters/resp_remote_access_errors",
        "hw_counters/req_cqe_error",
    ] {
        suite.case(
            format!("counters/rc/{}", short(counter)),
            &[Need::Loopback, Need::Counter(counter)],
            move |env| wrong_key(env, counter),
        );
    }
    for counter in ["hw_counters/out_of_buffer", "hw_counters/rnr_nak_retry_err"] {
        suite.case(
            format!("counters/rc/{}", short(counter)),
            &[Need::Loopback, Need::Counter(counter)],
            move |env| not_ready(env, counter),
        );
    }
}

/// A counter's name without the directory of its file.
fn short(counter: &str) -> &str {
    counter.trim_start_matches("hw_counters/")
}

/// How far a counter has counted. The kernel remembers values for 10 ms (`struct rdma_hw_stats`, `lifespan`).
fn read(env: &Env, counter: &str) -> Check<u64> {
    std::thread::sleep(Duration::from_millis(20));
    let counters = env.v().counters(env.port)?;
    Ok(counters.get(counter).copied().unwrap_or_default())
}

/// Five writes, three reads, two atomics: each counted once, however many packets it is.
fn requests(env: &Env, counter: &str, count: u64) -> Check {
    let pair = Pair::connected(env, &Setup::new(Transport::Rc))?;
    let (a, b) = (&pair.a, &pair.b);
    b.set_word(0, 0)?;
    let before = read(env, counter)?;
    let write = |_| (Op::Write(b.remote(0)), 6000);
    let get = |_| (Op::Read(b.remote(0)), 3000);
    let add = |_| {
        let remote = b.remote(0);
        (Op::FetchAdd { remote, add: 1 }, 8)
    };
    let all = (0..5)
        .map(write)
        .chain((0..3).map(get))
        .chain((0..2).map(add));
    for (id, (op, len)) in (0..).zip(all) {
        a.post(SendWr::new(id, op, [a.sge(0, len)]))?;
        a.sent_one(id, &[Status::SUCCESS])?;
    }
    equal(counter, read(env, counter)? - before, count)
}

/// A write with a key that nobody gave out.
fn wrong_key(env: &Env, counter: &str) -> Check {
    let pair = Pair::connected(env, &Setup::new(Transport::Rc))?;
    let (a, b) = (&pair.a, &pair.b);
    let before = read(env, counter)?;
    let mut remote = b.remote(0);
    remote.rkey ^= 0xff;
    a.post(SendWr::new(1, Op::Write(remote), [a.sge(0, 8)]))?;
    a.sent_one(1, &[Status::REM_ACCESS_ERR])?;
    equal(counter, read(env, counter)? - before, 1)
}

/// A message comes before there is a receive request for it, and once more when there is one.
fn not_ready(env: &Env, counter: &str) -> Check {
    let mut setup = Setup::new(Transport::Rc);
    setup.rnr_retry = 7;
    let pair = Pair::connected(env, &setup)?;
    let (a, b) = (&pair.a, &pair.b);
    let before = read(env, counter)?;
    a.post(SendWr::new(1, Op::Send, [a.sge(0, 8)]))?;
    std::thread::sleep(Duration::from_millis(50));
    b.post_recv(&[RecvWr::new(2, [b.sge(0, 8)])])?;
    a.sent_one(1, &[Status::SUCCESS])?;
    b.received_one(2, &[Status::SUCCESS])?;
    let counted = read(env, counter)? - before;
    ensure(&format!("{counter} counts at least one"), counted > 0)
}

fn healthy(env: &Env, transport: Transport) -> Check {
    let pair = Pair::connected(env, &Setup::new(transport))?;
    let before = env.v().counters(env.port)?;
    for id in 0..50 {
        pair.exchange(id, 1000)?;
    }
    let after = env.v().counters(env.port)?;
    for (name, before) in &before {
        let Some(after) = after.get(name) else {
            continue;
        };
        match OF_TROUBLE.contains(&name.as_str()) {
            true => equal(name, after, before)?,
            false => ensure(&format!("{name} does not go backwards"), after >= before)?,
        }
    }
    Ok(())
}
