//! Volumes that grow while they are in use.

use base::ByteLen;

use super::Harm;
use crate::cluster::VOLUME;
use crate::layout::{GROWN_MAX, GROWTHS};

/// The volume is made larger, on line, by a little or by a lot.
pub const GROW: Harm = Harm::new("growth", 3, |harms, victim, rng| {
    let cluster = harms.cluster;
    let by = GROWTHS[rng.below(GROWTHS.len() as u64) as usize];
    let size = cluster.entry().size + by;
    if !cluster.is_started(victim.index) || size > GROWN_MAX {
        return false;
    }
    cluster.ask_to(victim.index, move |control| async move {
        drop(control.grow_volume(VOLUME, ByteLen(size)).await);
    });
    true
});
