//! Power cuts at every point of a pool's life, with subsets of what was not flushed.
//!
//! After each cut the pool opens, shows what was acknowledged or one change more, and no volume shows
//! anything that was not written to it. Canaries show that a missing flush would be noticed.

mod growth;
mod no_space;
mod roles;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use base::{BlockSize, Buf, ByteLen, ByteOffset};
use rt::sim::{Cut, DiskFaults, DiskImage, NodeId, Recording, Subsets, World, for_each_cut};
use rt::{CoreId, Durability};

use super::commit::{Step, canary};
use super::{CreateOptions, Moved, NewDisk, OpenPool, Pool, VolumeSpec, ZeroingWatch};
use crate::budget::RamBudget;
use crate::catalog::{Compression, Host, VolumeKind};
use crate::copy::{CopyOf, CopyState, MAP_PAGE_BYTES, PoolMark};
use crate::error::StoreError;
use crate::geometry::{End, Geometry};
use crate::id::{ClusterId, HostId, VolumeId};
use crate::slice::Slice;
use crate::slot;

const SECTOR: u64 = 512;
const EXTENT: u64 = 64 << 10;
const CORE: CoreId = CoreId(0);

fn host() -> Host {
    Host { id: HostId([1; 16]), name: "host".into() }
}

fn ram() -> RamBudget {
    RamBudget::new(ByteLen(0))
}

fn path(disk: usize) -> PathBuf {
    PathBuf::from(format!("/disk{disk}"))
}

/// A machine with these disks, and a process.
fn machine(world: &World, images: Vec<DiskImage>) -> NodeId {
    let node = world.add_node("node", 1, |_| std::future::pending());
    for (number, image) in images.into_iter().enumerate() {
        world.put_disk(node, path(number), image);
    }
    node
}

/// Disks of 2 MiB that are full of old data.
fn used_disks(count: usize, block: u32) -> Vec<DiskImage> {
    let disk = |_| {
        let mut image = DiskImage::new(2 << 20, block);
        image.write(0, &b"some.one else's mail".repeat(2 << 20)[..2 << 20]);
        image
    };
    (0..count).map(disk).collect()
}

async fn create(disks: usize) -> Pool {
    let disk = |number| NewDisk { path: path(number), create: None, reserve: false };
    let extent = Some(ByteLen(EXTENT));
    let options = CreateOptions { name: "pool".into(), host: host(), extent, wipe: true, ram: ram() };
    Pool::create((0..disks).map(disk).collect(), options).await.unwrap()
}

async fn open(disks: usize) -> Result<Pool, StoreError> {
    open_paths((0..disks).map(path).collect(), None).await
}

async fn open_paths(paths: Vec<PathBuf>, uncertain: Option<PathBuf>) -> Result<Pool, StoreError> {
    Pool::open(&paths, OpenPool { host: host(), force: false, ram: ram(), uncertain }).await
}

/// An act on the pool. Volumes are named by letters.
#[derive(Clone, Copy, Debug)]
enum Act {
    Create(char, u64),
    Delete(char),
    Grow(char, u64),
    Rename(char, char),
    LuState(char, usize),
    /// Writes to a volume: the first sector, and how many. Each gets a new number.
    Write(char, u64, u64, Durability),
    Zero(char, u64, u64),
    Flush(char),
    AddDisk,
    /// Removes this disk, on which nothing lies.
    RemoveDisk(usize),
    /// Adds this disk again.
    AddAgain(usize),
    /// Moves what lies on this disk to the others, and removes it.
    Evacuate(usize),
    /// The pool takes the space by which its disks have grown.
    GrowDisks,
    /// Creates a volume that is a blank copy.
    CreateCopy(char, u64),
    /// Makes a volume a copy.
    MakeCopy(char),
    SetCopy(char, CopyState),
    /// Sets the pool's mark.
    Mark(u64),
    /// Writes the first page of this slice's map, each sector with a new number.
    WriteMap(char, u16),
}

