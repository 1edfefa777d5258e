//! A disk, or a whole machine, that is set back: an image of it that was taken at some moment is put back later, as a snapshot that is reverted or a backup that
//! is restored.
//!
//! What can be noticed is an image of which the record knows that the pool has counted on since (`docs/why/pool.md`); a younger one is nobody's to notice, and is
//! not put back here. Nor is the only copy that has everything: nothing brings that back. And what the image lacks must be missed by no bit of a dirty map, or a
//! resync of what was written lately would hide that the copy was trusted: hosts write all the time to the blocks that they use, so a block is written of which
//! nobody speaks afterwards ([`layout::quiet`]).

use std::time::Duration;

use super::{Harm, Harms};
use crate::cluster::POOL;
use crate::layout;
use base::ByteOffset;
use node::copies::{PoolMarkEntry, pool_mark_key};

/// The disk of a node is set back while it is down.
pub const DISK_BACK: Harm =
    Harm::new("disk set back", 6, |harms, victim, _| harms.set_back(victim.index, victim.other, false))
        .costs_full_copies()
        .floor(3);

/// A machine is set back with all it has: its pool, and what the node itself has written down.
pub const MACHINE_BACK: Harm = Harm {
    repair: |harms| harms.restart_set_back(),
    ..Harm::new("machine set back", 6, |harms, victim, _| harms.set_back(victim.index, victim.other, true))
        .costs_full_copies()
        .floor(3)
};

/// How long it takes at most until an image is old, where nothing else happens: the node is lost and in sync again, the pool has counted on, and bits of what was
/// written before are gone.
const OLD_WITHIN: Duration = Duration::from_secs(25);
/// How often that is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// A copy that was set back and did not come in sync again yet.
pub struct Older {
    index: usize,
    /// The lives that the record had of its copies: in others they have come in sync again.
    lives: Vec<u64>,
}

impl Harms<'_> {
    /// Takes an image of a node's disk, waits until it is old, and puts it back. Says whether that could be done.
    fn set_back(&mut self, index: usize, other: usize, machine: bool) -> bool {
        let cluster = self.cluster;
        if !self.calm_down() {
            return false;
        }
        let (id, mark) = cluster
            .control(index, |control| async move { control.pool_mark(POOL) })
            .expect("its pool is open: it is in sync");
        let (disk, record) = (cluster.disk(index), cluster.node_record(index));
        let written = self.write_quietly(other);
        self.inside.run_for(LOOK_EVERY);
        if !self.kill_and_tell(index) {
            return false;
        }
        self.start(index);
        let (key, block) = (pool_mark_key(id), self.plan.block);
        let quiet = ByteOffset(layout::quiet(block) * u64::from(block.bytes()));
        let is_old = || {
            let known = cluster.record.value(&key);
            let known: Option<PoolMarkEntry> = known.and_then(|value| serde_json::from_slice(&value).ok());
            known.is_some_and(|known| known.count > mark.count)
                && written.get()
                && self.is_calm()
                && (0..cluster.servers.len()).all(|index| !cluster.notes(index, quiet))
        };
        let until = cluster.world.now() + OLD_WITHIN;
        while !is_old() {
            if cluster.world.now() > until {
                return false;
            }
            self.inside.run_for(LOOK_EVERY);
        }
        let lives = cluster.lives_of(index);
        cluster.world.crash(self.machine(index));
        cluster.put_disk(index, disk);
        if machine {
            cluster.put_node_record(index, record);
        }
        self.make_disks_well();
        self.older.push(Older { index, lives });
        true
    }

    /// Whether the node's disk was set back, and not all of its copies have come in sync since.
    pub(super) fn holds_older_data(&self, index: usize) -> bool {
        let is_back = |lives: &[u64]| {
            let now = self.cluster.lives_of(index);
            self.cluster.has_all(index) && now.iter().zip(lives).all(|(now, then)| now != then)
        };
        self.older.iter().any(|older| older.index == index && !is_back(&older.lives))
    }

    /// Restarts nodes that found themselves set back: an administrator is told to.
    fn restart_set_back(&self) {
        let cluster = self.cluster;
        for index in (0..cluster.servers.len()).filter(|index| cluster.is_started(*index)).collect::<Vec<_>>()
        {
            let told = cluster.control(index, |control| async move {
                control.troubles().iter().any(|trouble| trouble.code == "node_set_back")
            });
            if told {
                self.counts.count("machine set back noticed");
                cluster.world.kill(self.machine(index));
            }
        }
    }
}
