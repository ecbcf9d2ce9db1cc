//! Real guests, with Debian's own provider: every claim of the lab's interface, checked on a booted kernel.
//!
//! They download packages on their first run, so they run on request: `OXVERBS_LAB=1`.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lab::{Config, Ended, Guest, Kernel, Provider, Step, Topology, Userland};

/// The right to boot guests, one test at a time (each takes two processors); `None`: the test is skipped by name.
fn requested(test: &str) -> Option<MutexGuard<'static, ()>> {
    static ONE: Mutex<()> = Mutex::new(());
    if std::env::var_os("OXVERBS_LAB").is_none() {
        test_support::skip(
            &format!("lab::guest::{test}"),
            "boots QEMU: wants OXVERBS_LAB=1",
        );
        return None;
    }
    Some(ONE.lock().unwrap_or_else(PoisonError::into_inner))
}

fn config() -> Config {
    Config {
        provider: Provider::Official,
        ..Config::default()
    }
}

#[test]
fn steps_report_what_happened() {
    let Some(_turn) = requested("steps_report_what_happened") else {
        return;
    };
    let mut guest = Guest::boot(&config()).unwrap();

    let both = guest
        .run(Step::new("both streams", "echo out; echo err >&2; exit 7"))
        .unwrap();
    assert_eq!(
        (both.stdout.as_str(), both.stderr.as_str(), both.ended),
        ("out\n", "err\n", Ended::Exit(7))
    );
    let literal = guest
        .run(Step::program(
            "literal",
            ["printf", "%s|", "a b", "$HOME", "it's"],
        ))
        .unwrap();
    assert_eq!(literal.stdout, "a b|$HOME|it's|");
    let signal = guest.run(Step::new("signal", "kill -SEGV $$")).unwrap();
    assert_eq!(signal.ended, Ended::Signal(11));
    let environment = guest.run(
        Step::new(
            "environment",
            "echo $A $(ulimit -l) $PYTHONDONTWRITEBYTECODE",
        )
        .env("A", "x y"),
    );
    assert_eq!(environment.unwrap().stdout, "x y unlimited 1\n");

    // A step that hangs, deaf to SIGTERM, is ended; its output so far and the guest stay.
    let started = Instant::now();
    let hang = Step::new(
        "hang",
        "echo before; trap '' TERM; while :; do sleep 1; done",
    )
    .timeout(Duration::from_secs(1));
    let hang = guest.run(hang).unwrap();
    assert_eq!(
        (hang.ended, hang.stdout.as_str()),
        (Ended::TimedOut, "before\n")
    );
    assert!(started.elapsed() < Duration::from_secs(30));
    assert!(guest.run(Step::new("alive", "true")).unwrap().ok());

    // What a step leaves running is gone before the next.
    guest
        .run(Step::new(
            "leaves a process",
            "sleep 987 & setsid sleep 986 &",
        ))
        .unwrap();
    let processes = guest
        .run(Step::new("processes", "ps -e -o args="))
        .unwrap()
        .expect_ok()
        .unwrap();
    assert!(
        !processes.stdout.contains("sleep 98"),
        "{}",
        processes.stdout
    );

    // Output arrives while the step runs.
    let mut first = None;
    let started = Instant::now();
    guest
        .run_with(Step::new("stream", "echo a; sleep 2; echo b"), |_, _| {
            first.get_or_insert_with(|| started.elapsed());
        })
        .unwrap();
    assert!(first.unwrap() + Duration::from_secs(1) < started.elapsed());

    // Both directions of the shared directory.
    std::fs::write(guest.work().join("from-host"), "hello").unwrap();
    let shared = guest
        .run(Step::new(
            "share",
            "cat /share/work/from-host; echo there >/share/work/from-guest",
        ))
        .unwrap();
    assert_eq!(shared.stdout, "hello");
    assert_eq!(
        std::fs::read_to_string(guest.work().join("from-guest")).unwrap(),
        "there\n"
    );

    // busybox as the witness of our cpio writer (the kernel is the other one: it booted from it).
    let mut archive = lab::cpio::Archive::default();
    archive.directory("d");
    archive.file("d/f", 0o755, b"12345");
    archive.symlink("d/l", "f");
    std::fs::write(guest.work().join("a.cpio"), archive.finish()).unwrap();
    let unpack = "mkdir u; cd u; busybox cpio -i </share/work/a.cpio 2>/dev/null; stat -c '%A %s %N' d d/f d/l; cat d/f";
    let unpacked = guest
        .run(Step::new("cpio", unpack))
        .unwrap()
        .expect_ok()
        .unwrap();
    assert_eq!(
        unpacked.stdout,
        "drwxr-xr-x 80 'd'\n-rwxr-xr-x 5 'd/f'\nlrwxrwxrwx 1 'd/l' -> 'f'\n12345"
    );

    let readonly = guest.run(Step::new(
        "read-only",
        "touch /usr/x || touch /oxverbs/checkout/x || touch /oxverbs/target/x",
    ));
    assert!(!readonly.unwrap().ok());
    assert!(guest.complaints().is_empty(), "{:?}", guest.complaints());
}