/// A life with all kinds of changes, in which extents change hands.
const LIFE: &[Act] = &[
    Act::Create('a', 2 * EXTENT),
    Act::Write('a', 1, 5, Durability::Durable),
    Act::LuState('a', 700),
    Act::Create('b', EXTENT + 4096),
    Act::Write('b', 126, 4, Durability::Cached),
    Act::Flush('b'),
    Act::Write('a', 3, 1, Durability::Cached),
    Act::Rename('a', 'x'),
    Act::Grow('x', 3 * EXTENT),
    Act::Write('x', 300, 3, Durability::Durable),
    Act::Zero('b', 127, 2),
    Act::Flush('b'),
    Act::Delete('x'),
    Act::Create('c', 4 * EXTENT),
    Act::Write('c', 0, 8, Durability::Durable),
    Act::LuState('b', 9000),
    Act::LuState('b', 1),
];

/// A life in which the pool gets another disk, and volumes that lie on it.
const LIFE_WITH_MORE: &[Act] = &[
    Act::Create('a', 4 * EXTENT),
    Act::Write('a', 0, 8, Durability::Durable),
    Act::AddDisk,
    Act::Create('b', 20 * EXTENT),
    Act::Write('b', 126, 6, Durability::Durable),
    Act::Grow('a', 8 * EXTENT),
    Act::Write('a', 600, 3, Durability::Cached),
    Act::Flush('a'),
    Act::LuState('b', 700),
    Act::Delete('b'),
    Act::Create('c', 2 * EXTENT),
];

/// Lives in which the pool loses a disk, and later gets it back as a new one.
const LIFE_WITHOUT_FIRST: &[Act] = &life_without(0);
const LIFE_WITHOUT_LAST: &[Act] = &life_without(3);

const fn life_without(disk: usize) -> [Act; 11] {
    [
        Act::Create('a', 4 * EXTENT),
        Act::Write('a', 0, 8, Durability::Durable),
        Act::Delete('a'),
        Act::RemoveDisk(disk),
        Act::Create('b', 20 * EXTENT),
        Act::Write('b', 126, 6, Durability::Durable),
        Act::LuState('b', 700),
        Act::AddAgain(disk),
        Act::Create('c', 30 * EXTENT),
        Act::Write('c', 0, 8, Durability::Durable),
        Act::Delete('b'),
    ]
}

/// A life in which a disk leaves the pool that holds a part of a volume, and the map of a copy. They move to
/// disks without metadata, which no commit flushes.
const LIFE_WITH_LEAVING: &[Act] = &[
    Act::Create('a', 8 * EXTENT),
    Act::Write('a', 0, 8, Durability::Durable),
    Act::CreateCopy('b', 2 * EXTENT),
    Act::WriteMap('b', 0),
    Act::WriteMap('b', 1),
    Act::Create('c', 2 * EXTENT),
    Act::Write('a', 300, 6, Durability::Cached),
    Act::Evacuate(0),
    Act::Write('a', 2, 4, Durability::Durable),
    Act::WriteMap('b', 1),
    Act::Grow('a', 10 * EXTENT),
    Act::Create('d', 6 * EXTENT),
    Act::Write('d', 0, 8, Durability::Durable),
];

/// A life of a pool whose disks are larger than it knows, with volumes in the new space.
const LIFE_THAT_GROWS: &[Act] = &[
    Act::Create('a', 4 * EXTENT),
    Act::Write('a', 0, 8, Durability::Durable),
    Act::LuState('a', 700),
    Act::GrowDisks,
    Act::Create('b', 60 * EXTENT),
    Act::Write('b', 126, 6, Durability::Durable),
    Act::Grow('a', 6 * EXTENT),
    Act::LuState('b', 700),
    Act::Delete('b'),
    Act::Create('c', 30 * EXTENT),
];

/// A life in which the pool gets copies, and extents change hands between copies, their maps, and other
/// volumes.
const LIFE_OF_COPIES: &[Act] = &[
    Act::Create('a', 2 * EXTENT),
    Act::Write('a', 1, 5, Durability::Durable),
    Act::CreateCopy('b', 2 * EXTENT),
    Act::WriteMap('b', 0),
    Act::Write('b', 126, 4, Durability::Durable),
    Act::WriteMap('b', 1),
    Act::SetCopy('b', CopyState::Trusted { epoch: 7 }),
    Act::Mark(1),
    Act::WriteMap('b', 0),
    Act::Grow('b', 5 * EXTENT),
    Act::LuState('a', 700),
    Act::Delete('b'),
    Act::MakeCopy('a'),
    Act::WriteMap('a', 1),
    Act::Mark(2),
    Act::Mark(3),
    Act::Create('c', 3 * EXTENT),
    Act::Write('c', 0, 8, Durability::Durable),
    Act::CreateCopy('d', EXTENT),
    Act::SetCopy('d', CopyState::Blank),
    Act::WriteMap('d', 0),
    Act::Delete('a'),
];

