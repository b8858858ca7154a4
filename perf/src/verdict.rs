//! Whether two targets differ, out of interleaved repeats.
//!
//! Each repeat gives one ratio of neighbours in time, so what the machine does to both cancels out. Ratios are compared as logarithms: twice and half are equally far
//! from one. The band is where the mean ratio lies with 95% by Student's t; if 1 is in it, the repeats show no difference.

use crate::Failure;

/// Two-sided 95% of Student's t for 1 to 30 degrees of freedom; beyond, the normal's is close enough.
const T95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];
const NORMAL95: f64 = 1.96;

/// A mean ratio and its band.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Ratio {
    pub(crate) mean: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) repeats: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    More,
    Less,
    /// The band holds 1.
    Same,
    /// One repeat has no band.
    Unknown,
}

impl Ratio {
    /// Of pairs of one repeat each: this one's number and the other's. Both must be more than 0.
    pub(crate) fn of(pairs: &[(f64, f64)]) -> Result<Ratio, Failure> {
        if pairs.is_empty() {
            return Err(Failure::told("nothing was measured on both"));
        }
        if pairs
            .iter()
            .any(|(this, other)| *this <= 0.0 || *other <= 0.0)
        {
            return Err(Failure::told("a ratio of nothing"));
        }
        let logs: Vec<f64> = pairs
            .iter()
            .map(|(this, other)| (this / other).ln())
            .collect();
        let count = logs.len() as f64;
        let mean = logs.iter().sum::<f64>() / count;
        let squares: f64 = logs.iter().map(|log| (log - mean).powi(2)).sum();
        let half = match logs.len() {
            1 => f64::INFINITY,
            n => {
                let t = T95.get(n - 2).copied().unwrap_or(NORMAL95);
                t * (squares / (count - 1.0) / count).sqrt()
            }
        };
        Ok(Ratio {
            mean: mean.exp(),
            low: (mean - half).exp(),
            high: (mean + half).exp(),
            repeats: logs.len(),
        })
    }

    pub(crate) fn verdict(self) -> Verdict {
        if self.repeats < 2 {
            Verdict::Unknown
        } else if self.low > 1.0 {
            Verdict::More
        } else if self.high < 1.0 {
            Verdict::Less
        } else {
            Verdict::Same
        }
    }

    /// The ratio, the band, and what follows.
    pub(crate) fn line(self) -> String {
        let Ratio {
            mean,
            low,
            high,
            repeats,
        } = self;
        match self.verdict() {
            Verdict::Unknown => format!("{mean:.2} (one repeat: no band)"),
            Verdict::More => format!("{mean:.2} ({low:.2} to {high:.2}, n={repeats}): more"),
            Verdict::Less => format!("{mean:.2} ({low:.2} to {high:.2}, n={repeats}): less"),
            Verdict::Same => {
                format!("{mean:.2} ({low:.2} to {high:.2}, n={repeats}): no difference shown")
            }
        }
    }
}

/// The slope of a line through points in logarithms of both axes: y grows as x to this power. 0 is flat.
pub(crate) fn power(points: &[(f64, f64)]) -> Option<f64> {
    let logs: Vec<(f64, f64)> = points
        .iter()
        .filter(|(x, y)| *x > 0.0 && *y > 0.0)
        .map(|(x, y)| (x.ln(), y.ln()))
        .collect();
    let count = logs.len() as f64;
    let mean_x = logs.iter().map(|(x, _)| x).sum::<f64>() / count;
    let mean_y = logs.iter().map(|(_, y)| y).sum::<f64>() / count;
    let spread: f64 = logs.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    let common: f64 = logs.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    (logs.len() >= 2 && spread > 0.0).then(|| common / spread)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_difference_is_seen_through_a_drift_of_the_machine() {
        // The machine becomes three times slower; this one always costs a tenth more.
        let pairs: Vec<(f64, f64)> = [1.0, 1.5, 2.0, 2.5, 3.0]
            .iter()
            .zip([1.09, 1.11, 1.10, 1.12, 1.08])
            .map(|(other, ratio)| (other * ratio, *other))
            .collect();
        let ratio = Ratio::of(&pairs).unwrap();
        assert_eq!(ratio.verdict(), Verdict::More);
        assert!((ratio.mean - 1.10).abs() < 0.001, "{ratio:?}");
        assert!(ratio.low > 1.07 && ratio.high < 1.13, "{ratio:?}");
        let swapped: Vec<(f64, f64)> = pairs.iter().map(|(a, b)| (*b, *a)).collect();
        let swapped = Ratio::of(&swapped).unwrap();
        assert_eq!(swapped.verdict(), Verdict::Less);
        assert!((swapped.mean * ratio.mean - 1.0).abs() < 1e-9);
    }

    #[test]
    fn noise_shows_no_difference_and_one_repeat_shows_nothing() {
        let noise = [(1.0, 1.1), (1.1, 1.0), (0.9, 1.0), (1.0, 0.9), (1.0, 1.0)];
        assert_eq!(Ratio::of(&noise).unwrap().verdict(), Verdict::Same);
        let one = Ratio::of(&[(2.0, 1.0)]).unwrap();
        assert_eq!(one.verdict(), Verdict::Unknown);
        assert!(one.line().contains("2.00 (one repeat"), "{}", one.line());
        assert!(Ratio::of(&[]).is_err());
        assert!(Ratio::of(&[(1.0, 0.0)]).is_err());
    }

    #[test]
    fn the_band_is_that_of_students_t() {
        // ln: 0 and 0.2; mean 0.1, standard error 0.1.
        let ratio = Ratio::of(&[(1.0, 1.0), (0.2_f64.exp(), 1.0)]).unwrap();
        assert!((ratio.high.ln() - (0.1 + 1.2706)).abs() < 1e-9, "{ratio:?}");
    }

    #[test]
    fn growth_is_a_power() {
        let points: Vec<(f64, f64)> = [1.0, 10.0, 100.0]
            .iter()
            .map(|x: &f64| (*x, 7.0 * x.powf(-0.5)))
            .collect();
        assert!((power(&points).unwrap() + 0.5).abs() < 1e-9);
        assert_eq!(power(&[(1.0, 1.0)]), None);
        assert_eq!(power(&[(1.0, 1.0), (1.0, 2.0)]), None);
    }
}
