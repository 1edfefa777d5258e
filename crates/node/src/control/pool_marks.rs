//! Detects pools that were set back to an earlier state: a reverted snapshot, a restored backup, a stale leg
//! of a mirror.
//!
//! A pool has a counter ([`PoolMark`]), and the cluster's record has one for each pool. The node opens the
//! copies of a pool only after it has compared the two in this life, and has advanced both: the pool's first,
//! and durably. So a pool whose counter is lower than the record's is in an earlier state, and what the
//! record says about its copies does not hold for its data. See `docs/why/pool.md`, *Pools that were set
//! back*.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use base::Instant;
use cluster::Outcome;
use store::{Pool, PoolId, PoolMark, VolumeId, VolumeInfo};

use super::volumes::is_current;
use super::{Beat, Control, ControlError, Fault, FaultKind, PoolStatus, Result};
use crate::canary::{Canary, makes};
use crate::copies::{Copies, PoolMarkEntry, pool_mark_key};
use crate::events::code::POOL_SET_BACK;
use crate::events::{Event, tell};
use crate::member::{ClusterError, RECORD_DEADLINE, Reconciler, json};
use crate::shard::{Shard, on_all_cores};
use crate::under_way::UnderWay;

/// How often a pool's mark advances while its copies are written. An image of a pool in use is detected if it
/// is older than this.
const MARK_EVERY: Duration = Duration::from_secs(60);

/// How long after a change of the copies in sync the mark advances: many volumes change at the same moment.
const MARK_AFTER: Duration = Duration::from_secs(1);

/// How often pools are checked without a notification.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The pause after a failed comparison.
const TRY_AGAIN: Duration = Duration::from_millis(100);

/// The result of comparing a pool with the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// It was not set back.
    Current,
    /// It is in an earlier state: the record knew this mark of it.
    SetBack(PoolMark),
}

/// Compares a pool's mark with the one that the record has; returns the result, and the mark that both get
/// next.
///
/// A pool may be ahead: its node advanced it and stopped before it could update the record, or the record
/// itself was set back.
fn compare(held: PoolMark, known: Option<PoolMark>, at: u64) -> (Found, PoolMark) {
    let found = match known {
        Some(known) if known.count > held.count => Found::SetBack(known),
        _ => Found::Current,
    };
    let highest = known.map_or(held.count, |known| known.count.max(held.count));
    (found, PoolMark { count: highest + 1, at })
}

/// When a pool's mark was last advanced, and what had happened until then.
#[derive(Clone, Copy)]
struct Marked {
    at: Instant,
    activations: u64,
    writes: u64,
}

/// The work on the marks of all pools.
#[derive(Default)]
struct Marks {
    last: RefCell<BTreeMap<PoolId, Marked>>,
    /// Pools whose marks are being advanced.
    under_way: UnderWay<PoolId>,
}

impl Control {
    /// Compares pools with the record before their copies are used, and advances their marks while they are.
    pub(super) async fn keep_pool_marks(self: Rc<Control>, reconciler: Rc<Reconciler>) {
        let marks = Rc::new(Marks::default());
        while !reconciler.is_stopping() {
            let writes = writes_taken().await;
            let now = Marked { at: rt::now(), activations: reconciler.activations(), writes };
            for pool in self.to_be_marked(&marks, now) {
                // Each in its own task: a disk that hangs must not keep the copies of other pools closed.
                let (control, reconciler, all) =
                    (Rc::clone(&self), Rc::clone(&reconciler), Rc::clone(&marks));
                marks
                    .under_way
                    .start(pool, async move { control.keep_mark(&reconciler, &all, pool, now).await });
            }
            let next = Beat::Marks.after(rt::now(), LOOK_EVERY);
            let _ = rt::timeout_at(next, self.unvouched.notified()).await;
        }
    }

    fn to_be_marked(&self, marks: &Marks, now: Marked) -> Vec<PoolId> {
        let may_wait = |pool: &Pool| {
            let last = marks.last.borrow().get(&pool.id()).copied();
            pool.is_vouched_for() && last.is_some_and(|last| !is_due(last, now))
        };
        // That a pool has copies takes longer to find, and most pools may wait.
        let pools = self.open_pools().into_iter().filter(|pool| !may_wait(pool));
        pools.filter(has_copies).map(|pool| pool.id()).collect()
    }

