//! Detects when a run has become steady, by the marginal standard error rule (MSER; K. P. White, "An
//! effective truncation heuristic for bias reduction in simulation output", Simulation 69, 1997).
//!
//! Of the means of equal windows, the rule discards the first d, with the d for which the rest estimates its
//! own mean best: where the sum of the squared deviations of the rest from its mean, divided by the square of
//! their number, is lowest. Discarding more than the biased windows costs precision, so the rule stops by
//! itself; it has no parameter. If it discards more than half of a run, the run has not become steady.

/// The rule keeps at least this many windows: the last few alone always look alike.
const WINDOWS_MIN: usize = 5;

/// The first window that counts; `None` if the run has not become steady, or there are too few windows.
pub(crate) fn steady_from(means: &[f64]) -> Option<usize> {
    let last = means.len().checked_sub(WINDOWS_MIN)?;
    let error = |from: usize| {
        let rest = &means[from..];
        let count = rest.len() as f64;
        let mean = rest.iter().sum::<f64>() / count;
        rest.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count * count)
    };
    let best = (0..=last).min_by(|one, other| error(*one).total_cmp(&error(*other)))?;
    (best <= means.len() / 2).then_some(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Around 100, by up to 5 %: irregular, but the same each time.
    fn noise(at: usize) -> f64 {
        100.0 + [3.0, -5.0, 1.0, 4.0, -2.0, -4.0, 5.0, 0.0, -1.0][at * 7 % 9]
    }

    #[test]
    fn a_warm_up_is_left_out() {
        let flat: Vec<f64> = (0..20).map(noise).collect();
        assert!(steady_from(&flat).is_some_and(|from| from <= 2), "{:?}", steady_from(&flat));
        let cold: Vec<f64> = (0..20).map(|at| noise(at) + if at < 6 { 80.0 } else { 0.0 }).collect();
        assert!(steady_from(&cold).is_some_and(|from| (6..=7).contains(&from)), "{:?}", steady_from(&cold));
        let falling: Vec<f64> = (0..20).map(|at| noise(at) + 300.0 * 0.5f64.powi(at as i32)).collect();
        assert!(steady_from(&falling).is_some_and(|from| (3..=7).contains(&from)));
    }

    #[test]
    fn latency_that_grows_to_the_end_is_not_steady() {
        let queue: Vec<f64> = (0..20).map(|at| noise(at) + 50.0 * at as f64).collect();
        assert_eq!(steady_from(&queue), None);
        assert_eq!(steady_from(&[1.0; 4]), None);
        assert_eq!(steady_from(&[1.0; 5]), Some(0));
    }
}
