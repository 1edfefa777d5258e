//! Disks that leave their pools: what lies on them moves to the other disks, part by part, while hosts use
//! the volumes. Logs empty their zones by themselves; the node waits for that.
//!
//! That a disk is leaving is durable in its pool. So a node that starts again, or a pool that is imported,
//! continues by itself.

use std::mem::discriminant;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use base::ByteLen;
use serde::{Deserialize, Serialize};
use store::{Moved, MovedPart, Moving, Pool, PoolId, RemovableDisk, SliceError, StoreError};

use super::doing::Doing;
use super::{ChangeFailure, Control, ControlError, PoolStatus, Result};
use crate::data::VolumeId;
use crate::shard::{Shard, on_all_cores};
use crate::under_way::UnderWay;

/// How long the node waits before it tries again what has failed.
const RETRY_AFTER: Duration = Duration::from_secs(30);

/// How long operations under way on a part that is about to move may take to end: later ones wait meanwhile.
const HELD_WITHIN: Duration = Duration::from_secs(1);

/// How often the node looks whether another disk is to be emptied, while one is, and how far logs are.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A disk that is leaving its pool, as administrators see it.
#[derive(Clone, Debug)]
pub struct DiskLeaving {
    /// The disk's path.
    pub path: PathBuf,
    /// How much still lies on it.
    pub left: ByteLen,
    /// Why it makes no progress.
    pub problem: Option<NotEmptied>,
}

/// Why a disk that is leaving its pool cannot be emptied now. Nodes report it to each other as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum NotEmptied {
    /// A volume on it, by its ID, cannot be moved.
    #[error(
        "volume {0} cannot be moved to another disk now, because it is not served, is being opened or closed, or its disks respond too slowly"
    )]
    VolumeNotHeld(String),
    /// A log on it cannot be read.
    #[error(
        "data of log volumes on {} cannot be read, so it stays there: scrub the pool's log volumes, or rebuild their copies",
        .0.display()
    )]
    LogUnreadable(PathBuf),
    /// For a reason for which any change of the pool could fail.
    #[error(transparent)]
    Failed(ChangeFailure),
}

impl From<&ControlError> for NotEmptied {
    fn from(error: &ControlError) -> NotEmptied {
        match error {
            ControlError::Store(StoreError::VolumeNotHeld(volume)) => {
                NotEmptied::VolumeNotHeld(volume.to_string())
            }
            ControlError::Store(StoreError::LogUnreadable { path }) => {
                NotEmptied::LogUnreadable(path.clone())
            }
            other => NotEmptied::Failed(other.into()),
        }
    }
}

impl Control {
    /// Removes a disk from a pool that is in use: at once if nothing lies on it, else when everything on it
    /// has moved to the other disks, which continues in the background.
    ///
    /// # Errors
    /// Something lies on the disk that cannot be moved, the other disks have too little space, and other
    /// errors of the store.
    pub async fn remove_disk(self: &Rc<Control>, name: &str, disk: PathBuf) -> Result<PoolStatus> {
        match self.remove_empty_disk(name, disk.clone()).await {
            Err(ControlError::Store(StoreError::DiskInUse { .. })) => self.let_disk_leave(name, disk).await,
            ended => ended,
        }
    }

    /// Checks, without doing it, whether a disk could be removed from a pool, and how much would be moved.
    ///
    /// # Errors
    /// As [`Control::remove_disk`], except those that only the disks can report.
    pub fn check_disk_removal(&self, name: &str, disk: &Path) -> Result<RemovableDisk> {
        let pool = self.pool_named(name)?;
        match pool.check_removal(disk) {
            Err(StoreError::DiskInUse { .. }) => Ok(pool.check_leave(disk)?),
            checked => Ok(checked?),
        }
    }

    async fn let_disk_leave(self: &Rc<Control>, name: &str, disk: PathBuf) -> Result<PoolStatus> {
        self.change_pool(Doing::LetDiskLeave, name, move |control, _, pool| async move {
            pool.leave(&disk).await?;
            control.leaving.notify();
            control.pool(&pool.name())
        })
        .await
    }