/// What copies are created as.
const COPY: CopyOf = CopyOf { cluster: ClusterId([9; 16]), slot: 2, state: CopyState::Blank };

/// The sectors of a volume's map are numbered from here on, beyond those of any volume.
const MAP_SECTORS: u64 = 1 << 50;

/// The number of the first sector of a slice's first page.
fn map_sector(slice: u16) -> u64 {
    MAP_SECTORS + u64::from(slice) * MAP_PAGE_BYTES as u64 / SECTOR
}

/// A life: the acts, and how many disks the pool is created with.
#[derive(Clone, Copy)]
struct Life {
    acts: &'static [Act],
    disks: usize,
    /// The disks of the machine, including those that are added later.
    all_disks: usize,
    block: u32,
    /// Its disks are larger than the pool knows at first.
    grows: bool,
    /// This disk is removed.
    removes: Option<usize>,
}

impl Life {
    fn of(disks: usize, block: u32) -> Life {
        Life { acts: LIFE, disks, all_disks: disks, block, grows: false, removes: None }
    }

    fn of_copies(disks: usize, block: u32) -> Life {
        Life { acts: LIFE_OF_COPIES, disks, all_disks: disks, block, grows: false, removes: None }
    }

    fn that_grows(disks: usize) -> Life {
        Life { acts: LIFE_THAT_GROWS, disks, all_disks: disks, block: 512, grows: true, removes: None }
    }

    /// Creates a pool to live in.
    async fn begin(self) -> Pool {
        if self.grows {
            return self.open().await.unwrap();
        }
        // A pool that begins with few disks has small slots, so its disks have more extents.
        let first = if self.removes.is_some() { 1 } else { self.disks };
        let pool = create(first).await;
        for number in first..self.disks {
            let disk = NewDisk { path: path(number), create: None, reserve: false };
            pool.add_disk(disk, true).await.unwrap();
        }
        pool
    }

    /// What the machine's disks hold at first.
    fn images(self) -> Vec<DiskImage> {
        if self.grows {
            growth::grown_disks(self.disks, self.block)
        } else {
            used_disks(self.all_disks, self.block)
        }
    }

    fn with_more(disks: usize) -> Life {
        Life { acts: LIFE_WITH_MORE, disks, all_disks: disks + 1, block: 512, grows: false, removes: None }
    }

    fn without(disk: usize) -> Life {
        let acts = if disk == 0 { LIFE_WITHOUT_FIRST } else { LIFE_WITHOUT_LAST };
        let removes = Some(disk);
        Life { acts, disks: 4, all_disks: 4, block: 512, grows: false, removes }
    }

    fn with_leaving() -> Life {
        let removes = Some(0);
        Life { acts: LIFE_WITH_LEAVING, disks: 5, all_disks: 5, block: 512, grows: false, removes }
    }

    /// Opens the pool like a node that knows which disk was being added or removed.
    async fn open(self) -> Result<Pool, StoreError> {
        let uncertain = self.removes.or((self.disks < self.all_disks).then_some(self.disks));
        let certain = (0..self.disks).filter(|disk| Some(*disk) != uncertain);
        open_paths(certain.map(path).collect(), uncertain.map(path)).await
    }
}

/// A volume at some moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Known {
    name: String,
    capacity: u64,
    lu_state: Vec<u8>,
    copy: Option<CopyOf>,
    /// The number that a sector certainly keeps from now on; 0: zeros.
    durable: BTreeMap<u64, u64>,
    /// The same after the next flush.
    cached: BTreeMap<u64, u64>,
}

type State = BTreeMap<VolumeId, Known>;

/// What a recording is judged by.
#[derive(Default)]
struct History {
    /// The state after each act.
    states: Vec<State>,
    /// The number of disks at that time.
    disks: Vec<usize>,
    /// Their layouts at that time.
    geometry: Vec<Vec<Geometry>>,
    /// The space for volumes at that time.
    totals: Vec<ByteLen>,
    /// The generation of the metadata at that time.
    generations: Vec<u64>,
    /// Everything that was ever written to a sector.
    written: BTreeMap<(VolumeId, u64), BTreeSet<u64>>,
}

