//! Opening a pool: which disks it has, which generation counts, and whether this host may open it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use base::{Buf, ByteLen};
use rt::Disk;

use super::layout::Layout;
use super::{Inner, Parts, Pool, Superblocks, VolumeInfo, volumes};
use crate::budget::RamBudget;
use crate::catalog::{Catalog, DiskEntry, Host, Malformed};
use crate::disks::{CoreDisks, PoolDisk};
use crate::error::{MissingDisk, StoreError};
use crate::geometry::{self, DISK_BYTES_MIN, End, Geometry, SUPERBLOCK_BYTES};
use crate::id::{DiskId, PoolId};
use crate::signature::{Content, LOOKED_AT_BYTES};
use crate::slot;
use crate::superblock::{Superblock, Unreadable, VERSION};

/// How to open a pool.
#[derive(Clone, Debug)]
pub struct OpenPool {
    /// The host that opens it.
    pub host: Host,
    /// Open the pool although another server may be using it: an administrator has confirmed that it does
    /// not.
    pub force: bool,
    /// The memory for RAM volumes, shared with the node's other pools.
    pub ram: RamBudget,
    /// A disk of which it is unknown whether it belongs to the pool, because [`Pool::add_disk`] or
    /// [`Pool::remove_disk`] was interrupted. The pool's catalog decides.
    pub uncertain: Option<PathBuf>,
}

/// What a disk says about its pool.
#[derive(Clone, Debug)]
pub struct Probe {
    /// The pool's identity.
    pub pool: PoolId,
    /// The disk's identity.
    pub disk: DiskId,
    /// The index of the disk in the pool, from 0.
    pub index: u16,
    /// How many disks the pool has.
    pub count: u16,
    /// The part of the disk that the pool uses.
    pub size: ByteLen,
    /// What the metadata on this disk says, if the disk has intact metadata.
    pub contents: Option<ProbedContents>,
}

/// What the metadata on a disk says.
#[derive(Clone, Debug)]
pub struct ProbedContents {
    /// The pool's name.
    pub name: String,
    /// The host that used the pool last.
    pub host: Host,
    /// That host exported the pool, so any other may open it.
    pub exported: bool,
    /// The pool's volumes, by name.
    pub volumes: Vec<VolumeInfo>,
}

impl ProbedContents {
    pub(super) fn of(catalog: Catalog, extent_bytes: u64) -> ProbedContents {
        let volumes = volumes::infos(&catalog, extent_bytes);
        ProbedContents { name: catalog.name, host: catalog.host, exported: catalog.exported, volumes }
    }
}

/// Inspects a disk without changing it.
///
/// # Errors
/// As for [`Pool::open`], as far as one disk can show.
pub async fn probe(path: &Path) -> Result<Probe, StoreError> {
    let member = Member::open(path, true).await?;
    let superblock = member.superblock;
    let contents = newest_catalog(std::slice::from_ref(&member)).await.and_then(|found| {
        let catalog = found.decode(superblock.geometry.extent_bytes).ok()?;
        Some(ProbedContents::of(catalog, superblock.geometry.extent_bytes))
    });
    Ok(Probe {
        pool: superblock.pool,
        disk: superblock.disk,
        index: superblock.index,
        count: superblock.count,
        size: ByteLen(superblock.geometry.disk_bytes),
        contents,
    })
}

/// A pool that could be opened.
#[derive(Clone, Debug)]
pub struct FoundPool {
    /// The pool's identity.
    pub id: PoolId,
    /// The paths of its disks on this node, in the pool's order.
    pub paths: Vec<PathBuf>,
    /// What its metadata says.
    pub contents: ProbedContents,
}

/// Checks whether the pool of these disks could be opened, and describes it.
pub(super) async fn check(paths: &[PathBuf], options: &OpenPool) -> Result<FoundPool, StoreError> {
    let Assembled { members, catalog, .. } = assemble(paths, options).await?;
    let Superblock { pool, geometry, .. } = members[0].superblock;
    let paths = members.iter().map(|member| member.path.clone()).collect();
    Ok(FoundPool { id: pool, paths, contents: ProbedContents::of(catalog, geometry.extent_bytes) })
}

