//! From when on a run is steady: the marginal standard error rule (MSER; K. P. White, "An effective
//! truncation heuristic for bias reduction in simulation output", Simulation 69, 1997).
//!
//! Of the means of equal windows, the first d are left out for which the rest tells its own mean best: where
//! the sum of the rest's squared deviations from its mean, divided by the square of how many they are, is
//! lowest. What is left out more than it is biased costs precision, so that the rule stops by itself; it has
//! no parameter. If it wants more than half of a run left out, the run had not become steady.

/// The rule never leaves fewer windows than these: the last few alone are always alike.
const WINDOWS_MIN: usize = 5;

/// The first window that counts; `None`: it has not become steady, or there are too few windows.
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

    /// Around 100, by up to 5 %: without a pattern, and the same each time.
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
    fn what_grows_to_the_end_is_not_steady() {
        let queue: Vec<f64> = (0..20).map(|at| noise(at) + 50.0 * at as f64).collect();
        assert_eq!(steady_from(&queue), None);
        assert_eq!(steady_from(&[1.0; 4]), None);
        assert_eq!(steady_from(&[1.0; 5]), Some(0));
    }
}
