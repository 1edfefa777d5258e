//! The record as bytes, for a node that is too far behind for the log; see `docs/formats/cluster.md`.

use std::collections::BTreeMap;

use super::{Record, Remembered, Remembrance};
use crate::codec::{Malformed, Reader, Writer};
use crate::limits::REMEMBERED_MAX;
use crate::transaction::{Revision, Versioned};
use crate::watch::Everything;

const MAGIC: &[u8; 8] = b"URSACREC";
/// The version of the snapshot's format.
pub const VERSION: u32 = 1;

impl Record {
    /// The whole record, with a checksum.
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Writer::default();
        to.0.extend(MAGIC);
        to.u32(VERSION);
        to.u64(self.revision().0);
        to.u64(self.sequence());
        to.count(self.now.entries.len());
        for (key, entry) in &self.now.entries {
            to.bytes(key.as_bytes());
            to.u64(entry.revision.0);
            to.bytes(&entry.value);
        }
        to.count(self.memory.iter().count());
        for it in self.memory.iter() {
            to.u128(it.op_id);
            let (kind, precondition, revision) = it.result.parts();
            to.u8(kind);
            to.u16(precondition);
            to.u64(revision);
        }
        to.seal()
    }

    /// The record that [`Record::encode`] encoded.
    pub fn decode(bytes: &[u8]) -> Result<Record, Malformed> {
        let mut from = Reader::sealed(bytes)?;
        let mut magic = [0; 8];
        for byte in &mut magic {
            *byte = from.u8()?;
        }
        if magic != *MAGIC || from.u32()? != VERSION {
            return Err(Malformed);
        }
        let revision = Revision(from.u64()?);
        let sequence = from.u64()?;
        let mut entries = BTreeMap::new();
        for _ in 0..from.count(16)? {
            let key = from.text()?;
            if entries.last_key_value().is_some_and(|(last, _)| *last >= key) {
                return Err(Malformed);
            }
            let revision = Revision(from.u64()?);
            entries.insert(key, Versioned { value: from.bytes()?.into(), revision });
        }
        let count = from.count(27)? as u64;
        if count != sequence.min(REMEMBERED_MAX) {
            return Err(Malformed);
        }
        let mut results = Vec::new();
        for number in sequence - count + 1..=sequence {
            let op_id = from.u128()?;
            let result = Remembrance::of_parts(from.u8()?, from.u16()?, from.u64()?)?;
            results.push(Remembered { sequence: number, op_id, result });
        }
        from.end()?;
        let record = Record::from_parts(Everything { revision, entries }, sequence, results);
        record.verify().map_err(|_| Malformed)?;
        Ok(record)
    }
}

impl Remembrance {
    /// The result as three numbers: kind, precondition, revision.
    pub(crate) fn parts(self) -> (u8, u16, u64) {
        match self {
            Remembrance::Committed(revision) => (1, 0, revision.0),
            Remembrance::Conflict { precondition, found: Some(found) } => (2, precondition, found.0),
            Remembrance::Conflict { precondition, found: None } => (3, precondition, 0),
            Remembrance::Full => (4, 0, 0),
        }
    }

    /// The result of the numbers from [`Remembrance::parts`].
    pub(crate) fn of_parts(kind: u8, precondition: u16, revision: u64) -> Result<Remembrance, Malformed> {
        if (precondition > 0 && kind != 2 && kind != 3) || (revision > 0 && kind > 2) {
            return Err(Malformed);
        }
        Ok(match kind {
            1 => Remembrance::Committed(Revision(revision)),
            2 => Remembrance::Conflict { precondition, found: Some(Revision(revision)) },
            3 => Remembrance::Conflict { precondition, found: None },
            4 => Remembrance::Full,
            _ => return Err(Malformed),
        })
    }
}