pub(super) async fn open(paths: &[PathBuf], options: OpenPool) -> Result<Pool, StoreError> {
    let Assembled { members, generation, mut catalog, is_behind } = assemble(paths, &options).await?;
    // A disk with a damaged superblock is not judged: the newest one may have been under way when the power
    // failed.
    let is_older = |member: &&Member| member.superblock.generation < catalog.sealed && !member.torn;
    let older_disks: Vec<PathBuf> =
        members.iter().filter(is_older).map(|member| member.path.clone()).collect();
    // The last volume in them may have been converted without anybody having freed them.
    catalog.drop_unneeded_logs();
    let id = members[0].superblock.pool;
    let inner = Rc::new(Inner::new(Parts {
        id,
        layout: lay_out(members, &catalog),
        ram: options.ram,
        generation,
        catalog: catalog.clone(),
        older_disks,
    }));
    if !inner.older_disks.is_empty() {
        catalog.distrust_copies();
    }
    // Record this host as the user, and bring all copies of the metadata to the same generation again.
    let catalog = Catalog { host: options.host.cut(), exported: false, ..catalog };
    inner.allocate_again(&catalog).await;
    inner.commit(catalog.clone(), Superblocks::OfAllDisks).await?;
    if is_behind {
        // The other superblock of such a disk may be from before the disk grew, and lead to the old tail.
        inner.commit(catalog, Superblocks::OfAllDisks).await?;
    }
    Ok(Pool(inner))
}

/// The disks at their places.
fn lay_out(members: Vec<Member>, catalog: &Catalog) -> Layout {
    let vacant = members[0].superblock.geometry.vacant();
    let places = catalog.disks.len();
    let (mut ids, mut geometry) = (vec![DiskEntry::VACANT.id; places], vec![vacant; places]);
    let mut disks: Vec<Option<Rc<PoolDisk>>> = vec![None; places];
    for member in members {
        let place = usize::from(member.superblock.index);
        ids[place] = member.superblock.disk;
        geometry[place] = member.superblock.geometry;
        disks[place] = Some(member.into_disk());
    }
    let leaving = catalog.disks.iter().position(|entry| entry.leaving);
    Layout { disks: CoreDisks::new(disks), ids, geometry, leaving }
}

/// A pool that may be opened. It has at least one disk; disks are in the pool's order.
struct Assembled {
    members: Vec<Member>,
    generation: u64,
    catalog: Catalog,
    /// A disk has no superblock of this generation.
    is_behind: bool,
}

/// Opens all disks of a pool, and checks that none is missing and that this host may open the pool.
///
/// Nothing is written.
async fn assemble(paths: &[PathBuf], options: &OpenPool) -> Result<Assembled, StoreError> {
    let mut members = Vec::new();
    for path in paths {
        members.push(Member::open(path, false).await?);
    }
    let first = members.first().ok_or(StoreError::NoDisks)?.superblock;
    same_pool(&members)?;
    let mut left_out = None;
    if let Some(path) = &options.uncertain {
        match Member::open(path, false).await {
            Ok(member) if member.superblock.pool == first.pool => members.push(member),
            Ok(_) => {}
            Err(error) => left_out = Some(error),
        }
    }
    let found = newest_catalog(&members).await;
    let catalog = found.as_ref().map(|found| found.decode(first.geometry.extent_bytes));
    let known = catalog.as_ref().and_then(|catalog| catalog.as_ref().ok());
    if let (Some(path), Some(known)) = (&options.uncertain, known) {
        members.retain(|member| member.path != *path || known.has_disk(member.superblock.disk));
    }
    // The reason why the uncertain disk could not be opened says more than that it is missing.
    all_there(&members, known).map_err(|missing| left_out.unwrap_or(missing))?;
    let promised = members.iter().map(|member| member.superblock.generation).max().unwrap_or(0);
    let (generation, catalog) = match found.zip(catalog) {
        Some((found, catalog)) if found.generation >= promised => {
            let invalid = |reason| StoreError::MetadataInvalid { pool: first.pool, reason };
            (found.generation, catalog.map_err(invalid)?)
        }
        older => {
            let found = older.map(|(found, _)| found.generation);
            return Err(StoreError::MetadataDamaged { pool: first.pool, expected: promised, found });
        }
    };
    members.sort_by_key(|member| member.superblock.index);
    let is_behind = members.iter().any(|member| member.superblock.generation < generation);
    for member in &mut members {
        member.grow(generation, &catalog)?;
    }
    as_in_catalog(&members, &catalog)?;
    if !catalog.exported && catalog.host.id != options.host.id && !options.force {
        return Err(StoreError::UsedElsewhere { pool: first.pool, host: catalog.host });
    }
    Ok(Assembled { members, generation, catalog, is_behind })
}

