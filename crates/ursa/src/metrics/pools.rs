//! How full pools are, and whether they are there.

use node::control::PoolStatus;
use store::MetadataState;

use super::text::{Kind, Text};

pub(super) fn write(text: &mut Text, pools: &[PoolStatus]) {
    let mut family = text.family("ursa_pool_up", Kind::Gauge, "Whether the pool is open and takes changes.");
    for pool in pools {
        let up = pool.state.as_ref().is_ok_and(|open| open.metadata == MetadataState::Writable);
        family.sample(&[("pool", &pool.name)], u8::from(up));
    }
    let open = || pools.iter().filter_map(|pool| Some((&pool.name, pool.state.as_ref().ok()?)));
    let mut family =
        text.family("ursa_pool_capacity_bytes", Kind::Gauge, "What volumes can take altogether.");
    open().for_each(|(name, open)| family.sample(&[("pool", name)], open.usage.total.0));
    let mut family = text.family("ursa_pool_free_bytes", Kind::Gauge, "What is left for volumes.");
    open().for_each(|(name, open)| family.sample(&[("pool", name)], open.usage.free.0));
    let mut family = text.family(
        "ursa_disk_failed",
        Kind::Gauge,
        "Whether a disk is out of service since a write or a flush failed.",
    );
    for (name, open) in open() {
        for disk in &open.usage.disks {
            let path = disk.path.to_string_lossy();
            family.sample(&[("pool", name), ("disk", &path)], u8::from(disk.failure.is_some()));
        }
    }
    let mut family = text.family("ursa_pool_volumes", Kind::Gauge, "How many volumes the pool has.");
    open().for_each(|(name, open)| family.sample(&[("pool", name)], open.volumes));
}
