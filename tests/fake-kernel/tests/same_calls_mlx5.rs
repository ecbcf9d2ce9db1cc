//! The plug-in makes the same kernel calls as libmlx5, byte for byte, for a program that makes one of everything:
//! sizes of rings, flags, user indices, doorbell pages, and the order of all calls.

mod common;

use std::path::Path;

use common::{compile, has_provider, on_fake, succeed};
use fake_kernel::record::Recorded;

/// The calls of one part of `mlx5_calls.c` under one provider.
fn calls(dir: &Path, plugin: Option<&Path>, settings: &str, part: &str) -> Vec<Recorded> {
    let provider = if plugin.is_some() {
        "oxverbs"
    } else {
        "libmlx5"
    };
    let record = dir.join(format!("{provider}-{part}"));
    let mut command = on_fake(&dir.join("mlx5_calls"), settings);
    command.arg(part);
    command.env("OXVERBS_FAKE_RECORD", &record);
    command.env("EXPECT_PROVIDER", provider);
    if let Some(plugin) = plugin {
        command.env("IBV_DRIVERS", plugin);
        // mlx5 devices are ours on request only
        command.env("OXVERBS_DEVICES", "mlx5_0");
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

fn frees_page(call: &Recorded) -> bool {
    matches!(call, Recorded::Ioctl { method, .. } if method == "MLX5_IB_METHOD_UAR_OBJ_DESTROY")
}

fn is_firmware_query(call: &Recorded) -> bool {
    matches!(call, Recorded::Ioctl { method, .. } if method == "MLX5_IB_METHOD_DEVX_OTHER")
}

/// Allowed divergences, each taken out of both sides:
///
/// * the plug-in asks once more than libibverbs whether the ioctl takes write commands, since it does not look
///   into libibverbs' private answer;
/// * libmlx5 asks the firmware for its capabilities (DEVX_OTHER), of which it uses what only mlx5dv offers;
/// * when a context is closed, doorbell pages are given back in another order, and libmlx5 leaves one to the kernel;
/// * a ring without entries has an address with libmlx5, that of an allocation of nothing; the kernel does not look
///   at it;
/// * libmlx5 before 50 has no room for the last field of the answer to query_device (`reg_c0`).
fn comparable(calls: Vec<Recorded>) -> Vec<Recorded> {
    let mut calls: Vec<_> = calls
        .into_iter()
        .filter(|call| !is_probe(call) && !is_firmware_query(call))
        .collect();
    while calls.last().is_some_and(frees_page) {
        calls.pop();
    }
    for call in &mut calls {
        if let Recorded::Ioctl { command, attrs, .. } = call
            && command.as_deref() == Some("IB_USER_VERBS_EX_CMD_QUERY_DEVICE")
        {
            for attr in attrs {
                if attr.name == "UVERBS_ATTR_UHW_OUT" && attr.len == 104 {
                    attr.len = 112;
                }
            }
        }
    }
    for call in &mut calls {
        // uapi `ib_uverbs_ex_cmd_hdr` behind a header of 8: provider_out_words at 10; two digits a byte
        if let Recorded::Write { command, bytes } = call
            && command == "IB_USER_VERBS_EX_CMD_QUERY_DEVICE"
            && &bytes[36..40] == "0d00"
        {
            bytes.replace_range(36..40, "0e00");
        }
    }
    for call in &mut calls {
        if let Recorded::Ioctl { method, attrs, .. } = call
            && method == "UVERBS_METHOD_QP_CREATE"
        {
            let input = attrs
                .iter_mut()
                .find(|attr| attr.name == "UVERBS_ATTR_UHW_IN" && attr.len == 56);
            // uapi `mlx5_ib_create_qp`: sq_wqe_count at 16, rq_wqe_count at 20; two digits a byte
            if let Some(input) = input
                && input.data[32..48].bytes().all(|digit| digit == b'0')
            {
                input.data.replace_range(0..16, "----------------");
            }
        }
    }
    calls
}

/// Where two calls differ.
fn difference(official: &Recorded, ours: &Recorded) -> String {
    if let (
        Recorded::Ioctl {
            method: left_method,
            command: left_command,
            attrs: left,
            ..
        },
        Recorded::Ioctl {
            method,
            command,
            attrs,
            ..
        },
    ) = (official, ours)
        && (left_method, left_command, left.len()) == (method, command, attrs.len())
    {
        let pairs = left.iter().zip(attrs).filter(|(left, right)| left != right);
        let lines = pairs.map(|(left, right)| format!("\n {left:?}\n {right:?}"));
        return format!("{method} {command:?}{}", lines.collect::<String>());
    }
    format!("\n {official:?}\n {ours:?}")
}

const SETTINGS: [&str; 7] = [
    "mlx5",
    "mlx5,no-bf",
    "mlx5,tot-bfregs=16",
    "mlx5,cqe-version=0",
    "mlx5,link=ib",
    "mlx5,no-invoke-write",
    "mlx5,tot-bfregs=16,no-ioctl",
];

/// Why a part is not compared under a setting.
fn left_out(part: &str, settings: &str) -> Option<&'static str> {
    let is = |setting| settings.contains(setting);
    match part {
        "thread_domains" if is("no-bf") => {
            Some("libmlx5 before 60 wants a page for BlueFlame of a device that has none")
        }
        "spreading" if is("cqe-version=0") => {
            Some("libmlx5 gives work queues numbers that no completion carries")
        }
        "queue_pairs" if is("link=ib") => Some("the program's way to RTS goes over Ethernet"),
        "raw_packets" | "spreading" | "reliable_domains" | "opened_queue_pairs"
        | "device_memory"
            if is("no-ioctl") =>
        {
            Some("the fake kernel has these by the ioctl only")
        }
        _ => None,
    }
}

fn same(test: &str, part: &str) {
    if !has_provider(test, "libmlx5-rdmav") {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    compile("mlx5_calls", dir.path());
    let plugin = common::plugin(dir.path());
    for settings in SETTINGS {
        if let Some(reason) = left_out(part, settings) {
            println!("{settings}, {part}: not compared, {reason}");
            continue;
        }
        let official = comparable(calls(dir.path(), None, settings, part));
        let ours = comparable(calls(dir.path(), Some(&plugin), settings, part));
        for (index, (official, ours)) in official.iter().zip(&ours).enumerate() {
            assert!(
                official == ours,
                "{settings}, {part}, call {index}: {}",
                difference(official, ours)
            );
        }
        assert_eq!(official.len(), ours.len(), "{settings}, {part}");
        println!("{settings}, {part}: {} calls equal", ours.len());
    }
}

macro_rules! parts {
    ($($name:ident)*) => {$(
        /// B62
        #[test]
        fn $name() {
            let name = stringify!($name);
            same(&format!("fake-kernel::same_calls_mlx5::{name}"), name);
        }
    )*};
}

// All parts but that of queue pairs that send as another (below IPoIB), which ours refuses to make.
parts! {
    queries
    memory
    completion_queues
    shared_receive_queues
    queue_pairs
    raw_packets
    reliable_domains
    address_handles
    spreading
    steering
    device_memory
    thread_domains
    multicast
    opened_queue_pairs
}