/// A disk that claims to belong to a pool.
struct Member {
    disk: Disk,
    path: PathBuf,
    /// The newest intact superblock of the disk.
    superblock: Superblock,
    /// Another superblock of the disk is damaged, or cannot be read.
    torn: bool,
}

impl Member {
    async fn open(path: &Path, read_only: bool) -> Result<Member, StoreError> {
        let disk = Disk::open(path, rt::OpenOptions { read_only, ..Default::default() }).await?;
        if u64::from(disk.block()) > SUPERBLOCK_BYTES {
            return Err(StoreError::DiskBlock { path: path.to_owned(), block: disk.block() });
        }
        let (superblock, torn) = newest_superblock(&disk, path).await?;
        let member = Member { disk, path: path.to_owned(), superblock, torn };
        member.is_as_long()?;
        Ok(member)
    }

    /// Takes the disk's size from the catalog of `generation` if its superblock is older and knows a smaller
    /// disk: growing was interrupted.
    fn grow(&mut self, generation: u64, catalog: &Catalog) -> Result<(), StoreError> {
        let Superblock { index, disk, geometry, .. } = self.superblock;
        let entry = catalog.disks.get(usize::from(index)).filter(|entry| entry.id == disk);
        let is_older = self.superblock.generation < generation;
        let larger = entry.filter(|entry| is_older && entry.bytes > geometry.disk_bytes);
        let grown =
            |entry: &DiskEntry| Geometry::new(entry.bytes, geometry.extent_bytes, geometry.slot_bytes);
        let Some(grown) = larger.and_then(grown) else { return Ok(()) };
        self.superblock.geometry = grown;
        self.is_as_long()
    }

    fn is_as_long(&self) -> Result<(), StoreError> {
        let (expected, found) = (self.superblock.geometry.disk_bytes, self.disk.size());
        if found < expected {
            return Err(StoreError::DiskShrunk { path: self.path.clone(), expected, found });
        }
        Ok(())
    }

    /// Whether zeroing returns the disk's space is decided by its superblock, whatever the file looks like.
    fn into_disk(self) -> Rc<PoolDisk> {
        self.disk.set_reserved(self.superblock.reserved);
        Rc::new(PoolDisk::new(self.disk, self.path))
    }
}

