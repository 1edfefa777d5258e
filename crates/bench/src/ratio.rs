//! Compares two things that were measured several times, in turn.

use serde::{Deserialize, Serialize};

/// A ratio and its spread.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// The median of a.
    pub a: f64,
    /// The median of b.
    pub b: f64,
    /// The median of the ratios b to a of all rounds.
    pub ratio: f64,
    /// The lowest of these ratios.
    pub min: f64,
    /// The highest of these ratios.
    pub max: f64,
    /// Rounds in which both were measured.
    pub rounds: usize,
}

impl Ratio {
    /// The ratio of two series from the same rounds; `None` if in no round both values are above zero.
    pub fn of(a: &[f64], b: &[f64]) -> Option<Ratio> {
        let rounds: Vec<(f64, f64)> =
            a.iter().copied().zip(b.iter().copied()).filter(|(a, b)| *a > 0.0 && *b > 0.0).collect();
        let ratios: Vec<f64> = rounds.iter().map(|(a, b)| b / a).collect();
        Some(Ratio {
            a: median(rounds.iter().map(|(a, _)| *a).collect())?,
            b: median(rounds.iter().map(|(_, b)| *b).collect())?,
            ratio: median(ratios.clone())?,
            min: ratios.iter().copied().fold(f64::INFINITY, f64::min),
            max: ratios.iter().copied().fold(0.0, f64::max),
            rounds: rounds.len(),
        })
    }

    /// Whether all rounds agree which is higher. A single round proves nothing.
    pub fn is_certain(&self) -> bool {
        self.rounds > 1 && (self.min > 1.0 || self.max < 1.0)
    }
}

/// The median: the middle value, or the average of the two middle values.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let (upper, lower) = (values.len() / 2, values.len().saturating_sub(1) / 2);
    Some((values.get(lower)? + values.get(upper)?) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_taken_round_by_round() {
        // A slow hour affects both: the rates spread by a factor of two, the ratio does not.
        let ratio = Ratio::of(&[100.0, 50.0, 80.0], &[110.0, 56.0, 88.0]).unwrap();
        assert_eq!((ratio.a, ratio.b), (80.0, 88.0));
        assert!((ratio.ratio - 1.1).abs() < 1e-9 && (ratio.max - 1.12).abs() < 1e-9);
        assert!(ratio.is_certain());
    }

    #[test]
    fn rounds_that_do_not_agree_prove_nothing() {
        assert!(!Ratio::of(&[100.0, 100.0], &[90.0, 115.0]).unwrap().is_certain());
        assert!(!Ratio::of(&[100.0], &[900.0]).unwrap().is_certain());
        assert_eq!(Ratio::of(&[0.0], &[1.0]), None);
        assert_eq!(Ratio::of(&[], &[1.0]), None);
        assert_eq!(median(vec![1.0, 4.0, 2.0, 3.0]), Some(2.5));
    }
}
