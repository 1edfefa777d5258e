//! Random operations on a pool and its volumes, compared with maps. Everything is compared after each
//! operation.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use base::{BlockSize, ByteLen};
use proptest::prelude::*;
use rt::Durability;
use rt::sim::World;
use store::{
    ClusterId, Compression, CopyOf, CopyState, LogTuning, MAP_PAGE_BYTES, NewDisk, Pool, SliceError,
    StoreError, VolumeId, VolumeKind, VolumeSpec,
};

use crate::disk::{CORE, Volume, creating, existing, machine, opening, path, paths};

const SECTOR: u64 = 512;

#[derive(Clone, Debug)]
enum Op {
    Create {
        kind: VolumeKind,
        block: BlockSize,
        units: u64,
        slices: u16,
        /// Whether it is a copy.
        copy: bool,
        checksums: bool,
    },
    Delete(prop::sample::Index),
    Grow(prop::sample::Index, u64),
    Rename(prop::sample::Index, u8),
    LuState(prop::sample::Index, Vec<u8>),
    Write {
        volume: prop::sample::Index,
        at: prop::sample::Index,
        blocks: u64,
        durable: bool,
    },
    /// Concurrent writes of one block each, to consecutive blocks. Those with a bit in `zeroed` are zeroed
    /// instead.
    WriteTogether {
        volume: prop::sample::Index,
        at: prop::sample::Index,
        blocks: u64,
        zeroed: u32,
    },
    Zero {
        volume: prop::sample::Index,
        at: prop::sample::Index,
        blocks: u64,
    },
    Flush(prop::sample::Index),
    /// Closes all pages of its checksums.
    Settle(prop::sample::Index),
    SetCopy(prop::sample::Index, u64),
    /// Writes the first page of a slice's map.
    WriteMap(prop::sample::Index, prop::sample::Index),
    AddDisk,
    Reopen,
    Move,
}

fn op() -> impl Strategy<Value = Op> {
    let index = any::<prop::sample::Index>;
    let block = prop_oneof![Just(BlockSize::B512), Just(BlockSize::B4096)];
    let slices = prop_oneof![Just(1u16), Just(2), Just(4)];
    let kind =
        prop_oneof![2 => Just(VolumeKind::Thick), 1 => Just(VolumeKind::Ram), 2 => Just(VolumeKind::Log)];
    prop_oneof![
        3 => (kind, block, 1u64..70, slices, any::<bool>(), any::<bool>())
            .prop_map(|(kind, block, units, slices, copy, checksums)| {
                Op::Create { kind, block, units, slices, copy, checksums }
            }),
        1 => index().prop_map(Op::Delete),
        1 => (index(), 0u64..40).prop_map(|(volume, units)| Op::Grow(volume, units)),
        1 => (index(), 0u8..3).prop_map(|(volume, name)| Op::Rename(volume, name)),
        1 => (index(), prop::collection::vec(any::<u8>(), 0..9000))
            .prop_map(|(volume, state)| Op::LuState(volume, state)),
        6 => (index(), index(), 0u64..200, any::<bool>())
            .prop_map(|(volume, at, blocks, durable)| Op::Write { volume, at, blocks, durable }),
        3 => (index(), index(), 1u64..20, prop_oneof![Just(0), any::<u32>()])
            .prop_map(|(volume, at, blocks, zeroed)| Op::WriteTogether { volume, at, blocks, zeroed }),
        4 => (index(), index(), 0u64..300).prop_map(|(volume, at, blocks)| Op::Zero { volume, at, blocks }),
        1 => index().prop_map(Op::Flush),
        1 => index().prop_map(Op::Settle),
        1 => (index(), 0u64..3).prop_map(|(volume, epoch)| Op::SetCopy(volume, epoch)),
        3 => (index(), index()).prop_map(|(volume, slice)| Op::WriteMap(volume, slice)),
        1 => Just(Op::AddDisk),
        1 => Just(Op::Reopen),
        1 => Just(Op::Move),
    ]
}

