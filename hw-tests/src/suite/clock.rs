//! The device's clock, and the times of completions.

use std::time::{Duration, Instant, SystemTime};

use super::{Need, Suite};
use crate::check::{Check, Stop, ensure, equal, fail};
use crate::fixture::{Env, LONG, Pair, Setup, Side};
use crate::verbs::extras::{Clock, Timed};
use crate::verbs::types::*;

const NEEDS: [Need; 2] = [Need::Clock, Need::Loopback];
/// How long the clock is watched.
const SPAN: Duration = Duration::from_millis(300);
/// How far the system's time may be from what the device's time is taken for. They are compared now and then only, and a
/// device in software that its host gives no processor stamps with the time at which it last looked.
const APART: Duration = Duration::from_millis(500);

pub(super) fn cases(suite: &mut Suite) {
    suite.case("clock/never_backwards", &[Need::Clock], |env| {
        let mut before = now(env)?.ticks;
        for _ in 0..200 {
            let ticks = now(env)?.ticks;
            ensure("the clock does not go backwards", ticks >= before)?;
            before = ticks;
        }
        Ok(())
    });
    suite.case("clock/as_fast_as_it_says", &[Need::Clock], rate);
    for transport in Transport::ALL {
        suite.case(
            format!("clock/{transport}/completions"),
            &NEEDS,
            move |env| completions(env, transport),
        );
    }
    let wall = [Need::Clock, Need::WallClock, Need::Loopback];
    suite.case("clock/wall", &wall, wall_clock);
}

fn now(env: &Env) -> Check<Clock> {
    let extras = env.v().extras();
    let clock = extras.map(|extras| extras.clock()).transpose()?.flatten();
    clock.ok_or_else(|| Stop::Fail("the clock is gone".to_owned()))
}

/// Reads the clock between two looks at the system's.
fn around(env: &Env) -> Check<(Instant, Clock, Instant)> {
    let before = Instant::now();
    let clock = now(env)?;
    Ok((before, clock, Instant::now()))
}

/// As much time as passed between readings, which take time themselves: within a hundredth of that.
fn rate(env: &Env) -> Check {
    let first = around(env)?;
    std::thread::sleep(SPAN);
    let last = around(env)?;
    let ticks = last.1.ticks - first.1.ticks;
    let passed =
        Duration::from_nanos((u128::from(ticks) * 1_000_000 / u128::from(first.1.khz)) as u64);
    let least = last.0.duration_since(first.2);
    let most = last.2.duration_since(first.0);
    let range = least - least / 100..=most + most / 100;
    match range.contains(&passed) {
        true => Ok(()),
        false => fail(format!(
            "the device says that {passed:?} passed, the system {least:?} to {most:?}"
        )),
    }
}

/// The next completion's time.
fn next(side: &Side<'_>, cq: Cq) -> Check<Timed> {
    let end = Instant::now() + LONG;
    while Instant::now() < end {
        let extras = side.v.extras();
        if let Some(timed) = extras
            .map(|extras| extras.poll_timed(cq))
            .transpose()?
            .flatten()
        {
            equal("status", timed.status, Status::SUCCESS)?;
            return Ok(timed);
        }
        std::thread::yield_now();
    }
    fail("no completion in time")
}

fn timed(env: &Env, transport: Transport) -> Check<Pair<'_>> {
    let mut setup = Setup::new(transport);
    setup.timed = true;
    Pair::connected(env, &setup)
}

/// Sends one message; the times of both completions.
fn exchange(pair: &Pair<'_>, id: u64) -> Check<[Timed; 2]> {
    let (a, b) = (&pair.a, &pair.b);
    b.post_recv(&[RecvWr::new(id, [b.sge(0, 2048)])])?;
    a.post(SendWr::new(id, Op::Send, [a.sge(0, 1000)]))?;
    let times = [next(a, a.send_cq)?, next(b, b.recv_cq)?];
    for timed in times {
        equal("wr_id", timed.id, id)?;
    }
    Ok(times)
}

/// Each is between the posting and the polling, and not before the last of its queue.
fn completions(env: &Env, transport: Transport) -> Check {
    let pair = timed(env, transport)?;
    let mut last = [0; 2];
    for id in 0..5 {
        let began = now(env)?.ticks;
        let times = exchange(&pair, id)?.map(|timed| timed.ticks);
        let range = began..=now(env)?.ticks;
        for (time, last) in times.iter().zip(&mut last) {
            if !range.contains(time) {
                return fail(format!("{time} is not in {range:?}, when it completed"));
            }
            ensure("later completions have later times", *time >= *last)?;
            *last = *time;
        }
    }
    Ok(())
}

fn wall_clock(env: &Env) -> Check {
    let pair = timed(env, Transport::Rc)?;
    let wall = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    for id in 0..3 {
        let began = wall().unwrap_or_default().saturating_sub(APART);
        let times = exchange(&pair, id)?;
        let range = began..=wall().unwrap_or_default() + APART;
        for timed in times {
            let at = Duration::from_nanos(timed.wall.unwrap_or_default());
            if !range.contains(&at) {
                return fail(format!("{at:?} since 1970 is not in {range:?}"));
            }
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}
