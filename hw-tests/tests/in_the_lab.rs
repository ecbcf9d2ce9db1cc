//! The suite on a real kernel's rxe, in a QEMU guest.

use std::path::Path;
use std::time::Duration;

/// Generous, for machines that build at the same time.
const LIMIT: Duration = Duration::from_secs(400);

/// A cross-section of every area that takes well under a minute; the whole suite takes about four.
const CROSS_SECTION: &str = "^transfer/rc/(send|read)/|^post/rc/|^inline/rc/|^rights/rc/(write|recv)/\
    |^atomic/|^window/|^srq/(limit|resize|rc)|^event/arm/|^flush/|^qp/rc/|^cq/resize/|^fork/";

/// B04, B08, B09, B14 to B16, B19 to B22, B24, B26, B27, B32, B37, B38, B40, B43, B45, B48, B50, B58, B60: at
/// least 150 cases pass on rxe and none fails, and each planted fault turns the suite red.
#[test]
fn rxe_passes_and_planted_faults_turn_red() {
    if std::env::var_os("OXVERBS_LAB").is_none() {
        test_support::skip("hw-tests::in_the_lab", "boots QEMU: wants OXVERBS_LAB=1");
        return;
    }
    let config = lab::Config {
        provider: lab::Provider::Official,
        ..lab::Config::default()
    };
    let program = Path::new(env!("CARGO_BIN_EXE_hw-tests"));
    let program = program.canonicalize().expect("cargo built it");
    let target = config.target().canonicalize().expect("the build directory");
    let inside = program.strip_prefix(target).expect("built below it");
    let program = Path::new("/oxverbs/target").join(inside);
    let program = program.to_str().expect("a plain name");
    let filter: String = CROSS_SECTION.split_whitespace().collect();
    let mut guest = lab::Guest::boot(&config).expect("a guest");
    let step = lab::Step::program("cases", [program, "--device", "rxe0", "--filter", &filter])
        .timeout(LIMIT);
    let outcome = guest.run(step).expect("an answer of the guest");
    println!("{}", outcome.stdout);
    assert!(outcome.ok(), "{}", outcome.stderr);
    let closing = outcome.stdout.lines().last().unwrap_or_default();
    let passed = closing
        .split(' ')
        .next()
        .and_then(|count| count.parse().ok());
    assert!(passed.is_some_and(|count: u32| count >= 150), "{closing}");
    assert!(closing.contains(" 0 failed,"), "{closing}");
    let step =
        lab::Step::program("plants", [program, "--device", "rxe0", "--prove"]).timeout(LIMIT);
    let outcome = guest.run(step).expect("an answer of the guest");
    println!("{}", outcome.stdout);
    assert!(outcome.ok(), "{}", outcome.stderr);
    assert!(
        outcome
            .stdout
            .contains("12 of 12 planted faults turn the suite red")
    );
    assert!(guest.complaints().is_empty(), "{:?}", guest.complaints());
}

/// No device is an error, not a suite without failures.
#[test]
fn no_device_is_no_success() {
    let status = std::process::Command::new(env!("CARGO_BIN_EXE_hw-tests"))
        .args(["--device", "no-such-device"])
        .output()
        .expect("the program runs");
    assert_eq!(status.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&status.stderr).contains("no-such-device"));
}
