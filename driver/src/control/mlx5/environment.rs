//! The environment variables that users of libmlx5 set (rdma-core 56, `providers/mlx5`).
//!
//! Read once per context into plain values. Numbers are read as C's `atoi` and `strtol` read them, so
//! that a setting which worked still means the same, and what is no number means 0.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::sys::errno::Errno;

/// Doorbell registers of a UAR that are for all (PRM: the other two are for fast-path interrupts;
/// `MLX5_NUM_NON_FP_BFREGS_PER_UAR`).
pub const BFREGS_PER_UAR: u32 = 2;
/// Bytes of a UAR as the device counts them, whatever the pages of the system are.
pub const UAR_SIZE: usize = 4096;
/// Most registers that a process can ask for (`MLX5_MAX_BFREGS`: 256 UARs).
const MAX_BFREGS: i32 = 512;
/// Registers that a process asks for by itself (`MLX5_DEF_TOT_UUARS`).
const DEFAULT_BFREGS: i32 = 16;
/// Registers above this number are low-latency ones whatever the environment says
/// (`MLX5_MED_BFREGS_TSHOLD`).
const MEDIUM_BFREGS: i32 = 12;

/// Where the memory of queues comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Allocation {
    /// Ordinary pages.
    #[default]
    Anonymous,
    /// Huge pages, or failure.
    Huge,
    /// Huge pages, or ordinary ones.
    PreferHuge,
}

/// Kinds of queues that have settings of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueKind {
    /// Completion queues.
    Cq,
    /// Queue pairs of reliable connections.
    Rc,
    /// Queue pairs of unreliable connections.
    Uc,
    /// Queue pairs of datagrams.
    Ud,
    /// Queue pairs of Ethernet frames.
    RawPacket,
    /// Other queue pairs.
    OtherQp,
    /// Shared receive queues.
    Srq,
    /// Work queues.
    Rwq,
}

/// What the environment says about mlx5.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// `MLX5_TOTAL_UUARS`: doorbell registers.
    pub total_bfregs: i32,
    /// `MLX5_NUM_LOW_LAT_UUARS`: those of them that one queue pair alone may use.
    pub low_latency_bfregs: i32,
    /// `MLX5_POST_SEND_PREFER_BF`: BlueFlame for requests without inline data too.
    pub prefer_blue_flame: bool,
    /// `MLX5_SHUT_UP_BF`: no BlueFlame.
    pub no_blue_flame: bool,
    /// `MLX5_SINGLE_THREADED`: the program vouches that no two threads come at once.
    pub single_threaded: bool,
    /// `MLX5_CQE_SIZE`: bytes of a completion, checked where one is made.
    pub cqe_size: i32,
    /// `MLX5_SCATTER_TO_CQE`: short messages arrive within completions.
    pub scatter_to_cqe: bool,
    /// `MLX5_QP_SIGNATURE`: requests carry signatures.
    pub qp_signature: bool,
    /// `MLX5_RWQ_SIGNATURE`: so do those of work queues.
    pub rwq_signature: bool,
    /// `MLX5_DEBUG_FILE`: where dumps and warnings go.
    pub debug_file: Option<PathBuf>,
    /// `MLX5_FREEZE_ON_ERROR_CQE`: stop the program at an error completion.
    pub freeze_on_error: bool,
    qp: Option<Allocation>,
    cq: Option<Allocation>,
    srq: Option<Allocation>,
    rwq: Option<Allocation>,
    huge: Vec<QueueKind>,
    warnings: Vec<String>,
}

impl Default for Environment {
    /// An empty environment.
    fn default() -> Self {
        Self::read(|_| None)
    }
}

impl Environment {
    /// The environment of the process.
    pub fn of_process() -> Self {
        Self::read(|name| std::env::var_os(name))
    }

