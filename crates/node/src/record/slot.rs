//! The two slots of the record: what is in them, and which of them is in force.
//!
//! A commit makes the payload durable before it writes the header, and a header lies in one sector, which no
//! disk tears. So a power cut leaves the header of the commit before the last with a payload that is not its
//! own; no acknowledged change is lost with such a slot. A newer header with an invalid payload, or bytes
//! that are not a header, are damage: the slot may have held an acknowledged change, which is then missing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use base::{Buf, crc32c};
use rt::{Disk, DiskError};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::RecordError;

/// Four times what 4,096 volumes need, each with a target, a map and its own host group: about 1 KiB each.
pub(super) const SLOT_BYTES: u64 = 16 << 20;
pub(super) const SLOTS: u64 = 2;
pub(super) const HEADER_BYTES: usize = 4096;
const MAGIC: [u8; 8] = *b"URSAREC\0";

pub(super) type Entries = BTreeMap<String, Box<RawValue>>;

/// The content of a slot.
#[derive(Debug)]
pub(super) enum Slot {
    /// Never written.
    Blank,
    /// A record.
    Whole(Header, Entries),
    /// A header whose payload is not its own.
    Broken(Header),
    /// Bytes that are not a header.
    Damaged,
    /// The disk failed to read it. The header, if that could be read.
    Unreadable(Option<Header>, DiskError),
}

impl Slot {
    pub(super) async fn read(disk: &Disk, slot: u64) -> Slot {
        let at = slot * SLOT_BYTES;
        let header = match disk.read(at, Buf::uncleared(HEADER_BYTES)).await {
            Ok(header) if header.iter().all(|byte| *byte == 0) => return Slot::Blank,
            Ok(header) => header,
            Err(error) => return Slot::Unreadable(None, error),
        };
        let Some(header) = Header::decode(&header) else { return Slot::Damaged };
        let payload = disk.read(at + HEADER_BYTES as u64, Buf::uncleared(padded(header.payload_len))).await;
        let payload = match payload {
            Ok(payload) => payload,
            Err(error) => return Slot::Unreadable(Some(header), error),
        };
        Slot::behind(header, &payload[..header.payload_len])
    }

    /// The content of a slot with this header and this payload.
    pub(super) fn behind(header: Header, payload: &[u8]) -> Slot {
        let entries = (crc32c(payload) == header.payload_crc).then(|| serde_json::from_slice(payload).ok());
        entries.flatten().map_or(Slot::Broken(header), |entries| Slot::Whole(header, entries))
    }

    /// The version in the header.
    pub(super) fn version(&self) -> Option<u32> {
        self.header().map(|header| header.version)
    }

    fn header(&self) -> Option<Header> {
        match self {
            Slot::Whole(header, _) | Slot::Broken(header) => Some(*header),
            Slot::Unreadable(header, _) => *header,
            Slot::Blank | Slot::Damaged => None,
        }
    }

    /// What is wrong with this slot if generation `used` is in force; `None` for a slot as commits and power
    /// cuts leave it.
    fn wrong(&self, used: u64) -> Option<(RecordDamage, RecordMissing)> {
        let missing = match self.header() {
            Some(header) if header.generation < used => RecordMissing::Nothing,
            Some(header) => RecordMissing::Change(header.generation),
            None => RecordMissing::Perhaps,
        };
        match (self, missing) {
            (Slot::Whole(..), _) => None,
            // The second commit fills the second slot.
            (Slot::Blank, _) if used <= 1 => None,
            // A power cut during the next commit, which was not acknowledged.
            (Slot::Broken(_), RecordMissing::Nothing) => None,
            (Slot::Blank | Slot::Broken(_) | Slot::Damaged, missing) => {
                Some((RecordDamage::Content, missing))
            }
            (Slot::Unreadable(_, error), missing) => {
                Some((RecordDamage::Unreadable { errno: error.errno() }, missing))
            }
        }
    }
}

/// The record in force.
#[derive(Debug)]
pub(super) struct Chosen {
    pub(super) slot: u64,
    pub(super) generation: u64,
    pub(super) entries: Entries,
    /// What is wrong with the other slot.
    pub(super) fault: Option<RecordFault>,
}

/// The newest valid record among `slots`.
pub(super) fn choose(path: &Path, slots: Vec<Slot>) -> Result<Chosen, RecordError> {
    let generation = |slot: &Slot| match slot {
        Slot::Whole(header, _) => header.generation,
        _ => 0,
    };
    let used = slots.iter().map(generation).max().unwrap_or(0);
    let mut wrong = None;
    let mut found = None;
    let mut unreadable = None;
    let mut blank = true;
    for (number, slot) in (0..).zip(slots) {
        blank &= matches!(slot, Slot::Blank);
        wrong = wrong.or(slot.wrong(used).map(|(damage, missing)| (number, damage, missing)));
        match slot {
            Slot::Whole(header, entries) if header.generation == used => found = Some((number, entries)),
            Slot::Broken(header) if header.generation < used => {
                tracing::info!(
                    generation = used + 1,
                    "a change of the node's record was interrupted before it was acknowledged, and was not made"
                );
            }
            Slot::Unreadable(_, error) => unreadable = Some(error),
            _ => {}
        }
    }
    match (found, unreadable) {
        (Some((slot, entries)), _) => {
            let fault = wrong.map(|(slot, damage, missing)| RecordFault {
                path: path.to_owned(),
                slot,
                damage,
                missing,
                used,
            });
            Ok(Chosen { slot, generation: used, entries, fault })
        }
        // A power cut during the very first commit leaves its header blank.
        (None, None) if blank => Ok(Chosen { slot: 0, generation: 0, entries: Entries::new(), fault: None }),
        (None, Some(error)) => Err(RecordError::Disk(path.to_owned(), error)),
        (None, None) => Err(RecordError::Damaged(path.to_owned())),
    }
}

