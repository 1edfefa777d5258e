//! Creating a pool.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use base::{Buf, ByteLen};
use rt::{Disk, Durability, OpenError};

use super::layout::Layout;
use super::open::{ProbedContents, probe};
use super::{Inner, Parts, Pool, Superblocks};
use crate::budget::RamBudget;
use crate::catalog::{Catalog, Host, is_name};
use crate::copy::PoolMark;
use crate::disks::{CoreDisks, PoolDisk};
use crate::error::StoreError;
use crate::geometry::{self, DISKS_MAX, End, Geometry, SUPERBLOCK_BYTES};
use crate::id::{DiskId, PoolId};
use crate::signature::{Content, LOOKED_AT_BYTES};

/// A disk for a pool.
#[derive(Clone, Debug)]
pub struct NewDisk {
    /// The path.
    pub path: PathBuf,
    /// Create a file of this size, which must not exist. `None`: a file or block device that exists.
    pub create: Option<ByteLen>,
    /// With `create`: reserve the file's space in the file system now, so that it cannot run out later.
    pub reserve: bool,
}

/// How to create a pool.
#[derive(Clone, Debug)]
pub struct CreateOptions {
    /// The pool's name; the rules are those of volume names.
    pub name: String,
    /// The host that creates the pool, and then has it open.
    pub host: Host,
    /// The extent size; `None`: one that suits the pool's size. Each slice of a volume takes whole extents.
    pub extent: Option<ByteLen>,
    /// Overwrite what the disks hold.
    pub wipe: bool,
    /// The memory for RAM volumes, shared with the node's other pools.
    pub ram: RamBudget,
}

/// A disk that a pool could get, as it is now.
#[derive(Clone, Debug)]
pub struct LookedAt {
    /// The path, of a file that may not exist yet.
    pub path: PathBuf,
    /// Its size.
    pub size: ByteLen,
    /// What it holds; `None`: the file would be created.
    pub holds: Option<Content>,
    /// If it is a disk of another pool: what that pool's metadata says.
    pub pool: Option<ProbedContents>,
}

/// How many bytes are cleared at once.
pub(super) const CLEAR_BYTES: u64 = 1 << 20;

/// How much of the end of a disk is checked: backup partition tables, superblocks of RAID and of pools.
const TAIL_LOOKED_AT_BYTES: u64 = 64 << 10;

pub(super) async fn create(disks: Vec<NewDisk>, options: CreateOptions) -> Result<Pool, StoreError> {
    check_names(&disks, &options.name)?;
    let mut made = MadeFiles::default();
    let created = create_on(disks, options, &mut made).await;
    if created.is_err() {
        made.remove();
    }
    created
}

/// Checks whether such a pool could be created, and returns what would be overwritten.
pub(super) async fn check(disks: &[NewDisk], name: &str, wipe: bool) -> Result<Vec<LookedAt>, StoreError> {
    check_names(disks, name)?;
    let looked_at = look_at(disks, wipe).await?;
    let sizes: Vec<(&Path, u64)> = looked_at.iter().map(|disk| (disk.path.as_path(), disk.size.0)).collect();
    lay_out(&sizes, None)?;
    Ok(looked_at)
}

fn check_names(disks: &[NewDisk], name: &str) -> Result<(), StoreError> {
    if !is_name(name) {
        return Err(StoreError::NameInvalid(name.to_owned()));
    }
    match disks.len() {
        0 => Err(StoreError::NoDisks),
        count if count > DISKS_MAX => Err(StoreError::TooManyDisks),
        _ => Ok(()),
    }
}

