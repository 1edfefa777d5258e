//! The dirty map: when its bits are cleared (R8).

use crate::canary::{Canary, makes};
use crate::{Blocks, Standing};

use super::Replica;

/// How many ticks after the last write to a region its bits are cleared, at the earliest: 5 seconds. With
/// less, a file system's journal would write the map all the time; with more, a crash leaves more to copy.
const WARM_TICKS: u32 = 20;

/// How many regions one tick examines for bits to clear: 4 GiB, so that a TiB takes a minute.
const SWEEP_REGIONS: u64 = 65_536;

impl Replica {
    /// Clears the bits of in-sync copies wherever all blocks are valid (R8), even where they were just
    /// written to.
    ///
    /// One of these copies is about to stop, and what it has need not be copied to it later. This also asks
    /// other members whether blocks that are not valid are done; the next call makes use of their answers.
    pub fn settle(&mut self) {
        self.validate();
        self.ask_validation(Blocks::new(0, self.geometry.blocks));
        self.warm.clear();
        self.sweep_from = 0;
        for _ in 0..=self.geometry.regions() / SWEEP_REGIONS {
            self.clear_bits(makes(Canary::SettleBlind));
        }
    }

    /// Clears the bits of in-sync copies in regions without recent writes (R8): these copies have what is
    /// valid there.
    pub(super) fn clear_bits(&mut self, blind: bool) {
        let Some(config) = &self.config else { return };
        let is_in_sync = matches!(self.standing(), Standing::InSync(_));
        if !is_in_sync || !self.older_finished && !makes(Canary::NoFinished) {
            return;
        }
        let others = config.in_sync().without(self.me);
        let oldest = self.ticks.saturating_sub(WARM_TICKS);
        self.warm.retain(|_, tick| *tick >= oldest);
        let end = self.sweep_from + SWEEP_REGIONS;
        let mut regions = Vec::new();
        while let Some(region) = self.map.next_dirty(self.sweep_from, others).filter(|region| *region < end) {
            regions.push(region);
            self.sweep_from = region + 1;
        }
        self.sweep_from = if end >= self.geometry.regions() { 0 } else { end };
        for region in regions {
            let blocks = self.geometry.blocks_of(region);
            // The table does not know of blocks that are being rewritten (R25).
            let quiet = self.table.is_quiet(blocks) && !self.media.touches(blocks);
            if !self.warm.contains_key(&region) && (quiet || blind) {
                self.map.clear(region, others);
            }
        }
    }
}
