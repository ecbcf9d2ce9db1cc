//! Order of Debian versions (Debian Policy §5.6.12).

use std::cmp::Ordering;

/// Compares `[epoch:]upstream[-revision]` strings as dpkg does.
pub fn compare(a: &str, b: &str) -> Ordering {
    let (epoch_a, upstream_a, revision_a) = split(a);
    let (epoch_b, upstream_b, revision_b) = split(b);
    epoch_a
        .cmp(&epoch_b)
        .then_with(|| compare_part(upstream_a, upstream_b))
        .then_with(|| compare_part(revision_a, revision_b))
}

fn split(version: &str) -> (u64, &str, &str) {
    let (epoch, rest) = match version.split_once(':') {
        Some((epoch, rest)) => (epoch.parse().unwrap_or(0), rest),
        None => (0, version),
    };
    let (upstream, revision) = rest.rsplit_once('-').unwrap_or((rest, ""));
    (epoch, upstream, revision)
}

/// `~` sorts before the end of the part, letters before everything else.
fn weight(byte: Option<u8>) -> i32 {
    match byte {
        Some(b'~') => -1,
        None => 0,
        Some(digit) if digit.is_ascii_digit() => 0,
        Some(letter) if letter.is_ascii_alphabetic() => i32::from(letter),
        Some(other) => i32::from(other) + 256,
    }
}

/// Alternates between a run of non-digits (compared by [`weight`]) and a number.
fn compare_part(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a.as_bytes(), b.as_bytes());
    loop {
        let is_text = |s: &[u8]| s.first().is_some_and(|byte| !byte.is_ascii_digit());
        while is_text(a) || is_text(b) {
            let order = weight(a.first().copied()).cmp(&weight(b.first().copied()));
            if order != Ordering::Equal {
                return order;
            }
            a = a.get(1..).unwrap_or_default();
            b = b.get(1..).unwrap_or_default();
        }
        let (number_a, rest_a) = take_number(a);
        let (number_b, rest_b) = take_number(b);
        // Longer means larger once leading zeros are gone, whatever the width.
        let order = number_a
            .len()
            .cmp(&number_b.len())
            .then_with(|| number_a.cmp(number_b));
        if order != Ordering::Equal {
            return order;
        }
        (a, b) = (rest_a, rest_b);
        if a.is_empty() && b.is_empty() {
            return Ordering::Equal;
        }
    }
}

fn take_number(s: &[u8]) -> (&[u8], &[u8]) {
    let end = s
        .iter()
        .position(|byte| !byte.is_ascii_digit())
        .unwrap_or(s.len());
    let zeros = s[..end].iter().take_while(|&&byte| byte == b'0').count();
    (&s[zeros..end], &s[end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_dpkgs() {
        // Each pair was confirmed with `dpkg --compare-versions A lt B`.
        let ascending = [
            ("1.0~rc1-1", "1.0-1"),
            ("1.0-1~bpo13+1", "1.0-1"),
            ("6.12.9-1", "6.12.117-1"),
            ("9:1", "10:0"),
            ("2.36-9+deb12u9", "2.36-9+deb12u10"),
            ("1.0", "1.0+b1"),
            ("1.0a", "1.0+"),
            ("56.1-1", "56.1-1+b2"),
            ("0", "0:1"),
            ("1.2.3~~", "1.2.3~"),
            ("1~", "1"),
            ("44.0-2", "56.1-1"),
        ];
        for (low, high) in ascending {
            assert_eq!(compare(low, high), Ordering::Less, "{low} < {high}");
            assert_eq!(compare(high, low), Ordering::Greater, "{high} > {low}");
        }
        for (a, b) in [
            ("1.0", "1.00"),
            ("1.0-0", "1.0"),
            ("0:1", "1"),
            ("007", "7"),
        ] {
            assert_eq!(compare(a, b), Ordering::Equal, "{a} = {b}");
        }
    }

    /// The order is dpkg's own, asked where dpkg exists (every Debian), over all pairs of awkward versions.
    #[test]
    fn order_agrees_with_the_installed_dpkg() {
        let awkward = [
            "1", "1~", "1a", "1+", "1.0", "1:0", "1-1", "1-1~x", "1-1.1", "01", "1.a", "2~1-3",
        ];
        for a in awkward {
            for b in awkward {
                let ask = |relation| {
                    std::process::Command::new("dpkg")
                        .args(["--compare-versions", a, relation, b])
                        .status()
                };
                let Ok(less) = ask("lt") else {
                    return test_support::skip("lab::dpkg::versions", "no dpkg on this host");
                };
                let equal = ask("eq").unwrap();
                let expected = match (less.success(), equal.success()) {
                    (true, _) => Ordering::Less,
                    (_, true) => Ordering::Equal,
                    _ => Ordering::Greater,
                };
                assert_eq!(compare(a, b), expected, "{a} against {b}");
            }
        }
    }
}