/// The expected state of a volume.
#[derive(Debug)]
struct Expected {
    name: String,
    kind: VolumeKind,
    block: u64,
    capacity: u64,
    lu_state: Vec<u8>,
    /// The number last written to each sector; missing: zeros.
    sectors: BTreeMap<u64, u64>,
    copy: Option<CopyOf>,
    /// The number last written to the first page of each slice's map; missing: zeros.
    maps: BTreeMap<u16, u64>,
}

struct Model {
    disks: usize,
    /// The disks of the machine, including those that can be added.
    all_disks: usize,
    host: u8,
    pool: Option<Pool>,
    /// Always open.
    volumes: BTreeMap<VolumeId, Rc<Volume>>,
    expected: BTreeMap<VolumeId, Expected>,
    /// The last number that was written.
    written: u64,
}

/// A sector filled with its number.
fn sector(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(SECTOR as usize / 8)
}

impl Model {
    fn pool(&self) -> &Pool {
        self.pool.as_ref().expect("it is only closed while it is reopened")
    }

    fn pick(&self, index: prop::sample::Index) -> Option<VolumeId> {
        let ids: Vec<VolumeId> = self.expected.keys().copied().collect();
        (!ids.is_empty()).then(|| *index.get(&ids))
    }

    /// A byte range of `blocks` at a random place, cut at the end of the volume.
    fn range(&self, id: VolumeId, at: prop::sample::Index, blocks: u64) -> (u64, u64) {
        let expected = &self.expected[&id];
        let start = at.index((expected.capacity / expected.block) as usize) as u64 * expected.block;
        (start, (blocks * expected.block).min(expected.capacity - start))
    }

    /// New content for a range, which is noted as expected.
    fn content(&mut self, id: VolumeId, start: u64, len: u64) -> Vec<u8> {
        let sectors = &mut self.expected.get_mut(&id).expect("picked").sectors;
        let mut data = Vec::new();
        for at in (start..start + len).step_by(SECTOR as usize) {
            self.written += 1;
            sectors.insert(at / SECTOR, self.written);
            data.extend(sector(self.written));
        }
        data
    }

    /// Notes that a range should be zeros.
    fn forget(&mut self, id: VolumeId, start: u64, len: u64) {
        let sectors = &mut self.expected.get_mut(&id).expect("picked").sectors;
        sectors.retain(|sector, _| !(start..start + len).contains(&(sector * SECTOR)));
    }

