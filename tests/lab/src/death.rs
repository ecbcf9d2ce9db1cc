//! Why a guest died, told from its console.

use std::fmt;

/// Most lines of the console shown with a death.
const TAIL: usize = 40;

/// A guest that ended although nobody asked it to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestDied {
    /// The step that was running, or what the guest was doing.
    pub during: String,
    /// The console's most telling line, or what else is known.
    pub cause: String,
    /// The console around the cause, or its end.
    pub console: String,
}

impl GuestDied {
    pub(crate) fn new(during: String, fallback: &str, console: &str) -> Self {
        let lines: Vec<&str> = console
            .lines()
            .map(str::trim_end)
            .filter(|line| !line.is_empty())
            .collect();
        let fatal = lines.iter().position(|line| is_fatal(without_time(line)));
        let cause = fatal
            .map_or(fallback, |at| without_time(lines[at]))
            .to_owned();
        // What led to the fault tells more than the end of its trace.
        let from = match fatal {
            Some(at) => at.saturating_sub(8),
            None => lines.len().saturating_sub(TAIL),
        };
        let console = lines[from..]
            .iter()
            .take(TAIL)
            .copied()
            .collect::<Vec<_>>()
            .join("\n");
        Self {
            during,
            cause,
            console,
        }
    }
}

impl fmt::Display for GuestDied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the guest died during {}: {}", self.during, self.cause)?;
        if !self.console.is_empty() {
            write!(f, "\n--- the guest's console ---\n{}\n---", self.console)?;
        }
        Ok(())
    }
}

impl std::error::Error for GuestDied {}

/// Names a fatal fault, or the panic itself.
fn is_fatal(line: &str) -> bool {
    const FATAL: [&str; 8] = [
        "BUG: ",
        "Oops: ",
        "general protection fault",
        "kernel BUG at",
        "Kernel panic - not syncing",
        "Out of memory and no killable",
        "lab: no root",
        "lab: cannot mount",
    ];
    FATAL.iter().any(|mark| line.contains(mark))
}

/// Warnings and faults of a kernel that lived on, one line each.
pub fn complaints(console: &str) -> Vec<String> {
    // The console has the mlx5 drivers' errors, not their warnings.
    const MARKS: [&str; 7] = [
        "WARNING: ",
        "BUG: ",
        "Oops: ",
        "UBSAN: ",
        "blocked for more than",
        "self-detected stall",
        "mlx5_",
    ];
    let lines = console.lines().map(without_time);
    lines
        .filter(|line| MARKS.iter().any(|mark| line.contains(mark)))
        .map(|line| line.trim_end().to_owned())
        .collect()
}

/// Without the kernel's `[   12.345678] `.
fn without_time(line: &str) -> &str {
    match line
        .strip_prefix('[')
        .and_then(|rest| rest.split_once("] "))
    {
        Some((time, rest)) if time.trim().parse::<f64>().is_ok() => rest,
        _ => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_fatal_line_is_the_cause() {
        let console = "[    1.0] hello\r\n[    4.25] sysrq: Trigger a crash\r\n\
                       [    4.26] Kernel panic - not syncing: sysrq triggered crash\r\n[    4.3] Call Trace:\r\n";
        let death = GuestDied::new("step x".into(), "QEMU ended", console);
        assert_eq!(
            death.cause,
            "Kernel panic - not syncing: sysrq triggered crash"
        );
        assert!(
            death
                .to_string()
                .starts_with("the guest died during step x: Kernel panic")
        );
        let oops = "[ 2.0] BUG: kernel NULL pointer dereference, address: 0\n[ 2.1] Kernel panic - not syncing: Fatal exception\n";
        assert!(
            GuestDied::new(String::new(), "", oops)
                .cause
                .starts_with("BUG: kernel NULL")
        );
        assert_eq!(
            GuestDied::new(String::new(), "QEMU ended", "").cause,
            "QEMU ended"
        );
    }

    #[test]
    fn complaints_of_a_living_kernel() {
        let console = "[ 3.0] ------------[ cut here ]------------\n[ 3.0] WARNING: CPU: 0 PID: 1 at x.c:3\n[ 4.0] fine\n";
        assert_eq!(complaints(console), ["WARNING: CPU: 0 PID: 1 at x.c:3"]);
    }
}
