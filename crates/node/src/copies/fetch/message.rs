//! Messages between copies of a slice about blocks that one of them cannot read
//! (`docs/formats/replication-link.md`).

use std::ops::Range;
use std::time::Duration;

use base::{ByteOffset, Chain, Crc32c};
use replica::Epoch;

/// A message about unreadable blocks.
///
/// Numbers are those of the node that asks; ranges are bytes of the slice.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // Fields are explained where their names do not.
pub enum FetchMessage {
    /// Read this range for me, as for a host of your own.
    Ask {
        number: u64,
        epoch: Epoch,
        range: Range<u64>,
        /// How long the sender waits; in milliseconds on the wire.
        within: Duration,
    },
    /// Read this range for me as it was in the snapshot that has this number in pools.
    AskPast {
        number: u64,
        epoch: Epoch,
        snapshot: u64,
        range: Range<u64>,
        /// As for [`FetchMessage::Ask`].
        within: Duration,
    },
    /// What the range holds; sent as payload.
    Data { number: u64, data: Chain },
    /// The copy that was asked may not be read now, or has too much to do.
    Refused(u64),
    /// The disk of the copy that was asked cannot read this block either, or the copy lacks the snapshot.
    Unreadable { number: u64, first: ByteOffset },
}

impl FetchMessage {
    /// The message as bytes, and its payload.
    pub fn encode(self) -> (Vec<u8>, Chain) {
        let (words, payload) = match self {
            FetchMessage::Ask { number, epoch, range, within } => {
                let within = within.as_millis() as u64;
                (vec![1, number, epoch.0, range.start, range.end, within], Chain::new())
            }
            FetchMessage::AskPast { number, epoch, snapshot, range, within } => {
                let within = within.as_millis() as u64;
                (vec![5, number, epoch.0, snapshot, range.start, range.end, within], Chain::new())
            }
            FetchMessage::Data { number, data } => (vec![2, number, u64::from(checksum(&data))], data),
            FetchMessage::Refused(number) => (vec![3, number], Chain::new()),
            FetchMessage::Unreadable { number, first } => (vec![4, number, first.0], Chain::new()),
        };
        (words.iter().flat_map(|word: &u64| word.to_le_bytes()).collect(), payload)
    }

    /// Parses a message and its payload; `None`: it is malformed.
    pub fn parse(bytes: &[u8], payload: Chain) -> Option<FetchMessage> {
        let (words, rest) = bytes.as_chunks::<8>();
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let is_data = matches!(words.first(), Some(2));
        match (&words[..], rest, is_data || payload.is_empty()) {
            (&[1, number, epoch, start, end, within], [], true) if start < end => {
                let within = Duration::from_millis(within);
                Some(FetchMessage::Ask { number, epoch: Epoch(epoch), range: start..end, within })
            }
            (&[5, number, epoch, snapshot, start, end, within], [], true) if start < end => {
                let (epoch, within) = (Epoch(epoch), Duration::from_millis(within));
                Some(FetchMessage::AskPast { number, epoch, snapshot, range: start..end, within })
            }
            (&[2, number, crc], [], true) if crc == u64::from(checksum(&payload)) => {
                Some(FetchMessage::Data { number, data: payload })
            }
            (&[3, number], [], true) => Some(FetchMessage::Refused(number)),
            (&[4, number, first], [], true) => {
                Some(FetchMessage::Unreadable { number, first: ByteOffset(first) })
            }
            _ => None,
        }
    }
}

fn checksum(data: &Chain) -> u32 {
    let mut crc = Crc32c::new();
    data.parts().iter().for_each(|part| crc.update(part));
    crc.value()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words() {
        let within = Duration::from_millis(900);
        let ask = FetchMessage::Ask { number: 1, epoch: Epoch(2), range: 3..0x0104, within };
        let (bytes, payload) = ask.encode();
        assert_eq!(bytes.len(), 48);
        assert_eq!(bytes[32..], [4, 1, 0, 0, 0, 0, 0, 0, 0x84, 3, 0, 0, 0, 0, 0, 0]);
        let read = FetchMessage::parse(&bytes, payload);
        let Some(FetchMessage::Ask { number: 1, epoch: Epoch(2), range, within: read }) = read else {
            panic!("{read:?}")
        };
        assert_eq!((range, read), (3..0x0104, within));
        let past =
            FetchMessage::AskPast { number: 1, epoch: Epoch(2), snapshot: 0x0705, range: 3..0x0104, within };
        let (bytes, payload) = past.encode();
        assert_eq!((bytes.len(), bytes[0]), (56, 5));
        assert_eq!(bytes[24..40], [5, 7, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
        let read = FetchMessage::parse(&bytes, payload);
        let Some(FetchMessage::AskPast { number: 1, epoch: Epoch(2), snapshot: 0x0705, range, within: read }) =
            read
        else {
            panic!("{read:?}")
        };
        assert_eq!((range, read), (3..0x0104, within));
        let refused = FetchMessage::Refused(5).encode().0;
        assert_eq!(refused, [3, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0]);
        assert!(matches!(FetchMessage::parse(&refused, Chain::new()), Some(FetchMessage::Refused(5))));
        let unreadable = FetchMessage::Unreadable { number: 6, first: ByteOffset(512) }.encode().0;
        let read = FetchMessage::parse(&unreadable, Chain::new());
        assert!(matches!(read, Some(FetchMessage::Unreadable { number: 6, first: ByteOffset(512) })));
    }

    #[test]
    fn data_is_what_was_sent() {
        let data = Chain::copy_of(b"123456789");
        let (mut head, payload) = FetchMessage::Data { number: 7, data }.encode();
        assert_eq!(head[16..20], 0xe306_9283_u32.to_le_bytes(), "the check value of CRC32C");
        let read = FetchMessage::parse(&head, payload.clone());
        assert!(
            matches!(read, Some(FetchMessage::Data { number: 7, data }) if data.to_vec() == b"123456789")
        );
        assert!(FetchMessage::parse(&head, Chain::copy_of(b"123456780")).is_none());
        head[0] = 3;
        assert!(FetchMessage::parse(&head[..16], payload).is_none(), "only data has a payload");
    }

    #[test]
    fn malformed_messages_are_refused() {
        let empty =
            FetchMessage::Ask { number: 1, epoch: Epoch(2), range: 4..4, within: Duration::from_secs(1) };
        for bytes in
            [empty.encode().0, vec![], vec![3; 8], FetchMessage::Refused(1).encode().0[..15].to_vec()]
        {
            assert!(FetchMessage::parse(&bytes, Chain::new()).is_none(), "{bytes:?}");
        }
    }
}