    /// An environment in which `get` finds variables.
    pub fn read(get: impl Fn(&str) -> Option<OsString>) -> Self {
        let text = |name: &str| get(name).map(|value| value.to_string_lossy().into_owned());
        let number = |name: &str, default| text(name).map_or(default, |value| atoi(&value));
        let not_zero = |name: &str, default| text(name).map_or(default, |value| value != "0");
        let mut warnings = Vec::new();
        let mut allocation = |prefix: &str| {
            let name = format!("{prefix}_ALLOC_TYPE");
            let value = text(&name)?;
            let (kind, clear) = match value.to_ascii_uppercase().as_str() {
                "ANON" => (Some(Allocation::Anonymous), true),
                "HUGE" => (Some(Allocation::Huge), true),
                "PREFER_HUGE" => (Some(Allocation::PreferHuge), true),
                // both try contiguous pages and huge ones before ordinary ones
                "ALL" => (Some(Allocation::PreferHuge), true),
                // physically contiguous memory left the kernel's mlx5 driver long ago
                "CONTIG" | "PREFER_CONTIG" => (Some(Allocation::Anonymous), false),
                _ => (None, false),
            };
            if !clear {
                warnings.push(format!("{name}={value} has no effect"));
            }
            kind
        };
        let qp = allocation("MLX_QP");
        let cq = allocation("MLX_CQ");
        let srq = allocation("MLX_SRQ");
        let rwq = allocation("MLX_RWQ");
        let huge = [
            ("HUGE_CQ", QueueKind::Cq),
            ("HUGE_RC", QueueKind::Rc),
            ("HUGE_UC", QueueKind::Uc),
            ("HUGE_UD", QueueKind::Ud),
            ("HUGE_RAW_ETH", QueueKind::RawPacket),
        ];
        let huge = huge
            .into_iter()
            .filter(|(name, _)| text(name).as_deref() == Some("y"))
            .map(|(_, kind)| kind)
            .collect();
        let names = ["QP", "CQ", "SRQ", "RWQ"].into_iter().flat_map(|queue| {
            ["MAX", "MIN"].map(|end| format!("MLX_{queue}_{end}_LOG2_CONTIG_BSIZE"))
        });
        // libmlx5 tells the kernel of the signature of a shared receive queue's entries, but writes none
        let others = [
            // what it chooses is written by builds of libmlx5 for debugging only
            "MLX5_DEBUG_MASK",
            "MLX5_LOCAL_CPUS",
            "MLX5_SRQ_SIGNATURE",
            "MLX_MR_ALLOC_TYPE",
            // a poll that found nothing is not followed by a pause
            "MLX5_STALL_CQ_POLL",
            "MLX5_STALL_NUM_LOOP",
            "MLX5_STALL_CQ_POLL_MIN",
            "MLX5_STALL_CQ_POLL_MAX",
            "MLX5_STALL_CQ_INC_STEP",
            "MLX5_STALL_CQ_DEC_STEP",
        ];
        for name in names.chain(others.map(String::from)) {
            if get(&name).is_some() {
                warnings.push(format!("{name} has no effect"));
            }
        }
        Self {
            total_bfregs: number("MLX5_TOTAL_UUARS", DEFAULT_BFREGS),
            low_latency_bfregs: number("MLX5_NUM_LOW_LAT_UUARS", 4),
            prefer_blue_flame: not_zero("MLX5_POST_SEND_PREFER_BF", true),
            no_blue_flame: not_zero("MLX5_SHUT_UP_BF", false),
            single_threaded: text("MLX5_SINGLE_THREADED").as_deref() == Some("1"),
            cqe_size: number("MLX5_CQE_SIZE", 64),
            scatter_to_cqe: not_zero("MLX5_SCATTER_TO_CQE", true),
            qp_signature: get("MLX5_QP_SIGNATURE").is_some(),
            rwq_signature: get("MLX5_RWQ_SIGNATURE").is_some(),
            debug_file: get("MLX5_DEBUG_FILE").map(PathBuf::from),
            freeze_on_error: text("MLX5_FREEZE_ON_ERROR_CQE")
                .is_some_and(|value| strtol(&value) != 0),
            qp,
            cq,
            srq,
            rwq,
            huge,
            warnings,
        }
    }

    /// Settings that were accepted and do nothing, in words.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Where the memory of such a queue comes from.
    pub fn allocation(&self, kind: QueueKind) -> Allocation {
        let set = match kind {
            QueueKind::Cq => self.cq,
            QueueKind::Srq => self.srq,
            QueueKind::Rwq => self.rwq,
            _ => self.qp,
        };
        set.unwrap_or(if self.huge.contains(&kind) {
            Allocation::Huge
        } else {
            Allocation::Anonymous
        })
    }