    async fn keep_mark(&self, reconciler: &Rc<Reconciler>, marks: &Marks, pool: PoolId, now: Marked) {
        match self.mark_pool(reconciler, pool).await {
            Ok(is_new) => {
                marks.last.borrow_mut().insert(pool, now);
                if is_new {
                    reconciler.open_volumes_soon();
                }
                if self.pool_with(pool).is_none_or(|pool| pool.is_vouched_for()) {
                    return;
                }
                // It was closed and opened again meanwhile.
            }
            Err(error) => {
                tracing::debug!(%pool, %error, "the state of a pool could not be compared with the cluster's record yet");
                rt::sleep(TRY_AGAIN).await;
            }
        }
        // It is looked at again as soon as this task has ended.
        self.unvouched.notify();
    }

    /// Compares a pool with the record, and advances the marks of both. Returns whether the pool's copies may
    /// be used now, and could not before.
    ///
    /// The pool is not held while this waits for the record: it could not be closed and opened again.
    async fn mark_pool(&self, reconciler: &Rc<Reconciler>, id: PoolId) -> Result<bool> {
        // Otherwise this node's copy of the record may be as old as the pool, or another start may be using
        // this life.
        if !reconciler.knows_this_life() {
            return Err(ControlError::LifeUnknown);
        }
        let key = pool_mark_key(id);
        let entry = reconciler.store().get(&key, RECORD_DEADLINE).await.map_err(ClusterError::from)?;
        let revision = entry.as_ref().map(|entry| entry.revision);
        let known: Option<PoolMarkEntry> = match entry {
            Some(entry) => Some(
                serde_json::from_slice(&entry.value)
                    .map_err(|_| ControlError::Internal("the record's entry of the pool cannot be read"))?,
            ),
            None => None,
        };
        let next = {
            let Some(pool) = self.pool_with(id) else { return Ok(false) };
            let is_new = !pool.is_vouched_for();
            match advance_mark(reconciler, &pool, known.map(|known| known.mark())).await? {
                Some(next) => next,
                None => return Ok(is_new),
            }
        };
        let entry = PoolMarkEntry { node: reconciler.me().0, count: next.count, at: next.at };
        let transaction = Reconciler::transaction().expect(&key, revision).put(&key, json(&entry));
        match reconciler.store().cas(transaction, RECORD_DEADLINE).await.map_err(ClusterError::from)? {
            Outcome::Committed(_) => {
                // If the pool was closed and opened meanwhile, it may have been set back in between.
                let same = self.pool_with(id).filter(|pool| pool.mark() == next);
                let is_new = same.as_ref().is_some_and(|pool| !pool.is_vouched_for());
                same.inspect(Pool::vouch_for);
                Ok(is_new)
            }
            Outcome::Conflict { key, .. } => Err(ClusterError::Conflict(key).into()),
        }
    }

    /// Whether this node's data of a volume may be opened: its pool is not about to be closed, and has been
    /// compared with the record since it was opened. If not, requests the comparison. Another pool with an
    /// old copy does not matter.
    ///
    /// A fork continues without the record, which cannot be reached, unless what this node has followed of it
    /// shows already that the pool was set back. Data in memory is always from this life.
    pub(crate) fn may_open_copy(&self, reconciler: &Reconciler, id: VolumeId) -> bool {
        let mut found = self.copies_of(id);
        found.retain(|(_, info)| is_current(reconciler, info));
        let is_unvouched =
            |(pool, info): &&(Pool, VolumeInfo)| info.kind.is_durable() && !pool.is_vouched_for();
        let has_fork = reconciler.has_fork(id);
        let waits =
            found.iter().filter(is_unvouched).any(|(pool, _)| !has_fork || is_older(reconciler, pool));
        if self.current_of(found).is_some_and(|(pool, _)| self.is_closing(&pool)) {
            return false;
        }
        if waits {
            self.unvouched.notify();
        }
        !waits
    }

