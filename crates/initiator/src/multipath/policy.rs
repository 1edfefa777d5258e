//! Chooses the path for a command, from numbers alone.

use base::Instant;

/// How commands are distributed over paths that are equally good (see `access`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Each path gets this many commands (at least one), then it is the next one's turn.
    RoundRobin(u32),
    /// The path with the fewest commands under way.
    #[default]
    LeastQueueDepth,
    /// The path that will have transferred its bytes first, judged by its recent speed.
    ServiceTime,
    /// The path with this number as long as it is usable; otherwise the first usable one.
    Fixed(usize),
    /// The path that was used last, as long as it is usable.
    MostRecentlyUsed,
}

/// What a policy knows of a path.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Load {
    /// Commands may use the path.
    pub(super) eligible: bool,
    /// Commands under way.
    pub(super) outstanding: u32,
    pub(super) outstanding_bytes: u64,
    /// Commands started so far.
    pub(super) commands: u64,
    service: Service,
}

/// How fast a path is.
#[derive(Clone, Copy, Debug, Default)]
struct Service {
    /// Picoseconds per byte, a moving average; zero until something was measured.
    picos_a_byte: u64,
    /// When the last command completed.
    finished: Instant,
}

/// The weight of a measurement in the moving average: one part in this number.
const AVERAGE_OVER: u64 = 16;

/// After this time without a completed command, a path is assumed to be as fast as the best one, so that it
/// is measured again.
const STALE_NANOS: u64 = 1_000_000_000;

/// The size that counts for a command without data: its headers.
const BYTES_MIN: u64 = 96;

impl Load {
    /// A command starts.
    #[inline]
    pub(super) fn start(&mut self, bytes: u64) {
        self.commands += 1;
        self.outstanding += 1;
        self.outstanding_bytes += bytes;
    }

    /// A command has completed, or its caller has given up.
    #[inline]
    pub(super) fn finish(&mut self, bytes: u64) {
        self.outstanding -= 1;
        self.outstanding_bytes -= bytes;
    }

    /// Records how long a command of this size took.
    ///
    /// While others were under way, it had the path to itself only since the last one completed.
    pub(super) fn measure(&mut self, bytes: u64, started: Instant, now: Instant) {
        let began = started.max(self.service.finished);
        let picos = now.0.saturating_sub(began.0).saturating_mul(1000) / bytes.max(BYTES_MIN);
        let average = &mut self.service.picos_a_byte;
        *average = match *average {
            0 => picos.max(1),
            old => (old - old / AVERAGE_OVER + picos / AVERAGE_OVER).max(1),
        };
        self.service.finished = now;
    }

    /// The speed, if it was measured recently or commands are under way.
    fn picos_a_byte(&self, now: Instant) -> Option<u64> {
        let is_fresh = self.outstanding > 0 || now.0.saturating_sub(self.service.finished.0) < STALE_NANOS;
        (is_fresh && self.service.picos_a_byte > 0).then_some(self.service.picos_a_byte)
    }
}

/// Chooses paths.
#[derive(Debug)]
pub(super) struct Selector {
    policy: Policy,
    /// The path that was chosen last.
    last: usize,
    /// Commands that this path gets before it is the next one's turn.
    left: u32,
}

impl Selector {
    pub(super) fn new(policy: Policy) -> Selector {
        Selector { policy, last: 0, left: 0 }
    }

    /// Whether the policy needs the time and the duration of commands.
    #[inline]
    pub(super) fn measures(&self) -> bool {
        self.policy == Policy::ServiceTime
    }

    /// The path for a command of `bytes`; `None` if none is eligible. `avoid` is chosen only if there is no
    /// other.
    #[inline]
    pub(super) fn choose(
        &mut self,
        loads: &[Load],
        bytes: u64,
        avoid: Option<usize>,
        now: Instant,
    ) -> Option<usize> {
        let may = |index: usize| loads.get(index).is_some_and(|load| load.eligible) && avoid != Some(index);
        let chosen = match self.policy {
            Policy::RoundRobin(turn) => {
                if self.left > 0 && may(self.last) {
                    self.left -= 1;
                    return Some(self.last);
                }
                self.left = turn.max(1) - 1;
                self.following(loads.len()).find(|index| may(*index))
            }
            // Among equals, the next in turn: so all paths are used, and known to work, even under little
            // load.
            Policy::LeastQueueDepth => self
                .following(loads.len())
                .filter(|index| may(*index))
                .min_by_key(|index| loads[*index].outstanding),
            Policy::ServiceTime => {
                let best = loads.iter().filter_map(|load| load.picos_a_byte(now)).min().unwrap_or(1);
                let time = |load: &Load| {
                    let bytes = load.outstanding_bytes + bytes.max(BYTES_MIN);
                    bytes.saturating_mul(load.picos_a_byte(now).unwrap_or(best))
                };
                self.following(loads.len())
                    .filter(|index| may(*index))
                    .min_by_key(|index| time(&loads[*index]))
            }
            Policy::Fixed(preferred) if may(preferred) => Some(preferred),
            Policy::Fixed(_) => (0..loads.len()).find(|index| may(*index)),
            Policy::MostRecentlyUsed if may(self.last) => Some(self.last),
            Policy::MostRecentlyUsed => self.following(loads.len()).find(|index| may(*index)),
        };
        let chosen = chosen.or(avoid.filter(|index| loads.get(*index).is_some_and(|load| load.eligible)))?;
        self.last = chosen;
        Some(chosen)
    }