async fn create_on(
    disks: Vec<NewDisk>,
    options: CreateOptions,
    made: &mut MadeFiles,
) -> Result<Pool, StoreError> {
    let mut opened = Vec::new();
    for new in &disks {
        opened.push((open_new(new, options.wipe, made).await?, new.path.clone()));
    }
    let sizes: Vec<(&Path, u64)> = opened.iter().map(|(disk, path)| (path.as_path(), disk.size())).collect();
    let geometry = lay_out(&sizes, options.extent)?;
    let ids = opened.iter().map(|_| DiskId::random()).collect();
    let disks = opened.into_iter().map(|(disk, path)| Some(Rc::new(PoolDisk::new(disk, path))));
    let layout = Layout { disks: CoreDisks::new(disks.collect()), ids, geometry, leaving: None };
    for (disk, geometry) in layout.disks.all().zip(&layout.geometry) {
        clear_metadata(disk, geometry).await?;
    }
    let catalog = Catalog {
        name: options.name,
        host: options.host.cut(),
        exported: false,
        disks: layout.entries(),
        volumes: BTreeMap::new(),
        mark: PoolMark::default(),
        sealed: 0,
        logs: Default::default(),
    };
    let inner = Rc::new(Inner::new(Parts {
        id: PoolId::random(),
        layout,
        ram: options.ram,
        generation: 0,
        catalog: catalog.clone(),
        older_disks: Vec::new(),
    }));
    inner.commit(catalog, Superblocks::OfAllDisks).await?;
    Ok(Pool(inner))
}

/// Files that a change has created, to be removed if it fails.
#[derive(Default)]
pub(super) struct MadeFiles(Vec<(Disk, PathBuf)>);

impl MadeFiles {
    /// Removes the files. Those that cannot be removed are logged.
    pub(super) fn remove(self) {
        for (disk, path) in self.0 {
            if let Err(error) = disk.remove(&path) {
                tracing::warn!(path = %path.display(), %error, "a file created for a failed pool could not be removed");
            }
        }
    }
}

/// Opens or creates a disk, and checks that it is empty. A file that is created is added to `made`.
pub(super) async fn open_new(new: &NewDisk, wipe: bool, made: &mut MadeFiles) -> Result<Disk, StoreError> {
    let options =
        rt::OpenOptions { create: new.create.map(|len| len.0), reserve: new.reserve, ..Default::default() };
    let disk = Disk::open(&new.path, options).await?;
    if new.create.is_some() {
        made.0.push((disk.share()(), new.path.clone()));
    }
    if u64::from(disk.block()) > SUPERBLOCK_BYTES {
        return Err(StoreError::DiskBlock { path: new.path.clone(), block: disk.block() });
    }
    if new.create.is_some() || wipe {
        return Ok(disk);
    }
    match content_of(&disk, &new.path).await? {
        Content::Nothing => Ok(disk),
        found => Err(StoreError::NotEmpty { path: new.path.clone(), found }),
    }
}

/// What a disk holds, as far as is checked.
async fn content_of(disk: &Disk, path: &Path) -> Result<Content, StoreError> {
    let size = disk.size() / SUPERBLOCK_BYTES * SUPERBLOCK_BYTES;
    let failed = |source| StoreError::Disk { path: path.to_owned(), source };
    let start =
        disk.read(0, Buf::uncleared(size.min(LOOKED_AT_BYTES as u64) as usize)).await.map_err(failed)?;
    let found = Content::detect(&start);
    if found != Content::Nothing {
        return Ok(found);
    }
    let len = size.min(TAIL_LOOKED_AT_BYTES);
    let end = disk.read(size - len, Buf::uncleared(len as usize)).await.map_err(failed)?;
    let tail = (end.len()).saturating_sub(2 * SUPERBLOCK_BYTES as usize);
    Ok(match Content::detect(&end[tail..]) {
        Content::Nothing if end.iter().any(|byte| *byte != 0) => Content::Data,
        found => found,
    })
}