/// One of the two copies of the record was lost. The node continues with the other one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordFault {
    /// The record's file.
    pub path: PathBuf,
    /// The slot that is wrong.
    pub slot: u64,
    /// What is wrong with it.
    pub damage: RecordDamage,
    /// What the record in force may miss.
    pub missing: RecordMissing,
    /// The generation in force.
    pub used: u64,
}

/// What is wrong with a copy of the record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecordDamage {
    /// What the disk returned is not a record.
    Content,
    /// The disk failed to read it.
    Unreadable {
        /// The system's error number.
        errno: i32,
    },
}

/// What the record in force may miss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecordMissing {
    /// Nothing: the slot held an older record.
    Nothing,
    /// Unknown: the slot does not show which record it held.
    Perhaps,
    /// The slot held this generation, which is newer.
    Change(u64),
}

pub(super) fn padded(len: usize) -> usize {
    len.next_multiple_of(HEADER_BYTES)
}

/// The header of a slot, which describes its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) version: u32,
    pub(super) generation: u64,
    pub(super) payload_len: usize,
    pub(super) payload_crc: u32,
}

/// The bytes of the header that its own checksum covers.
pub(super) const HEADER_USED: usize = 32;

impl Header {
    pub(super) fn encode(&self, bytes: &mut [u8]) {
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.version.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.payload_crc.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.generation.to_le_bytes());
        bytes[24..32].copy_from_slice(&(self.payload_len as u64).to_le_bytes());
        let crc = crc32c(&bytes[..HEADER_USED]);
        bytes[HEADER_USED..HEADER_USED + 4].copy_from_slice(&crc.to_le_bytes());
    }

    /// `None` if `bytes` are not a header.
    pub(super) fn decode(bytes: &[u8]) -> Option<Header> {
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

    fn header(generation: u64) -> Header {
        Header { version: 1, generation, payload_len: 2, payload_crc: 0 }
    }

    fn whole(generation: u64) -> Slot {
        Slot::Whole(header(generation), Entries::new())
    }

    fn eio() -> DiskError {
        DiskError::Media(std::io::Error::from_raw_os_error(5))
    }

    /// The slot and the generation in force, and what is missing if something is wrong.
    fn chosen(slots: [Slot; 2]) -> (u64, u64, Option<RecordMissing>) {
        let chosen = choose(Path::new("record"), slots.into()).unwrap();
        (chosen.slot, chosen.generation, chosen.fault.map(|fault| fault.missing))
    }

    #[test]
    fn a_run_without_damage_leaves_no_fault() {
        assert_eq!(chosen([Slot::Blank, Slot::Blank]), (0, 0, None));
        assert_eq!(chosen([Slot::Blank, whole(1)]), (1, 1, None));
        assert_eq!(chosen([whole(2), whole(1)]), (0, 2, None));
        assert_eq!(chosen([whole(2), whole(3)]), (1, 3, None));
        // A power cut while generation 4 was being written over generation 2.
        assert_eq!(chosen([Slot::Broken(header(2)), whole(3)]), (1, 3, None));
    }

    #[test]
    fn damage_is_reported_with_what_may_be_lost() {
        assert_eq!(chosen([Slot::Broken(header(4)), whole(3)]), (1, 3, Some(RecordMissing::Change(4))));
        assert_eq!(chosen([Slot::Damaged, whole(3)]), (1, 3, Some(RecordMissing::Perhaps)));
        assert_eq!(chosen([Slot::Blank, whole(3)]), (1, 3, Some(RecordMissing::Perhaps)));
        assert_eq!(chosen([Slot::Damaged, whole(1)]), (1, 1, Some(RecordMissing::Perhaps)));
        assert_eq!(chosen([whole(2), Slot::Unreadable(None, eio())]), (0, 2, Some(RecordMissing::Perhaps)));
        let unreadable = |generation| Slot::Unreadable(Some(header(generation)), eio());
        assert_eq!(chosen([whole(2), unreadable(1)]), (0, 2, Some(RecordMissing::Nothing)));
        assert_eq!(chosen([whole(2), unreadable(3)]), (0, 2, Some(RecordMissing::Change(3))));
    }

    #[test]
    fn a_record_without_a_whole_copy_is_unusable() {
        let refused = |slots: [Slot; 2]| choose(Path::new("record"), slots.into()).unwrap_err();
        assert!(matches!(refused([Slot::Damaged, Slot::Broken(header(3))]), RecordError::Damaged(_)));
        assert!(matches!(refused([Slot::Blank, Slot::Broken(header(1))]), RecordError::Damaged(_)));
        assert!(matches!(refused([Slot::Blank, Slot::Unreadable(None, eio())]), RecordError::Disk(..)));
    }
}
