//! Command line.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

/// Verbs behaviour, checked on an RDMA device.
///
/// Each case runs in a child process with a time limit. Without --peer both ends are on the same
/// device. The exit status is 0 only if cases ran and none failed.
#[derive(Clone, Debug, Parser)]
#[command(name = "hw-tests")]
pub(crate) struct Options {
    /// RDMA device, as `rdma link` names it; vfio:0000:3b:00.0 for one that vfio-pci has; `soft` and
    /// `soft-ib` for a ConnectX in software in this process, with a RoCE and an InfiniBand port, `soft-vf` and `soft-ib-vf`
    /// for a virtual function of one
    #[arg(long, required_unless_present = "list")]
    pub(crate) device: Option<String>,

    /// Port of the device
    #[arg(long, default_value_t = 1)]
    pub(crate) port: u8,

    /// Index in the port's GID table
    #[arg(long, default_value_t = 1)]
    pub(crate) gid_index: u32,

    /// Other end: HOST:TCPPORT of a hw-tests that runs with --serve
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) peer: Option<String>,

    /// Be the other end for a hw-tests with --peer, at this TCP address
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with_all = ["peer", "list", "prove"])]
    pub(crate) serve: Option<String>,

    /// Whose verbs are tested
    #[arg(long, value_enum, default_value_t = Provider::Core)]
    pub(crate) provider: Provider,

    /// Print the cases and what each needs, run nothing
    #[arg(long)]
    pub(crate) list: bool,

    /// Only cases whose names match this regular expression
    #[arg(long, value_name = "RE")]
    pub(crate) filter: Option<String>,

    /// Run the long cases too, which take minutes each
    #[arg(long)]
    pub(crate) long: bool,

    /// Write results (or, with --list, the list) to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    /// Start of the pseudo-random choices; printed, so that a run can be repeated
    #[arg(long)]
    pub(crate) seed: Option<u64>,

    /// Time limits are multiplied by this
    #[arg(long, default_value_t = 1)]
    pub(crate) slow: u32,

    /// Keep the device open from one case to the next, as long as they pass, instead of a process for each case [default:
    /// for vfio:... without --peer]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", conflicts_with = "peer")]
    pub(crate) keep_open: Option<bool>,

    /// Plant each fault in turn, and fail unless the cases that guard against it turn red
    #[arg(long)]
    pub(crate) prove: bool,

    /// Plant a fault between the suite and the device
    #[arg(long, hide = true, value_name = "FAULT")]
    pub(crate) plant: Option<crate::verbs::planted::Plant>,

    /// Run one case in this process
    #[arg(long, hide = true, value_name = "NAME")]
    pub(crate) run_case: Option<String>,

    /// Run cases, whose names come on standard input, in this process
    #[arg(long, hide = true)]
    pub(crate) run_cases: bool,

    /// Serve one peer on standard input
    #[arg(long, hide = true)]
    pub(crate) serve_one: bool,
}

/// Whose verbs are tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Provider {
    /// oxverbs' untyped core, below its typed API
    Core,
    /// The installed libibverbs, as a control of the suite itself
    Libibverbs,
}

impl Options {
    pub(crate) fn device(&self) -> &str {
        self.device.as_deref().unwrap_or_default()
    }

    /// Whether a device is opened once for many cases.
    pub(crate) fn keeps_open(&self) -> bool {
        let slow_to_open = self.device().starts_with("vfio:") && self.peer.is_none();
        self.keep_open
            .unwrap_or(slow_to_open && self.provider == Provider::Core)
    }

    /// The arguments that a child process needs to see the same device in the same way.
    pub(crate) fn for_child(&self, seed: u64) -> Vec<String> {
        let mut args = vec![
            format!("--device={}", self.device()),
            format!("--port={}", self.port),
            format!("--gid-index={}", self.gid_index),
            format!("--seed={seed}"),
        ];
        if self.provider == Provider::Libibverbs {
            args.push("--provider=libibverbs".to_owned());
        }
        if let Some(peer) = &self.peer {
            args.push(format!("--peer={peer}"));
        }
        args
    }
}
