//! The header of a stream: which snapshot of which volume it has, and what it is based on.

use base::crc32c;
use serde::{Deserialize, Serialize};

/// The longest name of a volume or snapshot, in bytes. Names have no control characters: a stream may come
/// from anywhere, and its names are printed on terminals.
pub const NAME_BYTES_MAX: usize = 255;

const MAGIC: &[u8; 8] = b"URSAEXPT";
pub(crate) const VERSION: u16 = 1;
/// What lies before the names.
const FIXED_BYTES: usize = 80;
const CRC_BYTES: usize = 4;
/// Magic, version and length: enough to read the rest.
pub(crate) const START_BYTES: usize = 12;
const BYTES_MIN: usize = FIXED_BYTES + CRC_BYTES;
const BYTES_MAX: usize = BYTES_MIN + 3 * NAME_BYTES_MAX;

/// What a stream has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The volume's identity, which no other volume of any cluster has.
    pub volume: [u8; 16],
    /// Its name, for people.
    pub volume_name: String,
    /// Its logical block size: 512 or 4096.
    pub block_bytes: u32,
    /// The snapshot that the volume is as, after the stream.
    pub snapshot: Snapshot,
    /// The snapshot that it must be as, before. `None`: the stream is full.
    pub since: Option<Snapshot>,
}

/// A snapshot of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Snapshot {
    /// Its name, for people.
    pub name: String,
    /// Its number in its cluster.
    pub number: u32,
    /// When it was taken, in seconds since 1970. A record that was set back may give a number again.
    pub time: u64,
    /// Size of the volume in it, in bytes.
    pub size: u64,
}

impl Snapshot {
    /// Whether both are the same snapshot, if they are of one volume: names may change.
    pub fn is(&self, other: &Snapshot) -> bool {
        (self.number, self.time, self.size) == (other.number, other.time, other.size)
    }

    /// Whether both are the same, or there is none.
    pub fn are_same(one: Option<&Snapshot>, other: Option<&Snapshot>) -> bool {
        match (one, other) {
            (Some(one), Some(other)) => one.is(other),
            (None, None) => true,
            _ => false,
        }
    }
}

/// Why bytes are not a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Malformed {
    Magic,
    Version(u16),
    Damaged,
}

impl Header {
    /// The bytes of the header. `None`: a name is empty, longer than [`NAME_BYTES_MAX`], or has control
    /// characters.
    pub(crate) fn encode(&self) -> Option<Vec<u8>> {
        let since = self.since.as_ref();
        let names = [Some(&self.volume_name), Some(&self.snapshot.name), since.map(|since| &since.name)];
        let fits = |name: &str| (1..=NAME_BYTES_MAX).contains(&name.len()) && is_printable(name);
        if !names.iter().flatten().all(|name| fits(name)) {
            return None;
        }
        let len = BYTES_MIN + names.iter().flatten().map(|name| name.len()).sum::<usize>();
        let name_len = |name: Option<&String>| name.map_or(0, |name| name.len() as u8);
        let mut bytes = Vec::with_capacity(len);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&(len as u16).to_le_bytes());
        bytes.extend_from_slice(&self.block_bytes.to_le_bytes());
        bytes.extend_from_slice(&self.volume);
        bytes.extend_from_slice(&self.snapshot.size.to_le_bytes());
        bytes.extend_from_slice(&self.snapshot.time.to_le_bytes());
        bytes.extend_from_slice(&self.snapshot.number.to_le_bytes());
        bytes.push(since.is_some().into());
        bytes.extend(names.map(name_len));
        bytes.extend_from_slice(&since.map_or(0, |since| since.size).to_le_bytes());
        bytes.extend_from_slice(&since.map_or(0, |since| since.time).to_le_bytes());
        bytes.extend_from_slice(&since.map_or(0, |since| since.number).to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        names.iter().flatten().for_each(|name| bytes.extend_from_slice(name.as_bytes()));
        bytes.extend_from_slice(&crc32c(&bytes).to_le_bytes());
        Some(bytes)
    }

    /// How many bytes the header has that begins with these.
    pub(crate) fn len(start: &[u8; START_BYTES]) -> Result<usize, Malformed> {
        if !start.starts_with(MAGIC) {
            return Err(Malformed::Magic);
        }
        let version = u16::from_le_bytes([start[8], start[9]]);
        if version != VERSION {
            return Err(Malformed::Version(version));
        }
        let len = usize::from(u16::from_le_bytes([start[10], start[11]]));
        if (BYTES_MIN..=BYTES_MAX).contains(&len) { Ok(len) } else { Err(Malformed::Damaged) }
    }

    /// Parses all bytes of a header whose length was checked.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Header, Malformed> {
        Header::parse(bytes).ok_or(Malformed::Damaged)
    }

    fn parse(bytes: &[u8]) -> Option<Header> {
        let (bytes, crc) = bytes.split_last_chunk::<CRC_BYTES>()?;
        if crc32c(bytes) != u32::from_le_bytes(*crc) {
            return None;
        }
        let mut fields = Fields(bytes.get(START_BYTES..)?);
        let block_bytes = u32::from_le_bytes(fields.take()?);
        let volume = fields.take()?;
        let (size, time) = (u64::from_le_bytes(fields.take()?), u64::from_le_bytes(fields.take()?));
        let number = u32::from_le_bytes(fields.take()?);
        let [is_incremental, of_volume, of_snapshot, of_since] = fields.take()?;
        let (since_size, since_time) =
            (u64::from_le_bytes(fields.take()?), u64::from_le_bytes(fields.take()?));
        let since_number = u32::from_le_bytes(fields.take()?);
        let reserved: [u8; 4] = fields.take()?;
        let volume_name = fields.name(of_volume)?;
        let snapshot = Snapshot { name: fields.name(of_snapshot)?, number, time, size };
        let since = match is_incremental {
            0 if (of_since, since_size, since_time, since_number) == (0, 0, 0, 0) => None,
            1 => {
                let name = fields.name(of_since)?;
                Some(Snapshot { name, number: since_number, time: since_time, size: since_size })
            }
            _ => return None,
        };
        let is_whole = fields.0.is_empty() && reserved == [0; 4] && [512, 4096].contains(&block_bytes);
        is_whole.then_some(Header { volume, volume_name, block_bytes, snapshot, since })
    }
}

/// What is left to be parsed.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*field)
    }

    fn name(&mut self, len: u8) -> Option<String> {
        let (name, rest) = self.0.split_at_checked(len.into()).filter(|(name, _)| !name.is_empty())?;
        self.0 = rest;
        String::from_utf8(name.to_vec()).ok().filter(|name| is_printable(name))
    }
}

fn is_printable(name: &str) -> bool {
    !name.contains(char::is_control)
}
