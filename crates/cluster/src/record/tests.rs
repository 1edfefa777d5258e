use super::*;
use crate::limits::REMEMBERED_MAX;

fn committed(revision: u64) -> Applied {
    Applied::Done { outcome: Outcome::Committed(Revision(revision)), again: false }
}

fn conflict(key: &str, found: Option<u64>) -> Applied {
    let outcome = Outcome::Conflict { key: key.to_owned(), found: found.map(Revision) };
    Applied::Done { outcome, again: false }
}

#[test]
fn all_of_a_transaction_or_nothing() {
    let mut record = Record::default();
    let both = Transaction::new(1).expect("a", None).put("a", "1").put("b", "2");
    assert_eq!(record.apply(&both, 0), committed(1));
    let stale =
        Transaction::new(2).expect("a", Some(Revision(1))).expect("b", None).delete("a").put("c", "3");
    assert_eq!(record.apply(&stale, 0), conflict("b", Some(1)));
    assert_eq!(record.get("c"), None);
    assert_eq!(record.revision(), Revision(1), "a conflict is no revision");
    let right =
        Transaction::new(3).expect("a", Some(Revision(1))).expect("c", None).delete("a").put("c", "3");
    assert_eq!(record.apply(&right, 0), committed(2));
    assert_eq!(record.apply(&Transaction::new(4).expect("a", Some(Revision(1))), 0), conflict("a", None));
    let keys: Vec<_> = record.list("").map(|(key, entry)| (key.as_str(), entry.revision.0)).collect();
    assert_eq!(keys, [("b", 1), ("c", 2)]);
    record.check();
}

#[test]
fn a_list_is_of_its_prefix() {
    let mut record = Record::default();
    let put = ["vol", "vol/", "vol/a", "vol/b", "vol0", "w"];
    let all = put.iter().fold(Transaction::new(1), |it, key| it.put(key, "x"));
    assert_eq!(record.apply(&all, 0), committed(1));
    let keys = |prefix| record.list(prefix).map(|(key, _)| key.as_str()).collect::<Vec<_>>();
    assert_eq!(keys("vol/"), ["vol/", "vol/a", "vol/b"]);
    assert_eq!(keys("x"), [""; 0]);
}

#[test]
fn a_transaction_takes_effect_once() {
    let mut record = Record::default();
    let add = Transaction::new(1).put("a", "1");
    assert_eq!(record.apply(&add, 0), committed(1));
    assert_eq!(record.apply(&Transaction::new(2).delete("a"), 0), committed(2));
    let again = Applied::Done { outcome: Outcome::Committed(Revision(1)), again: true };
    assert_eq!(record.apply(&add, 0), again);
    assert_eq!(record.get("a"), None);
    let conflicts = Transaction::new(3).expect("a", Some(Revision(1)));
    assert_eq!(record.apply(&conflicts, 0), conflict("a", None));
    record.apply(&Transaction::new(4).put("a", "2"), 0);
    let outcome = Outcome::Conflict { key: "a".to_owned(), found: None };
    assert_eq!(record.apply(&conflicts, 0), Applied::Done { outcome, again: true }, "as it was then");
}

#[test]
fn a_transaction_with_a_forgotten_result_is_not_repeated() {
    let mut record = Record::default();
    let first = Transaction::new(u128::MAX).put("counter", "1");
    assert_eq!(record.apply(&first, 0), committed(1));
    for number in 1..=u128::from(REMEMBERED_MAX) {
        record.apply(&Transaction::new(number).put("x", ""), record.sequence());
    }
    assert_eq!(record.remembered().count() as u64, REMEMBERED_MAX);
    assert_eq!(record.apply(&first, 0), Applied::TooOld);
    let unknown_but_fresh = Transaction::new(u128::MAX - 1).put("counter", "2");
    assert_eq!(record.apply(&unknown_but_fresh, 1), committed(REMEMBERED_MAX + 2));
    record.check();
    assert_eq!(Record::decode(&record.encode()), Ok(record));
}

#[test]
fn a_full_record_takes_only_what_makes_it_smaller() {
    let mut record = Record::default();
    // 4 keys of 2 bytes with values of 262,144 bytes and 64 of bookkeeping each: 1,048,840 bytes a
    // transaction.
    let fill = |number: u8| {
        (0..4_u8).fold(Transaction::new(number.into()), |it, part| {
            it.put(std::str::from_utf8(&[b'0' + number, b'0' + part]).unwrap(), vec![number; 262_144])
        })
    };
    for number in 0..63 {
        assert_eq!(record.apply(&fill(number), 0), committed(u64::from(number) + 1));
    }
    assert_eq!(record.apply(&fill(63), 0), Applied::Full, "64 times 1,048,840 bytes are more than 64 MiB");
    assert_eq!(record.apply(&fill(63), 0), Applied::Full, "and stays so for whoever asks again");
    assert_eq!(record.apply(&Transaction::new(1000).delete("00"), 0), committed(64));
    record.check();
}

#[test]
fn bytes_of_a_snapshot() {
    let mut record = Record::default();
    record.apply(&Transaction::new(0x0b0a).put("k", "v!"), 0);
    record.apply(&Transaction::new(7).expect("k", None), 0);
    let content: Vec<u8> = [
        &b"URSACREC"[..],
        &[1, 0, 0, 0],             // version
        &[1, 0, 0, 0, 0, 0, 0, 0], // revision
        &[2, 0, 0, 0, 0, 0, 0, 0], // transactions carried out
        &[1, 0, 0, 0],             // keys
        &[1, 0, 0, 0, b'k', 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, b'v', b'!'],
        &[2, 0, 0, 0], // results
        &[10, 11, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0],
        &[7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0],
    ]
    .concat();
    let bytes = record.encode();
    assert_eq!(bytes[..bytes.len() - 4], content);
    assert_eq!(bytes[bytes.len() - 4..], base::crc32c(&content).to_le_bytes());
    assert_eq!(Record::decode(&bytes), Ok(record));
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        assert!(Record::decode(&damaged).is_err(), "byte {at}");
        assert!(Record::decode(&bytes[..at]).is_err(), "cut at {at}");
    }
}

#[test]
fn whatever_a_snapshot_says_it_is_a_record_or_malformed() {
    let mut record = Record::default();
    for number in 0..20_u64 {
        let put = Transaction::new(number.into()).put(&format!("k{}", number % 7), vec![1; 9]);
        record.apply(&put.expect("k3", None), number);
    }
    let bytes = record.encode();
    let content = &bytes[..bytes.len() - 4];
    let mut records = 0;
    for at in 0..content.len() {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut changed = content.to_vec();
            changed[at] = value;
            changed.extend(base::crc32c(&changed).to_le_bytes());
            if let Ok(record) = Record::decode(&changed) {
                assert!(record.encode() == changed, "said in another way: byte {at} is {value}");
                records += 1;
            }
        }
    }
    assert!(records > content.len(), "most changes are of values: {records}");
}
