//! What our control path tells the kernel of a queue, and grants the program, against what libmlx5 does for the
//! same request: hundreds of shapes of each kind of queue, under each setting that changes sizes.
//!
//! The sizes are in the driver's data, which is compared byte for byte but for addresses.

mod common;
#[path = "same_control_mlx5/ours.rs"]
mod ours;
#[path = "same_control_mlx5/shape.rs"]
mod shape;

use std::io::Write;
use std::process::Stdio;

use common::{Libraries, MLX5, compile_with, has_provider};
use fake_kernel::record::Recorded;
use shape::Shape;

/// What came of a shape.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Outcome {
    /// What was granted, or the errno.
    said: String,
    /// What the kernel was asked.
    calls: Vec<Recorded>,
}

/// Calls that make or resize queues.
fn makes(call: &Recorded) -> bool {
    let Recorded::Ioctl {
        method, command, ..
    } = call
    else {
        return false;
    };
    let name = command.as_deref().unwrap_or(method);
    [
        "UVERBS_METHOD_CQ_CREATE",
        "UVERBS_METHOD_QP_CREATE",
        "UVERBS_METHOD_SRQ_CREATE",
        "UVERBS_METHOD_WQ_CREATE",
        "IB_USER_VERBS_CMD_RESIZE_CQ",
    ]
    .contains(&name)
}

/// The outcomes under libmlx5.
fn official(
    libraries: &Libraries,
    shapes: &[Shape],
    settings: &str,
    environment: &[(&str, &str)],
) -> Vec<Outcome> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let program = compile_with("mlx5_shapes", dir.path(), MLX5);
    let record = dir.path().join("record");
    let mut command = libraries.on_fake(&program, settings);
    command
        .env("OXVERBS_FAKE_RECORD", &record)
        .envs(environment.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = command.spawn().expect("timeout(1) of coreutils");
    let mut stdin = child.stdin.take().expect("a pipe");
    for shape in shapes {
        writeln!(stdin, "{shape}").expect("a reader");
    }
    drop(stdin);
    let output = child.wait_with_output().expect("an end");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{text}");
    let lines = std::fs::read_to_string(&record).expect("a recording");
    let calls: Vec<Recorded> = lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("a recorded call"))
        .collect();
    // the program asks for a port before each shape
    let mut groups: Vec<Vec<_>> = calls.split(is_mark).map(<[Recorded]>::to_vec).collect();
    let groups = groups.split_off(groups.len() - shapes.len());
    let said = text.lines().map(str::to_owned).zip(groups);
    said.map(|(said, mut calls)| {
        calls.retain(makes);
        Outcome { said, calls }
    })
    .collect()
}

fn is_mark(call: &Recorded) -> bool {
    matches!(call, Recorded::Ioctl { method, .. } if method == "UVERBS_METHOD_QUERY_PORT")
}

/// Where ours may differ from libmlx5's, each taken out of both sides:
///
/// * where headers fill basic blocks to the end and nothing was asked for, libmlx5 grants 2^32 - 4 bytes of inline
///   data, and asks the kernel for them;
/// * what is refused is refused with the same errno, but ours may see it before the kernel does;
/// * of a work queue the kernel answers what it was asked for, and libmlx5 passes it on; ours says what fits;
/// * a ring without entries has an address with libmlx5, that of an allocation of nothing; the kernel does not look
///   at it.
fn comparable(shape: Shape, outcome: &Outcome) -> Outcome {
    let mut outcome = outcome.clone();
    if let Some(rest) = outcome.said.strip_suffix(" 4294967292") {
        outcome.said = format!("{rest} 0");
    }
    if outcome.said.starts_with("errno") {
        outcome.calls.clear();
    } else if matches!(shape, Shape::Wq { .. }) {
        outcome.said.clear();
    }
    if matches!(shape, Shape::Cq { .. }) && outcome.said.split(' ').nth(1) != Some("0") {
        outcome.calls.truncate(1); // without the refused change of size
    }
    for call in &mut outcome.calls {
        let Recorded::Ioctl { method, attrs, .. } = call else {
            continue;
        };
        for attr in attrs {
            let data = &mut attr.data;
            match (&**method, &*attr.name) {
                // uapi `ib_uverbs_qp_cap`: max_inline_data at 16; two digits a byte
                ("UVERBS_METHOD_QP_CREATE", "UVERBS_ATTR_CREATE_QP_CAP")
                    if data.ends_with("fcffffff") =>
                {
                    data.replace_range(32..40, "00000000");
                }
                ("UVERBS_METHOD_QP_CREATE", "UVERBS_ATTR_UHW_IN") => {
                    // uapi `mlx5_ib_create_qp`: sq_wqe_count at 16, rq_wqe_count at 20, sq_buf_addr at 40
                    let no_sends = &data[32..40] == "00000000";
                    let no_receives = &data[40..48] == "00000000";
                    let separate = &data[80..96] != "0000000000000000";
                    if no_receives && (no_sends || separate) {
                        data.replace_range(0..16, "----------------");
                    }
                    if no_sends {
                        data.replace_range(80..96, "----------------");
                    }
                }
                _ => {}
            }
        }
    }
    outcome
}

