//! A transaction changes the record if all of its preconditions hold: it applies all of its writes, or none.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::codec::{Malformed, Reader, Writer};
use crate::error::Invalid;
use crate::limits::{KEY_BYTES_MAX, PRECONDITIONS_MAX, TRANSACTION_BYTES_MAX, VALUE_BYTES_MAX, WRITES_MAX};

/// The number of a committed transaction.
///
/// It grows by one with each in our own engines. (etcd also counts changes that others make in it.) 0 is
/// before the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

base::shows!(Display for Revision, |it| "revision {}", it.0);

/// A value, and when it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versioned {
    /// The value; JSON by convention.
    pub value: Arc<[u8]>,
    /// The revision of the transaction that wrote it.
    pub revision: Revision,
}

/// A compare-and-swap of any number of keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// A random number, drawn for each attempt at a change. If the outcome is unknown, the caller may send
    /// the same transaction with it again; it takes effect once.
    /// [`REMEMBERED_MAX`](crate::limits::REMEMBERED_MAX) says for how long that holds.
    pub op_id: u128,
    /// Keys and the expected revisions of their last writes; `None`: the key must not exist.
    pub preconditions: Vec<(String, Option<Revision>)>,
    /// Keys and their new values; `None` deletes the key, whether it exists or not.
    pub writes: Vec<(String, Option<Vec<u8>>)>,
}

/// The outcome of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It took effect.
    Committed(Revision),
    /// It did not take effect: the first precondition that does not hold, and the revision that was found.
    Conflict {
        /// The key of that precondition.
        key: String,
        /// `None`: the key does not exist.
        found: Option<Revision>,
    },
}

impl Transaction {
    /// A transaction without preconditions and writes. `op_id` must be random.
    pub fn new(op_id: u128) -> Transaction {
        Transaction { op_id, ..Transaction::default() }
    }

    /// Adds a precondition: `key` was last written at `revision`; `None`: it does not exist.
    pub fn expect(mut self, key: &str, revision: Option<Revision>) -> Transaction {
        self.preconditions.push((key.to_owned(), revision));
        self
    }

    /// Adds a write of `value` to `key`.
    pub fn put(mut self, key: &str, value: impl Into<Vec<u8>>) -> Transaction {
        self.writes.push((key.to_owned(), Some(value.into())));
        self
    }

    /// Adds a deletion of `key`.
    pub fn delete(mut self, key: &str) -> Transaction {
        self.writes.push((key.to_owned(), None));
        self
    }

    /// Checks that the transaction is within the limits.
    pub fn check(&self) -> Result<(), Invalid> {
        if self.preconditions.len() > PRECONDITIONS_MAX || self.writes.len() > WRITES_MAX {
            return Err(Invalid::Count);
        }
        let mut bytes = 0;
        let keys = self.preconditions.iter().map(|(key, _)| key);
        for key in keys.chain(self.writes.iter().map(|(key, _)| key)) {
            if key.is_empty() || key.len() > KEY_BYTES_MAX {
                return Err(Invalid::Key);
            }
            bytes += key.len();
        }
        let mut written = BTreeSet::new();
        for (key, value) in &self.writes {
            let len = value.as_ref().map_or(0, Vec::len);
            if len > VALUE_BYTES_MAX {
                return Err(Invalid::Value);
            }
            if !written.insert(key) {
                return Err(Invalid::Twice);
            }
            bytes += len;
        }
        if bytes > TRANSACTION_BYTES_MAX { Err(Invalid::Size) } else { Ok(()) }
    }

    pub(crate) fn encode(&self, to: &mut Writer) {
        to.u128(self.op_id);
        to.count(self.preconditions.len());
        for (key, revision) in &self.preconditions {
            to.bytes(key.as_bytes());
            to.u8(revision.is_some().into());
            to.u64(revision.unwrap_or_default().0);
        }
        to.count(self.writes.len());
        for (key, value) in &self.writes {
            to.bytes(key.as_bytes());
            to.u8(value.is_some().into());
            to.bytes(value.as_deref().unwrap_or_default());
        }
    }

    pub(crate) fn decode(from: &mut Reader<'_>) -> Result<Transaction, Malformed> {
        let mut transaction = Transaction::new(from.u128()?);
        for _ in 0..from.count(13)? {
            let key = from.text()?;
            let there = from.flag()?;
            let revision = Revision(from.u64()?);
            if !there && revision.0 > 0 {
                return Err(Malformed);
            }
            transaction.preconditions.push((key, there.then_some(revision)));
        }
        for _ in 0..from.count(9)? {
            let key = from.text()?;
            let there = from.flag()?;
            let value = from.bytes()?;
            if !there && !value.is_empty() {
                return Err(Malformed);
            }
            transaction.writes.push((key, there.then(|| value.to_vec())));
        }
        transaction.check().map_err(|_| Malformed)?;
        Ok(transaction)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_that_exceeds_a_limit_is_refused() {
        let fine = Transaction::new(1).expect("a", None).put("a", "x").delete("b");
        assert_eq!(fine.check(), Ok(()));
        assert_eq!(fine.clone().put("a", "y").check(), Err(Invalid::Twice));
        assert_eq!(fine.clone().put("", "y").check(), Err(Invalid::Key));
        assert_eq!(fine.clone().expect(&"k".repeat(513), None).check(), Err(Invalid::Key));
        assert_eq!(fine.clone().put("c", vec![0; 262_145]).check(), Err(Invalid::Value));
        let large = (0..5).fold(fine.clone(), |it, n| it.put(&format!("v{n}"), vec![0; 262_144]));
        assert_eq!(large.check(), Err(Invalid::Size));
        let many = (0..101).fold(fine, |it, n| it.delete(&format!("v{n}")));
        assert_eq!(many.check(), Err(Invalid::Count));
    }

    #[test]
    fn bytes_of_a_transaction() {
        let transaction = Transaction { op_id: 0x0102, ..Transaction::default() }
            .expect("a", Some(Revision(5)))
            .delete("bc");
        let mut bytes = Writer::default();
        transaction.encode(&mut bytes);
        let expected: Vec<u8> = [
            &[2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0][..], // op_id
            &[1, 0, 0, 0],                                         // preconditions
            &[1, 0, 0, 0, b'a', 1, 5, 0, 0, 0, 0, 0, 0, 0],
            &[1, 0, 0, 0], // writes
            &[2, 0, 0, 0, b'b', b'c', 0, 0, 0, 0, 0],
        ]
        .concat();
        assert_eq!(bytes.0, expected);
        assert_eq!(Transaction::decode(&mut Reader::new(&expected)), Ok(transaction));
        for len in 0..expected.len() {
            assert_eq!(Transaction::decode(&mut Reader::new(&expected[..len])), Err(Malformed));
        }
    }
}
