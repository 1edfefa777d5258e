//! The record that a node keeps for itself: its identity, its pools, its place in a cluster, by key.
//!
//! It is one file with two slots. A commit writes the whole record to the slot that is not in force and, when
//! that is durable, its header with the next generation. A power cut at any point leaves the old record or
//! the new one, and its traces differ from damage ([`slot`], `docs/formats/record.md`). Values are JSON, not
//! a hand-made format: they are small, people read them in an emergency, and each version adds fields. They
//! are kept in memory as the text on the disk: a commit copies those that it does not change.
//!
//! After a failed commit it is unknown which record the next start will find, and after a failed flush the
//! kernel considers data clean that never reached the disk. So the record accepts no changes until it is
//! repaired ([`Record::repair`]): the file is opened again, and the record in force is written over the slot
//! of the failed commit, with a higher generation than that commit's. A start before the repair finds the
//! record before the failed change or the one after it, and either is valid.

pub mod fuzzing;
mod slot;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use base::{Buf, ByteLen, SharedBuf, crc32c};
use rt::{Disk, DiskError, Durability, OpenError, OpenOptions};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use self::slot::{Chosen, HEADER_BYTES, Header, SLOT_BYTES, SLOTS, Slot, choose, padded};
pub use self::slot::{RecordDamage, RecordFault, RecordMissing};

const VERSION: u32 = 1;

/// The record could not be read or changed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
pub enum RecordError {
    #[error("cannot open the node's record")]
    Open(#[source] OpenError),
    #[error("cannot read or write the node's record {0}")]
    Disk(PathBuf, #[source] DiskError),
    #[error(
        "both copies of the node's record {0} are damaged: restore it from a backup, or move it away and create targets and hosts again (volumes in pools are not affected)"
    )]
    Damaged(PathBuf),
    #[error(
        "the node's record {0} has version {1}, which this version of Ursa does not know: start the newer version"
    )]
    Version(PathBuf, u32),
    #[error(
        "the node's record is full: it needs {}, and its limit is {}; delete unused targets or host groups",
        .0, ByteLen(SLOT_BYTES)
    )]
    Full(ByteLen),
    #[error(
        "the node's record accepts no changes because an earlier one could not be written: check the disk and the free space of the data directory; the node retries every few seconds"
    )]
    Latched,
}

/// Keys and values, durable.
pub struct Record {
    /// `None` after a failed commit: see the module's documentation.
    disk: Option<Rc<Disk>>,
    path: PathBuf,
    entries: BTreeMap<String, Box<RawValue>>,
    generation: u64,
    /// The slot in force. The next commit writes to the other one.
    slot: u64,
    /// What was wrong with the other slot at the start. It is reported until the next start: a commit makes
    /// the slot valid again, but does not bring back what may be missing.
    fault: Option<RecordFault>,
}

/// A key, and its new value; `None` deletes it.
pub type Change = (String, Option<Box<RawValue>>);

impl Record {
    /// Opens the record at `path`, or creates an empty one.
    ///
    /// # Errors
    /// All of [`RecordError`] except those of a commit.
    pub async fn open(path: &Path) -> Result<Record, RecordError> {
        let disk = match Disk::open(path, OpenOptions::default()).await {
            Ok(disk) => disk,
            Err(OpenError::System { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                let create = OpenOptions { create: Some(SLOT_BYTES * SLOTS), ..OpenOptions::default() };
                Disk::open(path, create).await.map_err(RecordError::Open)?
            }
            Err(error) => return Err(RecordError::Open(error)),
        };
        let mut slots = Vec::new();
        for slot in 0..SLOTS {
            let slot = Slot::read(&disk, slot).await;
            if let Some(version) = slot.version().filter(|version| *version != VERSION) {
                return Err(RecordError::Version(path.to_owned(), version));
            }
            slots.push(slot);
        }
        let Chosen { slot, generation, entries, fault } = choose(path, slots)?;
        if let Some(fault) = &fault {
            tracing::error!(
                ?fault,
                "one of the two copies of the node's record was lost; the node uses the other one"
            );
        }
        let disk = Rc::new(disk);
        Ok(Record { disk: Some(disk), path: path.to_owned(), entries, generation, slot, fault })
    }

    /// What was wrong with one of the two copies at the start.
    pub fn fault(&self) -> Option<&RecordFault> {
        self.fault.as_ref()
    }

    /// Whether a commit failed, so that nothing can be changed until the record is repaired.
    pub fn is_latched(&self) -> bool {
        self.disk.is_none()
    }

    /// The path of the record's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The text of the value at `key`, of whatever shape.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.entries.get(key).map(|value| value.get())
    }