    /// Keeps the disk that is leaving a pool. Data that was moved stays where it is.
    ///
    /// # Errors
    /// [`StoreError::NotLeaving`], and other errors of the store.
    pub async fn keep_disk(self: &Rc<Control>, name: &str, disk: PathBuf) -> Result<PoolStatus> {
        self.change_pool(Doing::KeepDisk, name, move |control, _, pool| async move {
            control.check_keeping(&pool.name(), &disk)?;
            pool.stay().await?;
            control.leaving_problems.borrow_mut().remove(&pool.id());
            control.pool(&pool.name())
        })
        .await
    }

    /// Checks whether the disk is leaving its pool.
    ///
    /// # Errors
    /// As [`Control::keep_disk`].
    pub fn check_keeping(&self, name: &str, disk: &Path) -> Result<()> {
        let leaving = self.pool_named(name)?.leaving();
        match leaving.is_some_and(|leaving| leaving.path == disk) {
            true => Ok(()),
            false => Err(StoreError::NotLeaving { path: disk.to_owned() }.into()),
        }
    }

    /// The disk that is leaving a pool.
    pub(super) fn disk_leaving(&self, pool: &Pool) -> Option<DiskLeaving> {
        let problem = self.leaving_problems.borrow().get(&pool.id()).map(NotEmptied::from);
        let leaving = pool.leaving()?;
        Some(DiskLeaving { path: leaving.path, left: leaving.left, problem })
    }

    /// Empties disks that are leaving their pools, until the node stops. Each pool has a task of its own,
    /// since its disks may hang.
    pub(super) async fn empty_leaving_disks(self: Rc<Control>) {
        let under_way = UnderWay::default();
        loop {
            self.leaving.until(|| !self.pools_with_leaving_disks().is_empty()).await;
            for (id, name) in self.pools_with_leaving_disks() {
                let control = Rc::clone(&self);
                under_way.start(id, async move { control.empty_leaving_disk(id, &name).await });
            }
            rt::sleep(LOOK_EVERY).await;
        }
    }

    fn pools_with_leaving_disks(&self) -> Vec<(PoolId, String)> {
        let leaving = self.open_pools().into_iter().filter(|pool| pool.leaving().is_some());
        leaving.map(|pool| (pool.id(), pool.name())).collect()
    }

    /// Moves what lies on the leaving disk of a pool, and then removes the disk; or tells why it cannot.
    ///
    /// The pool itself is not held between the parts: it could not be closed.
    async fn empty_leaving_disk(self: &Rc<Control>, id: PoolId, name: &str) {
        let failed = loop {
            match self.move_next_part(name).await {
                Ok(true) => {
                    self.leaving_problems.borrow_mut().remove(&id);
                    continue;
                }
                Ok(false) => {}
                Err(error) => break Some(error),
            }
            match self.empty_logs(name).await {
                Ok(true) => drop(self.leaving_problems.borrow_mut().remove(&id)),
                Ok(false) => break self.remove_emptied_disk(name).await.err(),
                Err(error) => break Some(error),
            }
            rt::sleep(LOOK_EVERY).await;
        };
        let Some(error) = failed else {
            self.leaving_problems.borrow_mut().remove(&id);
            return;
        };
        let is_known =
            self.leaving_problems.borrow().get(&id).is_some_and(|before| is_same_kind(before, &error));
        if !is_known {
            tracing::warn!(pool = name, %error, "a disk that is leaving its pool cannot be emptied yet");
        }
        self.leaving_problems.borrow_mut().insert(id, error);
        rt::sleep(RETRY_AFTER).await;
    }

    async fn remove_emptied_disk(self: &Rc<Control>, name: &str) -> Result<()> {
        match self.pool_named(name)?.leaving() {
            Some(leaving) => self.remove_empty_disk(name, leaving.path).await.map(drop),
            None => Ok(()),
        }
    }

    /// Moves one part of a volume. Returns whether there was one.
    async fn move_next_part(self: &Rc<Control>, name: &str) -> Result<bool> {
        // No volume of the pool is opened, closed or changed meanwhile.
        self.change_pool(Doing::EmptyDisk, name, |control, _, pool| async move {
            let Some(moving) = pool.next_move().await? else { return Ok(false) };
            control.move_part(&pool, moving).await?;
            Ok(true)
        })
        .await
    }