fn sector(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(SECTOR as usize / 8)
}

fn slices(pool: &Pool, id: VolumeId) -> Vec<Slice> {
    let disks = pool.share_disks().attach();
    pool.volume_slices(id, CORE, 1).unwrap().into_iter().map(|spec| spec.open(&disks)).collect()
}

async fn act(pool: &Pool, act: Act, state: &mut State, history: &RefCell<History>, numbers: &mut u64) {
    let find = |state: &State, name: char| {
        *state.iter().find(|(_, known)| known.name == name.to_string()).expect("a volume of this name").0
    };
    match act {
        Act::Create(name, capacity) | Act::CreateCopy(name, capacity) => {
            let copy = matches!(act, Act::CreateCopy(..)).then_some(COPY);
            let spec = VolumeSpec {
                name: name.into(),
                kind: VolumeKind::Thick,
                block_size: BlockSize::B512,
                physical_exponent: 0,
                capacity: ByteLen(capacity),
                slices: Some(2),
                stripe_unit: None,
                created: 0,
                id: None,
                copy,
                space: crate::catalog::SpacePolicy::default(),
                compression: Compression::default(),
                checksums: false,
            };
            let watch = ZeroingWatch::default();
            let info = pool.create_volume_watched(spec, watch.clone()).await.unwrap();
            let zeroed = watch.now().expect("a thick volume has space");
            assert_eq!(zeroed.done, zeroed.total, "all of its space was zeroed");
            assert!(zeroed.total >= ByteLen(capacity), "{zeroed:?}");
            state.insert(info.id, Known { name: name.into(), capacity, copy, ..Known::default() });
        }
        Act::Delete(name) => {
            let id = find(state, name);
            state.remove(&id);
            pool.delete_volume(id).await.unwrap();
        }
        Act::Grow(name, capacity) => {
            let id = find(state, name);
            pool.grow_volume(id, ByteLen(capacity)).await.unwrap();
            state.get_mut(&id).unwrap().capacity = capacity;
        }
        Act::Rename(name, new) => {
            let id = find(state, name);
            pool.rename_volume(id, &new.to_string()).await.unwrap();
            state.get_mut(&id).unwrap().name = new.into();
        }
        Act::LuState(name, len) => {
            let id = find(state, name);
            pool.set_lu_state(id, vec![len as u8; len]).await.unwrap();
            state.get_mut(&id).unwrap().lu_state = vec![len as u8; len];
        }
        Act::Write(name, start, count, durability) => {
            let id = find(state, name);
            let slices = slices(pool, id);
            let stripe = pool.volume(id).unwrap().stripe;
            for at in start..start + count {
                *numbers += 1;
                history.borrow_mut().written.entry((id, at)).or_default().insert(*numbers);
                let known = state.get_mut(&id).unwrap();
                known.durable.remove(&at);
                known.cached.insert(at, *numbers);
                if durability == Durability::Durable {
                    known.cached.remove(&at);
                    known.durable.insert(at, *numbers);
                }
                let (slice, offset) = stripe.locate(ByteOffset(at * SECTOR));
                let data = Buf::copy_of(&sector(*numbers)).into();
                slices[usize::from(slice)].write(offset, data, durability).await.unwrap();
            }
        }
        Act::Zero(name, start, count) => {
            let id = find(state, name);
            let stripe = pool.volume(id).unwrap().stripe;
            let slices = slices(pool, id);
            for piece in stripe.pieces(ByteOffset(start * SECTOR), ByteLen(count * SECTOR)) {
                slices[usize::from(piece.slice)].zero(piece.offset, piece.len).await.unwrap();
            }
            let known = state.get_mut(&id).unwrap();
            for at in start..start + count {
                known.durable.remove(&at);
                known.cached.insert(at, 0);
            }
        }
        Act::Flush(name) => {
            let id = find(state, name);
            for slice in slices(pool, id) {
                slice.flush().await.unwrap();
            }
            let known = state.get_mut(&id).unwrap();
            let cached = std::mem::take(&mut known.cached);
            known.durable.extend(cached);
        }
        Act::MakeCopy(name) => {
            let id = find(state, name);
            let copy = CopyOf { state: CopyState::Trusted { epoch: 1 }, ..COPY };
            pool.make_copy(id, copy).await.unwrap();
            state.get_mut(&id).unwrap().copy = Some(copy);
        }
        Act::SetCopy(name, worth) => {
            let id = find(state, name);
            pool.set_copy(id, COPY.slot, worth).await.unwrap();
            state.get_mut(&id).unwrap().copy.as_mut().unwrap().state = worth;
        }
        Act::Mark(count) => pool.set_mark(PoolMark { count, at: 0 }, false).await.unwrap(),
        Act::WriteMap(name, slice) => {
            let id = find(state, name);
            let mut image = Vec::new();
            for at in (map_sector(slice)..).take(MAP_PAGE_BYTES / SECTOR as usize) {
                *numbers += 1;
                history.borrow_mut().written.entry((id, at)).or_default().insert(*numbers);
                state.get_mut(&id).unwrap().durable.insert(at, *numbers);
                image.extend(sector(*numbers));
            }
            slices(pool, id)[usize::from(slice)].write_map_page(0, &image).await.unwrap();
        }
        Act::AddDisk => {
            let disk = NewDisk { path: path(pool.paths().len()), create: None, reserve: false };
            pool.add_disk(disk, true).await.unwrap();
        }
        Act::RemoveDisk(disk) => pool.remove_disk(&path(disk)).await.unwrap(),
        Act::Evacuate(disk) => {
            let used = pool.usage().disks[disk].total.0 - pool.usage().disks[disk].free.0;
            assert_eq!(used, 3 * EXTENT, "a part of a volume, and a map");
            pool.leave(&path(disk)).await.unwrap();
            while let Some(moving) = pool.next_move().await.unwrap() {
                let held = slices(pool, moving.volume);
                for slice in &held {
                    slice.hold_part(&moving.part).await.unwrap();
                }
                let (moving, moved) = pool.move_part(moving, held.len()).await;
                assert!(matches!(moved, Moved::Done), "{moved:?}");
                drop(held);
                pool.end_move(moving, &moved).await;
            }
            pool.remove_disk(&path(disk)).await.unwrap();
        }
        Act::AddAgain(disk) => {
            let disk = NewDisk { path: path(disk), create: None, reserve: false };
            // The pool has wiped it.
            pool.add_disk(disk, false).await.unwrap();
        }
        Act::GrowDisks => {
            let grown = pool.grow().await.unwrap();
            assert_eq!(grown.len(), pool.paths().len());
            assert!(grown.iter().all(|disk| disk.before < disk.after));
        }
    }
}