/// Prints the attributes that differ.
fn show(official: &Recorded, ours: &Recorded) {
    let (Recorded::Ioctl { attrs: left, .. }, Recorded::Ioctl { attrs: right, .. }) =
        (official, ours)
    else {
        return;
    };
    for (left, right) in left.iter().zip(right).filter(|(left, right)| left != right) {
        println!(
            " official {} {}\n ours     {} {}",
            left.name, left.data, right.name, right.data
        );
    }
}

fn same(test: &str, settings: &str, environment: &[(&str, &str)]) {
    if !has_provider(test, "libmlx5-rdmav") {
        return;
    }
    let shapes = shape::shapes(0x5eed, 600);
    let ours = ours::outcomes(&shapes, settings, environment);
    for libraries in Libraries::all() {
        let official = official(&libraries, &shapes, settings, environment);
        let refused = official.iter().filter(|one| one.said.starts_with("errno"));
        let refused = refused.count();
        println!(
            "{libraries:?}, {settings} {environment:?}: {refused} of {} refused",
            shapes.len()
        );
        assert!(refused > 20 && refused < shapes.len() / 2, "{refused}");
        compare(&shapes, &official, &ours);
    }
}

fn compare(shapes: &[Shape], official: &[Outcome], ours: &[Outcome]) {
    let all = shapes.iter().zip(official).zip(ours);
    let different: Vec<_> = all
        .filter(|((shape, official), ours)| {
            comparable(**shape, official) != comparable(**shape, ours)
        })
        .collect();
    for ((shape, official), ours) in different.iter().take(5) {
        println!(
            "{shape}\n official {}\n ours     {}",
            official.said, ours.said
        );
        for (official, ours) in official.calls.iter().zip(&ours.calls) {
            show(official, ours);
        }
    }
    assert!(
        different.is_empty(),
        "{} of {}",
        different.len(),
        shapes.len()
    );
}

macro_rules! settings {
    ($( $name:ident $settings:literal $environment:expr; )*) => {$(
        /// B62
        #[test]
        fn $name() {
            let name = concat!("fake-kernel::same_control_mlx5::", stringify!($name));
            same(name, $settings, &$environment);
        }
    )*};
}

settings! {
    as_it_comes "mlx5" [];
    queues_by_number "mlx5,cqe-version=0" [];
    registers_of_the_context "mlx5,tot-bfregs=16" [];
    without_blue_flame "mlx5,no-bf" [];
    large_completions "mlx5" [("MLX5_CQE_SIZE", "128")];
    no_scatter_to_completions "mlx5" [("MLX5_SCATTER_TO_CQE", "0")];
    one_thread "mlx5" [("MLX5_SINGLE_THREADED", "1")];
    shut_up "mlx5" [("MLX5_SHUT_UP_BF", "1")];
    many_registers "mlx5" [("MLX5_TOTAL_UUARS", "64"), ("MLX5_NUM_LOW_LAT_UUARS", "32")];
    // of shared receive queues libmlx5 tells the kernel, but writes none; ours does neither
    signatures "mlx5" [("MLX5_QP_SIGNATURE", "1"), ("MLX5_RWQ_SIGNATURE", "1")];
    infiniband "mlx5,link=ib" [];
}

/// Completions of another size are a difference.
#[test]
#[should_panic(expected = "of 600")]
fn a_difference_is_noticed() {
    let shapes = shape::shapes(0x5eed, 600);
    let one = ours::outcomes(&shapes, "mlx5", &[]);
    let other = ours::outcomes(&shapes, "mlx5", &[("MLX5_CQE_SIZE", "128")]);
    compare(&shapes, &one, &one);
    compare(&shapes, &one, &other);
}
