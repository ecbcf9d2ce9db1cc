//! The plug-in makes the same kernel calls as the official provider, byte for byte, for a program that uses
//! every verb rxe has: control commands and doorbells, in order and number.

mod common;

use common::{compile, has_official, on_fake, succeed};
use fake_kernel::record::Recorded;

/// The calls of `traffic.c` under one provider.
fn calls(dir: &std::path::Path, provider: &str, settings: &str) -> Vec<Recorded> {
    let program = dir.join("traffic");
    let record = dir.join(provider);
    let mut command = on_fake(&program, settings);
    command.env("OXVERBS_FAKE_RECORD", &record);
    command.env("EXPECT_PROVIDER", provider);
    if provider == "oxverbs" {
        command.env("IBV_DRIVERS", common::plugin(dir));
    }
    assert_eq!(succeed(command), "ok\n");
    let lines = std::fs::read_to_string(&record).expect("a recording");
    lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("a recorded call"))
        .collect()
}

/// The question whether the ioctl takes write commands.
fn is_probe(call: &Recorded) -> bool {
    let Recorded::Ioctl { method, attrs, .. } = call else {
        return false;
    };
    method == "UVERBS_METHOD_INVOKE_WRITE" && attrs.len() == 1
}

/// Allowed divergences, each taken out of both sides:
///
/// * the plug-in asks once more than libibverbs whether the ioctl takes write commands, since it does not look
///   into libibverbs' private answer;
/// * for a queue pair with a shared receive queue it asks for no receive queue of its own, where the official
///   provider passes on what the program left in `max_recv_wr` and `max_recv_sge`; the kernel ignores both.
fn comparable(calls: Vec<Recorded>) -> Vec<Recorded> {
    let mut calls: Vec<_> = calls.into_iter().filter(|call| !is_probe(call)).collect();
    for call in &mut calls {
        match call {
            Recorded::Ioctl { attrs, .. } => {
                let has_srq = attrs
                    .iter()
                    .any(|attr| attr.name == "UVERBS_ATTR_CREATE_QP_SRQ_HANDLE");
                for attr in attrs {
                    if has_srq && attr.name == "UVERBS_ATTR_CREATE_QP_CAP" {
                        // uapi `ib_uverbs_qp_cap`: max_recv_wr at 4, max_recv_sge at 12; two digits a byte.
                        blank(&mut attr.data, 4);
                        blank(&mut attr.data, 12);
                    }
                }
            }
            Recorded::Write { command, bytes } => {
                // uapi `ib_uverbs_create_qp` behind a header of 8: is_srq at 54, the two at 36 and 44.
                let is_srq = |bytes: &str| bytes.get(124..126) == Some("01");
                if command == "IB_USER_VERBS_CMD_CREATE_QP" && is_srq(bytes) {
                    blank(bytes, 8 + 36);
                    blank(bytes, 8 + 44);
                }
            }
        }
    }
    calls
}

/// Replaces the 4 bytes at `at`.
fn blank(hex: &mut String, at: usize) {
    hex.replace_range(2 * at..2 * at + 8, "--------");
}

fn same(test: &str, settings: &str) {
    if !has_official(test) {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    compile("traffic", dir.path());
    let official = comparable(calls(dir.path(), "librxe", settings));
    let ours = comparable(calls(dir.path(), "oxverbs", settings));
    assert!(official.len() > 500, "only {} calls", official.len());
    for (index, (official, ours)) in official.iter().zip(&ours).enumerate() {
        assert_eq!(official, ours, "call {index}");
    }
    assert_eq!(official.len(), ours.len());
    println!("{} calls equal", ours.len());
}

/// B62: on Linux 6.12.
#[test]
fn by_ioctl() {
    same("fake-kernel::same_calls::by_ioctl", "");
}

/// B62: on a kernel without the ioctl.
#[test]
fn by_write() {
    same("fake-kernel::same_calls::by_write", "no-ioctl");
}
