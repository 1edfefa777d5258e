//! Detects when a fleet of clients saturates its servers: where the total stops growing.

/// The smallest growth that counts, relative to the best total so far: runs differ by this much.
const GROWTH_MIN: f64 = 0.03;
/// After this many successive steps without growth, the total has stopped growing.
const STEPS_WITHOUT_GROWTH: usize = 3;
/// The percentile of all totals that counts as saturated.
const SATURATED_PERCENTILE: usize = 80;

/// The index of the step from which on a fleet counts as saturated; `None` without steps.
///
/// It is the first step whose total reaches the 80th percentile of the totals of all steps (by nearest rank:
/// the value that 80 % of the totals do not exceed).
pub fn saturation(totals: &[f64]) -> Option<usize> {
    let mut sorted = totals.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (sorted.len() * SATURATED_PERCENTILE).div_ceil(100);
    let limit = *sorted.get(rank.checked_sub(1)?)?;
    totals.iter().position(|total| *total >= limit)
}

/// Whether the last steps brought no more growth.
pub fn has_stopped_growing(totals: &[f64]) -> bool {
    let Some(split) = totals.len().checked_sub(STEPS_WITHOUT_GROWTH) else { return false };
    let (before, last) = totals.split_at(split);
    let best = before.iter().copied().fold(0.0, f64::max);
    split > 0 && last.iter().all(|total| *total < best * (1.0 + GROWTH_MIN))
}

/// What each client of a step added: the growth of the total since the previous step, divided by the number
/// of added clients.
pub fn gains(steps: &[(usize, f64)]) -> Vec<f64> {
    let mut before = (0, 0.0);
    steps
        .iter()
        .map(|(clients, total)| {
            let added = clients.saturating_sub(before.0).max(1);
            let gain = (total - before.1) / added as f64;
            before = (*clients, *total);
            gain
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nearest rank, with the example of the list 15, 20, 35, 40, 50, whose 80th percentile is 40.
    #[test]
    fn the_percentile_is_that_of_the_nearest_rank() {
        assert_eq!(saturation(&[15.0, 20.0, 35.0, 40.0, 50.0]), Some(3));
        assert_eq!(saturation(&[7.0]), Some(0));
        assert_eq!(saturation(&[]), None);
    }

    /// Twenty clients on servers that can serve 17 of them: up to then each client adds 100,000.
    #[test]
    fn a_fleet_is_saturated_where_its_total_reaches_the_percentile() {
        let totals: Vec<f64> = (1..=20).map(|clients| f64::from(clients).min(17.0) * 100e3).collect();
        assert_eq!(saturation(&totals), Some(15), "sixteen clients: the 16th of 20 totals");
        let flat: Vec<f64> = (1..=10).map(|clients| f64::from(clients).min(3.0)).collect();
        assert_eq!(saturation(&flat), Some(2));
    }

    #[test]
    fn growth_ends_after_three_steps_without_any() {
        let totals = [10.0, 20.0, 29.0, 29.5, 28.0, 29.8];
        let ends: Vec<bool> = (0..=6).map(|steps| has_stopped_growing(&totals[..steps])).collect();
        assert_eq!(ends, [false, false, false, false, false, false, true]);
        assert!(!has_stopped_growing(&[10.0, 9.0, 9.0, 11.0]), "the last step has grown");
    }

    #[test]
    fn clients_share_what_their_step_brought() {
        let steps = [(1, 100.0), (2, 190.0), (4, 250.0), (5, 240.0)];
        assert_eq!(gains(&steps), [100.0, 90.0, 30.0, -10.0]);
    }
}
