//! Finds conditions that have no moment of their own, by comparing them with the previous look.

use std::collections::BTreeMap;

use base::ByteLen;
use store::MetadataState;

use super::code::{
    DISK_FAILED, DISK_RETURNED, POOL_CLOSED, POOL_FILLING, POOL_HAS_SPACE, POOL_NEARLY_FULL, POOL_OPENED,
    POOL_READ_ONLY, SNAPSHOT_SCHEDULE_MISSED, VOLUME_AVAILABLE, VOLUME_UNAVAILABLE,
};
use super::{Code, Event};
use crate::control::{Control, FaultKind, Filling, LEVELS, PoolStatus};

/// What was wrong at the last look, by code and subject (for volumes: their identity), with the event for it
/// and the event for its end.
type Wrong = BTreeMap<(&'static str, String), (Event, Option<Event>)>;

/// The findings of the last look.
#[derive(Default)]
pub(super) struct Seen(Wrong);

impl Control {
    /// Emits what has gone wrong, or has recovered, since the last look.
    pub(super) fn look_for_events(&self) {
        let mut now = Wrong::new();
        for pool in self.pools() {
            of_pool(&pool, &mut now);
        }
        // Other nodes may still serve the volume: this node reports only itself.
        let node = self.name();
        for (id, volume, why) in self.unserved_volumes() {
            let text = format!("volume {volume} is not served by {node}: {why}");
            let lost = Event::new(VOLUME_UNAVAILABLE, &volume, text).of_volume(id);
            let text = format!("volume {volume} is served by {node} again");
            let back = Event::new(VOLUME_AVAILABLE, &volume, text).of_volume(id);
            now.insert((VOLUME_UNAVAILABLE.as_str(), id.to_string()), (lost, Some(back)));
        }
        // The node that takes the next snapshot says that it has recovered.
        for fault in self.missed_snapshots() {
            let FaultKind::SnapshotScheduleMissed { schedule, obstacle, .. } = fault.kind else { continue };
            let why = obstacle.map_or("no node has tried".to_owned(), |obstacle| obstacle.to_string());
            let text = format!("schedule {schedule} has missed a snapshot: {why}");
            let missed = Event::new(SNAPSHOT_SCHEDULE_MISSED, &schedule, text);
            now.insert((SNAPSHOT_SCHEDULE_MISSED.as_str(), schedule), (missed, None));
        }
        let events = self.events();
        let before = std::mem::replace(&mut *events.seen.borrow_mut(), Seen(now.clone())).0;
        for (key, (event, _)) in &now {
            if !before.contains_key(key) {
                events.tell(event.clone());
                if [POOL_FILLING.as_str(), POOL_NEARLY_FULL.as_str()].contains(&key.0) {
                    self.warn_hosts_of_filling(&event.subject);
                }
            }
        }
        for (key, (_, back)) in before {
            let is_gone = key.0 == VOLUME_UNAVAILABLE.as_str() && self.volume(&key.1).is_err();
            if let Some(back) = back.filter(|_| !is_gone && !now.contains_key(&key)) {
                events.tell(back);
            }
        }
    }
}

fn of_pool(pool: &PoolStatus, wrong: &mut Wrong) {
    let name = &pool.name;
    let mut note = |code: Code, what: String, lost: Event, back: Option<Event>| {
        wrong.insert((code.as_str(), what), (lost, back));
    };
    let open = match &pool.state {
        Ok(open) => open,
        Err(reason) => {
            let lost = Event::new(POOL_CLOSED, name, format!("pool {name} is not open: {reason}"));
            let back = Event::new(POOL_OPENED, name, format!("pool {name} is open"));
            return note(POOL_CLOSED, name.clone(), lost, Some(back));
        }
    };
    for disk in &open.failed {
        let path = disk.path.display().to_string();
        let error = std::io::Error::from_raw_os_error(disk.errno);
        let text = format!("disk {path} of pool {name} is out of service: a write or flush failed: {error}");
        let lost = Event::new(DISK_FAILED, &path, text).because("io_error");
        let back = Event::new(DISK_RETURNED, &path, format!("disk {path} of pool {name} is back in service"));
        note(DISK_FAILED, path, lost, Some(back));
    }
    if open.metadata == MetadataState::Failed {
        let text = format!("pool {name} is locked: a metadata write failed. I/O continues");
        note(POOL_READ_ONLY, name.clone(), Event::new(POOL_READ_ONLY, name, text), None);
    }
    if let Some(filling) = &open.filling {
        of_filling(name, filling, &mut note);
    }
}

/// Each level that was reached is reported once; that the pool has space again, when it drops below the
/// lowest level.
fn of_filling(name: &str, filling: &Filling, note: &mut impl FnMut(Code, String, Event, Option<Event>)) {
    let (percent, room) = (filling.percent(), ByteLen(filling.space.room));
    for level in LEVELS.into_iter().filter(|level| filling.level >= Some(*level)) {
        let code = if level == LEVELS[LEVELS.len() - 1] { POOL_NEARLY_FULL } else { POOL_FILLING };
        let text = format!("pool {name} is {percent} % full: its log volumes can take {room} more");
        let back = (level == LEVELS[0]).then(|| {
            Event::new(POOL_HAS_SPACE, name, format!("pool {name} is less than {level} % full again"))
        });
        note(code, format!("{name} {level}"), Event::new(code, name, text), back);
    }
}