    /// All paths in turn, with the last chosen one at the end.
    fn following(&self, count: usize) -> impl Iterator<Item = usize> + use<> {
        let last = self.last;
        (1..=count).map(move |step| (last + step) % count)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Instant = Instant(0);

    fn loads(outstanding: &[Option<u32>]) -> Vec<Load> {
        let load = |outstanding: &Option<u32>| Load {
            eligible: outstanding.is_some(),
            outstanding: outstanding.unwrap_or(0),
            ..Load::default()
        };
        outstanding.iter().map(load).collect()
    }

    fn choices(policy: Policy, loads: &[Load], count: usize) -> Vec<usize> {
        let mut selector = Selector::new(policy);
        (0..count).map(|_| selector.choose(loads, 0, None, NOW).unwrap()).collect()
    }

    #[test]
    fn round_robin_gives_turns() {
        let all = loads(&[Some(0), Some(9), None, Some(0)]);
        assert_eq!(choices(Policy::RoundRobin(1), &all, 6), [1, 3, 0, 1, 3, 0]);
        assert_eq!(choices(Policy::RoundRobin(0), &all, 3), [1, 3, 0]);
        assert_eq!(choices(Policy::RoundRobin(3), &all, 7), [1, 1, 1, 3, 3, 3, 0]);
    }

    #[test]
    fn the_shortest_queue_is_taken_and_equals_in_turn() {
        assert_eq!(choices(Policy::LeastQueueDepth, &loads(&[Some(3), Some(2), Some(4)]), 2), [1, 1]);
        assert_eq!(choices(Policy::LeastQueueDepth, &loads(&[Some(1), Some(1), None]), 4), [1, 0, 1, 0]);
    }

    #[test]
    fn the_fixed_path_is_used_again_when_it_returns() {
        let mut selector = Selector::new(Policy::Fixed(1));
        let (up, down) = (loads(&[Some(0), Some(0), Some(0)]), loads(&[Some(0), None, Some(0)]));
        let chosen = [&up, &down, &down, &up].map(|loads| selector.choose(loads, 0, None, NOW).unwrap());
        assert_eq!(chosen, [1, 0, 0, 1]);
    }

    #[test]
    fn the_most_recently_used_path_is_not_left_for_one_that_is_back() {
        let mut selector = Selector::new(Policy::MostRecentlyUsed);
        let (up, down) = (loads(&[Some(0), Some(0)]), loads(&[Some(0), None]));
        let mut choose = |loads: &[Load]| selector.choose(loads, 0, None, NOW).unwrap();
        assert_eq!([choose(&up), choose(&up)], [0, 0]);
        let one = loads(&[None, Some(0)]);
        assert_eq!([choose(&one), choose(&up), choose(&down), choose(&up)], [1, 1, 0, 0]);
    }

    #[test]
    fn the_faster_path_gets_more() {
        let mut loads = loads(&[Some(0), Some(0)]);
        // The first takes 1 ns a byte, the second 3.
        loads[0].measure(4096, Instant(0), Instant(4096));
        loads[1].measure(4096, Instant(0), Instant(3 * 4096));
        let mut selector = Selector::new(Policy::ServiceTime);
        let mut counts = [0; 2];
        for _ in 0..40 {
            let chosen = selector.choose(&loads, 4096, None, Instant(20_000)).unwrap();
            loads[chosen].start(4096);
            counts[chosen] += 1;
        }
        assert_eq!(counts, [30, 10]);
    }

    #[test]
    fn a_slow_path_is_tried_again() {
        let mut loads = loads(&[Some(0), Some(0)]);
        loads[0].measure(4096, Instant(0), Instant(4096));
        loads[1].measure(4096, Instant(0), Instant(1_000_000));
        let mut selector = Selector::new(Policy::ServiceTime);
        let mut choose = |now| selector.choose(&loads, 4096, None, Instant(now)).unwrap();
        assert_eq!([choose(2_000_000), choose(2_000_000)], [0, 0]);
        assert_eq!([choose(1_002_000_000), choose(1_002_000_000)], [1, 0], "both are as good as the best");
    }

    #[test]
    fn a_measurement_counts_from_when_the_path_was_free() {
        let mut load = Load::default();
        load.measure(1000, Instant(0), Instant(1000));
        load.measure(1000, Instant(0), Instant(2000));
        assert_eq!(load.service.picos_a_byte, 1000, "both took a microsecond");
    }

    /// One path in a slow model that remembers everything.
    #[derive(Clone, Debug, Default)]
    struct Past {
        eligible: bool,
        /// Commands that have started and not ended.
        under_way: Vec<u64>,
    }

    /// The choice as the policy's documentation defines it, from the whole history.
    fn by_the_words(
        policy: Policy,
        paths: &[Past],
        history: &[usize],
        avoid: Option<usize>,
    ) -> Option<usize> {
        let able: Vec<usize> = (0..paths.len()).filter(|index| paths[*index].eligible).collect();
        let others: Vec<usize> = able.iter().copied().filter(|index| Some(*index) != avoid).collect();
        let able = if others.is_empty() { able } else { others };
        let last = history.last().copied().unwrap_or(0);
        // The rank of a path's turn: the path that was chosen last comes last.
        let turn = |index: usize| (index + paths.len() - last - 1) % paths.len();
        let in_turn = able.iter().copied().min_by_key(|index| turn(*index));
        match policy {
            Policy::RoundRobin(_) => in_turn,
            Policy::LeastQueueDepth => {
                able.into_iter().min_by_key(|index| (paths[*index].under_way.len(), turn(*index)))
            }
            Policy::ServiceTime => unreachable!("has tests of its own"),
            Policy::Fixed(preferred) => {
                able.iter().copied().find(|index| *index == preferred).or(able.first().copied())
            }
            Policy::MostRecentlyUsed if able.contains(&last) => Some(last),
            Policy::MostRecentlyUsed => in_turn,
        }
    }

    fn policies() -> impl Strategy<Value = Policy> {
        prop_oneof![
            Just(Policy::RoundRobin(1)),
            Just(Policy::LeastQueueDepth),
            (0usize..4).prop_map(Policy::Fixed),
            Just(Policy::MostRecentlyUsed),
        ]
    }

    proptest! {
        #[test]
        fn policies_choose_paths_as_named(
            policy in policies(),
            count in 1usize..5,
            steps in proptest::collection::vec((0usize..10, 0usize..4, any::<bool>()), 1..120),
        ) {
            let mut selector = Selector::new(policy);
            let mut loads = vec![Load::default(); count];
            let mut paths = vec![Past::default(); count];
            let mut history = Vec::new();
            for (number, (action, index, flag)) in steps.into_iter().enumerate() {
                let index = index % count;
                match action {
                    0 => {
                        loads[index].eligible = flag;
                        paths[index].eligible = flag;
                    }
                    1..4 if !paths[index].under_way.is_empty() => {
                        let bytes = paths[index].under_way.remove(0);
                        loads[index].finish(bytes);
                    }
                    _ => {
                        let avoid = flag.then_some(index);
                        let chosen = selector.choose(&loads, number as u64, avoid, NOW);
                        prop_assert_eq!(chosen, by_the_words(policy, &paths, &history, avoid));
                        if let Some(chosen) = chosen {
                            loads[chosen].start(number as u64);
                            paths[chosen].under_way.push(number as u64);
                            history.push(chosen);
                        }
                    }
                }
                for (load, past) in loads.iter().zip(&paths) {
                    prop_assert_eq!(load.outstanding as usize, past.under_way.len());
                    prop_assert_eq!(load.outstanding_bytes, past.under_way.iter().sum::<u64>());
                }
            }
        }

        #[test]
        fn the_time_is_the_least_of_all(
            paths in proptest::collection::vec((any::<bool>(), 0u64..50, 1u64..1000), 1..6),
            bytes in 0u64..1 << 20,
        ) {
            let mut loads = Vec::new();
            for (eligible, outstanding, nanos_a_kib) in &paths {
                let mut load = Load { eligible: *eligible, ..Load::default() };
                load.measure(1 << 20, Instant(0), Instant(nanos_a_kib * 1024));
                (0..*outstanding).for_each(|_| load.start(4096));
                loads.push(load);
            }
            let chosen = Selector::new(Policy::ServiceTime).choose(&loads, bytes, None, Instant(2_000_000));
            let expected = paths
                .iter()
                .filter(|(eligible, ..)| *eligible)
                .map(|(_, outstanding, nanos_a_kib)| {
                    (outstanding * 4096 + bytes.max(BYTES_MIN)) * (nanos_a_kib * 1024 * 1000 / (1 << 20)).max(1)
                })
                .min();
            let got = chosen.map(|index| {
                let (_, outstanding, nanos_a_kib) = paths[index];
                (outstanding * 4096 + bytes.max(BYTES_MIN)) * (nanos_a_kib * 1024 * 1000 / (1 << 20)).max(1)
            });
            prop_assert_eq!(got, expected);
        }
    }
}