/// Reads all superblocks of a disk. Returns the newest intact one, and whether another is damaged.
///
/// A damaged superblock was being written when the power failed, so the generation before it counts. If
/// neither copy of one generation can be read, however, that generation may be the newest one: continuing
/// from the one before would forget its changes and give away its space. So that is an error.
async fn newest_superblock(disk: &Disk, path: &Path) -> Result<(Superblock, bool), StoreError> {
    let size = disk.size() / SUPERBLOCK_BYTES * SUPERBLOCK_BYTES;
    let mut newest: Option<Superblock> = None;
    let mut unread = [0; 2];
    let mut worst = Unreadable::Absent;
    // The newest superblock with an unknown role: its generation, and the role.
    let mut unknown: Option<(u64, u8)> = None;
    if size < DISK_BYTES_MIN {
        return Err(not_a_pool(disk, path).await);
    }
    for end in End::BOTH {
        // The disk may have grown: an intact superblock at the start knows where the end was.
        let disk_bytes = newest.map_or(size, |superblock| superblock.geometry.disk_bytes.min(size));
        for generation in 0..2 {
            let offset = geometry::superblock_offset(disk_bytes, end, generation);
            let bytes = match disk.read(offset, Buf::uncleared(SUPERBLOCK_BYTES as usize)).await {
                Ok(bytes) => bytes,
                Err(source) => {
                    unread[generation as usize] += 1;
                    if unread[generation as usize] == End::BOTH.len() {
                        return Err(StoreError::Disk { path: path.to_owned(), source });
                    }
                    worst = Unreadable::Damaged;
                    continue;
                }
            };
            match Superblock::decode(&bytes) {
                Ok(superblock) if newest.is_none_or(|newest| newest.generation < superblock.generation) => {
                    newest = Some(superblock);
                }
                Ok(_) | Err(Unreadable::Absent) => {}
                Err(Unreadable::Role { role, generation }) => {
                    unknown = unknown.max(Some((generation, role)));
                }
                Err(Unreadable::Damaged) if matches!(worst, Unreadable::Version(_)) => {}
                Err(unreadable) => worst = unreadable,
            }
        }
    }
    if let Some((generation, role)) = unknown
        && newest.is_none_or(|newest| newest.generation < generation)
    {
        return Err(StoreError::DiskRole { path: path.to_owned(), role });
    }
    match (newest, worst) {
        (Some(newest), worst) => Ok((newest, worst != Unreadable::Absent)),
        (None, Unreadable::Absent) => Err(not_a_pool(disk, path).await),
        (None, Unreadable::Damaged | Unreadable::Role { .. }) => {
            Err(StoreError::SuperblockDamaged { path: path.to_owned() })
        }
        (None, Unreadable::Version(found)) => {
            Err(StoreError::Version { path: path.to_owned(), found, known: VERSION })
        }
    }
}

async fn not_a_pool(disk: &Disk, path: &Path) -> StoreError {
    let len = (disk.size() / SUPERBLOCK_BYTES * SUPERBLOCK_BYTES).min(LOOKED_AT_BYTES as u64);
    let start = disk.read(0, Buf::uncleared(len as usize)).await;
    let found = start.map_or(Content::Data, |start| Content::detect(&start));
    StoreError::NotAPool { path: path.to_owned(), found }
}

/// A generation of the catalog that was found intact.
struct Generation {
    generation: u64,
    catalog: Vec<u8>,
}

impl Generation {
    fn decode(&self, extent_bytes: u64) -> Result<Catalog, Malformed> {
        Catalog::decode(&self.catalog, extent_bytes)
    }
}

/// The newest intact catalog on any of the disks.
async fn newest_catalog(members: &[Member]) -> Option<Generation> {
    let mut candidates = Vec::new();
    // Those of the first disks count. Others may have older ones, from when they were the first.
    for member in members {
        for (end, parity) in End::BOTH.into_iter().flat_map(|end| [(end, 0), (end, 1)]) {
            let offset = member.superblock.geometry.slot_offset(end, parity);
            let header = member.disk.read(offset, Buf::uncleared(SUPERBLOCK_BYTES as usize)).await;
            let header = header.ok().and_then(|bytes| slot::decode_header(member.superblock.pool, &bytes));
            candidates.extend(header.map(|header| (header, member, offset)));
        }
    }
    candidates.sort_by_key(|(header, _, _)| std::cmp::Reverse(header.generation));
    for (header, member, offset) in candidates {
        let len = header.len.checked_add(slot::HEADER_BYTES as u64);
        let Some(len) = len.filter(|len| *len <= member.superblock.geometry.slot_bytes) else { continue };
        let padded = len.next_multiple_of(SUPERBLOCK_BYTES);
        let Ok(bytes) = member.disk.read(offset, Buf::uncleared(padded as usize)).await else { continue };
        // The checksum covers the header as well, so this read must have returned the same header as the
        // first one.
        if slot::decode_header(member.superblock.pool, &bytes) != Some(header) {
            continue;
        }
        if let Some(catalog) = slot::decode(header, &bytes) {
            return Some(Generation { generation: header.generation, catalog: catalog.to_vec() });
        }
    }
    None
}