/// Records a life, from the time at which the pool was created.
fn record(life: Life, skipped: Option<Step>) -> (Recording, Rc<RefCell<History>>) {
    let world = World::new(11);
    let node = machine(&world, life.images());
    let pool = world.block_on(node, CORE, move || life.begin());
    let paths: Vec<PathBuf> = (0..life.all_disks).map(path).collect();
    let taps: Vec<(NodeId, &Path)> = paths.iter().map(|path| (node, path.as_path())).collect();
    let recording = world.record_disks(&taps);
    let history = Rc::new(RefCell::new(History::default()));
    let (acks, noted) = (recording.clone(), Rc::clone(&history));
    canary::SKIPPED.set(skipped);
    world.block_on(node, CORE, move || async move {
        let mut state = State::new();
        let mut numbers = 0;
        let note = |state: &State| {
            let generation = pool.0.state.borrow().generation;
            noted.borrow_mut().states.push(state.clone());
            noted.borrow_mut().disks.push(pool.paths().len());
            noted.borrow_mut().geometry.push(pool.0.layout().geometry.clone());
            noted.borrow_mut().totals.push(pool.usage().total);
            noted.borrow_mut().generations.push(generation);
        };
        note(&state);
        for (done, next) in (1..).zip(life.acts) {
            act(&pool, *next, &mut state, &noted, &mut numbers).await;
            note(&state);
            acks.ack(done);
        }
    });
    canary::SKIPPED.set(None);
    (recording, history)
}

/// The state without what only concerns sectors.
fn outline(state: &State) -> State {
    let known = |known: &Known| Known { durable: BTreeMap::new(), cached: BTreeMap::new(), ..known.clone() };
    state.iter().map(|(id, volume)| (*id, known(volume))).collect()
}

/// What is found on the disks after a cut.
struct Found {
    state: State,
    /// The number of disks of the pool.
    disks: usize,
    /// The space for volumes.
    total: ByteLen,
    /// The content of each sector that is not zero.
    sectors: BTreeMap<(VolumeId, u64), Vec<u8>>,
}

