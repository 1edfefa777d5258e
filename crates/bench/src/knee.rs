//! The knee of a sweep: the point from which more load no longer pays.
//!
//! Up to the knee, more outstanding requests raise the rate at nearly the same latency; beyond it they only
//! raise the latency. The knee is where rate divided by latency, the "power" of a system, is highest (L.
//! Kleinrock, "Power and deterministic rules of thumb for probabilistic problems in computer communications",
//! 1979). By Little's law, latency is the number of outstanding requests divided by the rate, so power is the
//! square of the rate divided by the number of outstanding requests. The rule has no parameter, and does not
//! depend on how far a sweep goes beyond the knee.

/// A point of a sweep.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Outstanding requests.
    pub outstanding: u64,
    /// Requests per second.
    pub rate: f64,
}

/// The index of the point at the knee; `None` without points.
///
/// Among equals, it is the one with the fewest outstanding requests.
pub fn knee(points: &[Point]) -> Option<usize> {
    let power = |point: &Point| point.rate * point.rate / point.outstanding.max(1) as f64;
    let mut best: Option<usize> = None;
    for (number, point) in points.iter().enumerate() {
        let better = best.map(|best| &points[best]).is_none_or(|best| {
            let (this, that) = (power(point), power(best));
            this > that || (this == that && point.outstanding < best.outstanding)
        });
        if better {
            best = Some(number);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    fn knee_of(points: &[(u64, f64)]) -> u64 {
        let points: Vec<Point> = points
            .iter()
            .map(|(outstanding, rate)| Point { outstanding: *outstanding, rate: *rate })
            .collect();
        points[knee(&points).unwrap()].outstanding
    }

    /// A queue with Poisson arrivals and one server (M/M/1), for which Kleinrock gives the result: power is
    /// highest with one request in the system on average.
    #[test]
    fn a_queue_is_at_its_best_with_one_request() {
        // With n requests in the system, the server is busy for n / (n + 1) of the time.
        let points: Vec<(u64, f64)> = (1..=64).map(|n| (n, n as f64 / (n as f64 + 1.0))).collect();
        assert_eq!(knee_of(&points), 1);
    }

    /// A machine that takes 100 µs for a request and executes at most 80,000 per second: the asymptotes of
    /// Denning and Buzen ("The operational analysis of queueing network models", 1978) cross at 8 requests.
    #[test]
    fn the_knee_is_where_the_asymptotes_cross() {
        let rate = |n: u64| (n as f64 * 10_000.0).min(80_000.0);
        let points: Vec<(u64, f64)> = [1, 2, 4, 8, 16, 32, 64, 128].map(|n| (n, rate(n))).to_vec();
        assert_eq!(knee_of(&points), 8);
        assert_eq!(knee_of(&points[..3]), 4, "a sweep that ends before its knee ends at its best");
    }

    /// The disk of a small virtual machine, measured by fio: 18,000 reads per second one by one, 60,000 at
    /// most.
    #[test]
    fn a_disk_that_saturates_slowly() {
        let points = [(1, 18e3), (2, 34e3), (4, 53e3), (8, 59e3), (16, 60e3), (32, 60e3), (64, 59e3)];
        assert_eq!(knee_of(&points), 4);
    }

    #[test]
    fn nothing_has_no_knee() {
        assert_eq!(knee(&[]), None);
        assert_eq!(knee(&[Point { outstanding: 1, rate: 0.0 }]), Some(0));
    }
}
