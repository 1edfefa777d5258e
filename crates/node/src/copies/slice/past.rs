//! Blocks that only snapshots have, and that this node's disk cannot read (*Blocks of snapshots* in
//! `docs/why/replication.md`).
//!
//! A snapshot is the same on all copies that have it, and the map has a checksum of each block. So neither
//! the order of writes nor locks matter, and no copy leaves for such a block: a resync would not bring it.

use std::rc::Rc;

use base::{Buf, Chain};
use store::{BadVersion, SliceError};

use super::SliceCopy;
use super::repair::PHYSICAL_BLOCK;

impl SliceCopy {
    /// Repairs blocks that only snapshots have with what other copies in sync have in the same snapshots.
    /// Returns whether each can be read now.
    ///
    /// # Errors
    /// Those of the layout.
    pub async fn repair_past(
        self: &Rc<Self>,
        bad: Vec<BadVersion>,
    ) -> Result<Vec<(BadVersion, bool)>, SliceError> {
        let mut found = Vec::new();
        for version in &bad {
            self.note_bad_version(version);
            if let Some(data) = self.fetch_version(version).await {
                found.push((*version, data));
            }
        }
        let fetched: Vec<BadVersion> = found.iter().map(|(version, _)| *version).collect();
        let stored = if found.is_empty() { Vec::new() } else { self.layout.put_back(found).await? };
        let repaired = fetched.into_iter().zip(stored).filter(|(_, is_stored)| *is_stored);
        let repaired: Vec<BadVersion> = repaired.map(|(version, _)| version).collect();
        repaired.iter().for_each(|version| self.note_repaired(version.block));
        Ok(bad.into_iter().map(|version| (version, repaired.contains(&version))).collect())
    }

    /// The block, from the first other copy in sync that has the snapshot and can read it.
    async fn fetch_version(self: &Rc<Self>, version: &BadVersion) -> Option<Chain> {
        let start = version.block.offset.0;
        let range = start..(start + PHYSICAL_BLOCK).min(self.len().0);
        for slot in self.others_in_sync()? {
            let Ok(data) = self.fetch_past(slot, version.snapshot, range.clone()).await else { continue };
            // Behind the end of the slice there are zeros.
            let mut block = Buf::zeroed(PHYSICAL_BLOCK as usize);
            data.copy_to(&mut block[..data.len()]);
            if version.is(&block) {
                return Some(block.into());
            }
            tracing::error!(copy = %self.address, ?slot, start, "another copy has something else in a snapshot");
        }
        None
    }
}