    /// Has logs give up what they have on the disk. Returns whether anything of them is still there.
    async fn empty_logs(self: &Rc<Control>, name: &str) -> Result<bool> {
        self.change_pool(Doing::EmptyDisk, name, |_, _, pool| async move { Ok(pool.empty_logs().await?) })
            .await
    }

    async fn move_part(&self, pool: &Pool, moving: Moving) -> Result<()> {
        let id = moving.volume;
        let part = moving.part.clone();
        let held = on_all_cores(move || async move {
            // One of them may wait for a disk that hangs, or for another node.
            match rt::timeout(HELD_WITHIN, hold_here(id, &part)).await {
                Ok(held) => held,
                Err(rt::Elapsed) => Err(SliceError::Unavailable),
            }
        })
        .await;
        let held: Result<Vec<usize>, SliceError> = held.into_iter().collect();
        let (moving, moved) = match held {
            Ok(slices) => pool.move_part(moving, slices.iter().sum()).await,
            Err(_) => (moving, Moved::Not(StoreError::VolumeNotHeld(id))),
        };
        let moved = match moved {
            Moved::Done => match self.grow_slices(pool, id).await {
                Ok(()) => Moved::Done,
                // They would continue with the former place.
                Err(_) => Moved::Unknown(StoreError::VolumeNotHeld(id)),
            },
            moved => moved,
        };
        let is_known = !matches!(moved, Moved::Unknown(_));
        on_all_cores(move || async move {
            for slice in Shard::current().volume(id).iter().flat_map(|volume| volume.own_slices()) {
                if is_known { slice.let_go() } else { slice.lose() }
            }
        })
        .await;
        pool.end_move(moving, &moved).await;
        match moved {
            Moved::Done => Ok(()),
            Moved::Not(error) | Moved::Unknown(error) => Err(error.into()),
        }
    }
}

/// Holds the part on this core; returns how many slices of the volume are open here.
async fn hold_here(id: VolumeId, part: &MovedPart) -> Result<usize, SliceError> {
    let Some(volume) = Shard::current().volume(id) else { return Ok(0) };
    let mut slices = 0;
    for slice in volume.own_slices() {
        slice.hold(part).await?;
        slices += 1;
    }
    Ok(slices)
}

/// Whether two errors are of one kind: facts such as how much space is free may differ.
fn is_same_kind(one: &ControlError, other: &ControlError) -> bool {
    match (one, other) {
        (ControlError::Store(one), ControlError::Store(other)) => discriminant(one) == discriminant(other),
        _ => discriminant(one) == discriminant(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_logged_again_when_its_kind_changes() {
        let full = |free| ControlError::from(StoreError::NoSpace { wanted: ByteLen(8), free: ByteLen(free) });
        let read_only = ControlError::from(StoreError::MetadataReadOnly(PoolId([1; 16])));
        assert!(is_same_kind(&full(1), &full(2)));
        assert!(!is_same_kind(&full(1), &read_only));
        assert!(!is_same_kind(&full(1), &ControlError::NoPool));
    }
    #[test]
    fn the_reason_is_sent_as_a_code_and_facts() {
        let sent = |error: StoreError| {
            let why = NotEmptied::from(&ControlError::from(error));
            let sent = serde_json::to_string(&why).unwrap();
            assert_eq!(serde_json::from_str::<NotEmptied>(&sent).unwrap(), why);
            sent
        };
        let id = VolumeId([1; 16]);
        assert_eq!(sent(StoreError::VolumeNotHeld(id)), format!(r#"{{"volume-not-held":"{id}"}}"#));
        let path = PathBuf::from("/dev/sdb");
        assert_eq!(sent(StoreError::LogUnreadable { path }), r#"{"log-unreadable":"/dev/sdb"}"#);
        let full = StoreError::NoSpace { wanted: ByteLen(8), free: ByteLen(4) };
        assert_eq!(sent(full), r#"{"failed":{"refused":{"no-space":{"wanted":8,"free":4}}}}"#);
    }
}
