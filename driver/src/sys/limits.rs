//! Limits that the process runs under.

use std::fs;

/// `RLIMIT_MEMLOCK` in bytes; `None` is unlimited.
pub fn memlock() -> Option<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is writable and outlives the call.
    let failed = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) } != 0;
    (!failed && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// KiB that devices pin of this process (`VmPin`), which count against [`memlock`].
pub fn pinned_kib() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmPin:"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn linux_tells_pinned_memory() {
        assert_eq!(super::pinned_kib(), Some(0));
    }
}