    /// Doorbell registers to ask the kernel for: all of them, and the low-latency ones among them.
    ///
    /// A register that is not a low-latency one always remains. `EINVAL` and `ENOMEM` as from libmlx5,
    /// which does not open a device then.
    pub fn bfregs(&self, page_size: usize) -> Result<(u32, u32), Errno> {
        if self.total_bfregs < 1 || self.low_latency_bfregs < 0 {
            return Err(Errno(libc::EINVAL));
        }
        let per_page = i32::try_from(page_size / UAR_SIZE).map_err(|_| Errno(libc::EINVAL))?
            * BFREGS_PER_UAR.cast_signed();
        let total = self.total_bfregs.max(per_page);
        let total = total.checked_add(total % 2).ok_or(Errno(libc::ENOMEM))?;
        if total > MAX_BFREGS {
            return Err(Errno(libc::ENOMEM));
        }
        let low_latency = self.low_latency_bfregs.max(total - MEDIUM_BFREGS);
        if low_latency > total - 1 {
            return Err(Errno(libc::ENOMEM));
        }
        Ok((total.cast_unsigned(), low_latency.cast_unsigned()))
    }
}

/// C's `atoi`, without its undefined overflow.
fn atoi(text: &str) -> i32 {
    let (text, negative) = sign(text);
    clamp(digits(text, 10), negative)
        .try_into()
        .unwrap_or(if negative { i32::MIN } else { i32::MAX })
}

/// C's `strtol` with base 0.
fn strtol(text: &str) -> i64 {
    let (text, negative) = sign(text);
    let hex = text.strip_prefix("0x").or(text.strip_prefix("0X"));
    let value = match hex {
        Some(hex) => digits(hex, 16),
        None if text.starts_with('0') => digits(text, 8),
        None => digits(text, 10),
    };
    clamp(value, negative)
}

fn sign(text: &str) -> (&str, bool) {
    let text = text.trim_start_matches([' ', '\t', '\n', '\x0b', '\x0c', '\r']);
    match text.strip_prefix('-') {
        Some(rest) => (rest, true),
        None => (text.strip_prefix('+').unwrap_or(text), false),
    }
}

fn digits(text: &str, base: u32) -> i64 {
    text.chars()
        .map_while(|digit| digit.to_digit(base))
        .fold(0, |value: i64, digit| {
            value
                .saturating_mul(base.into())
                .saturating_add(digit.into())
        })
}

