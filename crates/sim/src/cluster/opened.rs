//! What a store finds on the disks of a node: a pool is opened from an image of them, in a world of its own.
//!
//! The blocks of a log volume have no place: only the log itself knows where they are. And a log that does
//! not open has lost everything, wherever the blocks are. So an image is opened as a node would open it after
//! a crash, and read.

use std::collections::BTreeMap;
use std::path::PathBuf;

use base::{ByteLen, ByteOffset};
use rt::CoreId;
use rt::sim::World;
use store::{
    Host, HostId, LogMemory, OpenPool, Pool as StorePool, RamBudget, ReadFailure, Slice, SliceError, VolumeId,
};

use super::{Cluster, LOG_TUNING, MAP_BYTES, Pool, Volume};
use crate::layout::SECTOR;

/// The sectors that were found, by volume and sector. Those that are lost there (R27) are missing.
pub type Found = BTreeMap<(usize, u64), [u8; SECTOR]>;

/// What is expected of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expects {
    /// All can be read, and the invariants of the logs hold: no disk has had a fault.
    Invariants,
    /// All can be read.
    Data,
    /// Blocks may be unreadable, because something has rotted. They are missing in what is found.
    Rot,
    /// Nothing: a disk under a log may have failed.
    Nothing,
}

/// What is to be read of a volume.
struct ReadSpec {
    index: usize,
    id: VolumeId,
    sectors: Vec<u64>,
}

impl Cluster {
    /// Opens an image of the disks of a node's pool, and reads these sectors of its volumes. No time passes
    /// in the cluster's world, and nothing changes there.
    ///
    /// # Panics
    /// If an invariant of a log does not hold.
    pub fn opened(
        &self,
        index: usize,
        pool: Pool,
        volumes: &[(&Volume, Vec<u64>)],
        expects: Expects,
    ) -> Result<Found, String> {
        let wanted = |(volume, sectors): &(&Volume, Vec<u64>)| {
            let id = VolumeId::parse(&self.entry_of(volume).id)?;
            Some(ReadSpec { index: volume.index, id, sectors: sectors.clone() })
        };
        let wanted: Vec<ReadSpec> = volumes.iter().filter_map(wanted).collect();
        // The same image gives the same run.
        let world = World::new(self.world.seed());
        let machine = world.add_node("opened", 1, |_| std::future::pending());
        for (path, image) in pool.disks.iter().zip(self.disks(index, pool)) {
            match self.in_files {
                true => world.put_file(machine, path, image),
                false => world.put_disk(machine, path, image),
            }
        }
        let paths: Vec<PathBuf> = pool.disks.iter().map(PathBuf::from).collect();
        world.block_on(machine, CoreId(0), move || read(paths, wanted, expects))
    }
}

async fn read(paths: Vec<PathBuf>, wanted: Vec<ReadSpec>, expects: Expects) -> Result<Found, String> {
    let host = Host { id: HostId([0xaa; 16]), name: "opened".into() };
    let options = OpenPool { host, force: true, ram: RamBudget::new(ByteLen(0)), uncertain: None };
    let pool = StorePool::open(&paths, options).await.map_err(|error| error.to_string())?;
    pool.set_log_tuning(LOG_TUNING);
    pool.set_log_memory(LogMemory::new(ByteLen(MAP_BYTES)));
    let disks = pool.share_disks().attach();
    // A log is closed with its last slice, and not to be opened again before that has ended.
    let (mut found, mut opened) = (Found::new(), Vec::new());
    for ReadSpec { index, id, sectors } in wanted {
        let info = pool.volume(id).ok_or_else(|| format!("the pool does not have volume {id}"))?;
        let specs = pool.volume_slices(id, CoreId(0), 1).map_err(|error| error.to_string())?;
        let slices: Vec<Slice> = specs.into_iter().map(|spec| spec.open(&disks)).collect();
        let block = u64::from(info.block_size.bytes());
        for sector in sectors {
            let at = sector * SECTOR as u64;
            let (slice, offset) = info.stripe.locate(ByteOffset(at - at % block));
            let read = slices[usize::from(slice)].read(offset, ByteLen(block)).await;
            match read {
                Ok(data) => {
                    let within = (at % block) as usize;
                    let bytes: [u8; SECTOR] =
                        data.to_vec()[within..within + SECTOR].try_into().expect("it is as long as a sector");
                    found.insert((index, sector), bytes);
                }
                Err(SliceError::Unreadable(bad))
                    if bad.cause == ReadFailure::Lost || expects == Expects::Rot => {}
                Err(error) => return Err(format!("sector {sector}: {error}")),
            }
        }
        if expects == Expects::Invariants {
            for slice in &slices {
                check(slice).await;
            }
        }
        opened.push(slices);
    }
    Ok(found)
}

/// Checks I2, I3, I6 and I8 of the slice's log.
#[cfg(debug_assertions)]
async fn check(slice: &Slice) {
    slice.check_log().await;
}

/// Only debug builds can check them.
#[cfg(not(debug_assertions))]
async fn check(_: &Slice) {}
