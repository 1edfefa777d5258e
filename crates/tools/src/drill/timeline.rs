//! The time line of a fault, made from what nodes report and the load has recorded.

use std::collections::BTreeMap;
use std::time::Duration;

use api::CopyState;
use base::Instant;
use cli::size;
use initiator::multipath::{Event as PathEvent, What};
use serde::Serialize;

use super::fleet::Replaced;
use super::moved::{Before, Moved};
use super::watch::{Seen, Sighting};

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Event {
    /// Milliseconds after the fault; negative: before it.
    pub ms: i64,
    pub kind: Kind,
    pub node: Option<u16>,
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The drill has injected the fault.
    Fault,
    /// The drill has removed it.
    Undone,
    /// A path of the load was lost.
    PathLost,
    /// A path of the load is usable.
    PathUp,
    /// The load had no usable path for a while.
    NoPath,
    /// A copy is out of sync: the volume continues without it.
    Out,
    /// A node serves hosts.
    Serves,
    /// A node no longer serves hosts.
    ServesNot,
    /// The load's requests complete again.
    Answered,
    /// A node responds again.
    Back,
    /// A copy takes new writes.
    CatchingUp,
    /// A copy is in sync.
    InSync,
    /// A copy was removed, because it is rebuilt.
    Removed,
    /// A new, empty copy was created.
    Added,
    /// What a copy misses when its node returns.
    Missed,
    /// What resyncs have copied.
    Synced,
}

/// The events of one fault.
#[derive(Debug)]
pub struct Timeline {
    zero: Instant,
    seen: BTreeMap<u16, Option<Seen>>,
    /// The newest epoch seen.
    epoch: u64,
    copies: Vec<(u16, CopyState)>,
    events: Vec<Event>,
    /// Events that were not shown yet.
    untold: Vec<Event>,
    /// Since when the load has no path.
    without_path: Option<Instant>,
}

/// The shortest time without any path that is an event.
const NO_PATH_MIN: Duration = Duration::from_millis(100);

impl Timeline {
    /// Counts from the fault at `zero`; `before` is the state until then.
    pub fn new(zero: Instant, before: &[Sighting]) -> Timeline {
        let mut timeline = Timeline {
            zero,
            seen: BTreeMap::new(),
            epoch: 0,
            copies: Vec::new(),
            events: Vec::new(),
            untold: Vec::new(),
            without_path: None,
        };
        before.iter().cloned().for_each(|sighting| timeline.learn(sighting));
        timeline.events.clear();
        timeline.untold.clear();
        timeline
    }

    /// When the fault was injected.
    pub fn zero(&self) -> Instant {
        self.zero
    }

    /// Returns the events up to that time that were not returned before, in order of time.
    pub fn untold(&mut self, until: Instant) -> Vec<Event> {
        let until = self.millis(until);
        let (mut ready, later) =
            std::mem::take(&mut self.untold).into_iter().partition::<Vec<_>, _>(|event| event.ms <= until);
        self.untold = later;
        ready.sort_by_key(|event| event.ms);
        ready
    }

    pub fn add(&mut self, at: Instant, kind: Kind, node: Option<u16>, text: impl Into<String>) {
        let event = Event { ms: self.millis(at), kind, node, text: text.into() };
        self.untold.push(event.clone());
        self.events.push(event);
    }

    /// Adds what copies miss when the fault is removed.
    pub fn missed(&mut self, at: Instant, before: &Before) {
        if let Some((node, bytes)) = before.dirty() {
            self.add(at, Kind::Missed, Some(node), format!("n{node} has {} to resync", size(bytes)));
        }
    }

    /// Adds the removal and the new copy when the drill has rebuilt it: polls may miss the time between them.
    pub fn replaced(&mut self, node: u16, Replaced { gone, made }: Replaced) {
        self.add(gone, Kind::Removed, Some(node), format!("n{node} no longer has a copy"));
        self.add(made, Kind::Added, Some(node), format!("n{node} has a new copy"));
    }

    fn has(&self, kind: Kind, node: u16) -> bool {
        self.events.iter().any(|event| (event.kind, event.node) == (kind, Some(node)))
    }

    /// Adds what resyncs have copied since.
    pub fn synced(&mut self, at: Instant, moved: &Moved) {
        let text = format!(
            "resync brought {} up to date and sent {}; host writes added {} to it meanwhile",
            size(moved.synced_bytes),
            size(moved.sent_bytes),
            size(moved.dirtied_bytes),
        );
        self.add(at, Kind::Synced, None, text);
    }

