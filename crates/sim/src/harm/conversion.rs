//! Volumes that are converted between thick and log-structured while hosts use them.
//!
//! Each node converts its own copy in the background, through whatever faults there are. A volume that is
//! converted again before all of its copies are done goes back to its former kind. From the first conversion
//! on, it is unknown where on the disks the volume's sectors are: an image is opened to read them
//! ([`crate::media`]).
//!
//! This is a part of a plan, and no [`super::Harm`]: it happens beside the plan's faults, by random numbers
//! of its own, and takes no fault's turn.

use std::time::Duration;

use base::Rng;

use super::Harms;
use crate::cluster::Volume;

/// A volume is converted in one turn of faults out of this many.
const ONE_IN: u64 = 3;
/// Longest time from the end of all faults until each copy is of the kind that its volume should have.
const CONVERTED_MAX: Duration = Duration::from_secs(120);
/// If a copy is not converted for this long, and a disk may have failed, an administrator restarts its node:
/// while it is unknown whether the disk is done with a write, the copy keeps both layouts.
const RESTARTED_AFTER: Duration = Duration::from_secs(30);
/// How often to check.
const LOOK_EVERY: Duration = Duration::from_millis(200);

impl Harms<'_> {
    /// Has a volume converted to its other kind now and then.
    ///
    /// The random numbers are for this alone.
    pub fn convert_volumes(&mut self, rng: &mut Rng) {
        let cluster = self.cluster;
        self.note_converted();
        let converts = rng.one_in(ONE_IN);
        let index = rng.below(cluster.servers.len() as u64) as usize;
        let volume = &cluster.volumes[rng.below(cluster.volumes.len() as u64) as usize];
        if converts && self.may_change_volumes(index) {
            self.convert(volume, index);
        }
    }

    /// Asks a node to have a volume converted.
    fn convert(&self, volume: &Volume, by: usize) {
        let cluster = self.cluster;
        let Some(kind) = cluster.entry_of(volume).shape.kind.other() else { return };
        let mut nodes = 0..cluster.servers.len();
        let goes_back = nodes.any(|index| cluster.is_of_its_kind(volume, index) == Some(false));
        let what = if goes_back { "conversion cancelled" } else { "conversion begun" };
        self.media.let_move(volume);
        let (name, counts) = (volume.name, self.counts.clone());
        cluster.ask_to(by, move |control| async move {
            if control.convert_volume(name, kind).await.is_ok() {
                counts.count(what);
            }
        });
    }

    /// Counts the copies that were converted since the last time.
    fn note_converted(&mut self) {
        let cluster = self.cluster;
        for volume in &cluster.volumes {
            for index in 0..cluster.servers.len() {
                let Some((kind, _)) = cluster.kinds_of_copy(volume, index) else { continue };
                let before = self.kinds.insert((volume.index, index), kind);
                if before.unwrap_or(volume.kind) != kind {
                    self.counts.count("copy converted");
                }
            }
        }
    }

    /// Whether one of the node's copies is being converted at this moment.
    pub(super) fn is_converting(&self, index: usize) -> bool {
        let mut volumes = self.cluster.volumes.iter();
        volumes.any(|volume| matches!(self.cluster.kinds_of_copy(volume, index), Some((_, Some(_)))))
    }

    /// Waits until each copy is of the kind that its volume should have, under load and without faults.
    ///
    /// # Panics
    /// If that takes too long.
    pub fn see_conversions_end(&mut self) {
        let cluster = self.cluster;
        let (began, mut restarted_at) = (cluster.world.now(), cluster.world.now());
        while let Some(index) = self.unconverted() {
            let now = cluster.world.now();
            assert!(
                now < began + CONVERTED_MAX,
                "a copy of node {} is not converted though nothing fails any more: {}",
                index + 1,
                cluster.conversions(index)
            );
            if self.plan.costs_full_copies() && now >= restarted_at + RESTARTED_AFTER {
                self.counts.count("node restarted for a conversion");
                self.kill(index);
                restarted_at = now;
            }
            self.look_after();
            self.inside.run_for(LOOK_EVERY);
        }
        self.note_converted();
    }

    /// A node with a copy that is not of the kind that it should have.
    fn unconverted(&self) -> Option<usize> {
        let cluster = self.cluster;
        (0..cluster.servers.len()).find(|index| {
            cluster.volumes.iter().any(|volume| cluster.is_of_its_kind(volume, *index) != Some(true))
        })
    }
}