async fn recover(life: Life) -> Result<Found, StoreError> {
    let pool = life.open().await?;
    assert_eq!(pool.older_disks(), <&[PathBuf]>::default(), "no disk was set back");
    let mut state = State::new();
    let mut sectors = BTreeMap::new();
    for info in pool.volumes() {
        let lu_state = pool.lu_state(info.id)?;
        let (name, capacity, copy) = (info.name, info.capacity.0, info.copy);
        state.insert(info.id, Known { name, capacity, lu_state, copy, ..Known::default() });
        for slice in slices(&pool, info.id) {
            assert_eq!(slice.map_pages(), usize::from(copy.is_some() && !slice.is_empty()));
            for page in 0..slice.map_pages() {
                let found = slice.read_map_page(page).await.expect("no fault");
                for (at, found) in (map_sector(slice.index())..).zip(found.chunks(SECTOR as usize)) {
                    if found.iter().any(|byte| *byte != 0) {
                        sectors.insert((info.id, at), found.to_vec());
                    }
                }
            }
            let data = slice.read(ByteOffset(0), slice.len()).await.expect("no fault").to_vec();
            for (number, found) in (0u64..).zip(data.chunks(SECTOR as usize)) {
                let at = info.stripe.volume_offset(slice.index(), ByteOffset(number * SECTOR));
                if found.iter().any(|byte| *byte != 0) {
                    sectors.insert((info.id, at.0 / SECTOR), found.to_vec());
                }
            }
        }
    }
    Ok(Found { state, disks: pool.paths().len(), total: pool.usage().total, sectors })
}

fn judge(cut: &Cut, life: Life, history: &History) {
    let world = World::new(12);
    let node = machine(&world, cut.images.clone());
    let recovered = world.block_on(node, CORE, move || recover(life));
    let Found { state, disks, total, sectors } =
        recovered.unwrap_or_else(|error| panic!("{cut}: the pool does not open: {error}"));

    let acked = cut.acked as usize;
    let next = (acked + 1).min(history.states.len() - 1);
    let (before, after) = (&history.states[acked], &history.states[next]);
    let found = (outline(&state), disks);
    let known = |at: usize| (outline(&history.states[at]), history.disks[at]);
    assert!(found == known(acked) || found == known(next), "{cut}: acknowledged changes are lost: {found:?}");
    // While a disk is emptied, the total falls with each part that moves.
    let (one, other) = (history.totals[acked], history.totals[next]);
    assert!((one.min(other)..=one.max(other)).contains(&total), "{cut}: {total:?}, not {one:?} or {other:?}");

    for ((id, at), found) in &sectors {
        let number = u64::from_le_bytes(found[..8].try_into().unwrap());
        let was_written = history.written.get(&(*id, *at)).is_some_and(|numbers| numbers.contains(&number));
        assert!(was_written && *found == sector(number), "{cut}: sector {at} of {id} shows another's data");
    }
    for id in state.keys() {
        let none = Known::default();
        let (before, after) = (before.get(id).unwrap_or(&none), after.get(id).unwrap_or(&none));
        for (at, number) in &before.durable {
            if after.durable.get(at) == Some(number) {
                let found = sectors.get(&(*id, *at)).map_or(sector(0), Vec::clone);
                assert!(found == sector(*number), "{cut}: durable sector {at} of {id} is lost");
            }
        }
    }
}

/// The generation in the header of a slot, if there is one.
fn generation_at(image: &DiskImage, offset: u64) -> Option<u64> {
    let mut header = [0; slot::HEADER_BYTES];
    image.read(offset, &mut header);
    header.starts_with(b"URSAMETA").then(|| u64::from_le_bytes(header[32..40].try_into().unwrap()))
}

/// Opens the pool without the disk that was being added, and changes it. With that disk, it then either shows
/// the change or is refused.
fn judge_without(cut: &Cut, life: Life) {
    let world = World::new(14);
    let node = machine(&world, cut.images.clone());
    world.block_on(node, CORE, move || async move {
        let Ok(pool) = open(life.disks).await else { return };
        let mut state = State::new();
        act(&pool, Act::Create('z', EXTENT), &mut state, &RefCell::default(), &mut 0).await;
        drop(pool);
        match open(life.all_disks).await {
            Ok(pool) => assert!(pool.volume_named("z").is_some(), "the disk brings back what was before"),
            Err(
                StoreError::NotInPool { .. }
                | StoreError::NotAPool { .. }
                | StoreError::SuperblockDamaged { .. },
            ) => {}
            Err(error) => panic!("{error}"),
        }
    });
}

