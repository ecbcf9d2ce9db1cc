//! What the device's port counts, as a kernel tells of it in sysfs.

use std::collections::BTreeMap;
use std::fs;

/// Values by name; nothing where sysfs has no counters of the device.
pub(crate) type Counters = BTreeMap<String, u64>;

/// The counters of a port: the ones of InfiniBand (`counters`) and the driver's own (`hw_counters`).
pub(crate) fn read(device: &str, port: u8) -> Counters {
    let mut all = Counters::new();
    for kind in ["counters", "hw_counters"] {
        let directory = format!("/sys/class/infiniband/{device}/ports/{port}/{kind}");
        let Ok(entries) = fs::read_dir(directory) else {
            continue;
        };
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let text = fs::read_to_string(entry.path()).unwrap_or_default();
            // Settings in the same place (lifespan) are no counters; neither is what the device does not answer.
            if name != "lifespan"
                && let Ok(value) = text.trim().parse()
            {
                all.insert(format!("{kind}/{name}"), value);
            }
        }
    }
    all
}

/// Counters that stand still while all goes well: of packets that were lost, refused or came in disorder, and of requests
/// that failed (names as Linux' `mlx5/counters.c`, `rxe_hw_counters.c` and `core/sysfs.c` have them).
pub(crate) const OF_TROUBLE: &[&str] = &[
    "counters/symbol_error",
    "counters/port_rcv_errors",
    "counters/local_link_integrity_errors",
    "counters/link_downed",
    "hw_counters/out_of_sequence",
    "hw_counters/packet_seq_err",
    "hw_counters/req_cqe_error",
    "hw_counters/resp_cqe_error",
    "hw_counters/req_remote_access_errors",
    "hw_counters/resp_remote_access_errors",
    "hw_counters/local_ack_timeout_err",
    "hw_counters/implied_nak_seq_err",
    "hw_counters/rnr_nak_retry_err",
    "hw_counters/retry_exceeded_err",
];
