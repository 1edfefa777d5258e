//! Messages between copies of a slice about ranges that commands lock (`docs/formats/replication-link.md`).

use std::ops::Range;

use replica::Epoch;

/// A message about a locked range.
///
/// Numbers are those of the node that locks; ranges are bytes of the slice.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // Fields are explained where their names do not.
pub enum LockMessage {
    /// Give me the range, in this epoch.
    Take { number: u64, epoch: Epoch, range: Range<u64> },
    /// The range is given: no write of the receiver of the request is under way there, and none begins.
    Taken(u64),
    /// The range is not given: the receiver of the request acts in another epoch.
    Refused(u64),
    /// The range is no longer needed.
    Release(u64),
    /// The ranges that the sender holds: the first message about ranges over a new link.
    Holds {
        epoch: Epoch,
        /// The numbers of all ranges that it holds in this epoch.
        numbers: Vec<u64>,
    },
}

impl LockMessage {
    /// The message as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let words = match self {
            LockMessage::Take { number, epoch, range } => vec![1, *number, epoch.0, range.start, range.end],
            LockMessage::Taken(number) => vec![2, *number],
            LockMessage::Refused(number) => vec![3, *number],
            LockMessage::Release(number) => vec![4, *number],
            LockMessage::Holds { epoch, numbers } => {
                [5, epoch.0].into_iter().chain(numbers.clone()).collect()
            }
        };
        words.iter().flat_map(|word: &u64| word.to_le_bytes()).collect()
    }

    /// Parses a message; `None`: it is malformed.
    pub fn parse(bytes: &[u8]) -> Option<LockMessage> {
        let (words, rest) = bytes.as_chunks::<8>();
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        match (&words[..], rest) {
            (&[1, number, epoch, start, end], []) if start < end => {
                Some(LockMessage::Take { number, epoch: Epoch(epoch), range: start..end })
            }
            (&[2, number], []) => Some(LockMessage::Taken(number)),
            (&[3, number], []) => Some(LockMessage::Refused(number)),
            (&[4, number], []) => Some(LockMessage::Release(number)),
            ([5, epoch, numbers @ ..], []) => {
                Some(LockMessage::Holds { epoch: Epoch(*epoch), numbers: numbers.to_vec() })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words() {
        let messages = [
            LockMessage::Take { number: 1, epoch: Epoch(2), range: 3..4 },
            LockMessage::Taken(5),
            LockMessage::Refused(6),
            LockMessage::Release(7),
            LockMessage::Holds { epoch: Epoch(8), numbers: vec![] },
            LockMessage::Holds { epoch: Epoch(8), numbers: vec![9, 10] },
        ];
        for message in messages {
            assert_eq!(LockMessage::parse(&message.encode()), Some(message));
        }
        let release = LockMessage::Release(0x0102).encode();
        assert_eq!(release, [4, 0, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(LockMessage::parse(&release[..15]), None);
        assert_eq!(LockMessage::parse(&[]), None);
        let nothing = LockMessage::Take { number: 1, epoch: Epoch(2), range: 4..5 };
        let mut nothing = nothing.encode();
        nothing[24] = 5;
        assert_eq!(LockMessage::parse(&nothing), None, "an empty range");
    }
}
