//! Every control call that Debian's libmlx5 makes is made again by our control path, from the values in it, and is
//! the same to the byte: the attributes, their order, their flags and lengths, and the driver's data.
//!
//! One call of each shape is in `replay_mlx5/golden.jsonl`, for machines without libmlx5. `OXVERBS_BLESS=1` writes it
//! again from the installed release.
//!
//! Where this cannot look, the size of a ring in the driver's data, `same_calls_mlx5.rs` does.

#[path = "replay_mlx5/call.rs"]
mod call;
mod common;
#[path = "replay_mlx5/devx.rs"]
mod devx;
#[path = "replay_mlx5/replay.rs"]
mod replay;
#[path = "replay_mlx5/scribe.rs"]
mod scribe;

use std::collections::BTreeSet;
use std::path::Path;

use common::{Libraries, MLX5, compile_with, has_provider, succeed};
use fake_kernel::record::{Recorded, RecordedAttr};

/// What libmlx5 sends for a program.
fn official(libraries: &Libraries, program: &str, settings: &str) -> Vec<Recorded> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let program = compile_with(program, dir.path(), MLX5);
    let record = dir.path().join("record");
    let mut command = libraries.on_fake(&program, settings);
    command.env("OXVERBS_FAKE_RECORD", &record);
    command.args(
        std::env::var("PARTS")
            .unwrap_or_default()
            .split_whitespace(),
    );
    assert_eq!(succeed(command), "ok\n");
    let lines = std::fs::read_to_string(&record).expect("a recording");
    lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("a recorded call"))
        .collect()
}

/// Where ours may differ from libmlx5's, each taken out of both sides:
///
/// * releases before 50 have no room for the last field of the answer to query_device (`reg_c0`).
fn comparable(mut call: Recorded) -> Recorded {
    if call::name(&call) == "IB_USER_VERBS_EX_CMD_QUERY_DEVICE"
        && let Recorded::Ioctl { attrs, .. } = &mut call
    {
        for attr in attrs {
            if attr.name == "UVERBS_ATTR_UHW_OUT" && attr.len == 104 {
                attr.len = 112;
            }
        }
    }
    call
}

fn again(test: &str, program: &str, settings: &str, at_least: usize) {
    if !has_provider(test, "libmlx5-rdmav") {
        return;
    }
    for libraries in Libraries::all() {
        let mut kinds = BTreeSet::new();
        let calls = official(&libraries, program, settings);
        for (index, official) in calls.iter().enumerate() {
            let mut ours = replay::replay(official, settings.contains("no-ioctl"));
            assert_eq!(ours.len(), 1, "{libraries:?}, call {index}: {official:?}");
            let ours = ours.remove(0);
            let official = comparable(official.clone());
            assert_eq!(ours, official, "{libraries:?}, call {index}");
            kinds.insert(call::name(&official).to_owned());
        }
        let (calls, kinds) = (calls.len(), kinds.len());
        println!("{libraries:?}: {calls} calls of {kinds} kinds equal");
        assert!(kinds >= at_least, "only {kinds} kinds");
    }
}

/// B62: on Linux 6.12.
#[test]
fn by_ioctl() {
    again(
        "fake-kernel::replay_mlx5::by_ioctl",
        "mlx5_calls",
        "mlx5",
        40,
    );
}

/// B62: what only mlx5dv calls.
#[test]
fn of_mlx5dv() {
    again(
        "fake-kernel::replay_mlx5::of_mlx5dv",
        "mlx5_dv_calls",
        "mlx5",
        40,
    );
}

/// The recording that is checked in.
const GOLDEN: &str = include_str!("replay_mlx5/golden.jsonl");

/// B62: one call of each shape, as recorded.
#[test]
fn as_recorded() {
    let lines = GOLDEN.lines();
    let mut count = 0;
    for line in lines {
        let official: Recorded = serde_json::from_str(line).expect("a recorded call");
        let ours = replay::replay(&official, false);
        assert_eq!(ours, [official]);
        count += 1;
    }
    assert!(count > 90, "only {count} calls");
}

/// What tells one shape of a call from another: the attributes and how long they are.
fn shape(call: &Recorded) -> Vec<String> {
    let mut shape = vec![call::name(call).to_owned()];
    if let Recorded::Ioctl { attrs, .. } = call {
        let attrs = attrs.iter();
        shape.extend(attrs.map(|attr| format!("{} {} {}", attr.name, attr.len, attr.flags)));
    }
    shape
}

/// The recording is what the installed libmlx5 sends.
#[test]
fn the_recording_is_true() {
    let name = "fake-kernel::replay_mlx5::the_recording_is_true";
    if !has_provider(name, "libmlx5-rdmav") {
        return;
    }
    let mut seen = BTreeSet::new();
    let mut text = String::new();
    for program in ["mlx5_calls", "mlx5_dv_calls"] {
        for call in official(&Libraries::Installed, program, "mlx5") {
            if seen.insert(shape(&call)) {
                text += &serde_json::to_string(&comparable(call)).expect("a call");
                text.push('\n');
            }
        }
    }
    if std::env::var_os("OXVERBS_BLESS").is_some() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/replay_mlx5/golden.jsonl");
        std::fs::write(path, &text).expect("a file to write");
        return;
    }
    for (recorded, now) in GOLDEN.lines().zip(text.lines()) {
        assert_eq!(recorded, now);
    }
    assert_eq!(GOLDEN.lines().count(), text.lines().count());
}

/// A recording with attributes in another order, or with another flag, is not what we send.
#[test]
fn a_changed_recording_is_noticed() {
    for line in GOLDEN.lines() {
        let changed = |change: fn(&mut Vec<RecordedAttr>)| {
            let mut call: Recorded = serde_json::from_str(line).expect("a recorded call");
            let Recorded::Ioctl { attrs, .. } = &mut call else {
                panic!("only requests of the ioctl are recorded");
            };
            change(attrs);
            assert_ne!(replay::replay(&call, false), [call]);
        };
        changed(|attrs| attrs[0].flags ^= 1);
        changed(|attrs| attrs.push(attrs[0].clone()));
        if line.matches("\"name\"").count() > 1 {
            changed(|attrs| attrs.reverse());
        }
    }
}