fn clamp(value: i64, negative: bool) -> i64 {
    match (value, negative) {
        (i64::MAX, true) => i64::MIN,
        (_, true) => -value,
        (_, false) => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(variables: &[(&str, &str)]) -> Environment {
        Environment::read(|name| {
            let (_, value) = variables.iter().find(|(set, _)| *set == name)?;
            Some(OsString::from(value))
        })
    }

    #[test]
    fn nothing_set() {
        let env = Environment::default();
        assert_eq!(env.bfregs(4096), Ok((16, 4)));
        assert!(env.prefer_blue_flame && env.scatter_to_cqe && !env.no_blue_flame);
        assert_eq!(env.cqe_size, 64);
        assert_eq!(env.allocation(QueueKind::Rc), Allocation::Anonymous);
        assert!(env.warnings().is_empty());
    }

    #[test]
    fn all_twenty_names() {
        let env = with(&[
            ("MLX5_TOTAL_UUARS", "33"),
            ("MLX5_NUM_LOW_LAT_UUARS", "30"),
            ("MLX5_POST_SEND_PREFER_BF", "0"),
            ("MLX5_SHUT_UP_BF", "1"),
            ("MLX5_SINGLE_THREADED", "1"),
            ("MLX5_CQE_SIZE", "128"),
            ("MLX5_SCATTER_TO_CQE", "0"),
            ("MLX5_QP_SIGNATURE", "0"),
            ("MLX5_SRQ_SIGNATURE", ""),
            ("MLX5_RWQ_SIGNATURE", "1"),
            ("MLX5_DEBUG_FILE", "/tmp/mlx5.log"),
            ("MLX5_DEBUG_MASK", "0x1f"),
            ("MLX5_FREEZE_ON_ERROR_CQE", "1"),
            ("MLX5_LOCAL_CPUS", "ff"),
            ("MLX5_STALL_CQ_POLL", "1"),
            ("MLX5_STALL_NUM_LOOP", "-1"),
            ("MLX5_STALL_CQ_POLL_MIN", "2"),
            ("MLX5_STALL_CQ_POLL_MAX", "3"),
            ("MLX5_STALL_CQ_INC_STEP", "4"),
            ("MLX5_STALL_CQ_DEC_STEP", "5"),
        ]);
        assert_eq!(env.bfregs(4096), Ok((34, 30)));
        assert!(!env.prefer_blue_flame && env.no_blue_flame && env.single_threaded);
        assert!(!env.scatter_to_cqe && env.freeze_on_error);
        // present is enough for these
        assert!(env.qp_signature && env.rwq_signature);
        assert_eq!(env.cqe_size, 128);
        assert_eq!(env.debug_file, Some(PathBuf::from("/tmp/mlx5.log")));
        let ignored = [
            "MLX5_DEBUG_MASK",
            "MLX5_LOCAL_CPUS",
            "MLX5_SRQ_SIGNATURE",
            "MLX5_STALL_CQ_POLL",
            "MLX5_STALL_NUM_LOOP",
            "MLX5_STALL_CQ_POLL_MIN",
            "MLX5_STALL_CQ_POLL_MAX",
            "MLX5_STALL_CQ_INC_STEP",
            "MLX5_STALL_CQ_DEC_STEP",
        ];
        assert_eq!(
            env.warnings(),
            ignored.map(|name| format!("{name} has no effect"))
        );
    }

    #[test]
    fn memory_of_queues() {
        let env = with(&[
            ("MLX_QP_ALLOC_TYPE", "prefer_huge"),
            ("MLX_CQ_ALLOC_TYPE", "CONTIG"),
            ("MLX_SRQ_ALLOC_TYPE", "nonsense"),
            ("HUGE_CQ", "y"),
            ("HUGE_RC", "y"),
            ("HUGE_UD", "yes"),
        ]);
        assert_eq!(env.allocation(QueueKind::Rc), Allocation::PreferHuge);
        assert_eq!(env.allocation(QueueKind::Cq), Allocation::Anonymous);
        assert_eq!(env.allocation(QueueKind::Srq), Allocation::Anonymous);
        assert_eq!(env.warnings().len(), 2);
        let env = with(&[("HUGE_CQ", "y"), ("HUGE_UD", "yes")]);
        assert_eq!(env.allocation(QueueKind::Cq), Allocation::Huge);
        assert_eq!(env.allocation(QueueKind::Ud), Allocation::Anonymous);
    }

    #[test]
    fn registers_as_libmlx5_counts_them() {
        let bfregs = |total: &str, low: &str, page| {
            with(&[("MLX5_TOTAL_UUARS", total), ("MLX5_NUM_LOW_LAT_UUARS", low)]).bfregs(page)
        };
        assert_eq!(bfregs("1", "1", 4096), Ok((2, 1)));
        assert_eq!(bfregs("2", "2", 4096), Err(Errno(libc::ENOMEM)));
        assert_eq!(bfregs("16", "15", 4096), Ok((16, 15)));
        assert_eq!(bfregs("16", "16", 4096), Err(Errno(libc::ENOMEM)));
        assert_eq!(bfregs("32", "1", 4096), Ok((32, 20)));
        // all registers of one page
        assert_eq!(bfregs("16", "4", 65536), Ok((32, 20)));
        assert_eq!(bfregs("0", "0", 4096), Err(Errno(libc::EINVAL)));
        assert_eq!(bfregs("x", "0", 4096), Err(Errno(libc::EINVAL)));
        assert_eq!(bfregs("16", "-1", 4096), Err(Errno(libc::EINVAL)));
        assert_eq!(bfregs("513", "0", 4096), Err(Errno(libc::ENOMEM)));
        assert_eq!(bfregs("2147483647", "0", 4096), Err(Errno(libc::ENOMEM)));
    }

    #[test]
    fn numbers_as_c_reads_them() {
        assert_eq!(atoi(" 12abc"), 12);
        assert_eq!(atoi("-7"), -7);
        assert_eq!(atoi("+7"), 7);
        assert_eq!(atoi("0x10"), 0);
        assert_eq!(atoi(""), 0);
        assert_eq!(atoi("99999999999999999999"), i32::MAX);
        assert_eq!(atoi("-99999999999999999999"), i32::MIN);
        assert_eq!(strtol("010"), 8);
        assert_eq!(strtol("0XfF"), 255);
        assert_eq!(strtol("-3"), -3);
    }
}