    /// The volumes of a pool that was set back for which no other copy in sync has continued.
    ///
    /// No node serves them until such a copy comes back, or an administrator accepts their older data.
    ///
    /// # Errors
    /// [`ControlError::NothingOlder`].
    pub fn check_accepting_older(&self, name: &str) -> Result<Vec<String>> {
        let only = self.only_older(&self.pool_named(name)?)?;
        match only.is_empty() {
            true => Err(ControlError::NothingOlder(name.to_owned())),
            false => Ok(only.into_iter().map(|info| info.name).collect()),
        }
    }

    /// Accepts the older data of a pool that was set back, for volumes for which no other copy in sync has
    /// continued.
    ///
    /// What was written to them since is lost, and all other copies are resynced from it in full.
    ///
    /// # Errors
    /// As [`Control::check_accepting_older`].
    pub async fn accept_older(&self, name: &str) -> Result<PoolStatus> {
        self.check_accepting_older(name)?;
        let reconciler = self.reconciler()?;
        let older = self.only_older(&self.pool_named(name)?)?;
        let ids: BTreeSet<VolumeId> = older.iter().map(|info| info.id).collect();
        for info in older {
            tracing::warn!(
                volume = info.name,
                pool = name,
                "the older data of a pool that was set back is accepted"
            );
            self.accepted_older.borrow_mut().insert(info.id);
            reconciler.accept(info.id);
        }
        reconciler.open_volumes(&ids).await;
        self.pool(name)
    }

    fn only_older(&self, pool: &Pool) -> Result<Vec<VolumeInfo>> {
        let reconciler = self.reconciler()?;
        let mut volumes = self.set_back_in(pool);
        // If another copy in sync is up, it will mark this one as out of sync in a moment.
        volumes.retain(|info| reconciler.calls_this_copy_in_sync(info.id));
        Ok(volumes)
    }

    /// The copies of this node that were set back with this pool, by name.
    ///
    /// The faults are looked at every other second, and a pool may have a thousand copies, of which none was
    /// set back. To know whether a copy is this node's, the record's entry of its volume has to be read: this
    /// comes last.
    fn set_back_in(&self, pool: &Pool) -> Vec<VolumeInfo> {
        let set_back = pool.set_back_copies().into_iter().filter_map(|id| pool.volume(id));
        let mut current = self.only_current(set_back.collect());
        current.sort_by(|one, other| one.name.cmp(&other.name));
        current
    }

    /// The identity and mark of an open pool.
    pub fn pool_mark(&self, name: &str) -> Option<(PoolId, PoolMark)> {
        let pool = self.pool_named(name).ok()?;
        Some((pool.id(), pool.mark()))
    }

    /// Pools that were set back, until all of their copies are marked for a full resync. From then on the
    /// volumes' own status says what they wait for.
    pub(super) fn set_back(&self) -> Vec<Fault> {
        let Ok(reconciler) = self.reconciler() else { return Vec::new() };
        let fault = |pool: Pool| {
            let mut older = self.set_back_in(&pool);
            older.retain(|info| !self.lacking.borrow().contains(&info.id));
            if older.is_empty() {
                return None;
            }
            let is_stuck = |info: &&VolumeInfo| reconciler.calls_this_copy_in_sync(info.id);
            let stuck: Vec<String> = older.iter().filter(is_stuck).map(|info| info.name.clone()).collect();
            let resynced = older.len() - stuck.len();
            let disks = disks_of(&pool);
            Some(FaultKind::PoolSetBack { pool: pool.name(), disks, resynced, stuck }.into())
        };
        self.open_pools().into_iter().filter_map(fault).collect()
    }
}