/// Checks that all disks claim the same pool, each at its own index.
fn same_pool(members: &[Member]) -> Result<(), StoreError> {
    for (at, member) in members.iter().enumerate() {
        for earlier in &members[..at] {
            if earlier.superblock.pool != member.superblock.pool {
                return Err(StoreError::OtherPool {
                    path: member.path.clone(),
                    expected: earlier.superblock.pool,
                    found: member.superblock.pool,
                });
            }
            if earlier.superblock.disk == member.superblock.disk {
                return Err(StoreError::DuplicateDisk {
                    first: earlier.path.clone(),
                    second: member.path.clone(),
                });
            }
        }
    }
    Ok(())
}

/// Checks that no disk is missing. `catalog` knows their identities, if it could be read.
fn all_there(members: &[Member], catalog: Option<&Catalog>) -> Result<(), StoreError> {
    let Some(first) = members.first() else { return Err(StoreError::NoDisks) };
    // While a disk is being added, superblocks count fewer places than the catalog.
    let told = members.iter().map(|member| member.superblock.count).max().unwrap_or(0);
    let places = catalog.map_or(told, |catalog| catalog.disks.len() as u16);
    let entry = |place: u16| catalog.and_then(|catalog| catalog.disks.get(usize::from(place)));
    let has_disk = |place: &u16| entry(*place).is_none_or(|entry| !entry.is_vacant());
    let present: BTreeSet<u16> = members.iter().map(|member| member.superblock.index).collect();
    let missing: Vec<MissingDisk> = (0..places)
        .filter(|place| has_disk(place) && !present.contains(place))
        .map(|index| MissingDisk { index, disk: entry(index).map(|entry| entry.id) })
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let count = (0..places).filter(has_disk).count() as u16;
    Err(StoreError::DisksMissing { pool: first.superblock.pool, count, missing })
}

/// Checks that the disks, in order, are those that the catalog names.
fn as_in_catalog(members: &[Member], catalog: &Catalog) -> Result<(), StoreError> {
    let known = |member: &&Member| {
        let entry = catalog.disks.get(usize::from(member.superblock.index));
        entry.is_some_and(|entry| !entry.is_vacant())
    };
    if let Some(member) = members.iter().find(|member| !known(member)) {
        return Err(StoreError::NotInPool { path: member.path.clone() });
    }
    for member in members {
        let Superblock { index, geometry, .. } = member.superblock;
        let entry = catalog.disks.get(usize::from(index));
        let fits = entry.is_some_and(|entry| {
            entry.id == member.superblock.disk
                && entry.bytes == geometry.disk_bytes
                && entry.extents == geometry.extents
        });
        if !fits {
            return Err(StoreError::ReplacedDisk { path: member.path.clone(), index });
        }
    }
    let pool = members[0].superblock.pool;
    let disks = catalog.disks.iter().filter(|entry| !entry.is_vacant()).count();
    if members.len() != disks || has_mixed_layouts(members) {
        return Err(StoreError::MetadataInvalid { pool, reason: Malformed::Pool });
    }
    Ok(())
}

/// Whether the disks disagree about values that are the same for a whole pool.
fn has_mixed_layouts(members: &[Member]) -> bool {
    let layout = |member: &Member| {
        let geometry = member.superblock.geometry;
        (geometry.extent_bytes, geometry.slot_bytes)
    };
    members.iter().any(|member| layout(member) != layout(&members[0]))
}
