//! Tests of logs on a pool, with small segments and tables, so that everything wraps around.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use base::{BlockSize, ByteLen, ByteOffset, Chain, Rng};
use rt::sim::{DiskImage, DiskLatency, NodeId, World};
use rt::{CoreId, Durability};

use super::bounds::ReplayBounds;
use super::place::Place;
use super::root::Run;
use super::state::STATE_BYTES;
use super::{Log, LogHandle, LogMemory, LogTuning, NewHandle, Running};
use crate::budget::RamBudget;
use crate::catalog::{Compression, Host, SpacePolicy, VolumeKind};
use crate::disks::CoreDisks;
use crate::error::SliceError;
use crate::id::{HostId, VolumeId};
use crate::pool::{CreateOptions, NewDisk, OpenPool, Pool, VolumeSpec};
use crate::slice::{Layout, Slice};

mod basic;
mod clone_cuts;
mod clone_model;
mod clones;
mod crash;
mod deleted;
mod diff;
mod figures;
mod flips;
mod forged;
mod full;
mod leaving;
mod lost_leaf;
mod memory;
mod model;
mod pace;
mod packed;
mod past;
mod reserve;
mod restores;
mod rot;
mod snapshot_cuts;
mod snapshot_model;
mod snapshots;
mod snapshots_leaving;
mod state;
mod zones;

const CORE: CoreId = CoreId(0);
const BLOCK: u64 = 4096;

/// So little that leaves are dropped all the time.
const MEMORY: ByteLen = ByteLen(96 << 10);

pub(super) fn tuning() -> LogTuning {
    LogTuning {
        segment: Some(ByteLen(64 << 10)),
        zone_segments: 16,
        changes_min: 128,
        changes_max: 256,
        replay_bytes: 512 << 10,
        scan_bytes_all: 0,
    }
}

/// The state of a log that has no zones yet, with segments of this size.
pub(super) fn without_pool(segment_shift: u8, memory: LogMemory) -> Running {
    let tuning = LogTuning::default();
    Running::new(&Arc::new(LogHandle::new(NewHandle {
        number: 0,
        identity: [0; 16],
        segment_shift,
        zone_segments: 16,
        roots: [(0, 0); 2],
        tuning,
        replay: ReplayBounds::new(&tuning, 1, 1 << segment_shift),
        memory,
        lender: Arc::default(),
        zones: BTreeMap::new(),
        next_branch: 1,
    })))
}

fn path(disk: usize) -> PathBuf {
    PathBuf::from(format!("/disk{disk}"))
}

fn ram() -> RamBudget {
    RamBudget::new(ByteLen(0))
}

fn host() -> Host {
    Host { id: HostId([1; 16]), name: "host".into() }
}

/// A machine with disks that are full of old data.
fn machine(world: &World, disks: usize, bytes: u64, cores: usize) -> NodeId {
    let node = world.add_node("node", cores, |_| std::future::pending());
    for number in 0..disks {
        let mut image = DiskImage::new(bytes, 512);
        image.write(0, &b"some.one else's mail".repeat(bytes as usize / 20 + 1)[..bytes as usize]);
        world.put_disk(node, path(number), image);
    }
    node
}

async fn create(disks: usize) -> Pool {
    let disk = |number| NewDisk { path: path(number), create: None, reserve: false };
    let extent = Some(ByteLen(64 << 10));
    let options = CreateOptions { name: "pool".into(), host: host(), extent, wipe: true, ram: ram() };
    let pool = Pool::create((0..disks).map(disk).collect(), options).await.unwrap();
    pool.set_log_tuning(tuning());
    pool.set_log_memory(LogMemory::new(MEMORY));
    pool
}

async fn open(disks: usize) -> Pool {
    let paths: Vec<PathBuf> = (0..disks).map(path).collect();
    let pool = Pool::open(&paths, OpenPool { host: host(), force: false, ram: ram(), uncertain: None })
        .await
        .unwrap();
    pool.set_log_tuning(tuning());
    pool.set_log_memory(LogMemory::new(MEMORY));
    pool
}

/// A volume without compression.
fn spec(name: &str, capacity: u64, slices: u16) -> VolumeSpec {
    VolumeSpec {
        name: name.into(),
        kind: VolumeKind::Log,
        block_size: BlockSize::B512,
        physical_exponent: 3,
        capacity: ByteLen(capacity),
        slices: Some(slices),
        stripe_unit: None,
        created: 0,
        id: None,
        copy: None,
        space: SpacePolicy::default(),
        compression: Compression::Off,
        checksums: false,
    }
}