/// Advances a pool's own mark, and returns it once it is durable. `None`: that has failed, and the pool is
/// used all the same, because it was not set back.
async fn advance_mark(
    reconciler: &Reconciler,
    pool: &Pool,
    known: Option<PoolMark>,
) -> Result<Option<PoolMark>> {
    let at = (Shard::current().config().unix_now)();
    let held = pool.mark();
    let (found, next) = compare(held, known, at);
    if found != Found::Current && pool.is_vouched_for() {
        return Err(ControlError::Internal("another process uses the pool"));
    }
    let found = if makes(Canary::TrustSetBack) { Found::Current } else { found };
    let set_back = found != Found::Current;
    match pool.set_mark(next, set_back).await {
        Ok(()) => {}
        // Its copies are unchanged, and may be the only ones. That it accepts no changes is shown in the
        // pool's status.
        Err(error) if !set_back => {
            tracing::error!(pool = pool.name(), %error, "the mark of a pool cannot be advanced: a later rollback of the pool to its current state would not be detected");
            pool.vouch_for();
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    }
    if let Found::SetBack(known) = found {
        tell_set_back(reconciler, pool, held, known);
    } else if !pool.is_vouched_for() && !pool.older_disks().is_empty() {
        tell_older_disks(reconciler, pool);
    }
    Ok(Some(next))
}

/// Whether what this node has followed of the record shows that the pool was set back. The record may have a
/// later mark than that.
fn is_older(reconciler: &Reconciler, pool: &Pool) -> bool {
    let followed = reconciler.get::<PoolMarkEntry>(&pool_mark_key(pool.id()));
    followed.is_some_and(|(followed, _)| followed.count > pool.mark().count)
}

fn is_due(before: Marked, now: Marked) -> bool {
    let age = now.at.since(before.at);
    age >= MARK_EVERY && now.writes != before.writes
        || age >= MARK_AFTER && now.activations != before.activations
}

/// The number of writes to this node's copies so far.
async fn writes_taken() -> u64 {
    on_all_cores(|| async { Copies::current().writes() }).await.iter().sum()
}

fn has_copies(pool: &Pool) -> bool {
    pool.volumes().iter().any(|info| info.kind.is_durable())
}

fn disks_of(pool: &Pool) -> String {
    pool.paths().iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

fn tell_set_back(reconciler: &Reconciler, pool: &Pool, held: PoolMark, known: PoolMark) {
    let (name, disks) = (pool.name(), disks_of(pool));
    let age = known.at.saturating_sub(held.at);
    let text = format!(
        "pool {name} ({disks}) was set back to an older state: it was last seen at mark {} and is now at mark {}, which is {age} seconds older; its copies are resynced in full, and volumes with a single copy serve older data",
        known.count, held.count
    );
    tracing::error!("{text}");
    tell(Event::new(POOL_SET_BACK, name, text).because("set-back").of_node(reconciler.me().0));
}

fn tell_older_disks(reconciler: &Reconciler, pool: &Pool) {
    let name = pool.name();
    let older = pool.older_disks().iter().map(|path| path.display().to_string()).collect::<Vec<_>>();
    let text = format!(
        "{} of pool {name} was set back to an older state than the pool's other disks: its copies are resynced in full; volumes without copies may hold a mixture of older and newer data",
        older.join(", ")
    );
    tracing::error!("{text}");
    tell(Event::new(POOL_SET_BACK, name, text).because("set-back").of_node(reconciler.me().0));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(count: u64) -> PoolMark {
        PoolMark { count, at: count * 10 }
    }

    #[test]
    fn a_pool_that_has_counted_less_than_the_record_was_set_back() {
        let next = |count| PoolMark { count, at: 99 };
        assert_eq!(compare(mark(0), None, 99), (Found::Current, next(1)), "a new pool");
        assert_eq!(compare(mark(4), Some(mark(4)), 99), (Found::Current, next(5)));
        assert_eq!(compare(mark(5), Some(mark(4)), 99), (Found::Current, next(6)), "the record was not told");
        assert_eq!(compare(mark(9), None, 99), (Found::Current, next(10)), "of another cluster");
        // The next mark is higher than any known one, so a pool is never found set back twice for one reason.
        assert_eq!(compare(mark(3), Some(mark(7)), 99), (Found::SetBack(mark(7)), next(8)));
        assert_eq!(compare(mark(0), Some(mark(1)), 99), (Found::SetBack(mark(1)), next(2)));
    }
}