#[test]
fn traffic_claims_and_resources_on_every_kernel_and_userland() {
    let Some(_turn) = requested("traffic_claims_and_resources_on_every_kernel_and_userland") else {
        return;
    };
    for kernel in [Kernel::Stable, Kernel::Backports] {
        for userland in [Userland::Bookworm, Userland::Trixie, Userland::Sid] {
            let mut guest = Guest::boot(&Config {
                kernel,
                userland,
                ..config()
            })
            .unwrap();
            println!(
                "{:?}, up in {:.1} s",
                guest.versions(),
                guest.boot_seconds()
            );
            let before = guest.resources().unwrap();
            let client = Step::new("client", "ibv_rc_pingpong -e -g 1 -d rxe0 -n 100 localhost")
                .when_listening(18515)
                .server(Step::new(
                    "server",
                    "ibv_rc_pingpong -e -g 1 -d rxe0 -n 100",
                ));
            let client = guest.run(client).unwrap().expect_ok().unwrap();
            assert!(client.stdout.contains("100 iters"), "{}", client.stdout);
            assert!(client.servers[0].ok(), "{:?}", client.servers[0]);
            assert_eq!(guest.resources().unwrap(), before);
            let claims = guest.claims().unwrap();
            assert_eq!(claims[0].0, "rxe0");
            assert!(claims[0].1.contains("/librxe-rdmav"), "{claims:?}");
        }
    }
}

#[test]
fn packets_cross_the_cable_of_a_pair() {
    let Some(_turn) = requested("packets_cross_the_cable_of_a_pair") else {
        return;
    };
    for kernel in [Kernel::Stable, Kernel::Backports] {
        let mut guest = Guest::boot(&Config {
            kernel,
            topology: Topology::Pair,
            ..config()
        })
        .unwrap();
        let received = |guest: &mut Guest| -> u64 {
            let count = guest
                .run(Step::new(
                    "count",
                    "cat /sys/class/net/ox1/statistics/rx_packets",
                ))
                .unwrap();
            count.stdout.trim().parse().unwrap()
        };
        let before = received(&mut guest);
        for kind in ["rc", "uc", "ud", "srq"] {
            let program = format!("ibv_{kind}_pingpong -e -g 1 -n 100");
            let client = Step::new("client", format!("{program} -d rxe1 10.9.0.1"))
                .when_listening(18515)
                .server(Step::new("server", format!("{program} -d rxe0")));
            guest.run(client).unwrap().expect_ok().unwrap();
        }
        assert!(received(&mut guest) - before >= 4 * 100);
    }
}

#[test]
fn a_dead_guest_is_named_and_replaced() {
    let Some(_turn) = requested("a_dead_guest_is_named_and_replaced") else {
        return;
    };
    let mut guest = Guest::boot(&config()).unwrap();
    let steps = vec![
        Step::new("first", "echo 1"),
        Step::new("crash", "echo c >/proc/sysrq-trigger; sleep 60"),
        Step::new("after", "echo 2"),
    ];
    let mut seen = Vec::new();
    let outcomes = guest
        .run_all(steps, |outcome| seen.push(outcome.name.clone()))
        .unwrap();
    assert_eq!(seen, ["first", "crash", "after"]);
    assert!(outcomes[0].ok() && outcomes[2].ok());
    assert_eq!(outcomes[1].ended, Ended::GuestDied);
    assert!(
        outcomes[1]
            .stderr
            .contains("during step crash: Kernel panic"),
        "{}",
        outcomes[1].stderr
    );
}

#[test]
fn devices_that_cannot_be_set_up_are_named() {
    let Some(_turn) = requested("devices_that_cannot_be_set_up_are_named") else {
        return;
    };
    let broken = Config {
        setup: "echo remark; ip link add x type nonsense".into(),
        ..config()
    };
    let error = Guest::boot(&broken).unwrap_err().to_string();
    assert!(
        error.contains("could not be set up") && error.contains("remark"),
        "{error}"
    );
}
