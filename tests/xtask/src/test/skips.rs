//! The skips that may occur: `tests/allowed-skips.txt`.

use std::path::Path;

use anyhow::{Context as _, Result};

use super::counts::Counts;

/// Skips that were decided on. A line is a pattern for names, a tab, and why it may be skipped; `*` at
/// the end of a pattern stands for any rest.
#[derive(Debug)]
pub(crate) struct Allowed(Vec<String>);

impl Allowed {
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("the list of allowed skips, {}", path.display()))?;
        Ok(Self::parse(&text))
    }

    fn parse(text: &str) -> Self {
        let patterns = text
            .lines()
            .filter(|line| !line.starts_with('#') && !line.trim().is_empty())
            .map(|line| line.split('\t').next().unwrap_or(line).to_owned());
        Self(patterns.collect())
    }

    fn allows(&self, name: &str) -> bool {
        self.0
            .iter()
            .any(|pattern| match pattern.strip_suffix('*') {
                Some(start) => name.starts_with(start),
                None => name == pattern,
            })
    }

    /// Turns each skip that is not allowed into a failure.
    pub(crate) fn apply(&self, counts: &mut Counts) {
        let (allowed, new): (Vec<_>, Vec<_>) = counts
            .skipped
            .drain(..)
            .partition(|skip| self.allows(&skip.name));
        counts.skipped = allowed;
        for skip in new {
            counts.failed.push(format!(
                "{} (skipped: {}; not in tests/allowed-skips.txt)",
                skip.name, skip.reason
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_skip_fails() {
        let allowed = Allowed::parse("# comment\nlab::vfio*\tno VFIO yet\nasan\tneeds nightly\n");
        let mut counts = Counts::default();
        for name in ["lab::vfio::rc", "asan", "asan2"] {
            counts.add(Counts::skip(name, "why"));
        }
        allowed.apply(&mut counts);
        assert_eq!(counts.skipped.len(), 2);
        assert_eq!(counts.failed.len(), 1);
        assert!(counts.failed[0].starts_with("asan2 "));
    }
}