    /// The value at `key`; `None` if the key is missing or its value has another shape.
    pub fn get<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        serde_json::from_str(self.entries.get(key)?.get()).ok()
    }

    /// The values whose keys begin with `prefix`, by key.
    pub fn list<T: DeserializeOwned>(&self, prefix: &str) -> Vec<T> {
        let range = self.entries.range(prefix.to_owned()..);
        let values = range.take_while(|(key, _)| key.starts_with(prefix));
        let parse = |(key, value): (&str, &RawValue)| {
            serde_json::from_str(value.get())
                .inspect_err(|error| tracing::error!(key, %error, "an entry of the record cannot be read and is skipped"))
                .ok()
        };
        values.map(|(key, value)| (key.as_str(), &**value)).filter_map(parse).collect()
    }

    /// Prepares the record with all of `changes`.
    ///
    /// The caller writes it with [`Prepared::write`], then puts it in force with [`Record::finish`].
    ///
    /// The three steps keep the record free while the disk works. Only one change may be in progress at a
    /// time.
    ///
    /// # Errors
    /// [`RecordError::Full`], [`RecordError::Latched`].
    pub fn prepare(&self, changes: Vec<Change>) -> Result<Prepared, RecordError> {
        let Some(disk) = &self.disk else { return Err(RecordError::Latched) };
        let image = self.image(&changes, self.generation + 1)?;
        let (generation, slot) = (self.generation + 1, self.other_slot());
        Ok(Prepared { disk: Rc::clone(disk), changes, generation, slot, image })
    }

    /// The repair of a latched record; `None` if the record is not latched.
    ///
    /// # Errors
    /// [`RecordError::Full`].
    pub fn repair(&self) -> Result<Option<Repair>, RecordError> {
        if !self.is_latched() {
            return Ok(None);
        }
        // The commit that failed may be on the disk, with the next generation.
        let generation = self.generation + 2;
        let image = self.image(&[], generation)?;
        Ok(Some(Repair { path: self.path.clone(), generation, slot: self.other_slot(), image }))
    }

    /// Notes that the repair was written, by this disk.
    pub fn repaired(&mut self, repair: Repair, disk: Disk) {
        (self.generation, self.slot) = (repair.generation, repair.slot);
        self.disk = Some(Rc::new(disk));
    }

    fn other_slot(&self) -> u64 {
        (self.slot + 1) % SLOTS
    }

    /// Header and payload of the record with all of `changes`.
    fn image(&self, changes: &[Change], generation: u64) -> Result<SharedBuf, RecordError> {
        let kept = self.entries.iter().map(|(key, value)| (key.as_str(), &**value));
        let mut entries: BTreeMap<&str, &RawValue> = kept.collect();
        for (key, value) in changes {
            match value {
                Some(value) => entries.insert(key, value),
                None => entries.remove(key.as_str()),
            };
        }
        let payload = serde_json::to_vec(&entries).expect("a map of JSON values is JSON");
        if payload.len() as u64 > SLOT_BYTES - HEADER_BYTES as u64 {
            return Err(RecordError::Full(ByteLen(payload.len() as u64)));
        }
        let header = Header {
            version: VERSION,
            generation,
            payload_len: payload.len(),
            payload_crc: crc32c(&payload),
        };
        let mut image = Buf::zeroed(HEADER_BYTES + padded(payload.len()));
        header.encode(&mut image);
        image[HEADER_BYTES..HEADER_BYTES + payload.len()].copy_from_slice(&payload);
        Ok(image.share())
    }

    /// Puts what was written in force.
    ///
    /// # Errors
    /// [`RecordError::Disk`] if it was not written: the record is latched.
    pub fn finish(&mut self, prepared: Prepared, written: Result<(), DiskError>) -> Result<(), RecordError> {
        if let Err(error) = written {
            self.disk = None;
            return Err(RecordError::Disk(self.path.clone(), error));
        }
        for (key, value) in prepared.changes {
            match value {
                Some(value) => self.entries.insert(key, value),
                None => self.entries.remove(&key),
            };
        }
        (self.generation, self.slot) = (prepared.generation, prepared.slot);
        Ok(())
    }
}

/// A new record that is not in force yet.
pub struct Prepared {
    disk: Rc<Disk>,
    changes: Vec<Change>,
    generation: u64,
    /// The slot that it is written to.
    slot: u64,
    /// Header and payload.
    image: SharedBuf,
}

impl Prepared {
    /// Writes the record durably to the slot that is not in force.
    ///
    /// The header is written only when the payload is on the disk. So a header whose payload is invalid is
    /// damage, and not the trace of a power cut.
    ///
    /// # Errors
    /// What the disk reports; pass it to [`Record::finish`].
    pub async fn write(&self) -> Result<(), DiskError> {
        write(&self.disk, self.slot, &self.image).await
    }
}

async fn write(disk: &Disk, slot: u64, image: &SharedBuf) -> Result<(), DiskError> {
    let at = slot * SLOT_BYTES;
    let (header, payload) = (image.slice(0..HEADER_BYTES), image.slice(HEADER_BYTES..image.len()));
    disk.write(at + HEADER_BYTES as u64, payload, Durability::Cached).await?;
    disk.flush().await?;
    disk.write(at, header, Durability::Durable).await
}

/// The record in force, to be written over a failed commit: see [`Record::repair`].
pub struct Repair {
    path: PathBuf,
    generation: u64,
    slot: u64,
    image: SharedBuf,
}

impl Repair {
    /// Opens the file again and writes the record durably. Pass the disk to [`Record::repaired`].
    ///
    /// # Errors
    /// [`RecordError::Open`], [`RecordError::Disk`]: the record stays latched.
    pub async fn write(&self) -> Result<Disk, RecordError> {
        let disk = Disk::open(&self.path, OpenOptions::default()).await.map_err(RecordError::Open)?;
        let written = write(&disk, self.slot, &self.image).await;
        written.map_err(|error| RecordError::Disk(self.path.clone(), error))?;
        Ok(disk)
    }
}

/// A change that sets `key` to `value`.
pub fn set(key: String, value: &impl Serialize) -> Change {
    let value = serde_json::value::to_raw_value(value);
    (key, Some(value.expect("our records are plain structures with text keys")))
}

/// A change that deletes `key`.
pub fn delete(key: String) -> Change {
    (key, None)
}
