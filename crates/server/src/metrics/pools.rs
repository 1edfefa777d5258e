//! How full pools are, and whether they are available.

use node::control::{MapMemory, PoolStatus};
use store::{LogSpace, MetadataState};

use super::text::{Kind, Text};

pub(super) fn write(text: &mut Text, pools: &[PoolStatus]) {
    let help = "State of the pool: online, read_only (no changes), disk_failed (a disk is out of service), exported, unavailable (not open).";
    let mut family = text.family("ursa_pool_state", Kind::Gauge, help);
    for pool in pools {
        let now = state(pool);
        for state in ["online", "read_only", "disk_failed", "exported", "unavailable"] {
            family.sample(&[("pool", &pool.name), ("state", state)], u8::from(now == state));
        }
    }
    let open = || pools.iter().filter_map(|pool| Some((&pool.name, pool.state.as_ref().ok()?)));
    let mut family = text.family("ursa_pool_capacity_bytes", Kind::Gauge, "Total space for volumes.");
    open().for_each(|(name, open)| family.sample(&[("pool", name)], open.usage.total.0));
    let mut family = text.family("ursa_pool_free_bytes", Kind::Gauge, "Free space for volumes.");
    open().for_each(|(name, open)| family.sample(&[("pool", name)], open.usage.free.0));
    let help = "Space that volumes take: what thick volumes have reserved, and what log volumes use.";
    let mut family = text.family("ursa_pool_used_bytes", Kind::Gauge, help);
    open().for_each(|(name, open)| family.sample(&[("pool", name)], open.used()));
    of_logs(text, pools);
    let help =
        "Space that the pool's sparse files may still take from their file systems as they are written.";
    let mut family = text.family("ursa_pool_promised_bytes", Kind::Gauge, help);
    open().for_each(|(name, open)| family.sample(&[("pool", name)], open.promised));
    let help = "Whether a file system under the pool has less free space than pools of the node may still take from it.";
    let mut family = text.family("ursa_pool_overcommitted", Kind::Gauge, help);
    open().for_each(|(name, open)| family.sample(&[("pool", name)], u8::from(open.overcommit.is_some())));
    let mut family = text.family(
        "ursa_disk_failed",
        Kind::Gauge,
        "Whether a disk is out of service because a write or a flush failed.",
    );
    for (name, open) in open() {
        for disk in &open.usage.disks {
            let path = disk.path.to_string_lossy();
            family.sample(&[("pool", name), ("disk", &path)], u8::from(disk.failure.is_some()));
        }
    }
    let help = "Reads that failed on a disk, by volume. Reads of one block within a second count once.";
    let mut family = text.family("ursa_disk_read_errors_total", Kind::Counter, help);
    for (name, open) in open() {
        for errors in &open.read_errors {
            for (volume, failed) in &errors.failed {
                family.sample(&[("pool", name), ("disk", &errors.disk), ("volume", volume)], *failed);
            }
        }
    }
    let help = "Bad blocks that were rewritten with another copy's data.";
    let mut family = text.family("ursa_disk_repaired_blocks_total", Kind::Counter, help);
    for (name, open) in open() {
        for errors in &open.read_errors {
            family.sample(&[("pool", name), ("disk", &errors.disk)], errors.repaired);
        }
    }
    let mut family = text.family("ursa_pool_volumes", Kind::Gauge, "Number of volumes in the pool.");
    open().for_each(|(name, open)| family.sample(&[("pool", name)], open.volumes));
}

/// A figure of pools with log volumes: name, kind, help and value.
type LogFigure = (&'static str, Kind, &'static str, fn(&LogSpace) -> u64);

/// Counters begin at 0 when the node opens the logs.
const OF_LOGS: [LogFigure; 12] = [
    ("ursa_pool_log_lent_bytes", Kind::Gauge, "Space that the pool has lent to its logs.", |space| {
        space.lent
    }),
    (
        "ursa_pool_log_used_bytes",
        Kind::Gauge,
        "Space that log volumes use. Blocks that were overwritten or unmapped may count until they are merged, usually a few seconds after hosts stop writing.",
        |space| space.live,
    ),
    (
        "ursa_pool_log_room_bytes",
        Kind::Gauge,
        "Space that all log volumes can still take: when it is 0, only writes to volumes with an unused reserve succeed.",
        |space| space.room,
    ),
    (
        "ursa_pool_log_reserved_bytes",
        Kind::Gauge,
        "Space that is kept for the unused reserves of log volumes.",
        |space| space.reserved,
    ),
    (
        "ursa_pool_log_snapshot_bytes",
        Kind::Gauge,
        "Part of ursa_pool_log_used_bytes that only snapshots need.",
        |space| space.snapshots,
    ),
    (
        "ursa_pool_log_freeing_bytes",
        Kind::Gauge,
        "Part of ursa_pool_log_used_bytes that deleted snapshots still hold, at most: it is freed in the background.",
        |space| space.freeing,
    ),
    (
        "ursa_pool_log_host_written_bytes_total",
        Kind::Counter,
        "Bytes that hosts, and other nodes, wrote to log volumes.",
        |space| space.written_by_hosts,
    ),
    (
        "ursa_pool_log_written_bytes_total",
        Kind::Counter,
        "Bytes written to the disks for log volumes, with maps and what the cleaner moves: divided by ursa_pool_log_host_written_bytes_total, the write amplification.",
        |space| space.written,
    ),
    (
        "ursa_pool_log_moved_bytes_total",
        Kind::Counter,
        "The part of ursa_pool_log_written_bytes_total that is data moved by the cleaner.",
        |space| space.written_moved,
    ),
    (
        "ursa_pool_log_map_written_bytes_total",
        Kind::Counter,
        "The part of ursa_pool_log_written_bytes_total that is maps.",
        |space| space.written_map,
    ),
    (
        "ursa_pool_log_repaired_blocks_total",
        Kind::Counter,
        "Unreadable blocks of the block maps of log volumes that were replaced with their second copy when the node opened the logs.",
        |space| space.state_repaired,
    ),
    ("ursa_pool_log_memory_bytes", Kind::Gauge, "Memory of the block maps of log volumes.", |space| {
        space.memory
    }),
];

fn of_logs(text: &mut Text, pools: &[PoolStatus]) {
    for (name, kind, help, figure) in OF_LOGS {
        let mut family = text.family(name, kind, help);
        for pool in pools {
            if let Some(filling) = pool.state.as_ref().ok().and_then(|open| open.filling) {
                family.sample(&[("pool", &pool.name)], figure(&filling.space));
            }
        }
    }
}

/// The memory that all log volumes share.
pub(super) fn maps(text: &mut Text, MapMemory { used, limit }: MapMemory) {
    let help = "Memory of the block maps of all log volumes.";
    text.family("ursa_map_memory_bytes", Kind::Gauge, help).sample(&[], used.0);
    let help = "Limit of ursa_map_memory_bytes: the setting map-max.";
    text.family("ursa_map_memory_limit_bytes", Kind::Gauge, help).sample(&[], limit.0);
}

/// The state, in the terms of the API.
fn state(pool: &PoolStatus) -> &'static str {
    match &pool.state {
        Err(_) => "unavailable",
        Ok(open) => match open.metadata {
            MetadataState::Exported => "exported",
            _ if !open.failed.is_empty() => "disk_failed",
            MetadataState::Writable => "online",
            MetadataState::Failed => "read_only",
        },
    }
}
