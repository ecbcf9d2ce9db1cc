//! Fork: a child leaves the parent's objects alone, can touch its own memory, and the parent goes on.

use super::{Need, Suite};
use crate::check::{Check, ensure, equal, fail};
use crate::fixture::{Env, Pair, Setup};
use crate::verbs::types::*;

pub(super) fn cases(suite: &mut Suite) {
    let local = &[Need::Loopback];
    suite.case("fork/parent_goes_on[B60]", local, |env| {
        let pair = Pair::connected(env, &Setup::new(Transport::Rc))?;
        pair.exchange(1, 4096)?;
        for id in 2..6 {
            in_child(|| {
                // The heap beside what the provider allocated is the child's to use.
                let mut heap = vec![1_u8; 1 << 20];
                heap.iter_mut()
                    .for_each(|byte| *byte = byte.wrapping_add(1));
                i32::from(heap.iter().any(|byte| *byte != 2))
            })?;
            pair.exchange(id, 4096)?;
        }
        Ok(())
    });
    suite.case("fork/with_requests_under_way[B60]", local, |env| {
        let pair = Pair::connected(env, &Setup::new(Transport::Rc))?;
        let (a, b) = (&pair.a, &pair.b);
        a.fill(0, 4096, 3)?;
        // Nobody is ready to receive yet.
        a.post(SendWr::new(1, Op::Send, [a.sge(0, 4096)]))?;
        in_child(|| 0)?;
        b.post_recv(&[RecvWr::new(1, [b.sge(0, 4096)])])?;
        a.sent(&[(1, Status::SUCCESS)])?;
        b.received(&[(1, Status::SUCCESS)])?;
        b.expect(0, 4096, 3)
    });
    suite.slow_case(
        60,
        "fork/child_lives_during_traffic[B60]",
        local,
        child_lives,
    );
    suite.case("fork/objects_leave_no_mappings[B60]", local, |env| {
        let once = || -> Check {
            let pair = Pair::connected(env, &Setup::new(Transport::Rc))?;
            for side in [&pair.a, &pair.b] {
                side.v.destroy_qp(side.qp)?;
                side.v.destroy_cq(side.send_cq)?;
                side.v.destroy_cq(side.recv_cq)?;
                side.v.dereg_mr(side.mr)?;
                side.v.dealloc_pd(side.pd)?;
            }
            Ok(())
        };
        once()?;
        // The suite's own memory stays by design and is anonymous; queues are mapped from the device.
        let before = device_mappings()?;
        for _ in 0..50 {
            once()?;
        }
        equal("mappings of the device", device_mappings()?, before)
    });
    suite.case("fork/exec_does_not_inherit[B60]", local, |env| {
        let _pair = Pair::connected(env, &Setup::new(Transport::Rc))?;
        let listing = std::process::Command::new("/bin/ls")
            .args(["-l", "/proc/self/fd"])
            .output();
        match listing {
            Ok(output) => {
                let text = String::from_utf8_lossy(&output.stdout).into_owned();
                ensure("the listing worked", output.status.success())?;
                ensure(
                    "no uverbs descriptor in a started program",
                    !text.contains("uverbs"),
                )?;
                ensure("no event file either", !text.contains("infinibandevent"))
            }
            Err(error) => fail(format!("cannot start /bin/ls: {error}")),
        }
    });
}

/// Children that share the parent's pages live while the parent writes to its registered memory and sends from it: what
/// the parent writes must be what the device sees, and what the device writes what the parent sees.
fn child_lives(env: &Env) -> Check {
    let pair = Pair::connected(env, &Setup::new(Transport::Rc))?;
    pair.exchange(0, 4096)?;
    for round in 0..5 {
        // Under way while the process is copied.
        let (a, b) = (&pair.a, &pair.b);
        a.fill(8192, 4096, round)?;
        for id in 0..8 {
            a.post(SendWr::new(
                100 + id,
                Op::Write(b.remote(8192)),
                [a.sge(8192, 4096)],
            ))?;
        }
        // SAFETY: as in `in_child`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: waits for a signal, which ends it; touches no memory.
            unsafe { libc::pause() };
            // SAFETY: as in `in_child`.
            unsafe { libc::_exit(0) };
        }
        ensure("a child", child > 0)?;
        let done: Vec<_> = (100..108).map(|id| (id, Status::SUCCESS)).collect();
        let answer = (a.sent(&done).map(drop))
            .and_then(|()| b.expect(8192, 4096, round))
            .and_then(|()| (1..5).try_for_each(|id| pair.exchange(10 * round + id, 4096)));
        // SAFETY: our own child, which has not been waited for.
        unsafe { libc::kill(child, libc::SIGKILL) };
        let mut status = 0;
        // SAFETY: as above, and `status` outlives the call.
        let got = unsafe { libc::waitpid(child, &raw mut status, 0) };
        answer?;
        equal("child", got, child)?;
    }
    Ok(())
}

fn device_mappings() -> Check<usize> {
    match std::fs::read_to_string("/proc/self/maps") {
        Ok(text) => Ok(text.lines().filter(|line| line.contains("uverbs")).count()),
        Err(error) => fail(format!("cannot read the maps: {error}")),
    }
}

/// Runs `body` in a forked child; its answer must be 0.
fn in_child(body: impl FnOnce() -> i32) -> Check {
    // SAFETY: this process has one thread here (cases start none before they fork), so that the
    // child's allocator is in order.
    let child = unsafe { libc::fork() };
    match child {
        -1 => fail("cannot fork"),
        0 => {
            let code = body();
            // SAFETY: ends the child without the parent's destructors.
            unsafe { libc::_exit(code) }
        }
        child => {
            let mut status = 0;
            // SAFETY: our own child, and `status` outlives the call.
            let got = unsafe { libc::waitpid(child, &raw mut status, 0) };
            equal("child", got, child)?;
            equal("status of the child", status, 0)
        }
    }
}
