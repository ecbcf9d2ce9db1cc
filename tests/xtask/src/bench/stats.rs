//! The statistic of paired measurements.

use serde::Serialize;

/// Resamplings of the bootstrap.
const RESAMPLES: usize = 4000;

/// The median of ratios and the 95 % interval that the bootstrap gives it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Interval {
    pub(crate) low: f64,
    pub(crate) median: f64,
    pub(crate) high: f64,
}

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators"): seeded, so that a report can be
/// recomputed from its samples.
#[derive(Debug)]
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    }
}

impl Interval {
    /// Of at least one ratio.
    pub(crate) fn of(ratios: &[f64]) -> Option<Self> {
        if ratios.is_empty() {
            return None;
        }
        let sort = |values: &mut Vec<f64>| values.sort_by(f64::total_cmp);
        let mut sorted = ratios.to_vec();
        sort(&mut sorted);
        let mut random = SplitMix(ratios.len() as u64);
        let mut medians = Vec::with_capacity(RESAMPLES);
        for _ in 0..RESAMPLES {
            let draw = |_| ratios[(random.next() % ratios.len() as u64) as usize];
            let mut sample: Vec<f64> = (0..ratios.len()).map(draw).collect();
            sort(&mut sample);
            medians.push(median(&sample));
        }
        sort(&mut medians);
        Some(Self {
            low: medians[RESAMPLES / 40],
            median: median(&sorted),
            high: medians[RESAMPLES - 1 - RESAMPLES / 40],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_ratios_have_no_width() {
        let interval = Interval::of(&[1.0; 21]).unwrap();
        assert_eq!(
            (interval.low, interval.median, interval.high),
            (1.0, 1.0, 1.0)
        );
        assert_eq!(Interval::of(&[]), None);
    }

    #[test]
    fn noise_widens_and_a_shift_shows() {
        // 21 ratios, evenly spread around 1: the order-statistic interval for the median of n = 21 at 95 % is the 6th to
        // the 16th value (binomial; e.g. Conover, "Practical nonparametric statistics").
        let ratios: Vec<f64> = (0..21).map(|i| 0.9 + 0.01 * f64::from(i)).collect();
        let interval = Interval::of(&ratios).unwrap();
        assert!((interval.median - 1.0).abs() < 1e-9);
        assert!((interval.low - 0.95).abs() < 0.021, "{interval:?}");
        assert!((interval.high - 1.05).abs() < 0.021, "{interval:?}");
        let slower: Vec<f64> = ratios.iter().map(|ratio| ratio * 0.8).collect();
        assert!(Interval::of(&slower).unwrap().high < 0.95);
        assert_eq!(Interval::of(&ratios), Interval::of(&ratios));
    }

    #[test]
    fn medians() {
        assert!((median(&[1.0, 2.0, 9.0]) - 2.0).abs() < 1e-9);
        assert!((median(&[1.0, 2.0]) - 1.5).abs() < 1e-9);
    }
}