    async fn apply(&mut self, op: Op) {
        match op {
            Op::Create { kind, block, units, slices, copy, checksums } => {
                let state = CopyState::Trusted { epoch: 0 };
                let copy = copy.then_some(CopyOf { cluster: ClusterId([5; 16]), slot: 1, state });
                let (shape, checksums) = ((units, slices), checksums && kind == VolumeKind::Thick);
                self.create(kind, block, shape, copy, checksums).await;
            }
            Op::Delete(index) => {
                let Some(id) = self.pick(index) else { return };
                let refused = self.pool().delete_volume(id).await;
                assert!(matches!(refused, Err(StoreError::VolumeOpen(_))));
                self.volumes.remove(&id);
                self.expected.remove(&id);
                self.pool().delete_volume(id).await.unwrap();
            }
            Op::Grow(index, units) => {
                let Some(id) = self.pick(index) else { return };
                self.grow(id, units * 8192).await;
            }
            Op::Rename(index, name) => {
                let Some(id) = self.pick(index) else { return };
                let name = format!("renamed-{name}");
                let taken = self.expected.iter().any(|(other, volume)| *other != id && volume.name == name);
                match self.pool().rename_volume(id, &name).await {
                    Ok(_) => {
                        assert!(!taken);
                        self.expected.get_mut(&id).unwrap().name = name;
                    }
                    Err(error) => assert!(taken && matches!(error, StoreError::NameTaken(_)), "{error}"),
                }
            }
            Op::LuState(index, state) => {
                let Some(id) = self.pick(index) else { return };
                self.pool().set_lu_state(id, state.clone()).await.unwrap();
                self.expected.get_mut(&id).unwrap().lu_state = state;
            }
            Op::Write { volume, at, blocks, durable } => {
                let Some(id) = self.pick(volume) else { return };
                let (start, len) = self.range(id, at, blocks);
                let data = self.content(id, start, len);
                let durability = if durable { Durability::Durable } else { Durability::Cached };
                let written = self.volumes[&id].write(start, &data, durability).await;
                self.written(id, start, len, written).await;
            }
            Op::WriteTogether { volume, at, blocks, zeroed } => {
                let Some(id) = self.pick(volume) else { return };
                let (start, len) = self.range(id, at, blocks);
                let block = self.expected[&id].block;
                let mut tasks = Vec::new();
                for (number, at) in (start..start + len).step_by(block as usize).enumerate() {
                    let is_zeroed = zeroed >> number & 1 == 1;
                    let data = if is_zeroed { Vec::new() } else { self.content(id, at, block) };
                    if is_zeroed {
                        self.forget(id, at, block);
                    }
                    let volume = Rc::clone(&self.volumes[&id]);
                    tasks.push(rt::spawn(async move {
                        match is_zeroed {
                            true => volume.zero(at, block).await,
                            false => volume.write(at, &data, Durability::Cached).await,
                        }
                    }));
                }
                let mut full = Ok(());
                for task in tasks {
                    full = full.and(task.await);
                }
                self.written(id, start, len, full).await;
            }
            Op::Zero { volume, at, blocks } => {
                let Some(id) = self.pick(volume) else { return };
                let (start, len) = self.range(id, at, blocks);
                self.forget(id, start, len);
                self.volumes[&id].zero(start, len).await.unwrap();
            }
            Op::Flush(index) => {
                let Some(id) = self.pick(index) else { return };
                self.volumes[&id].flush().await.unwrap();
            }
            Op::Settle(index) => {
                let Some(id) = self.pick(index) else { return };
                for slice in &self.volumes[&id].slices {
                    slice.settle(Duration::ZERO).await.unwrap();
                }
            }
            Op::SetCopy(index, epoch) => {
                let Some(id) = self.pick(index) else { return };
                let state = if epoch == 0 { CopyState::Blank } else { CopyState::Trusted { epoch } };
                let slot = (epoch % 4) as u8;
                let set = self.pool().set_copy(id, slot, state).await;
                match &mut self.expected.get_mut(&id).unwrap().copy {
                    Some(copy) => (copy.slot, copy.state) = (slot, state),
                    None => assert!(matches!(set, Err(StoreError::NotACopy(of)) if of == id)),
                }
            }
            Op::WriteMap(index, slice) => {
                let Some(id) = self.pick(index) else { return };
                let slice = slice.get(&self.volumes[&id].slices);
                if slice.map_pages() > 0 {
                    self.written += 1;
                    let image = self.written.to_le_bytes().repeat(MAP_PAGE_BYTES / 8);
                    slice.write_map_page(0, &image).await.unwrap();
                    self.expected.get_mut(&id).unwrap().maps.insert(slice.index(), self.written);
                }
            }
            Op::AddDisk if self.disks < self.all_disks => {
                let disk = NewDisk { path: path(self.disks), create: None, reserve: false };
                let before = self.pool().usage();
                let refused = self.pool().add_disk(disk.clone(), false).await;
                assert!(matches!(refused, Err(StoreError::NotEmpty { .. })), "{refused:?}");
                assert_eq!(self.pool().usage(), before);
                self.pool().add_disk(disk, true).await.unwrap();
                self.disks += 1;
                let after = self.pool().usage();
                assert_eq!(after.disks.len(), self.disks);
                let added = after.disks[self.disks - 1].total.0;
                assert_eq!(after.total.0, before.total.0 + added);
                assert_eq!(after.free.0, before.free.0 + added);
            }
            Op::AddDisk => {}
            Op::Reopen => self.reopen().await,
            Op::Move => {
                assert!(
                    matches!(self.pool().export().await, Err(StoreError::VolumeOpen(_)))
                        != self.volumes.is_empty()
                );
                self.volumes.clear();
                if self.pool().metadata_state() == store::MetadataState::Writable {
                    self.pool().export().await.unwrap();
                }
                self.host += 1;
                self.reopen().await;
            }
        }
    }