/// Inspects disks that a pool could get, and refuses those that it could not.
///
/// Nothing is written, and no file is created.
pub(super) async fn look_at(disks: &[NewDisk], wipe: bool) -> Result<Vec<LookedAt>, StoreError> {
    // All disks stay open until the last one has been opened, so a disk that is specified twice is in use.
    let mut open = Vec::new();
    let mut looked_at: Vec<LookedAt> = Vec::new();
    for new in disks {
        let path = new.path.clone();
        let disk = match new.create {
            Some(size) => {
                check_new(new, size, &looked_at)?;
                LookedAt { path, size, holds: None, pool: None }
            }
            None => {
                let disk = open_new(new, wipe, &mut MadeFiles::default()).await?;
                // With `wipe`, a disk that cannot be read is not refused.
                let holds = match wipe {
                    true => content_of(&disk, &path).await.unwrap_or(Content::Data),
                    false => Content::Nothing,
                };
                let size = ByteLen(disk.size());
                open.push(disk);
                LookedAt { path, size, holds: Some(holds), pool: None }
            }
        };
        looked_at.push(disk);
    }
    drop(open);
    for disk in looked_at.iter_mut().filter(|disk| disk.holds == Some(Content::Pool)) {
        disk.pool = probe(&disk.path).await.ok().and_then(|found| found.contents);
    }
    Ok(looked_at)
}

/// Checks whether a file could be created for this disk, in addition to `others`.
fn check_new(new: &NewDisk, size: ByteLen, others: &[LookedAt]) -> Result<(), StoreError> {
    if others.iter().any(|other| other.path == new.path) {
        let source = std::io::ErrorKind::AlreadyExists.into();
        return Err(OpenError::System { path: new.path.clone(), source }.into());
    }
    Ok(Disk::check_new(&new.path, size.0, new.reserve)?)
}

fn too_small((path, size): (&Path, u64), needed: u64) -> StoreError {
    StoreError::DiskTooSmall { path: path.to_owned(), size, needed }
}

/// The layout of disks of these sizes.
fn lay_out(disks: &[(&Path, u64)], extent: Option<ByteLen>) -> Result<Vec<Geometry>, StoreError> {
    if let Some(disk) = disks.iter().find(|(_, size)| *size < geometry::DISK_BYTES_MIN) {
        return Err(too_small(*disk, geometry::DISK_BYTES_MIN));
    }
    let sizes: Vec<u64> = disks.iter().map(|(_, size)| *size).collect();
    let extent_bytes = extent.map_or_else(|| geometry::extent_bytes_for(&sizes), |extent| extent.0);
    if !extent_bytes.is_power_of_two()
        || !(geometry::EXTENT_BYTES_MIN..=geometry::EXTENT_BYTES_MAX).contains(&extent_bytes)
    {
        return Err(StoreError::ExtentSize(extent_bytes));
    }
    let slot_bytes =
        geometry::slot_bytes_for(&sizes, extent_bytes).ok_or(StoreError::ExtentSize(extent_bytes))?;
    let needed = Geometry::bytes_min(extent_bytes, slot_bytes);
    let lay_out = |disk: &(&Path, u64)| {
        Geometry::new(disk.1, extent_bytes, slot_bytes).ok_or_else(|| too_small(*disk, needed))
    };
    disks.iter().map(lay_out).collect()
}

impl Host {
    /// Shortens the name to the length of its field.
    pub(crate) fn cut(mut self) -> Host {
        let mut end = self.name.len().min(crate::catalog::NAME_BYTES_MAX);
        while !self.name.is_char_boundary(end) {
            end -= 1;
        }
        self.name.truncate(end);
        self
    }
}

/// Overwrites all metadata areas with zeros.
///
/// Old content is gone, and a sparse file has the space from now on, so that a full file system cannot fail a
/// change.
pub(super) async fn clear_metadata(disk: &PoolDisk, geometry: &Geometry) -> Result<(), StoreError> {
    let zeros = Buf::zeroed(CLEAR_BYTES as usize).share();
    let failed = |source| StoreError::Disk { path: disk.path().to_owned(), source };
    let head = 0..geometry.extents_offset();
    let tail = geometry.slot_offset(End::Tail, 0)..geometry.disk_bytes;
    for range in [head, tail] {
        let mut at = range.start;
        while at < range.end {
            let len = CLEAR_BYTES.min(range.end - at);
            let data = zeros.slice(0..len as usize);
            disk.write(at, data, Durability::Cached).await.map_err(failed)?;
            at += len;
        }
    }
    disk.flush().await.map_err(failed)
}
