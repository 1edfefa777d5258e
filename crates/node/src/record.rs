//! The cluster's record as a node alone keeps it: the node's identity, its pools, targets and host groups, by key.
//!
//! One file with two slots. A commit writes the whole record, with the next generation and a checksum, to the slot that is
//! not the newest, and flushes: a cut at any point leaves the old record or the new one (`docs/formats/record.md`). Values
//! are JSON, not a hand-made format: they are small, read by people in an emergency, and grow fields with each version.
//! They stay the text that they are on the disk: a commit copies those that it does not change.
//!
//! After a failed commit nobody knows which record the next start will find, so the record accepts no more changes until
//! the node has been restarted.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use base::{Buf, SharedBuf, crc32c};
use rt::{Disk, DiskError, Durability, OpenError, OpenOptions};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

/// 4,096 volumes, each with a target, a map and its own host group, take about 1 KiB apiece: four times that.
const SLOT_BYTES: u64 = 16 << 20;
const SLOTS: u64 = 2;
const HEADER_BYTES: usize = 4096;
const MAGIC: [u8; 8] = *b"URSAREC\0";
const VERSION: u32 = 1;

/// The record could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The file could not be opened.
    #[error("cannot open the node's record")]
    Open(#[source] OpenError),
    /// The disk failed.
    #[error("cannot read or write the node's record {0}")]
    Disk(PathBuf, #[source] DiskError),
    /// Both slots are damaged.
    #[error(
        "the node's record {0} is damaged in both copies: restore it from a backup, or move it away and create targets and hosts anew (volumes in pools are not affected)"
    )]
    Damaged(PathBuf),
    /// Written by a newer version of Ursa.
    #[error("the node's record {0} has version {1}, newer than this program knows: start the newer program")]
    Version(PathBuf, u32),
    /// The record has grown beyond its slot.
    #[error(
        "the node's record is full: {0} bytes do not fit into {SLOT_BYTES}; delete targets or hosts that are not used"
    )]
    Full(usize),
    /// An earlier commit failed.
    #[error("the node's record takes no changes since an earlier one failed to be written: restart the node")]
    Latched,
}

/// Keys and values, durable.
pub struct Record {
    disk: Rc<Disk>,
    path: PathBuf,
    entries: BTreeMap<String, Box<RawValue>>,
    generation: u64,
    /// A commit failed; see the module's header.
    latched: bool,
}

/// What a commit changes: a new value, or none to delete.
pub type Change = (String, Option<Box<RawValue>>);

