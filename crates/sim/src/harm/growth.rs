//! Volumes that grow while they are in use.

use base::ByteLen;

use super::Harm;
use crate::layout::GROWTHS;

/// A volume is enlarged online, by a little or by a lot.
pub const GROW: Harm = Harm::new("growth", 3, |harms, victim, rng| {
    let cluster = harms.cluster;
    let volume = harms.any_volume(rng);
    let by = GROWTHS[rng.below(GROWTHS.len() as u64) as usize];
    let size = ByteLen(cluster.entry_of(volume).size + by);
    if !cluster.is_started(victim.index) || size > volume.layout.grown_max {
        return false;
    }
    let name = volume.name;
    cluster.ask_to(victim.index, move |control| async move {
        drop(control.grow_volume(name, size).await);
    });
    true
});