/// If the newest acknowledged metadata rots everywhere, the pool is refused instead of going back in time.
fn judge_promise(cut: &Cut, life: Life, history: &History) {
    let mut images = cut.images.clone();
    let promised = history.generations[cut.acked as usize];
    let geometry = &history.geometry[cut.acked as usize];
    let with_disk = |(_, geometry): &(&mut DiskImage, &Geometry)| geometry.extents > 0;
    for (image, geometry) in images.iter_mut().zip(geometry).filter(with_disk) {
        for end in End::BOTH {
            let offset = geometry.slot_offset(end, promised);
            if generation_at(image, offset).is_some_and(|generation| generation >= promised) {
                image.write(offset + 32 + 16, &[0xff; 16]);
            }
            let next = generation_at(image, geometry.slot_offset(end, promised + 1));
            if next.is_some_and(|generation| generation > promised) {
                return; // The next change has got far enough to stand in for it.
            }
        }
    }
    let world = World::new(13);
    let node = machine(&world, images);
    let opened = world.block_on(node, CORE, move || async move { life.open().await.map(drop) });
    // What is left may name the disk that was removed and wiped.
    let is_damaged = matches!(opened, Err(StoreError::MetadataDamaged { .. }));
    let is_refused = is_damaged || opened.is_err() && life.removes.is_some();
    assert!(is_refused, "{cut}: went back in time: {opened:?}");
}

/// Records, cuts and judges. Returns the number of cuts.
fn cut_everywhere(life: Life, bits: u32, skipped: Option<Step>) -> usize {
    let (recording, history) = record(life, skipped);
    let history = history.borrow();
    let mut cuts = 0;
    for_each_cut(&recording, Subsets { bits, seed: 3 }, |cut| {
        cuts += 1;
        judge(cut, life, &history);
        if cut.subset == 0 {
            judge_promise(cut, life, &history);
        }
        if life.disks < life.all_disks {
            judge_without(cut, life);
        }
    });
    cuts
}

#[test]
fn a_pool_of_one_disk_survives_every_cut() {
    assert!(cut_everywhere(Life::of(1, 512), 4, None) > 500);
}

#[test]
fn a_pool_of_large_blocks_survives_every_cut() {
    assert!(cut_everywhere(Life::of(1, 4096), 3, None) > 300);
}

#[test]
fn a_pool_of_four_disks_survives_every_cut() {
    assert!(cut_everywhere(Life::of(4, 512), 2, None) > 300);
}

#[test]
fn adding_a_disk_that_gets_metadata_survives_every_cut() {
    assert!(cut_everywhere(Life::with_more(1), 3, None) > 300);
    assert!(cut_everywhere(Life::with_more(2), 3, None) > 300);
}

#[test]
fn adding_a_disk_that_gets_none_survives_every_cut() {
    assert!(cut_everywhere(Life::with_more(3), 3, None) > 300);
}

/// The first disk has metadata, which the fourth one gets then. Added again, it gets its place and its
/// metadata back.
#[test]
fn removing_a_disk_with_metadata_survives_every_cut() {
    assert!(cut_everywhere(Life::without(0), 2, None) > 200);
}

#[test]
fn removing_a_disk_without_metadata_survives_every_cut() {
    assert!(cut_everywhere(Life::without(3), 2, None) > 200);
}

#[test]
fn emptying_a_disk_survives_every_cut() {
    assert!(cut_everywhere(Life::with_leaving(), 2, None) > 200);
}

#[test]
#[should_panic(expected = "is lost")]
fn canary_moved_data_that_is_not_flushed_is_noticed() {
    cut_everywhere(Life::with_leaving(), 2, Some(Step::Moved));
}

#[test]
fn copies_survive_every_cut() {
    assert!(cut_everywhere(Life::of_copies(1, 512), 3, None) > 500);
    assert!(cut_everywhere(Life::of_copies(1, 4096), 2, None) > 200);
    assert!(cut_everywhere(Life::of_copies(4, 512), 1, None) > 200);
}