impl Record {
    /// Opens the record at `path`, or makes an empty one.
    ///
    /// # Errors
    /// All of [`RecordError`] but those of a commit.
    pub async fn open(path: &Path) -> Result<Record, RecordError> {
        let disk = match Disk::open(path, OpenOptions::default()).await {
            Ok(disk) => disk,
            Err(OpenError::System { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                let create = OpenOptions { create: Some(SLOT_BYTES * SLOTS), ..OpenOptions::default() };
                Disk::open(path, create).await.map_err(RecordError::Open)?
            }
            Err(error) => return Err(RecordError::Open(error)),
        };
        let mut record = Record {
            disk: Rc::new(disk),
            path: path.to_owned(),
            entries: BTreeMap::new(),
            generation: 0,
            latched: false,
        };
        record.load().await?;
        Ok(record)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    async fn load(&mut self) -> Result<(), RecordError> {
        let mut blank_slots = 0;
        for slot in 0..SLOTS {
            let at = slot * SLOT_BYTES;
            let header = self.read(at, HEADER_BYTES).await?;
            blank_slots += u64::from(header.iter().all(|byte| *byte == 0));
            let Some(header) = Header::decode(&header) else { continue };
            if header.version != VERSION {
                return Err(RecordError::Version(self.path.clone(), header.version));
            }
            let payload = self.read(at + HEADER_BYTES as u64, padded(header.payload_len)).await?;
            let payload = &payload[..header.payload_len];
            if crc32c(payload) != header.payload_crc || header.generation <= self.generation {
                continue;
            }
            if let Ok(entries) = serde_json::from_slice(payload) {
                self.entries = entries;
                self.generation = header.generation;
            }
        }
        // A cut in the middle of the very first commit leaves one slot damaged and one blank: nothing was promised.
        if self.generation == 0 && blank_slots == 0 {
            return Err(RecordError::Damaged(self.path.clone()));
        }
        Ok(())
    }

    async fn read(&self, at: u64, len: usize) -> Result<Buf, RecordError> {
        self.disk
            .read(at, Buf::uncleared(len))
            .await
            .map_err(|error| RecordError::Disk(self.path.clone(), error))
    }

    /// The value at `key`; `None` if there is none or it is of another shape.
    pub fn get<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        serde_json::from_str(self.entries.get(key)?.get()).ok()
    }

    /// The values whose keys begin with `prefix`, by key.
    pub fn list<T: DeserializeOwned>(&self, prefix: &str) -> Vec<T> {
        let range = self.entries.range(prefix.to_owned()..);
        let values = range.take_while(|(key, _)| key.starts_with(prefix));
        let parse = |(key, value): (&str, &RawValue)| {
            serde_json::from_str(value.get())
                .inspect_err(|error| tracing::error!(key, %error, "an entry of the record cannot be read and is passed over"))
                .ok()
        };
        values.map(|(key, value)| (key.as_str(), &**value)).filter_map(parse).collect()
    }

    /// The record with all of `changes`, to be written with [`Prepared::write`] and then put in force with
    /// [`Record::finish`]. In three steps, so that nobody holds the record while the disk works; one change at a time.
    ///
    /// # Errors
    /// [`RecordError::Full`], [`RecordError::Latched`].
    pub fn prepare(&self, changes: Vec<Change>) -> Result<Prepared, RecordError> {
        if self.latched {
            return Err(RecordError::Latched);
        }
        let kept = self.entries.iter().map(|(key, value)| (key.as_str(), &**value));
        let mut entries: BTreeMap<&str, &RawValue> = kept.collect();
        for (key, value) in &changes {
            match value {
                Some(value) => entries.insert(key, value),
                None => entries.remove(key.as_str()),
            };
        }
        let payload = serde_json::to_vec(&entries).expect("a map of JSON values is JSON");
        if payload.len() as u64 > SLOT_BYTES - HEADER_BYTES as u64 {
            return Err(RecordError::Full(payload.len()));
        }
        let generation = self.generation + 1;
        let header = Header {
            version: VERSION,
            generation,
            payload_len: payload.len(),
            payload_crc: crc32c(&payload),
        };
        let mut slot = Buf::zeroed(HEADER_BYTES + padded(payload.len()));
        header.encode(&mut slot);
        slot[HEADER_BYTES..HEADER_BYTES + payload.len()].copy_from_slice(&payload);
        Ok(Prepared { disk: Rc::clone(&self.disk), changes, generation, slot: slot.share() })
    }

    /// Puts what was written in force.
    ///
    /// # Errors
    /// [`RecordError::Disk`] if it was not written: the record is latched.
    pub fn finish(&mut self, prepared: Prepared, written: Result<(), DiskError>) -> Result<(), RecordError> {
        if let Err(error) = written {
            self.latched = true;
            return Err(RecordError::Disk(self.path.clone(), error));
        }
        for (key, value) in prepared.changes {
            match value {
                Some(value) => self.entries.insert(key, value),
                None => self.entries.remove(&key),
            };
        }
        self.generation = prepared.generation;
        Ok(())
    }
}

/// A new record that is not in force yet.
pub struct Prepared {
    disk: Rc<Disk>,
    changes: Vec<Change>,
    generation: u64,
    slot: SharedBuf,
}

impl Prepared {
    /// Writes it to the slot that is not the newest, durably.
    ///
    /// # Errors
    /// What the disk says; give it to [`Record::finish`].
    pub async fn write(&self) -> Result<(), DiskError> {
        let at = self.generation % SLOTS * SLOT_BYTES;
        self.disk.write(at, self.slot.clone(), Durability::Cached).await?;
        self.disk.flush().await
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

fn padded(len: usize) -> usize {
    len.next_multiple_of(HEADER_BYTES)
}

struct Header {
    version: u32,
    generation: u64,
    payload_len: usize,
    payload_crc: u32,
}

/// The bytes of the header that its own checksum covers.
const HEADER_USED: usize = 32;

impl Header {
    fn encode(&self, bytes: &mut [u8]) {
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.version.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.payload_crc.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.generation.to_le_bytes());
        bytes[24..32].copy_from_slice(&(self.payload_len as u64).to_le_bytes());
        let crc = crc32c(&bytes[..HEADER_USED]);
        bytes[HEADER_USED..HEADER_USED + 4].copy_from_slice(&crc.to_le_bytes());
    }

    /// `None` for bytes that are no header.
    fn decode(bytes: &[u8]) -> Option<Header> {
        let (used, rest) = bytes.split_at_checked(HEADER_USED)?;
        let crc = u32::from_le_bytes(*rest.first_chunk()?);
        let word = |at: usize| used[at..].first_chunk().map(|word| u32::from_le_bytes(*word));
        let long = |at: usize| used[at..].first_chunk().map(|long| u64::from_le_bytes(*long));
        let payload_len = usize::try_from(long(24)?).ok()?;
        let valid = used[..8] == MAGIC
            && crc32c(used) == crc
            && payload_len as u64 <= SLOT_BYTES - HEADER_BYTES as u64;
        valid.then_some(Header {
            version: word(8)?,
            payload_crc: word(12)?,
            generation: long(16)?,
            payload_len,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_these_bytes() {
        let mut bytes = [0; 64];
        Header { version: 1, generation: 0x0102, payload_len: 5, payload_crc: 0xa1b2_c3d4 }
            .encode(&mut bytes);
        assert_eq!(
            bytes[..32],
            *b"URSAREC\0\x01\0\0\0\xd4\xc3\xb2\xa1\x02\x01\0\0\0\0\0\0\x05\0\0\0\0\0\0\0"
        );
        let header = Header::decode(&bytes).unwrap();
        assert_eq!((header.generation, header.payload_len), (0x0102, 5));
        for at in 0..36 {
            let mut damaged = bytes;
            damaged[at] ^= 0x10;
            assert!(Header::decode(&damaged).is_none(), "byte {at}");
        }
        assert!(Header::decode(&[]).is_none());
    }
}