    fn millis(&self, at: Instant) -> i64 {
        let (after, before) = (at.since(self.zero).as_millis(), self.zero.since(at).as_millis());
        let clamped = |millis: u128| i64::try_from(millis).unwrap_or(i64::MAX);
        clamped(after) - clamped(before)
    }

    /// Adds events for what a node reports.
    pub fn learn(&mut self, sighting: Sighting) {
        let Sighting { at, node, seen } = sighting;
        let before = self.seen.insert(node, seen.clone());
        let Some(seen) = seen else { return };
        match &before {
            None => {}
            Some(None) => self.add(at, Kind::Back, Some(node), format!("n{node} answers again")),
            Some(Some(before)) if before.serving && !seen.serving => {
                self.add(at, Kind::ServesNot, Some(node), format!("n{node} is not serving"));
            }
            Some(Some(_)) => {}
        }
        if seen.epoch > self.epoch {
            self.compare(at, &seen);
            (self.epoch, self.copies) = (seen.epoch, seen.copies);
        }
        let served = self.seen_before(before.as_ref());
        if seen.serving && !served && before.is_some() {
            self.add(at, Kind::Serves, Some(node), format!("n{node} is serving"));
        }
    }

    fn seen_before(&self, before: Option<&Option<Seen>>) -> bool {
        before.and_then(Option::as_ref).is_some_and(|seen| seen.serving)
    }

    /// Adds events for what has changed with this epoch.
    fn compare(&mut self, at: Instant, seen: &Seen) {
        let because = format!("(epoch {}: {})", seen.epoch, seen.reason);
        // For a volume that was not seen before, nothing has changed.
        let known = !self.copies.is_empty();
        let gone: Vec<u16> = self.copies.iter().map(|(node, _)| *node).collect();
        for node in gone.into_iter().filter(|node| seen.copies.iter().all(|(other, _)| other != node)) {
            if self.has(Kind::Removed, node) {
                continue;
            }
            self.add(at, Kind::Removed, Some(node), format!("n{node} no longer has a copy {because}"));
        }
        for (node, state) in &seen.copies {
            let old = self.copies.iter().find(|(other, _)| other == node).map(|(_, state)| *state);
            let told = old.is_none() && (!known || self.has(Kind::Added, *node));
            if old == Some(*state) || told {
                continue;
            }
            let (kind, what) = match state {
                _ if old.is_none() => (Kind::Added, "has a new copy"),
                CopyState::OutOfSync => (Kind::Out, "is out of sync"),
                CopyState::CatchingUp => (Kind::CatchingUp, "receives new writes"),
                CopyState::InSync => (Kind::InSync, "is in sync"),
            };
            self.add(at, kind, Some(*node), format!("n{node} {what} {because}"));
        }
    }

    /// Adds an event for a change of a path; `node` returns the node at a portal.
    pub fn learn_path(&mut self, event: &PathEvent, node: impl Fn(std::net::SocketAddr) -> Option<u16>) {
        let named = |node: Option<u16>| node.map_or("a node".to_owned(), |node| format!("n{node}"));
        let (kind, node, text) = match &event.what {
            What::Lost(path, why) => {
                let node = node(path.portal);
                (Kind::PathLost, node, format!("path to {} lost: {why}", named(node)))
            }
            What::Up(path) => {
                let node = node(path.portal);
                (Kind::PathUp, node, format!("path to {} up", named(node)))
            }
            // There is no path for an instant while paths query the node's state.
            What::NoPath => return self.without_path = Some(event.at),
            What::Resumed => {
                let time = self.without_path.take().map(|since| event.at.since(since));
                let Some(time) = time.filter(|time| *time >= NO_PATH_MIN) else { return };
                (Kind::NoPath, None, format!("no path to the volume for {:.3} s", time.as_secs_f64()))
            }
            _ => return,
        };
        self.add(event.at, kind, node, text);
    }

    /// The time in milliseconds of the first event of this kind after the fault.
    pub fn first(&self, kind: Kind) -> Option<i64> {
        let of_kind = self.events.iter().filter(|event| event.kind == kind && event.ms >= 0);
        of_kind.map(|event| event.ms).min()
    }