    /// Handles the end of a write. Logs may be full: then the content of the range is unknown, and unmapping
    /// it finds room.
    async fn written(&mut self, id: VolumeId, start: u64, len: u64, result: Result<(), SliceError>) {
        if result.is_err() {
            assert_eq!((result, self.expected[&id].kind), (Err(SliceError::Full), VolumeKind::Log));
            self.forget(id, start, len);
            // Parts of blocks are written, so whole blocks are unmapped.
            let whole = |at: u64| at / 4096 * 4096;
            let end = (whole(start + len + 4095)).min(self.expected[&id].capacity);
            self.forget(id, whole(start), end - whole(start));
            self.volumes[&id].zero(whole(start), end - whole(start)).await.unwrap();
        }
    }

    async fn create(
        &mut self,
        kind: VolumeKind,
        block: BlockSize,
        (units, slices): (u64, u16),
        copy: Option<CopyOf>,
        checksums: bool,
    ) {
        self.written += 1;
        let spec = VolumeSpec {
            name: format!("volume-{}", self.written),
            kind,
            block_size: block,
            physical_exponent: 0,
            capacity: ByteLen(units * 8192 + u64::from(block.bytes())),
            slices: Some(slices),
            stripe_unit: None,
            created: self.written,
            id: None,
            copy,
            space: store::SpacePolicy::default(),
            compression: if units.is_multiple_of(2) { Compression::Lz4 } else { Compression::Off },
            checksums,
        };
        let free = self.pool().usage().free;
        let info = match self.pool().create_volume(spec.clone()).await {
            Ok(info) => info,
            Err(StoreError::NoSpace { wanted, free: told }) => {
                // A zone is one run.
                assert!(kind == VolumeKind::Log || wanted > free && told == free);
                return;
            }
            Err(error) => panic!("{error}"),
        };
        let expected = Expected {
            name: spec.name,
            kind,
            block: u64::from(block.bytes()),
            capacity: spec.capacity.0,
            lu_state: Vec::new(),
            sectors: BTreeMap::new(),
            copy,
            maps: BTreeMap::new(),
        };
        self.volumes.insert(info.id, Rc::new(Volume::open(self.pool(), info.id)));
        self.expected.insert(info.id, expected);
    }

    async fn grow(&mut self, id: VolumeId, more: u64) {
        let capacity = self.expected[&id].capacity + more;
        match self.pool().grow_volume(id, ByteLen(capacity)).await {
            Ok(info) => assert_eq!(info.capacity.0, capacity),
            Err(StoreError::NoSpace { .. }) => return,
            Err(error) => panic!("{error}"),
        }
        self.expected.get_mut(&id).unwrap().capacity = capacity;
        let mut volume = self.volumes.remove(&id).unwrap();
        Rc::get_mut(&mut volume).expect("nobody writes").grow(self.pool.as_ref().unwrap());
        self.volumes.insert(id, volume);
    }

    /// As after the process ends: nothing is flushed, but the disks keep their power.
    async fn reopen(&mut self) {
        self.volumes.clear();
        self.pool().logs_ended().await;
        self.pool = None;
        let pool = Pool::open(&paths(self.disks), opening(self.host)).await.unwrap();
        pool.set_log_tuning(small_logs());
        for (id, expected) in &mut self.expected {
            if expected.kind == VolumeKind::Ram {
                expected.sectors.clear();
                expected.maps.clear();
            }
            self.volumes.insert(*id, Rc::new(Volume::open(&pool, *id)));
        }
        self.pool = Some(pool);
    }

