//! How full pools with log volumes are. A full pool refuses writes that need space, so administrators and
//! hosts are warned before.

use base::ByteLen;
use proto::block::{BlockError, Space};
use proto::scsi::{Thresholds, UnitAttention};
use rt::CoreId;
use store::{CAPACITY_MAX, LogSpace, Pool, Usage};

use super::Control;
use crate::data::VolumeId;
use crate::shard::{Shard, on_all_cores};

/// The levels at which administrators and hosts are warned, in percent.
pub const LEVELS: [u8; 3] = [80, 90, 95];

/// How far the use must fall below a level before the pool leaves the level, in percent.
const LEFT_BELOW: u8 = 2;

/// The levels as log volumes report them to hosts: by the share of space that is available.
pub(super) const THRESHOLDS: Thresholds = Thresholds { available: &AVAILABLE, margin: LEFT_BELOW };

const AVAILABLE: [u8; LEVELS.len()] = [100 - LEVELS[0], 100 - LEVELS[1], 100 - LEVELS[2]];

// The largest volume has less than 2^32 threshold sets.
const _: () = assert!(CAPACITY_MAX.0 / Thresholds::SET_BYTES < 1 << 32);

/// How full a pool with log volumes is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filling {
    /// The space of its log volumes.
    pub space: LogSpace,
    /// How much all volumes use, in bytes: extents of thick volumes, blocks of log volumes, and what these
    /// have reserved beyond that.
    pub used: u64,
    /// The highest of [`LEVELS`] that the pool has reached and not left since.
    pub level: Option<u8>,
}

impl Filling {
    fn new(usage: &Usage, space: LogSpace) -> Filling {
        let reserved = usage.total.0.saturating_sub(usage.free.0).saturating_sub(space.lent);
        Filling { space, used: reserved + space.live + space.reserved, level: None }
    }

    /// How full it is, in percent.
    pub fn percent(&self) -> u8 {
        let all = u128::from(self.used) + u128::from(self.space.room);
        (u128::from(self.used) * 100).checked_div(all).unwrap_or(100) as u8
    }

    /// The level now, if it was `before`.
    fn level_after(&self, before: Option<u8>) -> Option<u8> {
        let percent = self.percent();
        let holds = |level: u8| {
            let stays = before.is_some_and(|before| before >= level);
            percent + if stays { LEFT_BELOW } else { 0 } >= level
        };
        LEVELS.into_iter().rev().find(|level| holds(*level))
    }
}

impl Control {
    /// How full a pool is, measured now; `None` if it has no log volumes.
    pub(super) fn filling(&self, pool: &Pool, usage: &Usage) -> Option<Filling> {
        let mut levels = self.levels.borrow_mut();
        let before = levels.remove(&pool.id());
        let filling = Filling::new(usage, pool.log_space()?);
        let level = filling.level_after(before);
        levels.extend(level.map(|level| (pool.id(), level)));
        Some(Filling { level, ..filling })
    }

    /// Warns the hosts that use log volumes of a pool that it has reached a level: the highest that it has
    /// reached by now.
    pub(crate) fn warn_hosts_of_filling(&self, pool: &str) {
        let Ok(pool) = self.pool_named(pool) else { return };
        let reached = self.levels.borrow().get(&pool.id()).copied();
        let Some(index) = LEVELS.iter().position(|level| Some(*level) == reached) else { return };
        let attention = UnitAttention::SoftThreshold(index as u8);
        let volumes = pool.volumes().into_iter().filter(|volume| volume.kind.is_thin());
        let ids: Vec<_> = volumes.map(|volume| volume.id).collect();
        rt::spawn(async move {
            on_all_cores(move || async move {
                for unit in ids.iter().filter_map(|id| Shard::current().unit(*id)) {
                    unit.brain().borrow_mut().attention_to_all(attention);
                }
            })
            .await;
        })
        .detach();
    }

    /// The space of a log volume; `None` if its pool is not open.
    fn space_of(&self, id: VolumeId) -> Option<Space> {
        let pool = self.pool_of(id).ok()?;
        let info = pool.volume(id)?;
        let used = info.reserved;
        let filling = Filling::new(&pool.usage(), pool.log_space()?);
        // Nobody else can use what is left of its reserve.
        let own = info.space.reserve.0.saturating_sub(used.0);
        let available = ByteLen(filling.space.room + own);
        Some(Space { used, available, available_percent: 100 - filling.percent() })
    }
}

/// The space of a log volume on this node. From any core.
///
/// # Errors
/// [`BlockError::Offline`]: its pool is not open.
pub(crate) async fn space_of(id: VolumeId) -> Result<Space, BlockError> {
    let space = rt::call(CoreId(0), move || async move { Control::try_current()?.space_of(id) });
    space.await.ok_or(BlockError::Offline)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filling(total: u64, free: u64, lent: u64, live: u64, room: u64) -> Filling {
        let usage =
            Usage { total: ByteLen(total), free: ByteLen(free), extent: ByteLen(1), disks: Vec::new() };
        Filling::new(&usage, LogSpace { lent, live, room, ..LogSpace::default() })
    }

    #[test]
    fn lent_space_that_is_not_live_counts_as_free() {
        // 200 thick, 300 lent to logs of which 100 are live, 500 not lent.
        let some = filling(1000, 500, 300, 100, 620);
        assert_eq!((some.used, some.percent()), (300, 32));
        assert_eq!(filling(1000, 0, 1000, 900, 0).percent(), 100);
        assert_eq!(filling(0, 0, 0, 0, 0).percent(), 100);
        // A reserve fills the pool for the others.
        let usage = Usage { total: ByteLen(1000), free: ByteLen(500), extent: ByteLen(1), disks: Vec::new() };
        let space = LogSpace { lent: 300, live: 100, reserved: 120, room: 500, ..LogSpace::default() };
        let some = Filling::new(&usage, space);
        assert_eq!((some.used, some.percent()), (420, 45));
    }

    #[test]
    fn hosts_learn_the_levels_from_the_available_space() {
        assert_eq!(THRESHOLDS.available, [20, 10, 5]);
    }

    #[test]
    fn a_level_is_left_two_percent_below_it() {
        let at = |percent| filling(100, 0, 100, percent, 100 - percent);
        assert_eq!(at(79).level_after(None), None);
        assert_eq!(at(80).level_after(None), Some(80));
        assert_eq!(at(78).level_after(Some(80)), Some(80));
        assert_eq!(at(77).level_after(Some(80)), None);
        assert_eq!(at(96).level_after(Some(80)), Some(95));
        assert_eq!(at(93).level_after(Some(95)), Some(95));
        assert_eq!(at(92).level_after(Some(95)), Some(90));
    }
}