    /// All events, in order of time.
    pub fn into_events(mut self) -> Vec<Event> {
        self.events.sort_by_key(|event| event.ms);
        self.events
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use CopyState::{CatchingUp, InSync, OutOfSync};

    fn at(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    fn says(ms: u64, node: u16, epoch: u64, serving: bool, second: CopyState) -> Sighting {
        let copies = vec![(1, InSync), (2, second)];
        let seen = Seen { epoch, reason: format!("reason {epoch}"), serving, copies };
        Sighting { at: at(ms), node, seen: Some(seen) }
    }

    #[test]
    fn a_moment_without_a_path_is_not_an_event() {
        let mut timeline = Timeline::new(at(1000), &[]);
        for (ms, what) in
            [(1010, What::NoPath), (1050, What::Resumed), (2000, What::NoPath), (2500, What::Resumed)]
        {
            timeline.learn_path(&PathEvent { at: at(ms), what }, |_| None);
        }
        let told: Vec<String> = timeline.into_events().into_iter().map(|event| event.text).collect();
        assert_eq!(told, ["no path to the volume for 0.500 s"]);
    }

    #[test]
    fn events_are_what_has_changed() {
        let before = [says(500, 1, 2, true, InSync), says(510, 2, 2, true, InSync)];
        let mut timeline = Timeline::new(at(1000), &before);
        timeline.add(at(1000), Kind::Fault, Some(2), "n2 killed");
        timeline.learn(Sighting { at: at(1010), node: 2, seen: None });
        timeline.learn(says(1450, 1, 3, false, OutOfSync));
        assert_eq!(timeline.untold(at(1449)).len(), 1);
        assert_eq!(timeline.untold(at(1450)).len(), 2);
        timeline.learn(says(2000, 1, 3, true, OutOfSync));
        timeline.learn(says(6000, 2, 3, false, OutOfSync));
        // Both report the same epoch.
        timeline.learn(says(6500, 1, 4, true, CatchingUp));
        timeline.learn(says(6510, 2, 4, false, CatchingUp));
        timeline.learn(says(6600, 2, 5, true, InSync));
        assert_eq!((timeline.first(Kind::Out), timeline.first(Kind::Serves)), (Some(450), Some(1000)));
        let told: Vec<String> =
            timeline.into_events().into_iter().map(|event| format!("{} {}", event.ms, event.text)).collect();
        assert_eq!(
            told,
            [
                "0 n2 killed",
                "450 n1 is not serving",
                "450 n2 is out of sync (epoch 3: reason 3)",
                "1000 n1 is serving",
                "5000 n2 answers again",
                "5500 n2 receives new writes (epoch 4: reason 4)",
                "5600 n2 is in sync (epoch 5: reason 5)",
                "5600 n2 is serving",
            ]
        );
    }

    #[test]
    fn a_copy_that_is_rebuilt_leaves_and_returns() {
        let mut timeline = Timeline::new(at(1000), &[says(500, 1, 2, true, InSync)]);
        timeline.learn(says(1400, 1, 3, true, OutOfSync));
        let mut alone = says(1500, 1, 4, true, OutOfSync);
        alone.seen.as_mut().unwrap().copies.truncate(1);
        timeline.learn(alone);
        timeline.learn(says(1600, 1, 5, true, OutOfSync));
        timeline.learn(says(1700, 1, 6, true, CatchingUp));
        let told: Vec<(i64, Kind)> =
            timeline.into_events().into_iter().map(|event| (event.ms, event.kind)).collect();
        let expected = [(400, Kind::Out), (500, Kind::Removed), (600, Kind::Added), (700, Kind::CatchingUp)];
        assert_eq!(told, expected);
    }

    #[test]
    fn the_drills_own_actions_are_reported_once() {
        for seen in [[3, 4], [4, 6], [5, 6]] {
            let mut timeline = Timeline::new(at(1000), &[says(500, 1, 3, true, OutOfSync)]);
            timeline.replaced(2, Replaced { gone: at(1500), made: at(1600) });
            for epoch in seen {
                let mut says = says(1400 + epoch * 50, 1, epoch, true, OutOfSync);
                says.seen.as_mut().unwrap().copies.truncate(if epoch == 4 { 1 } else { 2 });
                timeline.learn(says);
            }
            let told: Vec<(i64, Kind)> =
                timeline.into_events().into_iter().map(|event| (event.ms, event.kind)).collect();
            assert_eq!(told, [(500, Kind::Removed), (600, Kind::Added)], "{seen:?}");
        }
    }
}