#[test]
#[should_panic(expected = "does not open")]
fn canary_slots_that_are_not_flushed_are_noticed() {
    cut_everywhere(Life::of(1, 512), 4, Some(Step::Slots));
}

#[test]
#[should_panic(expected = "shows another's data")]
fn canary_zeros_that_are_not_flushed_are_noticed() {
    cut_everywhere(Life::of(1, 512), 4, Some(Step::Zeros));
}

#[test]
#[should_panic(expected = "went back in time")]
fn canary_superblocks_that_are_not_flushed_are_noticed() {
    cut_everywhere(Life::of(1, 512), 4, Some(Step::Superblocks));
}

#[test]
#[should_panic(expected = "does not open")]
fn canary_a_joining_disk_that_is_not_flushed_is_noticed() {
    cut_everywhere(Life::with_more(1), 3, Some(Step::Joining));
}

/// A pool whose creation was interrupted is refused, and can be created again.
#[test]
fn making_a_pool_can_be_cut_off() {
    let world = World::new(5);
    let node = machine(&world, used_disks(2, 512));
    let (first, second) = (path(0), path(1));
    let recording = world.record_disks(&[(node, &first), (node, &second)]);
    let acks = recording.clone();
    world.block_on(node, CORE, move || async move {
        create(2).await;
        acks.ack(1);
    });
    for_each_cut(&recording, Subsets { bits: 2, seed: 3 }, |cut| {
        let world = World::new(6);
        let node = machine(&world, cut.images.clone());
        let opened = world.block_on(node, CORE, || async { open(2).await.map(|pool| pool.volumes().len()) });
        match opened {
            Ok(volumes) => assert_eq!(volumes, 0),
            Err(error) => {
                assert_eq!(cut.acked, 0, "{cut}: {error}");
                world.block_on(node, CORE, || async { drop(create(2).await) });
            }
        }
    });
}

/// Rot in one random sector of the metadata is repaired when the pool is opened.
#[test]
fn rot_in_one_place_is_survived() {
    for seed in 0..60 {
        let world = World::new(seed);
        let node = machine(&world, used_disks(1, 512));
        let (geometry, expected) = world.block_on(node, CORE, || async {
            let pool = create(1).await;
            let mut state = State::new();
            for next in &LIFE[..4] {
                act(&pool, *next, &mut state, &RefCell::default(), &mut 0).await;
            }
            (pool.0.layout().geometry[0], outline(&state))
        });
        let mut rng = base::Rng::new(seed);
        // One end loses at most everything that a catalog of this size takes.
        let end = if rng.one_in(2) { End::Head } else { End::Tail };
        for parity in 0..2 {
            let slot = geometry.slot_offset(end, parity);
            world.corrupt_disk(node, path(0), slot..slot + 4096);
            let superblock = geometry.superblock_offset(end, parity);
            world.corrupt_disk(node, path(0), superblock..superblock + 512);
        }
        for _ in 0..2 {
            let recovered = world.block_on(node, CORE, || recover(Life::of(1, 512))).unwrap();
            assert_eq!(outline(&recovered.state), expected);
        }
    }
}

/// If nothing of the newest generation can be read, the pool does not fall back to the previous one: it opens
/// when the disk can be read again.
#[test]
fn unreadable_metadata_is_not_forgotten() {
    let world = World::new(1);
    let node = machine(&world, used_disks(1, 512));
    let geometry = world.block_on(node, CORE, || async {
        let pool = create(1).await;
        act(&pool, LIFE[0], &mut State::new(), &RefCell::default(), &mut 0).await;
        pool.0.layout().geometry[0]
    });
    let volumes = || world.block_on(node, CORE, || async { open(1).await.map(|pool| pool.volumes().len()) });
    for generation in 0..2 {
        let unreadable = End::BOTH.into_iter().flat_map(|end| {
            let slot = geometry.slot_offset(end, generation);
            let superblock = geometry.superblock_offset(end, generation);
            [slot..slot + 4096, superblock..superblock + 4096]
        });
        let faults = DiskFaults { unreadable: unreadable.collect(), ..DiskFaults::default() };
        world.set_disk_faults(node, path(0), faults);
        assert!(matches!(volumes(), Err(StoreError::Disk { .. })));
        world.set_disk_faults(node, path(0), DiskFaults::default());
        assert_eq!(volumes().unwrap(), 1);
    }
}
