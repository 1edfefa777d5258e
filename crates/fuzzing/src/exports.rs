//! Exports of snapshots. Their checksums are set right, so that the rest is parsed.

use base::crc32c;
use export::{Reader, Record, Writer};

/// A checksum.
const CRC_BYTES: usize = 4;
/// Up to the length of the header, and where that is.
const START_BYTES: usize = 12;
/// The head of a record.
const HEAD_BYTES: usize = 32;

/// Reads a stream. All that is read is written to another one, from which the same is read.
pub fn run(bytes: &[u8]) {
    let sealed = sealed(bytes);
    let Ok(mut reader) = Reader::new(&sealed[..]) else { return };
    let (header, size) = (reader.header().clone(), reader.header().snapshot.size);
    let mut writer = Writer::new(Vec::new(), &header).expect("names that were read can be written");
    let (mut end, mut count) = (0, 0);
    while let Ok(Some(record)) = reader.read_record() {
        let (offset, len) = match record {
            Record::Data { offset, data } => {
                writer.data(offset, data).expect("it fits, as it was read");
                (offset, data.len() as u64)
            }
            Record::Zeros { offset, len } => {
                writer.zeros(offset, len).expect("it fits, as it was read");
                (offset, len)
            }
        };
        assert!(offset >= end && len > 0 && len <= size - offset, "{len} bytes at {offset} of {size}");
        end = offset + len;
        count += 1;
    }
    assert_eq!(reader.progress().end(), end);
    let data_bytes = reader.progress().data_bytes();
    let written = writer.finish().expect("a vector takes it");
    let mut again = Reader::new(&written[..]).expect("it was written just now");
    while again.read_record().expect("it was written just now").is_some() {
        count -= 1;
    }
    assert_eq!((again.header(), count), (&header, 0));
    assert_eq!((again.progress().end(), again.progress().data_bytes()), (end, data_bytes));
}

/// The stream with right checksums of its header and its records, where they would be if it were one. Only
/// the digest at the end stays as it is.
fn sealed(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let Some(start) = bytes.first_chunk::<START_BYTES>() else { return bytes };
    let mut at = usize::from(u16::from_le_bytes([start[10], start[11]]));
    if at < CRC_BYTES || at > bytes.len() {
        return bytes;
    }
    let crc = crc32c(&bytes[..at - CRC_BYTES]);
    bytes[at - CRC_BYTES..at].copy_from_slice(&crc.to_le_bytes());
    while let Some((head, rest)) = bytes[at..].split_first_chunk_mut::<HEAD_BYTES>() {
        let stored = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        let stored = stored.min(rest.len());
        let crc = crc32c(&rest[..stored]);
        head[24..28].copy_from_slice(&crc.to_le_bytes());
        let crc = crc32c(&head[..28]);
        head[28..].copy_from_slice(&crc.to_le_bytes());
        at += HEAD_BYTES + stored;
    }
    bytes
}