/// The slices of a volume on one core.
fn slices(pool: &Pool, disks: &CoreDisks, id: VolumeId) -> Vec<Rc<Slice>> {
    let specs = pool.volume_slices(id, CORE, 1).unwrap();
    specs.into_iter().map(|spec| Rc::new(spec.open(disks))).collect()
}

/// A pool on one disk with a volume of one slice, and that slice.
async fn one_slice(capacity: u64) -> (Pool, CoreDisks, VolumeId, Rc<Slice>) {
    one_slice_of(spec("v", capacity, 1)).await
}

async fn one_slice_of(spec: VolumeSpec) -> (Pool, CoreDisks, VolumeId, Rc<Slice>) {
    let pool = create(1).await;
    let id = pool.create_volume(spec).await.unwrap().id;
    let disks = pool.share_disks().attach();
    let slice = slices(&pool, &disks, id).remove(0);
    (pool, disks, id, slice)
}

fn log_of(slice: &Slice) -> Rc<Log> {
    match &*slice.layout() {
        Layout::Log(slice) => Rc::clone(slice.log()),
        _ => panic!("a log slice"),
    }
}

/// Where the slots of each copy of the state of the newest root lie: disk, and offset there.
fn state_slots(slice: &Slice) -> [Vec<(usize, u64)>; 2] {
    let inner = Rc::clone(&log_of(slice).inner);
    let (runs, len) = {
        let state = inner.state.borrow();
        (state.runs.clone(), state.state_len)
    };
    runs.map(|runs| {
        let places = |run: &Run| Place::new(run.segment, run.slot).run(run.slots).places();
        let slots = runs.iter().flat_map(places).take(len.div_ceil(STATE_BYTES));
        let located = slots.map(|place| inner.locate(place).unwrap());
        located.map(|(_, disk, at)| (usize::from(disk), at)).collect()
    })
}

async fn idle(slice: &Slice) {
    log_of(slice).rest().await;
}

async fn check(slice: &Slice) {
    slice.check_log().await;
}

/// A block that begins with a number; 0 means zeros. Some blocks shrink to a quarter, some to a half, and
/// some do not shrink.
fn block(number: u64) -> Vec<u8> {
    let mut block = number.to_le_bytes().repeat(BLOCK as usize / 8);
    Rng::new(number).fill(&mut block[8..8 + [0, 1800, 4088][(number % 3) as usize]]);
    block
}

async fn write(slice: &Slice, at: u64, number: u64, durability: Durability) -> Result<(), SliceError> {
    slice.write(ByteOffset(at * BLOCK), Chain::copy_of(&block(number)), durability).await
}

/// How long a step takes at most on a disk that [`read_slowly`] was called for: what it reads, it reads at
/// once.
const STEP: Duration = Duration::from_millis(110);

/// Makes the reads of the first disk take so long that nothing else counts.
fn read_slowly(world: &World, node: NodeId) {
    let read = Duration::from_millis(100)..STEP;
    world.set_disk_latency(node, path(0), DiskLatency { read, spike_one_in: 0, ..DiskLatency::default() });
}

/// Bounds of a log that has so many segments that the cleaner does not work, and many leaves.
fn with_room() -> LogTuning {
    LogTuning { zone_segments: 512, changes_min: 4096, changes_max: 4096, ..tuning() }
}

/// Writes a block of each of so many leaves: those with the numbers from `number` on, some in a record.
async fn write_leaves(slice: &Slice, leaves: u64, number: u64) {
    let all: Vec<u64> = (0..leaves).collect();
    for some in all.chunks(100) {
        let write = |leaf: &u64| write(slice, leaf * 512, number + leaf, Durability::Cached);
        for written in rt::join_all(some.iter().map(write)).await {
            written.unwrap();
        }
    }
}

/// Writes the first so many blocks one after the other, again and again, while something is so. Returns how
/// long the slowest write took.
async fn longest_write(slice: &Slice, blocks: u64, goes_on: impl Fn() -> bool) -> Duration {
    let (mut number, mut longest) = (0, Duration::ZERO);
    while goes_on() {
        let (at, began) = (number % blocks, rt::now());
        write(slice, at, at + 1, Durability::Durable).await.unwrap();
        longest = longest.max(rt::now() - began);
        number += 1;
    }
    longest
}

async fn read(slice: &Slice, at: u64) -> Result<u64, SliceError> {
    let bytes = slice.read(ByteOffset(at * BLOCK), ByteLen(BLOCK)).await?.to_vec();
    let number = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    assert_eq!(bytes, block(number), "block {at} is of one piece");
    Ok(number)
}