    async fn compare(&self) {
        let volumes = self.pool().volumes();
        let ids: Vec<VolumeId> = {
            let mut ids: Vec<VolumeId> = volumes.iter().map(|volume| volume.id).collect();
            ids.sort_unstable();
            ids
        };
        assert_eq!(ids, self.expected.keys().copied().collect::<Vec<_>>());
        let usage = self.pool().usage();
        let reserved = |kind| {
            volumes.iter().filter(|volume| volume.kind == kind).map(|volume| volume.reserved.0).sum::<u64>()
        };
        let taken = usage.total.0 - usage.free.0;
        match volumes.iter().any(|volume| volume.kind == VolumeKind::Log) {
            true => assert!(taken >= reserved(VolumeKind::Thick)),
            false => {
                assert_eq!(taken, reserved(VolumeKind::Thick), "logs that nobody needs give all of it back")
            }
        }
        for info in volumes {
            let expected = &self.expected[&info.id];
            assert_eq!(
                (&info.name, info.kind, info.capacity.0),
                (&expected.name, expected.kind, expected.capacity)
            );
            assert_eq!(self.pool().lu_state(info.id).unwrap(), expected.lu_state);
            assert_eq!(info.copy, expected.copy);
            let volume = &self.volumes[&info.id];
            for slice in &volume.slices {
                assert_eq!(slice.map_pages(), usize::from(expected.copy.is_some() && !slice.is_empty()));
                assert_eq!(slice.is_volatile(), info.kind == VolumeKind::Ram);
                let wanted = expected.maps.get(&slice.index()).unwrap_or(&0);
                if slice.map_pages() > 0 {
                    let page = slice.read_map_page(0).await.unwrap();
                    assert_eq!(page[..], wanted.to_le_bytes().repeat(MAP_PAGE_BYTES / 8));
                }
            }
            assert_eq!(volume.slices.iter().map(|slice| slice.len().0).sum::<u64>(), expected.capacity);
            let data = volume.read(0, expected.capacity).await.unwrap();
            let allocated = volume.allocated().await;
            for (number, found) in (0..).zip(data.chunks(SECTOR as usize)) {
                let wanted = expected.sectors.get(&number);
                assert!(
                    found == sector(*wanted.unwrap_or(&0)),
                    "sector {number} of {} is not {wanted:?}",
                    info.name
                );
                assert!(wanted.is_none() || allocated[number as usize], "sector {number} is there");
                if info.kind == VolumeKind::Ram {
                    assert_eq!(wanted.is_some(), allocated[number as usize]);
                }
            }
        }
    }
}

/// Bounds for logs that fit in a pool of some MiB.
fn small_logs() -> LogTuning {
    LogTuning { segment: Some(ByteLen(64 << 10)), changes_min: 128, changes_max: 512, ..LogTuning::default() }
}

/// Runs operations on a pool that is created on the first `count` disks.
fn run(disks: Vec<(u64, u32)>, count: usize, ops: Vec<Op>, seed: u64) {
    let world = World::new(seed);
    let node = machine(&world, &disks);
    let count = count.min(disks.len());
    world.block_on(node, CORE, move || async move {
        let pool = Pool::create(existing(count), creating()).await.unwrap();
        pool.set_log_tuning(small_logs());
        let mut model = Model {
            disks: count,
            all_disks: disks.len(),
            host: 1,
            pool: Some(pool),
            volumes: BTreeMap::new(),
            expected: BTreeMap::new(),
            written: 0,
        };
        for op in ops {
            model.apply(op).await;
            model.compare().await;
        }
    });
}

fn disks() -> impl Strategy<Value = Vec<(u64, u32)>> {
    let disk = (2u64 << 20..(3 << 20) + 1, prop_oneof![Just(512u32), Just(4096)]);
    prop::collection::vec(disk.prop_map(|(size, block)| (size / 4096 * 4096, block)), 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn equal_to_the_obvious_version(
        disks in disks(),
        count in 1usize..4,
        ops in prop::collection::vec(op(), 1..30),
        seed in any::<u64>(),
    ) {
        run(disks, count, ops, seed);
    }
}
